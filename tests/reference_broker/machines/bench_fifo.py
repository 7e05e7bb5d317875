"""What an entry costs the queue machine: `python tests/reference_broker/machines/bench_fifo.py`, about 15 s.

Counts CPU time and prints the best of several passes: other load on the machine only ever adds. Not a test.
"""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace
from time import process_time

from reference_broker.machines.batch import decode_batch, encode_batch
from reference_broker.machines.commands import Checkout, Command, Enqueue, Settle, UpdateConfig
from reference_broker.machines.config import DeadLetterStrategy, FifoConfig
from reference_broker.machines.effects import Deliver
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.message_run import MessageRun
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId, Term

PASSES = 5
ENTRIES = 400
TERM = Term(1)


def channel(number: int) -> ChannelId:
    return ChannelId(NodeId(1 + number % 3), 1, 1, number)


def batch(commands: list[Command]) -> bytes:
    return b"".join(encode_batch(1, commands))


def run_of(count: int) -> MessageRun:
    return MessageRun(count, b"\x00\x01q", bytes(16 * count), 16)


def entry_cost_us(consumers: int, messages: int, enqueues: int) -> tuple[float, float]:
    """Apply, and the part of it that is decoding, for entries that enqueue and settle as much as is delivered."""
    queue = FifoMachine(FifoConfig(name="bench"))
    ids = [ConsumerId(channel(1000 + number), f"ctag-{number}") for number in range(consumers)]
    queue.apply(Meta(LogIndex(1), TERM), batch([Checkout(one, 5000, False, 0, 1) for one in ids]))
    run, settles, apply_s, decode_s = run_of(messages), list[Command](), 0.0, 0.0
    for turn in range(ENTRIES):
        commands: list[Command] = [Enqueue(channel(n), 1 + turn * messages, run) for n in range(enqueues)]
        payload = batch(commands + settles)
        started = process_time()
        decode_batch(payload)
        decoded = process_time()
        effects = queue.apply(Meta(LogIndex(2 + turn), TERM), payload)
        apply_s += process_time() - decoded
        decode_s += decoded - started
        settles = [settle(effect) for effect in effects if isinstance(effect, Deliver)]
    return 1e6 * apply_s / ENTRIES, 1e6 * decode_s / ENTRIES


def settle(delivery: Deliver) -> Settle:
    first = delivery.first_message_id
    return Settle(delivery.consumer, ((first, first + sum(span.count for span in delivery.spans) - 1),))


def backlog_of(messages: int, run_size: int) -> str:
    tracemalloc.start()
    queue, run = FifoMachine(FifoConfig(name="bench")), run_of(run_size)
    for turn in range(messages // run_size):
        queue.apply(Meta(LogIndex(turn + 1), TERM), batch([Enqueue(channel(1), 1 + turn * run_size, run)]))
    octets, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    started = process_time()
    snapshot = queue.snapshot()
    written = process_time()
    queue.live_entries()
    listed = process_time()
    FifoMachine.restore(snapshot)
    restored = process_time()
    snapshot_ms, live_ms, restore_ms = (
        f"{1e3 * seconds:.1f} ms" for seconds in (written - started, listed - written, restored - listed)
    )
    size = f"{octets / 1e6:.1f} MB, snapshot {len(snapshot) / 1e6:.1f} MB"
    return f"{size} in {snapshot_ms}, restored in {restore_ms}; live entries in {live_ms}"


def mass_of(messages: int, config: FifoConfig) -> str:
    """A policy that leaves room for ten comes upon a queue of messages that were published one by one."""
    queue, run, ten = FifoMachine(FifoConfig(name="bench")), run_of(1), replace(config, max_length=10)
    for turn in range(messages // 500):
        first = 1 + turn * 500
        commands: list[Command] = [Enqueue(channel(1), first + number, run) for number in range(500)]
        queue.apply(Meta(LogIndex(turn + 1), TERM), batch(commands))
    command = batch([UpdateConfig(ten)])
    started = process_time()
    queue.apply(Meta(LogIndex(messages), TERM), command)
    return f"{1e3 * (process_time() - started):.0f} ms"


def main() -> None:
    out = sys.stdout.write
    out("entry with n enqueues of m messages for k consumers, and the settles of the entry before\n")
    for consumers, messages, enqueues in ((1, 500, 1), (3, 500, 1), (10, 500, 1), (1, 1, 1), (3, 1, 1), (3, 1, 100)):
        figures = [entry_cost_us(consumers, messages, enqueues) for _ in range(PASSES)]
        apply_us, decode_us = (min(column) for column in zip(*figures, strict=True))
        each = apply_us / messages / enqueues
        case = f"n={enqueues:3} m={messages:3} k={consumers:2}"
        out(f"{case}: {apply_us:6.1f} us ({decode_us:.1f} us decoding), {each:.3f} us a message\n")
    for run_size in (100, 1):
        out(f"a million ready messages in runs of {run_size}: {backlog_of(1_000_000, run_size)}\n")
    for strategy in (None, DeadLetterStrategy.AT_MOST_ONCE):
        cost = mass_of(1_000_000, FifoConfig(name="bench", dead_letter=strategy))
        letters = strategy.name.lower().replace("_", " ") if strategy else "none"
        out(f"a million messages in runs of 1 dropped by one entry, dead letters {letters}: {cost}\n")


if __name__ == "__main__":
    main()
