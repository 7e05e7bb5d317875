"""Small runs are taken whole by a task, large runs in parts: both must give the same tables, whatever is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from perftest.results import schema as files
from reports.compute import parsing
from reports.compute.run import run_tables
from reports.compute.run_files import READ, RunFiles
from reports.errors import EmptyRunError, RunChoiceError
from reports.pipeline import large_run_parts, source
from reports.pipeline.run import run_sources
from reports.pipeline.spark_jobs import by_spark, run
from reports.store import store
from reports.store.run_tables import LeftOut
from reports.store.schema import TABLES, damages_of
from tests.reports.testing.synthetic_runs import seal

pytestmark = [pytest.mark.slow, pytest.mark.spark]

ODD_NAME = "a run [of] {odd} names, 100 % #1? *"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> list[Path]:
    """Runs on one host and on several, one damaged in every file, one below a directory with a strange name."""
    base = tmp_path_factory.mktemp("ways") / ODD_NAME
    base.mkdir()
    spread = make_run(
        base / "spread", run_id="spread", steps=(4, 16), workers=3, hosts=2, broker_hosts=2, clock_offset_ns=10**9
    )
    stages = ("stage.delivery.fsync", "stage.delivery.total")
    alone = make_run(base / "alone", run_id="alone", steps=(1, 8), stages=stages, groups=("a", "b"))
    seal(alone)
    damaged = make_run(base / "damaged", run_id="damaged", steps=(2, 4), killed=True, steady=2)
    for name in (files.INTERVALS_CSV, files.EVENTS, files.HOST, files.BROKER, files.LATENCY_HLOG):
        path = damaged / name
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:5], b"spoiled \xff\r\n", b"\n", lines[5][:-30] + b"\n", *lines[6:]])[:-2])
    appended = make_run(base / "appended", run_id="appended", steps=(1,), workers=1)
    log = appended / files.LATENCY_HLOG
    log.write_text(log.read_text() + log.read_text().replace("1795256102.000", "1795256202.000"))
    return [spread, alone, damaged, appended, _changed(make_run(base / "changed", run_id="changed", steps=(1, 4)))]


def _changed(run_: Path) -> Path:
    """A run with checksums whose files have changed since, each in another way."""
    for name in (files.RESULT, files.INTERVALS_PARQUET, files.STATED):
        (run_ / name).write_text("whatever")
    seal(run_)
    (run_ / files.HOST).unlink()
    for name, change in {
        files.INTERVALS_CSV: lambda octets: octets.replace(b",steady,", b",steadY,", 1),
        files.LATENCY_HLOG: lambda octets: octets[: len(octets) // 2],
        files.EVENTS: lambda octets: octets + octets,
        files.BROKER: lambda octets: b"",
        files.LEDGER: lambda octets: octets.replace(b"unique", b"uniquE"),
        files.RESULT: lambda octets: b"Whatever",
        files.STATED: lambda octets: octets + b"\n",
    }.items():
        (run_ / name).write_bytes(change((run_ / name).read_bytes()))
    return run_


Stored = dict[str, dict[str, pa.Table]]
"""The tables of runs, by run and name."""


def tables_in(place: Path) -> Stored:
    """The tables of all runs of a store; a table of a run without rows is not there."""
    found: Stored = {}
    for run_id in store.Store.open(place).runs:
        rows = {table.name: store.arrow_table(place, table.name, [run_id]) for table in TABLES}
        found[run_id] = {name: table.combine_chunks() for name, table in rows.items() if len(table)}
    return found


@pytest.fixture(scope="module")
def whole(spark: SparkSession, runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """The tables of runs that a task takes whole."""
    place = tmp_path_factory.mktemp("whole")
    run(spark, runs, place)
    return tables_in(place)


def assert_same(found: Stored, expected: Stored) -> None:
    assert found.keys() == expected.keys() == {"spread", "alone", "damaged", "appended", "changed"}
    for run_id, tables in expected.items():
        assert found[run_id].keys() == tables.keys()
        for name, table in tables.items():
            assert found[run_id][name].equals(table), (run_id, name)


def test_both_ways_give_the_same_tables_bit_for_bit(
    spark: SparkSession, runs: list[Path], whole: Stored, tmp_path: Path
) -> None:
    """A run must not have other figures because it is long."""
    run(spark, runs, tmp_path / "store", small_run_bytes=1)
    assert_same(tables_in(tmp_path / "store"), whole)
    assert len(whole["damaged"]["quarantine"]) >= 10


def test_files_that_have_changed_are_named_and_what_is_left_is_used(whole: Stored) -> None:
    """A page of a spoiled copy must not look like the page of the run."""
    rows = damages_of(whole["changed"]["quarantine"].to_pylist()).files
    assert {file: reason.split(":")[0] for file, reason in rows.items()} == {
        files.INTERVALS_CSV: "has changed",
        files.LATENCY_HLOG: "is cut short",
        files.EVENTS: "has grown",
        files.BROKER: "is empty",
        files.LEDGER: "has changed",
        files.RESULT: "has changed",
        files.STATED: "has grown",
        files.HOST: "is missing",
    }
    assert len(whole["changed"]["steps"]) == 2
    assert "quarantine" not in whole["alone"]


def test_where_a_file_is_cut_changes_no_figure(
    spark: SparkSession, runs: list[Path], whole: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run must not have other figures because a machine has more cores: splits have a few lines, or parts of one."""
    monkeypatch.setattr(large_run_parts, "SPLIT_BYTES", 4096)
    monkeypatch.setattr("reports.pipeline.spark_jobs.LARGE_WAVE_BYTES", 1)
    run(spark, runs, tmp_path / "store", small_run_bytes=1)
    assert_same(tables_in(tmp_path / "store"), whole)


