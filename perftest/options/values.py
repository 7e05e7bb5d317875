"""Reads the values of options: a function for each kind of value.

Each function takes a text and returns the value in the units of the plan. It raises
:class:`~perftest.spec.units.UnitError`, with the fix, for a text that it cannot read. PerfTest writes plain numbers;
units are understood as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from perftest.ci.job_outputs import parse_annotations
from perftest.screen import METRICS_FORMATS, UI_NAMES
from perftest.spec.actions import parse_action
from perftest.spec.behaviour import Allocation, Argument, Arrivals, ExitWhen
from perftest.spec.cluster import Product
from perftest.spec.expected.slo import parse_objective
from perftest.spec.timed_action import TimedAction
from perftest.spec.units import (
    IN_FLIGHT_UNLIMITED,
    NO_CONFIRMS,
    UnitError,
    parse_ack_interval,
    parse_count,
    parse_duration_s,
    parse_http_url,
    parse_in_flight,
    parse_prefetch,
    parse_rate,
    parse_size_bytes,
)

_PATTERN: Final = re.compile(r"^(?:[^%]|%%)*%(?P<zero>0?)(?P<width>\d*)d(?:[^%]|%%)*$")
_INTERVAL_MIN_S: Final = 0.1


def _path(text: str) -> str:
    if not text:
        raise UnitError("the path is empty", "write the path of a file")
    return text


def _names(text: str) -> tuple[str, ...]:
    """Empty names are ignored, as by PerfTest: a list may end with a comma."""
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    if not names:
        raise UnitError(f"{text!r} has no name in it", "write names with commas between them")
    return names


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UnitError(f"{text!r} is neither true nor false", "write true or false")
    return text.lower() == "true"


def _signed(text: str) -> int:
    """A count; a negative number stands for no count."""
    return -1 if _is_negative(text) else parse_count(text)


def _in_flight(text: str) -> int:
    """PerfTest's -c: 0 stands for confirms without a limit, a negative number or ``off`` for no confirms. The words of
    a workload file are understood, too."""
    if text == "off" or _is_negative(text):
        return NO_CONFIRMS
    return IN_FLIGHT_UNLIMITED if _is_zero(text) else parse_in_flight(text)


def _ack_interval(text: str) -> int:
    """PerfTest's -A: 0 acknowledges each message by itself. The words of a workload file are understood, too."""
    return 1 if _is_zero(text) else parse_ack_interval(text)


def _signed_rate(text: str) -> float | None:
    return None if _is_negative(text) else parse_rate(text)


def _signed_size(text: str) -> int:
    return 0 if _is_negative(text) else parse_size_bytes(text)


def _limit_s(text: str) -> float:
    """PerfTest's -z: 0 stands for no limit."""
    return parse_duration_s(text) or float("inf")


def _signed_s(text: str) -> float:
    return -1.0 if _is_negative(text) else parse_duration_s(text)


def _interval_s(text: str) -> float:
    seconds = parse_duration_s(text)
    if seconds < _INTERVAL_MIN_S:
        raise UnitError(f"{text!r} is too short a time between messages", "use 0.1 or more, or -r for a rate")
    return seconds


def _range_s(text: str) -> tuple[float, float]:
    """``5``, or ``30-60`` for a random time between the two."""
    first, _, last = text.partition("-")
    return parse_duration_s(first), parse_duration_s(last or first)


def _whole_time(per_second: int, unit: str) -> Callable[[str], int]:
    """A reader of a time as a whole number of a unit, which a plain number is counted in."""

    def read_time(text: str) -> int:
        with suppress(UnitError):
            return parse_count(text)
        seconds = parse_duration_s(text)
        if 0 < seconds * per_second < 0.5:
            raise UnitError(f"{text!r} is less than 1 {unit}", f"write 1 or more for a time in {unit}, or 0")
        return round(seconds * per_second)

    return read_time


_latency_us: Final = _whole_time(10**6, "µs")


def _held(text: str) -> tuple[str, float]:
    """A value, and the seconds for which it holds."""
    value, colon, seconds = text.partition(":")
    if not colon or not value:
        raise UnitError(
            f"{text!r} is not a value with its time", "write 100:60, that is the value, a colon and seconds"
        )
    return value, parse_duration_s(seconds)


def _rate_cycle(text: str) -> tuple[float, float]:
    value, held = _held(text)
    rate = parse_rate(value)
    if rate is None:
        raise UnitError(f"{value!r} is not a rate", "write 1000:60")
    return rate, held


def _size_cycle(text: str) -> tuple[float, float]:
    value, held = _held(text)
    return float(parse_size_bytes(value)), held


def _latency_cycle(text: str) -> tuple[float, float]:
    value, held = _held(text)
    return float(_latency_us(value)), held


