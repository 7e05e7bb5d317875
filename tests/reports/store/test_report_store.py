"""The store: what a reader sees while somebody publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from perftest.results.folder import LocalFolder
from reports.errors import RunChoiceError, StoreError
from reports.store import batches, manifest, schema, store, writer
from reports.store.columns import Type
from reports.store.commit import manifest_name
from reports.store.run_tables import LeftOut
from reports.store.store import Store
from tests.perftest.testing.memory_folder import MemoryFolder
from tests.reports.store.testing.small_runs import lost, publish, small_run
from tests.reports.store.testing.troubled_folders import WatchedFolder

HOUR_NS = 3600 * 10**9


def test_publishing_replaces_a_run_and_leaves_the_others(tmp_path: Path) -> None:
    """A store of many runs must not lose one because another was reported again."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    publish(tmp_path, small_run("b", 2), small_run("c", 2))
    assert lost(tmp_path) == {"a": 1, "b": 2, "c": 2}
    assert lost(tmp_path, ["b"]) == {"b": 2}
    assert list(store.read_tables(tmp_path, ["c"]).ledger["run_id"]) == ["c"]


def test_the_store_knows_what_it_has_of_each_source(tmp_path: Path) -> None:
    """A run whose files have not changed need not be computed again, and neither need one that cannot be reported."""
    assert Store.open(tmp_path / "nothing").known() == {}
    bad = LeftOut(source="runs/b", signature="b-0", reason="it is empty")
    done = publish(tmp_path, small_run("a", 1), bad)
    assert (done.runs, done.left_out, done.rows["ledger"], done.rows["steps"]) == (("a",), (bad,), 1, 0)
    assert Store.open(tmp_path).known() == {"runs/a": "a-1", "runs/b": "b-0"}
    assert store.read_manifest(tmp_path).left_out == {"runs/b": bad}
    publish(tmp_path, small_run("b", 1))
    assert Store.open(tmp_path).known() == {"runs/a": "a-1", "runs/b": "b-1"}
    assert store.read_manifest(tmp_path).left_out == {}


def test_a_run_whose_directory_was_damaged_keeps_its_tables(tmp_path: Path) -> None:
    """The tables are still those of the whole directory; the page says that the directory cannot be read any more."""
    publish(tmp_path, small_run("a", 1))
    publish(tmp_path, LeftOut(source="runs/a", signature="a-damaged", reason="cut short"))
    assert lost(tmp_path) == {"a": 1} and Store.open(tmp_path).known() == {"runs/a": "a-damaged"}


def test_a_writer_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """A full disk in the middle of a report must not take the last good report along."""
    publish(tmp_path, small_run("a", 1))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match="disk full"), Store.open(tmp_path).writer() as under_way:
        under_way.add(small_run("a", 2))
        raise OSError("disk full")
    assert lost(tmp_path) == {"a": 1}
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_same_run_from_two_directories_is_refused(tmp_path: Path) -> None:
    """Their rows would be counted together."""
    with pytest.raises(RunChoiceError, match="two directories hold the run a"), Store.open(tmp_path).writer() as both:
        both.add(small_run("a", 1))
        both.add(small_run("a", 2))


def test_files_of_a_replaced_run_stay_for_readers() -> None:
    """They go after two more publications and an hour: a reader that began before may still need them."""
    folder = MemoryFolder()

    def files() -> int:
        return len([name for name in folder.files_by_name if name.startswith("tables/")])

    for value, hours, there in [(1, 0, 1), (2, 0, 2), (3, 2, 3), (4, 2, 3), (5, 2, 4)]:
        publish_at(folder, hours * HOUR_NS, value)
        assert (files(), lost(folder)) == (there, {"a": value})


def publish_at(folder: MemoryFolder, now_ns: int, value: int) -> None:
    opened = Store(
        folder=folder,
        manifest=Store.open(folder).manifest,
        surroundings=store.Surroundings(now_ns=lambda: now_ns),
    )
    with opened.writer() as under_way:
        under_way.add(small_run("a", value))
        under_way.publish()


