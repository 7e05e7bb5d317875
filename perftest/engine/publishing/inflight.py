"""The in-flight window of a publisher: the messages that were sent and not yet confirmed, with their times.

Theory of operation. The broker numbers the messages of a channel from 1. These tags index a ring, which holds the
sequence number and the two times of each unconfirmed message. A confirm may be multiple or single, in or out of order,
a nack, or a repetition; it becomes the slots that it settles for the first time, as arrays. ``oldest`` moves over
settled tags. Room counts from the number of unconfirmed messages, so a confirm out of order frees its place at once.

Invariants: ``unconfirmed`` is the number of unsettled tags in ``oldest .. next_tag - 1``; each tag is settled at most
once; the ring holds every tag of that range. Memory is bounded by the most messages that were ever in flight, with one
exception: if the broker never confirms the oldest message while it confirms newer ones, the ring grows with the
distance between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

RING_MIN: Final = 64
"""Number of slots of a new ring, whatever the limit. A full ring doubles, so thousands of publishers, or an unlimited
window, cost only the slots that they use."""


@dataclass(slots=True)
class Settled:
    """Messages that a confirm settles, in the order of their tags: sequence numbers and times in ns, one each."""

    sequences: Integers
    intended_ns: Integers
    sent_ns: Integers

    def __len__(self) -> int:
        return len(self.sequences)


class UnknownTag(ValueError):  # noqa: N818 - it names the broker's mistake, not ours
    """The broker confirmed a tag that was never published on the channel."""


class ConfirmWindow:
    """At most ``limit`` unconfirmed messages. ``limit`` may change at any time; messages above it drain."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.oldest = 1
        self.next_tag = 1
        self.unconfirmed = 0
        self._size = RING_MIN
        self._ring = np.zeros((3, self._size), np.int64)
        self._open = np.zeros(self._size, np.bool_)

    @property
    def room(self) -> int:
        """The number of messages that may be sent now."""
        return max(self.limit - self.unconfirmed, 0)

    def oldest_sent_ns(self) -> int | None:
        """When the oldest unconfirmed message was sent; None without an unconfirmed message."""
        return int(self._ring[2, self.oldest % self._size]) if self.unconfirmed else None

    def sent(self, sequences: int | Integers, count: int, *, intended_ns: int | Integers, sent_ns: int) -> None:
        """``count`` messages are written now. ``sequences`` are their numbers, or the first of consecutive numbers."""
        while self.next_tag + count - self.oldest > self._size:
            self._grow()
        at = self.next_tag % self._size
        self.next_tag += count
        self.unconfirmed += count
        first = min(count, self._size - at)
        self._fill(at, first, 0, sequences, intended_ns, sent_ns)
        if first < count:
            self._fill(0, count - first, first, sequences, intended_ns, sent_ns)

    def confirm_to(self, tag: int) -> Settled:
        """Confirm with ``multiple``: everything up to ``tag``; 0 means everything. Raises :class:`UnknownTag`."""
        if not 0 <= tag < self.next_tag:
            raise UnknownTag(f"the broker confirmed tag {tag}; the last published is {self.next_tag - 1}")
        stop = tag + 1 if tag else self.next_tag
        if stop <= self.oldest:
            return self._take(np.empty(0, np.int64))
        at, end = self.oldest % self._size, (stop - 1) % self._size + 1
        if at < end and self._open[at:end].all():
            return self._take_slice(at, end, stop)
        slots = np.arange(self.oldest, stop) % self._size
        return self._take(slots[self._open[slots]])

    def confirm_each(self, tags: Integers | tuple[int, ...]) -> Settled:
        """Confirm exactly ``tags``. Raises :class:`UnknownTag`."""
        if len(tags) == 1 and int(tags[0]) == self.oldest < self.next_tag:
            return self.confirm_to(self.oldest)
        wanted = np.unique(np.asarray(tags, np.int64))
        if int(wanted[0]) < 1 or int(wanted[-1]) >= self.next_tag:
            raise UnknownTag(f"the broker confirmed tag {wanted[-1]}; the last published is {self.next_tag - 1}")
        live = wanted[wanted >= self.oldest]
        slots = live % self._size
        slots = slots[self._open[slots]]
        return self._take(slots)

    def take_all(self) -> Settled:
        """All unconfirmed messages, in order. Afterwards the window is empty and tags start at 1 again, as on a fresh
        channel, on which the publisher sends these messages again."""
        slots = np.arange(self.oldest, self.next_tag) % self._size
        settled = self._take(slots[self._open[slots]])
        self.oldest = self.next_tag = 1
        return settled

    def _fill(
        self, at: int, count: int, skip: int, sequences: int | Integers, intended_ns: int | Integers, sent_ns: int
    ) -> None:
        end, part = at + count, slice(skip, skip + count)
        ring = self._ring
        if isinstance(sequences, int):
            ring[0, at:end] = np.arange(sequences + skip, sequences + skip + count) if count > 1 else sequences + skip
        else:
            ring[0, at:end] = sequences[part]
        ring[1, at:end] = intended_ns if isinstance(intended_ns, int) else intended_ns[part]
        ring[2, at:end] = sent_ns
        self._open[at:end] = True

    def _take_slice(self, at: int, end: int, stop: int) -> Settled:
        """The usual case: all slots are open and lie together."""
        self._open[at:end] = False
        self.unconfirmed -= end - at
        self.oldest = stop
        self._advance()
        piece = self._ring[:, at:end].copy()
        return Settled(piece[0], piece[1], piece[2])

    def _take(self, slots: Integers) -> Settled:
        piece = self._ring[:, slots]
        self._open[slots] = False
        self.unconfirmed -= len(slots)
        self._advance()
        return Settled(piece[0], piece[1], piece[2])

    def _advance(self) -> None:
        """Move ``oldest`` to the first open tag."""
        if not self.unconfirmed:
            self.oldest = self.next_tag
        elif not self._open[self.oldest % self._size]:
            at = self.oldest % self._size
            ahead = self._open[at:]
            step = int(np.argmax(ahead))
            if not ahead[step]:
                step = len(ahead) + int(np.argmax(self._open[:at]))
            self.oldest += step

    def _grow(self) -> None:
        live = np.arange(self.oldest, self.next_tag)
        ring, still_open = self._ring[:, live % self._size], self._open[live % self._size]
        self._size *= 2
        self._ring = np.zeros((3, self._size), np.int64)
        self._open = np.zeros(self._size, np.bool_)
        self._ring[:, live % self._size] = ring
        self._open[live % self._size] = still_open
