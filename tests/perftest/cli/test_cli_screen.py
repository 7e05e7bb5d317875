"""What a person sees while it runs: read from a real pseudo-terminal, and never jumping."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from perftest.cli.ui.board import Board, clock, milliseconds
from perftest.cli.ui.gathering import Gathering, gathered
from perftest.cli.ui.lines import interval_line
from perftest.cli.ui.live import ROWS, screen, sparkline
from perftest.cli.ui.summary import doubts, knee_sentence, steps_table, wrapped
from perftest.cli.ui.table import render
from perftest.cli.ui.views import choose
from perftest.metrics.interval import Phase
from perftest.results.summary import Tally

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def board_of(records: ModuleType, count: int, **changes: Any) -> Board:
    """A board that has seen the first ``count`` intervals of a sweep."""
    plan = records.plan(**changes)
    tally = Tally()
    board = Board(plan, tally, records.STARTED_NS, "3 local nodes", "runs/x")
    for record in records.intervals(plan)[:count]:
        tally.add(record)
        board.interval(record)
    return board


def drawn(board: Board, width: int, now_ns: int) -> list[str]:
    console = Console(width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(screen(board, width, now_ns))
    return capture.get().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_screen_never_jumps(records: ModuleType, width: int) -> None:
    """The same rows, at the same width, from the first frame to the last, whatever happened."""
    now = records.STARTED_NS + 3 * records.SECOND
    boards = [board_of(records, 0), board_of(records, 1), board_of(records, 12), board_of(records, 12, rate=10.0)]
    full = board_of(records, 6)
    for number in range(9):
        text = "x" * 30 * number
        full.event({"t_ns": now, "kind": "connection_lost", "text": text})
        for node in (1, 2, 3):
            full.sample(
                {
                    "t_ns": now + number,
                    "node": f"node{node}",
                    "pid": 1,
                    "role": "follower",
                    "cpu_ns": 5,
                    "rss_bytes": 10**9,
                }
            )
    full.stopping = True
    for board in [*boards, full]:
        lines = drawn(board, width, now)
        assert len(lines) == ROWS <= 24
        assert max(len(line) for line in lines) <= width


def test_the_screen_shows_the_records(records: ModuleType) -> None:
    """What is on the screen is what was measured."""
    board = board_of(records, 8)
    for t_ns, cpu_ns in ((0, 0), (records.SECOND, records.SECOND // 2)):
        board.sample({"t_ns": t_ns, "node": "node1", "pid": 1, "role": "leader", "cpu_ns": cpu_ns, "rss_bytes": 2**20})
    board.event({"t_ns": records.STARTED_NS + 8 * records.SECOND, "kind": "connection_lost", "text": "node2 closed"})
    text = "\n".join(drawn(board, 120, records.STARTED_NS + 8 * records.SECOND))
    assert "step 2/3  in-flight 10  prefetch 1000  ack interval 1" in text
    assert re.search(r"published +400 +400", text)
    assert "node1 leader    50% CPU" in text and "00:08 node2 closed" in text
    assert "Ctrl-C: finish this step and report" in text and "00:08 / 00:12" in text
    e2e = next(row for row in board.latencies() if row.name == "end to end")
    assert f"{milliseconds(e2e.p99_ns)}" in text and e2e.count == 3 * 400


def test_a_rated_load_shows_its_schedule_lag(records: ModuleType) -> None:
    """Open loop: lag is the first thing to look at."""
    assert [row.name for row in board_of(records, 2, rate=5.0).latencies()] == ["confirm", "end to end", "lag"]
    assert [row.name for row in board_of(records, 2).latencies()] == ["confirm", "end to end", "ack"]


def test_warm_up_and_result_are_kept_apart(records: ModuleType) -> None:
    """The step's column starts again when the warm-up is over."""
    board = board_of(records, 1)
    assert board.phase is Phase.WARMUP and board.count("published") == 200
    board = board_of(records, 2)
    assert board.phase is Phase.STEADY and board.count("published") == 200


def test_workers_are_added_up(records: ModuleType) -> None:
    """Two workers at 200 msg/s are 400."""
    plan = records.plan()
    tally = Tally()
    board = Board(plan, tally, records.STARTED_NS, "h", "p")
    for worker in ("0", "1"):
        record = records.intervals(plan, worker=worker)[0]
        tally.add(record)
        board.interval(record)
    assert (board.now("published"), board.so_far("published")) == (400.0, 400.0)


