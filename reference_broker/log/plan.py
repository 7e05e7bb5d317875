"""Which WAL files are dead, which groups should take a snapshot, how large the first file is. Pure.

A WAL file may go when nothing in it is needed. Three things make it needed:

1. it is being written, or stands ready to be written;
2. it holds an entry above its group's snapshot, or a live one (I11);
3. it holds a *superseding* row of a group (an overwrite, a truncation or a reset), and an older file still holds rows
   of that group. Removing the newer file first would bring the superseded entries back at the next start.

With rule 3, replaying the files that are left gives, above each snapshot, exactly what replaying all would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reference_broker.types import GroupId

_STAGGER: Final = 0x9E3779B97F4A7C15
"""The golden ratio as a 64-bit fraction: spreads small node ids evenly."""


@dataclass(slots=True)
class WalUse:
    """Which groups have rows, and which have superseding rows, in one WAL file."""

    groups: set[GroupId] = field(default_factory=set)
    superseding: set[GroupId] = field(default_factory=set)


def dead_files(uses: Mapping[int, WalUse], needed: set[int], groups: Iterable[GroupId], current: int) -> list[int]:
    """The numbers below ``current`` of the files that may go, in the order in which they must go.

    ``needed`` are the files that hold a readable entry, ``groups`` all that exist: rows of others count for nothing.
    """
    existing = set(groups)
    held: set[GroupId] = set()
    dead: list[int] = []
    for number in sorted(uses):
        if number >= current:
            break
        use = uses[number]
        if number in needed or use.superseding & held & existing:
            held |= use.groups
        else:
            dead.append(number)
    return dead


def groups_due(oldest: Mapping[GroupId, int], current: int) -> list[GroupId]:
    """The groups to ask for a snapshot, those that hold the oldest file first.

    ``oldest`` names, for each group whose log moved on since its snapshot, the oldest file it needs. A group is due
    once that file is closed: about one snapshot per group and WAL file, and none for groups that stand still.
    """
    due = [(file, group) for group, file in oldest.items() if file < current]
    return [group for _file, group in sorted(due)]


def first_file_bytes(wal_file_bytes: int, node: int) -> int:
    """The size of the first file after a start: between a quarter and a half of the others.

    Small, because it has to be filled with zeros while the node waits; and different on each node, so that the members
    of a cluster, which write the same octets, do not roll over and take snapshots at the same moment.
    """
    quarter = wal_file_bytes // 4
    stagger = (node * _STAGGER) % (1 << 64)
    return quarter + (quarter * stagger >> 64)


def should_prepare(offset: int, size: int) -> bool:
    """Whether it is time to make the next file: half of the current one is written."""
    return 2 * offset >= size
