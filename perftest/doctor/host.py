"""Checks the clock, the timers, the processors and the file descriptors of this machine."""

from __future__ import annotations

import os
import resource
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil

from perftest.doctor.check import DoctorCheck, Figures, judged, percentile

READS: Final = 20_000
WAKE_UPS: Final = 200
WAKE_UP_S: Final = 0.001
LATE_WARN_US: Final = 1000
STEAL_WARN_PERCENT: Final = 1.0
BUSY_WARN_PERCENT: Final = 20.0
FILES_BESIDE: Final = 100
CLIENTS_COMMON: Final = 1000
_CLOCK_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def clock() -> DoctorCheck:
    """Check the resolution and the cost of the monotonic clock that stamps messages."""
    began = time.perf_counter_ns()
    read = [time.monotonic_ns() for _ in range(READS)]
    cost_ns = (time.perf_counter_ns() - began) / READS
    steps = sorted(later - earlier for earlier, later in pairwise(read) if later > earlier)
    step_ns = steps[0] if steps else 0
    source = _text(_CLOCK_SOURCE) or "unknown"
    figures: Figures = {"source": source, "step_ns": step_ns, "read_ns": round(cost_ns, 1)}
    if step_ns > 10_000 or not steps:
        coarse = f"the clock ({source}) moves in steps of {step_ns / 1000:g} µs: shorter latencies cannot be told apart"
        return judged("clock", "", coarse, figures)
    return judged("clock", f"source {source}, read in {cost_ns:.0f} ns, steps of {step_ns} ns or more", "", figures)


def timers() -> DoctorCheck:
    """Check how late a process wakes up from a sleep of a millisecond, and so how well a schedule can be kept."""
    late = []
    for _ in range(WAKE_UPS):
        began = time.monotonic_ns()
        time.sleep(WAKE_UP_S)
        late.append((time.monotonic_ns() - began - int(WAKE_UP_S * 1e9)) // 1000)
    late.sort()
    p50, p99 = percentile(late, 50), percentile(late, 99)
    figures: Figures = {"late_p50_us": p50, "late_p99_us": p99, "late_max_us": late[-1]}
    text = f"a process that sleeps 1 ms wakes up {p50} µs late, {p99} µs at the 99th percentile"
    doubt = ": schedules will lag by that much; end the other programs on this machine" if p99 > LATE_WARN_US else ""
    return judged("timers", text, doubt, figures)


def processors(seconds: float) -> DoctorCheck:
    """Check the cores, their limits, and their use by other programs, over ``seconds``."""
    cores = len(os.sched_getaffinity(0))
    before = psutil.cpu_times()
    used = psutil.cpu_percent(interval=seconds)
    after = psutil.cpu_times()
    steal = 100 * (getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)) / (seconds * (os.cpu_count() or 1))
    figures: Figures = {"cores": cores, "used_percent": round(used, 1), "steal_percent": round(steal, 2)}
    doubts = "; ".join(usage_doubts(cores, used, steal, _quota(), _text(_GOVERNOR)))
    text = "" if doubts else f"{cores} cores, {used:.0f} % used by others, {steal:.1f} % stolen"
    return judged("processors", text, doubts, figures)


def usage_doubts(cores: int, used: float, steal: float, quota: float | None, governor: str) -> list[str]:
    """Reasons against these processors. ``used`` and ``steal`` are percent of their time, ``quota`` is in cores."""
    doubts = []
    if steal > STEAL_WARN_PERCENT:
        doubts.append(f"the hypervisor takes {steal:.1f} % of the time: latencies will hold its pauses")
    if used > BUSY_WARN_PERCENT:
        doubts.append(f"something else uses {used:.0f} % of the processors: end it")
    if quota is not None and quota < cores:
        doubts.append(f"the container may use {quota:g} of {cores} cores: at the limit it is stopped for milliseconds")
    if governor not in ("", "performance"):
        doubts.append(f"the frequency governor is {governor!r}: set it to performance")
    return doubts


def descriptors() -> DoctorCheck:
    """Check how many connections this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else 1 << 20
    clients = max(most - FILES_BESIDE, 0)
    text = f"a process may open {most} files (now {soft}): up to {clients} connections"
    few = "; raise the limit with `ulimit -n`, or with LimitNOFILE in a service" if clients < CLIENTS_COMMON else ""
    return judged("descriptors", text, few, {"soft": soft, "hard": hard, "connections": clients})


def _quota() -> float | None:
    """The number of cores that the control group may use; None if there is no limit."""
    words = _text(_QUOTA).split()
    if len(words) != 2 or words[0] == "max":
        return None
    return int(words[0]) / int(words[1])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
