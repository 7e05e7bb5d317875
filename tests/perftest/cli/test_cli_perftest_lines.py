"""PerfTest's console lines and CSV, to the letter: scripts cut them."""

from __future__ import annotations

import csv
import io
import json
import socket
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perftest.exits import CliError
from perftest.measuring.exports import MetricsServer, copies_of
from perftest.metrics.histogram import SparseCounts
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results import schema
from perftest.results.errors import RunNotWritableError
from perftest.results.summary import Tally
from perftest.screen.board import Board
from perftest.screen.interval_merger import IntervalMerger, MergedInterval, merge
from perftest.screen.perftest_lines import CsvFile, Lines, Style, latency_text, rate_text, stop_line
from perftest.screen.views import PlainView
from perftest.series.reproduce import plan_of_words
from perftest.spec.plan import Group, Plan, QueueSpec, Settings

Call = Callable[..., tuple[int, str, str]]
MICROSECOND = 1000


def interval(records: ModuleType, **changes: Any) -> Interval:
    """Half a second of one worker: latencies of 100 to 500 µs."""
    latency: SparseCounts = records.latency([value * 100 * MICROSECOND for value in range(1, 6)])
    record = Interval(
        worker="0",
        step=1,
        phase=Phase.STEADY,
        start_ns=records.STARTED_NS,
        length_ns=500_000_000,
        published=100,
        confirmed=98,
        nacked=1,
        delivered=4,
        latencies={Series.E2E: latency, Series.CONFIRM: latency},
    )
    return replace(record, **changes)


def plan(records: ModuleType, **changes: Any) -> Plan:
    """One step with these settings."""
    (step,) = records.plan(steps=1).steps
    made: Plan = records.plan(steps=1).changed(steps=(replace(step, settings=Settings(**changes)),))
    return made


FIGURES = "99/300/400/500/500/500 µs"
LINES = [
    (
        {},
        False,
        f"id: t, time 7.500 s, sent: 200 msg/s, confirmed: 196 msg/s, nacked: 2.0 msg/s, received: 8.0 msg/s, "
        f"min/median/75th/95th/99th/max consumer latency: {FIGURES}, confirm latency: {FIGURES}",
    ),
    (
        {"in_flight": 0, "mandatory": True},
        False,
        f"id: t, time 7.500 s, sent: 200 msg/s, returned: 0 msg/s, received: 8.0 msg/s, "
        f"min/median/75th/95th/99th/max consumer latency: {FIGURES}",
    ),
    (
        {"consumers": 0},
        False,
        f"id: t, time 7.500 s, sent: 200 msg/s, confirmed: 196 msg/s, nacked: 2.0 msg/s, "
        f"min/median/75th/95th/99th/max confirm latency: {FIGURES}",
    ),
    ({"in_flight": 0, "consumers": 0}, False, "id: t, time 7.500 s, sent: 200 msg/s"),
    (
        {"publishers": 0},
        False,
        f"id: t, time 7.500 s, received: 8.0 msg/s, min/median/75th/95th/99th/max consumer latency: {FIGURES}",
    ),
    (
        {"publishers": 0, "consumer_latency_us": 10_000},
        False,
        f"id: t, time 7.500 s, received: 4.0 msg/s, arrived: 8.0 msg/s, "
        f"min/median/75th/95th/99th/max consumer latency: {FIGURES}",
    ),
    (
        {},
        True,
        "    200 msg/s    196 msg/s    2.0 msg/s    8.0 msg/s  99/300/400/500/500/500 µs  99/300/400/500/500/500 µs",
    ),
]


