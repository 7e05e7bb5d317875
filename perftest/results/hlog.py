"""Lines of ``latency.hlog``: HdrHistogram's interval log, format V2, one line per series of an interval.

The library's own writer rounds maxima to whole milliseconds and knows no tags, so this module writes the lines. The
maximum has six decimals, which keeps the nanosecond. The run's reader and the report's pipeline read lines here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase
from perftest.results.errors import LineError
from perftest.results.schema import HLOG_GROUP, HLOG_TAG, STAGE_PREFIX

_LEGEND: Final = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
_BASE_TIME: Final = re.compile(r"#\[BaseTime: *([^ \]]*)")
_SERIES: Final = re.compile(r"[a-z][a-z0-9_.]*")
_SECONDS: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,18}))?", re.ASCII)
_TAGS_KEPT: Final = 4096
"""Number of parsed tags that are kept: the series of a step have the same tags in every interval."""
_NS_DIGITS: Final = 9
_MS_PER_S: Final = 1000
"""Milliseconds of a second: a log's times are in seconds, its maxima in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HlogLine:
    """One histogram of one series of one interval of one worker. ``start_ns`` is Unix time (rounded to ms).

    ``series`` is a :class:`~perftest.metrics.interval.Series`, or the name of a stage within the broker.
    """

    series: str
    step: int
    phase: Phase
    host: str
    worker: str
    group: str = ""
    start_ns: int
    length_ns: int
    max_ns: int
    payload: str


def header(base_ns: int) -> str:
    """The head of a log whose times count from ``base_ns`` (Unix time, a whole number of milliseconds)."""
    seconds = f"{base_ns // 10**9}.{base_ns // 10**6 % 1000:03d}"
    utc = datetime.fromtimestamp(base_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        "#[Histogram log format version 1.3]\n"
        f"#[BaseTime: {seconds} (seconds since epoch)]\n"
        f"#[StartTime: {seconds} (seconds since epoch), {utc}]\n" + _LEGEND
    )


def lines(record: Interval, base_ns: int) -> str:
    """A line for each series that has values, each with its line feed."""
    place = {name: getattr(record, name) for name in ("step", "phase", "host", "worker", "group")}
    place |= {"start_ns": record.start_ns, "length_ns": record.length_ns}
    return "".join(
        format_line(HlogLine(series=series, max_ns=counts.max_ns, payload=payload, **place), base_ns)
        for series, counts in record.latencies.items()
        if (payload := counts.payload or Histogram.of(counts).encode())
    )


def format_line(line: HlogLine, base_ns: int) -> str:
    """One line with its line feed, of a log whose times count from ``base_ns``."""
    tag = HLOG_TAG.format(
        series=_tag_value(line.series),
        step=line.step,
        phase=line.phase,
        host=_tag_value(line.host),
        worker=_tag_value(line.worker),
    )
    tag += HLOG_GROUP.format(group=_tag_value(line.group)) if line.group else ""
    offset_ms = max(line.start_ns - base_ns, 0) // 10**6
    length_ms = line.length_ns // 10**6
    start, length = (f"{ms // 1000}.{ms % 1000:03d}" for ms in (offset_ms, length_ms))
    maximum = f"{line.max_ns // 10**6}.{line.max_ns % 10**6:06d}"
    return f"Tag={tag},{start},{length},{maximum},{line.payload}\n"


def parse_line(text: str, base_ns: int) -> HlogLine | None:
    """The histogram of a line without its line feed; None for a comment and for the legend. Raises LineError.

    The payload is not looked into.
    """
    if text.startswith(("#", '"')):
        return None
    cells = text.split(",")
    if len(cells) != 5 or not cells[0].startswith("Tag="):
        raise LineError(f"{len(cells)} cells where a tag, start, length, maximum and payload belong")
    tag, start, length, maximum, payload = cells
    series, step, values = _tag(tag.removeprefix("Tag="))
    return HlogLine(
        series=series,
        step=step,
        phase=phase_of(values["phase"]),
        host=values["host"],
        worker=values["worker"],
        group=values.get("group", ""),
        start_ns=base_ns + _duration_ns("start", start),
        length_ns=_duration_ns("length", length),
        max_ns=_duration_ns("maximum", maximum) // _MS_PER_S,
        payload=payload,
    )


def series_and_phase(tag: str) -> tuple[str, Phase]:
    """The series and phase that a tag of a log names. Raises LineError for a tag that is not ours."""
    series, _step, values = _tag(tag)
    return series, phase_of(values["phase"])


def base_ns_of(text: str) -> int | None:
    """The time that a base-time comment states, in Unix nanoseconds; None for any other line. Raises LineError."""
    stated = _BASE_TIME.match(text)
    return _duration_ns("base time", stated[1]) if stated else None


def seconds_to_ns(text: str) -> int:
    """Decimal seconds as nanoseconds, exactly: a double of the Unix time is 240 ns off. Raises ValueError."""
    stated = _SECONDS.fullmatch(text)
    if not stated:
        raise ValueError(f"{text!r} is not a time in seconds")
    whole, part = stated.group(1, 2)
    if part is not None and len(part) > _NS_DIGITS:
        return int(Decimal(text).scaleb(_NS_DIGITS).to_integral_value())
    return int(whole + (part or "").ljust(_NS_DIGITS, "0"))


def phase_of(text: str) -> Phase:
    """The phase of that name. Raises LineError."""
    try:
        return Phase(text)
    except ValueError:
        raise LineError(f"phase is {text!r}, not one of {', '.join(Phase)}") from None


def whole_number(name: str, text: str) -> int:
    """The number of 64 bits that a text states. Raises LineError."""
    try:
        value = int(text)
    except ValueError:
        raise LineError(f"{name} is {text!r}, not a whole number") from None
    if not -(2**63) <= value < 2**63:
        raise LineError(f"{name} is {text}, beyond 64 bits")
    return value


def step_number(text: str) -> int:
    """The number of a step. Raises LineError."""
    step = whole_number("step", text)
    if step < 1:
        raise LineError(f"step is {step}, steps count from 1")
    return step


@lru_cache(maxsize=_TAGS_KEPT)
def _tag(tag: str) -> tuple[str, int, Mapping[str, str]]:
    series, *pairs = tag.split(";")
    values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    missing = [name for name in ("step", "phase", "host", "worker") if name not in values]
    if series.startswith(STAGE_PREFIX) and series.count(".") != 2:
        raise LineError(f"series {series!r} is not {STAGE_PREFIX}<chain>.<stage>")
    if missing or not _SERIES.fullmatch(series):
        raise LineError(f"tag {tag!r} is not {HLOG_TAG}")
    return series, step_number(values["step"]), values


def _duration_ns(name: str, text: str) -> int:
    try:
        value = seconds_to_ns(text)
    except ValueError:
        raise LineError(f"{name} is {text!r}, not seconds") from None
    if not 0 <= value < 2**62:
        raise LineError(f"{name} is {text} s")
    return value


def _tag_value(text: str) -> str:
    """A value that cannot end a tag or a line early."""
    return re.sub(r"[,;=\s]", "_", text)
