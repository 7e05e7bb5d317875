"""The live screen: fixed rows, so that nothing jumps, two frames a second.

A frame costs about 16 ms of CPU, so it is drawn by the process that only collects records, never by one that measures.
The alternate screen is used: what stays in the scrollback is the summary.

From 110 columns on, panels are side by side. Below, they are one under the other, without frames, and lose the broker's
columns from the right. Either fits 24 rows; more rows go to events, with fewer the broker is left out. A run over hosts
has a row for each host, hosts with problems first, in place of the broker if both have no room.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from perftest.metrics.interval import Phase
from perftest.screen.board import EVENTS_KEPT, Board, LatencyRow, LoadRow, RateRow, clock, milliseconds
from perftest.screen.host_lines import HostRow, HostState
from perftest.screen.node_lines import FSYNC_WARN_MS, NodeRow
from perftest.spec.units import format_duration

ROWS_MIN: Final = 24
"""Number of rows that the screen takes at least; lower terminals get it without the broker's panel."""
WIDE: Final = 110
NODES_SHOWN: Final = 3
_LEFT, _RIGHT = 5, 6
_FRAME: Final = 4
_RATE_FIGURES: Final = 38
_LATENCY_FIGURES: Final = 45
"""Columns that the tables take without their bars; a maximum of hours has its own way."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_DIM: Final = "dim"
_WARNING: Final = "bold yellow"
_PHASES: Final = {Phase.WARMUP: "warm-up", Phase.STEADY: "steady", Phase.DRAIN: "drain"}
_Section = Callable[..., RenderableType]
_LOADS_FRAME: Final = {True: 3, False: 2}
"""Rows that the part of the other loads takes besides a line for each, by whether the terminal is wide."""
_HOSTS_FRAME: Final = _LOADS_FRAME
_BROKER_ROWS: Final = {True: NODES_SHOWN + 3, False: NODES_SHOWN + 2}
_HOSTS_LEAST: Final = 3
"""Rows of hosts that are worth more than the broker's panel."""
_EVENTS_ROWS: Final = {True: 2, False: 1}
"""At 24 rows, by whether the terminal is wide."""


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
        size = self._console.size
        self._live.update(screen(self._board, size.width, size.height, time.time_ns()), refresh=True)

    def close(self) -> None:
        """Give the terminal back as it was."""
        self._live.stop()


def screen(board: Board, width: int, height: int, now_ns: int) -> RenderableType:
    """The whole screen of a board at an instant: always as many rows, for a terminal of this size."""
    wide = width >= WIDE
    section = _panel if wide else _ruled
    events = min(max(height - ROWS_MIN, 0) + _EVENTS_ROWS[wide], EVENTS_KEPT)
    if wide:
        left = (width * _LEFT) // (_LEFT + _RIGHT)
        middle: RenderableType = _side_by_side(
            _rates(board, section, left - _FRAME), _latencies(board, section, width - left - _FRAME)
        )
    else:
        middle = Group(_rates(board, section, width), _latencies(board, section, width))
    parts = [_head(board, section, width, now_ns), middle]
    beside = board.loads_beside()
    if beside:
        parts.append(_loads(beside, section))
        events = max(events - len(beside) - _LOADS_FRAME[wide], 1)
    room = height - ROWS_MIN - (len(beside) + _LOADS_FRAME[wide] if beside else 0)
    hosts = board.hosts()
    shown = max(min(len(hosts), room - _HOSTS_FRAME[wide]), 0)
    has_broker = room >= 0 and shown >= min(len(hosts), _HOSTS_LEAST)
    if not has_broker:
        shown = min(len(hosts), room + _BROKER_ROWS[wide] - _HOSTS_FRAME[wide])
    if shown > 0:
        parts.append(_hosts(hosts, shown, section))
        events = max(events - shown - _HOSTS_FRAME[wide] + (0 if has_broker else _BROKER_ROWS[wide]), 1)
    if has_broker:
        parts.append(_broker(board, section, width))
    return Group(*parts, _events(board, section, events), _foot(board))


