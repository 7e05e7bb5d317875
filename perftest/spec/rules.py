"""Rules between the values of a plan: no value that a broker refuses, no endless wait, no contradiction.

A rule looks at finished values only, so the same rules serve workload files and the flags of ``perftest run``. A rule
names a value by its place in the plan (``prefetch`` of :class:`~perftest.spec.plan.Settings`,
``publishing.transaction``). A :data:`Naming` turns this place into the key or the flag that the user wrote.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from perftest.spec.behaviour import Arrivals, Bodies, Cycle, ExitWhen, Publishing, RoutingKeys
from perftest.spec.plan import Group, Isolation, Plan, QueueSpec, Settings
from perftest.spec.properties import broken_properties
from perftest.spec.trace import TraceFileError, read_trace

SIZE_BYTES_MIN: Final = 28
"""Octets of the stamp at the beginning of every body (``perftest.engine.accounting.stamp.SIZE``, as a test checks)."""
SIZE_BYTES_MAX: Final = 128 * 1024 * 1024
"""RabbitMQ's default ``max_message_size``: a larger message closes the channel."""
PREFETCH_MAX: Final = 65_535
"""``basic.qos`` carries a 16-bit count."""
CHANNELS_MAX: Final = 2047
"""RabbitMQ's default ``channel_max``: opening more closes the connection."""
PUBLISHERS_MAX: Final = 65_536
"""The stamp names a publisher by 16 bits (``perftest.engine.accounting.stamp.PUBLISHERS_MAX``)."""
FRAME_MAX_MIN: Final = 4096
"""The least ``frame-max`` that AMQP 0-9-1 allows."""
QUEUE_NAME_OCTETS_MAX: Final = 255
WORKERS_MAX: Final = 64
"""Number of processes whose channels the ledger can tell apart (``perftest.engine.workers.shares``, as a test
checks)."""


class Broken(NamedTuple):
    """A broken rule: the place of the value to change, the rule, the fix, and the value."""

    field: str
    rule: str
    fix: str
    value: object


Naming = Callable[[str], str]


def place(field: str) -> str:
    """The name of a place without another name."""
    return field


def broken(plan: Plan, name: Naming = place) -> Iterator[Broken]:
    """Every rule that a plan breaks. A rule that several steps or groups break alike is told once."""
    told: list[Broken] = []
    for group in plan.measured:
        for found in _of_group(plan.only(group), name):
            if found not in told:
                told.append(found)
                yield found
    for rule in (broken_groups, _connecting, _workers):
        yield from rule(plan, name)


def _of_group(plan: Plan, name: Naming) -> Iterator[Broken]:
    """The rules that the only group of ``plan`` breaks."""
    for step in plan.steps:
        yield from _of_settings(plan, step.settings, name)
    for rule in (_publishing, _bodies, _consuming, _ends, _queues, _exchange):
        yield from rule(plan, name)


def broken_groups(plan: Plan, name: Naming) -> Iterator[Broken]:
    """The rules between the groups of a plan."""
    names = Counter(group.name for group in plan.groups)
    for twice in sorted(each for each, times in names.items() if times > 1):
        yield Broken("groups", f"two groups are named {twice!r}", "give each its own name", twice)
    times = {tuple((step.number, step.duration_s, step.warmup_s) for step in group.steps) for group in plan.measured}
    if len(times) > 1:
        rule = "groups that are measured side by side begin and end their steps together"
        yield Broken("groups", rule, "give all of them the same steps", _names(plan))


def _names(plan: Plan) -> str:
    return ", ".join(group.name for group in plan.measured)


def broken_in(plan: Plan, group: Group, name: Naming = place) -> Iterator[Broken]:
    """The rules that one group of a plan breaks by itself."""
    return _of_group(plan.only(group), name)