def test_a_reader_overtaken_by_publications_begins_again(tmp_path: Path) -> None:
    """Its manifest is gone, and with it the files: it reads the newest state instead of an error or a mix."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    old = list((tmp_path / "tables").rglob("*.parquet"))
    opened = 0

    def overtake(call: str) -> None:
        nonlocal opened
        opened += call == "open"
        if opened == 2 and old[0].exists():  # the manifest is read, and the first file is next
            publish(tmp_path, small_run("a", 2), small_run("b", 2))
            for path in old:
                path.unlink()

    assert lost(WatchedFolder(LocalFolder(tmp_path), overtake)) == {"a": 2, "b": 2}


def test_rests_of_dead_writers_are_swept_and_living_writers_are_not() -> None:
    """A killed writer leaves megabytes that nothing names; a writer beside the sweep has not published yet."""
    folder = MemoryFolder()
    folder.put_if_absent("tables/ledger/date=2026-01-01/experiment=x/dead.parquet", b"rest")
    folder.now_ns = writer.UNNAMED_NS
    folder.put_if_absent("tables/ledger/date=2026-01-01/experiment=x/living.parquet", b"under way")
    publish(folder, small_run("a", 1))
    writer.sweep(folder, store.read_manifest(folder))
    names = [name.rpartition("/")[2] for name in folder.files_by_name]
    assert "dead.parquet" not in names and "living.parquet" in names
    assert lost(folder) == {"a": 1}


def test_every_table_has_its_columns_and_types_even_when_empty(tmp_path: Path) -> None:
    """A page that reads a column of an empty table must find it."""
    publish(tmp_path, small_run("a", 1))
    tables = store.read_tables(tmp_path)
    kinds = {Type.INT: "int64", Type.FLOAT: "float64", Type.TEXT: "object"}
    for table in schema.TABLES:
        frame = getattr(tables, table.name)
        assert list(frame.columns) == list(table.names)
        assert set(table.order) <= set(table.names)
        for column in table.columns:
            if column.type in kinds:
                assert frame[column.name].dtype == kinds[column.type], (table.name, column.name)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (None, "", "no report store"),
        ("manifest.json", '{"version": 4}', "version 4 or older, which is not known"),
        (manifest_name(3), "{", "damaged: not JSON"),
        (manifest_name(3), '{"version": 7}', "version 7, which is not known"),
        (manifest_name(3), "[]", "damaged"),
        (manifest_name(3), '{"version": 6, "number": 3}', "content is damaged"),
    ],
)
def test_a_store_that_cannot_be_read_says_so(tmp_path: Path, name: str | None, content: str, words: str) -> None:
    """Three lines instead of a traceback."""
    if name is not None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        with pytest.raises(StoreError, match=words):
            Store.open(tmp_path)
    with pytest.raises(StoreError, match=words) as caught:
        store.read_tables(tmp_path)
    assert len(caught.value.lines().splitlines()) == 3


def test_damaged_and_missing_files_are_told(tmp_path: Path) -> None:
    """With the way out: the run directories still have everything."""
    publish(tmp_path, small_run("a", 1))
    (file,) = (tmp_path / "tables").rglob("*.parquet")
    file.write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(StoreError, match="a file of the store is damaged"):
        store.read_tables(tmp_path)
    file.unlink()
    with pytest.raises(StoreError, match="a file of the store is missing"):
        store.read_tables(tmp_path)


def test_a_place_that_cannot_be_written_is_told_before_anything_is_computed(tmp_path: Path) -> None:
    """Not after the hours that thousands of runs take."""
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError, match="cannot be written") as caught, Store.open(tmp_path / "file").writer():
        pytest.fail("the writer began")
    assert caught.value.where == str(tmp_path / "file")


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the runs that are, so that a typing error is seen at once."""
    publish(tmp_path, small_run("a", 1))
    with pytest.raises(StoreError, match="has no run z") as caught:
        store.read_tables(tmp_path, ["z"])
    assert "it has a" in caught.value.fix


def test_rows_that_lack_a_column_are_refused(tmp_path: Path) -> None:
    """A mistake of whoever computes tables must not become a column of nothing."""
    run = small_run("a", 1)
    short = {name: rows.drop_columns(["lost"]) for name, rows in run.tables.items()}
    with pytest.raises(ValueError, match="lack the columns lost"):
        batches.conformed(short["ledger"], "ledger")


def test_files_lie_by_date_and_experiment(tmp_path: Path) -> None:
    """Whoever reads the files directly prunes by path; no name of a plan leaves the folder."""
    names = ["flow_control/in_flight", "../../etc", "", "ü=1 %", "x" * 300, "x" * 299 + "y"]
    publish(tmp_path, *(small_run(str(at), at, day=at, experiment=name) for at, name in enumerate(names)))
    assert lost(tmp_path) == {str(at): at for at in range(len(names))}
    paths = sorted(path.relative_to(tmp_path / "tables") for path in (tmp_path / "tables").rglob("*.parquet"))
    assert [path.parts[:2] for path in paths] == [("ledger", f"date=2026-09-2{day}") for day in range(1, 7)]
    assert paths[0].parts[2] == "experiment=flow_control%2Fin_flight" and paths[2].parts[2].startswith("experiment=__")
    assert len({path.parts[2] for path in paths}) == len(names)


