"""Where a message comes from, and when two stretches of messages are one.

A *stretch* is ``count`` messages of one run at positions ``start, start + step, ...``; it is the unit that the
machine deals, holds and returns. Its :class:`Origin` holds what all of its messages have in common.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NEVER: Final = 2**63 - 1
"""The expiry of a message without a time to live."""


class Origin(NamedTuple):
    """The run a message was enqueued in, and how often the message has come back.

    ``entry`` is the log index, ``offset`` the octet in its payload. Every message of a queue has a *message number*, in
    order of enqueueing; the one at position ``p`` of the run has number ``base + p`` (so ``base`` is below zero when
    the first messages of an early run were duplicates). ``expires`` is the time (ms since 1970) from which on the
    message is too old to be ready, ``size`` the octets of its body.
    """

    entry: int
    offset: int
    base: int
    delivery_count: int
    expires: int = NEVER
    size: int = 0

    def returned(self) -> Origin:
        """The same place, one delivery later."""
        return Origin(self.entry, self.offset, self.base, self.delivery_count + 1, self.expires, self.size)


def joined_step(start: int, count: int, step: int, next_start: int, next_count: int, next_step: int) -> int:
    """The step of the one stretch that two stretches of the same origin form, or 0 when they form none.

    A single message has no step of its own, so it joins at whatever distance it has.
    """
    gap = next_start - (start + (count - 1) * step)
    if gap > 0 and (count == 1 or step == gap) and (next_count == 1 or next_step == gap):
        return gap
    return 0