def test_this_process_gives_the_same_tables(runs: list[Path], whole: Stored, tmp_path: Path) -> None:
    """A report must not have other figures because it is small."""
    run_sources(source.list_runs(runs), tmp_path / "store")
    assert_same(tables_in(tmp_path / "store"), whole)


@given(text=st.binary(max_size=60).map(lambda octets: octets.replace(b"x", b"\n")), most=st.integers(1, 70))
def test_splits_have_every_line_once(tmp_path_factory: pytest.TempPathFactory, text: bytes, most: int) -> None:
    """A line belongs to the split in which it begins, wherever the cuts are."""
    folder = tmp_path_factory.getbasetemp() / "split"
    folder.mkdir(exist_ok=True)
    (folder / "lines").write_bytes(text)
    splits = large_run_parts.splits_of(str(folder), {"lines": len(text)}, ["lines", "absent"], most)
    assert b"".join(map(large_run_parts.octets_of_split, splits)) == text
    found = [line for split in splits for line in large_run_parts.lines_of_split(split)]
    assert found == list(parsing.lines_of(text))


def test_the_tables_are_those_of_a_plain_call(runs: list[Path], whole: Stored) -> None:
    """Spark and the store change nothing."""
    for path in runs:
        contents = {name: (path / name).read_bytes() for name in READ if (path / name).is_file()}
        tables = run_tables(RunFiles(source=str(path), contents=contents))
        assert {name for name, table in tables.items() if len(table)} == whole[path.name].keys()
        assert all(tables[name].equals(table) for name, table in whole[path.name].items())


def _newer(run_: Path) -> None:
    path = run_ / files.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 2}))


def _empty(run_: Path) -> None:
    (run_ / files.INTERVALS_CSV).write_text("")


def _cut(run_: Path) -> None:
    (run_ / files.MANIFEST).write_text('{"schema": 1,')


@pytest.mark.parametrize("small_run_bytes", [1, 10**9])
def test_runs_that_cannot_be_reported_are_left_out_beside_others(
    spark: SparkSession, tmp_path: Path, make_run: Callable[..., Path], small_run_bytes: int
) -> None:
    """Nineteen good rounds must not go without a report for three that were cut short, empty, or newer."""
    model = make_run(tmp_path / "run0", run_id="run0", steps=(1,), workers=1, steady=1)
    places = [model]
    for at in range(1, 8):
        copy = shutil.copytree(model, tmp_path / f"run{at}")
        manifest = json.loads((copy / files.MANIFEST).read_text())
        (copy / files.MANIFEST).write_text(json.dumps(manifest | {"id": f"run{at}"}))
        places.append(copy)
    for at, spoil in ((0, _newer), (3, _empty), (6, _cut)):
        spoil(places[at])
    published = run(spark, places, tmp_path / "store", small_run_bytes)
    assert sorted(published.runs) == ["run1", "run2", "run4", "run5", "run7"]
    reasons = {Path(each.source).name: each.reason for each in published.left_out}
    assert reasons.keys() == {"run0", "run3", "run6"}
    assert "schema 2" in reasons["run0"] and "nothing was measured" in reasons["run3"] and "JSON" in reasons["run6"]
    assert all(isinstance(each, LeftOut) and each.signature for each in published.left_out)
    assert set(store.read_tables(tmp_path / "store").runs["run_id"]) == set(published.runs)


def test_a_copy_of_a_run_is_refused(spark: SparkSession, tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """Counting a run twice doubles every rate of it."""
    model = make_run(tmp_path / "run", steps=(1,), workers=1, steady=1)
    copy = shutil.copytree(model, tmp_path / "copy")
    with pytest.raises(RunChoiceError, match="two directories"):
        run(spark, [model, copy], tmp_path / "store")
    _empty(model)
    with pytest.raises(EmptyRunError):
        run(spark, [model], tmp_path / "store")
    published = run_sources(source.list_runs([model]), tmp_path / "store", by_spark(spark), others=True)
    assert not published.runs and len(published.left_out) == 1