def test_runs_written_together_share_files(tmp_path: Path) -> None:
    """Thousands of tiny files are slow to read everywhere, and cost per request in an object storage."""
    tables = (schema.LEDGER, schema.EVENTS)
    publish(tmp_path, *(small_run(f"r{at}", at, tables=tables) for at in range(50)))
    files = sorted((tmp_path / "tables").rglob("*.parquet"))
    assert [path.relative_to(tmp_path).parts[1] for path in files] == ["events", "ledger"]
    assert [parquet.ParquetFile(path).metadata.num_row_groups for path in files] == [1, 1]
    assert lost(tmp_path) == {f"r{at}": at for at in range(50)}


def test_a_full_spool_becomes_files_while_more_runs_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither memory nor the local disk may hold all runs of a large report."""
    monkeypatch.setattr(writer, "FILE_BYTES", 10_000)
    monkeypatch.setattr(writer, "HELD_RUNS", 2)
    with Store.open(tmp_path).writer() as under_way:
        for at in range(20):
            under_way.add(small_run(f"r{at:02}", at))
        early = len(list((tmp_path / "tables").rglob("*.parquet")))
        under_way.publish()
    assert 1 < early < 20
    assert lost(tmp_path) == {f"r{at:02}": at for at in range(20)}


def test_a_page_of_one_run_reads_only_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a page must not grow with the runs beside it."""
    monkeypatch.setattr(batches, "GROUP_ROWS", 4)
    monkeypatch.setattr(writer, "HELD_RUNS", 2)
    publish(tmp_path, *(small_run(f"r{at:02}", at) for at in range(16)))
    (path,) = (tmp_path / "tables").rglob("*.parquet")
    metadata = parquet.ParquetFile(path).metadata
    assert metadata.num_row_groups == 4 and batches.groups_with(metadata, ["r05"]) == [1]
    opened: list[str] = []
    publish(tmp_path, small_run("other", 7))
    assert lost(WatchedFolder(LocalFolder(tmp_path), opened.append), ["r05"]) == {"r05": 5}
    assert opened.count("open") == 2, "the manifest and one file"


def test_many_small_publications_become_few_files(tmp_path: Path) -> None:
    """A run a day for years must not become thousands of files; a run that was replaced meanwhile stays replaced."""
    for at in range(40):
        done = publish(tmp_path, small_run(f"r{at % 30:02}", at))
        assert done.upkeep_problem is None
    state = store.read_manifest(tmp_path)
    assert len(state.batches) <= manifest.BATCHES_OF_A_SIZE + 3
    assert lost(tmp_path) == {f"r{at % 30:02}": at for at in range(10, 40)}


def test_a_publication_stands_when_files_cannot_be_brought_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result says so, so that the pipeline can tell."""
    for at in range(manifest.BATCHES_OF_A_SIZE):
        publish(tmp_path, small_run(f"r{at:02}", at))
    monkeypatch.setattr(writer, "compact", fail)
    assert "no room" in str(publish(tmp_path, small_run("last", 1)).upkeep_problem)
    assert len(lost(tmp_path)) == manifest.BATCHES_OF_A_SIZE + 1


def fail(*_: object) -> None:
    raise OSError(28, "no room")


def test_manifests_are_readable_json_and_the_old_ones_go(tmp_path: Path) -> None:
    """Other tools may look up where a run lies."""
    for at in range(12):
        publish(tmp_path, small_run("a", at))
    names = sorted(path.name for path in (tmp_path / "manifests").iterdir())
    assert names == [f"{number:08d}.json" for number in range(5, 13)]
    content = json.loads((tmp_path / "manifests" / names[-1]).read_text())
    assert content["version"] == schema.STORE_VERSION and content["runs"][0][0] == "a"


def test_a_store_reads_alike_from_a_folder_that_is_no_disk(tmp_path: Path) -> None:
    """A page must not depend on where its tables lie."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    here, there = store.read_tables(tmp_path), store.read_tables(MemoryFolder.copy_of(tmp_path))
    assert here.ledger.equals(there.ledger) and list(there.ledger["lost"]) == [1, 1]


def test_a_reader_of_few_columns_reads_no_others(tmp_path: Path) -> None:
    """A figure of thousands of runs must not cost what all their tables weigh."""
    publish(tmp_path, small_run("a", 1, tables=schema.TABLES), small_run("b", 1, tables=schema.TABLES))
    calls: list[str] = []
    folder = WatchedFolder(LocalFolder(tmp_path), calls.append)
    tables = store.read_tables(folder, ["b"], {"ledger": ("run_id", "group", "lost")})
    assert tables.ledger.to_dict("records") == [{"run_id": "b", "group": "x", "lost": 1}]
    assert tables.steps.empty and list(tables.steps.columns) == list(schema.STEPS.names)
    assert calls.count("open") == 2, "the manifest, and the file of one table"
