"""How long a node's log takes to start, and how much memory it needs; by itself: ``python -m tests.bench.recovery``.

Writes a log of so many octets for so many groups, most of it a backlog that nobody consumes, and opens it in a process
of its own. With large WAL files everything is still in the WAL; with the usual ones most of it is in segments.
Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter, process_time
from zlib import crc32

from reference_broker.log.config import LogConfig
from reference_broker.log.notices import Failed, Notice, RolledOver, Written
from reference_broker.log.system import LogSystem
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.files import RealFiles
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, Term
from tests.bench.context import Context
from tests.bench.figures import REFERENCE, BenchError

WINDOW = 64
"""Entries per group that are on their way to the disk at a time."""


def fill(config: LogConfig, octets: int, entry_bytes: int, groups: int) -> None:
    """Write a backlog; every fourth entry is dead when its file is closed."""
    arrived = threading.Condition()
    written = dict.fromkeys(range(1, groups + 1), 0)
    rolled: list[RolledOver] = []

    def notify(notices: list[Notice]) -> None:
        with arrived:
            for notice in notices:
                assert not isinstance(notice, Failed), notice
                if isinstance(notice, Written):
                    written[notice.group] = notice.index
                elif isinstance(notice, RolledOver):
                    rolled.append(notice)
            arrived.notify_all()

    log, _ = LogSystem.open(config, RealFiles(), notify)
    for group in written:
        log.create_group(GroupId(group), b"")
    payload = bytes(range(256)) * (entry_bytes // 256 + 1)
    for start in range(1, octets // entry_bytes // groups, WINDOW):
        entries = []
        for index in range(start, start + WINDOW):
            body = index.to_bytes(8) + payload[: entry_bytes - 8]
            entries.append(Entry(LogIndex(index), Term(1), EntryKind.COMMAND, crc32(body), body))
        for group in written:
            log.append(GroupId(group), entries)
        with arrived:
            arrived.wait_for(lambda start=start: min(written.values()) >= start)  # type: ignore[misc]
            rolls, rolled[:] = list(rolled), []
        for _roll in rolls:
            for group in log.snapshot_due(lambda _group: [(1, 1 << 62)]):
                log.take_snapshot(group, LogIndex(start), Term(1), b"", [(1, start)])
    log.close()


def opened(config: LogConfig) -> dict[str, float]:
    """Open the log and say what that took. To be called in a fresh process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, cpu = perf_counter(), process_time()
    log, recovered = LogSystem.open(config, RealFiles(), lambda _notices: None, policy=OwnersThread)
    took, used = perf_counter() - started, process_time() - cpu
    counters = log.counters()
    return {
        "seconds": round(took, 2),
        "cpu_seconds": round(used, 2),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rss_before_mib": round(before / 1024),
        "entries": sum(found.last_index for found in recovered.values()),
        "segments": counters["segment_files"],
        "wal_mib": round(counters["recovery_bytes"] / (1 << 20)),
    }


def measure(context: Context, _names: list[str]) -> None:
    """With the usual files and ten groups; once, the log alone: no node, no RabbitMQ."""
    options = ["--mib", str(context.lengths.recovery_mib), "--json"]
    command = [sys.executable, "-m", "tests.bench.recovery", *options, "--dir", str(context.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"recovery ended with {done.returncode}: {done.stderr[-2000:]}")
    context.note("recovery", REFERENCE, json.loads(done.stdout))


def main() -> None:
    """Fill, then open in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="octets of payload to write (default 1024)")
    parser.add_argument("--entry-bytes", type=int, default=1024, help="of each entry (default 1024)")
    parser.add_argument("--groups", type=int, default=10, help="queues (default 10)")
    parser.add_argument("--wal-file-mib", type=int, default=64, help="size of a WAL file (default 64)")
    parser.add_argument("--dir", help="where to put it (default: a temporary directory)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only-open", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as temporary:
        directory = Path(arguments.dir if arguments.only_open else temporary)
        config = LogConfig(
            wal_dir=directory / "wal", data_dir=directory / "data", wal_file_bytes=arguments.wal_file_mib << 20
        )
        if arguments.only_open:
            sys.stdout.write(json.dumps(opened(config)))
            return
        fill(config, arguments.mib << 20, arguments.entry_bytes, arguments.groups)
        again = [sys.executable, "-m", "tests.bench.recovery", *sys.argv[1:], "--only-open", "--dir", str(directory)]
        done = subprocess.run(again, capture_output=True, text=True, check=True)
        if arguments.json:
            sys.stdout.write(done.stdout)
            return
        for name, value in json.loads(done.stdout).items():
            sys.stdout.write(f"{name:16} {value}\n")


if __name__ == "__main__":
    main()
