"""The file system that the crash tests trust: it must lose what a real one may lose, and nothing else."""

from __future__ import annotations

import errno
from random import Random

import pytest

from reference_broker.storage.memory_files import MemoryFiles


def fresh() -> MemoryFiles:
    files = MemoryFiles()
    files.make_dir("/d")
    return files


def content(files: MemoryFiles, path: str) -> bytes:
    file = files.open(path)
    return file.read(0, file.size())


def test_unsynced_content_is_lost_and_synced_content_stays() -> None:
    """Otherwise a forgotten datasync would never be noticed."""
    files = fresh()
    file = files.create("/d/f")
    file.write([b"one", b"two"], 0)
    file.datasync()
    files.sync_dir("/d")
    file.write([b"xxx"], 3)
    assert content(files, "/d/f") == b"onexxx"
    files.crash()
    assert content(files, "/d/f") == b"onetwo"


def test_an_unsynced_name_is_lost() -> None:
    """A synced file without a synced name is gone, as POSIX has it."""
    files = fresh()
    file = files.create("/d/f")
    file.write([b"x"], 0)
    file.datasync()
    files.crash()
    assert files.names("/d") == []


def test_an_unsynced_rename_or_removal_is_undone() -> None:
    """Or a rename that replaces a snapshot would pass without a sync of the directory."""
    files = fresh()
    for name in ("a", "b"):
        files.create(f"/d/{name}")
    files.sync_dir("/d")
    files.rename("/d/a", "/d/c")
    files.remove("/d/b")
    assert files.names("/d") == ["c"]
    files.crash()
    assert files.names("/d") == ["a", "b"]


def test_a_crash_with_chance_tears_the_last_write() -> None:
    """Every prefix of the unsynced octets must be possible, and no other outcome."""
    outcomes = set()
    for seed in range(300):
        files = fresh()
        file = files.create("/d/f")
        files.sync_dir("/d")
        file.write([b"abc"], 0)
        file.write([b"def"], 3)
        files.crash(Random(seed))
        outcomes.add(content(files, "/d/f"))
    assert outcomes == {b"abcdef"[:size] for size in range(7)}


def test_names_change_in_order() -> None:
    """A journalling file system loses the later change first."""
    outcomes = set()
    for seed in range(100):
        files = fresh()
        for name in "abc":
            files.create(f"/d/{name}")
        files.crash(Random(seed))
        outcomes.add("".join(files.names("/d")))
    assert outcomes == {"", "a", "ab", "abc"}


def test_one_fault_or_all_from_then_on() -> None:
    """One-shot shows that nothing is retried; sticky stops a node at an instruction."""
    for sticky, expected in ((False, [True, False, True]), (True, [True, False, False])):
        files = fresh()
        file = files.create("/d/f")
        files.fail_at(2, errno.EIO, sticky=sticky)
        done = []
        for at in range(3):
            try:
                file.write([b"xy"], 2 * at)
                done.append(True)
            except OSError as error:
                assert error.errno == errno.EIO
                done.append(False)
        assert done == expected


def test_a_failing_write_leaves_half_of_it() -> None:
    """A short write before the error is what a full drive does."""
    files = fresh()
    file = files.create("/d/f")
    files.fail_at(1)
    with pytest.raises(OSError, match="Input/output"):
        file.write([b"abcd"], 0)
    assert content(files, "/d/f") == b"ab"


def test_a_full_drive_still_takes_writes_within_files() -> None:
    """That is why preallocated files matter."""
    files = fresh()
    file = files.create("/d/f", 10)
    files.fill_up(3)
    file.write([b"0123456789"], 0)
    file.write([b"abc"], 10)
    with pytest.raises(OSError, match="No space"):
        file.write([b"d"], 13)


def test_directories_must_be_empty_and_files_open() -> None:
    """Misuse raises what a real file system raises."""
    files = fresh()
    files.create("/d/f").close()
    for action, code in (
        (lambda: files.remove_dir("/d"), errno.ENOTEMPTY),
        (lambda: files.open("/d/g"), errno.ENOENT),
        (lambda: files.remove("/d/g"), errno.ENOENT),
        (lambda: files.open("/d/f/g"), errno.ENOTDIR),
        (lambda: files.rename("/d/g", "/d/h"), errno.ENOENT),
    ):
        with pytest.raises(OSError) as caught:
            action()
        assert caught.value.errno == code
    file = files.open("/d/f")
    file.close()
    with pytest.raises(OSError) as caught:
        file.read(0, 1)
    assert caught.value.errno == errno.EBADF
