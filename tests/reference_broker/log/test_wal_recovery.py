"""What recovery makes of WAL octets: every prefix, every damaged octet, stale octets of recycled files."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.log import wal_codec
from reference_broker.log.errors import DamagedLogError, MissingEntriesError, OtherFormatError
from reference_broker.log.extents import Extents
from reference_broker.log.high_water import Mark, open_mark
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.recovery import SnapshotFacts, WalRecovery, join_snapshot, replay_meta
from reference_broker.log.wal_codec import (
    FIRST_BATCH,
    HEAD_SIZE,
    META_MAGIC,
    ROW_SIZE,
    SECTOR,
    WAL_MAGIC,
    Batch,
    RowKind,
    Windows,
    batches,
    check_file_header,
    encode_batch_head,
    encode_file_header,
    mark_of,
    next_sector,
    pack_row,
)
from reference_broker.storage.errors import START_BLANK
from reference_broker.types import GroupId

STORE = b"0123456789abcdef"
GROUP = GroupId(7)
META = "/disk/data/meta"
WAL = "/disk/wal"
VOTES = 3
"""How many batches :func:`elected` writes into its meta log."""


def batch_octets(number: int, first: int, payloads: list[bytes], *, file: int = 1, term: int = 1) -> bytes:
    """One batch of entries ``first``, ... of the group, up to the next sector."""
    rows = [
        pack_row(GROUP, first + at, term, len(payload), zlib.crc32(payload), RowKind.ENTRY, 1, 0)
        for at, payload in enumerate(payloads)
    ]
    octets = encode_batch_head(mark_of(STORE, file), number, rows, sum(map(len, payloads))) + b"".join(payloads)
    return octets.ljust(next_sector(len(octets)), b"\0")


def wal_file(*parts: bytes, file: int = 1, size: int = 8192) -> bytes:
    """A preallocated WAL file that holds batches."""
    return (encode_file_header(WAL_MAGIC, file, STORE) + b"".join(parts)).ljust(size, b"\0")


def windows(octets: bytes) -> Windows:
    """A file of which little is in memory at a time, so that everything is cut somewhere."""
    return Windows(lambda offset, size: octets[offset : offset + size], len(octets), step=SECTOR)


def recover(*files: tuple[int, bytes]) -> tuple[Extents, WalRecovery]:
    recovery = WalRecovery(STORE, {GROUP: Extents()})
    for number, octets in files:
        recovery.replay(f"{number}.wal", number, windows(octets))
    return recovery.groups[GROUP], recovery


THREE = (batch_octets(1, 1, [b"a" * 100, b""]), batch_octets(2, 3, [b"b" * 700]), batch_octets(3, 4, [b"c"] * 30))
LASTS = (0, 2, 3, 33)
"""The last index after none, one, two and three of these batches."""


def ends_of(parts: tuple[bytes, ...]) -> list[int]:
    """Where the meaningful octets of each batch end."""
    ends, offset = [], FIRST_BATCH
    for part in parts:
        ends.append(offset + len(part.rstrip(b"\0")))
        offset += len(part)
    return ends


def test_every_prefix_recovers_the_whole_batches_in_it() -> None:
    """A torn write of any length must cost what was not synced and nothing else, or a power cut loses messages."""
    whole = wal_file(*THREE)
    ends = ends_of(THREE)
    for size in range(FIRST_BATCH, len(whole) + 1):
        extents, recovery = recover((1, whole[:size].ljust(len(whole), b"\0")))
        count = sum(size >= end for end in ends)
        assert (extents.last, recovery.last_batch) == (LASTS[count], count), f"prefix of {size} octets"


def test_a_file_that_is_really_shorter_recovers_too() -> None:
    """A file that lost its preallocated tail is still read."""
    whole = wal_file(*THREE)
    for size in range(FIRST_BATCH, ends_of(THREE)[-1] + 1):
        extents, _recovery = recover((1, whole[:size]))
        assert extents.last in LASTS


def test_every_damaged_octet_is_found() -> None:
    """A flipped bit below a synced batch must stop the node; the same bit in the last batch cannot be told from a
    torn write and drops it. In the padding it means nothing."""
    whole = wal_file(*THREE)
    ends = ends_of(THREE)
    starts = [FIRST_BATCH, *(FIRST_BATCH + sum(map(len, THREE[:at])) for at in (1, 2))]
    for offset in range(FIRST_BATCH, ends[-1]):
        damaged = bytearray(whole)
        damaged[offset] ^= 0x10
        batch = next((at for at in range(3) if starts[at] <= offset < ends[at]), None)
        if batch is None:
            assert recover((1, bytes(damaged)))[0].last == LASTS[3]
        elif batch == 2:
            assert recover((1, bytes(damaged)))[0].last == LASTS[2]
        else:
            with pytest.raises(DamagedLogError) as caught:
                recover((1, bytes(damaged)))
            assert caught.value.path == "1.wal"
            assert starts[batch] <= caught.value.offset <= offset


def test_no_more_than_a_window_is_in_memory() -> None:
    """A file that grew to gigabytes must not need gigabytes to start from."""
    held: list[int] = []
    whole = wal_file(*THREE, size=1 << 20)

    def read(offset: int, size: int) -> bytes:
        held.append(size)
        return whole[offset : offset + size]

    recovery = WalRecovery(STORE, {GROUP: Extents()})
    assert recovery.replay("1.wal", 1, Windows(read, len(whole), step=4096)) == 3
    assert recovery.groups[GROUP].last == LASTS[3]
    assert max(held) == 4096 and sum(held) <= 2 * len(whole)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all octets of which a CRC is taken."""
    sizes: list[int] = []
    crc32 = wal_codec.crc32

    def counted(octets: bytes, seed: int = 0) -> int:
        sizes.append(len(octets))
        return crc32(octets, seed)

    monkeypatch.setattr(wal_codec, "crc32", counted)
    return sizes