def broken_settings(settings: Settings, name: Naming = place, bodies: Bodies | None = None) -> Iterator[Broken]:
    """Each rule that settings break by themselves. Bodies without a stamp may be of any size."""
    prefetch = settings.prefetch
    if prefetch > PREFETCH_MAX:
        rule = f"{name('prefetch')} {prefetch} is above {PREFETCH_MAX}"
        yield Broken("prefetch", rule, "lower it, or 0 for no limit", prefetch)
    if settings.publishers < 1 and settings.consumers < 1:
        rule, fix = "no publishers and no consumers: nothing would be measured", "use 1 or more of one of them"
        yield Broken("publishers", rule, fix, settings.publishers)
    if settings.rate is not None and not 0 <= settings.rate < math.inf:
        rule, fix = f"a rate of {settings.rate:g} means nothing", "use 0 (stay idle) or more, or unlimited"
        yield Broken("rate", rule, fix, settings.rate)
    yield from _size("size_bytes", settings.size_bytes, stamped=bodies is None or is_stamped(bodies))


def too_few_consumers(queues: int, *, consumers: int, channels: int) -> Broken | None:
    """The rule of a workload file that every queue has a consumer, or none has: broken, or None. ``consumers`` are
    connections with ``channels`` channels each."""
    if not 0 < consumers * channels < queues:
        return None
    plural = "s" if consumers * channels > 1 else ""
    rule = f"{consumers * channels} consumer{plural} cannot read {queues} queues: some would only fill up"
    return Broken("consumers", rule, f"use {-(-queues // channels)} or more, or 0", consumers)


def is_stamped(bodies: Bodies) -> bool:
    """Whether the stamp is in the body; with files and JSON documents it is in a header."""
    return not bodies.files and not bodies.json_count


def _of_settings(plan: Plan, settings: Settings, name: Naming) -> Iterator[Broken]:
    """The rules that the settings of a step break, by themselves and together with the other values of the plan."""
    yield from _acknowledging(plan, settings, name)
    yield from broken_settings(settings, name, plan.publishing.bodies)
    yield from _pacing(plan, settings, name)
    yield from _nobody(plan, settings, name)
    transaction = plan.publishing.transaction
    if transaction and settings.in_flight and settings.publishers:
        rule = (
            f"{name('publishing.transaction')} and {name('in_flight')}: a channel cannot have transactions and confirms"
        )
        yield Broken("publishing.transaction", rule, "use one of them", transaction)
    for field, count, channels in (
        ("publishing.channels", settings.publishers, plan.publishing.channels),
        ("consuming.channels", settings.consumers, plan.consuming.channels),
    ):
        if count * channels > PUBLISHERS_MAX:
            rule = f"{count * channels} clients are more than the {PUBLISHERS_MAX} that a run can tell apart"
            yield Broken(field, rule, "use fewer, or several runs", channels)


def _acknowledging(plan: Plan, settings: Settings, name: Naming) -> Iterator[Broken]:
    if settings.publishers and not settings.consumers:
        return
    if not settings.ack_interval:
        yield from _automatic(plan, settings, name)
    elif not _prefetch_is_moot(plan):
        yield from _endless_waits(plan, settings, name)
    yield from _failing(plan, settings, name)


def _prefetch_is_moot(plan: Plan) -> bool:
    """Whether no consumer can come to wait for its prefetch: a poll has none, and consumers of a few messages
    acknowledge all of them when they leave."""
    consuming = plan.consuming
    windows = [consuming.channel_prefetch, *(step.settings.prefetch for step in plan.steps)]
    fewest = min((window for window in windows if window), default=0)
    return consuming.polling or 0 < consuming.messages <= fewest


def _endless_waits(plan: Plan, settings: Settings, name: Naming) -> Iterator[Broken]:
    consuming, prefetch, interval = plan.consuming, settings.prefetch, settings.ack_interval
    if 0 < prefetch < interval and not settings.ack_after_ms:
        yield _waits("ack_interval", interval, "prefetch", prefetch, name)
    if 0 < consuming.channel_prefetch < interval and not settings.ack_after_ms:
        yield _waits("ack_interval", interval, "consuming.channel_prefetch", consuming.channel_prefetch, name)
    for field, window in (("prefetch", prefetch), ("consuming.channel_prefetch", consuming.channel_prefetch)):
        if 0 < window < consuming.transaction:
            yield _waits("consuming.transaction", consuming.transaction, field, window, name)


