"""The run directory: a killed or cut-short run is still worth its time, a foreign one must not be misread."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow.parquet
import pytest
from hdrh.log import HistogramLogReader

from perftest.metrics.interval import Phase
from perftest.results import schema
from perftest.results.errors import NewerRunError, NotARunError, RunNotWritableError
from perftest.results.reader import earlier_run, read_manifest, read_run, summarise
from perftest.results.writer import RunWriter
from perftest.spec.plan import Group, QueueSpec, Settings
from tests.perftest.testing.earlier_run import forget_checksums
from tests.perftest.testing.figures import figures

STREAMS = (schema.INTERVALS_CSV, schema.LATENCY_HLOG, schema.EVENTS, schema.HOST, schema.BROKER)


def test_a_finished_run_reads_back(tmp_path: Path, records: ModuleType) -> None:
    """Every figure can be computed again from the raw files: the result is derived, not remembered."""
    run = read_run(records.write_run(tmp_path).path)
    asked = records.intervals(records.plan())
    assert [(i.step, i.phase, i.start_ns, i.published, i.worker_cpu_ns) for i in run.intervals] == [
        (i.step, i.phase, i.start_ns, i.published, i.worker_cpu_ns) for i in asked
    ]
    assert [(h.series, h.payload, h.max_ns) for h in run.histograms] == [
        (series, figures(item).payload, item.max_ns) for i in asked for series, item in i.latencies.items()
    ]
    assert run.result == json.loads(json.dumps(summarise(run)))
    assert (run.killed, run.damaged) == (False, [])
    assert run.manifest["state"] == "finished" and run.manifest["ended"] == {"reason": "finished", "exit_code": 0}


def test_the_generators_health_is_in_the_rows(tmp_path: Path, records: ModuleType) -> None:
    """The worst worker counts, and the steal of a host once, however many workers it has."""
    plan = records.plan(steps=1)
    writer = records.RunWriter(tmp_path, plan, ["perftest"], now_ns=records.STARTED_NS)
    writer.manifest["hosts"][0]["cores"] = 4
    told = []
    for worker, wait_ns, pause_ns in (("0", 10**8, 5), ("1", 2 * 10**8, 7)):
        health = {"worker_wait_ns": wait_ns, "gc_collections": 2, "gc_pause_ns": pause_ns, "steal_ns": 4 * 10**7}
        told += [replace(record, **health) for record in records.intervals(plan, worker=worker)]
    for record in sorted(told, key=lambda record: record.start_ns):
        writer.interval(record)
    writer.finish("finished", "finished")
    row = writer.rows[0]
    assert (row["worker_wait_share"], row["gc_collections"], row["gc_pause_ns"]) == (0.2, 12, 7)
    assert row["steal_share"] == 0.01
    assert summarise(read_run(writer.path))["steps"] == json.loads(json.dumps(writer.rows))


def test_rows_count_steady_intervals_only(tmp_path: Path, records: ModuleType) -> None:
    """Warm-up in a result would make the first seconds of a connection part of its rate."""
    run = read_run(records.write_run(tmp_path).path)
    assert run.result is not None
    row = run.result["steps"][1]
    assert (row["published"], row["published_per_s"], row["length_ns"]) == (3 * 400, 400.0, 3 * records.SECOND)
    assert row["latency"]["e2e"]["count"] == 3 * 400
    steady = [i for i in records.intervals(records.plan()) if i.step == 2 and i.phase == "steady"]
    assert row["latency"]["e2e"]["max_ns"] == max(item.latencies["e2e"].max_ns for item in steady)
    assert row["worker_cpu_us_per_message"] == 250.0
    assert row["broker_cpu_us_per_message"] == pytest.approx(500.0, rel=1e-6)


def test_a_killed_run_is_summed_up_from_what_is_there(tmp_path: Path, records: ModuleType) -> None:
    """kill -9 costs the last interval, not the run."""
    run = read_run(records.write_run(tmp_path, finish=False).path)
    assert run.killed and run.result is None and run.ledger is None
    result = summarise(run)
    assert [row["step"] for row in result["steps"]] == [1, 2, 3]
    assert any(check["check"] == "ledger" and check["status"] == "fail" for check in result["trust"])


@pytest.mark.parametrize("name", STREAMS)
def test_every_truncation_of_the_last_line_costs_that_line_only(tmp_path: Path, records: ModuleType, name: str) -> None:
    """A number cut in two still looks like a number: a line without its end is never believed."""
    path = records.write_run(tmp_path, finish=False).path
    whole = (path / name).read_bytes()
    count = _records(read_run(path), name)
    last = whole[:-1].rfind(b"\n") + 1
    step = max((len(whole) - last) // 200, 1)
    for end in [*range(last, len(whole), step), len(whole) - 1]:
        (path / name).write_bytes(whole[:end])
        run = read_run(path)
        assert _records(run, name) == count - 1, f"cut at {end} of {len(whole)}"
        assert len(run.damaged) == (0 if end == last else 1)


def test_a_file_that_was_never_written_is_empty(tmp_path: Path, records: ModuleType) -> None:
    """A run killed in its first instant has a manifest and nothing else."""
    path = records.write_run(tmp_path, finish=False).path
    for name in STREAMS:
        (path / name).unlink()
    run = read_run(path)
    assert (run.intervals, run.histograms, run.events) == ([], [], [])
    assert summarise(run)["steps"] == []


def test_damaged_lines_are_listed_not_believed(tmp_path: Path, records: ModuleType) -> None:
    """A bad sector in the middle must neither stop the report nor go into a percentile."""
    path = records.write_run(tmp_path, finish=False).path
    for name in STREAMS:
        lines = (path / name).read_text().splitlines(keepends=True)
        middle = len(lines) // 2 if len(lines) > 1 else 0
        lines[middle] = "\x00garbage,;=" + lines[middle][20:]
        (path / name).write_text("".join(lines))
    run = read_run(path)
    assert sorted({item.file for item in run.damaged}) == sorted(STREAMS)
    assert all(item.line > 0 and item.reason for item in run.damaged)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A report of the wrong directory would be a report of nothing."""
    with pytest.raises(NotARunError, match="is missing") as caught:
        read_manifest(tmp_path)
    assert str(tmp_path) in caught.value.where and caught.value.fix
    for text in ("{", "[]", "{}", '{"schema": 1}', '{"schema": "1"}'):
        (tmp_path / schema.MANIFEST).write_text(text)
        with pytest.raises(NotARunError):
            read_manifest(tmp_path)


