"""The health of a worker: its CPU time, the delay of its event loop, its garbage collections, its waits for a core.

A generator at its limit looks like a slow broker; these figures tell the two apart.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from perftest.engine.wakeups import Wakeups
from perftest.metrics.clock import Clock

BEAT_NS: Final = 20_000_000
_STAT: Final = Path("/proc/stat")
_STEAL_FIELD: Final = 8


class Health:
    """Measures from :meth:`begin` on. ``on_beat`` is called about every 20 ms, for small regular work."""

    def __init__(self, clock: Clock, wakeups: Wakeups, on_beat: Callable[[int], None]) -> None:
        self._clock = clock
        self._wakeups = wakeups
        self._on_beat = on_beat
        self._due_ns = 0
        self._lag_ns = 0
        self._cpu_ns = time.process_time_ns()
        self._wait = _RunQueue()
        self._collections = 0
        self._pause_ns = 0
        self._collecting_ns = 0

    def begin(self) -> None:
        """Start the probe; a second call does nothing."""
        if not self._due_ns:
            gc.callbacks.append(self._on_collection)
            self._next_beat()

    def end(self) -> None:
        """Remove the probe from the interpreter."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def cut(self) -> dict[str, int]:
        """Figures since the last cut, by the names of :class:`~perftest.metrics.interval.Interval`."""
        before, self._cpu_ns = self._cpu_ns, time.process_time_ns()
        overdue_ns = max(self._clock() - self._due_ns, 0) if self._due_ns else 0
        found = {
            "worker_cpu_ns": self._cpu_ns - before,
            "worker_wait_ns": self._wait.cut(),
            "loop_lag_ns": max(self._lag_ns, overdue_ns),
            "gc_collections": self._collections,
            "gc_pause_ns": self._pause_ns,
        }
        self._lag_ns = self._collections = self._pause_ns = 0
        return found

    def _beat(self) -> None:
        """The event loop comes to its timer as late as other work has kept it busy."""
        now_ns = self._clock()
        self._lag_ns = max(self._lag_ns, now_ns - self._due_ns)
        self._on_beat(now_ns)
        self._next_beat()

    def _next_beat(self) -> None:
        self._due_ns = self._clock() + BEAT_NS
        self._wakeups.at(self._due_ns, self._beat)

    def _on_collection(self, phase: Literal["start", "stop"], _facts: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_ns = time.perf_counter_ns()
        else:
            self._collections += 1
            self._pause_ns = max(self._pause_ns, time.perf_counter_ns() - self._collecting_ns)


class _RunQueue:
    """The time for which this thread was ready to run and got no core; 0 where the kernel does not count it."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1
        self._waited_ns = self._read()

    def cut(self) -> int:
        """Nanoseconds since the last cut."""
        before, self._waited_ns = self._waited_ns, self._read()
        return max(self._waited_ns - before, 0)

    def _read(self) -> int:
        if self._file < 0:
            return 0
        fields = os.pread(self._file, 128, 0).split()
        return int(fields[1]) if len(fields) > 1 else 0

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class Steal:
    """CPU time of all cores of this host that the hypervisor gave to other machines; 0 where the kernel does not count
    it."""

    def __init__(self) -> None:
        self._before_ns = _stolen_ns()

    def cut(self) -> int:
        """Nanoseconds since the last cut."""
        before, self._before_ns = self._before_ns, _stolen_ns()
        return max(self._before_ns - before, 0)


def _stolen_ns() -> int:
    try:
        with _STAT.open("rb") as file:
            fields = file.readline().split()
        return int(fields[_STEAL_FIELD]) * (10**9 // os.sysconf("SC_CLK_TCK"))
    except (OSError, IndexError, ValueError):
        return 0
