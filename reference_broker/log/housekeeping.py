"""The decisions of the housekeeper: which WAL files go, which segments are rewritten, who takes a snapshot. Pure.

WAL files go oldest first and without holes, so the remaining files are always the end of the WAL. A start replays them
on top of the segments, and finds the same log whether or not one of them was already copied into segments. Below the
lowest index in these files nothing has changed since, and from that index on the files hold everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from reference_broker.log.segment_codec import Segment, chain_last
from reference_broker.types import GroupId

_STAGGER: Final = 0x9E3779B97F4A7C15
"""The golden ratio as a 64-bit fraction, which spreads small node ids evenly."""
REPLAY_FILES: Final = 4
"""Number of WAL files' worth of entries that a start should hand to the owner of a group at most. From there on a
snapshot is due even if it frees nothing."""
SNAPSHOT_SMALL: Final = 65_536
"""Size up to which a snapshot costs as much as the smallest segment: its syncs."""
MERGE_COUNT: Final = 8
"""Number of small segments in a row that become one segment."""
SMALL_PART: Final = 16
"""Part of the full size below which a segment is small."""


def dead_files(numbers: Iterable[int], needed: set[int], current: int) -> list[int]:
    """The WAL files that may go, oldest first: the files below ``current`` and below every needed file."""
    end = min([current, *needed])
    return [number for number in sorted(numbers) if number < end]


def files_to_flush(numbers: Iterable[int], current: int, waiting: int) -> list[int]:
    """The closed WAL files that are at least ``waiting`` files behind the current file, oldest first."""
    return [number for number in sorted(numbers) if number <= current - waiting]


class Part(NamedTuple):
    """A segment, with the number of its needed entries and their octets."""

    segment: Segment
    entries: int
    octets: int


def removable(chain: Sequence[Part]) -> list[Segment]:
    """The segments that may simply go, in order: no entry is needed, and they hide no entry of an older segment."""
    gone: list[Segment] = []
    kept: list[Segment] = []
    for segment, entries, _octets in chain:
        if not entries and chain_last(kept) < max(segment.lowest, 1):
            gone.append(segment)
        else:
            kept.append(segment)
    return gone


def to_compact(chain: Sequence[Part], segment_bytes: int) -> list[Part]:
    """Adjacent segments that should become one; empty if there are none.

    Segments are joined if they are small, or if less than half of them is needed, as long as the result is not larger
    than a segment: a compaction reads and writes ``segment_bytes`` at most.
    """
    at = 0
    while at < len(chain):
        run: list[Part] = []
        octets = 0
        for part in takewhile(lambda part: _is_poor(part, segment_bytes), chain[at:]):
            if run and octets + part.octets > segment_bytes:
                break
            run.append(part)
            octets += part.octets
        if sum(part.segment.octets for part in run) > 2 * octets or len(run) >= MERGE_COUNT:
            return run
        at += max(1, len(run))
    return []


def _is_poor(part: Part, segment_bytes: int) -> bool:
    return 2 * part.octets < part.segment.octets or part.segment.octets * SMALL_PART < segment_bytes


class DiskUsage(NamedTuple):
    """The octets of payload that a group has on disk, and the part that its owner still refers to.

    ``unflushed`` lie above the group's snapshot in closed WAL files, and ``unflushed_live`` of them are live. ``total``
    counts all octets of the group in all files, and ``live`` of them are live. A start would hand ``replayed`` octets
    to the owner. The last snapshot has ``snapshot`` octets.
    """

    group: GroupId
    unflushed: int
    unflushed_live: int
    total: int
    live: int
    replayed: int
    snapshot: int


def snapshots_due(usages: Iterable[DiskUsage], closed: int, wal_file_bytes: int) -> list[GroupId]:
    """The groups to ask for a snapshot. Groups that save most come first.

    A snapshot pays in three ways. First, settled entries in closed WAL files need not be copied into segments; the
    snapshot is due if more than half of these entries are settled. Second, settled entries anywhere are freed; the
    snapshot is due if they take more than a file, or more than a part of a file that becomes smaller as ``closed``
    files wait, and more than the snapshot itself is likely to take. Third, a start has less to hand to the owner; the
    snapshot is due at four files' worth.
    """
    due: list[tuple[int, GroupId]] = []
    for usage in usages:
        unneeded = usage.unflushed - usage.unflushed_live
        freed = usage.total - usage.live
        worth = max(wal_file_bytes // (1 + closed), 2 * usage.snapshot)
        spares_flush = 2 * unneeded > usage.unflushed and SNAPSHOT_SMALL + 4 * unneeded >= usage.snapshot
        if spares_flush or freed >= worth or usage.replayed >= REPLAY_FILES * wal_file_bytes:
            due.append((-freed, usage.group))
    return [group for _freed, group in sorted(due)]


def rewrites_kept(kept: int, live: int) -> bool:
    """Whether a snapshot should bring all ``live`` octets along and let go of a file of ``kept`` octets, which an
    installed snapshot left: if less than half of that is needed, and no more is to be copied from elsewhere."""
    return 2 * live < kept


def first_file_bytes(wal_file_bytes: int, node: int) -> int:
    """The size of the first file after a start: between a quarter and a half of the others.

    Small, because it has to be filled with zeros while the node waits; and different on each node, so that the members
    of a cluster, which write the same octets, do not roll over and take snapshots at the same moment.
    """
    quarter = wal_file_bytes // 4
    stagger = (node * _STAGGER) % (1 << 64)
    return quarter + (quarter * stagger >> 64)
