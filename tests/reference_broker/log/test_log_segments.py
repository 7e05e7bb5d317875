"""Segments: who pays for them, that the disk stays bounded, and that damage to them never passes unnoticed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from reference_broker.log.errors import DamagedLogError, EntryGoneError, MissingEntriesError
from reference_broker.log.extents import merged
from reference_broker.log.notices import Failed, RolledOver
from reference_broker.log.segment_codec import DamagedSegmentError, decode_head, decode_index, encode, placed
from reference_broker.log.wal_codec import FIRST_BATCH, HEAD_SIZE, ROW_SIZE
from reference_broker.storage.errors import StorageError
from reference_broker.storage.memory_files import MemoryFile
from reference_broker.types import GroupId, LogIndex

SEGMENTS = "/disk/data/segments"


def run_queue(world: Any, group: Any, turns: int, live: Callable[[int], list[tuple[int, int]]]) -> None:
    """A queue at work: entries come, and after each roll-over the groups that are due take a snapshot."""
    for _turn in range(turns):
        state = world.models[group].states[-1]
        last = max(state.log, default=state.base)
        world.append(group, last + 1, 4, size=700)
        if any(isinstance(notice, RolledOver) for notice in world.step()):
            last += 4
            if group in world.log.snapshot_due(lambda _group, last=last: live(last)):
                world.snapshot(group, last, 1, live(last))
            world.step()


def segment_files(world: Any) -> list[str]:
    return [
        f"{SEGMENTS}/{directory}/{name}"
        for directory in world.files.names(SEGMENTS)
        if directory != "identity"
        for name in world.files.names(f"{SEGMENTS}/{directory}")
    ]


def test_a_queue_whose_consumers_keep_up_writes_nothing_to_segments(world: Any) -> None:
    """Writing every body twice would halve what a drive can do. What is on its way at a roll-over is settled soon."""
    run_queue(world, world.create(1), 300, lambda last: [(last - 3, last)])
    counters = world.log.counters()
    assert counters["wal_rolls"] > 40 and counters["wal_entries"] == 1200
    assert (counters["segment_bytes"], counters["segment_entries"]) == (0, 0)
    assert counters["segment_entries_skipped"] > 1000
    assert len(world.files.names("/disk/wal")) <= 8


def test_one_old_message_is_copied_once_and_pins_nothing(world: Any) -> None:
    """A consumer that sits on a message for an hour must cost that message."""
    group = world.create(1)
    run_queue(world, group, 300, lambda last: [(2, 2), (last - 3, last)])
    counters = world.log.counters()
    assert counters["segment_entries"] <= 4 and len(segment_files(world)) == 1
    assert len(world.files.names("/disk/wal")) <= 8
    assert world.log.payload(group, LogIndex(2))


def test_an_idle_group_with_an_old_message_is_left_alone(world: Any) -> None:
    """A snapshot that frees nothing is asked for once per roll-over, for ever, by a log that looks at files only."""
    idle, busy = world.create(1), world.create(2)
    world.append(idle, 1)
    for _turn in range(6):
        run_queue(world, busy, 20, lambda _last: [])
        assert idle not in world.log.snapshot_due(lambda group: [(1, 1)] if group == idle else [])
    assert [found.entries for found in world.log._state.groups[idle].segments] == [1]


@pytest.mark.parametrize("seed", range(4))
def test_the_disk_holds_the_backlog_and_little_more(seed: int, make_world: Callable[..., Any]) -> None:
    """A drive that fills up although the queue is short stops the node."""
    chance = Random(seed)
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    live: list[int] = []
    for turn in range(250):
        last = max(world.models[group].states[-1].log, default=0)
        world.append(group, last + 1, 4, size=700)
        live += range(last + 1, last + 5)
        keep = 200 if turn % 100 < 50 else 4
        while len(live) > keep:
            live.pop(chance.randrange(1, 9) if len(live) > 9 else 1)
        if any(isinstance(notice, RolledOver) for notice in world.step()):
            wanted = merged([(index, index) for index in live])
            if group in world.log.snapshot_due(lambda _group, wanted=wanted: wanted):
                world.snapshot(group, last + 4, 1, wanted)
            world.step()
            assert world.log.counters()["segment_files"] == len(segment_files(world))
            octets = sum(world.log._state.segment_files._files.open(path).size() for path in segment_files(world))
            assert octets <= 2 * 700 * len(live) + 20 * 16384, f"turn {turn}"
            assert len(world.files.names("/disk/wal")) <= 8
    for index in live:
        if index <= last:
            assert world.log.payload(group, LogIndex(index))
    files = world.log.counters()["segment_files"]
    world.restart()
    assert 0 < world.log.counters()["segment_files"] <= files


def test_a_snapshot_being_sent_stays_whole_while_its_entries_move(make_world: Callable[..., Any]) -> None:
    """A newer snapshot frees what the receiver still waits for; the WAL files and segments go meanwhile."""
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    for turn in range(6):
        world.append(group, 4 * turn + 1, 4, size=1500)
        world.step()
    world.snapshot(group, 20, 1, [(3, 3), (9, 9), (19, 20)])
    world.step()
    before = world.log.snapshot_chunk(group, 1)
    world.snapshot(group, 22, 1)
    world.step()
    world.roll(6)
    assert world.log.snapshot_chunk(group, 1) == before
    world.log.release_snapshot(group)
    world.step()
    assert segment_files(world)
    world.snapshot(group, 24, 1)
    world.step()
    assert segment_files(world) == []


def test_a_group_created_again_finds_no_old_segments(make_world: Callable[..., Any]) -> None:
    """The node stops between the deletion and the removal of the files: they are not the new group's."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 6, size=200)
    world.step()
    world.roll()
    assert segment_files(world)
    world.delete(group)
    world.log._writing.run_pending()
    world.create(1)
    world.log._writing.run_pending()
    world.kill()
    assert world.recovered[group].last_index == 0 and segment_files(world) == []


