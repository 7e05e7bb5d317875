"""``python -m tests.bench.drive_model``: what a call of the drive model costs, in microseconds, for each profile."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from reference_broker.storage.drives.journal import JournalModel
from reference_broker.storage.drives.model import DriveModel
from reference_broker.storage.drives.profiles import PROFILES

_CALLS: Final = 100_000
_ROUNDS: Final = 5
_FILE: Final = 64 << 20


def best_us(work: Callable[[str], int], name: str) -> float:
    """Microseconds a call, in the fastest of a few rounds: the others were disturbed."""
    times = []
    for _ in range(_ROUNDS):
        began = perf_counter_ns()
        calls = work(name)
        times.append((perf_counter_ns() - began) / calls / 1000)
    return min(times)


def submits(name: str) -> int:
    """Writes of 4 KiB anywhere, one after the other."""
    chance, drive, now = random.Random(1), DriveModel(PROFILES[name]), 0
    lbas = [chance.randrange(1 << 39) for _ in range(_CALLS)]
    for lba in lbas:
        now = drive.submit(now, lba, 4096, True)
    return _CALLS


def syncs(name: str) -> int:
    """Writes with their syncs in a WAL file."""
    journal, now = JournalModel(DriveModel(PROFILES[name])), 0
    file = journal.create(now)
    journal.write(now, file, 0, _FILE)
    now = journal.datasync(now, file)
    calls = _CALLS // 5
    for index in range(calls):
        journal.write(now, file, index * 4096 % _FILE, 4096)
        now = journal.datasync(now, file)
    return calls


def main() -> int:
    """Print a line for each profile."""
    for name in PROFILES:
        submit, sync = best_us(submits, name), best_us(syncs, name)
        sys.stdout.write(f"{name:10} submit {submit:5.2f} us   write and sync in a file {sync:5.2f} us\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
