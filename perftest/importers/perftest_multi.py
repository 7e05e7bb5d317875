"""Converts specifications of PerfTestMulti, PerfTest's tool for scenarios, into command lines of PerfTest.

A specification is a list of scenarios with a name, a type and ``params``: settings by the names of PerfTest's
parameters. A *simple* scenario is one load. A *varying* one is a load for each combination of the values of its
``variables``. Of *rate-vs-latency* the load at its highest rate is taken.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, Final

from perftest.importers.notes import Notes
from perftest.importers.section import SourceSection

COMBINATIONS_MAX: Final = 200
_TYPES: Final = ("simple", "varying", "rate-vs-latency")
_OPTIONS: Final = {
    "auto-delete": "-ad", "channel-prefetch": "-Q", "confirm": "-c", "consumer-count": "-y",
    "consumer-latency-in-microseconds": "-L", "consumer-msg-count": "-D", "consumer-prefetch": "-q",
    "consumer-rate-limit": "-R", "consumer-tx-size": "-n", "exchange-name": "-e", "exchange-type": "-t",
    "frame-max": "-M", "heartbeat": "-b", "id": "-d", "min-msg-size": "-s", "multi-ack-every": "-A",
    "producer-channel-count": "-X", "consumer-channel-count": "-Y", "producer-count": "-x", "producer-msg-count": "-C",
    "producer-rate-limit": "-r", "producer-tx-size": "-m", "queue-name": "-u", "routing-key": "-k", "time-limit": "-z",
    "uri": "-h",
}  # fmt: skip
"""The option of PerfTest for each parameter with a value."""
_FLAGS: Final = {
    "auto-ack": "-a", "predeclared": "-p", "random-routing-key": "-K", "long-running": "", "skip-binding-queues": "-sb",
    "exclusive": "-E", "use-millis": "-ms",
}  # fmt: skip
"""The option of each parameter that is true or false."""
_SECONDS: Final = 30
"""Length of a load of PerfTestMulti whose parameters do not say it."""


def is_multi(data: object) -> bool:
    """Whether the data looks like a specification of PerfTestMulti."""
    return isinstance(data, list) and any(
        isinstance(each, Mapping) and "params" in each and each.get("type") in _TYPES for each in data
    )


def command_lines(data: list[Any], notes: Notes) -> list[tuple[str, str]]:
    """The name and the command line of each load. Raises SpecError if one cannot be converted."""
    found: list[tuple[str, str]] = []
    for number, each in enumerate(data):
        if not isinstance(each, Mapping):
            notes.problem(f"[{number}]", "a scenario is a mapping", "give name, type and params", each)
            continue
        found += _scenario(SourceSection(each, notes, f"[{number}]"))
    notes.stop_at_problems()
    return found


def _scenario(source: SourceSection) -> Iterator[tuple[str, str]]:
    name, kind = source.text("name", default="scenario"), source.text("type", default="simple")
    params = source.sections("params")
    variables = {key: values for each in source.sections("variables") for key, values in _variable(each)}
    source.drop("the run has an interval of a second", "interval")
    source.finish()
    if kind not in _TYPES or not params:
        source.wrong("type", f"this is no scenario of {', '.join(_TYPES)} with params", "correct it")
        return
    if kind == "rate-vs-latency":
        source.without("type", "only the load at its highest rate is taken", "see `perftest search --slo`")
    if len(params) > 1:
        source.without("params", f"the {len(params)} loads run one after the other, not at once", "see background:")
    if prod(map(len, variables.values())) > COMBINATIONS_MAX:
        source.wrong("variables", f"they have more than {COMBINATIONS_MAX} combinations", "leave values out")
        return
    for values in product(*variables.values()):
        chosen = dict(zip(variables, values, strict=True))
        for each in params:
            label = "_".join([name, *(f"{key}_{value}" for key, value in chosen.items())])
            yield (
                label,
                shlex.join(["perf-test", *_words(SourceSection({**each.data, **chosen}, each.notes, each.path))]),
            )


def _variable(source: SourceSection) -> Iterator[tuple[str, list[Any]]]:
    key, values = source.text("name"), source.raw("values", default=[])
    source.finish()
    if key and isinstance(values, list) and values:
        yield key, values
    else:
        source.wrong("values", "a variable has a name and a list of values", "give both")


def _words(source: SourceSection) -> Iterator[str]:
    """The options of a load."""
    if not source.has("time-limit"):
        yield from ("-z", str(_SECONDS))
    for key in _OPTIONS:
        if source.has(key):
            yield from (_OPTIONS[key], source.text(key))
    for key, option in _FLAGS.items():
        if source.has(key) and source.flag(key) and option:
            yield option
    yield from _lists(source)
    source.finish()


def _lists(source: SourceSection) -> Iterator[str]:
    if flags := _texts(source, "flags"):
        yield from ("-f", *flags)
    if queues := _texts(source, "queue-names"):
        yield from ("-u", ",".join(queues))


def _texts(source: SourceSection, key: str) -> list[str]:
    value = source.raw(key, default=[])
    if isinstance(value, list):
        return [str(each) for each in value]
    return [str(value)]
