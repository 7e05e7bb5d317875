"""``reports.build``: from a store on disk to the files of a report."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import reports
from reports.errors import PageError, PipelineError
from reports.store import schema
from reports.store.run_tables import LeftOut, RunTables
from reports.store.store import Store


@pytest.fixture
def store(tmp_path: Path, sample_tables: ModuleType) -> Path:
    """A store with the sample sweep, as a publication of the pipeline leaves it."""
    directory = tmp_path / "store"
    sample = sample_tables.SWEEP
    tables = sample_tables.tables(sample)
    rows = {
        table.name: pa.Table.from_pandas(getattr(tables, table.name), table.arrow, preserve_index=False)
        for table in schema.TABLES
    }
    started_ns = int(tables.runs["started_ns"].iloc[0])
    run = RunTables(run_id=sample.run_id, source="runs/x", signature="1", started_ns=started_ns, tables=rows)
    with Store.open(directory).publication() as writer:
        writer.add(run)
        writer.add(LeftOut(source="runs/<cut short>", signature="1", reason="the run has no interval"))
        writer.land()
    return directory


def test_build_writes_the_four_files(store: Path, tmp_path: Path) -> None:
    """Page for people, CSV for spreadsheets, JSON for programs."""
    out = tmp_path / "out"
    made = reports.build(store, out, command=["perftest", "report", "runs/x"])
    assert made == out / "report.html"
    files = sorted(str(file.relative_to(out)) for file in out.rglob("*") if file.is_file())
    assert files == ["data/spectrum.csv", "data/steps.csv", "report.html", "summary.json"]
    assert "perftest report runs/x" in made.read_text(encoding="utf-8")


def test_csv_has_a_row_per_step_with_every_column(store: Path, tmp_path: Path, sample_tables: ModuleType) -> None:
    """What is on the page can be computed on elsewhere, at full precision."""
    reports.build(store, tmp_path / "out")
    with (tmp_path / "out" / "data" / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [sample_tables.SWEEP.label(step) for step in sample_tables.IN_FLIGHT]
    assert set(rows[0]) == set(schema.STEPS.names)
    assert float(rows[4]["delivered_per_s"]) == 205_300.0


def test_summary_says_what_the_page_says(store: Path, tmp_path: Path, sample_tables: ModuleType) -> None:
    """A program that judges the run must come to the reader's verdict."""
    reports.build(store, tmp_path / "out")
    summary: dict[str, Any] = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["schema"] == 2
    (run,) = summary["runs"]
    assert run["run_id"] == sample_tables.SWEEP.run_id
    assert len(run["sentences"]) == 5
    assert run["chips"]["Ledger"] == {"value": "nothing lost", "status": "pass"}
    assert [step["delivered_per_s"] for step in run["steps"]] == [step.rate for step in sample_tables.IN_FLIGHT]
    assert run["ledger"]["lost"] == 0


def test_a_run_that_was_left_out_is_named(store: Path, tmp_path: Path) -> None:
    """A reader who expects twenty runs must see which one is missing, and why."""
    made = reports.build(store, tmp_path / "out")
    assert "runs/&lt;cut short&gt;: the run has no interval." in made.read_text(encoding="utf-8")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["banners"] == ["runs/<cut short>: the run has no interval."]


def test_raw_files_are_listed_while_they_are_there(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_tables: ModuleType
) -> None:
    """The page names what it was made from; of a directory that is gone it claims nothing."""
    monkeypatch.chdir(tmp_path)
    assert "raw files of" not in reports.build(store, tmp_path / "a").read_text(encoding="utf-8")
    directory = tmp_path / "runs" / sample_tables.SWEEP.run_id
    directory.mkdir(parents=True)
    (directory / "latency.hlog").write_text("x" * 1234, encoding="utf-8")
    assert "1 raw files of" in reports.build(store, tmp_path / "b").read_text(encoding="utf-8")


def test_a_second_build_replaces_the_first_and_leaves_nothing_beside(store: Path, tmp_path: Path) -> None:
    """A page that is open in a browser is never half written."""
    out = tmp_path / "out"
    reports.build(store, out)
    (out / "report.html").write_text("old", encoding="utf-8")
    reports.build(store, out)
    assert (out / "report.html").stat().st_size > 1_000_000
    assert list(out.rglob(".*")) == []


def test_no_store_is_a_typed_error(tmp_path: Path) -> None:
    """What, where, what to do."""
    with pytest.raises(PipelineError):
        reports.build(tmp_path / "nothing", tmp_path / "out")


def test_an_output_that_cannot_be_written_is_a_typed_error(store: Path, tmp_path: Path) -> None:
    """A file where the directory should be is the commonest case."""
    (tmp_path / "out").write_text("in the way", encoding="utf-8")
    with pytest.raises(PageError) as caught:
        reports.build(store, tmp_path / "out")
    lines = caught.value.lines().splitlines()
    assert str(tmp_path / "out") in lines[1]
    assert len(lines) == 3


def test_building_starts_no_jvm_and_imports_neither_pyspark_nor_plotly(store: Path, tmp_path: Path) -> None:
    """Both take seconds; a page is asked for again and again."""
    program = (
        "import sys, pathlib, reports\n"
        "assert 'pandas' not in sys.modules, 'pandas before a page is asked for'\n"
        "reports.build(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
        "print(sorted({'pyspark', 'plotly', 'py4j'} & set(sys.modules)))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JAVA_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(store), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"
