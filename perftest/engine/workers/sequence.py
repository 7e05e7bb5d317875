"""Numbered messages: each one is taken once and in order, whatever the way between two ends loses or repeats. Pure.

Every message has a number ``n``, from 1 on, and ``seen``: up to which number its sender has got everything. Each end
keeps the messages that the other end may lack, and repeats them when a new connection begins or a message is missing.
"""

from __future__ import annotations

from collections import deque

from perftest.engine.workers import wire


class Sequence:
    """One end of a conversation. ``seen`` is the number of the last message that was taken before."""

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen
        self._sent = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._early: dict[int, wire.Message] = {}

    def line(self, message: wire.Message) -> bytes:
        """The line of a new message, which is kept until the other end has it."""
        self._sent += 1
        line = wire.to_line({**message, "n": self._sent, "seen": self.seen})
        self._kept.append((self._sent, line))
        return line

    def take(self, message: wire.Message) -> list[wire.Message]:
        """The messages whose turn has come with this one, in order. A message without a number is not waited for."""
        self.acknowledge(message.pop("seen", 0))
        number = message.pop("n", None)
        if number is None:
            return [message]
        if number > self.seen:
            self._early[number] = message
        due = []
        while self.seen + 1 in self._early:
            self.seen += 1
            due.append(self._early.pop(self.seen))
        return due

    def acknowledge(self, seen: int) -> None:
        """The other end has all messages up to this number."""
        while self._kept and self._kept[0][0] <= seen:
            self._kept.popleft()

    @property
    def misses(self) -> bool:
        """Whether a message has come before its turn, so that at least one is missing."""
        return bool(self._early)

    @property
    def unseen(self) -> list[bytes]:
        """The lines that the other end may not have, in order."""
        return [line for _number, line in self._kept]
