"""The store on disk: what a reader sees while somebody publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from reports.errors import StoreError
from reports.store import schema, store
from reports.store.columns import Type
from tests.perftest.testing.memory_folder import MemoryFolder


def write_ledger(attempt: Path, run_id: str, lost: int) -> None:
    """One table of one run is enough to see which attempt is live."""
    table = schema.LEDGER
    row = {c.name: {Type.INT: lost, Type.BOOL: True}.get(c.type, "x") for c in table.columns}
    content = pa.Table.from_pylist([row], table.arrow).drop_columns(["run_id"])
    folder = attempt / table.name / f"run_id={run_id}"
    folder.mkdir(parents=True)
    parquet.write_table(content, folder / "part-0.parquet")


def publish(target: Path, lost: int, *runs: str) -> Path:
    with store.new_attempt(target) as attempt:
        for run_id in runs:
            write_ledger(attempt, run_id, lost)
        store.publish(target, attempt, runs)
    return attempt


def lost(target: Path) -> dict[str, int]:
    ledger = store.read_tables(target).ledger
    return {str(run): int(count) for run, count in zip(ledger["run_id"], ledger["lost"], strict=True)}


def test_publishing_replaces_a_run_and_leaves_the_others(tmp_path: Path) -> None:
    """A store of many runs must not lose one because another was reported again."""
    publish(tmp_path, 1, "a", "b")
    publish(tmp_path, 2, "b", "c")
    assert lost(tmp_path) == {"a": 1, "b": 2, "c": 2}
    assert list(store.read_tables(tmp_path, ["c"]).ledger["run_id"]) == ["c"]


def test_the_manifest_names_what_the_last_publication_left_out(tmp_path: Path) -> None:
    """A page that is made from the store alone must name it, too; a run that was mended is no longer named."""
    with store.new_attempt(tmp_path) as attempt:
        assert store.publish(tmp_path, attempt, [], {"runs/b": "it is empty"}).left_out == {"runs/b": "it is empty"}
    assert store.read_manifest(tmp_path).left_out == {"runs/b": "it is empty"}
    publish(tmp_path, 1, "b")
    assert store.read_manifest(tmp_path).left_out == {}


def test_an_attempt_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """A full disk in the middle of a report must not take the last good report along."""
    publish(tmp_path, 1, "a")
    with pytest.raises(OSError, match="disk full"), store.new_attempt(tmp_path) as attempt:
        write_ledger(attempt, "a", 2)
        raise OSError("disk full")
    assert lost(tmp_path) == {"a": 1}
    assert not attempt.exists()


def test_a_reader_of_the_manifest_before_still_finds_its_files(tmp_path: Path) -> None:
    """Reading takes a while, and a publication in between must not pull the files away."""
    first = publish(tmp_path, 1, "a")
    second = publish(tmp_path, 2, "a")
    assert first.exists() and second.exists()
    third = publish(tmp_path, 3, "a")
    assert not first.exists() and second.exists() and third.exists()
    assert lost(tmp_path) == {"a": 3}


def test_dead_attempts_are_removed_and_living_ones_are_not(tmp_path: Path) -> None:
    """Two reports into one store at once are ordinary; a killed one leaves megabytes behind."""
    dead = tmp_path / store.ATTEMPTS / "20200101T000000-dead"
    dead.mkdir(parents=True)
    with store.new_attempt(tmp_path) as living:
        publish(tmp_path, 1, "a")
        assert living.exists() and not dead.exists()


def test_every_table_has_its_columns_and_types_even_when_empty(tmp_path: Path) -> None:
    """A page that reads a column of an empty table must find it."""
    publish(tmp_path, 1, "a")
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
    ("content", "words"),
    [(None, "no report store"), ("{", "not JSON"), ('{"version": 99}', "version 99"), ("[]", "version None")],
)
def test_a_store_that_cannot_be_read_says_so(tmp_path: Path, content: str | None, words: str) -> None:
    """Three lines instead of a traceback."""
    if content is not None:
        (tmp_path / store.MANIFEST).write_text(content)
    with pytest.raises(StoreError, match=words) as caught:
        store.read_tables(tmp_path)
    assert len(caught.value.lines().splitlines()) == 3


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the runs that are, so that a typing error is seen at once."""
    publish(tmp_path, 1, "a")
    with pytest.raises(StoreError, match="has no run z") as caught:
        store.read_tables(tmp_path, ["z"])
    assert "it has a" in caught.value.fix


def test_the_manifest_is_readable_json(tmp_path: Path) -> None:
    """Other tools may look up the live attempt."""
    attempt = publish(tmp_path, 1, "a")
    content = json.loads((tmp_path / store.MANIFEST).read_text())
    assert content["version"] == schema.STORE_VERSION and content["runs"] == {"a": attempt.name}


def test_a_store_reads_alike_from_a_folder_that_is_no_disk(tmp_path: Path) -> None:
    """A page must not depend on where its tables lie."""
    publish(tmp_path, 1, "a", "b")
    with store.new_attempt(tmp_path) as attempt:
        row = {c.name: {Type.INT: 7, Type.BOOL: True}.get(c.type, "x") for c in schema.LEDGER.columns}
        store.write_rows(attempt, schema.LEDGER, "c", [row])
        assert store.attempt_rows(attempt, schema.LEDGER, "c") == 1
        store.publish(tmp_path, attempt, ["c"])
    here, there = store.read_tables(tmp_path), store.read_tables(MemoryFolder.copy_of(tmp_path))
    assert here.ledger.equals(there.ledger) and list(there.ledger["lost"]) == [1, 1, 7]