@pytest.mark.parametrize(("changes", "compact", "expected"), LINES)
def test_a_line_has_the_parts_that_the_run_has(
    changes: dict[str, Any], compact: bool, expected: str, records: ModuleType
) -> None:
    """A run without confirms has no word of them."""
    lines = Lines(plan(records, **changes), Style(label="t", compact=compact))
    processed = 2 if changes.get("consumer_latency_us") else None
    line = lines.interval(merge([interval(records, processed=processed)]), 7.5)
    assert line[19:] == expected if compact else line == expected
    if compact:
        assert len(lines.header()) == 19 + 4 * 13 + 2 * 27 and lines.header().startswith("time     ")


def test_latencies_that_do_not_fit_push_the_next_one_aside(records: ModuleType) -> None:
    """As PerfTest does: a column is never glued to the one before it."""
    wide = records.latency([value * 10**9 for value in range(1, 9)])
    record = interval(records, latencies={Series.E2E: wide, Series.CONFIRM: wide})
    line = Lines(plan(records), Style(label="t", compact=True)).interval(merge([record]), 1.0)
    assert line.endswith("8000000/8000000/8000000 µs 999817/4001366/6002049/8000000/8000000/8000000 µs")


def test_the_summary_is_of_all_that_was_said(records: ModuleType) -> None:
    """Rates over the whole time, latencies merged; a drain is not PerfTest's."""
    lines = Lines(plan(records), Style(label="t", in_millis=True))
    slow = records.latency([7_000_000])
    lines.interval(merge([interval(records)]), 1.0)
    lines.interval(merge([interval(records, latencies={Series.E2E: slow}, published=0)]), 2.0)
    assert lines.interval(merge([interval(records, phase=Phase.DRAIN)]), 3.0) == ""
    assert lines.summary() == [
        "id: t, sending rate avg: 100 msg/s",
        "id: t, receiving rate avg: 8.0 msg/s",
        "id: t, consumer latency min/median/75th/95th/99th/max 0/0/0/7/7/7 ms",
        "id: t, confirm latency min/median/75th/95th/99th/max 0/0/0/0/0/0 ms",
    ]


def test_a_short_warm_up_is_shown_with_what_follows(records: ModuleType) -> None:
    """What sockets buffer in its first milliseconds is no rate."""
    lines = Lines(plan(records), Style(label="t"))
    start_ns, short_ns = records.STARTED_NS, 10_000_000
    burst = interval(records, phase=Phase.WARMUP, length_ns=short_ns, published=80_000)
    assert lines.interval(merge([burst]), 0.01) == ""
    after = interval(records, start_ns=start_ns + short_ns, length_ns=990_000_000, published=0, delivered=96)
    line = lines.interval(merge([after]), 1.0)
    assert "sent: 80000 msg/s" in line and "received: 100 msg/s" in line
    assert lines.summary()[0] == "id: t, sending rate avg: 80000 msg/s"


def test_received_is_what_consumers_have_processed(records: ModuleType) -> None:
    """With ``-L`` or ``-R`` messages may have come long before: they have a name of their own."""
    lines = Lines(plan(records, publishers=0, consumer_latency_us=1), Style(label="t"))
    two = [interval(records, worker=worker, processed=1) for worker in "01"]
    lines.interval(merge(two), 1.0)
    assert lines.summary()[1:3] == ["id: t, receiving rate avg: 4.0 msg/s", "id: t, arrival rate avg: 16 msg/s"]
    assert merge([interval(records)]).record.processed is None


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0"), (0.25, "0.25"), (0.999, "1.00"), (1.0, "1.0"), (9.96, "10.0"), (10.9, "10")]
)
def test_rates_are_written_as_by_perftest(rate: float, text: str) -> None:
    """Cut off above 10, decimals below."""
    assert rate_text(rate) == text


