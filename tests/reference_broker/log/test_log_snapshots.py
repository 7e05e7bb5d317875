"""Snapshots: what stays readable, what goes, and what arrives at another member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reference_broker.log.errors import DamagedLogError, EntryGoneError, MissingEntriesError, SnapshotGoneError
from reference_broker.log.live_entries import LiveEntries
from reference_broker.log.memtable import Table
from reference_broker.log.notices import GroupCreated, SnapshotInstalled, SnapshotRejected, SnapshotTaken
from reference_broker.log.snapshots import CHUNK_BYTES, SnapshotSource
from reference_broker.storage.memory_files import MemoryFile
from reference_broker.types import LogIndex, Term


def filled(world: Any, group: int = 1, count: int = 40) -> Any:
    """A group whose entries lie in several files."""
    id_ = world.create(group)
    for first in range(1, count + 1, 4):
        world.append(id_, first, 4, size=1500)
        world.step()
    return id_


def wal_files(world: Any) -> int:
    return int(world.log.counters()["wal_files"])


def test_an_old_message_pins_no_wal_file(make_world: Callable[..., Any]) -> None:
    """One message that nobody acknowledges must cost its own size, not the whole WAL."""
    world = make_world(memtable_bytes=0).open()
    group = filled(world)
    world.snapshot(group, 40, 1, [(2, 2)])
    world.step()
    world.roll()
    assert wal_files(world) <= 5
    assert world.log.payload(group, LogIndex(2))
    with pytest.raises(EntryGoneError):
        world.log.payload(group, LogIndex(30))
    counters = world.log.counters()
    assert counters["segment_files"] > 0 and counters["segment_reads"] > 0
    world.restart()
    assert world.log.payload(group, LogIndex(2))
    world.append(group, 41)
    world.snapshot(group, 41, 1)
    world.step()
    assert world.log.counters()["segment_files"] == 0, "once it is settled, the segment goes"


def test_entries_up_to_the_notice_stay_readable(world: Any) -> None:
    """Between asking and notice the leader may still send the old entries."""
    group = filled(world)
    world.snapshot(group, 40, 1)
    assert world.log.payload(group, LogIndex(7))
    world.step()
    with pytest.raises(EntryGoneError):
        world.log.payload(group, LogIndex(7))


def test_the_newest_snapshot_wins_and_old_ones_go(world: Any) -> None:
    """A drive full of old snapshots helps nobody."""
    group = filled(world)
    for index in (10, 20, 20, 15, 30):
        world.log.take_snapshot(group, LogIndex(index), Term(1), b"state %d" % index, [])
    taken = [notice.index for notice in world.step() if isinstance(notice, SnapshotTaken)]
    assert taken == [10, 20, 30]
    assert world.files.names(f"/disk/data/{group:016x}") == [f"{30:016x}_{1:016x}.snapshot"]


def test_a_live_entry_that_is_gone_is_refused_at_once(world: Any) -> None:
    """A machine that still refers to what it gave up has a bug: better now than at the next start."""
    group = filled(world)
    world.log.take_snapshot(group, LogIndex(20), Term(1), b"", [(4, 6)])
    with pytest.raises(EntryGoneError, match="entry 7 "):
        world.log.take_snapshot(group, LogIndex(30), Term(1), b"", [(5, 7)])
    with pytest.raises(ValueError, match="the log ends at 40"):
        world.log.take_snapshot(group, LogIndex(41), Term(1), b"", [])
    world.log.take_snapshot(group, LogIndex(30), Term(1), b"", [(5, 6), (25, 30)])
    world.step()


@pytest.mark.parametrize("damage", range(0, 200, 3))
def test_a_damaged_snapshot_never_passes_for_a_sound_one(damage: int, world: Any) -> None:
    """Without its log prefix a damaged snapshot cannot be replaced: starting anyway would be half a queue."""
    group = filled(world)
    world.snapshot(group, 40, 1, [(2, 3)])
    world.step()
    world.roll()
    world.log.close()
    [name] = world.files.names(f"/disk/data/{group:016x}")
    path = f"/disk/data/{group:016x}/{name}"
    world.files.flip(path, damage)
    with pytest.raises(MissingEntriesError, match="the log of a group has a hole"):
        world.open()
    world.files.flip(path, damage)
    world.open()
    assert world.recovered[group].snapshot.index == 40, "what was refused must not be removed"


def test_an_older_snapshot_serves_when_the_log_still_reaches_back(world: Any) -> None:
    """A snapshot that rots before its log prefix goes costs nothing."""
    group = world.create(1)
    world.append(group, 1, 10)
    world.step()
    world.snapshot(group, 5, 1)
    world.step()
    world.log.close()
    [name] = world.files.names(f"/disk/data/{group:016x}")
    world.files.flip(f"/disk/data/{group:016x}/{name}", 3)
    world.open()
    assert (world.recovered[group].snapshot, world.recovered[group].last_index) == (None, 10)


# Sending and receiving


def send(sender: Any, group: Any) -> list[tuple[int, int, bytes, bool]]:
    """All chunks of the newest snapshot."""
    chunks = []
    while not chunks or not chunks[-1][3]:
        chunks.append(sender.log.snapshot_chunk(group, len(chunks) + 1))
    sender.log.release_snapshot(group)
    return chunks


def donor(make_world: Callable[..., Any], size: int = 300, state: bytes = b"the state") -> tuple[Any, Any]:
    """A member with a snapshot at 20 of term 3 and live entries."""
    world = make_world(wal_file_bytes=1 << 20).open()
    group = world.create(1)
    world.append(group, 1, 20, term=3, size=size)
    world.step()
    world.log.take_snapshot(group, LogIndex(20), Term(3), state, [(4, 5), (9, 9), (20, 20)])
    world.step()
    return world, group


@pytest.mark.parametrize(
    ("size", "state_size", "count"), [(300, 0, 1), (700_000, 10, 3), (10, 2_500_000, 3), (0, 1, 1)]
)
def test_a_snapshot_arrives_whole(size: int, state_size: int, count: int, make_world: Callable[..., Any]) -> None:
    """State and live entries, in chunks that cut through both, are what the other member then has."""
    state = bytes(range(256)) * (state_size // 256 + 1)
    sender, group = donor(make_world, size, state)
    chunks = send(sender, group)
    assert len(chunks) == count and all(len(chunk[2]) <= 1 << 20 for chunk in chunks)
    receiver = make_world().open()
    receiver.create(1)
    receiver.append(group, 1, 12, term=1)
    receiver.step()
    for number, (index, term, data, last) in enumerate(chunks, 1):
        assert receiver.log.receive_chunk(group, index, term, number, last, data)
    live = ((4, 5), (9, 9), (20, 20))
    assert receiver.step() == [SnapshotInstalled(group, LogIndex(20), Term(3), state, live)]
    receiver.log.reset(group, LogIndex(20), Term(3))
    for _time in range(2):
        for index in (4, 5, 9, 20):
            assert receiver.log.payload(group, LogIndex(index)) == sender.log.payload(group, LogIndex(index))
        with pytest.raises(EntryGoneError):
            receiver.log.payload(group, LogIndex(6))
        receiver.step()
        receiver.log.close()
        receiver.open()
        found = receiver.recovered[group]
        assert (found.first_index, found.last_index, found.live, found.state) == (21, 20, live, state)


def test_a_queue_that_goes_while_its_snapshot_arrives_leaves_no_open_file(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner deletes while the housekeeper installs: nobody looks after the file any more but the housekeeper. Each
    such file would cost a descriptor until the node stops."""
    sender, group = donor(make_world)
    receiver = make_world().open()
    receiver.create(1)
    receiver.step()
    received: list[Any] = []
    create, rename = receiver.files.create, receiver.files.rename

    def creating(path: str, size: int = 0) -> Any:
        received.append(create(path, size))
        return received[-1]

    def renaming(old: str, new: str) -> None:
        rename(old, new)
        receiver.delete(group)

    receiver.install(group, send(sender, group), {})
    monkeypatch.setattr(receiver.files, "create", creating)
    monkeypatch.setattr(receiver.files, "rename", renaming)
    receiver.step()
    assert len(received) == 1 and f"{group:016x}" not in receiver.files.names("/disk/data")
    with pytest.raises(OSError, match="Bad file descriptor"):
        received[0].read(0, 1)


