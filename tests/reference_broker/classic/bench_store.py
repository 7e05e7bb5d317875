"""What the classic store costs: `python tests/reference_broker/classic/bench_store.py DIRECTORY`, about 10 s.

Runs of 500 messages of 1 KB into one durable queue, on real files with real syncs: time of the owner for a message, and
messages a second until all are stored. Prints the best of several passes. Not a test.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from reference_broker.classic.parts import QueueName
from reference_broker.classic.store import ClassicStore, StoreConfig, StoredQueue
from reference_broker.classic.writer import Notice
from reference_broker.message_run import MessageRun
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.files import RealFiles
from reference_broker.types import GroupId

PASSES, RUNS, MESSAGES, BODY = 3, 200, 500, 1024


def ignore(_notices: list[Notice]) -> None:
    """Nobody waits."""


def one_pass(root: Path, *, lazy: bool, takes: bool) -> tuple[float, float, float]:
    """us of the owner per message, messages a second to the drive, us per message to read back and take."""
    config = StoreConfig(directory=str(root))
    store = ClassicStore.open(config, RealFiles(), ignore, OwnersThread)
    queue: StoredQueue = store.queue(QueueName(GroupId(1), is_durable=True, is_lazy=lazy))
    run = MessageRun(MESSAGES, b"\x00\x01q", bytes(MESSAGES * (BODY + 37)), BODY + 37)
    owner, drive, parts = 0.0, 0.0, []
    for _ in range(RUNS):
        begin = process_time()
        added = queue.add(run, persistent=True)
        if takes:
            for part in added:
                queue.take(part.seq, 0, part.count)
        owner += process_time() - begin
        parts += added
        begin = perf_counter()
        store.run_pending()
        drive += perf_counter() - begin
    begin = perf_counter()
    if not takes:
        for part in parts:
            queue.run(part.seq)
            queue.take(part.seq, 0, part.count)
        store.run_pending()
    back = perf_counter() - begin
    queue.delete()
    store.close()
    count = RUNS * MESSAGES
    return owner * 1e6 / count, count / drive if drive else 0.0, back * 1e6 / count


def main() -> None:
    """Print a line for each load."""
    for name, lazy, takes in (("durable", False, False), ("lazy", True, False), ("gone at once", False, True)):
        results = []
        for _ in range(PASSES):
            root = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
            try:
                results.append(one_pass(root / "classic", lazy=lazy, takes=takes))
            finally:
                shutil.rmtree(root)
        owner, rate, back = min(results)[0], max(each[1] for each in results), min(each[2] for each in results)
        sys.stdout.write(f"{name:<14} owner {owner:.3f} us/msg   {rate:12,.0f} msg/s stored   back {back:.3f} us/msg\n")


if __name__ == "__main__":
    main()
