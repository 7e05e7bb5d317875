"""What a write costs that must survive a power cut, in a directory."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import psutil

from perftest.doctor.check import Check, percentile

WRITES: Final = 300
BLOCK: Final = 4096
BULK_BLOCK: Final = 1 << 20
BULK: Final = 128
NEEDED: Final = BULK_BLOCK * BULK
TOO_GOOD_US: Final = 20
"""No drive that keeps data without power answers faster: the write went to memory."""
SLOW_US: Final = 5000
_IN_MEMORY: Final = ("tmpfs", "ramfs")


def drive(directory: Path) -> Check:
    """The time of a write of 4 KiB with its ``fdatasync`` into a file that is allocated (what a write-ahead log does),
    and the rate of 1 MiB writes. Raises OSError when the directory cannot be written."""
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
    figures: dict[str, float | int | str] = {
        "filesystem": kind,
        "fdatasync_p50_us": p50,
        "fdatasync_p99_us": p99,
        "fdatasync_max_us": times[-1],
        "write_mib_per_s": round(mib_per_s),
    }
    text = (
        f"{kind}: a 4 KiB write with fdatasync takes {p50} µs, {p99} µs at the 99th percentile; {mib_per_s:.0f} MiB/s"
    )
    if kind in _IN_MEMORY:
        text += ": this is memory, not a drive; a broker here keeps nothing"
    elif p50 < TOO_GOOD_US:
        text += ": too fast for a drive that keeps data without power; see whether a cache lies"
    elif p99 > SLOW_US:
        text += ": the slowest syncs will be the tail of every confirm"
    else:
        return Check(name=name, status="pass", text=text, figures=figures)
    return Check(name=name, status="warn", text=text, figures=figures)


def filesystem(directory: Path) -> str:
    """The type of the file system that holds a directory."""
    resolved = directory.resolve()
    holding = [part for part in psutil.disk_partitions(all=True) if resolved.is_relative_to(part.mountpoint)]
    return max(holding, key=lambda part: len(part.mountpoint)).fstype if holding else "unknown"


def _bulk(descriptor: int) -> float:
    """MiB a second of large writes, synced once; it also allocates the file."""
    block = os.urandom(BULK_BLOCK)
    began = time.monotonic_ns()
    for number in range(BULK):
        os.pwrite(descriptor, block, number * BULK_BLOCK)
    os.fdatasync(descriptor)
    return NEEDED / (1 << 20) / ((time.monotonic_ns() - began) / 1e9)


def _syncs(descriptor: int) -> list[int]:
    """Microseconds of each small write with its sync, sorted."""
    block, times = os.urandom(BLOCK), []
    for number in range(WRITES):
        began = time.monotonic_ns()
        os.pwrite(descriptor, block, number * BLOCK)
        os.fdatasync(descriptor)
        times.append((time.monotonic_ns() - began) // 1000)
    return sorted(times)
