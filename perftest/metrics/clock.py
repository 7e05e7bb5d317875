"""The one clock of a run: nanoseconds that look like Unix time and move like the monotonic clock.

CLOCK_MONOTONIC counts for the whole host, so the workers of a host share it exactly; adding one constant per run,
chosen by the coordinator, makes stamps comparable with logs. The clock never steps, whatever NTP does to Unix time in
the meantime.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns nanoseconds; a test may pass any function."""


def epoch_offset_ns() -> int:
    """The difference between Unix time and the monotonic clock, taken once per run.

    The pair is read until the two readings of the monotonic clock around it are close, so that being scheduled away
    in between does not move the whole run.
    """
    best_gap, best_offset = 1 << 62, 0
    for _ in range(8):
        before = time.monotonic_ns()
        unix = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_gap:
            best_gap, best_offset = after - before, unix - (before + after) // 2
    return best_offset


def run_clock(offset_ns: int, monotonic_ns: Clock = time.monotonic_ns) -> Clock:
    """The clock of a run whose offset is ``offset_ns``."""

    def now_ns() -> int:
        return monotonic_ns() + offset_ns

    return now_ns
