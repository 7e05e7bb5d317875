"""PerfTest's console lines (a line per interval, the line at the end, the summary) and the file of ``--output-file``.

Scripts cut these lines, so the lines are PerfTest's own to the letter (of the versions that print the maximum). If
consumers take time for messages, ``received`` counts the processed messages, as in PerfTest, and ``arrived`` the
delivered ones. Latencies count from the actual send, as PerfTest measures. The table below the lines has the better
measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from perftest.exits import explained
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.intervals import HEADER as CSV_HEADER
from perftest.results.intervals import csv_line
from perftest.results.writer import writable
from perftest.screen.interval_merger import MergedInterval, merge
from perftest.spec.plan import Plan, consumers_work

SHORT: Final = 0.5
"""Part of the usual length below which an interval at the start is shown together with the next one. The buffers of the
sockets take a hundred thousand messages at once, which over some milliseconds looks like a rate."""
HEADER: Final = "min/median/75th/95th/99th/max"
_PERCENTILES: Final = (50.0, 75.0, 95.0, 99.0)
_TIME_WIDTH: Final = len("2026/11/21 16:54:19")
_RATE_WIDTH: Final = 13
_LATENCY_WIDTH: Final = 27


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The options of PerfTest that shape its lines: the id of the test, ``default`` or ``compact``, and the unit."""

    label: str
    compact: bool = False
    in_millis: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """Which parts a line has: PerfTest leaves out the parts that a run does not have."""

    sent: bool
    returned: bool
    confirmed: bool
    received: bool
    arrived: bool = False
    """Consumers work on messages: then PerfTest's column counts the processed messages, and another the arrivals."""


def shown(plan: Plan) -> Shown:
    """The parts of the lines of a plan."""
    settings = [step.settings for step in plan.steps]
    sent = any(each.publishers for each in settings)
    confirmed = any(each.in_flight for each in settings)
    returned = any(each.mandatory for each in settings)
    received = any(each.consumers for each in settings)
    return Shown(sent, returned, sent and confirmed, received, received and consumers_work(plan))


class Lines:
    """Makes the lines of a run, and sums them up."""

    def __init__(self, plan: Plan, style: Style) -> None:
        self._shown = shown(plan)
        self._style = style
        self._length_ns = 0
        self._counts: Counter[str] = Counter()
        self._latencies: dict[Series, Histogram] = {}
        self._short_ns = plan.interval_s * SHORT * 1e9
        self._held: MergedInterval | None = None

    def header(self) -> str:
        """The heading of compact lines; the default ones have none."""
        if not self._style.compact:
            return ""
        rates = [name for name, _ in self._rates(None)]
        latencies = [f"{name} latency" for name, _ in self._series()]
        cells = [f"{name:>{_RATE_WIDTH}}" for name in rates] + [f"{name:>{_LATENCY_WIDTH}}" for name in latencies]
        return "".join([f"{'time':<{_TIME_WIDTH}}", *cells])

    def interval(self, merged: MergedInterval, elapsed_s: float) -> str:
        """The line of an interval that ended ``elapsed_s`` after the start; empty where PerfTest prints no line."""
        record = merged.record
        if record.phase is Phase.DRAIN or not record.length_ns:
            return ""
        self._add(merged)
        held, self._held = self._held, None
        if held is not None and held.record.step == record.step:
            merged, record = _together(held, merged)
        elif record.phase is Phase.WARMUP and record.length_ns < self._short_ns:
            self._held = merged
            return ""
        rates = [(name, f"{rate_text(rate)} msg/s") for name, rate in self._rates(record)]
        latencies = [(name, self._latency(merged.latencies.get(series))) for name, series in self._series()]
        if self._style.compact:
            return self._compact(record, rates, latencies)
        parts = [f"id: {self._style.label}", f"time {elapsed_s:.3f} s", *(f"{name}: {rate}" for name, rate in rates)]
        line = ", ".join(parts)
        words = ", ".join(f"{name} latency: {latency}" for name, latency in latencies)
        return f"{line}, {HEADER} {words}" if words else line

    def summary(self) -> list[str]:
        """The lines below the last one: average rates, and the latencies of the whole run."""
        start = "" if self._style.compact else f"id: {self._style.label}, "
        averages = [("sending", "published"), ("receiving", "handled")]
        averages += [("arrival", "delivered")] if self._shown.arrived else []
        lines = [f"{start}{name} rate avg: {rate_text(self._average(counter))} msg/s" for name, counter in averages]
        for name, series in self._series():
            lines.append(f"{start}{name} latency {HEADER} {self._latency(self._latencies.get(series))}")
        return lines

    def _compact(self, record: Interval, rates: Sequence[tuple[str, str]], latencies: Sequence[tuple[str, str]]) -> str:
        end = datetime.fromtimestamp((record.start_ns + record.length_ns) / 1e9).astimezone()
        cells = [f"{end:%Y/%m/%d %H:%M:%S}", *(f"{rate:>{_RATE_WIDTH}}" for _, rate in rates)]
        overflow = False
        for _, latency in latencies:
            overflow |= len(latency) > _LATENCY_WIDTH - 1
            cells.append(f" {latency}" if overflow else f"{latency:>{_LATENCY_WIDTH}}")
        return "".join(cells)

    def _rates(self, record: Interval | None) -> list[tuple[str, float]]:
        """Name and rate of each part; zeros without a record, for the heading."""
        parts = [
            ("sent", "published", self._shown.sent),
            ("returned", "returned", self._shown.returned),
            ("confirmed", "confirmed", self._shown.confirmed),
            ("nacked", "nacked", self._shown.confirmed),
            ("received", "handled", self._shown.received),
            ("arrived", "delivered", self._shown.arrived),
        ]
        length_s = record.length_ns / 1e9 if record else 1.0
        return [(name, (getattr(record, of) if record else 0) / length_s) for name, of, is_shown in parts if is_shown]

    def _series(self) -> list[tuple[str, Series]]:
        both = [("consumer", Series.E2E, self._shown.received), ("confirm", Series.CONFIRM, self._shown.confirmed)]
        return [(name, series) for name, series, is_shown in both if is_shown]

    def _latency(self, histogram: Histogram | None) -> str:
        return latency_text(histogram, in_millis=self._style.in_millis)

    def _add(self, merged: MergedInterval) -> None:
        self._length_ns += merged.record.length_ns
        record = merged.record
        self._counts.update(published=record.published, handled=record.handled, delivered=record.delivered)
        for series, histogram in merged.latencies.items():
            self._latencies.setdefault(series, Histogram()).add(histogram)

    def _average(self, counter: str) -> float:
        return self._counts[counter] * 1e9 / self._length_ns if self._length_ns else 0.0


