"""One publisher: the published single-queue benchmarks on a quorum queue, loads on classic, mirrored and keyed queues,
and one message for ten queues, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.bench.context import Broker, Context
from tests.bench.generator import QUORUM, run


@dataclass(frozen=True, slots=True)
class Load:
    """A setting: at most so many unconfirmed, so many unacknowledged (0: automatic acknowledgement), an acknowledgement
    every so many."""

    name: str
    in_flight: int
    prefetch: int = 1000
    ack_interval: int = 1
    drain: str = "10s"
    queue: tuple[str, ...] = QUORUM
    """The options that describe the queue and its messages."""
    consumers: int = 1
    copies: Mapping[str, object] | None = None
    """The policy for the queue."""
    in_rabbitmq: bool = True
    """Whether RabbitMQ has such queues."""

    def options(self) -> list[object]:
        """The options of the generator, but for those of the queue."""
        acknowledging = ["-a"] if not self.prefetch else ["-q", self.prefetch, "-A", self.ack_interval]
        return ["-x", 1, "-y", self.consumers, "-c", self.in_flight, *acknowledging]


_DURABLE = ("-u", "classic", "-f", "persistent", "-ad", "false")
_LAZY = ("-u", "lazy", *_DURABLE[2:], "-qa", "x-queue-mode=lazy")
_TRANSIENT = ("-u", "transient", "-ad", "false")
_MIRRORED = ("-u", "mirrored", *_DURABLE[2:])
_KEYS = 100
_KEYED = (
    *("-u", "keyed", "-f", "persistent", "-ad", "false", "-qa", "x-queue-type=keyed,x-key=routing-key"),
    *("-e", "bench-keys", "-t", "fanout", "-K", "-rkcs", str(_KEYS)),
)
TEN: Final = 10
_FAN: Final = ("-e", "bench-fan", "-t", "fanout", "-u", ",".join(f"fan-{number}" for number in range(TEN)), *QUORUM)


LOADS = (
    Load("in-flight 1000", 1000),
    Load("in-flight 1000 ack 100", 1000, ack_interval=100),
    Load("in-flight 200", 200),
    Load("in-flight 20", 20),
    Load("in-flight 1", 1),
    # What the consumer leaves behind could take minutes to drain: it goes with the queue.
    Load("prefetch 1", 1000, prefetch=1, drain="0s"),
    Load("prefetch 10", 1000, prefetch=10, drain="0s"),
    Load("prefetch 100", 1000, prefetch=100, drain="0s"),
    Load("classic in-flight 1000", 1000, queue=_DURABLE),
    Load("lazy in-flight 1000", 1000, queue=_LAZY),
    # Automatic acknowledgement. The publisher's window is wide, and still bounds the backlog of a slower consumer.
    Load("classic transient", 10_000, prefetch=0, drain="30s", queue=_TRANSIENT),
    # All three nodes have the queue, and a message is confirmed when all have it.
    Load("mirrored in-flight 1000", 1000, queue=_MIRRORED, copies={"ha-mode": "all"}),
    Load("keyed in-flight 1000", 1000, queue=_KEYED, in_rabbitmq=False),
    Load("fan-out to 10 queues", 200, queue=_FAN, consumers=TEN, drain="60s"),
)


def measure(context: Context, names: list[str]) -> None:
    """All rounds of the loads of these names; the brokers alternate, so that a drifting machine favours neither."""
    with context.brokers() as brokers:
        for _ in range(context.lengths.rounds):
            for load in (load for load in LOADS if load.name in names):
                for broker in brokers:
                    if load.in_rabbitmq or broker.cluster is not None:
                        context.note(load.name, broker.name, one(context, broker, load))


def one(context: Context, broker: Broker, load: Load) -> dict[str, float]:
    """One load on one broker once."""
    if load.copies is not None and broker.set_policy is not None:
        broker.set_policy(f"^{load.queue[1]}$", load.copies)
    entries, octets = _entries(broker), broker.written_octets()
    arguments = [*load.options(), "-z", context.lengths.seconds, "--drain", load.drain]
    found = run(broker, arguments, context.directory, load.queue)
    published, delivered = found.ledger["confirmed"], found.ledger["delivered"]
    figures = {
        "delivered_per_s": found.step["delivered_per_s"],
        "published_per_s": found.step["published_per_s"],
        "broker_us": found.cpu_s / published * 1e6,
        "load_us": found.step["worker_cpu_us_per_message"],
        "confirm_p50_ms": found.latency_ms("confirm", "p50"),
        "e2e_p50_ms": found.latency_ms("e2e", "p50"),
        "e2e_p99_ms": found.latency_ms("e2e", "p99"),
        "disk_octets": (broker.written_octets() - octets) / published,
    }
    if broker.cluster is not None and load.queue == QUORUM:
        figures["messages_per_entry"] = delivered / max(_entries(broker) - entries, 1)
    return figures


def _entries(broker: Broker) -> float:
    """Log entries written so far by the node that wrote most: one per batch."""
    return max((counters["wal_entries"] for counters in broker.counters()), default=0.0)
