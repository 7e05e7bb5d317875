"""The catalogue on the command line: what a person finds, marks and asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from perftest.cli.report import LOCAL, Spark
from perftest.cli.store.catalogue import plain_setting
from perftest.exits import Exit
from reports.compute.run import run_tables
from reports.compute.run_files import READ, RunFiles
from reports.store.run_tables import RunTables
from reports.store.store import Store

Call = Callable[..., tuple[int, str, str]]
OLD, NEW = "20261120-101502-in_flight-0001", "20261121-101502-in_flight-0002"
DAY_NS = 86_400 * 10**9


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs, a day apart."""
    from tests.reports.testing.synthetic_runs import make_run

    folder = tmp_path_factory.mktemp("catalogue")
    runs = [
        make_run(folder / run_id, run_id=run_id, steps=(1, 64), seed=seed) for seed, run_id in enumerate((OLD, NEW), 1)
    ]
    return _stored(folder / "store", runs)


def _stored(store: Path, runs: Sequence[Path]) -> Path:
    """A store of these runs, each a day after the one before."""
    with Store.open(store).publication() as writer:
        for number, path in enumerate(runs):
            contents = {name: (path / name).read_bytes() for name in READ if (path / name).is_file()}
            tables = run_tables(RunFiles(source=str(path), contents=contents))
            (row,) = tables["runs"].to_pylist()
            tables |= {"runs": pyarrow.Table.from_pylist([_moved(row, number)], tables["runs"].schema)}
            started_ns = row["started_ns"] - (1 - number) * DAY_NS
            writer.add(
                RunTables(
                    run_id=row["run_id"],
                    source=str(path),
                    signature="s",
                    started_ns=started_ns,
                    tables=tables,
                )
            )
        writer.land()
    return store


@pytest.mark.parametrize(
    ("words", "code"),
    [(("runs", "list"), 0), (("runs", "show", NEW), 0), (("history", "p99", "--set", "in_flight=1"), Exit.DAMAGED)],
)
def test_damaged_runs_of_a_store_are_named(call: Call, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    """The figures of a run that lost half a file stand beside those of sound runs."""
    from tests.reports.testing.synthetic_runs import make_run, seal

    runs = [make_run(tmp_path / run_id, run_id=run_id, steps=(1,), workers=1) for run_id in (OLD, NEW)]
    for run in runs:
        seal(run)
    (runs[1] / "ledger.json").unlink()
    found, _, err = call(*words, "--store", str(_stored(tmp_path / "store", runs)))
    assert (found, err) == (code, f"damaged: {runs[1]}: ledger.json is missing\n")


def _moved(row: dict[str, Any], number: int) -> dict[str, Any]:
    return row | {"started_ns": row["started_ns"] - (1 - number) * DAY_NS, "broker_version": f"{number + 3}.0"}


def test_runs_are_listed_with_the_newest_first(call: Call, place: Path) -> None:
    code, out, _ = call("runs", "list", "--store", str(place))
    assert code == 0
    assert out.index(NEW) < out.index(OLD)
    assert "delivered/s" in out and "passed" in out


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ((), [NEW, OLD]),
        (("--limit", "1"), [NEW]),
        (("--setting", "in_flight=64"), [NEW, OLD]),
        (("--setting", "in_flight=2"), []),
        (("--setting", "size=1k", "--setting", "size_bytes=1kB"), [NEW, OLD]),
        (("--setting", "size=1KiB"), []),
        (("--since", "2026-11-21"), [NEW]),
        (("--before", "2026-11-21T00:00"), [OLD]),
        (("--workload", "nothing/*"), []),
        (("--verdict", "passed"), [NEW, OLD]),
        (("--verdict", "killed"), []),
        (("--tag", "nobody-gave-it"), []),
    ],
)
def test_filters(call: Call, place: Path, filters: tuple[str, ...], found: list[str]) -> None:
    code, out, _ = call("runs", "list", "--store", str(place), "--json", *filters)
    assert (code, [row["run"] for row in json.loads(out)]) == (0, found)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("size=1k", "size_bytes=1000"),
        ("size_bytes=1KiB", "size_bytes=1024"),
        ("rate=2k/s", "rate=2000"),
        ("consumer_latency=5ms", "consumer_latency_us=5000"),
        ("consumer_latency_us=5", "consumer_latency_us=5"),
        ("in_flight=no_confirms", "in_flight=no_confirms"),
        ("in_flight=5x", "in_flight=5x"),
        ("colour=1k", "colour=1k"),
        ("in_flight", "in_flight"),
    ],
)
def test_a_setting_may_be_written_as_in_a_workload(text: str, plain: str) -> None:
    assert plain_setting(text) == plain


def test_a_run_is_marked_and_found_by_its_mark(call: Call, place: Path) -> None:
    assert call("runs", "tag", NEW, "baseline", "nightly", "--store", str(place))[:2] == (0, "baseline, nightly\n")
    assert call("runs", "tag", NEW, "--remove", "nightly", "--store", str(place))[:2] == (0, "baseline\n")
    assert call("runs", "note", NEW, "new drive", "--store", str(place))[:2] == (0, "new drive\n")
    _, out, _ = call("runs", "list", "--tag", "baseline", "--store", str(place), "--json")
    (row,) = json.loads(out)
    assert (row["run"], row["tags"], row["note"]) == (NEW, ["baseline"], "new drive")
    _, out, _ = call("runs", "show", f"runs/{NEW}", "--store", str(place))
    assert "new drive" in out and "baseline" in out


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("runs", "show", "nothing"), 2, "the store has no run nothing"),
        (("runs", "tag", NEW), 2, "no tag was given"),
        (("runs", "tag", NEW, "two words"), 2, "is no tag"),
        (("runs", "tag", "nothing", "x"), 2, "the store has no run nothing"),
        (("runs", "note", NEW, "\x1b[31m"), 2, "the note cannot be kept"),
        (("runs", "list", "--since", "yesterday"), 2, "is no date"),
        (("runs", "list", "--setting", "colour=red"), 2, "names no setting"),
        (("query",), 2, "no query was given"),
        (("query", "SELECT * FROM nothing"), 2, "nothing does not exist"),
        (("query", "--tables", "nothing"), 2, "there is no table 'nothing'"),
    ],
)
def test_mistakes_are_told_in_three_lines(
    call: Call, place: Path, words: tuple[str, ...], code: int, what: str
) -> None:
    found, _, err = call(*words, "--store", str(place))
    assert found == code, err
    assert what in err and "  fix  " in err and "Traceback" not in err


