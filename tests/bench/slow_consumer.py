"""A consumer that reads nothing, beside a steady load on another queue: whether the others feel it."""

from __future__ import annotations

from tests.bench.client import Client
from tests.bench.context import Broker, Context
from tests.bench.generator import run

BENCH = "slow consumer"
RATE = 1000
_BACKLOG = 20_000
_QUEUE = "bench-slow"
_SMALL_BUFFER = 4096
_WARMUP_S = 2.0


def measure(context: Context, _names: list[str]) -> None:
    """All rounds: the load alone, then beside the consumer, on each broker."""
    with context.brokers() as brokers:
        for _ in range(context.lengths.rounds):
            for broker in brokers:
                context.note(BENCH, broker.name, one(context, broker))


def one(context: Context, broker: Broker) -> dict[str, float]:
    """The end-to-end p99 of the load, alone and beside the consumer."""
    alone = _p99_ms(context, broker)
    with Client(broker.uris[0]) as client:
        client.declare(_QUEUE)
        client.publish(_QUEUE, _BACKLOG)
        with Client(broker.uris[0], receive_octets=_SMALL_BUFFER) as slow:
            slow.start_consuming(_QUEUE)
            beside = _p99_ms(context, broker)
            slow.hang_up()
        client.delete(_QUEUE)
    return {"alone_p99_ms": alone, "beside_p99_ms": beside, "times": beside / alone}


def _p99_ms(context: Context, broker: Broker) -> float:
    arguments = ["-x", 1, "-y", 1, "-r", RATE, "-z", context.lengths.seconds + _WARMUP_S, "--warmup", _WARMUP_S]
    return run(broker, arguments, context.directory).latency_ms("e2e", "p99")