def test_a_newer_run_is_refused(tmp_path: Path, records: ModuleType) -> None:
    """An old reader that misreads a new run would print wrong numbers with confidence."""
    path = records.write_run(tmp_path).path
    manifest = json.loads((path / schema.MANIFEST).read_text())
    (path / schema.MANIFEST).write_text(json.dumps({**manifest, "schema": schema.SCHEMA_VERSION + 1}))
    with pytest.raises(NewerRunError, match="has schema 2"):
        read_run(path)


def test_no_password_is_written(tmp_path: Path, records: ModuleType) -> None:
    """Run directories are attached to tickets."""
    writer = records.write_run(tmp_path)
    writer.describe_broker(nodes=[{"amqp_uri": "amqp://u:s3cret@h"}])
    for file in writer.path.iterdir():
        assert b"s3cret" not in file.read_bytes(), file.name
    assert read_manifest(writer.path)["command"][3] == "amqp://guest:***@127.0.0.1:5691"


def test_the_log_is_one_that_hdrhistograms_tools_read(tmp_path: Path, records: ModuleType) -> None:
    """Others' plotters must open it."""
    path = records.write_run(tmp_path).path
    reader = HistogramLogReader(str(path / schema.LATENCY_HLOG), None)
    first = records.intervals(records.plan())[0].latencies
    read = [reader.get_next_interval_histogram() for _ in first]
    assert [item.get_total_count() for item in read] == [figures(item).count for item in first.values()]
    assert read[0].get_tag() == "e2e;step=1;phase=warmup;host=local;worker=0"
    reader.input_file.close()


