"""Places of entries, against a dictionary; the plan of what may go; the table's rules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.log.errors import AppendGapError
from reference_broker.log.extents import Extents, Place, checked, contains, intersects
from reference_broker.log.housekeeping import (
    DiskUsage,
    Part,
    dead_files,
    files_to_flush,
    first_file_bytes,
    removable,
    snapshots_due,
    to_compact,
)
from reference_broker.log.memtable import ENTRY_OVERHEAD, Memory, Table
from reference_broker.log.segment_codec import Segment
from reference_broker.types import GroupId

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 12), st.integers(1, 4)),
        st.tuples(st.just("roll"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("clear"), st.integers(0, 9), st.just(0)),
    ),
    max_size=60,
)


def play(steps: list[tuple[str, int, int]]) -> tuple[Extents, dict[int, Place]]:
    """Run steps on extents and on a dictionary."""
    extents, model, file = Extents(), dict[int, Place](), 1
    for at, (kind, number, count) in enumerate(steps):
        last = max(model, default=0)
        if kind == "roll":
            file += number
        elif kind == "truncate":
            extents.truncate_from(number)
            model = {index: place for index, place in model.items() if index < number}
        elif kind == "clear" and number == 0:
            extents.clear()
            model = {}
        elif kind == "add":
            first = max(1, last + 3 - number)
            for index in range(first, first + count):
                place = Place(file, 1000 * at + index, index % 7, index, at + 1, 1)
                extents.add(index, place)
                model = {known: value for known, value in model.items() if known < index} | {index: place}
    return extents, model


@given(STEPS)
def test_extents_are_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    """A wrong place would serve one message for another."""
    extents, model = play(steps)
    assert {index: extents.find(index) for index in range(45) if extents.find(index)} == model
    assert extents.last == max(model, default=0)
    assert extents.files() == {place.file for place in model.values()}
    runs = extents.terms(0)
    spread = {index: [term for first, term in runs if first <= index][-1] for index in model}
    assert spread == {index: place.term for index, place in model.items()}


@given(STEPS, st.integers(1, 30), st.integers(0, 15))
def test_missing_finds_the_first_hole(steps: list[tuple[str, int, int]], first: int, length: int) -> None:
    """Recovery refuses a log with a hole: it must see each one."""
    extents, model = play(steps)
    holes = [index for index in range(first, first + length) if index not in model]
    assert extents.missing(first, first + length - 1) == (holes[0] if holes else 0)


RANGES = st.lists(st.integers(1, 25), unique=True, max_size=12).map(sorted)


def as_ranges(indexes: list[int]) -> tuple[tuple[int, int], ...]:
    return checked([(index, index) for index in indexes], 1000)


@given(STEPS, st.integers(0, 30), RANGES)
def test_keep_drops_nothing_that_is_wanted(steps: list[tuple[str, int, int]], floor: int, live: list[int]) -> None:
    """Dropping the place of a live entry loses a message; keeping dead ones forever fills the drive."""
    extents, model = play(steps)
    whole = {extent.first: set(range(extent.first, extent.last + 1)) for extent in extents}
    extents.keep(floor, as_ranges(live))
    for index in model:
        if index > floor or index in live:
            assert extents.find(index) == model[index]
    for extent in extents:
        assert any(index > floor or index in live for index in whole[extent.first])


@given(RANGES, st.integers(1, 30), st.integers(0, 6))
def test_ranges_are_sets(indexes: list[int], first: int, length: int) -> None:
    """Membership and overlap of ranges decide what is live."""
    ranges = as_ranges(indexes)
    assert [index for index in range(30) if contains(ranges, index)] == indexes
    assert intersects(ranges, first, first + length) == any(first <= index <= first + length for index in indexes)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


@pytest.mark.parametrize("ranges", [[(2, 1)], [(1, 3), (3, 4)], [(5, 6), (1, 2)], [(0, 1)], [(9, 11)]])
def test_bad_ranges_are_refused(ranges: list[tuple[int, int]]) -> None:
    """Live ranges come from a machine: a bug there must not become a lost message here."""
    with pytest.raises(ValueError, match="ranges must ascend"):
        checked(ranges, 10)


A, B = GroupId(1), GroupId(2)


@pytest.mark.parametrize(
    ("numbers", "needed", "dead"),
    [([1, 2, 3], {2}, [1]), ([1, 2, 3, 4, 5], {3, 9}, [1, 2]), ([4, 5], set(), []), ([2, 3, 1, 4], set(), [1, 2, 3])],
    ids=["needed", "no holes", "current stays", "oldest first"],
)
def test_dead_files(numbers: list[int], needed: set[int], dead: list[int]) -> None:
    """A file that goes before an older one lets what it superseded come back."""
    assert dead_files(numbers, needed, current=4) == dead


def test_a_file_is_copied_when_the_second_behind_it_is_written() -> None:
    """Too early copies what is settled a moment later; too late lets the WAL grow."""
    assert files_to_flush([3, 1, 2, 4, 5], current=4, waiting=2) == [1, 2]


MIB = 1 << 20
NOTHING = DiskUsage(A, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("usage", "closed", "due"),
    [
        (NOTHING._replace(unflushed=100, total=100, replayed=100), 1, True),
        (NOTHING._replace(unflushed=100, unflushed_live=100, total=100, live=100, replayed=100), 3, False),
        (NOTHING._replace(unflushed=10 * MIB, unflushed_live=9 * MIB, total=99 * MIB, live=98 * MIB), 3, False),
        (NOTHING._replace(unflushed=10 * MIB, unflushed_live=1 * MIB, total=10 * MIB, live=1 * MIB), 1, True),
        (NOTHING._replace(total=500 * MIB, live=480 * MIB), 1, False),
        (NOTHING._replace(total=500 * MIB, live=480 * MIB), 3, True),
        (NOTHING._replace(total=500 * MIB, live=480 * MIB, snapshot=11 * MIB), 3, False),
        (NOTHING._replace(unflushed=MIB, total=MIB, snapshot=40 * MIB), 1, False),
        (NOTHING._replace(total=300 * MIB, live=300 * MIB, replayed=256 * MIB), 1, True),
    ],
    ids=[
        "idle and settled", "one old message", "a backlog grows", "keeps up", "too little", "the WAL fills",
        "a large snapshot", "a snapshot larger than what it saves", "much to replay",
    ],
)  # fmt: skip
def test_a_snapshot_is_due_when_it_pays(usage: DiskUsage, closed: int, due: bool) -> None:
    """Too few, and disk and start grow; too many, and the node writes snapshots instead of messages."""
    assert snapshots_due([usage], closed, 64 * MIB) == ([A] if due else [])


def test_who_frees_most_is_asked_first() -> None:
    """The housekeeper works through them one by one."""
    small, large = (DiskUsage(group, size, 0, size, 0, size, 0) for group, size in ((A, 10), (B, 20)))
    assert snapshots_due([small, large], 1, MIB) == [B, A]


def part(number: int, first: int, last: int, needed: int, octets: int = 100, truncates: int = 0) -> Part:
    return Part(Segment(number, truncates, first, last, last - first + 1, octets), needed, octets * needed // 10)


@pytest.mark.parametrize(
    ("chain", "gone"),
    [
        ([part(1, 1, 10, 0), part(2, 11, 20, 5)], [1]),
        ([part(1, 1, 10, 1), part(2, 5, 14, 0)], []),
        ([part(1, 1, 10, 0), part(2, 5, 14, 0)], [1, 2]),
        ([part(1, 1, 10, 1), part(2, 11, 20, 0)], [2]),
        ([part(1, 1, 10, 1), part(2, 12, 21, 0, truncates=8)], []),
    ],
    ids=["dead", "hides an older one", "with what it hid", "hides nothing", "truncates"],
)
def test_a_segment_goes_when_nothing_comes_back(chain: list[Part], gone: list[int]) -> None:
    """An overwritten entry in an older file would be part of the log again."""
    assert [segment.number for segment in removable(chain)] == gone


@pytest.mark.parametrize(
    ("chain", "run"),
    [
        ([part(1, 1, 10, 10), part(2, 11, 20, 4), part(3, 21, 30, 9)], [2]),
        ([part(1, 1, 10, 6), part(2, 11, 20, 6)], []),
        ([part(1, 1, 10, 1), part(2, 11, 20, 2), part(3, 21, 30, 10)], [1, 2]),
        ([part(at, 10 * at, 10 * at + 9, 10, octets=5) for at in range(1, 9)], [*range(1, 9)]),
        ([part(at, 10 * at, 10 * at + 9, 10, octets=5) for at in range(1, 8)], []),
        ([part(at, 10 * at, 10 * at + 9, 4, octets=200) for at in range(1, 9)], [1]),
    ],
    ids=["less than half", "more than half", "adjacent", "many small", "a few small", "bounded"],
)
def test_poor_segments_become_one(chain: list[Part], run: list[int]) -> None:
    """One old message must not cost a file of 64 MiB, and a compaction must not read a whole disk."""
    assert [found.segment.number for found in to_compact(chain, 100)] == run


def test_the_nodes_of_a_cluster_do_not_roll_over_together() -> None:
    """Members write the same octets; with files of one size all three would take snapshots at the same moment."""
    sizes = [first_file_bytes(64 << 20, node) for node in (1, 2, 3)]
    assert all(16 << 20 <= size < 32 << 20 for size in sizes)
    assert min(abs(a - b) for at, a in enumerate(sizes) for b in sizes[at + 1 :]) > 1 << 20


def test_places_stay_until_a_reset_is_on_disk() -> None:
    """Freeing the files of the old log before the reset is durable could let half of it come back."""
    table = Table(A, last=9)
    for index in range(1, 10):
        table.disk.add(index, Place(1, index, 1, 1, 1, 1))
    table.start_at(20, 3, ())
    table.resets = 1
    table.prune()
    assert table.disk.files() == {1}
    table.resets = 0
    table.prune()
    assert table.disk.files() == set()


@pytest.mark.parametrize("indexes", [[3], [5], [1, 3], [2, 1], [0]])
def test_a_gap_is_never_accepted(indexes: list[int], entry: Callable[..., Any]) -> None:
    """I9: behind a gap, no recovery can tell what is missing."""
    table, memory = Table(A, floor=0), Memory(1 << 20)
    memory.append(table, [entry(1)])
    with pytest.raises(AppendGapError, match="holds 1 to 1"):
        table.check_append([entry(index) for index in indexes])


def test_what_a_snapshot_covers_is_final(entry: Callable[..., Any]) -> None:
    """Overwriting a committed entry would make this member differ from the others."""
    table = Table(A)
    table.start_at(10, 1, ())
    with pytest.raises(AppendGapError):
        table.check_append([entry(10)])
    table.check_append([entry(11)])


def test_memory_is_bounded_and_oldest_entries_go_first(entry: Callable[..., Any]) -> None:
    """A backlog must cost disk, not memory."""
    cost = 100 + ENTRY_OVERHEAD
    memory, tables = Memory(10 * cost), [Table(A), Table(B)]
    for index in range(1, 21):
        for table in tables:
            added = entry(index, size=100)
            memory.append(table, [added])
            memory.written(table, added)
    assert memory.bytes <= 10 * cost
    assert [sorted(table.memory) for table in tables] == [[16, 17, 18, 19, 20]] * 2


def test_memory_never_drops_what_is_not_on_disk(entry: Callable[..., Any]) -> None:
    """An entry that is nowhere else cannot be read again."""
    memory, table = Memory(0), Table(A)
    added = [entry(index) for index in range(1, 6)]
    memory.append(table, added)
    assert sorted(table.memory) == [1, 2, 3, 4, 5]
    memory.written(table, added[2])
    memory.shrink()
    assert sorted(table.memory) == [4, 5]


def test_a_stale_notice_does_not_free_the_new_entry(entry: Callable[..., Any]) -> None:
    """The old entry 2 is on disk; the new entry 2 is not, and must stay."""
    memory, table = Memory(0), Table(A)
    old = [entry(1), entry(2)]
    memory.append(table, old)
    memory.append(table, [entry(2, term=2)])
    memory.written(table, old[1])
    memory.shrink()
    assert table.memory[2].term == 2


def test_unneeded_payloads_leave_memory_once_written(entry: Callable[..., Any]) -> None:
    """Most messages are consumed at once: holding them until a snapshot would waste the budget."""
    memory, table = Memory(1 << 20), Table(A)
    added = [entry(index) for index in range(1, 6)]
    memory.append(table, added)
    memory.drop_payloads(table, 4)
    assert sorted(table.memory) == [1, 2, 3, 4, 5]
    memory.written(table, added[1])
    assert sorted(table.memory) == [3, 4, 5]
    memory.written(table, added[4])
    assert sorted(table.memory) == [4, 5]
    assert memory.bytes == sum(len(item.payload) + ENTRY_OVERHEAD for item in added[3:])