def test_the_reason_of_the_end_has_its_number() -> None:
    """As PerfTest's own test of it."""
    assert stop_line({}) == "test stopped" and latency_text(None) == "0/0/0/0/0/0 µs"
    assert stop_line({"reason1": 2, "reason2": 1}) == "test stopped (reason1 [2], reason2)"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("run_ended", "finished")], "test stopped (Reached time limit)"),
        ([("interrupted", "x"), ("run_ended", "interrupted")], "test stopped"),
        (
            [("limit_reached", "Producer reached message limit [2], Consumer idle"), ("run_ended", "finished")],
            "test stopped (Producer reached message limit [2], Consumer idle)",
        ),
        ([("error", "no route (h:1)"), ("run_ended", "failed")], "test stopped (no route)"),
    ],
)
def test_the_view_tells_why_the_run_stopped(events: list[tuple[str, str]], expected: str, records: ModuleType) -> None:
    """From the events of the engine, in PerfTest's words."""
    out = io.StringIO()
    view = PlainView(Board(plan(records), Tally(), records.STARTED_NS, "t", "r"), Style(label="t"), out)
    view.merged(merge([interval(records)]))
    for kind, text in events:
        view.event({"kind": kind, "text": text})
    view.close()
    first, stopped, *summary = out.getvalue().splitlines()
    assert first.startswith("id: t, time 0.500 s, ") and stopped == expected and len(summary) == 4


def test_intervals_of_workers_are_put_together(records: ModuleType) -> None:
    """Counts added, the worst delay, histograms of the union, and the time from the first to the last."""
    one = interval(records, loop_lag_ns=5, unconfirmed=2)
    other = interval(records, worker="1", start_ns=one.start_ns + 10, loop_lag_ns=9, unconfirmed=3)
    both = merge([one, other])
    record = both.record
    assert (record.worker, record.published, record.unconfirmed, record.loop_lag_ns) == ("all", 200, 5, 9)
    assert (record.start_ns, record.length_ns) == (one.start_ns, one.length_ns + 10)
    assert both.latencies[Series.E2E].total == 10 and both.latencies[Series.E2E].max_ns == 500_000


def test_an_interval_is_told_when_its_last_worker_has_told_its_part(records: ModuleType) -> None:
    """An event says how many there are; one that has ended is waited for until two frames were drawn."""
    seen: list[MergedInterval] = []
    merger = IntervalMerger(seen.append)
    merger.event({"kind": "workers", "workers": 2})
    merger.add(interval(records))
    assert seen == []
    merger.add(interval(records, worker="1"))
    assert [each.record.published for each in seen] == [200]
    merger.add(interval(records, worker="1"))
    merger.tick()
    assert len(seen) == 1
    merger.add(interval(records))
    assert len(seen) == 2
    merger.add(interval(records))
    merger.add(interval(records))  # the other worker is gone
    assert [each.record.worker for each in seen] == ["all", "all", "0"]
    merger.add(interval(records))
    merger.add(interval(records, phase=Phase.DRAIN))
    merger.tick()
    merger.tick()
    assert [each.record.phase for each in seen[3:]] == [Phase.STEADY, Phase.STEADY, Phase.DRAIN]


def test_the_csv_has_perftests_columns_first(records: ModuleType, tmp_path: Path) -> None:
    """An existing file begins anew; the unit is in the heading; a label with a comma is one field."""
    path = tmp_path / "out.csv"
    path.write_text("old\n")
    file = CsvFile(path, "a,b", in_millis=True)
    file.interval(merge([interval(records)]), records.STARTED_NS)
    file.interval(merge([interval(records, phase=Phase.DRAIN)]), records.STARTED_NS)
    heading, row, *more = csv.reader(path.read_text(encoding="utf-8").splitlines())
    assert more == [] and heading[: len(schema.PERFTEST_COLUMNS)] == [
        name.replace("(µs)", "(ms)") for name in schema.PERFTEST_COLUMNS
    ]
    assert row[:12] == ["a,b", "0.500", "200.0", "0.0", "196.0", "2.0", "8.0", "0", "0", "0", "0", "0"]
    assert heading[len(schema.PERFTEST_COLUMNS) :] == list(schema.OWN_COLUMNS) and len(row) == len(heading)