def test_a_reset_frees_the_old_log(make_world: Callable[..., Any]) -> None:
    """The files of a log that a snapshot replaced must not stay until some later snapshot."""
    sender, group = donor(make_world)
    receiver = make_world().open()
    filled(receiver, count=16)
    before = wal_files(receiver)
    receiver.install(group, send(sender, group), {})
    receiver.step()
    receiver.reset(group, 20, 3)
    receiver.step()
    receiver.log.release_snapshot(group)  # any housekeeping
    receiver.step()
    assert before > 2 and wal_files(receiver) <= 2


def test_reset_needs_an_installed_snapshot(world: Any) -> None:
    """A log that starts at 21 without a snapshot at 20 could never be started again."""
    group = world.create(1)
    with pytest.raises(ValueError, match="no snapshot at 20"):
        world.log.reset(group, LogIndex(20), Term(3))


def test_chunks_out_of_order_are_refused_and_one_starts_anew(make_world: Callable[..., Any]) -> None:
    """Retries and a second leader must not mix two snapshots into one file."""
    sender, group = donor(make_world, size=700_000)
    chunks = send(sender, group)
    receiver = make_world().open()
    receiver.create(1)

    def give(number: int, *, index: int = 20) -> bool:
        _index, term, data, last = chunks[number - 1]
        return bool(receiver.log.receive_chunk(group, LogIndex(index), term, number, last, data))

    order = [(2, 20), (1, 20), (1, 20), (3, 20), (2, 19), (2, 20), (2, 20), (1, 20), (2, 20), (3, 20), (3, 20)]
    taken = [give(number, index=index) for number, index in order]
    assert taken == [False, True, True, False, False, True, False, True, True, True, False]
    assert [type(notice) for notice in receiver.step()][-1] is SnapshotInstalled


