"""PerfTest's CSV (``--output-file``) and its console: rates, and percentiles of each interval; pure.

The file has neither counts nor histograms. A count is the rate times the length of the interval, rounded. Percentiles
stay as stated, each for one interval.

Files of old versions, of other locales and out of spreadsheets are read, too: columns of PerfTest 1 and 2.1, a micro
sign that lost its encoding, decimal commas, and semicolons between cells.
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
    StatedFigures,
    ns_of,
)
from perftest.metrics.interval import Series

TOOL: Final = "PerfTest"
_COUNTS: Final = {
    "published (msg/s)": "published",
    "sent (msg/s)": "published",
    "returned (msg/s)": "returned",
    "confirmed (msg/s)": "confirmed",
    "nacked (msg/s)": "nacked",
    "received (msg/s)": "delivered",
}
_NAMES: Final = {"min": "min_ns", "median": "p50_ns", "75th p.": "p75_ns", "95th p.": "p95_ns", "99th p.": "p99_ns"}
_UNIT: Final = r"ms|milliseconds|us|microseconds|(?:[µμ?\ufffd]|Âµ|Î¼)s"
"""Units of latencies. The micro sign may have been read in another encoding than it was written."""
_LATENCY: Final = re.compile(rf"(min|median|75th p\.|95th p\.|99th p\.) (?:(consumer|confirm) )?latency \(({_UNIT})\)")
_SERIES: Final = {"consumer": Series.E2E, "confirm": Series.CONFIRM, None: Series.E2E}
_LINE: Final = re.compile(r"^id: ([^,]*), time:? ([\d.,]+) ?s, (.*)$")
"""An interval as PerfTest prints it."""
_RATE: Final = re.compile(r"(sent|published|returned|confirmed|nacked|received): ([\d.,]+) msg/s")
_PERCENTILES: Final = re.compile(
    rf"min/median/75th/95th/99th(?:/max)? (?:(consumer|confirm) )?latency: ([\d.,]+(?:/[\d.,]+)*) ({_UNIT})"
)
_PRINTED: Final = ("min", "median", "75th p.", "95th p.", "99th p.")
_FIX: Final = "give the file as PerfTest wrote it with --output-file, or remove the line"


def is_perftest_csv(text: str) -> bool:
    """Whether the first line is the header of PerfTest's CSV."""
    cells = _cells(text.partition("\n")[0])
    return cells[:2] == ["id", "time (s)"]


def is_perftest_console(text: str) -> bool:
    """Whether a line is an interval as PerfTest prints it."""
    return any(_LINE.match(line.strip()) for line in text[:10_000].splitlines())


def read_perftest_console(text: str, file: str) -> ForeignRun:
    """The run that the console of PerfTest tells of. Other lines are passed over.

    :raises ForeignFileError: a line of an interval cannot be used
    """
    rows = [(number, _printed(match)) for number, line in enumerate(text.splitlines(), 1)
            if (match := _LINE.match(line.strip())) is not None]  # fmt: skip
    header = list(dict.fromkeys(name for _, row in rows for name in row))
    odd = _header(header, f"{file}:{rows[0][0]}")
    return _run([(number, [row.get(name, "") for name in odd]) for number, row in rows], odd, file)


def _printed(match: re.Match[str]) -> dict[str, str]:
    """The cells of a printed interval, by the columns of the CSV."""
    found = {"id": match[1], "time (s)": _plain(match[2])}
    found |= {f"{name} (msg/s)": _plain(rate) for name, rate in _RATE.findall(match[3])}
    for series, values, unit in _PERCENTILES.findall(match[3]):
        for name, value in zip(_PRINTED, values.split("/"), strict=False):
            found[f"{name} {series or 'consumer'} latency ({unit})"] = _plain(value)
    return found


def _plain(number: str) -> str:
    """A number with a decimal point: PerfTest prints no separators between thousands."""
    return number.replace(",", ".")


