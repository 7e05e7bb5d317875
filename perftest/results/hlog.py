"""Lines of ``latency.hlog``: HdrHistogram's interval log, format V2, one line per series of an interval.

The library's own writer rounds maxima to whole milliseconds and knows no tags, so the lines are written here; its
reader reads them. The maximum has six decimals, which keeps the nanosecond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.schema import HLOG_TAG, STAGE_PREFIX

LEGEND: Final = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
_BASE: Final = re.compile(r"#\[BaseTime: *([0-9]+)\.([0-9]{3}) ")
_LINE: Final = re.compile(
    r"Tag=([^,]+),([0-9]+)\.([0-9]{3}),([0-9]+)\.([0-9]{3}),([0-9]+)\.([0-9]{6}),([A-Za-z0-9+/=]+)"
)


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
        f"#[StartTime: {seconds} (seconds since epoch), {utc}]\n" + LEGEND
    )


def lines(record: Interval, base_ns: int) -> str:
    """A line for each series that has values, each with its line feed."""
    return "".join(
        format_line(
            HlogLine(
                series=series,
                step=record.step,
                phase=record.phase,
                host=record.host,
                worker=record.worker,
                start_ns=record.start_ns,
                length_ns=record.length_ns,
                max_ns=counts.max_ns,
                payload=Histogram.of(counts).encode(),
            ),
            base_ns,
        )
        for series, counts in record.latencies.items()
    )


def parse_base_ns(line: str) -> int | None:
    """The time of the base-time comment, or None for any other line."""
    match = _BASE.match(line)
    return int(match[1]) * 10**9 + int(match[2]) * 10**6 if match else None


def parse_line(line: str, base_ns: int) -> HlogLine:
    """A line without its line feed. Raises ValueError when it is not one of ours."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("it is not a tagged line of a histogram log")
    tag, *numbers, payload = match.groups()
    start, length = (int(numbers[at]) * 10**9 + int(numbers[at + 1]) * 10**6 for at in (0, 2))
    series, *pairs = tag.split(";")
    values = dict(pair.split("=", 1) for pair in pairs)
    try:
        return HlogLine(
            series=series if series.startswith(STAGE_PREFIX) else Series(series),
            step=int(values["step"]),
            phase=Phase(values["phase"]),
            host=values["host"],
            worker=values["worker"],
            start_ns=base_ns + start,
            length_ns=length,
            max_ns=int(numbers[4]) * 10**6 + int(numbers[5]),
            payload=payload,
        )
    except KeyError as error:
        raise ValueError(f"its tag has no {error}") from error


def format_line(line: HlogLine, base_ns: int) -> str:
    """One line with its line feed, of a log whose times count from ``base_ns``."""
    tag = HLOG_TAG.format(
        series=_tag_value(line.series),
        step=line.step,
        phase=line.phase,
        host=_tag_value(line.host),
        worker=_tag_value(line.worker),
    )
    offset_ms = max(line.start_ns - base_ns, 0) // 10**6
    length_ms = line.length_ns // 10**6
    start, length = (f"{ms // 1000}.{ms % 1000:03d}" for ms in (offset_ms, length_ms))
    maximum = f"{line.max_ns // 10**6}.{line.max_ns % 10**6:06d}"
    return f"Tag={tag},{start},{length},{maximum},{line.payload}\n"


def _tag_value(text: str) -> str:
    """A value that cannot end a tag or a line early."""
    return re.sub(r"[,;=\s]", "_", text)
