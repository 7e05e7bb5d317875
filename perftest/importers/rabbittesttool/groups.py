"""Converts the groups of a topology into loads: publishers, the queues that they reach, and the consumers of the
queues.

A workload has one measured load, with one kind of publishers and one kind of consumers, and background loads. The first
publishers of the first group become the measured load, with everything that they reach.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from perftest.importers.patterns import matches
from perftest.importers.rabbittesttool.actions import (
    Actions,
    actions_of,
    consuming_once,
    playable,
    publishing_once,
    say_without,
)
from perftest.importers.rabbittesttool.clients import Consumers, Publishers, consumers_of, publishers_of
from perftest.importers.rabbittesttool.policy import TopologyPolicy, properties
from perftest.importers.section import SourceSection
from perftest.importers.write import QUEUES_MAX

EXCHANGES: Final = {
    "fanout": "fanout",
    "direct": "direct",
    "topic": "topic",
    "header": "headers",
    "headers": "headers",
    "consistenthash": "x-consistent-hash",
    "modulushash": "x-modulus-hash",
}


@dataclass(slots=True)
class Queues:
    """Queues with one prefix: their names, their arguments, the keys with which they are bound to each exchange, and
    what fills and drains them."""

    source: SourceSection
    prefix: str
    names: list[str]
    type: str
    arguments: dict[str, Any]
    bindings: dict[str, list[str]] = field(default_factory=dict)
    actions: Actions | None = None

    def written(self) -> list[dict[str, Any]]:
        """The queues as a workload file writes them."""
        arguments = {"arguments": self.arguments} if self.arguments else {}
        return [{"name": name, "type": self.type, **arguments} for name in self.names]


@dataclass(slots=True)
class Unit:
    """A load: the publishers and consumers of the same queues. With ``actions`` these are the publishers and consumers
    that fill and drain the queues."""

    queues: list[Queues]
    publishers: Publishers | None
    consumers: Consumers | None
    publisher_count: int
    consumer_count: int
    copies: int
    exchange: dict[str, Any] = field(default_factory=dict)
    actions: Actions | None = None

    @property
    def names(self) -> int:
        """The number of queues."""
        return sum(len(each.names) for each in self.queues)


@dataclass(slots=True)
class TopologyGroup:
    """The parts of a group of a topology, before they are divided into loads."""

    source: SourceSection
    name: str
    copies: int
    exchanges: dict[str, str]
    queues: list[Queues]
    publishers: list[Publishers]
    consumers: list[Consumers]


def read_group(source: SourceSection, policies: list[TopologyPolicy]) -> TopologyGroup:
    """Read a group and everything in it."""
    name, copies = source.text("name"), source.count("scale", default=1)
    if copies > QUEUES_MAX:
        source.wrong("scale", f"{copies} copies are more than {QUEUES_MAX} queues", "write fewer")
        source.notes.stop_at_problems()
    kinds = {"single-vhost": "", "multiple-vhost": "yes", "multiple-vhosts": "yes"}
    many_vhosts = source.choice("scaleType", default="multiple-vhosts", known=kinds) and copies > 1
    if many_vhosts:
        source.different(
            "scaleType", f"{copies} virtual hosts become one virtual host, in which each queue has a name of its own"
        )
    else:
        source.different("name", f"the group uses the virtual host of the URI, not {name!r}")
    source.drop("there is one cluster", "federation", unless=("upstream",))
    exchanges = dict(filter(None, (_exchange(each) for each in source.sections("exchanges"))))
    prefixes = [""]
    if copies > 1:
        prefixes = [f"{name}{number:05}-" if many_vhosts else f"-sn{number}" for number in range(1, copies + 1)]
    queues = [_queues(each, prefixes, policies) for each in source.sections("queues", "queueGroups")]
    found = TopologyGroup(
        source=source,
        name=name,
        copies=copies,
        exchanges=exchanges,
        queues=[each for each in queues if each is not None],
        publishers=[p for each in source.sections("publishers", "publisherGroups") if (p := publishers_of(each))],
        consumers=[c for each in source.sections("consumers", "consumerGroups") if (c := consumers_of(each))],
    )
    source.finish()
    return found


def _exchange(source: SourceSection) -> tuple[str, str] | None:
    name, kind = source.text("name"), source.choice("type", default="direct", known=EXCHANGES)
    source.drop("exchanges are bound to queues only", "bindings", unless=("[]",))
    source.drop("there are no shovels", "shovel", fix="`rabbitmqctl set_parameter shovel …`")
    included = source.flag("include", default=True)
    if kind.startswith("x-"):
        source.different("type", f"{kind} exchanges need a plugin, and the ledger does not know where messages go")
    source.finish()
    return (name, kind) if included else None


def _queues(source: SourceSection, prefixes: list[str], policies: list[TopologyPolicy]) -> Queues | None:
    prefix, scale = source.text("prefix", "group"), source.count("scale", default=1)
    if scale * len(prefixes) > QUEUES_MAX:
        source.wrong("scale", f"{scale * len(prefixes)} queues are more than {QUEUES_MAX}", "write fewer")
        source.notes.stop_at_problems()
    arguments = properties(source)
    for policy in policies:
        if policy.matches(prefix):
            arguments.update(policy.arguments)
            break
    kind = _type(source, arguments)
    source.drop("streams are not measured", "retentionSizeMb", "segmentSizeMb")
    source.drop("there are no shovels", "shovel", fix="`rabbitmqctl set_parameter shovel …`")
    _dead_letters(source.section("dlx"), arguments)
    bindings = {}
    for each in source.sections("bindings"):
        exchange = each.text("from")
        bindings[exchange] = _binding(each)
    included = source.flag("include", default=True) and scale > 0
    acting = source.section("actions")
    actions = actions_of(acting, scale * len(prefixes)) if included else None
    source.finish()
    names = [_named(before, prefix, number) for before in prefixes for number in range(1, scale + 1)]
    return Queues(source, prefix, names, kind, arguments, bindings, actions) if included else None


def _named(before: str, prefix: str, number: int) -> str:
    """The name of a queue: ``q1_00001``, ``q1-sn2_00001`` in the second copy, ``group00002-q1_00001`` in the second
    virtual host."""
    return f"{prefix}{before}_{number:05}" if before.startswith("-sn") else f"{before}{prefix}_{number:05}"


def _type(source: SourceSection, arguments: dict[str, Any]) -> str:
    """The type of the queues. Arguments that do not fit the type are removed."""
    kind = str(arguments.pop("x-queue-type", "classic"))
    if source.text("queueType", default="standard").lower() == "stream" or kind == "stream":
        source.wrong("queueType", "streams are not measured", "use PerfTest or stream-perf-test for streams")
    if arguments.get("x-queue-mode") == "default":
        del arguments["x-queue-mode"]
    if kind == "quorum" and arguments.pop("x-queue-mode", None) is not None:
        source.different("properties", "quorum queues have no x-queue-mode: it is left out")
    return kind if kind in ("classic", "quorum") else "classic"


def _dead_letters(source: SourceSection, arguments: dict[str, Any]) -> None:
    if source.data and source.flag("hasDlx"):
        arguments["x-dead-letter-exchange"] = source.text("name")
        source.different("name", "dead letters go to this exchange, which must exist: it is not declared")
    source.ignore("name")
    source.finish()


def _binding(source: SourceSection) -> list[str]:
    keys = [str(key) for key in source.values("bindingKeys")]
    if source.has("bindingKey"):
        keys.append(source.text("bindingKey"))
    source.drop("each queue is bound once", "bindingKeysPerQueue", unless=(1,))
    if properties(source):
        source.different("properties", "queues are bound without arguments: all of them get every message")
    source.finish()
    return keys


def units_of(group: TopologyGroup) -> list[Unit]:
    """The loads of a group. Each part that belongs to no load gets a note."""
    units: list[Unit] = []
    left = list(group.consumers)
    for publishers in group.publishers:
        queues = _reached(group, publishers)
        same = next((unit for unit in units if unit.queues == queues), None)
        if not queues:
            key = "sendToExchange" if publishers.exchange else "sendToQueuePrefix"
            what = f"no queue gets the messages of {publishers.prefix!r}: they are left out"
            publishers.source.without(key, what, "check the names of queues, bindings and exchanges")
        elif same is None or same.publishers is None:
            consumers = [each for each in left if each.queue_prefix in {queue.prefix for queue in queues}]
            left = [each for each in left if each not in consumers]
            units.append(_unit(group, queues, publishers, consumers))
        elif same.publishers.alike == publishers.alike:
            same.publisher_count += publishers.count * group.copies
        else:
            what = f"{publishers.prefix!r} publishes to the same queues otherwise than {same.publishers.prefix!r}"
            publishers.source.without("prefix", f"{what}: it is left out", "run it beside, as a load of its own")
    for prefix in dict.fromkeys(each.queue_prefix for each in left):
        queues = [each for each in group.queues if each.prefix == prefix]
        consumers = [each for each in left if each.queue_prefix == prefix]
        if queues:
            units.append(_unit(group, queues, None, consumers))
        else:
            consumers[0].source.wrong("queuePrefix", f"there are no queues {prefix!r}", "name a prefix of queues")
    _fill(group, units)
    _say_what_is_idle(group, units)
    return units


def _fill(group: TopologyGroup, units: list[Unit]) -> None:
    """Add the loads of actions. Consumers of queues without another publisher get publishers of their own."""
    for queues in group.queues:
        actions, unit = queues.actions, next((each for each in units if queues in each.queues), None)
        if actions is None:
            continue
        if unit is None:
            if (played := playable(actions)) is not None:
                units.append(Unit([queues], None, None, 0, 0, group.copies, actions=played))
        elif unit.queues == [queues] and unit.publishers is None and actions.is_one_fill:
            unit.actions = actions
        else:
            say_without(actions)


def act_once(unit: Unit) -> None:
    """Give a load the publishers that fill its queues once, and the consumers that drain them after that."""
    actions, (queues,) = unit.actions, unit.queues
    assert actions is not None
    load, behaviour = publishing_once(actions)
    unit.publishers = Publishers(queues.source, "", unit.names, load, behaviour, queue_prefix=queues.prefix)
    unit.publisher_count = unit.names
    if (drain := consuming_once(actions)) is not None:
        unit.consumers = Consumers(queues.source, "", unit.names, queues.prefix, *drain)
        unit.consumer_count = unit.names


def _reached(group: TopologyGroup, publishers: Publishers) -> list[Queues]:
    if publishers.queue_prefix:
        return [each for each in group.queues if each.prefix == publishers.queue_prefix]
    return [each for each in group.queues if publishers.exchange in each.bindings]


def _say_what_is_idle(group: TopologyGroup, units: list[Unit]) -> None:
    used = [queues for unit in units for queues in unit.queues]
    for queues in group.queues:
        if queues not in used:
            queues.source.without(
                "prefix", f"the queues {queues.prefix!r} are left out, because they have no publisher and no consumer"
            )


def _unit(
    group: TopologyGroup, queues: list[Queues], publishers: Publishers | None, consumers: list[Consumers]
) -> Unit:
    first = consumers[0] if consumers else None
    for each in consumers[1:]:
        if first is not None and each.load != first.load:
            each.source.different("prefix", f"the consumers {each.prefix!r} consume like {first.prefix!r}")
    unit = Unit(
        queues=queues,
        publishers=publishers,
        consumers=first,
        publisher_count=publishers.count * group.copies if publishers else 0,
        consumer_count=sum(each.count for each in consumers) * group.copies,
        copies=group.copies,
    )
    if publishers is not None and publishers.exchange:
        _route(group, unit, publishers)
    if 0 < unit.consumer_count < unit.names and first is not None:
        first.source.different(
            "scale", f"there are {unit.names} consumers, one for each queue, not {unit.consumer_count}"
        )
        unit.consumer_count = unit.names
    return unit


def _route(group: TopologyGroup, unit: Unit, publishers: Publishers) -> None:
    """The exchange of a load and its routing keys."""
    source, kind = publishers.source, group.exchanges.get(publishers.exchange)
    if kind is None:
        source.wrong("sendToExchange", f"there is no exchange {publishers.exchange!r}", "name one of exchanges")
        kind = "direct"
    if group.copies > 1 and kind != "direct":
        what = f"the {group.copies} copies share one {kind} exchange: each message goes to the queues of all"
        group.source.different("scale", what, "set scale to 1 and run several of them")
    unit.exchange = {"name": publishers.exchange, "type": kind}
    unit.publishers = publishers
    bound = [key for queues in unit.queues for key in queues.bindings.get(publishers.exchange, [])]
    publishers.publishing.update(_keys(source, publishers, kind, bound))


def _keys(source: SourceSection, publishers: Publishers, kind: str, bound: list[str]) -> dict[str, Any]:
    mode, place = publishers.mode, "sendToExchange.routingKeyMode"
    if kind in ("fanout", "headers"):
        return {}
    if mode == "Random":
        return {"routing_keys": "random"}
    if mode == "MultiValue" and set(bound) <= {"self"}:
        source.different(place, "each publisher uses the name of its queue as the routing key")
        return {}
    if mode in ("MultiValue", "Index"):
        source.different(place, f"all messages have the first routing key: {mode} has no equivalent")
    if mode == "StreamKey":
        source.different(
            place, "each publisher uses the name of its queue as the routing key, not the number of a sequence"
        )
        return {}
    key = publishers.keys[0] if publishers.keys and mode != "None" else ""
    others = [pattern for pattern in bound if pattern != key]
    missed = [pattern for pattern in others if not _matches(pattern, key, kind)]
    if missed:
        what = f"queues are bound with the key {key!r} of the messages, not with {', '.join(missed)}: all get them"
        source.different("sendToExchange.routingKey", what)
    elif others:
        source.different("sendToExchange.routingKey", f"queues are bound with {key!r} itself, not with a pattern of it")
    return {"routing_keys": "fixed", "routing_key": key}


def _matches(pattern: str, key: str, kind: str) -> bool:
    """Whether a binding key lets a routing key through."""
    if kind != "topic":
        return pattern == key
    text = re.escape(pattern).replace(r"\#\.", r"(.+\.)?").replace(r"\.\#", r"(\..+)?").replace(r"\#", ".*")
    return matches(text.replace(r"\*", r"[^.]*"), key)