@pytest.mark.parametrize("damage", [*range(0, 170, 3), 400, 1300, -1])
def test_a_snapshot_damaged_on_the_way_is_dropped(damage: int, make_world: Callable[..., Any]) -> None:
    """It would replace a sound log: every octet is checked before it does."""
    sender, group = donor(make_world)
    [(index, term, data, last)] = send(sender, group)
    damaged = bytearray(data)
    damaged[damage] ^= 4
    receiver = make_world().open()
    receiver.create(1)
    receiver.append(group, 1, 5)
    receiver.step()
    for octets in (bytes(damaged), data[:-1], data + b"x", data[:40], b""):
        assert receiver.log.receive_chunk(group, index, term, 1, last, octets)
        [notice] = receiver.step()
        assert isinstance(notice, SnapshotRejected) and (notice.index, notice.term) == (20, 3)
    with pytest.raises(ValueError, match="no snapshot"):
        receiver.log.reset(group, index, term)
    receiver.restart()
    assert receiver.recovered[group].last_index == 5
    assert receiver.files.names(f"/disk/data/{group:016x}") == []


def test_a_snapshot_being_sent_stays_whole(make_world: Callable[..., Any]) -> None:
    """A receiver that is half-way gets the second half of the same snapshot, whatever the sender did meanwhile."""
    sender, group = donor(make_world, size=700_000)
    whole = send(sender, group)
    first = sender.log.snapshot_chunk(group, 1)
    sender.append(group, 21, 4, term=3, size=700_000)
    sender.step()
    sender.log.take_snapshot(group, LogIndex(24), Term(3), b"newer", [])
    sender.step()
    with pytest.raises(EntryGoneError):
        sender.log.payload(group, LogIndex(9))
    rest = [sender.log.snapshot_chunk(group, number) for number in (2, 3)]
    assert [first, *rest] == whole
    assert sender.log.snapshot_chunk(group, 2) == whole[1], "a lost chunk is asked for again"
    with pytest.raises(SnapshotGoneError):
        sender.log.snapshot_chunk(group, 4)
    before = wal_files(sender)
    sender.log.release_snapshot(group)
    sender.step()
    assert wal_files(sender) < before
    assert sender.log.snapshot_chunk(group, 1)[0] == 24


