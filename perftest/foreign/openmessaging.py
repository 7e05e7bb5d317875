"""The result JSON of OpenMessaging Benchmark: rates of every 10 s, and quantiles of the whole run; pure.

The quantiles come from a histogram that the file does not have: how many messages lie between two quantiles is unknown.
So the quantiles are stated figures of the whole run. Publish and end-to-end latencies are in milliseconds, the publish
delay in microseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from perftest.foreign.measured import (
    COUNT_MAX,
    GENERATOR_FIGURES,
    UNKNOWN_COUNTS,
    ForeignFileError,
    ForeignRun,
    Slice,
    StatedFigures,
    ns_of,
)
from perftest.metrics.interval import Series

TOOL: Final = "OpenMessaging Benchmark"
SAMPLE_NS: Final = 10 * 10**9
"""The tool takes a sample every 10 s."""
_SAMPLES_MAX: Final = 1_000_000
_LATENCIES: Final = {
    "PublishLatency": (Series.CONFIRM, 1_000_000),
    "EndToEndLatency": (Series.E2E, 1_000_000),
    "PublishDelayLatency": (Series.LAG, 1_000),
}
_FIGURES: Final = {
    "Avg": "mean_ns",
    "50pct": "p50_ns",
    "75pct": "p75_ns",
    "95pct": "p95_ns",
    "99pct": "p99_ns",
    "999pct": "p999_ns",
    "9999pct": "p9999_ns",
    "Max": "max_ns",
}
_FIX: Final = "give the file as the tool wrote it"
_UNKNOWN: Final = (
    "when the run began: the file has no time",
    "how many messages there were: counts are the stated rates times 10 s, the tool's time between samples, rounded",
    "histograms: the tool states quantiles, of the whole run, which cannot be merged with those of other runs",
    "a latency from the intended time: the publish delay is stated beside the latency from the send",
    "the rate that was asked for, confirms, the queues, the broker, its hosts and the load generator's own limits",
)


def is_openmessaging_result(data: object) -> bool:
    """Whether the JSON looks like a result of this tool."""
    return isinstance(data, dict) and "publishRate" in data and "driver" in data


def read_openmessaging(data: Mapping[str, Any], file: str) -> ForeignRun:
    """The run that a result of OpenMessaging Benchmark tells of.

    :raises ForeignFileError: a key has a value that cannot be used
    """
    published, delivered = (_rates(data, key, file) for key in ("publishRate", "consumeRate"))
    if not published:
        _refuse("the run has no sample", f"{file}: publishRate", "give the result of a run that lasted 10 s at least")
    if len(delivered) != len(published):
        _refuse(f"{len(published)} samples of publishRate and {len(delivered)} of consumeRate", f"{file}: consumeRate")
    slices = [
        Slice(
            offset_ns=number * SAMPLE_NS,
            length_ns=SAMPLE_NS,
            counts={"published": round(sent * 10), "delivered": round(came * 10)},
        )
        for number, (sent, came) in enumerate(zip(published, delivered, strict=True))
    ]
    length_ns = SAMPLE_NS * len(slices)
    unsaid = ("intended", "confirmed")
    return ForeignRun(
        tool=TOOL,
        name=" ".join(str(data[key])[:60] for key in ("workload", "driver") if isinstance(data.get(key), str)),
        slices=slices,
        stated=list(_stated(data, length_ns, file)),
        settings=_settings(data),
        unknown=_UNKNOWN,
        missing=(
            *unsaid,
            *(f"{name}_per_s" for name in unsaid),
            *("published_bytes", "nacked", "returned", *UNKNOWN_COUNTS, *GENERATOR_FIGURES),
        ),
    )


def _settings(data: Mapping[str, Any]) -> dict[str, int]:
    """The settings that the file states; what is no number from 0 is not stated."""
    sizes = {name: data.get(name) for name in ("messageSize", "topics", "producersPerTopic", "consumersPerTopic")}
    known = {name: value for name, value in sizes.items() if type(value) is int and 0 <= value < 2**31}
    found = {"size_bytes": known["messageSize"]} if "messageSize" in known else {}
    for name, key in (("publishers", "producersPerTopic"), ("consumers", "consumersPerTopic")):
        if key in known and "topics" in known:
            found[name] = known[key] * known["topics"]
    return found


def _rates(data: Mapping[str, Any], key: str, file: str) -> list[float]:
    values = data.get(key)
    if not isinstance(values, list) or len(values) > _SAMPLES_MAX:
        _refuse(f"{key} is not a list of rates", f"{file}: {key}")
    for number, value in enumerate(values):
        if not _is_number(value) or value * 10 > COUNT_MAX:
            _refuse(f"{_shown(value)} is not a rate", f"{file}: {key}[{number}]")
    return [float(value) for value in values]


def _stated(data: Mapping[str, Any], length_ns: int, file: str) -> Iterator[StatedFigures]:
    for name, (series, unit_ns) in _LATENCIES.items():
        figures = {}
        for ending, figure in _FIGURES.items():
            key = f"aggregated{name}{ending}"
            if key in data:
                figures[figure] = _latency(data[key], unit_ns, f"{file}: {key}")
        key = f"aggregated{name}Quantiles"
        quantiles = data.get(key, {})
        if not isinstance(quantiles, dict):
            _refuse(f"{key} is not an object", f"{file}: {key}")
        full = {_percent(at, key, file): _latency(of, unit_ns, f"{file}: {key}.{at}") for at, of in quantiles.items()}
        if any(figures.values()) or full:
            yield StatedFigures(
                series=series, offset_ns=0, length_ns=length_ns, whole=True, figures=figures, quantiles=full
            )


def _percent(text: str, key: str, file: str) -> str:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        _refuse(f"{text[:40]!r} is not a percentile from 0 to 100", f"{file}: {key}")
    return text


def _latency(value: object, unit_ns: int, where: str) -> int:
    found = ns_of(float(value), unit_ns) if _is_number(value) else None  # type: ignore[arg-type]
    if found is None:
        _refuse(f"{_shown(value)} is not a latency", where)
    return found


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < 1e300 and math.isfinite(value)


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:40]


def _refuse(what: str, where: str, fix: str = _FIX) -> NoReturn:
    raise ForeignFileError(what, where, fix)