SCRIPT = """
    import sys, time
    sys.path.insert(0, {here!r})
    import records
    from perftest.cli.ui.board import Board
    from perftest.cli.ui.views import choose, make_view
    from perftest.results.summary import Tally
    import os, shutil
    plan, tally = records.plan(), Tally()
    board = Board(plan, tally, records.STARTED_NS, "3 local nodes", "runs/x")
    width = shutil.get_terminal_size().columns
    name = choose("auto", terminal=sys.stderr.isatty(), width=width, environment=os.environ)
    view = make_view(name, board, sys.stdout, sys.stderr)
    for record in records.intervals(plan):
        tally.add(record)
        board.interval(record)
        view.interval(record)
        view.frame()
    view.close()
    print("SUMMARY")
"""


def in_terminal(environment: dict[str, str]) -> str:
    """Everything a terminal of 100 x 30 receives from a run of synthetic records."""
    here = str(Path(__file__).parent.parent / "results")
    script = textwrap.dedent(SCRIPT).replace("{here!r}", repr(here))
    leader, follower = pty.openpty()
    size = {"COLUMNS": "100", "LINES": "30"}
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "TERM")}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**clean, **size, **environment}
    ) as child:
        os.close(follower)
        received = b""
        while select.select([leader], [], [], 60)[0]:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the terminal's other side is closed: the child is done
                break
            if not part:
                break
            received += part
        assert child.wait(60) == 0, received.decode()
    os.close(leader)
    return received.decode()


def test_the_live_screen_in_a_terminal() -> None:
    """Drawn on the alternate screen, gone afterwards, and the cursor is back."""
    text = in_terminal({"TERM": "xterm-256color"})
    enter, leave = text.index("\x1b[?1049h"), text.index("\x1b[?1049l")
    frames = ANSI.sub("", text[enter:leave])
    assert "step 3/3" in frames and "delivered" in frames and "broker" in frames
    assert text.rindex("\x1b[?25h") > enter
    assert "SUMMARY" in text[leave:] and "step 3/3" not in text[leave:]


def test_no_color_keeps_the_screen_and_drops_the_colours() -> None:
    """NO_COLOR is a wish, not a broken terminal."""
    text = in_terminal({"TERM": "xterm-256color", "NO_COLOR": "1"})
    assert "\x1b[?1049h" in text and not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "CI": "true"}, {}])
def test_dumb_terminals_and_pipelines_get_lines(environment: dict[str, str]) -> None:
    """No control sequences in a log."""
    text = in_terminal(environment)
    assert "\x1b" not in text and text.count("phase=steady") == 9


@pytest.mark.parametrize(
    ("requested", "terminal", "width", "environment", "name"),
    [
        ("auto", True, 120, {"TERM": "xterm"}, "live"),
        ("auto", True, 79, {"TERM": "xterm"}, "line"),
        ("auto", False, 120, {"TERM": "xterm"}, "line"),
        ("auto", True, 120, {"TERM": "xterm", "CI": "1"}, "line"),
        ("live", True, 120, {"TERM": "xterm", "CI": "1"}, "live"),
        ("live", False, 120, {"TERM": "xterm"}, "line"),
        ("none", True, 120, {"TERM": "xterm"}, "none"),
        ("json", True, 120, {"TERM": "xterm"}, "json"),
    ],
)
def test_the_view_fits_the_terminal(requested: str, terminal: bool, width: int, environment: Any, name: str) -> None:
    """A screen only where it can be drawn."""
    assert choose(requested, terminal=terminal, width=width, environment=environment) == name


def test_a_line_has_fixed_labels(records: ModuleType) -> None:
    """Scripts cut it at spaces and equals signs."""
    board = board_of(records, 2)
    record = records.intervals(records.plan())[1]
    line = interval_line(board, gathered([record]))
    confirm, e2e = record.latencies["confirm"], record.latencies["e2e"]
    assert line.startswith(
        "00:02 step=1/3 in_flight=1 phase=steady intended=200 published=200 confirmed=200 delivered=200"
    )
    assert f"confirm_ms p50={milliseconds(confirm.p50_ns)} " in line and f"max={milliseconds(e2e.max_ns)}" in line


def test_an_interval_of_several_workers_is_one(records: ModuleType) -> None:
    """A line that showed one worker's rate would be read as the run's; one that has died is not waited for for ever."""
    shown: list[Any] = []
    gathering = Gathering(shown.append)
    gathering.event({"kind": "workers", "workers": 3})
    parts = [replace(records.intervals(records.plan())[1], worker=name, gc_pause_ns=int(name)) for name in "012"]
    for part in parts:
        assert not shown
        gathering.add(part)
    (whole,) = shown
    assert (whole.record.published, whole.record.gc_pause_ns) == (3 * parts[0].published, 2)
    assert whole.latencies["e2e"].count == 3 * parts[0].latencies["e2e"].count
    for part in parts[:2]:
        gathering.add(part)
    gathering.tick()
    assert len(shown) == 1
    gathering.tick()
    assert shown[1].record.published == 2 * parts[0].published


