"""The commit protocol: writers at once in every order, and a place that dies at every call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.results.folder import Folder
from reports.errors import StoreError
from reports.store import commit, manifest, store, writer
from reports.store.commit import manifest_name
from reports.store.manifest import StoreChange, StoreManifest
from tests.perftest.testing.memory_folder import MemoryFolder
from tests.reports.store.testing.small_runs import lost, publish, small_run
from tests.reports.store.testing.troubled_folders import Turns, WatchedFolder, dying

PUBLICATIONS = 3
"""Of each writer in a simulation."""


def change(run_id: str, value: int) -> StoreChange:
    """A publication of one run, without files."""
    ident = f"{run_id}-{value}"
    batch = manifest.StoredBatch(id=ident, date="2026-01-01", experiment="x", runs=1, octets={})
    run = manifest.StoredRun(run_id=run_id, started_ns=0, source=run_id, signature=ident, batch=ident)
    return StoreChange(batches=(batch,), runs=(run,))


@given(order=st.lists(st.integers(0, 2), max_size=60), kept=st.integers(1, 3))
def test_writers_at_once_all_land_in_every_order(order: list[int], kept: int) -> None:
    """Each publication follows all that landed before: nothing is lost, whoever is stopped between two calls, and
    although old manifests go so early that a slow writer finds its number free again."""
    memory, readings = MemoryFolder(), []

    def writing(name: str) -> Callable[[Callable[[str], None]], None]:
        def work(turn: Callable[[str], None]) -> None:
            folder = WatchedFolder(memory, turn)
            for value in range(PUBLICATIONS):
                commit.commit(folder, change(f"{name}{value}", value))
                commit.commit(folder, change("shared", value))

        return work

    def reader(turn: Callable[[str], None]) -> None:
        for _ in range(4):
            readings.append(commit.latest(WatchedFolder(memory, turn)) or StoreManifest())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "MANIFESTS_KEPT", kept)
        Turns(order).run([writing("a"), writing("b"), reader])
    newest = commit.latest(memory)
    assert newest is not None and newest.number == 4 * PUBLICATIONS
    assert set(newest.runs) == {"shared", *(f"{name}{value}" for name in "ab" for value in range(PUBLICATIONS))}
    assert [each.number for each in readings] == sorted(each.number for each in readings)
    assert len(newest.ancestors) == newest.number - 1


def test_a_writer_that_slept_through_the_removal_of_its_number_publishes_again() -> None:
    """Its number is free again, but nobody would ever look there."""
    memory, asleep = MemoryFolder(), []

    def sleep(call: str) -> None:
        if call == "put_if_absent" and not asleep:
            asleep.append(call)
            for value in range(commit.MANIFESTS_KEPT + 2):
                commit.commit(memory, change(f"other{value}", value))

    made = commit.commit(WatchedFolder(memory, sleep), change("mine", 1))
    assert made.number == commit.MANIFESTS_KEPT + 3 and manifest_name(1) not in memory.files_by_name
    newest = commit.latest(memory)
    assert newest == made and len(made.runs) == commit.MANIFESTS_KEPT + 3


def test_a_writer_that_never_wins_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, with a sentence: an endless loop would look like a hung report."""
    memory = MemoryFolder()
    monkeypatch.setattr(commit, "TRIES", 5)

    def overtake(call: str) -> None:
        if call == "put_if_absent":
            commit.commit(memory, change("other", 1))

    with pytest.raises(StoreError, match="other writers published 5 times"):
        commit.commit(WatchedFolder(memory, overtake), change("mine", 1))


def seeded() -> MemoryFolder:
    """A store of four batches and a dead one."""
    memory = MemoryFolder()
    for at in (0, *range(4)):
        publish(memory, small_run(f"r{at:02}", at))
    return memory


def test_a_crash_at_any_call_leaves_the_old_state_or_the_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, from the first probe to the last removal, the store reads as before or as after, and the next
    publication works."""
    monkeypatch.setattr(manifest, "READER_NS", 0)
    monkeypatch.setattr(commit, "MANIFESTS_KEPT", 2)
    start, states, at, whole = seeded(), set(), 0, False
    monkeypatch.setattr(manifest, "BATCHES_OF_A_SIZE", 3)
    monkeypatch.setattr(writer, "SWEEP_EVERY", 1)
    old = lost(start)
    new = {**old, "r00": 77, "new": 7}
    while not whole:
        memory = copy_of(start)
        folder, calls = dying(memory, at)
        attempt(folder)
        seen = lost(memory)
        assert seen in (old, new), at
        states.add(seen == new)
        publish(memory, small_run("later", 9))
        assert lost(memory) == {**seen, "later": 9}, at
        whole, at = len(calls) <= at, at + 1
    assert states == {False, True} and at > 25


def attempt(folder: Folder) -> None:
    """Publish, as far as the folder lets us: what fails is told as an error for people."""
    try:
        publish(folder, small_run("r00", 77), small_run("new", 7))
    except StoreError as error:
        assert "No space left" in error.what


def copy_of(memory: MemoryFolder) -> MemoryFolder:
    made = MemoryFolder()
    made.files_by_name = dict(memory.files_by_name)
    return made


WRITE = """
import sys
from pathlib import Path
from tests.reports.store.testing.small_runs import publish, small_run
place, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for at in range(8):
    publish(place, small_run(f"{name}{at}", at), small_run("shared", at))
"""


def test_two_processes_at_once_both_land(tmp_path: Path) -> None:
    """On a real file system, where a name is taken by a hard link."""
    place = tmp_path / "store"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(place), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        for name in "ab"
    ]
    for each in writers:
        assert each.stdout is not None and each.stdout.readline() == b"ready\n"
    assert [each.communicate(b"go\n")[1] for each in writers] == [None, None]
    assert [each.returncode for each in writers] == [0, 0]
    assert lost(place) == {"shared": 7, **{f"{name}{at}": at for name in "ab" for at in range(8)}}
    assert store.read_manifest(place).number >= 16
    assert not list((place / "manifests").glob(".*"))