def test_the_csv_begins_with_perftests_columns(tmp_path: Path, records: ModuleType) -> None:
    """Scripts that read PerfTest's output file keep working."""
    path = records.write_run(tmp_path).path
    header, first = (path / schema.INTERVALS_CSV).read_text().splitlines()[:2]
    assert header.split(",") == [*schema.PERFTEST_COLUMNS, *schema.OWN_COLUMNS]
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    record = records.intervals(records.plan())[0]
    assert cells["time (s)"] == "1.000" and cells["published (msg/s)"] == "200.0"
    assert cells["median consumer latency (µs)"] == str(figures(record.latencies["e2e"]).p50_ns // 1000)


def test_parquet_holds_the_same_intervals(tmp_path: Path, records: ModuleType) -> None:
    """The typed copy must not disagree with the text."""
    path = records.write_run(tmp_path).path
    table = pyarrow.parquet.read_table(path / schema.INTERVALS_PARQUET)
    assert table.column_names == [*schema.PERFTEST_COLUMNS, *schema.OWN_COLUMNS]
    assert table["start_ns"].to_pylist() == [item.start_ns for item in read_run(path).intervals]


def test_the_manifest_exists_before_the_first_message(tmp_path: Path, records: ModuleType) -> None:
    """A run that dies at once can still be told from a foreign directory."""
    writer = records.RunWriter(tmp_path, records.plan(), ["perftest"])
    writer.close()
    run = read_run(writer.path)
    assert run.killed and run.manifest["plan"]["digest"]


def test_a_directory_that_cannot_be_made_is_an_error_for_people(tmp_path: Path, records: ModuleType) -> None:
    """Not a traceback after the cluster was started."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RunNotWritableError, match="Not a directory") as caught:
        records.RunWriter(tmp_path / "file", records.plan(), ["perftest"])
    assert "--out" in caught.value.fix


def test_a_full_drive_keeps_what_was_written(tmp_path: Path, records: ModuleType) -> None:
    """The run ends, and what was measured before is a readable run directory with its end in the manifest."""
    writer = records.write_run(tmp_path, finish=False, close=False)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._files[schema.HOST]._file.fileno())
    os.close(full)
    with pytest.raises(RunNotWritableError, match="No space left") as caught:
        writer.host({"t_ns": 1})
    assert caught.value.where.endswith(schema.HOST)
    with pytest.raises(RunNotWritableError):
        writer.finish("failed", "the drive is full", 1)
    run = read_run(writer.path)
    assert run.manifest["state"] == "failed" and len(run.intervals) == 12
    assert run.result is not None and len(run.result["steps"]) == 3


@pytest.mark.parametrize("at", ["host_facts", "write_atomically", "_LinesFile"])
def test_a_run_that_is_interrupted_while_its_directory_is_made_leaves_none(
    tmp_path: Path, records: ModuleType, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A directory without a manifest is no run, and stands in the way of whoever lists runs."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"perftest.results.writer.{at}", interrupt)
    with pytest.raises(KeyboardInterrupt):
        records.RunWriter(tmp_path, records.plan(), ["perftest"])
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_interrupted_before_it_measures_leaves_no_directory(tmp_path: Path, records: ModuleType) -> None:
    """By a signal within the block of the run, or by an engine that was asked to stop."""
    writer = records.RunWriter(tmp_path, records.plan(), ["perftest"])
    with pytest.raises(KeyboardInterrupt), writer.recording():
        writer.event({"t_ns": 1, "kind": "connected"})
        raise KeyboardInterrupt
    asked = records.RunWriter(tmp_path, records.plan(), ["perftest"])
    asked.finish("interrupted", "stopped by Ctrl-C")
    asked.end("interrupted", "stopped by Ctrl-C", 130)
    assert (writer.discarded, asked.discarded) == (True, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("state", "connected", "kept"), [
    ("failed", False, False), ("failed", True, True), ("finished", False, True)
])  # fmt: skip
def test_a_run_that_never_connected_leaves_no_directory(
    tmp_path: Path, records: ModuleType, state: str, connected: bool, kept: bool
) -> None:
    """A run that failed later, or that somebody wanted to be empty, stays."""
    writer = records.RunWriter(tmp_path, records.plan(), ["perftest"])
    writer.interval(replace(records.intervals(writer.plan)[0], intended=0, published=0, confirmed=0, delivered=0))
    writer.finish(state, "as it was", connected=connected)
    writer.end(state, "as it was", 1)
    assert writer.discarded is not kept and [*tmp_path.iterdir()] == [writer.path] * kept


def test_what_was_measured_or_published_before_an_interruption_stays(tmp_path: Path, records: ModuleType) -> None:
    measured = records.write_run(tmp_path, finish=False, close=False)
    with pytest.raises(KeyboardInterrupt), measured.recording():
        raise KeyboardInterrupt
    published = records.RunWriter(tmp_path, records.plan(), ["perftest"])
    published.ledger(records.ledger(published=7))
    published.finish("interrupted", "")
    failed = records.RunWriter(tmp_path, records.plan(), ["perftest"])
    with pytest.raises(ValueError, match="bug"), failed.recording():
        raise ValueError("bug")
    states = {each.name: read_manifest(each)["state"] for each in tmp_path.iterdir()}
    assert states == {measured.id: "interrupted", published.id: "interrupted", failed.id: "failed"}
    assert read_manifest(measured.path)["ended"]["exit_code"] == 130


def _records(run: object, name: str) -> int:
    attribute = {
        schema.INTERVALS_CSV: "intervals",
        schema.LATENCY_HLOG: "histograms",
        schema.EVENTS: "events",
        schema.HOST: "host",
        schema.BROKER: "broker",
    }[name]
    return len(getattr(run, attribute))


def test_a_run_of_an_earlier_version_lacks_columns_and_reads_back(tmp_path: Path, records: ModuleType) -> None:
    path = records.write_run(tmp_path).path
    file = path / schema.INTERVALS_CSV
    fewer = len(schema.LATER_COLUMNS)
    lines = [line.rsplit(",", fewer)[0] for line in file.read_text(encoding="utf-8").splitlines()]
    before = read_run(path).intervals
    forget_checksums(path)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = read_run(path)
    assert (run.intervals, run.damaged) == (before, [])


def test_how_a_background_load_ended_is_in_the_manifest(tmp_path: Path, records: ModuleType) -> None:
    writer = records.write_run(tmp_path, finish=False, close=False)
    writer.event({"t_ns": 5, "kind": "background_ended", "text": "…", "name": "noise", "published": 7})
    writer.finish("finished", "finished")
    assert read_manifest(writer.path)["background"] == [{"name": "noise", "published": 7}]


def test_a_step_that_was_cut_off_before_any_message_has_no_row(tmp_path: Path, records: ModuleType) -> None:
    """Its empty figures would make the whole run untrustworthy; a silent second is a figure."""
    plan = records.plan()
    first, *_ = records.intervals(plan)
    silent = replace(first, phase=Phase.STEADY, step=2, published=0, delivered=0, latencies={})
    for length_ns, steps in ((records.SECOND // 50, [1]), (records.SECOND, [1, 2])):
        writer = RunWriter(tmp_path, plan, ["perftest"])
        writer.interval(replace(first, phase=Phase.STEADY))
        writer.interval(replace(silent, length_ns=length_ns))
        writer.finish("interrupted", "")
        assert [row["step"] for row in writer.rows] == steps
        assert [row["step"] for row in summarise(read_run(writer.path))["steps"]] == steps


def test_beside_a_background_load_the_brokers_cpu_is_nobodys(tmp_path: Path, records: ModuleType) -> None:
    """It served both; a figure per measured message would be wrong by any factor."""
    beside = Group.background(name="b", queues=(QueueSpec(name="b"),), settings=Settings())
    for background, known in (((), True), ((beside,), False)):
        plan = replace(records.plan(), groups=(records.plan().load, *background))
        writer = RunWriter(tmp_path, plan, ["perftest"], now_ns=records.STARTED_NS)
        for record in records.intervals(plan):
            writer.interval(record)
        for second in (0, 12):
            t_ns = records.STARTED_NS + second * records.SECOND
            writer.broker({"t_ns": t_ns, "node": "n1", "pid": 1, "cpu_ns": second * 10**8})
        writer.finish("finished", "")
        assert all((row["broker_cpu_us_per_message"] is not None) == known for row in writer.rows)


def test_the_run_before_is_the_last_by_its_clock_and_not_by_its_name(tmp_path: Path, records: ModuleType) -> None:
    """The digits at the end of a name are random: within one second they say nothing of the order."""
    plan = records.plan(steps=1)
    second = 1_700_000_000 * records.SECOND
    writers = [records.RunWriter(tmp_path, plan, ["perftest"], now_ns=second + tenth * 10**8) for tenth in range(8)]
    for writer in writers:
        writer.finish("failed" if writer is writers[3] else "finished", "")
    digest = writers[0].manifest["plan"]["digest"]
    before = [earlier_run(writer.path, digest) for writer in writers]
    assert before == [None, *(writers[n].path for n in (0, 1, 2, 2, 4, 5, 6))]
    assert earlier_run(writers[7].path, "another plan") is None


def test_runs_of_the_same_second_have_directories_of_their_own(
    tmp_path: Path, records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if chance draws the same digits again."""
    drawn = iter(("dc2b", "dc2b", "dc2b", "07aa"))
    monkeypatch.setattr("perftest.results.writer.secrets.token_hex", lambda _octets: next(drawn))
    runs = [RunWriter(tmp_path, records.plan(), ["perftest"], now_ns=10**18) for _ in range(2)]
    assert [run.id[-5:] for run in runs] == ["-dc2b", "-07aa"] and all(run.path.is_dir() for run in runs)
    for run in runs:
        run.close()
    with pytest.raises(RunNotWritableError, match="File exists"):
        RunWriter(tmp_path, records.plan(), ["perftest"], identity=runs[0].id)
