"""The views of a run behind one protocol, and the choice of a view."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, TextIO

from perftest.metrics.histogram import Histogram, SparseCounts
from perftest.metrics.interval import Interval, Series
from perftest.screen.board import Board, clock, milliseconds
from perftest.screen.interval_merger import MergedInterval
from perftest.screen.perftest_lines import Lines, Style, stop_line

_SHOWN = ((Series.CONFIRM, "confirm_ms"), (Series.E2E, "e2e_ms"), (Series.LAG, "lag_ms"))
_TIME_LIMIT: Final = "Reached time limit"


class View:
    """Shows a board, which gets every record before the view does. This view shows nothing."""

    def interval(self, record: Interval) -> None:
        """An interval of a worker was recorded."""

    def merged(self, merged: MergedInterval) -> None:
        """All workers of a group have told their part of an interval, or are not waited for any longer."""

    def event(self, record: Mapping[str, object]) -> None:
        """Something happened."""

    def frame(self) -> None:
        """Half a second went by."""

    def close(self) -> None:
        """The run is over."""


class WholeView(View):
    """Shows the intervals of the whole run as lines."""

    def __init__(self, board: Board, out: TextIO) -> None:
        self._board = board
        self._out = out

    def merged(self, merged: MergedInterval) -> None:
        """Print the line of an interval."""
        self._print(self._line(merged))

    def _line(self, merged: MergedInterval) -> str:
        raise NotImplementedError

    def _print(self, line: str) -> None:
        if line:
            print(line, file=self._out, flush=True)


class LineView(WholeView):
    """A line with fixed labels per interval, and a line per event."""

    def event(self, record: Mapping[str, object]) -> None:
        """Print ``01:42 event …`` for an event that a reader would miss otherwise."""
        if record.get("kind") not in ("setting_changed", "steady", "run_started", "step_ended"):
            moment, _, words = self._board.sentence(record).partition(" ")
            self._print(f"{moment} event {words}")

    def _line(self, merged: MergedInterval) -> str:
        return interval_line(self._board, merged)


def interval_line(board: Board, merged: MergedInterval) -> str:
    """A line about one interval; rates are messages per second, latencies of this interval."""
    record = merged.record
    end_s = board.elapsed_s(record.start_ns + record.length_ns)
    step, last = board.place(record)
    parts = [clock(end_s), f"step={record.step}/{last}"]
    parts += [step.label] if step.label else []
    parts += [] if record.measured else ["background"]
    parts += [f"group={record.group}"] if record.group else []
    parts += [f"phase={record.phase}"]
    for name in ("intended", "published", "confirmed", "delivered"):
        rate = getattr(record, name) * 1e9 / record.length_ns if record.length_ns else 0.0
        parts.append(f"{name}={rate:.0f}")
    for name in ("nacked", "returned", "redelivered"):
        count = getattr(record, name)
        parts += [f"{name}={count}"] if count else []
    for series, label in _SHOWN:
        latency = merged.latencies.get(series)
        if latency is not None and latency.total:
            parts.append(f"{label} {_latency_text(latency)}")
    return " ".join(parts)


def _latency_text(latency: Histogram) -> str:
    shown = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    values = dict(zip(shown, latency.capped_percentiles_ns(tuple(shown.values())), strict=True))
    values["max"] = latency.max_ns
    return " ".join(f"{name}={milliseconds(value)}" for name, value in values.items())


class PlainView(WholeView):
    """PerfTest's lines: a line per interval of the whole run; at the end why the run stopped, and the averages.

    A named group of load has lines of its own, with its name behind the id of the run. Background load has no line at
    the end, and none at all in the compact form, whose lines have no id.
    """

    def __init__(self, board: Board, style: Style, out: TextIO) -> None:
        super().__init__(board, out)
        self._lines = Lines(board.plan, style)
        self._of_groups = {
            group.name: Lines(board.plan.only(group), replace(style, label=f"{style.label} {group.name}"))
            for group in board.plan.groups
            if group is not board.plan.load
        }
        self._compact = style.compact
        self._reasons: Counter[str] = Counter()
        self._error = "failed"
        self._print(self._lines.header())

    def event(self, record: Mapping[str, object]) -> None:
        """Keep why the run ends. PerfTest prints no other event."""
        kind = record.get("kind")
        if kind == "limit_reached" and record.get("group") in (
            None,
            *(each.name for each in self._board.plan.measured),
        ):
            for part in str(record.get("text") or "a limit was reached").split(", "):
                reason, _, count = part.removesuffix("]").partition(" [")
                self._reasons[reason] += int(count) if count.isdecimal() else 1
        elif kind == "error":
            self._error = str(record.get("text") or "error").partition(" (")[0]
        elif kind == "run_ended" and record.get("text") == "failed":
            self._reasons[self._error] += 1
        elif kind == "run_ended" and record.get("text") == "finished" and not self._reasons:
            self._reasons[_TIME_LIMIT] = 1

    def close(self) -> None:
        """Print the stop line and the summary."""
        measured = [group.name for group in self._board.plan.measured[1:]]
        others = [line for name in measured for line in self._of_groups[name].summary()]
        for line in (stop_line(self._reasons), *self._lines.summary(), *others):
            self._print(line)

    def _line(self, merged: MergedInterval) -> str:
        record = merged.record
        if self._compact and not record.measured:
            return ""
        lines = self._of_groups.get(record.group, self._lines)
        return lines.interval(merged, self._board.elapsed_s(record.start_ns + record.length_ns))


class JsonView(View):
    """One JSON object per line; ``record`` says which: ``interval``, ``event``, at the end ``result``."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def interval(self, record: Interval) -> None:
        """Print the record with figures in place of the histograms, which are in the run directory."""
        plain = {each.name: getattr(record, each.name) for each in fields(record)}
        plain["latencies"] = {str(series): _figures(counts) for series, counts in record.latencies.items()}
        self._print({"record": "interval", **plain})

    def event(self, record: Mapping[str, object]) -> None:
        """Print the event as it is recorded."""
        self._print({"record": "event", **record})

    def _print(self, plain: Mapping[str, Any]) -> None:
        print(json.dumps(plain, ensure_ascii=False, default=str), file=self._out, flush=True)


