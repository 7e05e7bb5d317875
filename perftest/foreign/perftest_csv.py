"""PerfTest's CSV (``--output-file``): rates, and percentiles of each interval; pure.

The file has neither counts nor histograms. A count is the rate times the length of the interval, rounded. Percentiles
stay what they are: those of one interval, as stated.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from perftest.foreign.measured import (
    COUNT_MAX,
    GENERATOR_FIGURES,
    LENGTH_MAX_NS,
    UNKNOWN_COUNTS,
    ForeignFileError,
    ForeignRun,
    Slice,
    Stated,
    ns_of,
)
from perftest.metrics.interval import Series

TOOL: Final = "PerfTest"
_COUNTS: Final = {
    "published (msg/s)": "published",
    "returned (msg/s)": "returned",
    "confirmed (msg/s)": "confirmed",
    "nacked (msg/s)": "nacked",
    "received (msg/s)": "delivered",
}
_NAMES: Final = {"min": "min_ns", "median": "p50_ns", "75th p.": "p75_ns", "95th p.": "p95_ns", "99th p.": "p99_ns"}
_LATENCY: Final = re.compile(r"(min|median|75th p\.|95th p\.|99th p\.) (consumer|confirm) latency \((µs|us|μs|ms)\)")
_SERIES: Final = {"consumer": Series.E2E, "confirm": Series.CONFIRM}
_UNITS_NS: Final = {"µs": 1000, "μs": 1000, "us": 1000, "ms": 1_000_000}
_FIX: Final = "give the file as PerfTest wrote it with --output-file, or remove the line"


def is_perftest_csv(text: str) -> bool:
    """Whether the first line is the header of PerfTest's CSV."""
    cells = _cells(text.partition("\n")[0])
    return cells[:2] == ["id", "time (s)"]


def read_perftest_csv(text: str, file: str) -> ForeignRun:
    """The run that a CSV file of PerfTest tells of.

    :raises ForeignFileError: a line or the header cannot be used
    """
    lines = text.replace("\r\n", "\n").split("\n")
    header = _header(_cells(lines[0]), f"{file}:1")
    rows = [(number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if not rows:
        raise ForeignFileError("the file has no interval", file, "give the file of a run that lasted long enough")
    slices: list[Slice] = []
    stated: list[Stated] = []
    begin_ns = 0
    for number, line in rows:
        where = f"{file}:{number}"
        cells = _cells(line)
        if cells == header:
            _refuse("a second run begins here", where, "split the file, one run each: PerfTest writes one header a run")
        if len(cells) != len(header):
            _refuse(f"{len(cells)} cells under {len(header)} columns", where)
        end_ns = _time_ns(cells[1], begin_ns, where)
        slices.append(_slice(header, cells, begin_ns, end_ns - begin_ns, where))
        stated += _stated(header, cells, begin_ns, end_ns - begin_ns, where)
        begin_ns = end_ns
    told = {name for each in slices for name in each.counts}
    absent = [name for name in _COUNTS.values() if name not in told]
    return ForeignRun(
        tool=TOOL,
        name=_name(_cells(rows[0][1])[0]),
        slices=slices,
        stated=stated,
        unknown=_unknown(absent),
        missing=(
            *("intended", "intended_per_s", "published_bytes", *UNKNOWN_COUNTS, *GENERATOR_FIGURES),
            *(each for name in absent for each in (name, f"{name}_per_s")),
        ),
    )


def _unknown(absent: Sequence[str]) -> tuple[str, ...]:
    found = (
        "when the run began: the file has seconds since the start only",
        "how many messages there were: counts are the stated rates times the lengths of the intervals, rounded",
        "a percentile of the whole run: PerfTest states percentiles of single intervals, and these cannot be merged",
        "maxima of latencies, and on how many messages a percentile stands",
        "the command line, the settings, the queues, the broker, its hosts and the load generator's own limits",
    )
    return (*found, f"what the file does not have: {', '.join(absent)}") if absent else found


def _header(cells: list[str], where: str) -> list[str]:
    """The header, in which every column is known."""
    if "worker" in cells:
        fix = "nothing needs importing: make the report of the run directory itself"
        _refuse("this is the intervals.csv of a run of this tool", where, fix)
    odd = [name for name in cells[2:] if name not in _COUNTS and not _LATENCY.fullmatch(name)]
    if odd:
        _refuse(f"the column {odd[0][:60]!r} is none of PerfTest's", where, "give the file as PerfTest wrote it")
    twice = [name for name in cells if cells.count(name) > 1]
    if twice:
        _refuse(f"the column {twice[0][:60]!r} is there twice", where, "give the file as PerfTest wrote it")
    return cells


def _slice(header: Sequence[str], cells: Sequence[str], begin_ns: int, length_ns: int, where: str) -> Slice:
    counts = {}
    for name, cell in zip(header, cells, strict=True):
        if name in _COUNTS and (rate := _number(name, cell, where)) is not None:
            counts[_COUNTS[name]] = round(rate * length_ns / 1e9)
            if counts[_COUNTS[name]] > COUNT_MAX:
                _refuse(f"{name} is {cell[:40]}, more than any broker can do", where)
    return Slice(offset_ns=begin_ns, length_ns=length_ns, counts=counts)


def _stated(header: Sequence[str], cells: Sequence[str], begin_ns: int, length_ns: int, where: str) -> Iterator[Stated]:
    figures: dict[Series, dict[str, int]] = {}
    for name, cell in zip(header, cells, strict=True):
        match = _LATENCY.fullmatch(name)
        if match is None or (value := _number(name, cell, where)) is None:
            continue
        found = ns_of(value, _UNITS_NS[match[3]])
        if found is None:
            _refuse(f"{name} is {cell[:40]}, longer than any run", where)
        figures.setdefault(_SERIES[match[2]], {})[_NAMES[match[1]]] = found
    for series, of in figures.items():
        if any(of.values()):  # PerfTest writes zeros where it measured nothing
            yield Stated(series=series, offset_ns=begin_ns, length_ns=length_ns, figures=of)


def _time_ns(cell: str, begin_ns: int, where: str) -> int:
    seconds = _number("time (s)", cell, where)
    if seconds is None:
        _refuse("the time is missing", where)
    if not begin_ns < (found := round(seconds * 1e9)) <= LENGTH_MAX_NS:
        _refuse(f"the time is {cell[:40]}, and must grow from line to line, to 100 days at most", where)
    return found


def _number(name: str, cell: str, where: str) -> float | None:
    """A number that is not negative; None if there is none."""
    if cell.strip() in ("", "NaN"):
        return None
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        _refuse(f"{name} is {cell[:40]!r}, not a number from 0", where)
    return value


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip().removeprefix("\ufeff") for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def _name(cell: str) -> str:
    return cell[:80]


def _refuse(what: str, where: str, fix: str = _FIX) -> NoReturn:
    raise ForeignFileError(what, where, fix)
