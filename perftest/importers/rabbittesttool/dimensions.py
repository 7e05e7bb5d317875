"""Converts dimensions into sweeps: which settings change in which step, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from perftest.importers.section import SourceSection
from perftest.importers.write import plain_number
from perftest.spec.condense import duration
from perftest.spec.rules import PREFETCH_MAX
from perftest.spec.units import UNLIMITED, parse_duration_s

SETTINGS: Final = {
    "publishers": "publishers",
    "consumers": "consumers",
    "prefetch": "prefetch",
    "ackinterval": "ack_interval",
    "ackintervalms": "ack_after",
    "messagesize": "size",
    "publishrate": "rate",
    "inflightlimit": "in_flight",
    "processingms": "consumer_latency",
}
WITHOUT: Final = {
    "queues": "queues do not come and go within a run",
    "headerspermessage": "headers are the same in all steps",
    "routingkeyindex": "routing keys are the same in all steps",
}
_OF_PUBLISHERS: Final = ("publishers", "size", "rate", "in_flight")
_CYCLES: Final = {
    "rate": ("publishing", "rate_cycle"),
    "size": ("publishing", "size_cycle"),
    "consumer_latency": ("consuming", "latency_cycle"),
}
"""Settings whose values may repeat, and the keys of the cycle that they then become."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The parts that the dimensions of a topology can change: the measured load, its prefixes and its copies."""

    load: dict[str, Any]
    publishers: str
    consumers: str
    copies: int
    queues: int


Steps = list[dict[str, Any]]


def add_dimensions(topology: SourceSection, workload: dict[str, Any], scope: Scope) -> None:
    """Add step and sweep to a workload, and remove the swept settings from its load."""
    kind = topology.choice("topologyType", default="fixed", known=_KINDS)
    dimensions = topology.section("dimensions")
    source = dimensions.section(kind)
    if not source.data:
        dimensions.wrong(kind, f"topologyType wants {kind}, and there is none", f"add {kind}, or change topologyType")
    if kind == "fixedDimensions":
        steps: Steps = []
        seconds = source.number("durationSeconds")
    else:
        steps = _single(source, scope) if kind == "singleDimension" else _multiple(source, scope)
        seconds = source.number("stepDurationSeconds")
        _say_what_repeats(source)
    _timing(source, workload, seconds, "durationSeconds" if kind == "fixedDimensions" else "stepDurationSeconds")
    source.finish()
    dimensions.drop(f"topologyType asks for {kind}", *sorted({*_KINDS.values()} - {kind}))
    dimensions.finish()
    _sweep(source, workload, _accepted(source, steps, scope), seconds)


_KINDS: Final = {
    "fixed": "fixedDimensions",
    "fixeddimension": "fixedDimensions",
    "fixeddimensions": "fixedDimensions",
    "singledimension": "singleDimension",
    "multipledimension": "multipleDimensions",
    "multipledimensions": "multipleDimensions",
}


def _timing(source: SourceSection, workload: dict[str, Any], seconds: float, key: str) -> None:
    warmup = source.number("rampUpSeconds")
    if not seconds:
        source.wrong(key, "a step needs time", "write 1 or more")
    if warmup >= seconds:
        source.different(
            "rampUpSeconds", "the step is longer by the warm-up, because the warm-up would take the whole step"
        )
        seconds += warmup
    step = {"duration": duration(seconds)}
    if warmup:
        step["warmup"] = duration(warmup)
    workload["step"] = step


def _say_what_repeats(source: SourceSection) -> None:
    repeats = source.count("repeatSeries", default=1)
    if repeats > 1:
        source.without("repeatSeries", "a workload is one round", f"`perftest sweep FILE --repeats {repeats}`")
    source.drop("a step ends by time", "stepLimit", unless=(0,), fix="publishing.messages ends it by messages")


def _single(source: SourceSection, scope: Scope) -> Steps:
    setting = _setting(source, source.text("dimension"), "dimension", scope)
    multiplies = source.choice("valueType", default="value", known={"value": "", "multiply": "yes"})
    applied = source.text("applyToPrefix", "applyToGroup")
    numbers = [_number(source, "values", value) for value in source.values("values")]
    if not numbers:
        source.wrong("values", "there are no values to step through", "write at least one")
    prefix = scope.publishers if setting in _OF_PUBLISHERS else scope.consumers
    if setting and applied and applied != prefix:
        source.without(
            "applyToPrefix", f"the settings of {applied!r} do not change, because it is not in the measured load"
        )
        return []
    if not setting:
        return []
    if multiplies:
        base = _base(setting, scope)
        numbers = [number * base for number in numbers]
    return [{setting: _value(setting, number, scope, source, "values")} for number in numbers]


def _base(setting: str, scope: Scope) -> float:
    """The value that factors multiply: the setting of the topology in the unit of the dimension, or 1 for no limit."""
    value = scope.load.get(setting, 1)
    if isinstance(value, str):
        return parse_duration_s(value) * 1e3 if value != UNLIMITED else 1
    return float(value) / (scope.copies if setting in ("publishers", "consumers") else 1)


def _multiple(source: SourceSection, scope: Scope) -> Steps:
    names = [str(name) for name in source.values("dimensions")]
    settings = [_setting(source, name, "dimensions", scope) for name in names]
    if source.has("applyToPrefix"):
        source.different("applyToPrefix", "this key has no effect if several dimensions change, as in the tool")
    steps: Steps = []
    rows = source.raw("multiValues", default=[])
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) >= len(names) for row in rows):
        source.wrong("multiValues", f"each step needs {len(names)} values, one of each dimension", "write [[…], …]")
        return []
    for row in rows:
        numbers = [_number(source, "multiValues", value) for value in row]
        pairs = zip(settings, numbers, strict=False)
        steps.append({name: _value(name, number, scope, source, "multiValues") for name, number in pairs if name})
    return steps if any(settings) else []