@pytest.fixture
def octets_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads of files."""
    sizes: list[int] = []
    read = MemoryFile.read

    def counted(self: MemoryFile, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(self, offset, size)

    monkeypatch.setattr(MemoryFile, "read", counted)
    return sizes


def test_each_octet_of_a_large_entry_is_read_once(make_world: Callable[..., Any], octets_read: list[int]) -> None:
    """A message of 100 MiB is sent in a hundred chunks. To read and check it whole for each of them took seconds of
    the leader, for each follower that came back."""
    sender, group = large_donor(make_world)
    live = 2 * LARGE
    octets_read.clear()
    whole = send(sender, group)
    assert len(whole) == 8
    assert live <= sum(octets_read) < live + 10_000
    assert max(octets_read) <= CHUNK_BYTES
    receiver = make_world(wal_file_bytes=1 << 24).open()
    receiver.create(1)
    receiver.install(group, whole, {index: sender.log.entries(group, LogIndex(index), LogIndex(index), 1)[0]
                                    for index in (4, 20)})  # fmt: skip
    receiver.check_readable()


def test_the_first_chunk_costs_what_it_holds(make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of millions must not be walked through on the event loop, under the lock that the log's threads need,
    before the first octet is sent."""
    world = make_world(wal_file_bytes=1 << 24).open()
    group = world.create(1)
    world.append(group, 1, 20_000, size=200)
    world.step()
    world.snapshot(group, 20_000, 1, [(1, 20_000)])
    world.step()
    looked_up, held = [0], [0]
    place, lock = Table.place, world.log._state.lock

    def counted(self: Table, index: int) -> Any:
        looked_up[0] += 1
        held[0] = held[0] + 1 if lock.locked() else 0
        assert held[0] <= 256, "the lock is let go now and then"
        return place(self, index)

    class Lock:
        locked = lock.locked

        def __enter__(self) -> None:
            lock.acquire()
            held[0] = 0

        def __exit__(self, *_: object) -> None:
            lock.release()

    world.log._state.lock = Lock()
    monkeypatch.setattr(Table, "place", counted)
    octets = len(world.log.snapshot_chunk(group, 1)[2])
    assert octets == CHUNK_BYTES
    assert looked_up[0] < 2 * octets // 200, "one look-up to plan each entry, and one to read it"
    monkeypatch.undo()
    world.log._state.lock = lock
    chunks = send(world, group)
    assert [number for number, chunk in enumerate(chunks, 1) if chunk[3]] == [len(chunks)]


def test_receivers_at_a_pace_of_their_own_get_the_same(make_world: Callable[..., Any]) -> None:
    sender, group = large_donor(make_world)
    whole = send(sender, group)
    for number in (1, 2, 1, 3, 2, 4, 3, 5, 8, 7, 6, 4, 1, 8):
        assert sender.log.snapshot_chunk(group, number) == whole[number - 1]


def test_an_entry_that_moves_while_it_is_sent_arrives_whole(make_world: Callable[..., Any]) -> None:
    """Its WAL file is used again: the second half must come from the segment."""
    sender, group = large_donor(make_world, wal_file_bytes=1 << 20)
    whole = send(sender, group)
    chunks = [sender.log.snapshot_chunk(group, number) for number in (1, 2)]
    before = sender.log.counters()["segment_entries"]
    sender.roll()
    assert sender.log.counters()["segment_entries"] > before
    chunks += [sender.log.snapshot_chunk(group, number) for number in range(3, 9)]
    assert chunks == whole


@pytest.mark.parametrize("number", [1, 3])
def test_a_large_entry_that_rotted_is_not_sent_as_sound(number: int, make_world: Callable[..., Any]) -> None:
    """The follower would refuse the snapshot again and again, and nobody would know where the damage is."""
    sender, group = large_donor(make_world)
    for index in (1, 2, 3):
        sender.log.snapshot_chunk(group, index)
    sender.log.release_snapshot(group)
    [place] = LiveEntries(sender.log._state, sender.log._group(group)).places(4, 4)
    name = sender.log._state.wal_files[place.file].path
    sender.files.flip(name, place.offset + number * CHUNK_BYTES)
    with pytest.raises(DamagedLogError, match="an entry fails its check"):
        send(sender, group)


LARGE = 7 * CHUNK_BYTES // 2


def large_donor(make_world: Callable[..., Any], wal_file_bytes: int = 1 << 24) -> tuple[Any, Any]:
    """A member that has a snapshot at 20 and two entries much larger than a chunk, on disk only."""
    world = make_world(wal_file_bytes=wal_file_bytes, memtable_bytes=0).open()
    group = world.create(1)
    world.append(group, 1, 3)
    world.append(group, 4, size=LARGE)
    world.append(group, 5, 15)
    world.append(group, 20, size=LARGE)
    world.step()
    world.snapshot(group, 20, 1, [(4, 4), (20, 20)])
    world.step()
    return world, group


@pytest.mark.parametrize("installed", [False, True])
def test_a_group_created_again_finds_no_old_snapshot(installed: bool, make_world: Callable[..., Any]) -> None:
    """The node stops between the deletion and the removal of the files: the former queue's state is not the new
    one's. Nothing else was written meanwhile, so no number of the WAL tells the two apart."""
    sender, group = donor(make_world)
    world = make_world().open()
    world.create(1)
    if installed:
        world.install(group, send(sender, group), {})
    else:
        world.append(group, 1, 3)
        world.snapshot(group, 3, 1)
    world.step()
    world.delete(group)
    world.log._writing.run_pending()
    world.create(1)
    world.log._writing.run_pending()
    assert world.files.names(f"/disk/data/{group:016x}"), "the stop came too late"
    world.kill()
    assert (world.recovered[group].snapshot, world.recovered[group].last_index) == (None, 0)
    assert world.files.names(f"/disk/data/{group:016x}") == []


