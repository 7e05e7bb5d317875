"""Makes a plan of the options with PerfTest's meaning, and finds all contradictions between them.

PerfTest binds queues to an exchange named like its type, and lets the server name a queue that has no name. Publishers
and consumers are spread over the queues of a pattern or a file. The queues of ``-u a,b`` are bound with one key, and
each consumer takes from all of them.
"""

from __future__ import annotations

import math
import re
import uuid
from pathlib import Path

from perftest.options.choices import Choices
from perftest.options.option import Effect
from perftest.options.table import BY_KEY, OPTIONS
from perftest.options.targets import (
    BROKER_FIX,
    BROKER_RULE,
    HOME_FIX,
    HOME_RULE,
    LAYOUT_FIX,
    LAYOUT_RULE,
    checked_uris,
    unused_parameters,
)
from perftest.spec.behaviour import (
    Argument,
    Arrivals,
    Bodies,
    Connecting,
    Consuming,
    Exchange,
    ExitWhen,
    Publishing,
    RoutingKeys,
    Tls,
)
from perftest.spec.check import SIZE_BYTES_MIN, check_plan
from perftest.spec.cluster import ClusterSpec, Product
from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step
from perftest.spec.problem import Problem, SpecError
from perftest.spec.rules import is_stamped
from perftest.spec.units import AUTOMATIC_ACK, NO_CONFIRMS

_NAME_MAX = 40
_WARMUP_S_MAX = 5.0
_PATTERN_KEYS = ("queue_pattern", "queue_pattern_from", "queue_pattern_to")
_OF_EACH_QUEUE = ("cmessages", "consumer_rate", "consumer_latency", "variable_latency", "multi_ack_every", "global_qos")


def plan_of(choices: Choices) -> Plan:
    """The plan of the options. Raises SpecError with all problems."""
    uris = _uris(choices)
    exchange = _exchange(choices)
    queues = _queues(choices)
    # A run with publishers only fills a queue for a later run, and a run with consumers only empties a queue of an
    # earlier run: neither deletes its queues.
    both_sides = choices["producers"] > 0 and choices["consumers"] > 0
    together = _queues_per_consumer(choices, exchange)
    publishing = _publishing(choices, alike=together > 1 or any(not queue.name for queue in queues))
    plan = Plan.of(
        name=_name(choices["id"] or ""),
        title=f"perftest run {choices['id'] or ''}".strip(),
        uris=uris,
        queues=queues,
        steps=(_step(choices, publishing),),
        isolation=Isolation.LIVE,
        interval_s=choices["interval"],
        drain_s=choices["drain"],
        confirm_timeout_s=math.inf if choices["confirm_timeout"] < 0 else choices["confirm_timeout"],
        seed=choices["seed"],
        delete_queues=both_sides,
        declare_missing=choices["predeclared"],
        exchange=exchange,
        publishing=publishing,
        consuming=_consuming(choices, together),
        connecting=_connecting(choices),
        workers=choices["workers"],
        timeline=tuple(action for _, action in choices["at"]),
        cluster=ClusterSpec(broker=Product(choices["broker"] or Product.REFERENCE)),
    )
    problems = [*choices.problems, *check_plan(plan, choices.place, choices.name)]
    if problems:
        raise SpecError(problems)
    _note_queues_without_consumers(choices, plan)
    _note_what_nobody_does(choices)
    _note_what_is_moot(choices, plan.steps[0].settings)
    _note_endless_wait(plan, choices)
    return plan


def _note_what_is_moot(choices: Choices, settings: Settings) -> None:
    """Options that others make moot, of clients that are there."""
    if settings.publishers:
        choices.useless("confirm_timeout", "-c", unless=settings.in_flight != NO_CONFIRMS)
    if settings.consumers and not choices["polling"]:
        for key, flag in (("qos", "-q"), ("global_qos", "-Q")):
            if choices.is_given(key) and choices[key] and settings.ack_interval == AUTOMATIC_ACK:
                choices.note(f"{flag} has no effect with -a: a broker limits what is unacknowledged")
    if settings.consumers and settings.ack_interval == 1:
        choices.useless("ack_interval_ms", "-A", unless=False)