def _automatic(plan: Plan, settings: Settings, name: Naming) -> Iterator[Broken]:
    """The settings that exclude automatic acknowledgement."""
    consuming = plan.consuming
    automatic = "nothing is acknowledged by consumers with automatic acknowledgement"
    for field, value in (
        ("consuming.nack", consuming.nack),
        ("consuming.transaction", consuming.transaction),
        ("ack_after_ms", settings.ack_after_ms),
        ("failing", settings.failing),
    ):
        if value:
            yield Broken(field, f"{name(field)}: {automatic}", f"leave out one of them ({name('autoack')})", value)


def _failing(plan: Plan, settings: Settings, name: Naming) -> Iterator[Broken]:
    """A delivery that fails is rejected alone, and another has to succeed."""
    if not settings.failing:
        return
    if settings.failing == 1 and plan.consuming.requeue:
        rule = f"{name('failing')}: if all deliveries fail, no message ever leaves its queue"
        yield Broken("failing", rule, "use less than 100%", settings.failing)
    if settings.ack_interval > 1:
        rule = f"{name('failing')}: an acknowledgement of several messages cannot reject one of them"
        yield Broken("failing", rule, f"use {name('ack_interval')} 1", settings.failing)
    if plan.consuming.nack:
        rule = f"{name('failing')}: with {name('consuming.nack')} all deliveries are rejected"
        yield Broken("failing", rule, "use one of them", settings.failing)


def _waits(field: str, value: int, window: str, held: int, name: Naming) -> Broken:
    rule = f"{name(field)} ({value}) is larger than {name(window)} ({held}): the consumer would wait forever"
    return Broken(field, rule, f"lower {name(field)} to {held} or raise {name(window)} to {value}", value)


def _pacing(plan: Plan, settings: Settings, name: Naming) -> Iterator[Broken]:
    if settings.publishers:
        yield from _rates(plan.publishing, settings.rate, name)
    if settings.consumers and plan.consuming.latency_cycle and settings.consumer_latency_us:
        rule = f"{name('consumer_latency_us')} and {name('consuming.latency_cycle')}: two processing times at once"
        yield Broken("consumer_latency_us", rule, "use one of them", settings.consumer_latency_us)


def _rates(publishing: Publishing, rate: float | None, name: Naming) -> Iterator[Broken]:
    if publishing.rate_cycle and rate is not None:
        rule = f"{name('rate')} and {name('publishing.rate_cycle')}: two rates at once"
        yield Broken("rate", rule, "use one of them", rate)
    rated = rate is not None or bool(publishing.rate_cycle)
    if publishing.arrivals is Arrivals.POISSON and not rated:
        rule = "Poisson arrivals need a rate to come at"
        yield Broken("publishing.arrivals", rule, f"add {name('rate')}", publishing.arrivals)
    if publishing.arrivals is Arrivals.TRACE and publishing.rate_cycle:
        rule = f"{name('publishing.rate_cycle')}: a trace has its own times"
        yield Broken("publishing.rate_cycle", rule, "use one of them", publishing.rate_cycle)


def _nobody(plan: Plan, settings: Settings, name: Naming) -> Iterator[Broken]:
    """Limits that no client could reach."""
    if not settings.publishers and plan.publishing.messages:
        rule = f"{name('publishing.messages')}: there are no publishers to count the messages of"
        yield Broken(
            "publishing.messages", rule, f"leave it out, or add {name('publishers')}", plan.publishing.messages
        )
    if settings.consumers:
        return
    for field, value in (
        ("consuming.messages", plan.consuming.messages),
        ("consuming.exit_when", plan.consuming.exit_when is not ExitWhen.NEVER and plan.consuming.exit_when.value),
    ):
        if value:
            rule = f"{name(field)}: there are no consumers who could reach it"
            yield Broken(field, rule, f"leave it out, or add {name('consumers')}", value)


