"""The time of a queue: the wall clock of the node that stamps its commands, made to go on and never back.

The machine takes the latest time that any leader has stamped. If the next leader's wall clock is behind, or a wall
clock is set back, the machine's time would stand still until that clock has caught up. So a delay of a second would
take an hour between two nodes whose clocks are an hour apart. This clock goes on from the machine's time, at the pace
of the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable


class OnwardClock:
    """The clock of one queue on one node. All times are in milliseconds."""

    __slots__ = ("_wall_ms", "ahead_ms")

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.ahead_ms = 0
        """Lead of the queue's time over the wall clock."""

    def now_ms(self, reached_ms: int) -> int:
        """The time now. The queue's time has ``reached_ms``."""
        now_ms = self._wall_ms() + self.ahead_ms
        if now_ms < reached_ms:
            self.ahead_ms += reached_ms - now_ms
            return reached_ms
        return now_ms

    def on_the_wall(self, at_ms: int, reached_ms: int) -> int:
        """The wall clock's time when the queue's time is ``at_ms``."""
        self.now_ms(reached_ms)
        return at_ms - self.ahead_ms
