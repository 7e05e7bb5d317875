"""The host of a generator's processes: the engine's only source of the time and of facts about the machine.

:data:`THIS_HOST` is the machine itself. A simulation passes a host of its own, so that production code runs at virtual
time and one seed gives one run.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Final, Protocol

from perftest.metrics.clock import epoch_offset_ns

_STAT: Final = Path("/proc/stat")
_STEAL_FIELD: Final = 8


class Host(Protocol):
    """All times are nanoseconds, and count from some moment in the past."""

    exact_timers: bool
    """Whether the timers of the event loop keep the time asked, to the nanosecond."""
    collects_garbage: bool
    """Whether pauses of the garbage collector are a part of the host's time."""

    def monotonic_ns(self) -> int:
        """The clock that all processes of the host share, and that never steps."""

    def epoch_offset_ns(self) -> int:
        """Unix time minus the monotonic clock."""

    def cpu_ns(self) -> int:
        """The CPU time of this process."""

    def waited_ns(self) -> int:
        """The time for which this process was ready to run and got no core; 0 if it is not counted."""

    def stolen_ns(self) -> int:
        """The CPU time of all cores that a hypervisor gave to other machines; 0 if it is not counted."""

    def cores(self) -> int:
        """The cores that this process may use."""

    def run_number(self) -> int:
        """16 random bits that tell the messages of one run from those of another."""


class ThisHost:
    """The machine that this process runs on."""

    exact_timers = False
    collects_garbage = True

    def __init__(self) -> None:
        self._run_queue = -1

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def epoch_offset_ns(self) -> int:
        """As :func:`~perftest.metrics.clock.epoch_offset_ns` measures it."""
        return epoch_offset_ns()

    def cpu_ns(self) -> int:
        """User and system time."""
        return time.process_time_ns()

    def waited_ns(self) -> int:
        """The kernel's count for the calling thread, the only thread that asks."""
        if self._run_queue < 0:
            try:
                self._run_queue = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return 0
        fields = os.pread(self._run_queue, 128, 0).split()
        return int(fields[1]) if len(fields) > 1 else 0

    def stolen_ns(self) -> int:
        """The first line of /proc/stat."""
        try:
            with _STAT.open("rb") as file:
                fields = file.readline().split()
            return int(fields[_STEAL_FIELD]) * (10**9 // os.sysconf("SC_CLK_TCK"))
        except (OSError, IndexError, ValueError):
            return 0

    def cores(self) -> int:
        """The cores that this process is bound to, or all."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def run_number(self) -> int:
        """From the system's source of randomness."""
        return random.SystemRandom().getrandbits(16)


THIS_HOST: Final[Host] = ThisHost()