def test_a_store_that_is_not_there_is_told(call: Call, tmp_path: Path) -> None:
    code, _, err = call("runs", "list", "--store", str(tmp_path / "none"))
    assert code == Exit.USAGE and "no report store" in err


def test_a_query_prints_a_table_csv_json_or_writes_parquet(call: Call, place: Path, tmp_path: Path) -> None:
    sql = "SELECT run_id, count(*) AS steps FROM steps GROUP BY run_id ORDER BY run_id"
    assert call("query", sql, "--store", str(place))[1].split() == ["run_id", "steps", OLD, "2", NEW, "2"]
    assert json.loads(call("query", sql, "--store", str(place), "--json")[1])[0] == {"run_id": OLD, "steps": 2}
    out = tmp_path / "rows.parquet"
    code, _, err = call("query", sql, "--store", str(place), "--out", str(out))
    assert (code, json.loads(err)["rows"]) == (0, 2)
    assert pyarrow.parquet.read_table(out).num_rows == 2


def test_tables_are_described_with_their_units(call: Call) -> None:
    code, out, _ = call("query", "--tables")
    assert code == 0 and "one row per run" in out
    code, out, _ = call("query", "--tables", "steps")
    assert code == 0 and "e2e_p99_ns" in out and "messages per second" in out
    _, out, _ = call("query", "--tables", "steps", "--json")
    units = {row["column"]: row["unit"] for row in json.loads(out)}
    names = ("e2e_p99_ns", "start_ns", "t_s", "delivered_per_s", "wal_bytes_per_message", "size_bytes", "label")
    assert [units[name] for name in names] == ["ns", "ns since 1970, UTC", "s", "1/s", "B/msg", "B", ""]


def test_an_empty_list_says_what_there_is_to_ask_for(call: Call, place: Path) -> None:
    code, out, err = call("runs", "list", "--store", str(place), "--workload", "in_flight", "--json")
    assert code == 0 and json.loads(out) == []
    assert "none of the 2 runs in the store is as wanted; workloads: flow_control/in_flight; brokers: " in err


def test_new_runs_are_read_by_the_pipeline(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def fill(runs: Sequence[Path | str], store: str, spark: Spark) -> dict[str, Any]:
        asked.append((*runs, store, spark))
        return {"listed": 2, "read": 1, "left_out": {}, "damaged": {}}

    monkeypatch.setattr("perftest.cli.report.fill_store", fill)
    master = ("--spark-master", "spark://h:7077", "--spark-conf", "spark.cores.max=2")
    code, out, _ = call("runs", "read", str(tmp_path), "s3a://b/runs", "--store", "elsewhere", *master)
    assert (code, out) == (0, "elsewhere: 1 of 2 runs were read, 0 of them left out\n")
    assert call("runs", "read")[0] == 0
    assert asked[0] == (tmp_path, "s3a://b/runs", "elsewhere", Spark("spark://h:7077", ("spark.cores.max=2",)))
    assert asked[1] == (Path("runs"), "runs/.store", LOCAL)


def test_only_one_directory_can_be_served(call: Call, tmp_path: Path) -> None:
    code, _, err = call("report", "--serve", str(tmp_path / "none"))
    assert code == Exit.USAGE and "no such directory" in err
    code, _, err = call("report", "--serve", str(tmp_path), str(tmp_path))
    assert code == Exit.USAGE and "one directory" in err
    code, _, err = call("report")
    assert code == Exit.USAGE and "no run was given" in err


def test_the_history_of_a_store_tells_who_added_runs(call: Call, place: Path) -> None:
    code, out, _ = call("runs", "history", "--store", str(place), "--json")
    assert code == 0
    (added,) = [row for row in json.loads(out) if row["what"] == "added runs"]
    assert added["runs"] == 2 and "@" in added["who"]
    assert "added runs" in call("runs", "history", "--store", str(place), "--limit", "1")[1]


def test_a_store_is_compacted(call: Call, tmp_path: Path) -> None:
    """What a reader sees stays; the command tells what it did."""
    from tests.reports.store.testing.small_runs import lost, publish, small_run

    for at in range(3):
        publish(tmp_path, small_run(f"r{at}", at))
    code, out, _ = call("runs", "compact", "--store", str(tmp_path))
    assert (code, lost(tmp_path)) == (0, {"r0": 0, "r1": 1, "r2": 2})
    assert out == f"{tmp_path}: 6 files before, 2 after; 0 old files were removed\n"


@pytest.mark.parametrize("command", ["history", "compact"])
def test_a_place_without_a_store_is_told(call: Call, tmp_path: Path, command: str) -> None:
    code, _, err = call("runs", command, "--store", str(tmp_path / "nothing"))
    assert code == Exit.USAGE and "no report store" in err