def sparkline(values: Iterable[float], width: int) -> str:
    """The last values as a row of bars, newest right; an empty string for none."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BARS[min(int(value / top * (len(_BARS) - 1) + 0.5), len(_BARS) - 1)] for value in shown)


def _panel(title: str, content: RenderableType, right: str = "") -> RenderableType:
    return Panel(content, title=_title(title), title_align="left", subtitle=right or None, subtitle_align="right")


def _ruled(title: str, content: RenderableType, right: str = "") -> RenderableType:
    """A line instead of a frame, which has no room."""
    shown = Text.assemble(_title(title), (f"  {right.strip()}", _DIM)) if right else _title(title)
    return Group(Rule(shown, align="left", style=_DIM), content)


def _title(text: str) -> Text:
    return Text(text, overflow="ellipsis", no_wrap=True)


def _head(board: Board, section: _Section, width: int, now_ns: int) -> RenderableType:
    step = board.step
    planned = sum(item.duration_s for item in board.plan.steps)
    total = clock(planned) if math.isfinite(planned) else "Ctrl-C"
    part = board.step_elapsed_s(now_ns) / step.duration_s if math.isfinite(step.duration_s) else None
    elapsed = format_duration(round(board.step_elapsed_s(now_ns)))
    share = f"{part:4.0%}" if part is not None else ""
    rows = Group(
        Text(board.describe_step(), no_wrap=True, overflow="ellipsis"),
        Text.assemble(_bar(part, width - 30), f" {share:<4}  {_PHASES[board.phase]:<8}", (f"{elapsed:>8}", _DIM)),
    )
    title = Text(f"{board.plan.title or board.plan.name} — {board.target}", overflow="ellipsis", no_wrap=True)
    title.truncate(width - 32, overflow="ellipsis")
    return section(title.plain, rows, f" {clock(board.elapsed_s(now_ns))} / {total} ")


def _bar(part: float | None, width: int) -> Text:
    """A progress bar; without a known end, an empty one."""
    width = max(width, 10)
    filled = 0 if part is None else min(int(part * width), width)
    return Text.assemble(("█" * filled, "cyan"), ("░" * (width - filled), _DIM))


def _rates(board: Board, section: _Section, width: int) -> RenderableType:
    bars = max(width - _RATE_FIGURES, len("last 60 s"))
    table = _table(("", "now", "5 s", "step"), f"{'last 60 s':<{bars}}")
    for row in board.rates():
        table.add_row(*_rate_cells(row, bars))
    return section("messages / s", Group(table, _problems(board)) if section is _panel else table)


def _rate_cells(row: RateRow, bars: int) -> list[Text | str]:
    figures = (f"{value:,.0f}" for value in (row.now, row.recent, row.so_far))
    return [row.name, *figures, Text(f"{sparkline(row.history, bars):>{bars}}", "cyan")]


def _latencies(board: Board, section: _Section, width: int) -> RenderableType:
    bars = max(width - _LATENCY_FIGURES, len("p99, 60 s"))
    table = _table(("", "p50", "p95", "p99", "p99.9", "max"), f"{'p99, 60 s':<{bars}}")
    for row in board.latencies():
        table.add_row(*_latency_cells(row, bars))
    lines = (_harm(board), _in_flight(board)) if section is _panel else (_problems(board), _harm(board))
    return section("latency, this step (ms)", Group(table, *lines))


def _latency_cells(row: LatencyRow, bars: int) -> list[Text | str]:
    """``~`` marks a percentile that fewer than ten samples lie above: it is the maximum in disguise."""
    cells: list[Text | str] = [row.name]
    for value, supported in row.values():
        shown = milliseconds(value) if row.count else "-"
        cells.append(shown if supported or not row.count else Text(f"~{shown}", _DIM))
    return [*cells, Text(f"{sparkline(row.p99_history, bars):>{bars}}", "cyan")]


def _problems(board: Board) -> Text:
    """Counts of nacked, returned and redelivered messages."""
    return _counted({name: board.count(name) for name in ("nacked", "returned", "redelivered")})


def _harm(board: Board) -> Text:
    """Violations that the ledger found in this phase; losses are known only after the drain."""
    names = {"out of order": "reordered", "twice": "duplicated", "damaged": "damaged", "unexpected": "unexpected"}
    return _counted({shown: board.count(name) for shown, name in names.items()}, style="bold red")


def _in_flight(board: Board) -> Text:
    text = f"in flight {board.in_flight():,}  lost: known after the drain"
    return Text(text, _DIM, no_wrap=True, overflow="ellipsis")


def _counted(counts: dict[str, int], style: str = _WARNING) -> Text:
    parts = [
        Text(f"{name} {count:,}{' !' if count else ''}", style if count else _DIM) for name, count in counts.items()
    ]
    line = Text("  ").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _warned(text: str, beyond: bool) -> Text | str:
    """A figure; ``!`` and colour where it is beyond its limit."""
    return Text(f"{text} !", _WARNING) if beyond else text


_CELLS: Final[Mapping[str, tuple[int, Callable[[NodeRow], Text | str]]]] = {
    "role": (9, lambda row: Text(row.role, "bold" if row.role == "leader" else "")),
    "CPU": (6, lambda row: _known(row.cpu, "{:.0%}")),
    "fsync ms": (9, lambda row: _warned(_known(row.sync_ms, "{:.1f}"), (row.sync_ms or 0) > FSYNC_WARN_MS)),
    "batch": (7, lambda row: _known(row.batch, "{:.0f}")),
    "commit": (14, lambda row: _known(row.commit, "{:,}")),
    "lag": (8, lambda row: _warned(_known(row.lag, "{:,}"), row.late)),
    "term": (6, lambda row: _known(row.term, "{}")),
    "segments": (9, lambda row: _known(row.segments, "{}")),
    "memory": (9, lambda row: f"{row.rss_bytes / 2**20:.0f} MiB" if row.rss_bytes else "-"),
    "messages": (11, lambda row: _known(row.messages, "{:,}")),
    "disk free": (11, lambda row: _known(row.disk_free_bytes and row.disk_free_bytes / 2**30, "{:,.1f} GiB")),
    "connections": (12, lambda row: _known(row.connections, "{:,}")),
}
"""The columns of the broker's panel: the width of each, and the cell of a node."""
_COLUMNS: Final = ("role", "CPU", "fsync ms", "batch", "commit", "lag", "term", "segments", "memory")
"""The most important column first: columns without room are left out from the right."""
_COLUMNS_OVER_HTTP: Final = ("CPU", "memory", "messages", "disk free", "connections")
"""The same of a broker that was asked over HTTP, and tells nothing of a log."""


