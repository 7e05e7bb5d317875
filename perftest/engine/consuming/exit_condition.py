"""When a consumer leaves by itself: after a number of messages, when its queue is empty, or when no message comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perftest.spec.behaviour import Consuming, ExitWhen

IDLE_NS: Final = 1_000_000_000
"""A consumer without a message for so long is idle (PerfTest's ``-ew idle``)."""

LOOK_NS: Final = 200_000_000
"""A consumer without a message for so long asks whether the queue is empty."""


class ExitCondition:
    """How many messages one consumer has taken, and whether it has enough."""

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
        """``count`` messages came; returns how many of them the consumer takes."""
        self._last_ns = now_ns
        if self._messages:
            count = min(count, self._messages - self._taken)
        self._taken += count
        return count

    def done(self, count: int) -> None:
        """The consumer is done with ``count`` messages."""
        self._done += count

    def lose(self, count: int) -> None:
        """``count`` messages that were taken will come again."""
        self._taken -= count

    @property
    def satisfied(self) -> bool:
        """Whether the consumer has taken as many messages as it may."""
        return bool(self._messages) and self._taken >= self._messages

    @property
    def finished(self) -> bool:
        """Whether the consumer is done with as many messages as it may take."""
        return bool(self._messages) and self._done >= self._messages

    def quiet_at_ns(self) -> int:
        """When the consumer may think of leaving, if no message comes until then."""
        if self.exit_when is ExitWhen.IDLE or not self._taken:  # publishers may only be starting
            return self._last_ns + IDLE_NS
        return self._last_ns + LOOK_NS


def in_words(reasons: Mapping[str, int]) -> str:
    """The reasons for which clients left, with the number of clients for each, in PerfTest's words."""
    return ", ".join(f"{reason} [{count}]" for reason, count in sorted(reasons.items()))
