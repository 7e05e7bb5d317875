"""HdrHistogram's interval logs (``.hlog``) of any tool; pure.

These logs have histograms, so their percentiles can be merged. The log says neither the unit of its values nor what was
measured: the person who imports the log says both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NoReturn

from hdr_buckets import PayloadError
from perftest.foreign.hdr_payload import read_payload
from perftest.foreign.measured import (
    GENERATOR_FIGURES,
    LENGTH_MAX_NS,
    UNKNOWN_COUNTS,
    ForeignFileError,
    ForeignRun,
    Slice,
)
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Phase, Series
from perftest.results.errors import LineError
from perftest.results.hlog import seconds_to_ns, series_and_phase

TOOL: Final = "another tool"
"""The log does not name its tool."""
IMPORTABLE: Final = (Series.E2E, Series.CONFIRM, Series.LAG)
"""The latencies that a log of another tool may hold."""
_INTERVAL: Final = re.compile(r"^[0-9.]+,[0-9.]+,[0-9.]+,\"?D?HIST", re.MULTILINE)
_UNTOLD_NS: Final = 10**9
"""Length of an interval whose length is unknown."""
_YEAR_NS: Final = 365 * 24 * 3600 * 10**9
_STATED_TIME: Final = re.compile(r"#\[(BaseTime|StartTime): *([0-9.]+)")
_FIX: Final = "give the log as the tool wrote it, or remove the line"
_COUNTS: Final = ("published", "confirmed", "nacked", "returned", "delivered")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    number: int
    tag: str
    start_ns: int
    length_ns: int
    payload: str


def is_hdr_log(text: str) -> bool:
    """Whether the text begins as an interval log does, with or without a header."""
    head = text[:2000]
    return head.startswith(("#[", "Tag=")) or '"StartTimestamp"' in head or _INTERVAL.search(head) is not None


def read_hdr_log(text: str, file: str, *, unit_ns: int, tags: Mapping[str, Series]) -> ForeignRun:
    """The run that an interval log tells of.

    :param unit_ns: nanoseconds per unit of the log's values
    :param tags: the series of each tag; the tag of a line without one is empty. Without any, the log must
        have one tag, or tags with the names of our series.
    :raises ForeignFileError: a line cannot be used, or the series of a tag is unknown
    """
    lines, started_ns = _read(text, file)
    lines, has_length = _with_lengths(lines)
    if not lines:
        raise ForeignFileError("the log has no interval", file, "give the log of a run that lasted long enough")
    meaning = _meaning({line.tag for line in lines}, tags, file)
    lines = [line for line in lines if line.tag in meaning]
    begin_ns = min(line.start_ns for line in lines)
    merged: dict[tuple[int, int], dict[Series, Histogram]] = {}
    for line in lines:
        of = merged.setdefault((line.start_ns - begin_ns, line.length_ns), {})
        try:
            of.setdefault(meaning[line.tag], Histogram()).add_sparse(read_payload(line.payload, unit_ns))
        except PayloadError as error:
            _refuse(f"the histogram cannot be used: {error}", f"{file}:{line.number}")
    slices = [_slice(place, of) for place, of in sorted(merged.items(), key=lambda each: each[0])]
    told = {name for each in slices for name in each.counts}
    unsaid = [name for name in _COUNTS if name not in told]
    return ForeignRun(
        tool=TOOL,
        name="",
        slices=slices,
        started_ns=None if started_ns is None else started_ns + begin_ns,
        unknown=_unknown(started_ns is not None, has_length),
        missing=(
            *("intended", "intended_per_s", "published_bytes", *UNKNOWN_COUNTS, *GENERATOR_FIGURES),
            *(each for name in unsaid for each in (name, f"{name}_per_s")),
        ),
    )


def _with_lengths(lines: list[_Line]) -> tuple[list[_Line], bool]:
    """The lines, and whether all tell a length. Some tools write 0: then an interval ends where the next one begins."""
    if all(line.length_ns for line in lines):
        return lines, True
    starts = sorted({line.start_ns for line in lines})
    gaps = {begin: end - begin for begin, end in pairwise(starts)}
    last = next(reversed(gaps.values()), _UNTOLD_NS)
    told = [replace(line, length_ns=line.length_ns or gaps.get(line.start_ns, last)) for line in lines]
    return told, False


def _unknown(has_time: bool, has_length: bool) -> tuple[str, ...]:
    found: tuple[str, ...] = () if has_length else ("how long each interval was: it is taken to last to the next one",)
    found += (
        "how many messages were published: only those with a latency are counted",
        "where between the bounds of its bucket a latency lies: each counts as the greatest value of its bucket",
        "the tool, its settings and its limits, the queues, the broker and the hosts",
    )
    return found if has_time else ("when the run began: the log has no time", *found)


def _read(text: str, file: str) -> tuple[list[_Line], int | None]:
    """The lines, and the Unix time that their times count from; None if the log does not tell."""
    found: list[_Line] = []
    stated: dict[str, int] = {}
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line, where = raw.strip(), f"{file}:{number}"
        if (match := _STATED_TIME.match(line)) is not None:
            stated[match[1]] = _time_ns(match[2], where)
        elif line and not line.startswith(("#", '"StartTimestamp"')):
            found.append(_line(line, number, where))
    return found, _base_ns(found, stated)


def _base_ns(lines: list[_Line], stated: Mapping[str, int]) -> int | None:
    """HdrHistogram's own rule: with a base time all times count from it; without one, times that are more than a year
    before the start time count from the start time, and others are Unix times."""
    if "BaseTime" in stated:
        return stated["BaseTime"]
    first = lines[0].start_ns if lines else 0
    start = stated.get("StartTime")
    if start is not None:
        return start if first < start - _YEAR_NS else 0
    return 0 if first > 30 * _YEAR_NS else None


def _line(line: str, number: int, where: str) -> _Line:
    tag, rest = "", line
    if line.startswith("Tag="):
        tag, _, rest = line.removeprefix("Tag=").partition(",")
    cells = rest.split(",")
    if len(cells) != 4:
        _refuse(f"{len(cells)} cells where a start, a length, a maximum and a histogram belong", where)
    length_ns = _time_ns(cells[1], where)
    if not 0 <= length_ns <= LENGTH_MAX_NS:
        _refuse(f"the length of the interval is {cells[1][:40]} s", where)
    return _Line(
        number=number,
        tag=tag,
        start_ns=_time_ns(cells[0], where),
        length_ns=length_ns,
        payload=cells[3].strip().strip('"'),
    )


def _time_ns(text: str, where: str) -> int:
    try:
        found = seconds_to_ns(text.strip())
    except (LineError, ValueError):
        found = -1
    if not 0 <= found < 2**62:
        _refuse(f"{text.strip()[:40]!r} is not a time in seconds", where)
    return found


def _meaning(tags: set[str], told: Mapping[str, Series], file: str) -> dict[str, Series]:
    unknown = sorted(set(told) - tags)
    shown = ", ".join(repr(tag[:40]) for tag in sorted(tags)[:8])
    if unknown:
        _refuse(f"the log has no tag {unknown[0][:40]!r}", file, f"its tags are {shown}")
    if told:
        left = sorted(tags - set(told))
        if left:
            _refuse(f"what the tag {left[0][:40]!r} measured is not told", file, "name it too: --tag TAG=e2e")
        return dict(told)
    ours = {tag: series for tag in tags if (series := _ours(tag)) is not None}
    named = {tag: Series(each) for tag, each in ours.items() if each in list(IMPORTABLE)}
    if named and len(ours) == len(tags):
        return named
    if len(tags) == 1:
        return dict.fromkeys(tags, Series.E2E)
    _refuse(
        "what the tags measured is not told", file, f"say it with --tag TAG=e2e or --tag TAG=confirm; tags: {shown}"
    )


def _ours(tag: str) -> str | None:
    """The series that a tag names in a log of this tool; such a log also has tags that an import leaves out."""
    if tag in list(Series):
        return tag
    try:
        series, phase = series_and_phase(tag)
    except LineError:
        return None
    return series if phase is Phase.STEADY else ""


def _slice(place: tuple[int, int], of: Mapping[Series, Histogram]) -> Slice:
    counts = {}
    for series, name in ((Series.E2E, "delivered"), (Series.CONFIRM, "confirmed")):
        if series in of:
            counts[name] = of[series].total
    latencies = {series: histogram.sparse() for series, histogram in of.items() if histogram.total}
    return Slice(offset_ns=place[0], length_ns=place[1], counts=counts, latencies=latencies)


def _refuse(what: str, where: str, fix: str = _FIX) -> NoReturn:
    raise ForeignFileError(what, where, fix)