def test_a_truncation_outlives_its_wal_file(make_world: Callable[..., Any]) -> None:
    """What a new leader had dropped would be part of the log again, behind entries of a later term."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 6, size=200)
    world.step()
    world.roll()
    world.truncate(group, 4)
    world.roll()
    world.log.close()
    world.open()
    assert world.recovered[group].last_index == 3
    world.log.close()


# Damage


def with_segments(make_world: Callable[..., Any]) -> tuple[Any, Any, str]:
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    world.append(group, 1, 6, size=200)
    world.step()
    world.roll()
    [path] = segment_files(world)
    world.log.close()
    return world, group, path


def test_every_damaged_octet_of_header_and_index_is_refused(make_world: Callable[..., Any]) -> None:
    """Half a log must not pass for a whole one; the message says which file."""
    world, _group, path = with_segments(make_world)
    for offset in range(80 + 12 + 6 * 25):
        world.files.flip(path, offset, 1 << offset % 8)
        with pytest.raises(DamagedLogError, match=path):
            world.open()
        world.files.flip(path, offset, 1 << offset % 8)
    world.open()


def test_every_damaged_octet_of_a_payload_is_found_on_reading(make_world: Callable[..., Any]) -> None:
    """A body that rotted is an error with file and offset, never a message."""
    world, group, path = with_segments(make_world)
    for offset in range(512, 512 + 6 * 200, 37):
        world.files.flip(path, offset)
        index = (offset - 512) // 200 + 1
        with pytest.raises(DamagedLogError, match=f"{path}, offset {512 + 200 * (index - 1)}"):
            world.open()  # reads no-ops and configurations
            world.log.payload(group, LogIndex(index))
        world.files.flip(path, offset)
    world.open()
    world.check_readable()


def test_a_segment_of_every_other_length_is_refused(make_world: Callable[..., Any]) -> None:
    """A file that was cut, or grew, was not left so by the log: it renames only what is whole and synced."""
    world, _group, path = with_segments(make_world)
    file = world.files.open(path)
    octets = file.read(0, file.size())
    for size in [*range(0, len(octets), 50), len(octets) - 1, len(octets) + 1]:
        world.files.create(path).write([octets.ljust(size, b"x")[:size]], 0)
        with pytest.raises(DamagedLogError, match=path):
            world.open()


def test_a_segment_of_another_place_is_refused() -> None:
    """Copied from another node, group or number, its entries would be another log's."""
    octets = encode(b"s" * 16, GroupId(7), 1000, 3, 5, placed(1000, []))
    head = decode_head(octets[:80], b"s" * 16, GroupId(7), 1000)
    assert (head.log_uid, head.truncates, decode_index(head, b"")) == (3, 5, [])
    for store, group, number in ((b"t" * 16, 7, 1000), (b"s" * 16, 8, 1000), (b"s" * 16, 7, 1001)):
        with pytest.raises(DamagedSegmentError):
            decode_head(octets[:80], store, GroupId(group), number)


