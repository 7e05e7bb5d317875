"""The store: what a reader sees while somebody publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable

from reports.catalogue import query
from reports.errors import RunChoiceError, StoreError
from reports.store import part_files, publication, schema, store, stored, transactions
from reports.store.columns import Type
from reports.store.locations import location_of
from reports.store.run_tables import LeftOut
from reports.store.store import Store, StoredRun
from tests.reports.store.testing.small_runs import lost, publish, small_run


def files_in(place: Path, table: str = "ledger") -> list[Path]:
    return sorted((place / table).rglob("*.parquet"))


def test_publishing_replaces_a_run_and_leaves_the_others(tmp_path: Path) -> None:
    """A store of many runs must not lose one because another was reported again."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    publish(tmp_path, small_run("b", 2), small_run("c", 2))
    assert lost(tmp_path) == {"a": 1, "b": 2, "c": 2}
    assert lost(tmp_path, ["b"]) == {"b": 2}
    assert list(store.read_tables(tmp_path, ["c"]).ledger["run_id"]) == ["c"]


def test_a_run_that_is_replaced_again_and_again_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its former rows are still in the tables, because nobody could remove them yet."""
    monkeypatch.setattr(publication, "remove_replaced", lambda *_: None)
    for value in range(4):
        publish(tmp_path, small_run("a", value), small_run(f"beside-{value}", 9))
    assert lost(tmp_path) == {"a": 3, **{f"beside-{value}": 9 for value in range(4)}}
    assert lost(tmp_path, ["a"]) == {"a": 3}
    assert len(store.read_tables(tmp_path).runs) == 5
    answer = store.asked(tmp_path, lambda tables: query.run("SELECT sum(lost) AS n FROM ledger", tables))
    assert answer.to_pylist() == [{"n": 3 + 4 * 9}]


def test_former_rows_of_a_run_are_removed_for_readers_that_do_not_join(tmp_path: Path) -> None:
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    publish(tmp_path, small_run("a", 2))
    rows = DeltaTable(str(tmp_path / "ledger")).to_pyarrow_table(columns=["run_id", "lost"]).to_pylist()
    assert sorted((row["run_id"], row["lost"]) for row in rows) == [("a", 2), ("b", 1)]


def test_a_run_can_be_read_alone_after_another_one_in_its_file_was_replaced(tmp_path: Path) -> None:
    """The file was written again without the other; its columns must be of the same types as before."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    publish(tmp_path, small_run("a", 2))
    assert [lost(tmp_path, chosen) for chosen in (["a"], ["b"], None)] == [{"a": 2}, {"b": 1}, {"a": 2, "b": 1}]
    answer = store.asked(
        tmp_path, lambda tables: query.run("SELECT lost FROM ledger WHERE run_id = 'b' AND date > '2000'", tables)
    )
    assert answer.to_pylist() == [{"lost": 1}]


def test_the_store_knows_what_it_has_of_each_source(tmp_path: Path) -> None:
    """A run whose files have not changed need not be computed again, and neither need one that cannot be reported."""
    assert Store.open(tmp_path / "nothing").known() == {}
    bad = LeftOut(source="runs/b", signature="b-0", reason="it is empty")
    done = publish(tmp_path, small_run("a", 1), bad)
    assert (done.runs, done.left_out, done.rows["ledger"], done.rows["steps"]) == (("a",), (bad,), 1, 0)
    assert Store.open(tmp_path).known() == {"runs/a": "a-1", "runs/b": "b-0"}
    assert Store.open(tmp_path).left_out == {"runs/b": bad}
    publish(tmp_path, small_run("b", 1))
    assert Store.open(tmp_path).known() == {"runs/a": "a-1", "runs/b": "b-1"}
    assert Store.open(tmp_path).left_out == {}


def test_a_run_whose_directory_was_damaged_keeps_its_tables(tmp_path: Path) -> None:
    """The tables are still those of the whole directory; the page says that the directory cannot be read any more."""
    publish(tmp_path, small_run("a", 1))
    publish(tmp_path, LeftOut(source="runs/a", signature="a-damaged", reason="cut short"))
    assert lost(tmp_path) == {"a": 1} and Store.open(tmp_path).known() == {"runs/a": "a-damaged"}


def test_a_publication_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """A full disk in the middle of a report must not take the last good report along."""
    publish(tmp_path, small_run("a", 1))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match="disk full"), Store.open(tmp_path).publication() as under_way:
        under_way.add(small_run("a", 2))
        raise OSError("disk full")
    assert lost(tmp_path) == {"a": 1}
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_publication_that_dies_before_its_last_transaction_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the other tables already."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    with monkeypatch.context() as patch:
        patch.setattr(publication, "commit", died)
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path, small_run("a", 2), small_run("c", 2))
    assert lost(tmp_path) == {"a": 1, "b": 1}
    publish(tmp_path, small_run("c", 3))
    assert lost(tmp_path) == {"a": 1, "b": 1, "c": 3}