@pytest.mark.parametrize("width", [80, 100, 120, None])
def test_the_table_of_steps_fits_the_terminal(width: int | None) -> None:
    """A line that wraps is no table; what had no room is named, and nothing is left out of a file."""
    latency = {"count": 9, "p50_ns": 10**9, "p95_ns": 10**9, "p99_ns": 1_001_000_000, "max_ns": 10**9}
    rates = {f"{name}_per_s": 123_456.0 for name in ("published", "confirmed", "delivered")}
    cpu = {"worker_cpu_us_per_message": 126.0, "broker_cpu_us_per_message": 1313.8}
    rows = [{"label": "ack_interval=100", "step": 1, **rates, **cpu, "latency": {"e2e": latency, "confirm": latency}}]
    groups, header, line, *notes = steps_table(rows, width).splitlines()
    assert max(map(len, (groups, header, line))) <= (width or 200)
    assert "delivered/s" in header and "e2e ms" in groups and "1001" not in line, "no percentile is above the maximum"
    left_out = [name for name in ("published/s", "load", "p95") if name not in header]
    assert bool(left_out) == bool(notes) and all(name in " ".join(notes) for name in left_out)
    assert width is not None or not left_out


def test_sentences_are_broken_between_words_on_a_terminal_only() -> None:
    """A path can be copied whole, and a file has one line for each doubt."""
    path = "runs/20261121-101502-in_flight-3fa1/report/store"
    sentences = [f"warn  {'word ' * 20}and {path}", "fail  short"]
    lines = wrapped(sentences, 60).splitlines()
    assert all(len(line) <= 60 for line in lines) and lines[-1] == "fail  short" and path in lines[-2].split()
    assert all(line.startswith("      ") for line in lines[1:-1])
    assert wrapped(sentences, None).splitlines() == sentences


def test_the_summary_names_the_knee(records: ModuleType) -> None:
    """The rule is said beside the result."""

    def row(step: int, label: str, rate: float, p99_ms: float) -> dict[str, Any]:
        figures = {"count": 1, **{f"{name}_ns": int(p99_ms * 1e6) for name in ("p50", "p95", "p99", "max")}}
        rates = {f"{name}_per_s": rate for name in ("published", "confirmed", "delivered")}
        cpu = {"worker_cpu_us_per_message": 2.0, "broker_cpu_us_per_message": None}
        return {"label": label, "step": step, **rates, **cpu, "latency": {"e2e": figures, "confirm": figures}}

    rows = [row(1, "in_flight=1", 1000, 1), row(2, "in_flight=20", 15_000, 2), row(3, "in_flight=200", 20_000, 9)]
    assert knee_sentence(rows) == (
        "Knee at in_flight=20 (highest rate / p99): 15,000 msg/s at p99 2.00 ms. "
        "Peak 20,000 msg/s at in_flight=200; in_flight=200 is the first with 95% of it."
    )
    assert knee_sentence(rows[:2]) == "" and knee_sentence([]) == ""
    rows[2]["latency"]["e2e_sched"] = {"p99_ns": 10**6}
    assert "Knee at in_flight=200" in knee_sentence(rows)
    assert steps_table(rows).splitlines()[2].split()[:4] == ["in_flight=1", "1,000", "1,000", "1,000"]


def test_doubts_are_said_once_and_failures_first() -> None:
    """A list that repeats itself is not read."""
    bad = {"check": "ledger", "status": "fail", "text": "bad"}
    fine = {"check": "samples", "status": "pass", "text": "fine"}

    def rows(count: int) -> list[dict[str, Any]]:
        slow = [{"check": "loop_lag", "status": "warn", "text": f"late by {number}"} for number in range(count)]
        return [{"label": f"s{number}", "trust": [check, fine]} for number, check in enumerate(slow)]

    assert doubts(rows(1), [bad]) == ["fail  bad", "warn  s0: late by 0"]
    assert doubts(rows(2), []) == ["warn  s0 (also s1): late by 0"]
    assert doubts(rows(5), []) == ["warn  s0 (also s1 and 3 more): late by 0"]


def test_small_things_are_readable() -> None:
    """Three digits are enough, and hours exist."""
    assert [milliseconds(value) for value in (1, 482_000, 7_921_000, 44_100_000, 1_203_400_000)] == [
        "0.00", "0.48", "7.92", "44.1", "1203",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0, 102, 3723)] == ["00:00", "01:42", "1:02:03"]
    assert sparkline([0, 1, 2, 4], 3) == "▃▅█" and sparkline([], 5) == "" and sparkline([0.0], 5) == ""
    assert render([]) == "(none)"
    assert render([{"name": "a", "n": 5}, {"name": "long", "n": 1000}]) == "name     n\na        5\nlong  1000"