def _pairs(text: str) -> dict[str, Argument]:
    """Pairs such as ``k=v,...``. The words true and false are truth values, and digits are a whole number."""
    found: dict[str, Argument] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = pair.partition("=")
        if not name:
            raise UnitError(f"{pair!r} has no name", "write name=value,name=value")
        found[name] = _argument(name, value)
    return found


def _argument(name: str, value: str) -> Argument:
    if name == "x-dead-letter-exchange" and value == "amq.default":
        return ""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch(r"[+-]?\d+", value) else value


def _gauges(text: str) -> dict[str, float]:
    """Names and numbers."""
    try:
        return {name: float(value) for name, value in _pairs(text).items()}
    except ValueError as error:
        raise UnitError(f"{text!r} is not a list of gauges", "write expected_published=50000") from error


def _labels(text: str) -> dict[str, str]:
    """Labels: names that Prometheus accepts, with any values."""
    found = {name: str(value) for name, value in _pairs(text).items()}
    wrong = next((name for name in found if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)), None)
    if wrong is not None:
        raise UnitError(f"{wrong!r} is not the name of a label", "use letters, digits and _")
    return found


def _pattern(text: str) -> str:
    if not _PATTERN.match(text):
        raise UnitError(f"{text!r} has no place for a number", "write q-%d, or q-%03d for three digits")
    return text


def _exchange(text: str) -> str:
    return "" if text == "amq.default" else text


def _arrivals(text: str) -> tuple[Arrivals, str]:
    """The kind of schedule, and the path of its file if it is a trace."""
    kind, _, path = text.partition(":")
    if kind not in list(Arrivals) or (kind == Arrivals.TRACE) is not bool(path):
        raise UnitError(f"{text!r} is not a schedule", "write fixed, poisson or trace:FILE")
    return Arrivals(kind), path


def _percentiles(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part.strip().lstrip("p")) for part in text.split(","))
    except ValueError as error:
        raise UnitError(f"{text!r} is not a list of percentiles", "write 50,90,99.9") from error
    if not all(0 < percent <= 100 for percent in found):
        raise UnitError(f"{text!r} is not a list of percentiles", "use numbers above 0, up to 100")
    return found


def _is_zero(text: str) -> bool:
    return re.fullmatch(r"0+", text.strip()) is not None


def _is_negative(text: str) -> bool:
    return re.fullmatch(r"-\d+(\.\d+)?", text) is not None


def _one_of(*known: str) -> Callable[[str], str]:
    """A reader of one of some words."""

    def read_word(text: str) -> str:
        if text not in known:
            raise UnitError(f"{text!r} is not one of {', '.join(known)}", f"write {' or '.join(known)}")
        return text

    return read_word


def _action(text: str) -> tuple[str, TimedAction]:
    """An action with its words, by which an error names it."""
    return text, parse_action(text)


_exit_when: Final = _one_of("empty", "idle", "never")
_allocation: Final = _one_of(*Allocation)

_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "annotations": parse_annotations,
    "ack_interval": _ack_interval,
    "action": _action,
    "allocation": lambda text: Allocation(_allocation(text)),
    "arrivals": _arrivals,
    "boolean": _boolean,
    "count": parse_count,
    "duration_s": parse_duration_s,
    "exchange": _exchange,
    "exit_when": lambda text: ExitWhen(_exit_when(text)),
    "gauges": _gauges,
    "http_url": parse_http_url,
    "in_flight": _in_flight,
    "interval_s": _interval_s,
    "labels": _labels,
    "latency_cycle": _latency_cycle,
    "latency_us": _latency_us,
    "leader_locator": _one_of("client-local", "balanced"),
    "limit_s": _limit_s,
    "message_flag": _one_of("persistent", "mandatory"),
    "metrics_format": _one_of(*METRICS_FORMATS),
    "product": _one_of(*(product.value for product in Product)),
    "names": _names,
    "objective": parse_objective,
    "pairs": _pairs,
    "path": _path,
    "paths": _names,
    "pattern": _pattern,
    "percentiles": _percentiles,
    "prefetch": parse_prefetch,
    "range_s": _range_s,
    "rate_cycle": _rate_cycle,
    "signed": _signed,
    "signed_size": _signed_size,
    "signed_rate": _signed_rate,
    "signed_s": _signed_s,
    "size": parse_size_bytes,
    "size_cycle": _size_cycle,
    "text": str,
    "time_ms": _whole_time(1000, "ms"),
    "time_s": _whole_time(1, "s"),
    "ui": _one_of(*UI_NAMES),
}


def read(kind: str, text: str) -> Any:
    """The value of an option of this kind. Raises UnitError."""
    return _READERS[kind](text)
