"""``python -m tests.bench.modelled_drives DIR``: syncs on modelled drives on the wall clock, beside the model's ideal.

One thread writes 4 KiB and syncs: at the end of a file, and over what is there. Per profile come the syncs a second
that the clock shows, those of the same operations in the model alone, and how late the operations were.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from reference_broker.storage.drives.profiles import PROFILES, DriveProfile
from reference_broker.storage.files import RealFiles
from reference_broker.storage.modelled_drive import ModelledDrive
from reference_broker.storage.modelled_files import ModelledFiles
from reference_broker.storage.precise_sleep import sleep_until

_LONG_NS: Final = 2_000_000_000
_FILE: Final = 8 << 20
_PAGE: Final = bytes(4096)


class _ModelTime:
    """Time that passes only while the drive is at work."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def read(self) -> int:
        return self.now

    def sleep_until(self, time_ns: int) -> int:
        self.now = time_ns
        return time_ns


def syncs_per_second(drive: ModelledDrive, directory: Path, now_ns: Callable[[], int], *, over: bool) -> float:
    """Syncs a second, once the burst is spent, for two seconds of the drive's clock."""
    file = ModelledFiles(RealFiles(), drive, "bench").create(str(directory / f"f{over:d}"), _FILE if over else 0)
    done = warm = 0
    began_ns = now_ns()
    while now_ns() - began_ns < 2 * _LONG_NS:
        file.write([_PAGE], done * len(_PAGE) % _FILE)
        file.datasync()
        done += 1
        warm = done if now_ns() - began_ns < _LONG_NS else warm
    file.close()
    return (done - warm) * 1e9 / (now_ns() - began_ns - _LONG_NS)


def both(profile: DriveProfile, directory: Path, *, over: bool) -> tuple[float, float, ModelledDrive]:
    """Syncs a second on the clock and in the model, and the drive on the clock."""
    ideal = _ModelTime()
    in_model = ModelledDrive("m", profile, now_ns=ideal.read, sleep_until=ideal.sleep_until)
    on_clock = ModelledDrive("c", profile, sleep_until=sleep_until)
    return (
        syncs_per_second(on_clock, directory, time.monotonic_ns, over=over),
        syncs_per_second(in_model, directory, ideal.read, over=over),
        on_clock,
    )


def main(directory: Path) -> int:
    """Print two lines for each profile."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, profile in PROFILES.items():
        for over in (False, True):
            clock, model, drive = both(profile, directory, over=over)
            status = drive.status()
            sys.stdout.write(
                f"{name:10} {'over' if over else 'end ':4} {clock:8.1f}/s  model {model:8.1f}/s  "
                f"late p50 {status['late_ns_p50'] / 1e3:7.0f} us  p99 {status['late_ns_p99'] / 1e3:7.0f} us  "
                f"max {status['late_ns_max'] / 1e3:7.0f} us  late {status['late'] / status['operations']:6.1%}\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
