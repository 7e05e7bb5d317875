"""Who writes a small batch on a modelled drive: the owner while it is fast, the log's thread while it is slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from reference_broker.log.config import LogConfig
from reference_broker.log.notices import Notice
from reference_broker.log.system import LogSystem
from reference_broker.storage.drives.profiles import DriveProfile
from reference_broker.storage.files import RealFiles
from reference_broker.storage.modelled_drive import ModelledDrive
from reference_broker.storage.modelled_files import ModelledFiles
from reference_broker.types import Entry, GroupId

GROUP = GroupId(1)
PATIENCE_S = 60.0
FAST = DriveProfile(name="fast", latency_ns=1, octets_per_second=10**12)
SLOW = DriveProfile(name="slow", latency_ns=1, octets_per_second=10**12, flush_ns=5_000_000)


class Writers:
    """Remembers in which thread the last batch was written."""

    def __init__(self) -> None:
        self.notices = threading.Semaphore(0)
        self.last = 0

    def __call__(self, _notices: list[Notice]) -> None:
        self.last = threading.get_ident()
        self.notices.release()

    def batch_by_owner(self, log: LogSystem, entry: Entry) -> bool:
        """Write one entry, wait until it is durable, and say whether the calling thread wrote it."""
        log.append(GROUP, [entry])
        log.write()
        assert self.notices.acquire(timeout=PATIENCE_S)
        return self.last == threading.get_ident()


def test_the_owner_writes_on_a_fast_drive_only(tmp_path: Path, entry: Callable[..., Entry]) -> None:
    """A loop that syncs a slow drive itself stops heartbeats and clients for each sync; the drive changes while the
    node runs."""
    drive, writers = ModelledDrive("d", FAST), Writers()
    config = LogConfig(wal_dir=tmp_path / "wal", data_dir=tmp_path / "data")
    log, _ = LogSystem.open(config, ModelledFiles(RealFiles(), drive, "wal"), writers, gather=lambda: None)
    index, deadline = 0, time.monotonic() + PATIENCE_S

    def until(by_owner: bool) -> None:
        nonlocal index
        while True:
            index += 1
            assert time.monotonic() < deadline
            if writers.batch_by_owner(log, entry(index)) is by_owner:
                return

    log.create_group(GROUP, b"")
    log.write()
    assert writers.notices.acquire(timeout=PATIENCE_S)
    until(True)
    drive.use(SLOW)
    until(False)
    for _ in range(20):
        index += 1
        assert not writers.batch_by_owner(log, entry(index)), "a slow drive is for the log's thread"
    drive.use(FAST)
    until(True)
    log.close()
