"""What knowing and correcting a host's clock costs: ``python -m tests.bench.host_clock``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from perftest.metrics.host_clock import ClockExchange, HostClock

EXCHANGES = 240
VALUES = 100_000
SECOND_NS = 1_000_000_000


def exchange(number: int, there: int, back: int) -> ClockExchange:
    """Four a second, to a host whose clock is 5 s ahead and gains 100 ppm."""
    sent = 10**18 + number * SECOND_NS // 4
    received = sent + there + (sent + there - 10**18) // 10_000 + 5 * SECOND_NS
    return ClockExchange(sent, received, received + 5000, sent + there + 5000 + back)


def least_us(work: Callable[[], object], rounds: int = 50) -> float:
    """The shortest of some rounds, in microseconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - began)
    return min(times) / 1000


def main() -> None:
    """Print a line for each of the three costs."""
    chance = np.random.default_rng(1)
    delays = (50_000 + chance.exponential(50_000, (EXCHANGES, 2))).astype(int).tolist()
    made = [exchange(number, there, back) for number, (there, back) in enumerate(delays)]
    clock = HostClock()

    def take_all() -> None:
        for each in made:
            clock.add(each)

    began = time.perf_counter_ns()
    take_all()
    sys.stdout.write(f"{(time.perf_counter_ns() - began) / 1000 / EXCHANGES:7.2f} µs to take an exchange\n")
    last_ns = made[-1].host_sent_ns
    model = clock.model(last_ns - SECOND_NS, last_ns)
    cost_us = least_us(lambda: clock.model(last_ns - SECOND_NS, last_ns))
    sys.stdout.write(
        f"{cost_us:7.0f} µs for a model of {len(clock)} exchanges, bound {model.bound_at(last_ns) / 1000:.0f} µs\n"
    )
    times = chance.integers(last_ns - SECOND_NS, last_ns, VALUES)
    sys.stdout.write(f"{least_us(lambda: model.at(times)) * 1000 / VALUES:7.1f} ns to correct a time\n")


if __name__ == "__main__":
    main()
