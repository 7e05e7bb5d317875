"""A file as octets, of which one window is in memory at a time.

A start reads WAL files from their first octet to their last. A file may have grown far beyond its size, because its
successor was late; read whole, it would need as much memory as it has octets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

WINDOW_BYTES: Final = 4 << 20
"""So small that the C library has memory for one at hand: windows of 32 MiB are mapped and unmapped each time, and a
start took twice the CPU. A larger batch is read whole. A multiple of a sector."""


class Windows:
    """The octets of a file of ``size``. ``read(offset, size)`` gives fewer than asked only at its end."""

    __slots__ = ("_read", "_start", "_step", "_window", "size")

    def __init__(self, read: Callable[[int, int], bytes], size: int, step: int = WINDOW_BYTES) -> None:
        self._read = read
        self._step = step
        self._start = 0
        self._window = memoryview(b"")
        self.size = size

    @classmethod
    def of(cls, octets: bytes) -> Windows:
        """Octets that are in memory anyway."""
        return cls(lambda offset, size: octets[offset : offset + size], len(octets))

    def part(self, start: int, end: int) -> memoryview:
        """Octets ``start`` to ``end``, or to the end of the file. A part that is kept keeps its window."""
        start, end = min(start, self.size), min(end, self.size)
        if start < self._start or end > self._start + len(self._window):
            self._window = memoryview(b"")  # let go of it before the next one comes
            self._window = memoryview(self._read(start, max(end - start, min(self._step, self.size - start))))
            self._start = start
        return self._window[start - self._start : end - self._start]

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """All octets from ``start`` to ``end``, in pieces of a window at most, each with its offset."""
        while start < min(end, self.size):
            piece = self.part(start, min(end, start + self._step))
            yield start, piece
            start += max(1, len(piece))