def claims(size: int, file: int, at: int = 0, change: int = 0) -> bytes:
    """Octets that hold in every sector the head of a late batch with a long table, as the log would write it into file
    ``file``, but for one octet."""
    rows = [bytes(ROW_SIZE)] * (size // 2 // ROW_SIZE)
    head = bytearray(encode_batch_head(mark_of(STORE, file), 1 << 40, rows, 0)[:SECTOR])
    head[at] ^= change
    return bytes(head) * (size // SECTOR)


FALSE_HEADS = {"of another use of the file": claims(1 << 20, 1), "damaged": claims(1 << 20, 9, HEAD_SIZE - 5, 1)}


@pytest.mark.parametrize("tail", FALSE_HEADS.values(), ids=FALSE_HEADS)
def test_the_work_is_bounded_by_the_file_whatever_stands_in_it(tail: bytes, checked: list[int]) -> None:
    """A recycled file is full of old batches, and of what publishers chose to write: a start that believes the lengths
    in there takes minutes for a file, or as long as somebody likes."""
    parts = [batch_octets(number, number, [b"x" * 700], file=9) for number in (1, 2, 3)]
    whole = encode_file_header(WAL_MAGIC, 9, STORE) + b"".join(parts) + tail
    read: list[int] = []

    def take(offset: int, size: int) -> bytes:
        read.append(size)
        return whole[offset : offset + size]

    recovery = WalRecovery(STORE, {GROUP: Extents()})
    checked.clear()
    assert recovery.replay("9.wal", 9, Windows(take, len(whole), step=1 << 16)) == 3
    assert recovery.groups[GROUP].last == 3
    assert sum(checked) <= len(whole) and sum(read) <= 3 * len(whole)


@pytest.mark.parametrize("tail", FALSE_HEADS.values(), ids=FALSE_HEADS)
def test_the_work_for_the_meta_log_is_bounded_by_the_file_too(tail: bytes, checked: list[int]) -> None:
    """What a client declares stands in the meta log, and may end in half a batch."""
    vote = pack_row(GROUP, 2, 3, 0, 0, RowKind.HARD_STATE, 0, 0)
    group = pack_row(GROUP, 0, 1, 0, 0, RowKind.GROUP, 0, 0)
    first = encode_batch_head(mark_of(STORE, 9), 1, [group, vote], 0).ljust(SECTOR, b"\0")
    half = encode_file_header(META_MAGIC, 9, STORE) + first + tail
    checked.clear()
    found = replay_meta("9.meta", half * 2, 9, STORE)
    assert (found.records[GROUP].term, found.records[GROUP].voted_for) == (3, 2)
    assert sum(checked) <= 2 * len(half)


def test_a_payload_is_never_taken_for_a_batch() -> None:
    """A publisher sends whole batches, sound in every way but for the mark that only the broker knows, as its messages:
    none of them may be replayed, nor stop the start, when the batch they came in is torn."""
    forged = b"".join(batch_octets(number, 50, [b"forged"], file=file) for file in (1, 8, 10) for number in range(1, 9))
    torn = batch_octets(2, 2, [bytes(SECTOR - HEAD_SIZE - ROW_SIZE) + forged], file=9)
    first = encode_file_header(WAL_MAGIC, 9, STORE) + batch_octets(1, 1, [b"x"], file=9)
    head, row, payload = 3, HEAD_SIZE + 3, SECTOR - 1
    for damaged in (head, row, payload):
        extents, recovery = recover((9, first + flipped(torn, damaged)))
        assert (extents.last, recovery.last_batch) == (1, 1)


def test_a_later_head_is_enough_to_tell_damage() -> None:
    """The power went while a batch was written, of which only the head came to the drive: the batch before it had been
    synced by then, so damage to that one must not pass for a torn end."""
    second = bytearray(THREE[1])
    second[HEAD_SIZE + ROW_SIZE + 5] ^= 1
    with pytest.raises(DamagedLogError, match="sound one follows"):
        recover((1, wal_file(THREE[0], bytes(second), THREE[2][:HEAD_SIZE])))


@pytest.mark.parametrize("name", ["wal/00000001.wal", "data/meta/00000001.meta"])
def test_another_version_of_the_format_is_refused_by_name(name: str, make_world: Callable[..., Any]) -> None:
    """Who starts a new version on an old directory must learn that nothing is damaged, and what to do; giving up the
    data, as damage asks for, would cost all of it."""
    world = make_world().open()
    world.append(world.create(1), 1)
    world.step()
    world.log.close()
    path = f"/disk/{name}"
    file = world.files.open(path)
    size = file.size()
    for base in (0, size // 2) if path.endswith(".meta") else (0,):
        header = bytearray(file.read(base, 36))
        header[4:6] = (header[5] - 1).to_bytes(2)
        header[32:36] = zlib.crc32(header[:32]).to_bytes(4)
        file.write([bytes(header)], base)
    with pytest.raises(OtherFormatError, match=r"format \d, and this version .* reads format \d only") as caught:
        world.open()
    assert caught.value.path == path and START_BLANK not in str(caught.value)


def test_damage_to_a_payload_names_the_payload() -> None:
    """Whoever restores a file wants to know where to look."""
    damaged = bytearray(wal_file(*THREE))
    payload = FIRST_BATCH + HEAD_SIZE + 2 * ROW_SIZE
    damaged[payload + 50] ^= 1
    with pytest.raises(DamagedLogError, match="sound one follows") as caught:
        recover((1, bytes(damaged)))
    assert caught.value.offset == payload


def test_a_torn_payload_is_counted_as_a_torn_tail() -> None:
    """The operator should see that a restart dropped an unfinished batch."""
    torn = wal_file(THREE[0], THREE[1][:200])
    extents, recovery = recover((1, torn))
    assert (extents.last, recovery.torn_tails) == (2, 1)


@pytest.mark.parametrize("cut", range(0, len(THREE[0]) + len(THREE[1]) + len(THREE[2]), 37))
def test_stale_octets_of_a_recycled_file_never_replay(cut: int) -> None:
    """A recycled file is full of sound batches of its former life; replaying one would bring back dead messages."""
    old = wal_file(*(batch_octets(number, number, [b"old" * 150], file=1) for number in range(1, 9)))
    new = (encode_file_header(WAL_MAGIC, 9, STORE) + batch_octets(9, 1, [b"new" * 40], file=9))[: SECTOR + cut]
    recycled = new + old[len(new) :]
    extents, recovery = recover((9, recycled))
    assert {extent.file for extent in extents} <= {9}
    assert recovery.last_batch in (0, 9)


def test_a_batch_missing_between_files_is_damage() -> None:
    """The last batch of a full file was synced before the next file got its first: it may not just vanish."""
    first = wal_file(THREE[0])
    later = wal_file(batch_octets(3, 4, [b"c"], file=2), file=2)
    with pytest.raises(DamagedLogError, match="batch 2 is missing"):
        recover((1, first), (2, later))


def test_a_torn_batch_written_again_in_the_next_file_is_fine() -> None:
    """After a crash and a restart the torn tail stays in the old file for as long as the file does."""
    first = wal_file(THREE[0], THREE[1][:200])
    later = wal_file(batch_octets(2, 3, [b"again"], file=2), file=2)
    extents, recovery = recover((1, first), (2, later))
    assert (extents.last, recovery.last_batch) == (3, 2)


def test_a_missing_file_in_the_middle_is_refused() -> None:
    """Dead files go oldest first, so a file that is missing between others had entries that somebody may need, even if
    no group shows a hole."""
    with pytest.raises(DamagedLogError, match="WAL file 2 is missing, yet file 5 is there"):
        recover((1, wal_file(THREE[0])), (5, wal_file(batch_octets(90, 3, [b"x"], file=5), file=5)))
    with pytest.raises(DamagedLogError, match="batch 2 is missing, yet batch 3 follows"):
        recover(
            (1, wal_file(THREE[0])), (2, wal_file(file=2)), (3, wal_file(batch_octets(3, 3, [b"x"], file=3), file=3))
        )


def test_a_hole_above_the_snapshot_is_refused() -> None:
    """A log with a hole would be applied in a different order than on the other members."""
    extents, _recovery = recover((1, wal_file(THREE[0])), (2, wal_file(batch_octets(2, 50, [b"x"], file=2), file=2)))
    with pytest.raises(MissingEntriesError) as caught:
        join_snapshot(GROUP, extents, SnapshotFacts())
    assert (caught.value.first, caught.value.last) == (3, 50)


def test_a_missing_live_entry_is_refused() -> None:
    """A live entry is a message that somebody still waits for."""
    extents, _recovery = recover((1, wal_file(*THREE)))
    join_snapshot(GROUP, extents, SnapshotFacts(index=20, term=1, live=((2, 5),)))
    extents, _recovery = recover((1, wal_file(batch_octets(3, 4, [b"c"] * 30))))
    with pytest.raises(MissingEntriesError, match="still needs the entry 2"):
        join_snapshot(GROUP, extents, SnapshotFacts(index=20, term=1, live=((2, 5),)))


@given(
    st.lists(st.lists(st.binary(max_size=1500), min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(1, 1 << 60),
    st.integers(1, 1 << 40),
)
def test_whatever_is_written_is_read_back(contents: list[list[bytes]], number: int, first: int) -> None:
    """Any payloads, empty ones included, at any index and batch number."""
    parts, index = [], first
    for at, payloads in enumerate(contents):
        parts.append(batch_octets(number + at, index, payloads))
        index += len(payloads)
    data = wal_file(*parts, size=0)
    found = [batch for batch in batches(windows(data), mark_of(STORE, 1)) if isinstance(batch, Batch)]
    read = []
    for batch in found:
        at = batch.payload
        for row in batch.rows:
            read.append((row.log_index, bytes(data[at : at + row.size])))
            at += row.size
    flat = [payload for payloads in contents for payload in payloads]
    assert read == list(zip(range(first, index), flat, strict=True))


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (encode_file_header(WAL_MAGIC, 1, STORE)[:-1], "shorter"),
        (b"\0" * SECTOR, "fails its check"),
        (encode_file_header(META_MAGIC, 1, STORE), "format"),
        (encode_file_header(WAL_MAGIC, 2, STORE), "renamed"),
        (encode_file_header(WAL_MAGIC, 1, b"another store id"), "another node"),
        (encode_file_header(WAL_MAGIC, 1, STORE), None),
    ],
)
def test_a_file_header_says_what_is_wrong(octets: bytes, reason: str | None) -> None:
    """A renamed or foreign file must be named as such, not replayed."""
    wrong = check_file_header("1.wal", octets, WAL_MAGIC, 1, STORE)
    assert wrong is None if reason is None else reason in str(wrong)


def test_a_damaged_file_stops_the_start_and_is_named(make_world: Callable[..., Any]) -> None:
    """The operator must learn which file to restore."""
    world = make_world().open()
    group = world.create(1)
    for index in (1, 2):
        world.append(group, index)
        world.step()
    world.log.close()
    [name] = [name for name in world.files.names("/disk/wal") if name.endswith(".wal")]
    world.files.flip(f"/disk/wal/{name}", FIRST_BATCH + 2)
    with pytest.raises(DamagedLogError, match=f"wal/{name}, offset {FIRST_BATCH}"):
        world.open()


def elected(world: Any) -> tuple[str, bytes, list[range]]:
    """A node that voted in three terms and stopped: path and octets of its meta log, and where the header and each
    batch stand in its first half."""
    group = world.create(1)
    for term in (1, 2, 3):
        world.hard_state(group, term, term)
        world.step()
    world.log.close()
    [name] = world.files.names(META)
    octets = world.files.open(f"{META}/{name}").read(0, 1 << 20)
    starts = [FIRST_BATCH, FIRST_BATCH + SECTOR, FIRST_BATCH + 2 * SECTOR]
    records = [range(start, start + HEAD_SIZE + rows * ROW_SIZE) for start, rows in zip(starts, (2, 1, 1), strict=True)]
    return f"{META}/{name}", octets, [range(36), *records]


def open_with(world: Any, path: str, octets: bytes) -> RecoveredGroup:
    """Start the node with these octets for a meta log, and with the high-water mark of the moment when the node
    stopped."""
    for name in world.files.names(META):
        world.files.remove(f"{META}/{name}")
    mark = Mark(0, 0, int(path.rpartition("/")[2].removesuffix(".meta")), VOTES)
    open_mark(world.files, WAL, b"the-same-store!!", mark)
    file = world.files.create(path)
    file.write([octets], 0)
    file.datasync()
    world.open().log.close()
    found: RecoveredGroup = world.recovered[GroupId(1)]
    return found


def flipped(octets: bytes, *offsets: int) -> bytes:
    """Octets with a bit of some turned."""
    damaged = bytearray(octets)
    for offset in offsets:
        damaged[offset] ^= 0x10
    return bytes(damaged)


def test_a_damaged_octet_of_the_meta_log_costs_nothing(make_world: Callable[..., Any]) -> None:
    """A vote that was synced and is forgotten is given twice: whichever octet of whichever copy is damaged, the vote is
    there, of the last batch, too; and the start says that it was found once only."""
    world = make_world().open()
    path, octets, records = elected(world)
    for base in (0, len(octets) // 2):
        for offset in (at for record in records for at in record):
            found = open_with(world, path, flipped(octets, base + offset))
            assert (found.term, found.voted_for) == (3, 3), f"octet {base + offset}"
            assert world.log.counters()["recovery_meta_single"] == 1
            assert world.log.counters()["recovery_torn_tails"] == 0


def test_a_whole_half_of_the_meta_log_may_go(make_world: Callable[..., Any]) -> None:
    """What rots is larger than an octet: a sector of 4 KiB, or a whole half of the file, in other batches than the
    damage of the other half."""
    world = make_world().open()
    path, octets, records = elected(world)
    half = len(octets) // 2
    assert half % 4096 == 0
    for lost in (octets[:half] + bytes(half), bytes(half) + octets[half:]):
        found = open_with(world, path, lost)
        assert (found.term, found.voted_for) == (3, 3)
    here, there = records[1].start, half + records[2].start
    found = open_with(world, path, flipped(octets, here, there))
    assert (found.term, found.voted_for) == (3, 3)


def test_two_damaged_copies_in_the_meta_log_are_refused(make_world: Callable[..., Any]) -> None:
    """Damage to both copies of anything that was synced stops the start, with file and offset: nobody else knows of a
    vote. All that a node knows is never taken for torn."""
    world = make_world().open()
    path, octets, records = elected(world)
    half = len(octets) // 2
    for record in records[:-1]:
        with pytest.raises(DamagedLogError, match=f"{half + record.start}") as caught:
            open_with(world, path, flipped(octets, record[7], half + record[9]))
        assert (caught.value.path, caught.value.offset) == (path, record.start)
    with pytest.raises(DamagedLogError, match="ends at batch 2, but batch 3 of file 1 was synced") as caught:
        open_with(world, path, flipped(octets, records[-1][0], half + records[-1][0]))
    assert (caught.value.path, caught.value.offset) == (path, records[-1].start)
    open_with(world, path, octets)
    world.open().log.close()  # writes all into the first batch of a new file, and that one is no torn write
    [name] = world.files.names(META)
    for base in (0, half):
        world.files.flip(f"{META}/{name}", base + FIRST_BATCH)
    with pytest.raises(DamagedLogError, match="before the file got its name"):
        world.open()


def test_a_torn_vote_is_whole_or_was_never_told(make_world: Callable[..., Any]) -> None:
    """Power fails while a vote is written, before anybody was told: the drive may hold any part of either copy. The
    start must go on, with this vote or with the one before."""
    world = make_world().open()
    path, octets, records = elected(world)
    half, last, number = len(octets) // 2, records[-1], int(path.rpartition("/")[2].removesuffix(".meta"))
    for first in range(len(last) + 1):
        for second in {0, 1, len(last) - first, len(last) - 1, len(last)}:
            torn = bytearray(octets)
            torn[last.start + first : last.stop] = bytes(len(last) - first)
            torn[half + last.start + second : half + last.stop] = bytes(len(last) - second)
            found = replay_meta(path, bytes(torn), number, b"the-same-store!!").records[GroupId(1)]
            whole = bytes(torn[last.start : last.stop]) == octets[last.start : last.stop]
            whole |= bytes(torn[half + last.start : half + last.stop]) == octets[last.start : last.stop]
            assert (found.term, found.voted_for) == ((3, 3) if whole else (2, 2)), f"{first} and {second} octets"


def test_a_missing_meta_log_is_refused(make_world: Callable[..., Any]) -> None:
    """A node that lost the file with its votes would start as one that never had any group."""
    world = make_world().open()
    path, _octets, _records = elected(world)
    world.files.remove(path)
    with pytest.raises(DamagedLogError, match="meta log is missing"):
        world.open()
