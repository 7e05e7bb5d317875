"""``python -m tests.bench.block_drives DIR``: what a sync costs on a block drive of each profile (root, FUSE).

One process writes 4 KiB and syncs, again and again: at the end of a file, and over what is there. The figures are the
medians. The first line, without a profile, shows what the stack
itself costs.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Final

from infra import drives
from reference_broker.storage.drives.profiles import PROFILES

_WRITES: Final = 150
_PAGE: Final = bytes(4096)


def sync_ms(path: Path, *, over: bool) -> float:
    """The median time of a write with its sync."""
    times = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for index in range(_WRITES + 1):
            began = time.perf_counter_ns()
            os.pwrite(fd, _PAGE, 0 if over else index * len(_PAGE))
            os.fdatasync(fd)
            times.append(time.perf_counter_ns() - began)
    finally:
        os.close(fd)
    return statistics.median(times[1:]) / 1e6


def main(directory: Path) -> int:
    """Print a line for each profile."""
    for profile in ("", *PROFILES):
        drive = drives.make(directory / f"drive-{profile or 'none'}", 256, profile)
        try:
            append, over = (sync_ms(drive.files / "f", over=each) for each in (False, True))
            late_ns = drives.ask(drive, op="status")["punctuality"]["late_ns_p50"]
        finally:
            drives.remove(drive)
        sys.stdout.write(
            f"{profile or 'none':10} append {append:6.2f} ms  over {over:6.2f} ms  late p50 {late_ns / 1e6:.2f} ms\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
