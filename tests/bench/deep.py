"""A queue that nobody consumes: does publishing slow down, what does it hold in memory, how fast does it empty."""

from __future__ import annotations

from tests.bench.client import Client, queues
from tests.bench.context import Broker, Context
from tests.bench.figures import rate_between

QUEUE = "bench-deep"
_PART = 10
"""The first tenth against the last one: 100,000 of one million."""


def measure(context: Context, _names: list[str]) -> None:
    """Once on the bundled broker; on RabbitMQ only where that is asked for."""
    with context.bundled() as ours:
        context.note("deep", ours.name, one(ours, context.lengths.deep_messages))
    theirs = context.rabbitmq() if context.deep_rabbitmq else None
    if theirs is not None:
        context.note("deep", theirs.name, one(theirs, context.lengths.deep_messages))


def one(broker: Broker, count: int) -> dict[str, float]:
    """Fill and empty a queue."""
    before = broker.rss_bytes()
    with Client(broker.uris[0]) as client, queues(client, [QUEUE]):
        progress = client.publish(QUEUE, count)
        full = broker.rss_bytes()
        first = rate_between(progress, 0, count // _PART)
        last = rate_between(progress, count - count // _PART, count)
        with Client(broker.uris[0]) as consumer:
            drained_s = consumer.drain(QUEUE, count)
    return {
        "first_per_s": first,
        "last_per_s": last,
        "fall_percent": 100 * (1 - last / first),
        "publish_s": progress[-1][1] - progress[0][1],
        "memory_before_mib": before / (1 << 20),
        "memory_full_mib": full / (1 << 20),
        "drain_s": drained_s,
        "drained_per_s": count / drained_s,
    }