def read_perftest_csv(text: str, file: str) -> ForeignRun:
    """The run that a CSV file of PerfTest tells of.

    :raises ForeignFileError: a line or the header cannot be used
    """
    lines = text.replace("\r\n", "\n").split("\n")
    header = _header(_cells(lines[0]), f"{file}:1")
    rows = [(number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if not rows:
        raise ForeignFileError("the file has no interval", file, "give the file of a run that lasted long enough")
    read: list[tuple[int, list[str]]] = []
    for number, line in rows:
        where = f"{file}:{number}"
        cells = _joined(_cells(line), len(header))
        if cells == header:
            _refuse("a second run begins here", where, "split the file, one run each: PerfTest writes one header a run")
        if len(cells) != len(header):
            _refuse(f"{len(cells)} cells under {len(header)} columns", where)
        read.append((number, cells))
    return _run(read, header, file)


def _joined(cells: list[str], count: int) -> list[str]:
    """The cells of a line with decimal commas, which look like more cells than there are columns: the time has three
    decimals, and a rate below 1 has two."""
    joined = cells[:1]
    rest = cells[1:]
    while rest:
        cell = rest.pop(0)
        decimals = 3 if len(joined) == 1 else 2
        is_split = rest and len(joined) + 1 + len(rest) > count and len(rest[0]) == decimals and rest[0].isdigit()
        joined.append(f"{cell}.{rest.pop(0)}" if is_split and cell.isdigit() else cell)
    return joined


def _run(rows: Sequence[tuple[int, list[str]]], header: list[str], file: str) -> ForeignRun:
    slices: list[Slice] = []
    stated: list[StatedFigures] = []
    begin_ns = 0
    for number, cells in rows:
        where = f"{file}:{number}"
        end_ns = _time_ns(cells[1], begin_ns, where)
        slices.append(_slice(header, cells, begin_ns, end_ns - begin_ns, where))
        stated += _stated(header, cells, begin_ns, end_ns - begin_ns, where)
        begin_ns = end_ns
    told = {name for each in slices for name in each.counts}
    absent = [name for name in dict.fromkeys(_COUNTS.values()) if name not in told]
    return ForeignRun(
        tool=TOOL,
        name=_name(rows[0][1][0]),
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
    """The header, checked: every column is known."""
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
            if (count := rate * length_ns / 1e9) > COUNT_MAX:
                _refuse(f"{name} is {cell[:40]}, more than any broker can do", where)
            counts[_COUNTS[name]] = round(count)
    return Slice(offset_ns=begin_ns, length_ns=length_ns, counts=counts)


def _stated(
    header: Sequence[str], cells: Sequence[str], begin_ns: int, length_ns: int, where: str
) -> Iterator[StatedFigures]:
    figures: dict[Series, dict[str, int]] = {}
    for name, cell in zip(header, cells, strict=True):
        match = _LATENCY.fullmatch(name)
        if match is None or (value := _number(name, cell, where)) is None:
            continue
        found = ns_of(value, 1_000_000 if match[3] in ("ms", "milliseconds") else 1000)
        if found is None:
            _refuse(f"{name} is {cell[:40]}, longer than any run", where)
        figures.setdefault(_SERIES[match[2]], {})[_NAMES[match[1]]] = found
    for series, of in figures.items():
        if any(of.values()):  # PerfTest writes zeros where it measured nothing
            yield StatedFigures(series=series, offset_ns=begin_ns, length_ns=length_ns, figures=of)


def _time_ns(cell: str, begin_ns: int, where: str) -> int:
    seconds = _number("time (s)", cell, where)
    if seconds is None:
        _refuse("the time is missing", where)
    if not begin_ns < (found := round(min(seconds * 1e9, LENGTH_MAX_NS + 1))) <= LENGTH_MAX_NS:
        _refuse(f"the time is {cell[:40]}, and must grow from line to line, to 100 days at most", where)
    return found


def _number(name: str, cell: str, where: str) -> float | None:
    """A number that is not negative; None if there is none."""
    if cell.strip() in ("", "NaN"):
        return None
    try:
        value = float(_plain(cell))
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        _refuse(f"{name} is {cell[:40]!r}, not a number from 0", where)
    return value


def _cells(line: str) -> list[str]:
    mark = ";" if line.count(";") > line.count(",") else ","
    try:
        return [cell.strip().removeprefix("\ufeff") for cell in next(csv.reader([line], delimiter=mark), [])]
    except csv.Error:
        return []


def _name(cell: str) -> str:
    return cell[:80]


def _refuse(what: str, where: str, fix: str = _FIX) -> NoReturn:
    raise ForeignFileError(what, where, fix)