def test_a_csv_that_cannot_be_written_is_told_before_and_during_a_run(records: ModuleType, tmp_path: Path) -> None:
    """Nobody measures for an hour to learn of a wrong path."""
    with pytest.raises(CliError, match="the CSV file cannot be written"):
        CsvFile(tmp_path / "none" / "out.csv", "t", in_millis=False)
    file = CsvFile(tmp_path / "out.csv", "t", in_millis=False)
    (tmp_path / "out.csv").unlink()
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(RunNotWritableError):
        file.interval(merge([interval(records)]), records.STARTED_NS)


def run(call: Call, tmp_path: Path, *flags: str) -> tuple[int, str, str]:
    """``perftest run`` with the engine of the fixture."""
    return call("run", "-h", "amqp://h", "-u", "q", "-z", "5", "--out", str(tmp_path / "runs"), *flags)


def test_a_run_away_from_a_terminal_prints_perftests_lines(call: Call, engine: Any, tmp_path: Path) -> None:
    """Line, reason, summary, and then ours."""
    code, out, err = run(call, tmp_path, "-c", "5", "-d", "mine", "-o", str(tmp_path / "o.csv"))
    lines = out.splitlines()
    assert (code, err) == (0, "") and len([line for line in lines if line.startswith("id: mine, time ")]) == 4
    assert lines[4] == "test stopped" and lines[5].startswith("id: mine, sending rate avg: ")
    assert "delivered/s" in out and len(tmp_path.joinpath("o.csv").read_text().splitlines()) == 5


def test_a_missed_objective_exits_4_and_is_in_the_result(call: Call, engine: Any, tmp_path: Path) -> None:
    """A gate in a build pipeline; what was met is told, too."""
    code, out, _ = run(call, tmp_path, "--slo", "e2e.max<1us", "--slo", "loss==0", "--ui", "none")
    assert code == 4 and "missed  e2e.max<1us: " in out and "met     loss==0: 0" in out
    (path,) = (tmp_path / "runs").iterdir()
    assert '"met": false' in path.joinpath("result.json").read_text()
    engine.verdict, engine.lost = "violated", 1
    assert run(call, tmp_path, "--slo", "loss==0", "--ui", "none")[0] == 3


def test_more_latencies_on_demand(call: Call, engine: Any, tmp_path: Path) -> None:
    """Percentiles that the samples support, and the figures that PerfTest would show."""
    flags = ("--percentiles", "50,99.99", "--legacy-latency", "--hlog", str(tmp_path / "l.hlog"), "--ui", "none")
    code, out, _ = run(call, tmp_path, *flags)
    assert code == 0 and "p99.99" in out and "as PerfTest measures (1,028 of " in out
    assert "from the send): confirm latency min/median/75th/95th/99th/max " in out
    (path,) = (tmp_path / "runs").iterdir()
    legacy = json.loads(path.joinpath("result.json").read_text())["legacy_latency"]
    assert legacy["consumer"]["kept"] == 1028 and legacy["confirm"]["p99_ns"] <= legacy["confirm"]["max_ns"]
    assert [line.split()[3] for line in out.splitlines() if line.lstrip().startswith("1  e2e")] == ["-"]
    assert tmp_path.joinpath("l.hlog").read_text().startswith("#")