def test_removing_a_deleted_group_spares_its_successor(make_world: Callable[..., Any]) -> None:
    """The housekeeper is late: the successor's snapshot waits behind the removal of the files of that id."""
    sender, group = donor(make_world)
    world = make_world().open()
    world.create(1)
    world.append(group, 1, 3)
    world.snapshot(group, 3, 1)
    world.step()
    world.delete(group)
    world.create(1)
    world.install(group, send(sender, group), sender.models[group].states[-1].log)
    world.step()
    world.crash()
    assert world.recovered[group].snapshot.index == 20


def test_a_group_is_on_disk_before_its_snapshot(make_world: Callable[..., Any]) -> None:
    """The housekeeper may be faster than the writer: a crash would leave a snapshot that was noticed, and no group."""
    sender, group = donor(make_world)
    world = make_world().open()
    world.create(1)
    world.install(group, send(sender, group), sender.models[group].states[-1].log)
    writing, housekeeping = world.log.executors
    housekeeping.run_pending()
    assert world.notices == []
    writing.run_pending()
    housekeeping.run_pending()
    assert [type(notice) for notice in world.notices] == [GroupCreated, SnapshotInstalled]
    world.crash()
    assert world.recovered[group].snapshot.index == 20


def test_there_is_no_chunk_without_a_snapshot(world: Any) -> None:
    """A typed error, not an empty stream."""
    group = world.create(1)
    for number in (1, 2):
        with pytest.raises(SnapshotGoneError, match="start again from chunk 1"):
            world.log.snapshot_chunk(group, number)


def test_installed_live_entries_can_be_sent_on(make_world: Callable[..., Any]) -> None:
    """A member that got its messages by snapshot may become the leader and send them to the next one."""
    sender, group = donor(make_world)
    middle = make_world().open()
    middle.create(1)
    middle.install(group, send(sender, group), {})
    middle.step()
    middle.log.reset(group, LogIndex(20), Term(3))
    middle.append(group, 21, 5, term=4)
    middle.step()
    middle.log.take_snapshot(group, LogIndex(25), Term(4), b"of the middle", [(5, 5), (20, 22)])
    middle.step()
    last = make_world().open()
    last.create(1)
    last.install(group, send(middle, group), {})
    [_created, installed] = last.step()
    assert installed.state == b"of the middle"
    last.log.reset(group, LogIndex(25), Term(4))
    for index in (5, 20, 21, 22):
        assert last.log.payload(group, LogIndex(index)) == middle.log.payload(group, LogIndex(index))


def test_an_older_snapshot_than_ones_own_is_refused(make_world: Callable[..., Any]) -> None:
    """A late stream from a former leader must not turn a member back."""
    sender, group = donor(make_world)
    [(index, term, data, last)] = send(sender, group)
    receiver = make_world().open()
    filled(receiver)
    receiver.snapshot(group, 30, 1)
    receiver.step()
    assert not receiver.log.receive_chunk(group, index, term, 1, last, data)


def test_a_log_is_copied_whole_until_its_reset_is_on_disk(make_world: Callable[..., Any]) -> None:
    """The entry at the snapshot's index tells a start that what stands behind it is a dead branch. The owner gave it up
    with the reset; the housekeeper meets the log before the writer wrote that down, and then power fails."""
    sender = make_world(wal_file_bytes=1 << 20).open()
    group = sender.create(1)
    sender.append(group, 1, 20, term=3)
    sender.snapshot(group, 20, 3)
    sender.step()
    world = make_world().open()
    world.create(1)
    world.append(group, 1, 30, term=2, size=200)
    world.step()
    world.install(group, send(sender, group), {})
    world.step()
    other = world.create(2)
    writing, housekeeping = world.log.executors
    for turn in range(1, 10):
        world.append(other, turn, size=9000)
        writing.run_pending()
        if turn == 7:
            world.reset(group, 20, 3)
            break
        housekeeping.run_pending()
    housekeeping.run_pending()
    assert min(world.log._state.wal_files) > 1, "the branch is in segments"
    world.crash()
    assert (world.recovered[group].first_index, world.recovered[group].last_index) == (21, 20)


