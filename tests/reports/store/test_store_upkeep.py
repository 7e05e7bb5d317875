"""Upkeep of a store: few files, no rows that nobody sees, and a history."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.store import publication, store, upkeep
from reports.store.locations import location_of
from reports.store.store import Store
from tests.reports.store.test_report_store import files_in
from tests.reports.store.testing.small_runs import lost, publish, small_run


def test_many_small_publications_become_few_files(tmp_path: Path) -> None:
    """A run a day for years must not become thousands of files; a run that was replaced meanwhile stays replaced."""
    for at in range(12):
        publish(tmp_path, small_run(f"r{at % 8:02}", at))
    before = store.read_tables(tmp_path)
    done = upkeep.compact(location_of(tmp_path))
    assert done.before > done.after
    assert lost(tmp_path) == {f"r{at % 8:02}": at for at in range(4, 12)}
    assert store.read_tables(tmp_path).ledger.equals(before.ledger)
    assert len(upkeep.files_of(_table(tmp_path, "ledger"))) == 1


def _table(place: Path, name: str) -> upkeep.DeltaTable:
    table = upkeep.find_table(location_of(place), name)
    assert table is not None
    return table


def test_a_report_brings_small_files_together_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a date has more of them than SMALL_FILES."""
    monkeypatch.setattr(upkeep, "SMALL_FILES", 5)
    for at in range(6):
        publish(tmp_path, small_run(f"r{at:02}", at, tables=(upkeep.INTERVALS,)))
    assert len(upkeep.files_of(_table(tmp_path, "intervals"))) == 1
    assert not upkeep.has_many_small_files(location_of(tmp_path))


def test_a_publication_stands_when_files_cannot_be_brought_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result says so, so that the pipeline can tell."""
    monkeypatch.setattr(upkeep, "has_many_small_files", fail)
    assert "no room" in str(publish(tmp_path, small_run("last", 1)).upkeep_problem)
    assert lost(tmp_path) == {"last": 1}


def fail(*_: object) -> None:
    raise OSError(28, "no room")


def test_rows_of_dead_writers_go_and_those_of_living_writers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed writer leaves rows that no run names; a writer beside the upkeep has not published yet."""
    publish(tmp_path, small_run("a", 1))
    with monkeypatch.context() as patch:
        patch.setattr(publication, "commit", died)
        for day, run in (("20200101T000000", "dead"), ("29990101T000000", "living")):
            patch.setattr(publication.time, "strftime", lambda *_, day=day: day)
            with pytest.raises(KeyboardInterrupt):
                publish(tmp_path, small_run(run, 2))
    upkeep.compact(location_of(tmp_path))
    rows = _table(tmp_path, "ledger").to_pyarrow_table(columns=["run_id"]).to_pylist()
    assert sorted(row["run_id"] for row in rows) == ["a", "living"]
    assert lost(tmp_path) == {"a": 1}


def died(*_: object) -> None:
    raise KeyboardInterrupt


def test_files_that_only_earlier_versions_need_stay_for_their_time(tmp_path: Path) -> None:
    """A reader that began before goes on, and so does whoever asks for the store of last week."""
    for value in range(3):
        publish(tmp_path, small_run("a", value), small_run(f"b{value}", value))
    before = len(files_in(tmp_path))
    assert upkeep.compact(location_of(tmp_path)).vacuumed == 0 and len(files_in(tmp_path)) > before
    assert upkeep.compact(location_of(tmp_path), kept_days=0).vacuumed > 0
    assert len(files_in(tmp_path)) == 1
    assert lost(tmp_path) == {"a": 2, "b0": 0, "b1": 1, "b2": 2}


def test_a_publication_beside_a_compaction_lands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both orders: whoever is second reads again, or leaves its files to the next upkeep."""
    for at in range(4):
        publish(tmp_path, small_run(f"r{at}", at))
    real = upkeep._compact_table

    def beside(*given: object) -> int:
        if given[1].metadata().name == "runs":  # type: ignore[attr-defined]
            publish(tmp_path, small_run("r0", 9), small_run("new", 9))
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(upkeep, "_compact_table", beside)
    upkeep.compact(location_of(tmp_path))
    assert lost(tmp_path) == {"r0": 9, "r1": 1, "r2": 2, "r3": 3, "new": 9}


def test_the_history_tells_who_added_runs_and_when(tmp_path: Path) -> None:
    assert list(upkeep.history(location_of(tmp_path))) == []
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    publish(tmp_path, small_run("a", 2))
    events = list(upkeep.history(location_of(tmp_path)))
    assert [(each.version, each.what, each.runs) for each in events] == [
        (2, "added runs", 1),
        (1, "added runs", 2),
        (0, "created", None),
    ]
    assert all("@" in each.who and each.t_ns > 0 for each in events)
    assert [each.version for each in upkeep.history(location_of(tmp_path), 1)] == [2]
    assert Store.open(tmp_path).runs["a"].signature == "a-2"
