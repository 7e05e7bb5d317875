"""The first 28 octets of every body: who sent it, its place in the sequence, when it should and when it did leave.

::

    offset  0        4              12                 20             28
            +--------+--------------+------------------+--------------+----------------
            | source | sequence u64 | intended u64 ns  | sent u64 ns  | filler ...
            +--------+--------------+------------------+--------------+----------------
              u16 run, u16 publisher                     all big endian

Times are nanoseconds of :mod:`perftest.metrics.clock`: the monotonic clock moved by one constant per run, so the times
of any two workers of a host compare exactly and no clock step can make a latency negative. Without a rate ``intended``
equals ``sent``.

The run's 16 bits mark messages that an earlier run left in a queue: they count as foreign and go into no latency. The
filler is fixed, so that a consumer can check a body it has never seen; it holds every octet value and does not repeat
with a period that divides a sector or a page, so that neither compression nor deduplication on a drive can flatter a
result as zeros would.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

SIZE: Final = 28
"""Octets of the stamp, and so the smallest size of a body."""

STAMP: Final = struct.Struct(">IQQQ")

PUBLISHERS_MAX: Final = 1 << 16


def source(*, run: int, publisher: int) -> int:
    """The u32 that names publisher number ``publisher`` of the run whose 16-bit tag is ``run``."""
    if not 0 <= run < 1 << 16 or not 0 <= publisher < PUBLISHERS_MAX:
        raise ValueError(f"run {run} and publisher {publisher} must each fit in 16 bits")
    return run << 16 | publisher


@lru_cache(maxsize=8)
def filler(length: int) -> bytes:
    """``length`` octets of the filler: what stands in a body of ``SIZE + length`` after the stamp.

    The top octets of a linear congruential generator over 31 bits: the same everywhere, for ever.
    """
    octets = bytearray(length)
    state = 1
    for index in range(length):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        octets[index] = state >> 23
    return bytes(octets)
