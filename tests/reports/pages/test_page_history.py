"""A metric over time: which runs count, which changes are told, and how the page and the terminal show them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow as pa
import pytest

from perftest.cli.main import call
from reports.html.render import render
from reports.pages.model import History
from reports.pages.several.history import history_page, sentences
from reports.stats.history import COLUMNS, METRICS, HistoryMetric, history, history_metric, origin
from reports.store.columns import TableSpec
from reports.store.run_tables import RunTables
from reports.store.schema import HOSTS, RUNS, STEPS
from reports.store.store import Store
from reports.store.tables import Tables

DAY_NS = 24 * 3600 * 10**9
BEFORE, AFTER = [2.0, 2.1, 2.05, 1.98, 2.02, 2.07], [3.0, 3.1, 3.05, 2.98, 3.02, 3.07]


def tables_over_days(sample_tables: ModuleType, values_ms: list[float], change: int = 6) -> Tables:
    """Runs of one step, a day apart, with these p99; the broker's version changes at ``change``."""
    one = sample_tables.tables(sample_tables.SWEEP)
    parts = [_of_day(one, day, value, "4.0" if day < change else "4.1") for day, value in enumerate(values_ms)]
    frames = {each.name: pd.concat([getattr(part, each.name) for part in parts]) for each in fields(Tables)}
    return Tables(**{name: frame.reset_index(drop=True) for name, frame in frames.items()})


def _of_day(one: Tables, day: int, p99_ms: float, version: str) -> Tables:
    run_id = f"run-{day:02}"
    frames = {each.name: getattr(one, each.name).assign(run_id=run_id) for each in fields(Tables)}
    runs = frames["runs"].head(1)
    started = runs["started_ns"] + day * DAY_NS
    frames["runs"] = runs.assign(started_ns=started, product="Some", broker_version=version, tool_commit="abc")
    frames["steps"] = frames["steps"].head(1).assign(e2e_p99_ns=round(p99_ms * 1e6))
    return Tables(**frames)


def test_a_change_stands_beside_the_version_that_came_with_it(sample_tables: ModuleType) -> None:
    found = history(tables_over_days(sample_tables, BEFORE + AFTER), history_metric("p99"))
    (series,) = found.series
    (change,) = series.changes
    assert change.index == 6 and origin(series, change) == "broker Some 4.0 → Some 4.1"
    said = sentences(found)
    assert said[0] == "e2e.p99: 1 change found."
    assert "worse" in said[1] and "run-06" in said[1] and "4.0 → Some 4.1" in said[1]


def test_too_few_runs_are_no_verdict(sample_tables: ModuleType) -> None:
    found = history(tables_over_days(sample_tables, BEFORE[:2] + AFTER[:3]), history_metric("p99"))
    assert not found.series[0].changes and any("Too few runs" in text for text in sentences(found))


def test_the_page_has_every_run_and_the_verdict_first(sample_tables: ModuleType) -> None:
    found = history(tables_over_days(sample_tables, BEFORE + AFTER), history_metric("e2e.p99"))
    html = render(history_page(found, workload="w", generated="now"))
    assert all(f"run-{day:02}" in html for day in range(12))
    assert html.index("1 change found") < html.index("Every run") and "a dashed line marks" in html


def test_a_metric_that_no_run_measured_has_no_value(sample_tables: ModuleType) -> None:
    """A zero would be read as a measurement."""
    tables = tables_over_days(sample_tables, BEFORE + AFTER)
    for nothing in (0, None):
        empty = replace(tables, steps=tables.steps.assign(broker_cpu_us_per_message=nothing))
        made = history_page(history(empty, history_metric("broker_cpu")), workload="w", generated="now")
        ((_, part),) = made.parts
        assert isinstance(part, History) and part.subtitle == "not measured" and not part.charts
        assert [each.text for each in part.sentences] == ["No run measured broker_cpu, so there is no value to follow."]


