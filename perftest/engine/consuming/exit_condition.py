"""When a consumer leaves by itself: after so many messages, when its queue is empty, when nothing comes any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perftest.spec.behaviour import Consuming, ExitWhen

IDLE_NS: Final = 1_000_000_000
"""So long without a message is idle (PerfTest's ``-ew idle``)."""

LOOK_NS: Final = 200_000_000
"""So long without a message is reason to ask whether the queue is empty."""


class ExitCondition:
    """What one consumer took, and whether that is all."""

    def __init__(self, consuming: Consuming) -> None:
        self.exit_when = consuming.exit_when
        self._messages = consuming.messages
        self._taken = 0
        self._done = 0
        self._last_ns = 0

    def begin(self, now_ns: int) -> None:
        """The time without messages counts from now on."""
        self._last_ns = now_ns

    def take(self, count: int, now_ns: int) -> int:
        """``count`` messages came: how many of them the consumer takes."""
        self._last_ns = now_ns
        if self._messages:
            count = min(count, self._messages - self._taken)
        self._taken += count
        return count

    def done(self, count: int) -> None:
        """The consumer is done with so many."""
        self._done += count

    def lose(self, count: int) -> None:
        """So many were taken and will come again."""
        self._taken -= count

    @property
    def satisfied(self) -> bool:
        """Took all it may take."""
        return bool(self._messages) and self._taken >= self._messages

    @property
    def finished(self) -> bool:
        """Is done with all it may take."""
        return bool(self._messages) and self._done >= self._messages

    def quiet_at_ns(self) -> int:
        """When nothing will have come for long enough to think of leaving, if nothing comes until then."""
        if self.exit_when is ExitWhen.IDLE or not self._taken:  # publishers may just be starting
            return self._last_ns + IDLE_NS
        return self._last_ns + LOOK_NS


def in_words(reasons: Mapping[str, int]) -> str:
    """Why clients left, and how many for each reason, as PerfTest says it."""
    return ", ".join(f"{reason} [{count}]" for reason, count in sorted(reasons.items()))
