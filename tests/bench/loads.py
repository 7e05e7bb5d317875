"""One publisher, one consumer, one queue: the published single-queue benchmarks on a quorum queue, and loads on classic
queues, side by side."""

from __future__ import annotations

from dataclasses import dataclass

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

    def options(self) -> list[object]:
        """The options of the generator, but for those of the queue."""
        acknowledging = ["-a"] if not self.prefetch else ["-q", self.prefetch, "-A", self.ack_interval]
        return ["-x", 1, "-y", 1, "-c", self.in_flight, *acknowledging]


_DURABLE = ("-u", "classic", "-f", "persistent", "-ad", "false")
_LAZY = ("-u", "lazy", *_DURABLE[2:], "-qa", "x-queue-mode=lazy")
_TRANSIENT = ("-u", "transient", "-ad", "false")


LOADS = (
    Load("in-flight 1000", 1000),
    Load("in-flight 1000 ack 100", 1000, ack_interval=100),
    Load("in-flight 200", 200),
    Load("in-flight 20", 20),
    Load("in-flight 1", 1),
    # What the consumer leaves behind could take minutes to drain: it goes with the queue.
    Load("prefetch 1", 1000, prefetch=1, drain="0s"),
    Load("classic in-flight 1000", 1000, queue=_DURABLE),
    Load("lazy in-flight 1000", 1000, queue=_LAZY),
    # Automatic acknowledgement. The publisher's window is wide, and still bounds the backlog of a slower consumer.
    Load("classic transient", 10_000, prefetch=0, drain="30s", queue=_TRANSIENT),
)


def measure(context: Context, names: list[str]) -> None:
    """All rounds of the loads of these names; the brokers alternate, so that a drifting machine favours neither."""
    with context.brokers() as brokers:
        for _ in range(context.lengths.rounds):
            for load in (load for load in LOADS if load.name in names):
                for broker in brokers:
                    context.note(load.name, broker.name, one(context, broker, load))


def one(context: Context, broker: Broker, load: Load) -> dict[str, float]:
    """One load on one broker once."""
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
