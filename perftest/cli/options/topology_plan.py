"""Queues, exchange and routing keys out of the options.

PerfTest binds queues to an exchange named as its type, and names a queue by the server where nobody did. Those of a
pattern or a file are spread over; several names of ``-u`` are bound with one key, and each consumer takes from all.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from perftest.cli.options.choices import Choices
from perftest.cli.options.values import named
from perftest.spec.behaviour import Argument, Exchange, RoutingKeys
from perftest.spec.plan import QueueSpec, QueueType

_PATTERN_KEYS = ("queue_pattern", "queue_pattern_from", "queue_pattern_to")


def queues_of(choices: Choices) -> tuple[QueueSpec, ...]:
    """The queues to declare, each once."""
    arguments = dict(choices["queue_arguments"])
    _add_limits(choices, arguments)
    kind = _type_of(choices, arguments)
    always_durable = choices["quorum"] or choices.local
    if always_durable and choices.is_given("auto_delete") and choices["auto_delete"]:
        choices.note("-ad true has no effect: quorum queues are not deleted with their last consumer")
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


def exchange_of(choices: Choices) -> Exchange:
    """The exchange: named, or as its type; the default one with the bundled cluster, where nobody asked for another."""
    kind: str = choices["type"]
    if choices.is_given("exchange"):
        name: str = choices["exchange"]
    else:
        name = "" if choices.local and not choices.is_given("type") else kind
    if not name and choices.is_given("type"):
        choices.note("-t has no effect: the default exchange has its type")
        kind = "direct"
    return Exchange(name=name, type=kind, predeclared=choices["predeclared"] or name.startswith("amq."))


def taken_together(choices: Choices, exchange: Exchange) -> int:
    """How many queues each consumer takes from, and each message goes to: those of ``-u a,b``, unless the default
    exchange is there, which copies nothing."""
    names: tuple[str, ...] = choices["queue"] or ()
    if len(names) < 2 or choices.is_given(*_PATTERN_KEYS, "queue_file"):
        return 1
    if exchange.name:
        return len(set(names))
    choices.note("-u with several names: the default exchange copies nothing, so the queues are spread over, as by -qp")
    return 1


def routing_of(choices: Choices, *, alike: bool) -> tuple[RoutingKeys, str, int]:
    """Kind of routing keys, the key, and how many random ones are kept. ``alike``: one key for all, that no other run
    uses, as for a queue without a name."""
    key: str | None = choices["routing_key"]
    cache: int = choices["routing_key_cache_size"]
    choices.useless("routing_key_cache_size", "-K", unless=choices["random_routing_key"])
    if choices["random_routing_key"]:
        if key is not None:
            choices.problem(
                ["routing_key", "random_routing_key"], "-k and -K: two kinds of keys", "use one of them", key
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
        pass  # one of them could not be read, which has been told
    elif first > last:
        rule = f"the pattern of queues begins at {first} and ends at {last}"
        choices.problem(["queue_pattern_from", "queue_pattern_to"], rule, "give the smaller number with -qpf", first)
    else:
        return tuple(named(pattern, number) for number in range(first, last + 1))
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
    """The type of the queues; ``-qa x-queue-type=...`` is another way to say it."""
    told = arguments.pop("x-queue-type", None)
    if told == "stream":
        rule = "x-queue-type=stream: streams are not measured"
        choices.problem(["queue_arguments"], rule, "use -qq for a quorum queue", told)
    elif told is not None and told not in list(QueueType):
        rule = f"x-queue-type={told}: there is no such type of queue"
        choices.problem(["queue_arguments"], rule, f"use {' or '.join(QueueType)}", told)
    elif told == QueueType.CLASSIC and choices["quorum"]:
        choices.problem(
            ["queue_arguments", "quorum"], "x-queue-type=classic and -qq: two types", "use one of them", told
        )
    elif told is not None and not choices.local:
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
