"""Measures the cost of a write that must survive a power cut."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from perftest.doctor.check import DoctorCheck, Figures, judged, percentile
from perftest.results.provenance import filesystem

WRITES: Final = 300
BLOCK: Final = 4096
BULK_BLOCK: Final = 1 << 20
BULK: Final = 128
NEEDED: Final = BULK_BLOCK * BULK
TOO_GOOD_US: Final = 20
"""Time below which a sync went to memory: no drive that keeps data without power is faster."""
SLOW_US: Final = 5000
_IN_MEMORY: Final = ("tmpfs", "ramfs")


def drive(directory: Path) -> DoctorCheck:
    """Measure the drive of a directory: the time of a 4 KiB write with its ``fdatasync`` into an allocated file, as a
    write-ahead log does it, and the rate of 1 MiB writes. Raises OSError if the directory cannot be written."""
    name = f"drive {directory}"
    kind = filesystem(directory)
    path = directory / f".perftest-doctor-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        mib_per_s = _bulk(descriptor)
        times = _syncs(descriptor)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()
    p50, p99 = percentile(times, 50), percentile(times, 99)
    figures: Figures = {
        "filesystem": kind,
        "fdatasync_p50_us": p50,
        "fdatasync_p99_us": p99,
        "fdatasync_max_us": times[-1],
        "write_mib_per_s": round(mib_per_s),
    }
    text = (
        f"{kind}: a 4 KiB write with fdatasync takes {p50} µs, {p99} µs at the 99th percentile; {mib_per_s:.0f} MiB/s"
    )
    return judged(name, text, _doubt(kind, p50, p99), figures)


def _doubt(kind: str, p50: int, p99: int) -> str:
    """The reason against a drive with these times of a sync (µs), if there is one."""
    if kind in _IN_MEMORY:
        return ": this is memory, not a drive; a broker with its data here keeps nothing"
    if p50 < TOO_GOOD_US:
        return ": too fast for a drive that keeps data without power; check whether a cache answers before the drive"
    return ": the slowest syncs will make the slowest confirms" if p99 > SLOW_US else ""


def _bulk(descriptor: int) -> float:
    """Allocate the file with large writes and one sync; the rate of these writes in MiB a second."""
    block = os.urandom(BULK_BLOCK)
    began = time.monotonic_ns()
    for number in range(BULK):
        os.pwrite(descriptor, block, number * BULK_BLOCK)
    os.fdatasync(descriptor)
    return NEEDED / (1 << 20) / ((time.monotonic_ns() - began) / 1e9)


def _syncs(descriptor: int) -> list[int]:
    """The times of small writes, each with its sync, in microseconds, sorted."""
    block, times = os.urandom(BLOCK), []
    for number in range(WRITES):
        began = time.monotonic_ns()
        os.pwrite(descriptor, block, number * BLOCK)
        os.fdatasync(descriptor)
        times.append((time.monotonic_ns() - began) // 1000)
    return sorted(times)