def donated(make_world: Callable[..., Any], live: list[tuple[int, int]]) -> tuple[Any, Any]:
    """A member that installed a snapshot at 40 with these live entries of 1500 octets, and the group's id."""
    donor = make_world().open()
    donor.snapshot(filled(donor), 40, 1, live)
    donor.step()
    chunks, last = [], False
    while not last:
        chunks.append(donor.log.snapshot_chunk(1, len(chunks) + 1))
        last = chunks[-1][3]
    kept = {index: donor.log.entries(1, LogIndex(index), LogIndex(index), 1)[0] for first, end in live
            for index in range(first, end + 1)}  # fmt: skip
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    world.install(group, chunks, kept)
    world.step()
    world.reset(group, 40, 1)
    world.append(group, 41, 2)
    world.step()
    return world, group


def snapshot_octets(world: Any) -> int:
    directory = "/disk/data/0000000000000001"
    return sum(world.files.open(f"{directory}/{name}").size() for name in world.files.names(directory))


def test_an_old_message_does_not_keep_what_came_with_a_snapshot(make_world: Callable[..., Any]) -> None:
    """A member that joined while the backlog was long holds it in the file that it received. Once most of it is
    settled a snapshot is due for that alone, and one message that nobody acknowledges costs its own size."""
    world, group = donated(make_world, [(1, 30)])
    assert snapshot_octets(world) > 30 * 1500
    assert world.log.snapshot_due(lambda _group: [(1, 30)]) == []
    assert world.log.snapshot_due(lambda _group: [(7, 7)]) == [group]
    world.snapshot(group, 42, 1, [(7, 7)])
    world.step()
    assert snapshot_octets(world) < 2 * 1500
    assert world.log.payload(group, LogIndex(7))
    assert world.log.snapshot_due(lambda _group: [(7, 7)]) == []
    world.restart()
    assert world.log.payload(group, LogIndex(7))
    world.append(group, 43)
    world.snapshot(group, 43, 1)
    world.step()
    assert snapshot_octets(world) < 500


def test_more_than_half_of_what_came_with_a_snapshot_stays_where_it_is(make_world: Callable[..., Any]) -> None:
    """Copying a backlog to free less than it costs would wear the drive for nothing."""
    world, group = donated(make_world, [(1, 30)])
    before = world.log.counters()["snapshot_bytes"]
    world.snapshot(group, 42, 1, [(1, 20)])
    world.step()
    assert snapshot_octets(world) > 30 * 1500
    assert world.log.counters()["snapshot_bytes"] - before < 1500


def test_what_is_being_sent_is_not_rewritten_under_the_sender(make_world: Callable[..., Any]) -> None:
    """A third member receives the snapshot in chunks while this one takes its next: the stream must stay as it was."""
    world, group = donated(make_world, [(1, 30)])
    whole = [world.log.snapshot_chunk(group, 1)[2]]
    world.snapshot(group, 42, 1, [(7, 7)])
    world.step()
    assert [world.log.snapshot_chunk(group, 1)[2]] == whole
    world.log.release_snapshot(group)
    world.append(group, 43)
    world.snapshot(group, 43, 1, [(7, 7)])
    world.step()
    assert snapshot_octets(world) < 2 * 1500
    assert world.log.payload(group, LogIndex(7))


@pytest.mark.parametrize("what", ["delete", "install"])
def test_a_rewrite_gives_way(what: str, make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The group goes, or a newer snapshot takes its place, while a snapshot copies what is left: no reason to stop."""
    world, group = donated(make_world, [(1, 30)])
    donor, _ = donated(make_world, [(3, 4)])
    donor.append(group, 43, 8)
    donor.step()
    donor.snapshot(group, 50, 1, [(3, 4)])
    donor.step()
    chunks = [donor.log.snapshot_chunk(group, 1)]
    if what == "install":
        world.install(group, chunks, {})
        world.log.executors[0].run_pending()
        world.log.executors[1].run_pending()
    write = SnapshotSource.write

    def meanwhile(self: SnapshotSource, file: Any) -> None:
        monkeypatch.undo()
        if what == "delete":
            world.delete(group)
        else:
            world.reset(group, 50, 1)
        write(self, file)

    monkeypatch.setattr(SnapshotSource, "write", meanwhile)
    world.snapshot(group, 42, 1, [(7, 7)])
    world.step()
    if what == "delete":
        assert group not in world.log._state.groups
    else:
        assert world.log.payload(group, LogIndex(3))
        world.restart()