def _figures(counts: SparseCounts) -> dict[str, int]:
    p50, p95, p99, p999 = counts.percentiles_ns((50.0, 95.0, 99.0, 99.9))
    percentiles = {"p50_ns": p50, "p95_ns": p95, "p99_ns": p99, "p999_ns": p999}
    return {"count": counts.total, **percentiles, "max_ns": counts.max_ns}


class LiveView(View):
    """The live screen."""

    def __init__(self, board: Board, out: TextIO) -> None:
        self._board = board
        # rich takes 0.1 s to import: only when there is a terminal to draw on.
        from rich.console import Console

        from perftest.screen.live import LiveScreen

        self._screen = LiveScreen(board, Console(file=out))

    def frame(self) -> None:
        """Draw the board."""
        self._screen.frame()

    def close(self) -> None:
        """Leave the alternate screen."""
        self._screen.close()


def choose(
    requested: str, *, terminal: bool, width: int, environment: Mapping[str, str], otherwise: str = "line"
) -> str:
    """The view for this terminal. The live screen needs 80 columns and a cursor that can be moved, and no CI.

    ``otherwise`` is the view for a terminal that cannot have the live screen, if no view was asked for by name.
    """
    if requested in ("line", "plain", "json", "none"):
        return requested
    able = terminal and environment.get("TERM") not in (None, "", "dumb") and width >= 80
    if requested == "live":
        return "live" if able else "line"
    return "live" if able and not environment.get("CI") else otherwise


def make_view(name: str, board: Board, out: TextIO, err: TextIO, style: Style | None = None) -> View:
    """The view of a chosen name: progress goes to ``err``, JSON and PerfTest's lines (of a ``style``) to ``out``."""
    if name == "live":
        return LiveView(board, err)
    if name == "line":
        return LineView(board, err)
    if name == "plain":
        return PlainView(board, style or Style(label=board.plan.name), out)
    return JsonView(out) if name == "json" else View()
