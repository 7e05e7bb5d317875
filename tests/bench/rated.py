"""Loads that come at a rate of their own, not as fast as the broker goes: one queue, and forty slow queues, each with
its publisher and its consumer. What a message costs when hardly any come together."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.context import Broker, Context
from tests.bench.generator import run

_WARMUP_S = 3.0


@dataclass(frozen=True, slots=True)
class Rated:
    """Queues, and the messages per second of each."""

    name: str
    queues: int
    rate: int


LOADS = (
    *(Rated(f"rate {rate}", 1, rate) for rate in (200, 500, 1000, 2000, 4000)),
    *(Rated(f"40 queues x {rate}", 40, rate) for rate in (10, 50)),
)


def measure(context: Context, names: list[str]) -> None:
    """All rounds of the loads of these names, the brokers in alternation."""
    with context.brokers() as brokers:
        for _ in range(context.lengths.rounds):
            for load in (load for load in LOADS if load.name in names):
                for broker in brokers:
                    context.note(load.name, broker.name, one(context, broker, load))


def one(context: Context, broker: Broker, load: Rated) -> dict[str, float]:
    """One load on one broker once. Cores and latencies are of the steady part: declaring is not in them."""
    seconds = context.lengths.seconds
    queues = ",".join(f"bench-{number}" for number in range(1, load.queues + 1))
    arguments = ["-u", queues, "-x", load.queues, "-y", load.queues, "-r", load.rate]
    warmup = min(_WARMUP_S, seconds / 4)
    found = run(broker, [*arguments, "-z", seconds + warmup, "--warmup", warmup], context.directory)
    delivered = found.step["delivered_per_s"]
    return {
        "delivered_per_s": delivered,
        "cores": found.steady_cores,
        "broker_us": found.steady_cores / delivered * 1e6,
        "confirm_p50_ms": found.latency_ms("confirm", "p50"),
        "e2e_p50_ms": found.latency_ms("e2e", "p50"),
        "e2e_p99_ms": found.latency_ms("e2e", "p99"),
        "e2e_from_schedule_p99_ms": found.latency_ms("e2e_sched", "p99"),
        "load_us": found.step["worker_cpu_us_per_message"],
    }
