"""The view that prints what PerfTest prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, TextIO

from perftest.cli.ui.board import Board
from perftest.cli.ui.gathering import Gathered, Gathering
from perftest.cli.ui.perftest_lines import Lines, Style, stop_line
from perftest.metrics.interval import Interval

_TIME_LIMIT: Final = "Reached time limit"


class PlainView:
    """A line per interval of the whole run; at the end why it stopped, and the averages."""

    def __init__(self, board: Board, style: Style, out: TextIO) -> None:
        self._board = board
        self._out = out
        self._lines = Lines(board.plan, style)
        self._gathering = Gathering(self._show)
        self._reasons: Counter[str] = Counter()
        self._error = "failed"
        self._print(self._lines.header())

    def interval(self, record: Interval) -> None:
        """Shown once every worker has told its part."""
        self._gathering.add(record)

    def event(self, record: Mapping[str, object]) -> None:
        """Only why the run ends: PerfTest prints no other."""
        self._gathering.event(record)
        kind = record.get("kind")
        if kind == "limit_reached":
            for part in str(record.get("text") or "a limit was reached").split(", "):
                reason, _, count = part.removesuffix("]").partition(" [")
                self._reasons[reason] += int(count) if count.isdecimal() else 1
        elif kind == "error":
            self._error = str(record.get("text") or "error").partition(" (")[0]
        elif kind == "run_ended" and record.get("text") == "failed":
            self._reasons[self._error] += 1
        elif kind == "run_ended" and record.get("text") == "finished" and not self._reasons:
            self._reasons[_TIME_LIMIT] = 1

    def frame(self) -> None:
        """Half a second went by."""
        self._gathering.tick()

    def close(self) -> None:
        """The stop line and the summary."""
        self._gathering.flush()
        for line in (stop_line(self._reasons), *self._lines.summary()):
            self._print(line)

    def _show(self, gathered: Gathered) -> None:
        end_ns = gathered.record.start_ns + gathered.record.length_ns
        self._print(self._lines.interval(gathered, self._board.elapsed_s(end_ns)))

    def _print(self, line: str) -> None:
        if line:
            print(line, file=self._out, flush=True)