def test_notes_and_variables_are_told_before_the_run(
    call: Call, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an environment changes must not be found out from the figures."""
    monkeypatch.setenv("PRODUCERS", "3")
    monkeypatch.setenv("CONSUMERS", "9")
    _, _, err = run(call, tmp_path, "-y", "2", "-hst", "5", "--ui", "none")
    settings = engine.plans[0].steps[0].settings
    assert (settings.publishers, settings.consumers) == (3, 2)
    assert "note: without effect here: -hst (there is no JVM)\nnote: from the environment: PRODUCERS\n" in err


def test_the_command_of_a_run_has_what_the_environment_said(
    call: Call, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typed elsewhere, the command of a manifest makes the same plan; a password is not kept."""
    for name, value in (
        ("PRODUCERS", "3"),
        ("CONFIRM", "0"),
        ("VARIABLE_RATE", "100:60,1000:10"),
        ("MULTI_ACK_EVERY", "0"),
    ):
        monkeypatch.setenv(name, value)
    run(call, tmp_path, "-h", "amqp://me:secret@h", "-s", "50", "--ui", "none")
    (path,) = (tmp_path / "runs").iterdir()
    verb, *words = json.loads(path.joinpath("manifest.json").read_text())["command"][1:]
    assert verb == "run" and "secret" not in str(words)
    again = plan_of_words(words)
    for part in ("steps", "queues", "exchange", "consuming", "connecting"):
        assert getattr(again, part) == getattr(engine.plans[0], part), part
    assert again.publishing.rate_cycle == ((100.0, 60.0), (1000.0, 10.0))


def test_the_variables_are_listed(call: Call) -> None:
    """--env, as PerfTest's documentation has it."""
    code, out, _ = call("run", "--env")
    assert code == 0 and "CONFIRM_TIMEOUT" in out and "\n  SLO" not in out and "HEARTBEAT_SENDER_THREADS" in out


def test_metrics_are_served_while_the_run_lasts(
    call: Call, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PerfTest's names, the labels of -mt, and the gauges of -em."""
    scraped: list[str] = []
    close = MetricsServer.close

    def scrape_and_close(served: MetricsServer) -> None:
        port = served._endpoint.port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/m", timeout=10) as answer:
            scraped.append(answer.read().decode())
        close(served)

    monkeypatch.setattr(MetricsServer, "close", scrape_and_close)
    flags = ("-mpr", "-mpp", "0", "-mpe", "/m", "-mt", "a=b", "-em", "expected_published=7", "-mpx", "x_")
    assert run(call, tmp_path, *flags, "--ui", "none")[0] == 0
    assert 'x_expected_published{a="b"} 7.0' in scraped[0] and "x_published" in scraped[0]


@pytest.mark.parametrize(
    ("line", "copies"),
    [
        ("-h amqp://h -u q -r 5", 1),
        ("-h amqp://h -y 3 -Y 2 -r 5", 6),
        ("-h amqp://h -u a,b -r 5", 2),
        ("-h amqp://h -u q -y 0 -r 5", 0),
    ],
)
def test_each_message_is_expected_at_every_queue(line: str, copies: int) -> None:
    """As expected_consumed has it: consumers without a named queue have one each."""
    assert copies_of(plan_of_words(line.split())) == {("", 1): copies}


def test_a_port_that_is_taken_is_told_before_the_run(call: Call, engine: Any, tmp_path: Path) -> None:
    """Not a word of it afterwards would help."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        code, _, err = run(call, tmp_path, "-mpr", "-mpp", str(taken.getsockname()[1]))
    assert code == 1 and "metrics cannot be served" in err and "-mpp" in err and engine.plans == []


def test_a_named_group_has_lines_of_its_own_and_background_no_average(records: ModuleType) -> None:
    """Scripts cut the lines of the measured load by its id, and average them."""
    plan = records.plan(steps=1)
    plan = replace(plan, groups=(plan.load, Group.background("noise", (QueueSpec(name="n"),), Settings())))
    for compact in (False, True):
        out = io.StringIO()
        board = Board(plan, Tally(), records.STARTED_NS, "", "")
        view = PlainView(board, Style(label="mine", compact=compact), out)
        view.merged(merge([interval(records)]))
        view.merged(merge([interval(records, group="noise", measured=False, published=900)]))
        view.close()
        lines = out.getvalue()
        assert ("id: mine noise, " in lines) is not compact
        assert "sending rate avg: 200 msg/s" in lines and ("1800" in lines) is not compact