def died(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_same_run_from_two_directories_is_refused(tmp_path: Path) -> None:
    """Their rows would be counted together."""
    with pytest.raises(RunChoiceError, match="two directories hold the run a"), Store.open(tmp_path).publication() as p:
        p.add(small_run("a", 1))
        p.add(small_run("a", 2))


def test_a_reader_overtaken_by_a_publication_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read which runs count, and then their rows are replaced: it reads the newest state instead of a mix."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    known, overtaken = store._stored_runs, []

    def overtake(*given: object) -> dict[str, StoredRun]:
        found = known(*given)  # type: ignore[arg-type]
        if not overtaken:
            overtaken.append(True)
            publish(tmp_path, small_run("a", 2), small_run("b", 2))
        return found

    monkeypatch.setattr(store, "_stored_runs", overtake)
    assert lost(tmp_path) == {"a": 2, "b": 2} and overtaken


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


def test_every_table_tells_its_meaning_to_any_reader(tmp_path: Path) -> None:
    """The comment of a column and its unit, the partition, and the version of the schema."""
    publish(tmp_path, small_run("a", 1))
    for name, spec in stored.STORED.items():
        table = DeltaTable(str(tmp_path / name))
        about = table.metadata()
        assert about.configuration["perftest.version"] == str(schema.STORE_VERSION)
        assert about.description == spec.grain and about.partition_columns == stored.partition_of(name)
        for field, column in zip(table.schema().fields, spec.columns, strict=True):
            assert field.name == column.name and field.nullable == column.nullable
            assert field.metadata["comment"] == column.doc and field.metadata.get("unit", "") == column.unit


def of_version(place: Path, version: str) -> None:
    publish(place, small_run("a", 1))
    log = place / "runs" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(f'"perftest.version":"{schema.STORE_VERSION}"', version))


def damaged(place: Path, text: str) -> None:
    publish(place, small_run("a", 1))
    (place / "runs" / "_delta_log" / f"{0:020}.json").write_text(text)


def earlier(place: Path) -> None:
    (place / "manifests").mkdir()
    (place / "manifests" / "00000003.json").write_text("{}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place: None, "no report store"),
        (earlier, "version 6 or older, which is not known"),
        (lambda place: (place / "manifest.json").write_text("{}"), "version 6 or older, which is not known"),
        (lambda place: of_version(place, '"perftest.version":"8"'), "version 8, which is not known"),
        (lambda place: of_version(place, '"other":"8"'), "no version, which is not known"),
        (lambda place: damaged(place, "{"), "damaged|cannot be read"),
        (lambda place: damaged(place, "[]"), "damaged|cannot be read"),
    ],
)
def test_a_store_that_cannot_be_read_says_so(tmp_path: Path, make: object, words: str) -> None:
    """Three lines instead of a traceback."""
    make(tmp_path)  # type: ignore[operator]
    if words != "no report store":
        with pytest.raises(StoreError, match=words):
            Store.open(tmp_path)
    with pytest.raises(StoreError, match=words) as caught:
        store.read_tables(tmp_path)
    assert len(caught.value.lines().splitlines()) == 3


def test_damaged_and_missing_files_are_told(tmp_path: Path) -> None:
    """With the way out: the run directories still have everything."""
    publish(tmp_path, small_run("a", 1))
    (file,) = files_in(tmp_path)
    file.write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(StoreError, match="a file of the store is damaged"):
        store.read_tables(tmp_path)
    file.unlink()
    with pytest.raises(StoreError, match="a file of the store is missing"):
        store.read_tables(tmp_path)


