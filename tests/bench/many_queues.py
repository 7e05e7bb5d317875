"""Forty slow queues, each with its publisher and its consumer: what a message costs when hardly any come together."""

from __future__ import annotations

from tests.bench.context import Broker, Context
from tests.bench.generator import run

QUEUES = 40
RATES = {"40 queues x 10": 10, "40 queues x 50": 50}
"""Messages per second of each queue, by bench."""
_WARMUP_S = 3.0


def measure(context: Context, names: list[str]) -> None:
    """All rounds at the rates of these names, the brokers in alternation."""
    with context.brokers() as brokers:
        for _ in range(context.lengths.rounds):
            for name in names:
                for broker in brokers:
                    context.note(name, broker.name, one(context, broker, RATES[name]))


def one(context: Context, broker: Broker, rate: int) -> dict[str, float]:
    """One rate on one broker once. Cores and latencies are of the steady part: declaring is not in them."""
    seconds = context.lengths.seconds
    queues = ",".join(f"bench-{number}" for number in range(1, QUEUES + 1))
    arguments = ["-u", queues, "-x", QUEUES, "-y", QUEUES, "-r", rate]
    warmup = min(_WARMUP_S, seconds / 4)
    found = run(broker, [*arguments, "-z", seconds + warmup, "--warmup", warmup], context.directory)
    return {
        "delivered_per_s": found.step["delivered_per_s"],
        "cores": found.steady_cores,
        "e2e_p50_ms": found.latency_ms("e2e", "p50"),
        "e2e_p99_ms": found.latency_ms("e2e", "p99"),
        "e2e_from_schedule_p99_ms": found.latency_ms("e2e_sched", "p99"),
        "load_us": found.step["worker_cpu_us_per_message"],
    }