def _together(first: MergedInterval, second: MergedInterval) -> tuple[MergedInterval, Interval]:
    """Two intervals, one after the other, as one."""
    record = merge([second.record, first.record]).record
    latencies = {series: Histogram() for series in (*first.latencies, *second.latencies)}
    for series, histogram in (*first.latencies.items(), *second.latencies.items()):
        latencies[series].add(histogram)
    return MergedInterval(record, latencies), record


def rate_text(rate: float) -> str:
    """``0``, two decimals below 1, one below 10, none above, cut off."""
    if rate == 0:
        return "0"
    if rate < 1:
        return f"{rate:.2f}"
    return f"{rate:.1f}" if rate < 10 else str(int(rate))


def latency_text(histogram: Histogram | None, *, in_millis: bool = False) -> str:
    """``min/median/75th/95th/99th/max µs``; zeros when nothing was measured."""
    values_ns = [0] * 6
    if histogram is not None and histogram.total:
        middle = histogram.capped_percentiles_ns(_PERCENTILES)
        values_ns = [min(histogram.min_ns, histogram.max_ns), *middle, histogram.max_ns]
    size, unit = (10**6, "ms") if in_millis else (1000, "µs")
    return f"{'/'.join(str(value // size) for value in values_ns)} {unit}"


def stop_line(reasons: Mapping[str, int]) -> str:
    """``test stopped (Reached time limit)``. A reason that several clients gave has their number."""
    if not reasons:
        return "test stopped"
    words = (f"{reason} [{count}]" if count > 1 else reason for reason, count in reasons.items())
    return f"test stopped ({', '.join(words)})"


_MILLIS_NS: Final = 1_000_000
_MICROS_NS: Final = 1000


class CsvFile:
    """The file of ``--output-file``, written as the run goes.

    Intervals of the drain after the last publish have no row, as in PerfTest, so that a mean over the rows is a mean of
    the load. The run directory has these intervals.
    """

    def __init__(self, path: Path, label: str, *, in_millis: bool) -> None:
        """Begin the file anew. Raises CliError."""
        self._path = path
        self._label = f'"{label}"' if "," in label else label
        self._unit_ns = _MILLIS_NS if in_millis else _MICROS_NS
        with explained("the CSV file cannot be written", path, "give another path with -o/--output-file"):
            path.write_text(CSV_HEADER.replace("(µs)", "(ms)") if in_millis else CSV_HEADER, encoding="utf-8")

    def interval(self, merged: MergedInterval, started_ns: int) -> None:
        """Append a row. Raises RunNotWritableError."""
        if merged.record.phase is Phase.DRAIN:
            return
        line = csv_line(merged.record, merged.latencies, self._label, started_ns, self._unit_ns)
        with writable(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(line)
