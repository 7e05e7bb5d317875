"""Sleep to a point in time as exactly as the system can without burning a processor.

The event loop's timers are whole milliseconds at best, so a drive of 0.7 ms cannot be shown with them. A thread that
blocks wakes within about 0.05 ms, once it asks the kernel for it: by default Linux lets a timer of a thread be late by
0.05 ms, so that several can share one interrupt.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from typing import Final

_SET_TIMER_SLACK: Final = 29  # linux/prctl.h, PR_SET_TIMERSLACK
_exact = threading.local()


def sleep_until(time_ns: int) -> int:
    """Block the calling thread until this time of ``time.monotonic_ns``. Returns the time at which the thread goes on,
    which is never before."""
    if not getattr(_exact, "asked", False):
        _ask_for_exact_timers()
    while (rest := time_ns - time.monotonic_ns()) > 0:
        time.sleep(rest / 1e9)
    return time.monotonic_ns()


def _ask_for_exact_timers() -> None:
    """For the calling thread only. Another system than Linux is less exact, nothing else."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
    _exact.asked = True
