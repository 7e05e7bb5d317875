"""The messages that leave a queue, for a store that keeps them.

A quorum queue's log frees entries from the lowest on and needs to know only the live ones. A store of single messages
must be told each message that has left: settled, discarded, expired, dropped, returned too often, purged, or kept out
as a duplicate or by a refusal. A message that becomes a dead letter leaves when the node gets the letter, or, if
letters are kept, when the letter is settled.

Departures are no part of the state. They are collected only if the machine is told to, so a quorum queue pays for one
comparison per stretch.

Invariant: each message of each run that was applied departs exactly once, and a message that has not departed is ready,
held, or a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable

from reference_broker.machines.messages.backlog import counts_of
from reference_broker.machines.messages.held_ranges import HeldRange
from reference_broker.machines.messages.origins import Origin
from reference_broker.machines.messages.records import Columns

Departure = tuple[int, int, int, int, int]
"""Entry, offset of the run in the entry, first position, count, step."""


class Departures:
    """The messages that have left since the last :meth:`take`. Collects nothing until :meth:`collect`."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: list[Departure] | None = None

    def collect(self) -> None:
        """Collect from now on."""
        self._left = []

    @property
    def is_collecting(self) -> bool:
        """Whether departures are collected."""
        return self._left is not None

    def take(self) -> list[Departure]:
        """The departures since the last call, in order."""
        left, self._left = self._left or [], []
        return left

    def stretch(self, count: int, start: int, step: int, origin: Origin) -> None:
        """Messages of one stretch leave."""
        if self._left is not None and count:
            self._left.append((origin.entry, origin.offset, start, count, step))

    def held(self, ranges: Iterable[HeldRange]) -> None:
        """Messages that a consumer held, or dead letters, leave."""
        if self._left is not None:
            self._left += [(one.origin.entry, one.origin.offset, one.start, one.count, one.step) for one in ranges]

    def never_entered(self, index: int, offset: int, start: int, count: int) -> None:
        """Messages of a run are not let in."""
        if self._left is not None and count > 0:
            self._left.append((index, offset, start, count, 1))

    def records(self, records: Columns) -> None:
        """All messages of records of the backlog leave."""
        if self._left is not None:
            columns = (records["entry"], records["offset"], records["start"], counts_of(records))
            self._left += [(*each, 1) for each in zip(*(column.tolist() for column in columns), strict=True)]
