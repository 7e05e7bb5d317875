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

from perftest.cli.ui.summary import (
    clocks_note,
    doubtful_note,
    doubts,
    knee_sentence,
    schedule_note,
    steps_table,
    wrapped,
    wrapped_lines,
)
from perftest.cli.ui.table import render
from perftest.metrics.interval import Phase
from perftest.results.summary import Tally
from perftest.results.trust import Check, Status
from perftest.screen.board import Board, clock, milliseconds
from perftest.screen.host_lines import HostState
from perftest.screen.interval_merger import IntervalMerger, merge
from perftest.screen.live import ROWS_MIN, WIDE, screen, sparkline
from perftest.screen.node_lines import NodeBoard
from perftest.screen.rate_history import HISTORY_S, RateHistory
from perftest.screen.views import choose, interval_line
from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Group, QueueSpec, Settings
from tests.perftest.testing.figures import figures

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def board_of(records: ModuleType, count: int, **changes: Any) -> Board:
    """A board that has seen the first ``count`` intervals of a sweep."""
    plan = records.plan(**changes)
    tally = Tally()
    board = Board(plan, tally, records.STARTED_NS, "3 local nodes", "runs/x")
    for record in records.intervals(plan)[:count]:
        tally.add(record)
        board.interval(record)
        board.merged(merge([record]))
    return board


def drawn(board: Board, width: int, now_ns: int, height: int = ROWS_MIN) -> list[str]:
    console = Console(width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(screen(board, width, height, now_ns))
    return capture.get().rstrip("\n").split("\n")


def sample_of(name: str, second: int, **changes: Any) -> dict[str, Any]:
    """A record of a node that synced 100 batches of 50 entries in each second, 2 ms each, on half a core."""
    place = {"name": "q", "role": "follower", "term": 7, "commit_index": 9000, "synced_index": 9000}
    metrics = {"wal_syncs": 100 * second, "sync_ns_total": second * 200_000_000, "segment_files": 3}
    metrics |= {"wal_writes": 100 * second, "wal_entries": 5000 * second}
    figures = {"cpu_ns": second * 5 * 10**8, "rss_bytes": 2**20 * 64, "metrics": metrics}
    return {"t_ns": second * 10**9, "node": name, "pid": 1, "role": "follower", "queues": [place], **figures, **changes}


@pytest.mark.parametrize(
    ("width", "height", "rows"),
    [
        (80, 24, 24),
        (100, 24, 24),
        (109, 40, 40),
        (110, 24, 23),
        (120, 24, 23),
        (200, 50, 41),
        (80, 20, 19),
        (120, 20, 17),
    ],
)
def test_the_screen_never_jumps(records: ModuleType, width: int, height: int, rows: int) -> None:
    """The same rows, at the same width, from the first frame to the last, whatever happened; and it fits."""
    now = records.STARTED_NS + 3 * records.SECOND
    boards = [board_of(records, 0), board_of(records, 1), board_of(records, 12), board_of(records, 12, rate=10.0)]
    full = board_of(records, 6)
    for number in range(30):
        text = "x" * 30 * number
        full.event({"t_ns": now, "kind": "connection_lost", "text": text})
        for node in range(number // 6):
            full.sample(sample_of(f"node{node}", number))
    full.stopping = True
    for board in [*boards, full]:
        lines = drawn(board, width, now, height)
        assert len(lines) == rows <= height
        assert max(len(line) for line in lines) <= width


def test_the_screen_shows_the_records(records: ModuleType) -> None:
    """What is on the screen is what was measured."""
    board = board_of(records, 8)
    for second in (0, 1):
        board.sample(sample_of("node1", second))
    board.event({"t_ns": records.STARTED_NS + 8 * records.SECOND, "kind": "connection_lost", "text": "node2 closed"})
    text = "\n".join(drawn(board, 120, records.STARTED_NS + 8 * records.SECOND))
    assert "step 2/3  in-flight 10  prefetch 1000  ack interval 1" in text
    assert re.search(r"published +400 +360 +400 +▅+█+", text), "now, 5 s, step, and the last 60 s"
    assert re.search(r"node1 +follower +50% +2\.0 +50 +9,000 +0 +7 +3 +64 MiB", text) and "00:08 node2 closed" in text
    assert "Ctrl-C: finish this step and report" in text and "00:08 / 00:12" in text
    e2e = next(row for row in board.latencies() if row.name == "end to end")
    _, _, p99, p999 = map(milliseconds, e2e.percentiles_ns)
    assert p99 in text and e2e.count == 3 * 400
    assert f"~{p999}" in text and f"~{p99}" not in text, "1200 samples"
    assert len(e2e.p99_history) == 8


def board_over(records: ModuleType, hosts: int) -> Board:
    """A board of a run from several hosts, which has seen an interval of each in the first two seconds."""
    plan = replace(records.plan(), hosts=tuple(LoadHost(name=f"load{number}") for number in range(1, hosts + 1)))
    tally = Tally()
    board = Board(plan, tally, records.STARTED_NS, "3 nodes", "runs/x")
    for record in records.intervals(plan)[:2]:
        for number in range(1, hosts + 1):
            told = replace(record, host=f"load{number}", worker="0")
            tally.add(told)
            board.interval(told)
    for second in (0, 1):
        t_ns = records.STARTED_NS + second * records.SECOND
        for number in range(1, hosts + 1):
            busy = {"cpu_percent": 40.0 + number, "rx_bytes": second * 500_000, "tx_bytes": second * 500_000}
            board.host_sample({"t_ns": t_ns, "host": f"load{number}", **busy})
    return board


def test_every_load_host_has_a_row(records: ModuleType) -> None:
    board = board_over(records, 2)
    text = "\n".join(drawn(board, 120, records.STARTED_NS + 2 * records.SECOND, 30))
    assert "load hosts: 2" in text and "broker" in text
    assert re.search(r"load1 +\d+ +\d+ +\d+ +[\d.]+ +41% +8 +running", text)


def test_hosts_that_are_lost_or_late_come_first(records: ModuleType) -> None:
    board = board_over(records, 20)
    later = records.intervals(records.plan())[7]
    for number in (*range(1, 6), *range(7, 21)):
        board.interval(replace(later, host=f"load{number}", worker="0"))
    board.event({"t_ns": records.STARTED_NS, "kind": "host_lost", "host": "load20", "worker": "0", "text": "gone"})
    assert [(row.name, row.state) for row in board.hosts()[:3]] == [
        ("load20", HostState.LOST), ("load6", HostState.LATE), ("load1", HostState.RUNNING)
    ]  # fmt: skip
    text = "\n".join(drawn(board, 80, records.STARTED_NS + 8 * records.SECOND))
    assert "load hosts: 20, 17 more not shown" in text and "broker" not in text
    assert text.index("load20") < text.index("load6")
    assert re.search(r"load20 +0 +0 +0 +- +60% +8 +lost !", text)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 40), (120, 24), (120, 60), (80, 20), (120, 20)])
