"""The end of the messages that are safe on one node. Pure.

A store tells of the messages that it writes. Messages that it does not write, because they are transient, are as safe
as they ever will be at once."""

from __future__ import annotations

from collections import deque


class StoredEnd:
    """The sequence number below which all messages are safe."""

    __slots__ = ("_last", "_written")

    def __init__(self, next_seq: int) -> None:
        self._last = next_seq
        self._written: deque[tuple[int, int]] = deque()
        """First number and end of each part that the store writes now."""

    def added(self, seq: int, seq_end: int, *, is_written: bool) -> None:
        """Messages ``seq`` to below ``seq_end`` are in the store."""
        if is_written:
            self._written.append((seq, seq_end))
        self._last = seq_end

    def stored(self, seq_end: int) -> None:
        """The store has told that the messages below ``seq_end`` survive."""
        while self._written and self._written[0][1] <= seq_end:
            self._written.popleft()

    def starts_at(self, next_seq: int) -> None:
        """The next message has this number."""
        self._last = next_seq

    @property
    def end(self) -> int:
        """The messages below are safe."""
        return self._written[0][0] if self._written else self._last
