"""Timers with microseconds instead of milliseconds.

Both asyncio and uvloop round timers to whole milliseconds. In every measurement with a rate this would show as schedule
lag that the generator itself has made. On Linux one timerfd, read by the event loop, serves all wake-ups of a worker.
On other systems the timers of the event loop serve them.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import sys
from collections.abc import Callable
from typing import Final

from perftest.engine.host import THIS_HOST, Host
from perftest.engine.schedule.intended_times import SECOND_NS

_CLOCK_MONOTONIC: Final = 1
_TFD_NONBLOCK: Final = 0o4000
_TFD_CLOEXEC: Final = 0o2000000
_TFD_TIMER_ABSTIME: Final = 1


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: two struct timespec, interval and value."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Wakeups:
    """Calls functions at moments of the run clock (``offset_ns`` ahead of the monotonic clock of the host)."""

    def __init__(self, offset_ns: int, host: Host = THIS_HOST) -> None:
        self._offset_ns = offset_ns
        self._monotonic_ns = host.monotonic_ns
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._armed_ns = 0
        self._handle: asyncio.TimerHandle | None = None
        needs_timer = sys.platform == "linux" and not host.exact_timers
        self._libc = ctypes.CDLL(None, use_errno=True) if needs_timer else None
        self._fd = self._open()

    def at(self, when_ns: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, as soon after ``when_ns`` (run clock) as possible."""
        self._order += 1
        heapq.heappush(self._heap, (when_ns - self._offset_ns, self._order, callback))
        self._arm()

    def close(self) -> None:
        """Cancel all calls."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        if self._libc is None:
            return -1
        fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC))
        if fd >= 0:
            self._loop.add_reader(fd, self._on_timer)
        return fd

    def _arm(self) -> None:
        if not self._heap or self._heap[0][0] == self._armed_ns:
            return
        when_ns = self._armed_ns = self._heap[0][0]
        if self._fd >= 0 and self._libc is not None:
            spec = _TimerSpec(0, 0, *divmod(max(when_ns, 1), SECOND_NS))
            self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        delay_s = max(when_ns - self._monotonic_ns(), 0) / SECOND_NS
        self._handle = self._loop.call_later(delay_s, self._run_due)

    def _on_timer(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # armed anew since it fired
        self._run_due()

    def _run_due(self) -> None:
        self._armed_ns = 0
        now_ns = self._monotonic_ns()
        while self._heap and self._heap[0][0] <= now_ns:
            heapq.heappop(self._heap)[2]()
        self._arm()
