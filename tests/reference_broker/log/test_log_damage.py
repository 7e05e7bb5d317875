"""Damage to the files of a log that was stopped: whatever happens to one file, nothing that was noticed as written is
forgotten without a word. The start refuses, or it finds everything, or all members are forgetful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from reference_broker.log.errors import LogError
from reference_broker.log.wal_codec import SECTOR
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import LogIndex

PLACES = ("/disk/wal", "/disk/data", "/disk/data/meta", "/disk/data/segments")
Contents = dict[str, bytes]


def contents(files: MemoryFiles, directory: str = "/disk") -> Contents:
    """All files below a directory, by path."""
    found: Contents = {}
    for name in files.names(directory):
        path = f"{directory}/{name}"
        try:
            file = files.open(path)
            found[path] = file.read(0, file.size())
        except FileNotFoundError:
            found |= contents(files, path)
    return found


def files_with(wanted: Contents) -> MemoryFiles:
    """A file system that holds these files."""
    files = MemoryFiles()
    for path, octets in wanted.items():
        directory = path.rpartition("/")[0]
        files.make_dir(directory)
        file = files.create(path)
        file.write([octets], 0)
        file.datasync()
        files.sync_dir(directory)
    return files


def used(make_world: Callable[..., Any], seed: int) -> tuple[Any, Contents]:
    """A log with an idle group in its oldest file, a group with segments, one with snapshots, and votes; and its files
    as they were some time ago."""
    chance = Random(seed)
    world = make_world().open()
    idle, backlog, busy = world.create(1), world.create(2), world.create(3)
    world.append(idle, 1, 2)
    world.step()
    before: Contents = {}
    for turn in range(12):
        world.append(backlog, 2 * turn + 1, 2, size=chance.randint(500, 1500))
        world.append(busy, 3 * turn + 1, 3, size=chance.randint(500, 1500))
        world.step()
        if turn % 4 == 3:
            world.snapshot(busy, 3 * turn + 2, 1, [(3 * turn + 1, 3 * turn + 1)])
            world.hard_state(idle, turn, 2)
            world.step()
        if turn == 6:
            before = contents(world.files)
    return world, before


def damages(now: Contents, before: Contents, chance: Random) -> Iterator[tuple[str, str, Contents]]:
    """Each file, deleted, emptied, cut, zeroed at its end, with an octet changed, and as it was some time ago."""
    for path, octets in now.items():
        written = max((at for at, octet in enumerate(octets) if octet), default=0)
        where = chance.randint(0, written) if written else 0
        yield path, "deleted", {other: data for other, data in now.items() if other != path}
        yield path, "empty", now | {path: b""}
        yield path, "cut", now | {path: octets[:where]}
        zeros = max(0, written - chance.choice((1, SECTOR, 4096)))
        yield path, "zeroed", now | {path: octets[:zeros] + bytes(len(octets) - zeros)}
        yield path, "all zero", now | {path: bytes(len(octets))}
        if octets:
            yield path, "flipped", now | {path: octets[:where] + bytes([octets[where] ^ 0x10]) + octets[where + 1 :]}
        if path in before:
            yield path, "older", now | {path: before[path]}


def verdict(world: Any) -> str:
    """What a start on the damaged files comes to."""
    try:
        world.open()
    except (LogError, OSError):
        return "refused"
    try:
        if any(found.forgetful for found in world.recovered.values()):
            for id_, found in world.recovered.items():
                assert found.forgetful, "all members may have forgotten"
                assert found.term > world.models[id_].hard[-1][0], "a member begins in a term of which nobody has heard"
                assert not found.voted_for
            assert world.log.findings, "and it is said"
            return "forgetful"
        assert set(world.recovered) == set(world.models), "a group is gone without a word"
        for id_, found in world.recovered.items():
            model = world.models[id_]
            assert (found.term, found.voted_for) == model.hard[-1], "a vote is gone without a word"
            lost = [index for index in model.states[-1].log if index > found.last_index]
            assert not lost, f"entries {lost} of group {id_} are gone without a word"
        return "whole"
    finally:
        world.log.close()


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("seed", range(6))
def test_no_damage_to_a_file_goes_unnoticed(make_world: Callable[..., Any], seed: int, how: str) -> None:
    """A node that forgets without a word votes for a leader that lacks confirmed messages."""
    world, before = used(make_world, seed)
    if how == "stopped":
        world.log.close()
    now = contents(world.files)
    verdicts: Counter[str] = Counter()
    for path, damage, damaged in damages(now, before, Random(seed)):
        world.files = files_with(damaged)
        try:
            verdicts[verdict(world)] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {how}, {path} {damage}: {error}") from error
    assert min(verdicts["refused"], verdicts["forgetful"], verdicts["whole"]) > 0, verdicts


def test_a_forgetful_member_stays_forgetful_until_it_is_told_otherwise(make_world: Callable[..., Any]) -> None:
    """The damage shows once only, because the log goes on behind it."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 5)
    world.hard_state(group, 7, 2)
    world.step()
    world.log.close()
    name = next(name for name in world.files.names("/disk/wal") if name.endswith(".wal"))
    world.files.remove(f"/disk/wal/{name}")
    world.open()
    assert (world.recovered[group].forgetful, world.recovered[group].term, world.recovered[group].last_index) == (
        True,
        8,
        0,
    )
    fresh = world.create(2)
    world.append(fresh, 1)
    world.step()
    world.log.close()
    world.open()
    assert "1 logs are not up to date" in world.log.findings[0].what, "said until it is over"
    assert world.recovered[group].forgetful
    assert not world.recovered[fresh].forgetful, "a group that was created later forgot nothing"
    world.hard_state(group, 9, 0)
    world.step()
    world.log.close()
    world.open()
    assert not world.recovered[group].forgetful
    assert not world.log.findings


def test_a_file_that_was_cut_counts_once(make_world: Callable[..., Any]) -> None:
    """Else each start would begin a new term, until the file goes."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 5, size=900)
    world.step()
    world.log.close()
    now = contents(world.files)
    path = next(path for path in now if path.endswith(".wal"))
    world.files = files_with(now | {path: now[path][:2000]})
    world.open()
    assert len(world.log.findings) == 2, "the file is shorter, and batches are missing"
    term = world.recovered[group].term
    world.log.close()
    world.open()
    assert "not up to date since an earlier start" in world.log.findings[0].what
    assert world.recovered[group].term == term


def test_a_refused_start_changes_nothing(make_world: Callable[..., Any]) -> None:
    """Whoever mends the file, or the version that wrote it, finds the log as it was."""
    world, _before = used(make_world, 1)
    world.log.close()
    now = contents(world.files)
    for path, octets in now.items():
        if path.endswith((".wal", ".meta", ".segment", "identity")) and octets[:1]:
            damaged = now | {path: bytes([octets[0] ^ 1]) + bytes([octets[1] ^ 1]) * (len(octets) - 1)}
            world.files = files_with(damaged)
            with pytest.raises(LogError):
                world.open()
            assert contents(world.files) == damaged, path


def test_a_log_without_the_files_of_this_version_starts(make_world: Callable[..., Any]) -> None:
    """A directory that an earlier version wrote has neither mark nor inventory, and its files do not promise any."""
    from reference_broker.log import wal

    world = make_world()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wal, "NOTED", 0)
        world.open()
        group = world.create(1)
        world.append(group, 1, 5)
        world.step()
        world.log.close()
    world.files.remove("/disk/wal/high-water")
    world.files.remove("/disk/data/inventory")
    world.open()
    assert world.recovered[group].last_index == LogIndex(5)
    assert not world.recovered[group].forgetful
