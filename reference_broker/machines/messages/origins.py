"""The origin of a message, and the joining of two stretches of messages.

A *stretch* is ``count`` messages of one run at positions ``start, start + step, ...``; it is the unit that the machine
deals, holds and returns. Its :class:`Origin` has what all its messages have in common.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NEVER: Final = 2**63 - 1
"""The expiry of a message without a time to live."""


class Origin(NamedTuple):
    """The run that a message was enqueued in, and the number of its returns.

    ``entry`` is the log index, ``offset`` the octet in its payload. Messages of a queue have *message numbers*, in
    order of enqueueing. The message at position ``p`` of the run has the number ``base + p`` (``base`` is below zero if
    the first messages of an early run were duplicates). ``expires`` is the time (ms since 1970) at which the message
    expires, ``size`` the octets of its body.
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
    """The step of the stretch that two stretches of the same origin form together, or 0 if they form none.

    A single message has no step of its own, so it joins at any distance.
    """
    gap = next_start - (start + (count - 1) * step)
    if gap > 0 and (count == 1 or step == gap) and (next_count == 1 or next_step == gap):
        return gap
    return 0