def _setting(source: SourceSection, dimension: str, key: str, scope: Scope) -> str:
    """The setting that a dimension changes. A dimension without a setting gets a note, and the setting is empty."""
    name = dimension.lower()
    if name in WITHOUT:
        source.without(key, f"{dimension}: {WITHOUT[name]}", "write a workload for each value")
        return ""
    setting = SETTINGS.get(name)
    if setting is None:
        source.wrong(key, f"{dimension!r} is no dimension", f"write one of {', '.join([*SETTINGS, *WITHOUT])}")
        return ""
    idle = {"in_flight": "confirms", "ack_interval": "acknowledgements", "ack_after": "acknowledgements",
            "prefetch": "acknowledgements"}  # fmt: skip
    off = scope.load.get("in_flight") == 0 if setting == "in_flight" else scope.load.get("ack_interval") == 0
    if setting in idle and off:
        source.without(key, f"{dimension}: there are no {idle[setting]}, so the dimension changes nothing")
        return ""
    return setting


def _number(source: SourceSection, key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        source.wrong(key, f"{value!r} is not a number of 0 or more", "write one")
        return 1.0
    return number


def _value(setting: str, number: float, scope: Scope, source: SourceSection, key: str) -> int | float | str:
    """A value of a dimension as the sweep writes it."""
    whole = max(round(number), 0)
    if setting == "rate":
        return plain_number(number) if number else UNLIMITED
    if setting == "in_flight":
        return whole or UNLIMITED
    if setting == "size":
        return source.body_size(key, whole)
    if setting == "prefetch":
        if whole > PREFETCH_MAX:
            source.different(key, f"the protocol has a prefetch of at most {PREFETCH_MAX}, not {whole}")
        return min(whole, PREFETCH_MAX)
    if setting in ("publishers", "consumers"):
        return whole * scope.copies
    if setting in ("ack_after", "consumer_latency"):
        return f"{number:g}ms" if number else 0
    return max(whole, 1)


def _accepted(source: SourceSection, steps: Steps, scope: Scope) -> Steps:
    """The steps, changed so that the generator accepts them: enough consumers, no ack interval above the prefetch."""
    key = _key(source)
    for step in steps:
        prefetch = step.get("prefetch", scope.load.get("prefetch", 0))
        if 0 < prefetch < step.get("ack_interval", 0):
            source.different(key, f"an ack interval is {prefetch}, like the prefetch, not {step['ack_interval']}")
            step["ack_interval"] = prefetch
        if 0 < step.get("consumers", 0) < scope.queues:
            source.different(key, f"a step has {scope.queues} consumers, one for each queue, not {step['consumers']}")
            step["consumers"] = scope.queues
    busy = [step for step in steps if any({**scope.load, **step}[name] for name in ("publishers", "consumers"))]
    if len(busy) < len(steps):
        source.without(key, "a step in which nobody publishes and nobody consumes is left out")
    return busy


def _key(source: SourceSection) -> str:
    """The key that holds the values, for one dimension or for several."""
    return "values" if source.has("values") else "multiValues"


def _sweep(source: SourceSection, workload: dict[str, Any], steps: Steps, seconds: float) -> None:
    if not steps:
        return
    names = list(steps[0])
    key = _key(source)
    once = [step for at, step in enumerate(steps) if step not in steps[:at]]
    if len(once) < len(steps):
        if len(names) == 1 and names[0] in _CYCLES and UNLIMITED not in [step[names[0]] for step in steps]:
            _cycle(source, workload, names[0], [step[names[0]] for step in steps], seconds)
            return
        source.different(key, f"there are {len(once)} steps, not {len(steps)}: repeated values are measured once")
    load = workload["load"]
    for name in names:
        load.pop(name, None)
    _lower_ack_interval(source, load, once, key)
    if len(names) == 1:
        workload["sweep"] = {"setting": names[0], "values": [step[names[0]] for step in once], "mode": "live"}
    else:
        workload["sweep"] = {"steps": once, "mode": "live"}


def _lower_ack_interval(source: SourceSection, load: dict[str, Any], steps: Steps, key: str) -> None:
    """Lower a constant ack interval to the smallest prefetch of the sweep."""
    smallest = min((step["prefetch"] for step in steps if step.get("prefetch")), default=0)
    if smallest and load.get("ack_interval", 0) > smallest:
        source.different(key, f"the ack interval is {smallest}, like the smallest prefetch: more messages never wait")
        load["ack_interval"] = smallest


def _cycle(source: SourceSection, workload: dict[str, Any], setting: str, values: list[Any], seconds: float) -> None:
    """Write values that rise and fall as a cycle within one step."""
    part, key = _CYCLES[setting]
    workload["load"].pop(setting, None)
    workload[part] = {**workload.get(part, {}), key: [*_held(values, seconds, _as_cycle(setting))]}
    whole_s = seconds * len(values)
    workload["step"]["duration"] = duration(whole_s)
    what = f"values come again: they are a cycle within one step of {whole_s:g} s, not {len(values)} steps"
    source.different("values", what, "intervals.csv of the run shows each of them")


def _as_cycle(setting: str) -> Callable[[Any], Any]:
    return (lambda text: duration(parse_duration_s(text))) if setting == "consumer_latency" else (lambda value: value)


def _held(values: list[Any], seconds: float, shown: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """The values of a cycle with their times. Equal neighbours become one value that holds longer."""
    runs: list[tuple[Any, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return ([shown(value), duration(seconds * times)] for value, times in runs)