def _note_endless_wait(plan: Plan, choices: Choices) -> None:
    """Consumers who want more messages than are published wait for others to publish, as for PerfTest."""
    from perftest.engine.accounting.routing import copies_of

    settings = plan.steps[0].settings
    published = plan.publishing.messages * settings.publishers * plan.publishing.channels
    wanted = plan.consuming.messages * settings.consumers * plan.consuming.channels
    coming = published * copies_of(plan, settings.consumers)
    if 0 < coming < wanted:
        ends = "" if math.isfinite(plan.steps[0].duration_s) else "; Ctrl-C or -z ends the run"
        given = f"-C {plan.publishing.messages} -D {plan.consuming.messages}"
        choices.note(
            f"{given}: {coming} messages are published for consumers who want {wanted}: "
            f"they wait until others publish the rest{ends}"
        )


def _name(label: str) -> str:
    """The id of a run, in the form of a directory name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-.")[:_NAME_MAX] or "run"


def _uris(choices: Choices) -> tuple[str, ...]:
    """The URIs of ``-h`` and ``-H``. Each is checked here, before anything is started."""
    parts, unusable = checked_uris(choices["uri"], choices["uris"])
    for error in unusable:
        choices.problems.append(Problem(path="", value=None, rule=error.what, fix=error.fix, file=error.where))
    if unused := unused_parameters(parts):
        choices.note(f"parameters of the URI that have no effect: {', '.join(unused)}")
    if parts and choices.is_given("cluster"):
        choices.problem(["cluster", "uri", "uris"], "both a cluster and a URI are named", "name one of them")
    if choices.is_given("layout") and (parts or choices.is_given("cluster")):
        choices.problem(["layout"], LAYOUT_RULE, LAYOUT_FIX)
    if choices.is_given("broker") and (parts or choices.is_given("cluster")):
        choices.problem(["broker"], BROKER_RULE, BROKER_FIX)
    if choices.is_given("rabbitmq_home") and (choices["broker"] != Product.RABBITMQ or parts or choices["cluster"]):
        choices.problem(["rabbitmq_home"], HOME_RULE, HOME_FIX)
    return parts


def _step(choices: Choices, publishing: Publishing) -> Step:
    duration_s = choices["time"] or math.inf
    counted = choices["pmessages"] or choices["cmessages"] or choices["exit_when"] not in (None, ExitWhen.NEVER)
    warmup_s = choices["warmup"]
    if warmup_s is None:
        drains = not choices["producers"]  # the first moments of a drain may be all of it
        warmup_s = 0.0 if counted or drains else min(duration_s / 10, _WARMUP_S_MAX)
    settings = _settings(choices, publishing)
    return Step(number=1, label="", settings=settings, duration_s=duration_s, warmup_s=warmup_s)


def _settings(choices: Choices, publishing: Publishing) -> Settings:
    in_flight = choices["confirm"]
    if publishing.transaction and not choices.is_given("confirm"):
        in_flight = NO_CONFIRMS  # transactions take the place of the confirms that the bundled cluster has by default
    persistent = choices["quorum"] or choices.local or "persistent" in choices["flags"]
    return Settings(
        in_flight=in_flight,
        prefetch=choices["qos"],
        ack_interval=_ack_interval(choices),
        rate=_rate(choices),
        size_bytes=_size_bytes(choices, publishing.bodies),
        ack_after_ms=choices["ack_interval_ms"],
        consumer_latency_us=choices["consumer_latency"],
        publishers=choices["producers"],
        consumers=choices["consumers"],
        persistent=persistent,
        mandatory="mandatory" in choices["flags"],
    )


def _ack_interval(choices: Choices) -> int:
    if choices["autoack"]:
        if choices["multi_ack_every"] > 1 and choices["consumers"]:
            rule = "-a and -A: nothing is acknowledged by consumers with automatic acknowledgement"
            choices.problem(["autoack", "multi_ack_every"], rule, "leave out one of them", choices["multi_ack_every"])
        return AUTOMATIC_ACK
    return int(choices["multi_ack_every"])


def _rate(choices: Choices) -> float | None:
    interval_s: float | None = choices["publishing_interval"]
    rate: float | None = choices["rate"]
    if interval_s is None:
        return rate
    if rate is not None and choices["producers"]:
        choices.problem(["rate", "publishing_interval"], "-r and -P: two rates at once", "use one of them", rate)
    return 1 / interval_s


def _size_bytes(choices: Choices, bodies: Bodies) -> int:
    """The size of the bodies. A size below 28 octets (12 for PerfTest) is raised to 28, and a note says so."""
    size: int = choices["size"]
    if not is_stamped(bodies):
        if bodies.files and choices.is_given("size"):
            choices.note("-s has no effect with -B: files have the size they have")
        return size
    if choices.is_given("size") and choices["variable_size"] and choices["producers"]:
        choices.problem(["size", "variable_size"], "-s and -vs: two sizes at once", "use one of them", size)
    if size < SIZE_BYTES_MIN:
        choices.note(f"-s {size}: bodies have {SIZE_BYTES_MIN} octets, because the time stamps take {SIZE_BYTES_MIN}")
    return max(size, SIZE_BYTES_MIN)


def _publishing(choices: Choices, *, alike: bool) -> Publishing:
    arrivals, trace = choices["arrivals"]
    rated = choices.is_given("variable_rate", "publishing_interval") or choices["rate"] is not None
    delay_s = choices["producer_random_start_delay"]
    if delay_s is None:
        delay_s = 1.0 if rated and not choices.local else 0.0
    bodies = _bodies(choices)
    sizes = choices["variable_size"]
    if is_stamped(bodies) and any(size < SIZE_BYTES_MIN for size, _ in sizes):
        choices.note(f"-vs: bodies have {SIZE_BYTES_MIN} octets or more, because the time stamps take {SIZE_BYTES_MIN}")
        sizes = tuple((max(size, float(SIZE_BYTES_MIN)), held) for size, held in sizes)
    keys, key, cache = _routing(choices, alike=alike)
    return Publishing(
        channels=choices["producer_channel_count"],
        arrivals=Arrivals(arrivals),
        trace=trace,
        messages=choices["pmessages"],
        transaction=choices["ptxsize"],
        start_delay_s=max(delay_s, 0.0),
        routing_keys=keys,
        routing_key=key,
        routing_key_cache=cache,
        properties=choices["message_properties"] or {},
        bodies=bodies,
        rate_cycle=choices["variable_rate"],
        size_cycle=sizes,
    )


def _bodies(choices: Choices) -> Bodies:
    files, is_json = choices["body"] or (), choices["json_body"]
    choices.useless("body_content_type", "-B or -jb", unless=bool(files) or is_json)
    choices.useless("body_count", "-jb", unless=is_json)
    choices.useless("body_field_count", "-jb", unless=is_json)
    return Bodies(
        files=files,
        content_type=choices["body_content_type"] or "",
        json_count=choices["body_count"] if is_json else 0,
        json_fields=choices["body_field_count"],
    )


def _consuming(choices: Choices, together: int) -> Consuming:
    """The behaviour of consumers; each takes from ``together`` queues, on a channel for each queue."""
    of_each = [BY_KEY[key].flag for key in _OF_EACH_QUEUE if together > 1 and choices.is_given(key)]
    if of_each:
        choices.note(f"-u with several names: {' '.join(of_each)} holds for each queue of a consumer by itself")
    choices.useless("requeue", "-na", unless=choices["nack"])
    choices.useless("polling_interval", "-po", unless=choices["polling"])
    if choices["polling"]:
        for key, flag in (("qos", "-q"), ("global_qos", "-Q"), ("consumer_arguments", "-ca")):
            if choices.is_given(key):
                choices.note(f"{flag} has no effect with -po: nobody subscribes")
    return Consuming(
        channels=choices["consumer_channel_count"] * together,
        channel_prefetch=choices["global_qos"],
        transaction=choices["ctxsize"],
        messages=choices["cmessages"],
        rate=choices["consumer_rate"],
        nack=choices["nack"],
        requeue=choices["requeue"],
        polling=choices["polling"],
        polling_interval_ms=choices["polling_interval"],
        start_delay_s=max(choices["consumer_start_delay"], 0.0),
        slow_start=choices["slow_start"],
        arguments=choices["consumer_arguments"],
        exit_when=choices["exit_when"] or ExitWhen.NEVER,
        latency_cycle=choices["variable_latency"],
    )


def _connecting(choices: Choices) -> Connecting:
    recovers = not choices["disable_connection_recovery"]
    if choices.is_given("connection_recovery_interval") and not recovers:
        choices.note("-cri has no effect with -dcr")
    choices.useless("servers_up_limit", "-sst", unless=choices["servers_startup_timeout"] > 0)
    growing = choices.local and not choices.is_given("connection_recovery_interval")
    return Connecting(
        allocation=choices["connection_allocation"],
        heartbeat_s=choices["heartbeat"] or None,
        frame_max=choices["framemax"] or None,
        recover=recovers,
        recovery_s=None if growing else choices["connection_recovery_interval"],
        startup_timeout_s=max(choices["servers_startup_timeout"], 0.0),
        servers_up=max(choices["servers_up_limit"], 0),
        shutdown_timeout_s=choices["shutdown_timeout"],
        exclusive=choices["exclusive"],
        external=choices["sasl_external"],
        send_buffer=choices["tcp_send_buffer_size"] or 0,
        receive_buffer=choices["tcp_receive_buffer_size"] or 0,
        no_delay=choices["tcp_no_delay"],
        tls=Tls(
            ca_file=choices["tls_ca"] or "",
            cert_file=choices["tls_cert"] or "",
            key_file=choices["tls_key"] or "",
            system_authorities=choices["use_default_ssl_context"],
            server_names=choices["server_name_indication"] or (),
        ),
    )


def _note_what_nobody_does(choices: Choices) -> None:
    """Options of publishers that are not there, or of consumers: nothing may be dropped in silence."""
    for number, section, why in (("producers", "Publishers", "publishes"), ("consumers", "Consumers", "consumes")):
        options = (each for each in OPTIONS if each.section == section and each.effect is Effect.OBEYED)
        flags = [each.flag for each in options if each.key != number and choices.is_given(each.key)]
        if flags and not choices[number]:
            verb = "has" if len(flags) == 1 else "have"
            choices.note(f"{' '.join(flags)} {verb} no effect with {BY_KEY[number].flag} 0: nobody {why}")


def _note_queues_without_consumers(choices: Choices, plan: Plan) -> None:
    (step,) = plan.steps
    consumers = step.settings.consumers * plan.consuming.channels
    by_others = choices.is_given("routing_key", "random_routing_key", "exchange")  # may reach queues that exist
    if not consumers and not plan.queues[0].name and not by_others:
        choices.note("nobody consumes and no queue is named: messages reach no queue")
    if 0 < consumers < len(plan.queues):
        choices.note(f"{len(plan.queues) - consumers} of {len(plan.queues)} queues have no consumer and fill up")


# Queues, exchange and routing keys


def _queues(choices: Choices) -> tuple[QueueSpec, ...]:
    """The queues to declare."""
    arguments = dict(choices["queue_arguments"])
    _add_limits(choices, arguments)
    kind = _type_of(choices, arguments)
    always_durable = kind is QueueType.KEYED or (kind is QueueType.QUORUM and (choices["quorum"] or choices.local))
    if always_durable and choices.is_given("auto_delete") and choices["auto_delete"]:
        choices.note(f"-ad true has no effect: {kind} queues are not deleted with their last consumer")
    return tuple(
        QueueSpec(
            name=name,
            type=kind,
            durable=always_durable or "persistent" in choices["flags"],
            auto_delete=choices["auto_delete"] and not always_durable,
            predeclared=choices["predeclared"] and bool(name),
            bound=not choices["skip_binding_queues"],
            arguments=arguments,
        )
        for name in _names_of(choices)
    )


def _exchange(choices: Choices) -> Exchange:
    """The exchange. Without -e it is named like its type, or with the bundled cluster it is the default exchange."""
    kind: str = choices["type"]
    if choices.is_given("exchange"):
        name: str = choices["exchange"]
    else:
        name = "" if choices.local and not choices.is_given("type") else kind
    if not name and choices.is_given("type"):
        choices.note("-t has no effect: the default exchange has its type")
        kind = "direct"
    return Exchange(name=name, type=kind, predeclared=choices["predeclared"] or name.startswith("amq."))


def _queues_per_consumer(choices: Choices, exchange: Exchange) -> int:
    """The number of queues that each consumer takes from and that each message goes to.

    It is more than one only for ``-u a,b`` with a named exchange, because the default exchange copies no message.
    """
    names: tuple[str, ...] = choices["queue"] or ()
    if len(names) < 2 or choices.is_given(*_PATTERN_KEYS, "queue_file"):
        return 1
    if exchange.name:
        return len(set(names))
    choices.note("-u with several names: the default exchange copies nothing, so the queues are spread over, as by -qp")
    return 1


def _routing(choices: Choices, *, alike: bool) -> tuple[RoutingKeys, str, int]:
    """The kind of routing keys, the key, and the number of random keys that are kept.

    ``alike`` asks for one key for all messages that no other run uses, as a queue without a name needs it.
    """
    key: str | None = choices["routing_key"]
    cache: int = choices["routing_key_cache_size"]
    choices.useless("routing_key_cache_size", "-K", unless=choices["random_routing_key"])
    if choices["random_routing_key"]:
        if key is not None and choices["producers"]:
            choices.problem(
                ["routing_key", "random_routing_key"], "-k and -K: two kinds of routing keys", "use one of them", key
            )
        return RoutingKeys.RANDOM, "", cache
    if key is not None:
        return RoutingKeys.FIXED, key, 0
    return (RoutingKeys.FIXED, str(uuid.uuid4()), 0) if alike else (RoutingKeys.QUEUE, "", 0)


def _names_of(choices: Choices) -> tuple[str, ...]:
    pattern = choices.is_given(*_PATTERN_KEYS)
    ways = [("queue", choices.is_given("queue")), ("queue_pattern", pattern)]
    ways.append(("queue_file", choices.is_given("queue_file")))
    used = [key for key, given in ways if given]
    if len(used) > 1:
        choices.problem(used, "queues are named in several ways", "use one of them")
        return ("perftest",)
    if pattern:
        return _names_of_pattern(choices)
    if choices["queue_file"] is not None:
        return _names_of_file(choices, Path(choices["queue_file"]))
    return choices["queue"] or ("",)


def _names_of_pattern(choices: Choices) -> tuple[str, ...]:
    missing = [key for key in _PATTERN_KEYS if not choices.is_given(key)]
    pattern, first, last = (choices[key] for key in _PATTERN_KEYS)
    if missing:
        choices.problem(missing, "a pattern of queues needs its first and its last number", "give -qp, -qpf and -qpt")
    elif None in (pattern, first, last):
        pass  # a value could not be read, and that problem is noted already
    elif first > last:
        rule = f"the pattern of queues begins at {first} and ends at {last}"
        choices.problem(["queue_pattern_from", "queue_pattern_to"], rule, "give the smaller number with -qpf", first)
    else:
        return tuple(pattern % number for number in range(first, last + 1))
    return ("perftest",)


def _names_of_file(choices: Choices, path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        rule = f"the file of queues cannot be read: {getattr(error, 'strerror', None) or error}"
        choices.problem(["queue_file"], rule, "give the path of a text file with a name in each line", str(path))
        return ("perftest",)
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        choices.problem(
            ["queue_file"], f"the file of queues names none: {path}", "write a name in each line", str(path)
        )
    return names or ("perftest",)


def _type_of(choices: Choices, arguments: dict[str, Argument]) -> QueueType:
    """The type of the queues, from ``-qq`` or ``-qa x-queue-type=...``."""
    told = arguments.pop("x-queue-type", None)
    if told == "stream":
        rule = "x-queue-type=stream: streams are not measured"
        choices.problem(["queue_arguments"], rule, "use -qq for a quorum queue", told)
    elif told is not None and told not in list(QueueType):
        rule = f"x-queue-type={told}: there is no such type of queue"
        choices.problem(["queue_arguments"], rule, f"use {' or '.join(QueueType)}", told)
    elif told == QueueType.CLASSIC and choices["quorum"]:
        choices.problem(
            ["queue_arguments", "quorum"], "x-queue-type=classic and -qq: two types of queue", "use one of them", told
        )
    elif told is not None:
        return QueueType(str(told))
    return QueueType.QUORUM if choices["quorum"] or choices.local else QueueType.CLASSIC


def _add_limits(choices: Choices, arguments: dict[str, Argument]) -> None:
    if "x-single-active-consumer" in arguments:
        arguments["x-single-active-consumer"] = str(arguments["x-single-active-consumer"]).lower() == "true"
    if choices["max_length_bytes"] is not None:
        arguments.pop("x-max-length-bytes", None)
        if choices["max_length_bytes"]:
            arguments["x-max-length-bytes"] = choices["max_length_bytes"]
    if choices["leader_locator"] is not None:
        arguments["x-queue-leader-locator"] = choices["leader_locator"]