def _ends(plan: Plan, name: Naming) -> Iterator[Broken]:
    """If steps share their clients, clients that leave by themselves are missing in the next step."""
    if len(plan.steps) < 2 or plan.isolation is not Isolation.LIVE:
        return
    for field, value in (
        ("publishing.messages", plan.publishing.messages),
        ("consuming.messages", plan.consuming.messages),
        ("consuming.exit_when", plan.consuming.exit_when is not ExitWhen.NEVER and plan.consuming.exit_when.value),
    ):
        if value:
            rule = f"{name(field)}: steps that share their clients have none left once these have left by themselves"
            yield Broken(field, rule, "use isolation: isolated (sweep --isolated), or leave it out", value)


def _publishing(plan: Plan, name: Naming) -> Iterator[Broken]:
    publishing = plan.publishing
    yield from _channels("publishing.channels", publishing.channels)
    yield from _cycle("publishing.rate_cycle", publishing.rate_cycle)
    yield from _cycle("publishing.size_cycle", publishing.size_cycle)
    for size, _ in publishing.size_cycle:
        yield from _size("publishing.size_cycle", int(size), stamped=is_stamped(publishing.bodies))
    if publishing.arrivals is Arrivals.TRACE:
        yield from _trace("publishing.trace", publishing.trace)
    for rule, fix, value in broken_properties(publishing.properties):
        yield Broken("publishing.properties", rule, fix, value)
    mode = publishing.properties.get("deliveryMode")
    if mode == 1 and _publishes(plan) and all(step.settings.persistent for step in plan.steps):
        rule = f"{name('publishing.properties')} deliveryMode=1 is transient, {name('persistent')} is persistent"
        yield Broken("publishing.properties", rule, "use one of them", mode)


def _bodies(plan: Plan, name: Naming) -> Iterator[Broken]:
    bodies = plan.publishing.bodies
    for file in bodies.files:
        yield from _unreadable("publishing.bodies.files", file, "a file of bodies")
    if bodies.files and bodies.json_count:
        rule = f"{name('publishing.bodies.files')} and {name('publishing.bodies.json_count')}: two kinds of bodies"
        yield Broken("publishing.bodies.files", rule, "use one of them", ",".join(bodies.files))
    if bodies.files and plan.publishing.size_cycle:
        rule = f"{name('publishing.size_cycle')}: files have the size they have"
        yield Broken("publishing.size_cycle", rule, "leave out one of them", plan.publishing.size_cycle)
    if bodies.json_count and bodies.json_fields < 1:
        rule = "a JSON document needs fields to choose from"
        yield Broken("publishing.bodies.json_fields", rule, "use 1 or more", bodies.json_fields)


def _consuming(plan: Plan, name: Naming) -> Iterator[Broken]:
    consuming = plan.consuming
    yield from _channels("consuming.channels", consuming.channels)
    yield from _cycle("consuming.latency_cycle", consuming.latency_cycle)
    if consuming.channel_prefetch > PREFETCH_MAX:
        rule = f"{name('consuming.channel_prefetch')} {consuming.channel_prefetch} is above {PREFETCH_MAX}"
        yield Broken("consuming.channel_prefetch", rule, "lower it, or 0 for no limit", consuming.channel_prefetch)
    replicated = next((queue.type for queue in plan.queues if queue.type.is_replicated), None)
    if consuming.channel_prefetch and replicated is not None and _consumes(plan) and not consuming.polling:
        rule = f"{name('consuming.channel_prefetch')}: {replicated} queues do not support a prefetch of the channel"
        yield Broken("consuming.channel_prefetch", rule, f"use {name('prefetch')}", consuming.channel_prefetch)
    if consuming.rate is not None and not 0 < consuming.rate < math.inf:
        rule = f"a consumer with a rate of {consuming.rate:g} takes nothing"
        yield Broken("consuming.rate", rule, "use more than 0, or leave it out", consuming.rate)


def _publishes(plan: Plan) -> bool:
    return any(step.settings.publishers for step in plan.steps)


def _consumes(plan: Plan) -> bool:
    return any(step.settings.consumers for step in plan.steps)


