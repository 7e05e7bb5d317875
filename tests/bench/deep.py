"""A queue that nobody consumes: does publishing slow down, what does it hold in memory, how fast does it empty."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

from tests.bench.client import SIZE, Client, queues
from tests.bench.context import Broker, Context
from tests.bench.figures import rate_between

QUEUE = "bench-deep"
_PART = 10
"""Tenths, the first against the last: 100,000 messages each of one million."""


def measure(context: Context, _names: list[str]) -> None:
    """On a fresh bundled cluster each round, so that memory is that of the queue; on RabbitMQ once, if asked for."""
    for _ in range(context.lengths.rounds):
        with context.bundled() as ours:
            figures = one(ours, context.lengths.deep_messages)
        written = figures["last_per_s"] * SIZE * len(ours.uris) / (1 << 20)
        drive = drive_mib_per_s(context.directory, context.lengths.deep_messages * SIZE)
        context.note("deep", ours.name, {**figures, "last_mib_per_s": written, "drive_mib_per_s": drive})
    theirs = context.rabbitmq() if context.deep_rabbitmq else None
    if theirs is not None:
        context.note("deep", theirs.name, one(theirs, context.lengths.deep_messages))


def one(broker: Broker, count: int) -> dict[str, float]:
    """Fill and empty a queue."""
    with Client(broker.uris[0]) as client, queues(client, [QUEUE]):  # or the first tenth would be that of cold nodes
        client.publish(QUEUE, count // _PART)
    before = broker.rss_bytes()
    with Client(broker.uris[0]) as client, queues(client, [QUEUE]):
        progress = client.publish(QUEUE, count)
        full = broker.rss_bytes()
        edges = [count * part // _PART for part in range(_PART + 1)]
        rates = [rate_between(progress, *edge) for edge in pairwise(edges)]
        with Client(broker.uris[0]) as consumer:
            drained_s = consumer.drain(QUEUE, count)
    return {
        "first_per_s": rates[0],
        "slowest_per_s": min(rates),
        "fastest_per_s": max(rates),
        "last_per_s": rates[-1],
        "fall_percent": 100 * (1 - rates[-1] / rates[0]),
        "publish_s": progress[-1][1] - progress[0][1],
        "memory_before_mib": before / (1 << 20),
        "memory_full_mib": full / (1 << 20),
        "drain_s": drained_s,
        "drained_per_s": count / drained_s,
    }


def drive_mib_per_s(directory: Path, octets: int) -> float:
    """What the drive takes from one writer that syncs each mebibyte. Nodes on one drive share it; the queue cannot be
    faster than that."""
    block, count = os.urandom(1 << 20), max(1, octets >> 20)
    path = directory / "drive"
    with path.open("wb", buffering=0) as file:
        begin = time.perf_counter()
        for _ in range(count):
            file.write(block)
            os.fdatasync(file.fileno())
        took_s = time.perf_counter() - begin
    path.unlink()
    return count / took_s
