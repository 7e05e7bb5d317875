"""The results file of PerfTestMulti, PerfTest's tool for scenarios: a run for each load of each scenario; pure.

A *simple* scenario has the samples of one load. A *varying* one, and *rate-vs-latency*, has a load for each combination
of values: ``data`` is nested, a level for each of its ``dimensions``. A sample has the time since the start in
milliseconds, rates per second, and the least, the average and the greatest latency in microseconds.

The file also states the rates of a whole load. They are not read, because later versions of PerfTest 2 state them a
million times too low. Their ratio is right all the same: rates in octets are rates in messages times min-msg-size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NoReturn

from perftest.foreign.measured import (
    COUNT_MAX,
    GENERATOR_FIGURES,
    LENGTH_MAX_NS,
    UNKNOWN_COUNTS,
    ForeignFileError,
    ForeignRun,
    Slice,
    StatedFigures,
    ns_of,
)
from perftest.metrics.interval import Series

TOOL: Final = "PerfTestMulti"
RUNS_MAX: Final = 1000
"""Each load becomes a run directory."""
DIMENSIONS_MAX: Final = 20
_SAMPLES_MAX: Final = 1_000_000
_KEYS: Final = ("samples", "dimensions", "dimension-values")
_COUNTS: Final = {"send-msg-rate": "published", "recv-msg-rate": "delivered"}
_BODY_MIN: Final = 12
"""PerfTest sends no smaller body, whatever min-msg-size is."""
_LATENCIES: Final = {"min-latency": "min_ns", "avg-latency": "mean_ns", "max-latency": "max_ns"}
_SETTINGS: Final = {
    "confirm": "in_flight", "consumerCount": "consumers", "consumerLatencyInMicroseconds": "consumer_latency_us",
    "consumerPrefetch": "prefetch", "minMsgSize": "size_bytes", "multiAckEvery": "ack_interval",
    "producerCount": "publishers", "producerRateLimit": "rate",
}  # fmt: skip
"""The setting of each dimension that is a setting here, too."""
_FIX: Final = "give the file as PerfTestMulti wrote it, its second argument, or remove the scenario"
_UNKNOWN: Final = (
    "when the load began, and in which order the loads ran: the file has the time since the start of each load only",
    "how many messages there were: counts are the stated rates times the lengths of the intervals, rounded",
    "percentiles: the tool states the least, the average and the greatest latency of each interval; its average of the "
    "whole load leaves the first three intervals out",
    "whether the load had use-millis: latencies are read as microseconds, and would be seconds then",
    "confirms, settings that no variable of the scenario changed, the queues, the broker, its hosts and the load "
    "generator's own limits",
)
_UNTOLD: Final = ("intended", "confirmed", "nacked", "returned")


def is_perftest_multi(data: object) -> bool:
    """Whether the JSON looks like results of this tool."""
    return isinstance(data, dict) and any(
        isinstance(each, dict) and any(key in each for key in _KEYS) for each in data.values()
    )


def read_perftest_multi(data: Mapping[str, Any], file: str) -> list[ForeignRun]:
    """The runs that a results file of PerfTestMulti tells of.

    :raises ForeignFileError: a scenario has a value that cannot be used
    """
    loads = (load for name, scenario in data.items() for load in _loads(name, scenario, f"{file}: {name[:60]}"))
    runs = [_run(name, values, results, where) for name, values, results, where in islice(loads, RUNS_MAX + 1)]
    if len(runs) > RUNS_MAX:
        _refuse(f"the file has more than {RUNS_MAX} loads", file, "split the file: a part of the scenarios each")
    return runs


Load = tuple[str, dict[str, str], Mapping[str, Any], str]
"""The name of a scenario, the values of its variables, the results of the load and their place in the file."""


def _loads(name: str, scenario: object, where: str) -> Iterator[Load]:
    """Each load of a scenario."""
    if not isinstance(scenario, dict):
        _refuse("the results of a scenario are no object", where)
    if "dimensions" not in scenario and "dimension-values" not in scenario:
        yield name, {}, scenario, where
        return
    dimensions = scenario.get("dimensions")
    if not isinstance(dimensions, list) or not all(isinstance(each, str) for each in dimensions):
        _refuse("dimensions is no list of names", f"{where}.dimensions")
    if not 0 < len(dimensions) <= DIMENSIONS_MAX:
        _refuse(f"there are {len(dimensions)} dimensions, not 1 to {DIMENSIONS_MAX}", f"{where}.dimensions")
    for values, results, place in _combinations(scenario.get("data"), dimensions, f"{where}.data"):
        yield name, values, results, place


def _combinations(
    node: object, dimensions: Sequence[str], where: str
) -> Iterator[tuple[dict[str, str], Mapping[str, Any], str]]:
    """The results below ``node``, which has a level for each dimension, with the values that lead to them."""
    if not isinstance(node, dict) or not node:
        _refuse(f"there are no values of {dimensions[0][:60]}" if dimensions else "these are no results", where)
    if not dimensions:
        yield {}, node, where
        return
    for value in sorted(node, key=_rank):
        for values, results, place in _combinations(node[value], dimensions[1:], f"{where}.{value[:40]}"):
            yield {dimensions[0]: _plain(value), **values}, results, place


def _run(name: str, values: Mapping[str, str], results: Mapping[str, Any], where: str) -> ForeignRun:
    samples = results.get("samples")
    if not isinstance(samples, list) or len(samples) > _SAMPLES_MAX:
        _refuse("samples is not a list of samples", f"{where}.samples")
    if not samples:
        _refuse("the load has no sample", f"{where}.samples", "remove it, or let it run for some intervals")
    slices, stated = _read(samples, f"{where}.samples")
    if "avg-latency" in results:
        length_ns = slices[-1].offset_ns + slices[-1].length_ns
        figures = {"mean_ns": _latency(results["avg-latency"], f"{where}.avg-latency")}
        stated.append(StatedFigures(series=Series.E2E, offset_ns=0, length_ns=length_ns, whole=True, figures=figures))
    return ForeignRun(
        tool=TOOL,
        name="_".join([name, *(f"{key}_{value}" for key, value in values.items())]),
        slices=slices,
        stated=stated,
        settings=_size(results) | _settings(values),
        unknown=_UNKNOWN,
        missing=(
            *_UNTOLD,
            *(f"{each}_per_s" for each in _UNTOLD),
            *("published_bytes", *UNKNOWN_COUNTS, *GENERATOR_FIGURES),
        ),
    )


def _read(samples: Sequence[object], where: str) -> tuple[list[Slice], list[StatedFigures]]:
    slices: list[Slice] = []
    stated: list[StatedFigures] = []
    begin_ns = 0
    for number, sample in enumerate(samples):
        place = f"{where}[{number}]"
        if not isinstance(sample, dict):
            _refuse("a sample is no object", place)
        end_ns = _time_ns(sample, begin_ns, place)
        length_ns = end_ns - begin_ns
        slices.append(Slice(offset_ns=begin_ns, length_ns=length_ns, counts=_counts(sample, length_ns, place)))
        if figures := _figures(sample, place):
            stated.append(StatedFigures(series=Series.E2E, offset_ns=begin_ns, length_ns=length_ns, figures=figures))
        begin_ns = end_ns
    return slices, stated


def _time_ns(sample: Mapping[str, Any], begin_ns: int, where: str) -> int:
    """The end of a sample. Some versions of PerfTest 2 wrote the end of the load into every sample."""
    elapsed = _number(sample, "elapsed", where)
    if not begin_ns < (found := round(min(elapsed * 1e6, LENGTH_MAX_NS + 1))) <= LENGTH_MAX_NS:
        what = f"elapsed is {elapsed:g} ms, and must grow from sample to sample, to 100 days at most"
        fix = f"{_FIX}; if all samples have the same time, run it again with another version of PerfTest"
        _refuse(what, f"{where}.elapsed", fix)
    return found


def _counts(sample: Mapping[str, Any], length_ns: int, where: str) -> dict[str, int]:
    found = {}
    for key, name in _COUNTS.items():
        count = _number(sample, key, where) * length_ns / 1e9
        if count > COUNT_MAX:
            _refuse(f"{key} is {sample[key]:g}, more than any broker can do", f"{where}.{key}")
        found[name] = round(count)
    return found


def _figures(sample: Mapping[str, Any], where: str) -> dict[str, int]:
    """The latencies of a sample. A sample without deliveries has none."""
    return {name: _latency(sample[key], f"{where}.{key}") for key, name in _LATENCIES.items() if key in sample}


def _size(results: Mapping[str, Any]) -> dict[str, int | float | bool]:
    """The setting min-msg-size, if the load had one."""
    octets, messages = results.get("send-bytes-rate"), results.get("send-msg-rate")
    if not _is_number(octets) or not _is_number(messages) or not messages:
        return {}
    size = octets / messages
    return {"size_bytes": round(size)} if _BODY_MIN <= size < 2**31 else {}


def _settings(values: Mapping[str, str]) -> dict[str, int | float | bool]:
    """The values of dimensions that are settings here, too. 0 and less mean several things, and are left out."""
    found: dict[str, int | float | bool] = {}
    for key, text in values.items():
        value = _float(text)
        if key in _SETTINGS and 0 < value < 2**31 and value == int(value):
            name = _SETTINGS[key]
            found[name] = value if name == "rate" else int(value)
    return found


def _plain(text: str) -> str:
    """A value as a person wrote it: PerfTestMulti makes ``100.0`` of 100."""
    return text.removesuffix(".0")


def _rank(text: str) -> tuple[float, str]:
    """The order of values: numbers by size, and then words."""
    return _float(text), text


def _float(text: str) -> float:
    """A number; infinity for a word."""
    try:
        value = float(text)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf


def _latency(value: object, where: str) -> int:
    found = ns_of(float(value), 1000) if _is_number(value) else None  # type: ignore[arg-type]
    if found is None:
        _refuse(f"{_shown(value)} is not a latency in microseconds", where)
    return found


def _number(sample: Mapping[str, Any], key: str, where: str) -> float:
    if key not in sample:
        _refuse(f"the sample has no {key}", where)
    if not _is_number(sample[key]):
        _refuse(f"{_shown(sample[key])} is not a number from 0", f"{where}.{key}")
    return float(sample[key])


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < 1e300


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:40]


def _refuse(what: str, where: str, fix: str = _FIX) -> NoReturn:
    raise ForeignFileError(what, where, fix)
