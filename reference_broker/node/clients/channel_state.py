"""What a channel of a client waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reference_broker.queues.port import Queue
from reference_broker.types import GroupId


@dataclass(frozen=True, slots=True, eq=False)
class Awaited:
    """The answer that a busy channel waits for."""

    group: GroupId | None = None
    """The group of the queue that answers; None if the metadata group or a read answers, which always end."""
    correlation: int = 0
    answered: Callable[[int], None] | None = None
    """Gets the queue's reply to the command with that correlation."""
    queue_gone: Callable[[], None] | None = None
    """Answers the client if the queue is deleted first."""
    again: Callable[[], None] | None = None
    """Asks once more, if a mirror becomes the owner of the queue first."""


class Patience:
    """For how many ticks a channel has waited for the same thing. While the process is suspended nothing ticks, so a
    node that was stopped for a while does not find all its clients late."""

    __slots__ = ("ticks", "waits_for")

    def __init__(self) -> None:
        self.waits_for: Awaited | Queue | None = None
        """An answer; or a queue whose leader is out of reach."""
        self.ticks = 0

    def tick(self, waits_for: Awaited | Queue | None) -> int:
        """The ticks until now, if the channel waits for this."""
        self.ticks = self.ticks + 1 if waits_for is self.waits_for is not None else 0
        self.waits_for = waits_for
        return self.ticks
