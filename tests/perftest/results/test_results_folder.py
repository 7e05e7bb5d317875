"""Runs are read through a port: from a disk, and from a place that is none."""

from __future__ import annotations

from collections.abc import Callable
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
    """A folder of each kind with the same files."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"first")
    (tmp_path / "a" / "d").write_bytes(b"")
    return LocalFolder(tmp_path) if request.param == "local" else MemoryFolder.copy_of(tmp_path)


def test_every_folder_keeps_the_same_promises(folder: Folder) -> None:
    """Whether a run has changed is told by names, sizes and times alone."""
    assert folder.names("nothing") == folder.files("nothing") == []
    assert (folder.names(), folder.names("a"), folder.names("a/b")) == (["a"], ["b", "d"], ["c"])
    assert [(entry.name, entry.octets) for entry in folder.files()] == [("a/b/c", 5), ("a/d", 0)]
    assert [entry.name for entry in folder.files("a/b")] == ["a/b/c"]
    with folder.open("a/b/c") as file:
        assert file.read() == b"first"
    with pytest.raises(FileNotFoundError):
        folder.open("a/x")


def test_a_run_reads_alike_from_every_folder(tmp_path: Path, records: ModuleType) -> None:
    """A report of a run must not depend on where the run lies."""
    path = records.write_run(tmp_path).path
    here, there = read_run(path), read_run(MemoryFolder.copy_of(path))
    for name in ("manifest", "intervals", "histograms", "events", "host", "broker", "ledger", "result", "damaged"):
        assert getattr(there, name) == getattr(here, name), name


@pytest.mark.parametrize("kind", [LocalFolder, MemoryFolder.copy_of])
def test_a_place_without_a_manifest_is_no_run(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    """The error names the place, whatever kind of place it is."""
    with pytest.raises(NotARunError, match="is missing") as caught:
        read_manifest(kind(tmp_path))
    assert caught.value.where == kind(tmp_path).where
    (tmp_path / schema.MANIFEST).write_text("[]")
    with pytest.raises(NotARunError, match="cannot be read"):
        read_manifest(kind(tmp_path))
