"""The elections that a node begins of itself when it starts: a few at a time, however many groups have no leader.

A node that starts stands for the groups that it voted for itself in, most of which it led when the cluster stopped: so
leaders come back to where they were, and members do not stand against each other. Ten thousand candidacies at once
would outlast their own election timers and begin again and again. So only so many are under way at a time, and the next
ones begin as these are decided, or were not for too long. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reference_broker.types import GroupId

UNDER_WAY_MAX: Final = 128
PATIENCE_TICKS: Final = 20


class Campaigns:
    """``stand`` has the member of a group ask for votes, if nobody leads it."""

    def __init__(self, stand: Callable[[GroupId], None]) -> None:
        self._stand = stand
        self._waiting: dict[GroupId, None] = {}
        self._under_way: dict[GroupId, int] = {}
        """When each began, oldest first."""
        self._ticks = 0

    def begin(self, groups: Iterable[GroupId]) -> None:
        """Stand for these, each once its turn has come."""
        self._waiting.update((group, None) for group in groups if group not in self._under_way)
        self._go_on()

    def decided(self, group: GroupId) -> None:
        """Somebody leads the group, or this member gave up, or it is not here any more."""
        self._waiting.pop(group, None)
        if self._under_way.pop(group, None) is not None:
            self._go_on()

    def tick(self) -> None:
        """Time passes: nobody waits for long for an election that comes to nothing."""
        self._ticks += 1
        for group, began in list(self._under_way.items()):
            if self._ticks - began < PATIENCE_TICKS:
                break
            del self._under_way[group]
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            group = next(iter(self._waiting))
            del self._waiting[group]
            self._under_way[group] = self._ticks
            self._stand(group)
