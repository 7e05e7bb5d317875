"""What a channel of a client waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
