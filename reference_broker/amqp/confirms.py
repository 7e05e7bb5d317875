"""Publisher confirms of one channel: the publishes without an answer, and the frames that tell the client of the rest.

Theory of operation
-------------------
Sequence numbers 1, 2, 3 ... count the publishes of a channel in confirm mode. Queues resolve them in any order, as
committed or rejected, possibly twice (after an election). The client must get an answer for each number exactly once.
basic.ack with ``multiple`` resolves all numbers up to its own, so it may only reach up to just below the *cutoff*: the
smallest number that is unresolved or was rejected in the same batch. One frame confirms all numbers below the cutoff,
single frames confirm the rest. Rejections go out in the same way, with the confirms of the batch in place of the
rejections (RabbitMQ's rule, rabbit_channel ``coalesce_and_send``).

Invariant: the client has the answer to a published number, or the number is in exactly one of ``_open`` (no queue has
answered), ``_confirmed`` and ``_rejected`` (the client does not know yet). All three are lists of disjoint ranges.
``_open`` is ascending, and is one range as long as queues resolve in order.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import Final

import numpy as np

_FRAME: Final = Struct(">BHIHHQBB")
_PAYLOAD_OCTETS: Final = 13
_BASIC: Final = 60
_ACK: Final = 80
_NACK: Final = 120
_TAG_AT: Final = 11
_NUMPY_FROM: Final = 32  # below this number of frames, a loop is quicker than numpy's fixed cost

SeqRange = tuple[int, int]


class ConfirmTracker:
    """The sequence numbers of one channel in confirm mode."""

    __slots__ = ("_confirmed", "_open", "_rejected", "next_seq")

    def __init__(self) -> None:
        self.next_seq = 1
        self._open: list[SeqRange] = []
        self._confirmed: list[SeqRange] = []
        self._rejected: list[SeqRange] = []

    def published(self, count: int) -> int:
        """Give the next ``count`` numbers to publishes. Returns the first number."""
        first = self.next_seq
        self.next_seq += count
        if self._open and self._open[-1][1] == first - 1:
            self._open[-1] = (self._open[-1][0], self.next_seq - 1)
        else:
            self._open.append((first, self.next_seq - 1))
        return first

    @property
    def unresolved(self) -> int:
        """Publishes that no queue has answered yet."""
        return sum(last - first + 1 for first, last in self._open)

    def confirm(self, first: int, last: int) -> None:
        """The publishes ``first..last`` are safe. Numbers that are resolved already, or do not exist, are ignored."""
        self._resolve(first, last, self._confirmed)

    def reject(self, first: int, last: int) -> None:
        """A queue has refused the publishes ``first..last``. Numbers that are resolved already are ignored."""
        self._resolve(first, last, self._rejected)

    def _resolve(self, first: int, last: int, into: list[SeqRange]) -> None:
        at = max(bisect_right(self._open, (first, self.next_seq)) - 1, 0)
        while at < len(self._open) and self._open[at][0] <= last:
            low, high = self._open[at]
            cut_low, cut_high = max(low, first), min(high, last)
            if cut_low > cut_high:
                at += 1
                continue
            into.append((cut_low, cut_high))
            left = [(low, cut_low - 1)] if low < cut_low else []
            right = [(cut_high + 1, high)] if cut_high < high else []
            self._open[at : at + 1] = left + right
            at += len(left)

    def flush(self, channel: int) -> bytes:
        """The frames for everything that was resolved since the last flush; empty if nothing was."""
        confirmed, rejected = sorted(self._confirmed), sorted(self._rejected)
        self._confirmed, self._rejected = [], []
        unresolved = self._open[0][0] if self._open else self.next_seq
        frames = []
        if confirmed:
            cutoff = min(unresolved, rejected[0][0]) if rejected else unresolved
            frames.append(_coalesce(channel, _ACK, confirmed, cutoff))
        if rejected:
            cutoff = min(unresolved, confirmed[0][0]) if confirmed else unresolved
            frames.append(_coalesce(channel, _NACK, rejected, cutoff))
        return b"".join(frames)


def _coalesce(channel: int, method: int, ranges: list[SeqRange], cutoff: int) -> bytes:
    """One frame for all numbers below ``cutoff``, and one frame for each of the others."""
    below = above = 0
    for above, (first, last) in enumerate(ranges):  # noqa: B007 - the position where the loop stopped is the result
        if first > cutoff:
            break
        below = last
    else:
        above = len(ranges)
    multiple = below != ranges[0][0]
    first_frame = _FRAME.pack(1, channel, _PAYLOAD_OCTETS, _BASIC, method, below, multiple, 0xCE) if below else b""
    if above == len(ranges):
        return first_frame
    return b"".join([first_frame, *[_singles(channel, method, first, last) for first, last in ranges[above:]]])


def _single(channel: int, method: int, seq: int) -> bytes:
    return _FRAME.pack(1, channel, _PAYLOAD_OCTETS, _BASIC, method, seq, False, 0xCE)


def _singles(channel: int, method: int, first: int, last: int) -> bytes:
    count = last - first + 1
    if count < _NUMPY_FROM:
        return b"".join([_single(channel, method, seq) for seq in range(first, last + 1)])
    template = np.frombuffer(_single(channel, method, 0), np.uint8)
    rows = np.tile(template, (count, 1))
    rows[:, _TAG_AT : _TAG_AT + 8] = np.arange(first, last + 1, dtype=">u8").view(np.uint8).reshape(count, 8)
    return rows.tobytes()
