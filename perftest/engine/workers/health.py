"""The health of a worker: its CPU time, the delay of its event loop, its garbage collections, its waits for a core.

A generator at its limit looks like a slow broker; these figures tell the two apart.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final, Literal

from perftest.engine.host import THIS_HOST, Host
from perftest.engine.wakeups import Wakeups
from perftest.metrics.clock import Clock

BEAT_NS: Final = 20_000_000


class Health:
    """Measures from :meth:`begin` on. ``on_beat`` is called about every 20 ms, for small regular work."""

    def __init__(self, clock: Clock, wakeups: Wakeups, on_beat: Callable[[int], None], host: Host = THIS_HOST) -> None:
        self._clock = clock
        self._wakeups = wakeups
        self._on_beat = on_beat
        self._due_ns = 0
        self._lag_ns = 0
        self._host = host
        self._cpu_ns = host.cpu_ns()
        self._waited_ns = host.waited_ns()
        self._collections = 0
        self._pause_ns = 0
        self._collecting_ns = 0

    def begin(self) -> None:
        """Start the probe; a second call does nothing."""
        if not self._due_ns:
            if self._host.collects_garbage:
                gc.callbacks.append(self._on_collection)
            self._next_beat()

    def end(self) -> None:
        """Remove the probe from the interpreter."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def cut(self) -> dict[str, int]:
        """Figures since the last cut, by the names of :class:`~perftest.metrics.interval.Interval`."""
        cpu_before_ns, self._cpu_ns = self._cpu_ns, self._host.cpu_ns()
        waited_before_ns, self._waited_ns = self._waited_ns, self._host.waited_ns()
        overdue_ns = max(self._clock() - self._due_ns, 0) if self._due_ns else 0
        found = {
            "worker_cpu_ns": self._cpu_ns - cpu_before_ns,
            "worker_wait_ns": max(self._waited_ns - waited_before_ns, 0),
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