@pytest.mark.parametrize("hosts", [2, 20])
def test_the_screen_of_hosts_fits_and_never_jumps(records: ModuleType, hosts: int, width: int, height: int) -> None:
    now = records.STARTED_NS + 2 * records.SECOND
    plan = board_over(records, hosts).plan
    empty = Board(plan, Tally(), records.STARTED_NS, "3 nodes", "runs/x")
    full = board_over(records, hosts)
    for second in (0, 1):
        full.sample(sample_of("node1", second))
    rows = {len(drawn(board, width, now, height)) for board in (empty, full)}
    assert len(rows) == 1 and rows.pop() <= height
    assert max(len(line) for line in drawn(full, width, now, height)) <= width


@pytest.mark.parametrize("width", [80, WIDE])
def test_what_the_ledger_finds_is_marked(records: ModuleType, width: int) -> None:
    """Also where there is little room."""
    board = board_of(records, 2)
    quiet = "\n".join(drawn(board, width, records.STARTED_NS))
    assert (
        "out of order 0  twice 0  damaged 0  unexpected 0" in quiet and "nacked 0  returned 0  redelivered 0" in quiet
    )
    board = board_of(records, 1)
    record = replace(records.intervals(records.plan())[1], reordered=3, unexpected=1, redelivered=12)
    board._tally.add(record)
    board.interval(record)
    text = "\n".join(drawn(board, width, records.STARTED_NS))
    assert "out of order 3 !  twice 0  damaged 0  unexpected 1 !" in text and "redelivered 12 !" in text


def test_the_broker_is_not_visible_everywhere(records: ModuleType) -> None:
    """AMQP does not tell of a node's drive; the panel keeps its place."""
    assert "not visible over AMQP" in "\n".join(drawn(board_of(records, 1), 80, records.STARTED_NS))