def _broker(board: Board, section: _Section, width: int) -> RenderableType:
    rows = board.nodes()
    room = width - 18
    columns = []
    over_http = bool(rows) and all(row.commit is None and row.messages is not None for row in rows)
    for name in _COLUMNS_OVER_HTTP if over_http else _COLUMNS:
        room -= _CELLS[name][0]
        if room >= 0:
            columns.append(name)
    table = _table(("node", *columns), None)
    for row in rows[:NODES_SHOWN]:
        table.add_row(row.name[:14], *(_CELLS[name][1](row) for name in columns))
    for _ in range(NODES_SHOWN - len(rows)):
        table.add_row()
    if not rows:
        empty = [
            Text("its own figures are not visible over AMQP: --broker-metrics URL", style=_DIM),
            *[Text("")] * NODES_SHOWN,
        ]
        return section("broker", Group(*empty))
    more = f", {len(rows) - NODES_SHOWN} more not shown" if len(rows) > NODES_SHOWN else ""
    return section(f"broker: {len(rows)} node{'' if len(rows) == 1 else 's'}{more}", table)


def _loads(rows: Sequence[LoadRow], section: _Section) -> RenderableType:
    """A line for each other group of load."""
    table = _table(("", "published", "confirmed", "delivered", "p50", "p99", "max"), None)
    for row in rows:
        rates = [f"{value:,.0f}" for value in (row.published, row.confirmed, row.delivered)]
        values = [value for value, _ in row.latency.values()]
        shown = [milliseconds(values[at]) if row.latency.count else "-" for at in (0, 2, 4)]
        table.add_row(f"{row.name} ({row.state or ('measured' if row.measured else 'background')})", *rates, *shown)
    return section("other loads: messages / s, end to end (ms)", table)


def _hosts(rows: Sequence[HostRow], shown: int, section: _Section) -> RenderableType:
    """A line for each load host."""
    table = _table(("host", "published", "confirmed", "delivered", "p99 ms", "CPU", "Mbit/s", ""), None)
    for row in rows[:shown]:
        rates = [f"{value:,.0f}" for value in (row.published, row.confirmed, row.delivered)]
        p99 = "-" if row.p99_ns is None else milliseconds(row.p99_ns)
        state = _warned(row.state.word, row.state is not HostState.RUNNING)
        table.add_row(row.name[:20], *rates, p99, _known(row.cpu, "{:.0%}"), _known(row.mbit, "{:,.0f}"), state)
    more = f", {len(rows) - shown} more not shown" if len(rows) > shown else ""
    return section(f"load hosts: {len(rows)}{more}", table)


def _events(board: Board, section: _Section, rows: int) -> RenderableType:
    shown: Sequence[str] = list(board.events)[-rows:]
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in shown]
    return section("events", Group(*lines, *[Text("")] * (rows - len(lines))))


def _foot(board: Board) -> RenderableType:
    if board.stopping:
        text = Text("finishing this step; Ctrl-C again: stop now, keep data", style=_WARNING)
    else:
        text = Text("Ctrl-C: finish this step and report; twice: stop now, keep data", style=_DIM)
    place = Text(f"   raw: {board.path}", _DIM)
    return Text.assemble(" ", text, place, no_wrap=True, overflow="ellipsis")


def _table(names: tuple[str, ...], bars: str | None) -> Table:
    """A table of figures; ``bars`` is the heading of a last column of bars, as wide as they are."""
    table = Table(box=None, expand=True, pad_edge=False, header_style=_DIM, padding=(0, 1, 0, 0))
    for index, name in enumerate(names):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    if bars is not None:
        table.add_column(bars, width=len(bars), justify="right", no_wrap=True)
    return table


def _side_by_side(left: RenderableType, right: RenderableType) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=_LEFT)
    grid.add_column(ratio=_RIGHT)
    grid.add_row(left, right)
    return grid
