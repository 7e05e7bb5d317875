"""Runs are read through a port: from a disk, and from a place that is none."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from perftest.results import schema
from perftest.results.errors import NotARunError
from perftest.results.folder import Folder, LocalFolder
from perftest.results.reader import read_manifest, read_run
from tests.perftest.testing.memory_folder import MemoryFolder


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder of each kind."""
    return LocalFolder(tmp_path) if request.param == "local" else MemoryFolder()


def test_every_folder_keeps_the_same_promises(folder: Folder) -> None:
    """Whoever puts a name first has it: two publishers must not overwrite each other."""
    assert folder.names() == folder.names("nothing") == []
    assert folder.put_if_absent("a/b/c", b"first") and not folder.put_if_absent("a/b/c", b"second")
    assert folder.put_if_absent("a/d", b"")
    assert (folder.names(), folder.names("a"), folder.names("a/b")) == (["a"], ["b", "d"], ["c"])
    with folder.open("a/b/c") as file:
        assert file.read() == b"first"
    with pytest.raises(FileNotFoundError):
        folder.open("a/x")


def test_every_folder_lists_and_removes_its_files(folder: Folder, tmp_path: Path) -> None:
    """Whether a run has changed is told by names, sizes and times alone."""
    elsewhere = tmp_path.parent / f"{tmp_path.name}-content"
    elsewhere.write_bytes(b"of a file")
    assert folder.files() == folder.files("nothing") == []
    assert folder.put_if_absent("a/b/c", elsewhere) and not folder.put_if_absent("a/b/c", elsewhere)
    assert folder.put_if_absent("a/d", b"xy")
    assert [(entry.name, entry.octets) for entry in folder.files()] == [("a/b/c", 9), ("a/d", 2)]
    assert [entry.name for entry in folder.files("a/b")] == ["a/b/c"]
    folder.delete("a/b/c")
    folder.delete("a/b/c")
    assert [entry.name for entry in folder.files()] == ["a/d"]


def test_a_run_reads_alike_from_every_folder(tmp_path: Path, records: ModuleType) -> None:
    """A report of a run must not depend on where the run lies."""
    path = records.write_run(tmp_path).path
    here, there = read_run(path), read_run(MemoryFolder.copy_of(path))
    for name in ("manifest", "intervals", "histograms", "events", "host", "broker", "ledger", "result", "damaged"):
        assert getattr(there, name) == getattr(here, name), name


def test_an_empty_place_is_no_run(folder: Folder) -> None:
    """The error names the place, whatever kind of place it is."""
    with pytest.raises(NotARunError, match="is missing") as caught:
        read_manifest(folder)
    assert caught.value.where == folder.where
    folder.put_if_absent(schema.MANIFEST, b"[]")
    with pytest.raises(NotARunError, match="cannot be read"):
        read_manifest(folder)
