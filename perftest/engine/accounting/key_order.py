"""The order of the keys of one publisher on one queue: the last message of each key that was delivered.

Message ``n`` has the key ``n`` modulo the number of keys. A keyed queue hands out a message only when the message
before it is settled, so the numbers of a key never fall. Equal numbers are redeliveries.

Cost: eight octets for each key; a few numpy calls for a run of deliveries.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class KeyOrder:
    """The last delivered message of each of ``keys`` keys."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._last = np.full(keys, -1)

    def rises(self, number: int) -> bool:
        """Whether this message is behind all others of its key. If so, it is the last of its key from now on."""
        key = number % self._keys
        if number <= self._last[key]:
            return False
        self._last[key] = number
        return True

    def late(self, numbers: Integers) -> Booleans:
        """Which messages of a run, in the order of their delivery, come after a later message of their key."""
        keys = numbers % self._keys
        order = np.argsort(keys, kind="stable")
        keys, ordered = keys[order], numbers[order]
        starts = np.diff(keys, prepend=-1) != 0
        # Keys ascend, so that numbers lifted by their key never meet the numbers of the key before.
        lift = np.cumsum(starts) * (int(max(numbers.max(), self._last.max())) + 2)
        lifted = ordered + lift
        firsts = np.flatnonzero(starts)
        before = np.empty_like(lifted)
        before[1:] = np.maximum.accumulate(lifted)[:-1]
        before[firsts] = 0
        before = np.maximum(before, self._last[keys] + lift)
        late = np.empty(len(numbers), np.bool_)
        late[order] = lifted < before
        ends = np.append(firsts[1:], len(keys)) - 1
        self._last[keys[ends]] = np.maximum(before, lifted)[ends] - lift[ends]
        return late
