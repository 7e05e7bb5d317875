"""The live screen: fixed rows, so that nothing jumps, two frames a second.

A frame costs about 16 ms of CPU, so it is drawn by the process that only collects records, never by one that measures.
The alternate screen is used: what stays in the scrollback is the summary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Final

from rich.align import Align
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from perftest.cli.ui.board import EVENTS_KEPT, Board, clock, milliseconds
from perftest.metrics.interval import Phase
from perftest.spec.units import format_duration

ROWS: Final = 22
WIDE: Final = 110
"""From here on there is room for the nodes' memory."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_DIM: Final = "dim"


class LiveScreen:
    """Draws a board until it is closed. All output goes to the console it was given."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board = board
        self._console = console
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def frame(self) -> None:
        """Draw once."""
        self._live.update(screen(self._board, self._console.width, time.time_ns()), refresh=True)

    def close(self) -> None:
        """Give the terminal back as it was."""
        self._live.stop()


def screen(board: Board, width: int, now_ns: int) -> RenderableType:
    """The whole screen of a board at an instant: always :data:`ROWS` rows, which fit a terminal of 80 x 24."""
    middle = _side_by_side(_rates(board), _latencies(board))
    return Group(_head(board, width, now_ns), middle, _broker(board, width), _events(board), _foot(board))


def sparkline(values: Iterable[float], width: int) -> str:
    """The last values as a row of bars, newest right; an empty string for none."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BARS[min(int(value / top * (len(_BARS) - 1) + 0.5), len(_BARS) - 1)] for value in shown)


def _head(board: Board, width: int, now_ns: int) -> Panel:
    step = board.step
    planned = sum(item.duration_s for item in board.plan.steps)
    total = clock(planned) if math.isfinite(planned) else "Ctrl-C"
    bar = _bar(board.step_elapsed_s(now_ns) / step.duration_s if math.isfinite(step.duration_s) else None, width - 24)
    phase = {Phase.WARMUP: "warm-up", Phase.STEADY: "steady", Phase.DRAIN: "drain"}[board.phase]
    rows = Group(
        Text(board.describe_step(), no_wrap=True, overflow="ellipsis"),
        Text.assemble(bar, f"  {phase:<8}", (f"{format_duration(round(board.step_elapsed_s(now_ns))):>8}", _DIM)),
    )
    title = Text(f" {board.plan.title or board.plan.name} — {board.target} ", overflow="ellipsis", no_wrap=True)
    title.truncate(width - 22, overflow="ellipsis")
    return Panel(
        rows,
        title=title,
        title_align="left",
        subtitle=f" {clock(board.elapsed_s(now_ns))} / {total} ",
        subtitle_align="right",
    )


def _bar(part: float | None, width: int) -> Text:
    """A progress bar; without a known end, an empty one."""
    width = max(width, 10)
    filled = 0 if part is None else min(int(part * width), width)
    return Text.assemble(("█" * filled, "cyan"), ("░" * (width - filled), _DIM))


def _rates(board: Board) -> Panel:
    table = _table(("", "now", "step"))
    for name, now, so_far in board.rates():
        table.add_row(name, f"{now:,.0f}", f"{so_far:,.0f}")
    problems = {name: board.count(f"{name}ed") for name in ("nack", "return", "redeliver")}
    line = Text(" ".join(f"{name} {count:,}" for name, count in problems.items()), style=_DIM, no_wrap=True)
    if any(problems.values()):
        line.stylize("bold yellow")
        line.append(" !")
    return Panel(Group(table, line), title="messages / s", title_align="left")


def _latencies(board: Board) -> Panel:
    table = _table(("", "p50", "p95", "p99", "p99.9", "max"))
    for row in board.latencies():
        values = (row.p50_ns, row.p95_ns, row.p99_ns, row.p999_ns, row.max_ns)
        table.add_row(row.name, *((milliseconds(value) if row.count else "-") for value in values))
    trends = [("delivered/s", board.delivered_history), ("e2e p99", board.p99_history)]
    lines = [
        Text.assemble((f"{name:<12}", _DIM), (f"{sparkline(values, 30):<30}", "cyan"), no_wrap=True)
        for name, values in trends
    ]
    return Panel(Group(table, *lines), title="latency, this step (ms)", title_align="left")


def _broker(board: Board, width: int) -> Panel:
    nodes = board.nodes()
    if nodes:
        text = Text("   ", no_wrap=True, overflow="ellipsis").join(_node(*node, width >= WIDE) for node in nodes)
    else:
        text = Text("its own figures are not visible over AMQP", style=_DIM)
    return Panel(text, title="broker", title_align="left")


def _node(name: str, role: str, share: float | None, rss_bytes: int, wide: bool) -> Text:
    cpu = "   -" if share is None else f"{share:4.0%}"
    memory = f" {rss_bytes / 2**20:4.0f} MiB" if wide else ""
    style = "bold" if role == "leader" else ""
    return Text.assemble((f"{name} {role:<8}", style), f" {cpu} CPU{memory}")


def _events(board: Board) -> Panel:
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in board.events]
    lines += [Text("")] * (EVENTS_KEPT - len(lines))
    return Panel(Group(*lines), title="events", title_align="left")


def _foot(board: Board) -> RenderableType:
    if board.stopping:
        text = Text("finishing this step; Ctrl-C again: stop now, keep data", style="bold yellow")
    else:
        text = Text("Ctrl-C: finish this step and report; twice: stop now, keep data", style=_DIM)
    return Align.left(Text.assemble(" ", text))


def _table(names: tuple[str, ...]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style=_DIM)
    for index, name in enumerate(names):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    return table


def _side_by_side(left: RenderableType, right: RenderableType) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=2)
    grid.add_column(ratio=3)
    grid.add_row(left, right)
    return grid
