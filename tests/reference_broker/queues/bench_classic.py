"""What a classic queue costs its owner: `python -m tests.reference_broker.queues.bench_classic [DIR]`, about 60 s.

Runs of messages of 1 KB go into a queue and to one consumer, which settles them; the store writes to real files with
real syncs in the same thread. Prints the CPU time of the owner per message without the store's writer, and the longest
time that one call of ``run_effects`` took while a lazy queue was read back. The best of several passes. Not a test.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from reference_broker.classic.parts import QueueName
from reference_broker.classic.store import ClassicStore, StoreConfig
from reference_broker.classic.writer import Notice, Stored
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import Checkout, Enqueue, Settle
from reference_broker.message_run import RunSlice
from reference_broker.queues.classic_member import ClassicMember
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.files import RealFiles
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId
from tests.reference_broker.queues.classic_world import Told, content, run_of

PASSES, RUNS, BODY = 3, 400, 1024
GROUP, HERE = GroupId(1), NodeId(1)
PUBLISHER, CONSUMER = ChannelId(HERE, 1, 1, 1), ConsumerId(ChannelId(HERE, 1, 1, 2), "c")


class Counting(Told):
    """Counts what is delivered and confirmed."""

    delivered = confirmed = 0

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        self.delivered += sum(each[2] for each in slices)

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        self.confirmed = last


class Bench:
    """A queue on real files."""

    def __init__(self, root: Path, *, durable: bool, lazy: bool) -> None:
        self.notices: list[Notice] = []
        self.store = ClassicStore.open(StoreConfig(directory=str(root)), RealFiles(), self.notices.extend, OwnersThread)
        record = QueueRecord(name="q", group=GROUP, members=(HERE,))
        self.told = Counting()
        kept = self.store.queue(QueueName(GROUP, durable, lazy))
        self.member = ClassicMember(record, kept, self.told, self.told, lambda: 1000)
        self.owner_s = 0.0

    def do(self, *commands: object) -> float:
        """Apply and execute; then the store's turn. Returns the time of the longest call, in seconds."""
        longest, left = 0.0, True
        begin = process_time()
        self.member.apply(commands)
        while left:
            started = perf_counter()
            left = self.member.run_effects()
            longest = max(longest, perf_counter() - started)
        self.owner_s += process_time() - begin
        self.store.run_pending()
        begin = process_time()
        for notice in self.notices:
            if isinstance(notice, Stored):
                self.member.stored(notice.seq_end)
        self.notices.clear()
        self.member.run_effects()
        self.owner_s += process_time() - begin
        return longest


def one_pass(root: Path, messages: int, *, durable: bool, lazy: bool, backlog: bool) -> tuple[float, float]:
    """us of the owner per message, and ms of the longest call."""
    bench = Bench(root, durable=durable, lazy=lazy)
    run = run_of(*[content(bytes(BODY), persistent=durable)] * messages)
    subscribe = Checkout(CONSUMER, 1 << 20, False, 0, 1)
    if not backlog:
        bench.do(subscribe)
    for turn in range(RUNS):
        first = turn * messages
        bench.do(Enqueue(PUBLISHER, first + 1, run))
        if not backlog:
            bench.do(Settle(CONSUMER, ((first, first + messages - 1),)))
    longest = bench.do(subscribe) if backlog else 0.0
    bench.do(Settle(CONSUMER, ((0, RUNS * messages),)))
    assert bench.told.delivered == bench.told.confirmed == RUNS * messages
    bench.store.close()
    return bench.owner_s * 1e6 / (RUNS * messages), longest * 1e3


def main() -> None:
    """Print a line for each load."""
    loads = (
        ("durable, persistent", True, False, False),
        ("transient", False, False, False),
        ("lazy, read back", True, True, True),
    )
    for messages in (1, 20, 128, 500):
        for name, durable, lazy, backlog in loads:
            results = []
            for _ in range(PASSES):
                root = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
                try:
                    results.append(one_pass(root / "c", messages, durable=durable, lazy=lazy, backlog=backlog))
                finally:
                    shutil.rmtree(root)
            owner, longest = (min(each[at] for each in results) for at in (0, 1))
            call = f"   longest call {longest:.3f} ms" if backlog else ""
            sys.stdout.write(f"runs of {messages:>3}  {name:<20} owner {owner:.3f} us/msg{call}\n")


if __name__ == "__main__":
    main()