def _is_declared_by_nobody(plan: Plan, queue: QueueSpec) -> bool:
    """A queue without a name is declared by the consumer that it belongs to."""
    return not queue.name and not _consumes(plan)


def _queues(plan: Plan, name: Naming) -> Iterator[Broken]:
    names = [queue.name for queue in plan.queues]
    for twice in sorted(each for each, times in Counter(names).items() if times > 1):
        yield Broken("queues", f"two queues are named {twice!r}", "give each its own name", twice)
    for queue in plan.queues:
        if len(queue.name.encode()) > QUEUE_NAME_OCTETS_MAX:
            rule = f"a queue name has at most {QUEUE_NAME_OCTETS_MAX} octets"
            yield Broken("queues", rule, "use a shorter name", queue.name)
        if not queue.type.is_replicated or _is_declared_by_nobody(plan, queue):
            continue
        a_queue = f"a {queue.type} queue"
        for wrong, rule, fix in (
            (not queue.name, f"{a_queue} cannot be named by the server", f"name it with {name('queues')}"),
            (not queue.durable, f"{a_queue} is always durable", f"add {name('persistent')}"),
            (queue.auto_delete, f"{a_queue} cannot be auto-delete", f"switch {name('queues.auto_delete')} off"),
            (
                plan.connecting.exclusive,
                f"{a_queue} cannot be exclusive",
                f"leave out {name('connecting.exclusive')}, or use another type of queue",
            ),
        ):
            if wrong:
                yield Broken("queues", rule, fix, queue.name)
                break


def _workers(plan: Plan, name: Naming) -> Iterator[Broken]:
    if not 0 <= plan.workers <= WORKERS_MAX:
        rule = f"{name('workers')} {plan.workers} is not a number of processes up to {WORKERS_MAX}"
        yield Broken("workers", rule, "use one for each core at most, or 0 to have it chosen", plan.workers)


def _exchange(plan: Plan, name: Naming) -> Iterator[Broken]:
    """The default exchange routes by the name of a queue, and cannot be bound to."""
    publishing, names = plan.publishing, {queue.name for queue in plan.queues}
    if plan.exchange.name or not _publishes(plan):
        return
    if names == {""} and not _consumes(plan) and publishing.routing_keys is RoutingKeys.FIXED:
        return  # the key is the name of a queue that was declared elsewhere
    if "" in names:
        rule = "the default exchange cannot reach a queue whose name only the server knows"
        yield Broken("exchange.name", rule, f"name queues with {name('queues')}, or use another exchange", "")
    elif publishing.routing_keys is RoutingKeys.RANDOM:
        rule = f"{name('publishing.routing_keys')}: the default exchange would route no message by a random key"
        yield Broken("publishing.routing_keys", rule, f"name an exchange with {name('exchange.name')}", "random")
    elif publishing.routing_keys is RoutingKeys.FIXED and publishing.routing_key not in names:
        fix = f"use the name of a queue, or name an exchange with {name('exchange.name')}"
        rule = f"{name('publishing.routing_key')}: the default exchange routes by the name of a queue"
        if not any(queue.predeclared for queue in plan.queues):
            yield Broken("publishing.routing_key", rule, fix, publishing.routing_key)


