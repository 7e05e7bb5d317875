"""The few groups of a node that have committed most, kept as commit indexes rise. Pure.

Who measures wants to see where the nodes stand with the queue that is measured, once a second, however many others
there are. A commit index only rises, so a group that is not among the few gets there by committing, and is noted then.
Only when one of the few is deleted have all to be looked at, once, for the group that takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from operator import itemgetter

from reference_broker.types import GroupId, LogIndex


class Busiest:
    """At most ``count`` groups. ``everything`` gives all groups with their commit indexes."""

    def __init__(self, count: int, everything: Callable[[], Iterable[tuple[GroupId, LogIndex]]]) -> None:
        self._count = count
        self._everything = everything
        self._few: dict[GroupId, LogIndex] = {}
        self._least = LogIndex(0)
        """No group outside has committed more."""
        self._is_missing = False

    def note(self, group: GroupId, commit: LogIndex) -> None:
        """A group may have committed more."""
        if commit <= self._least:
            return
        self._few[group] = commit
        if len(self._few) > self._count:
            del self._few[min(self._few, key=self._few.__getitem__)]
        if len(self._few) == self._count:
            self._least = min(self._few.values())

    def gone(self, group: GroupId) -> None:
        """A group is not here any more."""
        self._is_missing = self._few.pop(group, None) is not None or self._is_missing

    def groups(self) -> list[GroupId]:
        """The groups, those that have committed most first."""
        if self._is_missing:
            self._is_missing, self._least = False, LogIndex(0)
            self._few = dict(nlargest(self._count, self._everything(), key=itemgetter(1)))
            if len(self._few) == self._count:
                self._least = min(self._few.values())
        return sorted(self._few, key=lambda group: (-self._few[group], group))
