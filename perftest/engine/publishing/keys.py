"""Random routing keys: version 4 UUIDs, as PerfTest draws them, by the hundred and reproducible."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_CHUNK: Final = 256
"""Keys drawn at once: one at a time would cost ten times as much."""

_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES: Final = (8, 13, 18, 23)
_PLACES: Final = np.array([at for at in range(36) if at not in _DASHES])


class RandomKeys:
    """UUIDs in their usual 36 characters. Without ``cache`` each message gets a fresh one; else that many are drawn
    once, and message ``i`` has the one at ``i`` modulo their number. The same ``seed``, the same keys."""

    length = 36

    def __init__(self, *seed: int, cache: int = 0) -> None:
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._cached = self._draw(cache) if cache else None
        self._ready = np.empty((0, self.length), np.uint8)
        self._given = 0

    def of(self, sequences: Integers) -> Octets:
        """One row of octets for each message."""
        if self._cached is not None:
            return self._cached[sequences % len(self._cached)]
        start, stop = self._given, self._given + len(sequences)
        if stop > len(self._ready):
            fresh = self._draw(max(stop - len(self._ready), _CHUNK))
            self._ready = np.concatenate([self._ready[start:], fresh])
            start, stop = 0, len(sequences)
        self._given = stop
        return self._ready[start:stop]

    def _draw(self, count: int) -> Octets:
        octets = self._random.integers(0, 256, (count, 16), np.uint8)
        octets[:, 6] = octets[:, 6] & 0x0F | 0x40
        octets[:, 8] = octets[:, 8] & 0x3F | 0x80
        keys = np.full((count, self.length), ord("-"), np.uint8)
        nibbles = np.stack([octets >> 4, octets & 15], axis=2).reshape(count, 32)
        keys[:, _PLACES] = _DIGITS[nibbles]
        return keys