def _connecting(plan: Plan, name: Naming) -> Iterator[Broken]:
    connecting, tls = plan.connecting, plan.connecting.tls
    if connecting.startup_timeout_s and connecting.servers_up > max(len(plan.uris), 1):
        rule = f"{connecting.servers_up} brokers cannot answer at {max(len(plan.uris), 1)} URIs"
        yield Broken("connecting.servers_up", rule, "lower it, or name more URIs", connecting.servers_up)
    if connecting.frame_max is not None and connecting.frame_max < FRAME_MAX_MIN:
        rule = f"a frame-max of {connecting.frame_max} is below the {FRAME_MAX_MIN} of the protocol"
        yield Broken(
            "connecting.frame_max", rule, f"use {FRAME_MAX_MIN} or more, or leave it out", connecting.frame_max
        )
    if connecting.recover and connecting.recovery_s is not None and connecting.recovery_s[0] > connecting.recovery_s[1]:
        rule = f"{name('connecting.recovery_s')}: the range ends before it begins"
        yield Broken("connecting.recovery_s", rule, "write the shorter time first", connecting.recovery_s)
    if connecting.external and not tls.cert_file:
        rule = f"{name('connecting.external')}: without a certificate nobody can tell who it is"
        yield Broken("connecting.external", rule, f"add {name('connecting.tls.cert_file')}", True)
    if tls.key_file and not tls.cert_file:
        rule = f"{name('connecting.tls.key_file')}: a key needs its certificate"
        yield Broken("connecting.tls.key_file", rule, f"add {name('connecting.tls.cert_file')}", tls.key_file)
    for field, path in (("ca_file", tls.ca_file), ("cert_file", tls.cert_file), ("key_file", tls.key_file)):
        if path:
            yield from _unreadable(f"connecting.tls.{field}", path, "a file of certificates")
    secure = any(uri.startswith("amqps:") for uri in plan.uris)
    if plan.uris and not secure and (tls.ca_file or tls.cert_file or connecting.external):
        rule = "certificates are for encrypted connections, and no URI is one of amqps://"
        yield Broken("connecting.tls", rule, "write amqps:// in the URI, or leave them out", None)
    yield from _nodes_of_clients(plan, name)


def _nodes_of_clients(plan: Plan, name: Naming) -> Iterator[Broken]:
    """Before the cluster is started the plan has no URIs, and its nodes are the file's."""
    connecting, count = plan.connecting, len(plan.uris) or plan.cluster.nodes
    for key, nodes in (
        ("connecting.publisher_nodes", connecting.publisher_nodes),
        ("connecting.consumer_nodes", connecting.consumer_nodes),
    ):
        if nodes and connecting.exclusive:
            rule = f"{name(key)}: with {name('connecting.exclusive')} publishers and consumers share connections"
            yield Broken(key, rule, "leave one of them out", list(nodes))
        for node in nodes:
            if not 1 <= node <= count:
                rule = f"{name(key)}: there is no node {node} of {count}"
                yield Broken(key, rule, f"use numbers from 1 to {count}, or name the URIs of more nodes with -H", node)


def _channels(field: str, channels: int) -> Iterator[Broken]:
    if not 1 <= channels <= CHANNELS_MAX:
        rule = f"{channels} channels on a connection: brokers allow 1 to {CHANNELS_MAX}"
        yield Broken(field, rule, "use more connections instead", channels)


def _size(field: str, size: int, *, stamped: bool) -> Iterator[Broken]:
    if stamped and size < SIZE_BYTES_MIN:
        rule = f"a body of {size} bytes has no room for the {SIZE_BYTES_MIN} bytes of time stamps"
        yield Broken(field, rule, f"use {SIZE_BYTES_MIN} or more", size)
    if size > SIZE_BYTES_MAX:
        yield Broken(field, f"a body of {size} bytes is above the 128 MiB brokers accept", "use a smaller size", size)


def _cycle(field: str, cycle: Cycle) -> Iterator[Broken]:
    for value, seconds in cycle:
        if value < 0 or not 0 < seconds < math.inf:
            rule = f"{value:g} for {seconds:g} s: a value has to hold for some time"
            yield Broken(field, rule, "use values of 0 or more and times above 0", f"{value:g}:{seconds:g}")


def _unreadable(field: str, path: str, what: str) -> Iterator[Broken]:
    if not path or not Path(path).is_file() or not os.access(path, os.R_OK):
        yield Broken(field, f"{what} cannot be read: {path or 'no path'}", "give the path of a readable file", path)


def _trace(field: str, path: str) -> Iterator[Broken]:
    """A trace that publishers cannot play must not begin a run, so it is read here, too."""
    unreadable = list(_unreadable(field, path, "the trace of arrivals"))
    yield from unreadable
    if unreadable:
        return
    try:
        read_trace(path)
    except TraceFileError as error:
        yield Broken(field, str(error), error.fix, path)
