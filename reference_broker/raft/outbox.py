"""What the core has decided since the last Ready, kept consistent while several inputs pile up.

A snapshot taken over may undo what no shell has seen yet: entries that wait here must never reach the WAL after it.
"""

from __future__ import annotations

from reference_broker.raft.ready import Outgoing, Send, SmallMessage
from reference_broker.types import Entry, LogIndex, NodeId


class Outbox:
    """Everything of a Ready that accumulates. ``reset_to`` happens first, then ``truncate_from``, then ``entries``."""

    __slots__ = (
        "entries",
        "hard_state_changed",
        "messages",
        "reads",
        "reads_refused",
        "reset_to",
        "truncate_from",
    )

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.messages: list[Outgoing] = []
        self.reads: list[tuple[int, LogIndex]] = []
        self.reads_refused: list[int] = []
        self.truncate_from: LogIndex | None = None
        self.reset_to: LogIndex | None = None
        self.hard_state_changed = False

    def __bool__(self) -> bool:
        return bool(
            self.entries
            or self.messages
            or self.hard_state_changed
            or self.truncate_from is not None
            or self.reset_to is not None
            or self.reads
            or self.reads_refused
        )

    def send(self, to: NodeId, message: SmallMessage) -> None:
        """Queue a message that holds no entries."""
        self.messages.append(Send(to=to, message=message))

    def truncate(self, index: LogIndex) -> None:
        """Drop entries at or above ``index``. None waits here then: it would not be on disk (see ``log_view``)."""
        assert not self.entries
        self.truncate_from = index

    def reset(self, index: LogIndex) -> None:
        """The log starts again after ``index``: nothing that waits here matters any more."""
        self.entries.clear()
        self.truncate_from = None
        self.reset_to = index

    def clear(self) -> None:
        """Everything was taken."""
        self.entries.clear()
        self.messages.clear()
        self.reads.clear()
        self.reads_refused.clear()
        self.truncate_from = None
        self.reset_to = None
        self.hard_state_changed = False