def test_the_head_has_the_trust_lists_that_the_runs_recorded(sample_tables: ModuleType) -> None:
    """A change of figures that are not valid is no change of the broker."""
    tables = tables_over_days(sample_tables, BEFORE + AFTER)
    lists = [[{"check": "ledger", "status": "pass", "text": "all there"}]] * 11
    lists += [[{"check": "ledger", "status": "pass", "text": ""}, {"check": "clock", "status": "fail", "text": ""}]]
    tables = replace(tables, runs=tables.runs.assign(manifest=[json.dumps({"trust": each}) for each in lists]))
    ((_, part),) = history_page(history(tables, history_metric("p99")), workload="w", generated="now").parts
    assert isinstance(part, History)
    assert [chip.value for chip in part.chips] == ["nothing lost", "11 of 12 runs valid"]


def test_metrics_have_the_names_of_compare() -> None:
    from perftest.metrics.interval import Series
    from reports.comparison.figures import metrics_of

    ours = {each.name for each in METRICS}
    assert {each.name for each in metrics_of({Series.E2E, Series.CONFIRM})} <= ours
    with pytest.raises(ValueError, match=r"did you mean e2e\.p99\?"):
        history_metric("e2ep99")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_history_needs_the_columns_that_are_read_for_it(sample_tables: ModuleType, metric: HistoryMetric) -> None:
    """Of thousands of runs nothing else is read."""
    whole = tables_over_days(sample_tables, BEFORE + AFTER)
    none = {each.name: getattr(whole, each.name).head(0) for each in fields(Tables)}
    read = {name: getattr(whole, name)[list(columns)] for name, columns in COLUMNS.items()}
    found, expected = history(Tables(**none | read), metric), history(whole, metric)
    assert [each.changes for each in found.series] == [each.changes for each in expected.series]
    assert [each.runs.to_dict() for each in found.series] == [each.runs.to_dict() for each in expected.series]


@pytest.fixture
def store(sample_tables: ModuleType, tmp_path: Path) -> Path:
    place = tmp_path / "store"
    tables = tables_over_days(sample_tables, BEFORE + AFTER)
    with Store.open(place).publication() as writer:
        for run in tables.runs.to_dict("records"):
            kept = {table.name: _rows(tables, table, run["run_id"]) for table in (RUNS, STEPS, HOSTS)}
            place_of_run = f"runs/{run['run_id']}"
            writer.add(
                RunTables(
                    run_id=run["run_id"],
                    source=place_of_run,
                    signature="as it is",
                    started_ns=run["started_ns"],
                    tables=kept,
                )
            )
        writer.land()
    return place


def _rows(tables: Tables, table: TableSpec, run_id: str) -> pa.Table:
    frame = getattr(tables, table.name)
    rows = json.loads(frame[frame["run_id"] == run_id].to_json(orient="records", double_precision=15))
    return pa.Table.from_pylist(rows, table.arrow)


def test_the_command_plots_and_writes_json_and_csv(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert call(["history", "p99", "--store", str(store), "--page", str(page)]) == 0
    out = capsys.readouterr().out
    assert "1 change found" in out and "--- change: " in out and out.count("█") > 12 and page.is_file()
    assert call(["history", "p99", "--store", str(store), "--json"]) == 0
    (series,) = json.loads(capsys.readouterr().out)["series"]
    assert len(series["runs"]) == 12 and series["changes"][0]["run_id"] == "run-06"
    assert call(["history", "p99", "--store", str(store), "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13 and [line for line in lines if line.endswith("change")][1:] == [lines[7]]


def test_filters(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["history", "p99", "--store", str(store), "--broker", "some 4.1", "--json"]) == 0
    (series,) = json.loads(capsys.readouterr().out)["series"]
    assert [each["run_id"] for each in series["runs"]] == [f"run-{day:02}" for day in range(6, 12)]


@pytest.mark.parametrize(
    "wrong",
    [["p98"], ["p99", "--broker", "none"], ["p99", "--since", "soon"], ["p99", "--set", "in_flight=-7"],
     ["p99", "--json", "--csv"], ["p99", "--workload", "none"], ["p99", "--host", "none"]],
)  # fmt: skip
def test_what_is_not_there_is_told(store: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    assert call(["history", *wrong, "--store", str(store)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "  fix  " in said and "bug" not in said


def test_no_store_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["history", "p99", "--store", str(tmp_path / "none")]) == 2
    assert "no report store" in capsys.readouterr().err