@pytest.mark.parametrize("width", [80, WIDE])
def test_a_broker_that_is_asked_over_http_has_columns_of_its_own(records: ModuleType, width: int) -> None:
    """It tells nothing of a log; what it tells has the place."""
    board = board_of(records, 2)
    for second in (0, 1):
        metrics = {"messages": 3005, "connections": 12, "disk_free_bytes": 65 * 2**30}
        deepest = [{"name": "q", "messages": 3005}]
        told = {"pid": 1_700_000_000, "cpu_ns": second * records.SECOND // 2, "rss_bytes": 141 << 20, "role": ""}
        record = {"t_ns": records.STARTED_NS + second * records.SECOND, "node": "rabbit@host0", **told}
        board.sample({**record, "metrics": metrics, "queues": deepest})
    lines = drawn(board, width, records.STARTED_NS)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert re.search(r"node +CPU +memory", text) and "fsync" not in text
    assert re.search(r"rabbit@host0 +50% +141 MiB", text)
    if width > 80:
        assert re.search(r"50% +141 MiB +3,005 +65\.0 GiB +12", text)


def test_a_node_is_shown_between_its_last_two_samples() -> None:
    """Cumulative figures of a node that was started anew say nothing yet; lag is behind the leader's commit."""
    nodes = NodeBoard()
    for second in (1, 2, 3):
        nodes.sample(sample_of("a", second))
    behind = {"name": "q", "role": "follower", "term": 7, "commit_index": 8000, "synced_index": 7000}
    nodes.sample(sample_of("b", 1, queues=[{**behind, "name": "other"}, behind]))
    nodes.sample({"t_ns": 1, "node": "c", "pid": 1})
    a, b, c = nodes.rows()
    assert (a.cpu, a.sync_ms, a.batch, a.lag) == (0.5, 2.0, 50.0, 0)
    assert (b.cpu, b.sync_ms, b.commit, b.lag) == (None, None, 8000, 2000)
    assert (c.role, c.lag, c.segments, c.rss_bytes) == ("", None, None, 0)
    assert b.late and not a.late and not c.late
    nodes.sample(sample_of("a", 4, pid=2))
    assert nodes.rows()[0].cpu is None


def test_nodes_are_not_asked_at_one_instant() -> None:
    """What is committed within milliseconds is no lag to warn of: at 10,000 entries a second 4000 are 0.4 s."""
    nodes = NodeBoard()
    for second in (1, 2):
        ahead = {"name": "q", "role": "leader", "term": 7, "commit_index": 10_000 * second, "synced_index": 0}
        nodes.sample(sample_of("a", second, queues=[{**ahead, "synced_index": 10_000 * second}]))
        nodes.sample(sample_of("b", second, queues=[{**ahead, "synced_index": 10_000 * second - 4000}]))
        nodes.sample(sample_of("c", second, queues=[{**ahead, "synced_index": 10_000 * second - 6000}]))
    assert [(row.lag, row.late) for row in nodes.rows()] == [(0, False), (4000, False), (6000, True)]


def test_a_minute_is_kept_in_seconds(records: ModuleType) -> None:
    """However short intervals are, and whatever the workers: their parts are one interval."""
    history = RateHistory()
    blank = records.intervals(records.plan())[1]
    assert history.rate("published", 5.0) == 0.0 and history.rates("published") == []
    for half in range(2 * 2 * HISTORY_S):
        place = {"start_ns": half * 10**9 // 2, "length_ns": 10**9 // 2}
        history.add(merge([replace(blank, worker=worker, published=half // 2, **place) for worker in "01"]))
    bars = history.rates("published")
    assert bars == [4.0 * second for second in range(HISTORY_S, 2 * HISTORY_S)]
    assert history.rate("published", 5.0) == sum(bars[-5:]) / 5
    assert history.p99_ns("e2e") == [figures(blank.latencies["e2e"]).p99_ns] * HISTORY_S


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


def test_a_step_begins_with_nothing_of_the_step_before(records: ModuleType) -> None:
    """Until its first interval comes, there is no figure: those of another setting are none."""
    board = board_of(records, 4)
    assert board.so_far("published") and board.latencies()[0].count
    board.event({"t_ns": records.STARTED_NS + 4 * records.SECOND, "kind": "step_started", "step": 2})
    assert (board.so_far("published"), board.count("published"), board.latencies()[0].count) == (0, 0, 0)


def test_steps_that_are_left_of_a_sweep_keep_their_numbers(records: ModuleType) -> None:
    """The last two of three are 2/3 and 3/3."""
    plan = records.plan(steps=3)
    left = plan.changed(steps=plan.steps[1:])
    assert "step 2/3 " in Board(left, Tally(), records.STARTED_NS, "h", "p").describe_step()


SCRIPT = """
    import sys, time
    sys.path.insert(0, {here!r})
    import records
    from perftest.screen.board import Board
    from perftest.screen.interval_merger import merge
    from perftest.screen.views import choose, make_view
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
        board.merged(merge([record]))
        view.merged(merge([record]))
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
    drawn_frames = [
        ANSI.sub("", frame).split("\r\n") for frame in text[enter:leave].split("\x1b[H") if "step " in frame
    ]
    places = {tuple(at for at, line in enumerate(lines) if line.endswith("──")) for lines in drawn_frames}
    assert len(drawn_frames) == 12 and len(places) == 1 and len(places.pop()) == 5, "panels stay where they are"
    assert {len(lines) for lines in drawn_frames} == {30} and max(
        len(line) for lines in drawn_frames for line in lines
    ) <= 100
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
    line = interval_line(board, merge([record]))
    confirm, e2e = figures(record.latencies["confirm"]), figures(record.latencies["e2e"])
    assert line.startswith(
        "00:02 step=1/3 in_flight=1 phase=steady intended=200 published=200 confirmed=200 delivered=200"
    )
    assert f"confirm_ms p50={milliseconds(confirm.p50_ns)} " in line and f"max={milliseconds(e2e.max_ns)}" in line


def test_an_interval_of_several_workers_is_one(records: ModuleType) -> None:
    """A line that showed one worker's rate would be read as the run's; one that has died is not waited for for ever."""
    shown: list[Any] = []
    merger = IntervalMerger(shown.append)
    merger.event({"kind": "workers", "workers": 3})
    parts = [replace(records.intervals(records.plan())[1], worker=name, gc_pause_ns=int(name)) for name in "012"]
    for part in parts:
        assert not shown
        merger.add(part)
    (whole,) = shown
    assert (whole.record.published, whole.record.gc_pause_ns) == (3 * parts[0].published, 2)
    assert whole.latencies["e2e"].total == 3 * figures(parts[0].latencies["e2e"]).count
    for part in parts[:2]:
        merger.add(part)
    merger.tick()
    assert len(shown) == 1
    merger.tick()
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
    rows[0]["label"] = "in_flight=100 prefetch=1000"
    assert width is None or max(map(len, steps_table(rows, width).splitlines())) <= width
    assert bool(left_out) == bool(notes) and all(name in " ".join(notes) for name in left_out)
    assert width is not None or not left_out


def test_percentiles_without_support_are_marked() -> None:
    """In the table, too, and it is said what the mark means; the maximum needs no support."""
    latency = {"p50_ns": 10**6, "p95_ns": 2 * 10**6, "p99_ns": 3 * 10**6, "max_ns": 4 * 10**6}
    rates = {f"{name}_per_s": 1.0 for name in ("published", "confirmed", "delivered")}
    cpu = {"worker_cpu_us_per_message": 126.0, "broker_cpu_us_per_message": 1313.8}
    for count, shown in ((999, ["1.00", "2.00", "~3.00", "4.00"]), (1000, ["1.00", "2.00", "3.00", "4.00"])):
        counted = {"e2e": {"count": count, **latency}, "confirm": {"count": 1000, **latency}}
        rows = [{"label": "", "step": 1, **rates, **cpu, "latency": counted}]
        *_, line = steps_table(rows).splitlines()
        assert line.split()[6:10] == shown
        assert bool(doubtful_note(rows)) == (count == 999)


def test_percentiles_that_the_clocks_leave_open_are_shown_as_the_most_that_they_can_be() -> None:
    """Not as figures: a latency of 0.06 ms between clocks that agree within 0.08 ms may be anything up to 0.14 ms."""
    latency = {"p50_ns": 60_000, "p95_ns": 2 * 10**6, "p99_ns": 3 * 10**6, "max_ns": 4 * 10**6, "count": 10_000}
    rates = {f"{name}_per_s": 1.0 for name in ("published", "confirmed", "delivered")}
    cpu = {"worker_cpu_us_per_message": 126.0, "broker_cpu_us_per_message": 1313.8}
    plain = {"label": "", "step": 1, **rates, **cpu, "latency": {"e2e": latency, "confirm": latency}}
    for bound_ns, shown in ((0, "0.06"), (50_000, "0.06"), (80_000, "≤0.14")):
        rows = [plain | ({"clock_bound_ns": bound_ns} if bound_ns else {})]
        *_, line = steps_table(rows).splitlines()
        assert line.split()[4:10] == ["0.06", "3.00", shown, "2.00", "3.00", "4.00"]
        assert ("±80 µs" in clocks_note(rows)) == (bound_ns == 80_000)


def test_the_table_leads_with_the_intended_time() -> None:
    """A stall that a user would have seen is in the figures to be quoted; those from the send stand below."""
    names = ("p50", "p95", "p99", "max")
    sent = {"count": 5000, **{f"{name}_ns": 10**6 for name in names}}
    intended = {"count": 5000, **{f"{name}_ns": 10**9 for name in names}}
    rates = {f"{name}_per_s": 1.0 for name in ("published", "confirmed", "delivered")}
    cpu = {"worker_cpu_us_per_message": 126.0, "broker_cpu_us_per_message": None}
    closed: dict[str, Any] = {"confirm": sent, "e2e": sent}
    rows = [{"label": "", "step": 1, **rates, **cpu, "latency": closed}]
    assert schedule_note(rows) == "" and steps_table(rows).split()[-8:-2] == ["1.00"] * 6
    rows[0]["latency"] = {**closed, "confirm_sched": intended, "e2e_sched": intended}
    assert steps_table(rows).split()[-8:-2] == ["1000"] * 6
    assert schedule_note(rows) == (
        "latencies count from the intended time; from the send: confirm p50 1.00 p99 1.00 max 1.00,"
        " e2e p50 1.00 p99 1.00 max 1.00"
    )
    assert "the report has those" in schedule_note(rows * 2)


def test_sentences_are_broken_between_words_on_a_terminal_only() -> None:
    """A path can be copied whole, and a file has one line for each doubt."""
    path = "runs/20261121-101502-in_flight-3fa1/report/store"
    sentences = [f"warn  {'word ' * 20}and {path}", "fail  short"]
    lines = wrapped(sentences, 60).splitlines()
    assert all(len(line) <= 60 for line in lines) and lines[-1] == "fail  short" and path in lines[-2].split()
    assert all(line.startswith("      ") for line in lines[1:-1])
    assert wrapped(sentences, None).splitlines() == sentences


def test_verdicts_break_between_words_below_their_text() -> None:
    """A terminal breaks a long line anywhere, and its rest looks like the next verdict."""
    heading = "The source's findings: partly reproduced, 1 of 2 findings over 3 rounds."
    first = (
        "  reproduced       The rate grows with the window.\n"
        + " " * 19
        + "rate: 2.1 (1.9 ... 2.3) from 1 to 100 messages"
    )
    second = "  not reproduced   It is flat."
    assert wrapped_lines([heading, first, second], 40).splitlines() == [
        "The source's findings: partly",
        "      reproduced, 1 of 2 findings over 3",
        "      rounds.",
        "  reproduced       The rate grows with",
        "                   the window.",
        "                   rate: 2.1 (1.9 ...",
        "                   2.3) from 1 to 100",
        "                   messages",
        "  not reproduced   It is flat.",
    ]
    assert wrapped_lines([heading, first, second], None) == "\n".join([heading, first, second])


def test_the_summary_names_the_knee(records: ModuleType) -> None:
    """The rule is said beside the result."""

    def row(step: int, label: str, rate: float, p99_ms: float) -> dict[str, Any]:
        figures = {"count": 1, **{f"{name}_ns": int(p99_ms * 1e6) for name in ("p50", "p95", "p99", "max")}}
        rates = {f"{name}_per_s": rate for name in ("published", "confirmed", "delivered")}
        cpu = {"worker_cpu_us_per_message": 2.0, "broker_cpu_us_per_message": None}
        settings = {name: int(value) for name, value in (each.split("=") for each in label.split())}
        latency = {"e2e": figures, "confirm": figures}
        return {"label": label, "step": step, "settings": settings, **rates, **cpu, "latency": latency}

    rows = [row(1, "in_flight=1", 1000, 1), row(2, "in_flight=20", 15_000, 2), row(3, "in_flight=200", 20_000, 9)]
    assert knee_sentence(rows) == (
        "Knee at in_flight=20 (highest rate / p99): 15,000 msg/s at p99 2.00 ms. "
        "Peak 20,000 msg/s at in_flight=200; in_flight=200 is the smallest with 95% of it."
    )
    assert knee_sentence(rows[::-1]) == knee_sentence(rows)
    grid = [
        row(at, f"in_flight={in_flight} prefetch={prefetch}", 1000 * (in_flight + prefetch), 1)
        for at, (in_flight, prefetch) in enumerate(((9, 1), (1, 1), (9, 90), (1, 90)), 1)
    ]
    assert knee_sentence(grid).endswith(
        "Peak 99,000 msg/s at in_flight=9 prefetch=90; in_flight=9 prefetch=90 is the smallest in_flight, "
        "in_flight=9 prefetch=90 is the smallest prefetch with 95% of it."
    )
    assert knee_sentence(rows[:2]) == "" and knee_sentence([]) == ""
    busy = {"trust": [{"check": "generator_cpu", "status": "fail", "text": ""}]}
    limited = [*rows, {**row(4, "in_flight=1000", 20_500, 11), **busy}]
    assert "Peak at least 20,000 msg/s at in_flight=200" in knee_sentence(limited)
    without = "Not known of in_flight=1000: the load generator or its machine was the limit."
    assert knee_sentence(limited).endswith(without)
    rows[2]["latency"]["e2e_sched"] = {"p99_ns": 10**6, "count": 0}
    assert "Knee at in_flight=200" in knee_sentence(rows)
    assert steps_table(rows).splitlines()[2].split()[:4] == ["in_flight=1", "1,000", "1,000", "1,000"]


def test_doubts_are_said_once_and_failures_first() -> None:
    """A list that repeats itself is not read."""
    bad, fine = Check("ledger", Status.FAIL, "bad"), Check("samples", Status.PASS, "fine")
    slow = Check("loop_lag", Status.WARN, "late by 3 (s3; also s0 and 3 more)")
    assert doubts([bad, slow, fine]) == ["fail  ledger: bad", "warn  loop lag: late by 3 (s3; also s0 and 3 more)"]


def test_small_things_are_readable() -> None:
    """Three digits are enough, and hours exist."""
    assert [milliseconds(value) for value in (1, 482_000, 7_921_000, 44_100_000, 1_203_400_000)] == [
        "0.00", "0.48", "7.92", "44.1", "1203",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0, 102, 3723)] == ["00:00", "01:42", "1:02:03"]
    assert sparkline([0, 1, 2, 4], 3) == "▃▅█" and sparkline([], 5) == "" and sparkline([0.0], 5) == ""
    assert render([]) == "(none)"
    assert render([{"name": "a", "n": 5}, {"name": "long", "n": 1000}]) == "name     n\na        5\nlong  1000"


def test_every_other_load_has_a_line(records: ModuleType) -> None:
    """Background load shows itself beside the measured load, whichever reports first, and is in none of its figures."""
    plan = records.plan()
    noise = Group.background("noise", (QueueSpec(name="n"),), Settings())
    later = Group.background("later", (QueueSpec(name="l"),), Settings(), start_s=100.0)
    plan = replace(plan, groups=(plan.load, noise, later))
    tally = Tally()
    board = Board(plan, tally, records.STARTED_NS, "3 local nodes", "runs/x")
    board.event({"kind": "background_started", "group": "noise", "t_ns": records.STARTED_NS})
    for record in records.intervals(plan)[:3]:
        for each in (replace(record, group="noise", measured=False, published=7), record):
            tally.add(each)
            board.interval(each)
            board.merged(merge([each]))
    alone = board_of(records, 3)
    assert board.rates() == alone.rates() and board.latencies() == alone.latencies()
    first, second = board.loads_beside()
    assert (first.name, first.state, second.name, second.state) == ("noise", "", "later", "not begun")
    assert first.published == pytest.approx(7e9 / record.length_ns) and first.latency.count > 0
    for width in (80, WIDE):
        rows = drawn(board, width, records.STARTED_NS + 3 * 10**9, height=32)
        assert len(rows) <= 32 and max(map(len, rows)) <= width
        (line,) = [row for row in rows if "noise (background)" in row]
        assert " 7 " in line
        assert any("later (not begun)" in row for row in rows)
        assert len(drawn(board, width, records.STARTED_NS, height=ROWS_MIN)) <= ROWS_MIN