# Failing drives


def busy(world: Any) -> None:
    """A backlog goes into segments, becomes poor, and is rewritten."""
    group = world.create(1)
    for turn in range(7):
        world.append(group, 4 * turn + 1, 4, size=1500)
        world.step()
    world.roll(2)
    world.snapshot(group, 26, 1, [(2, 2), (9, 9)])
    world.step()
    world.roll(3)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_one_failed_call_of_the_housekeeper_stops_the_log_for_good(error: int, make_world: Callable[..., Any]) -> None:
    """A WAL file that goes although its copy is not safe takes messages along."""
    clean = make_world().open()
    opened = clean.files.calls
    busy(clean)
    assert clean.log.counters()["segment_compactions"] > 0
    for call in range(1, clean.files.calls - opened + 1):
        world = make_world().open()
        world.faulty = True
        world.files.fail_at(call, error)
        with suppress(ValueError, KeyError):  # the script met a log that has stopped
            busy(world)
        failures = [notice for notice in world.notices if isinstance(notice, Failed)]
        assert len(failures) == 1 and world.notices[-1] is failures[0], f"call {call}"
        assert world.files.trace[opened + call - 1][1].split(" ")[0] in failures[0].error, "the file is named"
        world.crash(Random(call))
        world.check_readable()


def test_a_segment_that_cannot_be_opened_for_want_of_files_is_not_damaged(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice for damage is to give the directory up."""
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    run_queue(world, group, 300, lambda last: [(2, 2), (last - 3, last)])

    def too_many(_group: GroupId, _number: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/disk/data/segments/x")

    monkeypatch.setattr(world.log._state.segment_files, "opened", too_many)
    with pytest.raises(StorageError, match="Too many open files") as failure:
        world.log.payload(group, LogIndex(2))
    assert "ulimit -n" in str(failure.value) and not isinstance(failure.value, DamagedLogError)


# Reading meanwhile


class Meddler:
    """Lets something happen between a reader's look at the table and its look at the file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        read = MemoryFile.read

        def meddled(file: MemoryFile, offset: int, size: int) -> bytes:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
            return read(file, offset, size)

        monkeypatch.setattr(MemoryFile, "read", meddled)


@pytest.mark.parametrize("moves", [1, 2])
@pytest.mark.parametrize("live", [True, False])
def test_a_read_of_a_removed_file_is_an_entry_gone_or_right(
    moves: int, live: bool, monkeypatch: pytest.MonkeyPatch, make_world: Callable[..., Any]
) -> None:
    """The reader has looked up where the entry is; before it reads, the entry moves: from the WAL, whose file is used
    again, into a segment, and from there into another one; or it is covered by a snapshot and goes."""
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    world.append(group, 1, 6, size=700)
    world.step()
    meddler = Meddler(monkeypatch)
    wanted = world.models[group].states[-1].log[4].payload

    def move() -> None:
        place = world.log._state.groups[group].table.place(4)
        world.snapshot(group, 5 if moves == 1 or place.file > 0 else 6, 1, [(4, 4)] if live else [])
        world.roll()
        moved = world.log._state.groups[group].table.place(4)
        assert moved is None if not live else moved.file != place.file

    for _move in range(moves - 1):
        world.roll()
    meddler.meanwhile = move
    if live:
        assert world.log.payload(group, LogIndex(4)) == wanted
    else:
        with pytest.raises(EntryGoneError):
            world.log.payload(group, LogIndex(4))
    assert world.log.counters()["wal_files_recycled"] > 0


def test_what_is_truncated_while_it_is_copied_stays_so(
    monkeypatch: pytest.MonkeyPatch, make_world: Callable[..., Any]
) -> None:
    """The housekeeper has read what a WAL file holds; before its segment is done, the owner's log became shorter."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 6, size=700)
    world.step()
    meddler = Meddler(monkeypatch)

    def truncate() -> None:
        world.truncate(group, 4)
        world.log.executors[0].run_pending()

    meddler.meanwhile = truncate
    world.roll()
    assert [found.entries for found in world.log._state.groups[group].segments] == [6, 0], "copied, then truncated"
    world.roll()
    world.restart()
    assert world.recovered[group].last_index == 3


def test_queues_that_are_deleted_while_they_are_copied_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, make_world: Callable[..., Any]
) -> None:
    """Queues are deleted every day, also while the housekeeper is half through their WAL file: it must neither stop
    over the one nor begin with the other, whose segment nobody would remove."""
    world = make_world().open()
    first, second = world.create(1), world.create(2)
    for group in (first, second):
        world.append(group, 1, 6, size=700)
    world.step()
    meddler = Meddler(monkeypatch)

    def delete() -> None:
        world.delete(first)
        world.delete(second)
        world.log.executors[0].run_pending()

    meddler.meanwhile = delete
    world.roll()
    world.step()
    assert world.log.counters()["segment_entries"] == 6, "those of the first"
    assert (segment_files(world), world.log.counters()["segment_files"]) == ([], 0)
    world.restart()
    assert first not in world.recovered and second not in world.recovered


def test_a_compaction_hides_what_it_replaces_hid(make_world: Callable[..., Any]) -> None:
    """Of two segments that truncated an older one nothing is left but that: what they become must truncate it too."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 10, size=700)
    world.step()
    world.roll()
    world.truncate(group, 7)
    world.append(group, 7, 2, term=2, size=700)
    world.step()
    world.roll()
    world.truncate(group, 7)
    world.step()
    world.roll(8)
    assert world.log.counters()["segment_compactions"] > 0
    world.restart()
    assert world.recovered[group].last_index == 6


def test_what_was_overwritten_never_fills_a_hole(make_world: Callable[..., Any]) -> None:
    """The snapshot that covered the entries is damaged. In a segment stand others of the same indexes, of a former
    term: the start must be refused, for with them the machine would come to another state than its peers'."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 10, size=700)
    world.step()
    world.roll()
    world.append(group, 7, 6, term=2, size=200)
    world.step()
    world.snapshot(group, 9, 2, [(1, 6)])
    world.step()
    world.roll()
    world.log.close()
    [name] = world.files.names(f"/disk/data/{group:016x}")
    world.files.flip(f"/disk/data/{group:016x}/{name}", 3)
    with pytest.raises(MissingEntriesError, match="has a hole"):
        world.open()


def test_a_damaged_entry_is_not_copied(make_world: Callable[..., Any]) -> None:
    """Its WAL file holds the only copy: to stop with file and offset is better than to pass the damage on."""
    world = make_world().open()
    group = world.create(1)
    world.append(group, 1, 3, size=500)
    world.step()
    offset = FIRST_BATCH + HEAD_SIZE + 3 * ROW_SIZE + 500
    world.files.flip("/disk/wal/00000001.wal", offset + 200)
    world.faulty = True
    world.roll()
    assert f"/disk/wal/00000001.wal, offset {offset}" in world.notices[-1].error
    assert "00000001.wal" in world.files.names("/disk/wal") and segment_files(world)[0].endswith(".tmp")