def test_a_place_that_cannot_be_written_is_told_before_anything_is_computed(tmp_path: Path) -> None:
    """Not after the hours that thousands of runs take."""
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError, match="cannot be") as caught, Store.open(tmp_path / "file").publication():
        pytest.fail("the publication began")
    assert caught.value.where == str(tmp_path / "file")


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the runs that are, so that a typing error is seen at once."""
    publish(tmp_path, small_run("a", 1))
    with pytest.raises(StoreError, match="has no run z") as caught:
        store.read_tables(tmp_path, ["z"])
    assert "it has a" in caught.value.fix


def test_rows_that_lack_a_column_are_refused(tmp_path: Path) -> None:
    """A mistake of whoever computes tables must not become a column of nothing."""
    short = small_run("a", 1).tables["ledger"].drop_columns(["lost"])
    with pytest.raises(ValueError, match="lack the columns lost"):
        stored.conformed(short, schema.LEDGER.arrow)


def test_files_lie_by_date(tmp_path: Path) -> None:
    """Whoever reads the files directly prunes by path."""
    publish(tmp_path, *(small_run(str(at), at, day=at) for at in range(6)))
    assert lost(tmp_path) == {str(at): at for at in range(6)}
    assert [path.parent.name for path in files_in(tmp_path)] == [f"date=2026-09-2{day}" for day in range(1, 7)]


def test_runs_written_together_share_files(tmp_path: Path) -> None:
    """Thousands of tiny files are slow to read everywhere, and cost per request in an object storage."""
    tables = (schema.LEDGER, schema.EVENTS)
    publish(tmp_path, *(small_run(f"r{at}", at, tables=tables) for at in range(50)))
    for name in ("events", "ledger", "runs"):
        (path,) = files_in(tmp_path, name)
        assert parquet.ParquetFile(path).metadata.num_row_groups == 1
    assert lost(tmp_path) == {f"r{at}": at for at in range(50)}


def test_a_full_file_is_closed_while_more_runs_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may grow without end, and memory holds a row group of each."""
    monkeypatch.setattr(part_files, "FILE_BYTES", 10_000)
    monkeypatch.setattr(part_files, "GROUP_ROWS", 2)
    publish(tmp_path, *(small_run(f"r{at:02}", at) for at in range(20)))
    assert 1 < len(files_in(tmp_path)) < 20
    assert lost(tmp_path) == {f"r{at:02}": at for at in range(20)}


def test_a_page_of_one_run_reads_only_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a page must not grow with the runs beside it: statistics tell where a run's rows are."""
    monkeypatch.setattr(part_files, "GROUP_ROWS", 4)
    publish(tmp_path, *(small_run(f"r{at:02}", at) for at in range(16)))
    publish(tmp_path, small_run("other", 7))
    (both,) = {len(files_in(tmp_path))}
    (path,) = [path for path in files_in(tmp_path) if parquet.ParquetFile(path).metadata.num_rows == 16]
    metadata = parquet.ParquetFile(path).metadata
    at = metadata.schema.names.index("run_id")
    bounds = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    assert [(each.min, each.max) for each in bounds] == [("r00", "r03"), ("r04", "r07"), ("r08", "r11"), ("r12", "r15")]
    for unneeded in set(files_in(tmp_path)) - {path}:
        unneeded.write_bytes(b"damaged")
    assert both == 2 and lost(tmp_path, ["r05"]) == {"r05": 5}


def test_a_reader_of_few_columns_reads_no_others(tmp_path: Path) -> None:
    """A figure of thousands of runs must not cost what all their tables weigh."""
    publish(tmp_path, small_run("a", 1, tables=schema.TABLES[1:]), small_run("b", 1, tables=schema.TABLES[1:]))
    for path in files_in(tmp_path, "steps"):
        path.write_bytes(b"damaged")
    tables = store.read_tables(tmp_path, ["b"], {"ledger": ("run_id", "group", "lost")})
    assert tables.ledger.to_dict("records") == [{"run_id": "b", "group": "x", "lost": 1}]
    assert tables.steps.empty and list(tables.steps.columns) == list(schema.STEPS.names)


def test_commits_tell_who_added_what(tmp_path: Path) -> None:
    """Plain JSON, which other tools may look up, too."""
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    lines = (tmp_path / "runs" / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    (info,) = [json.loads(line)["commitInfo"] for line in lines if "commitInfo" in line]
    assert info["perftest.runs"] == 2 and "@" in info["userName"]


def test_a_writer_that_never_wins_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, with a sentence: an endless loop would look like a hung report."""
    publish(tmp_path, small_run("a", 1))
    monkeypatch.setattr(transactions, "TRIES", 3)
    location, tries = location_of(tmp_path), []

    def overtaken(table: DeltaTable) -> transactions.TableChange:
        tries.append(True)
        transactions._take_turn(DeltaTable(table.table_uri), transactions.TableChange(), {})
        return transactions.TableChange()

    with pytest.raises(StoreError, match="other writers committed 3 times"):
        transactions.commit(location, "runs", overtaken, {})
    assert len(tries) == 3


def test_a_change_follows_all_that_landed_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two writers that read the same state, the second reads again; its files of the lost attempt go."""
    publish(tmp_path, small_run("a", 1))
    made, overtaken = publication.Publication._runs_after, []

    def overtake(own: publication.Publication, *given: object) -> transactions.TableChange | None:
        change = made(own, *given)  # type: ignore[arg-type]
        if not overtaken:
            overtaken.append(True)
            publish(tmp_path, small_run("a", 2), small_run("b", 2))
        return change

    monkeypatch.setattr(publication.Publication, "_runs_after", overtake)
    publish(tmp_path, small_run("a", 3), small_run("c", 3))
    assert lost(tmp_path) == {"a": 3, "b": 2, "c": 3}
    assert Store.open(tmp_path).runs["a"].replaced.count(",") == 1
