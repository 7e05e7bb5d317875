"""When within the schedule's period, or after what delay, each publisher begins: under control, and on record.

Publishers that all began at once would publish at once for ever, a load that no group of real clients makes. So those
with arrivals at equal distances are spread evenly over one period of their rate, unless each is to begin after a random
time. Poisson arrivals need no spreading: they are independent as they are.
"""

from __future__ import annotations

import random
from typing import Final

from perftest.engine.schedule.pacing import SECOND_NS
from perftest.spec.behaviour import Arrivals, Publishing

TOLD_MAX: Final = 64
"""So many phases are written down one by one; the rule gives the others."""


def delay_ns(publishing: Publishing, *, seed: int, publisher: int) -> int:
    """How much later than the run a publisher begins: a random time, the same for the same seed."""
    if not publishing.start_delay_s:
        return 0
    return round(random.Random(f"{seed} {publisher} delay").uniform(0, publishing.start_delay_s * SECOND_NS))


def phase_ns(publishing: Publishing, *, publisher: int, publishers: int, rate: float | None) -> int:
    """Where in a period the schedule of a publisher begins; ``rate`` is that of each."""
    if not rate or publishing.start_delay_s or publishing.arrivals is Arrivals.POISSON:
        return 0
    return round(SECOND_NS / rate * (publisher % publishers) / publishers)


def record(publishing: Publishing, *, seed: int, publishers: int, rate: float | None) -> dict[str, object] | None:
    """The event that says how publishers are spread, None where there is nothing to spread."""
    numbers = range(min(publishers, TOLD_MAX))
    if publishing.start_delay_s:
        delays = [delay_ns(publishing, seed=seed, publisher=number) for number in numbers]
        text = f"each publisher begins a random time later, at most {publishing.start_delay_s:g} s"
        return {
            "rule": "random",
            "text": text,
            "within_s": publishing.start_delay_s,
            "seed": seed,
            "offsets_ns": delays,
        }
    if rate is None:
        return None
    if publishing.arrivals is Arrivals.POISSON:
        return {"rule": "independent", "text": f"Poisson arrivals of seed {seed}", "seed": seed}
    if not rate:
        return None
    phases = [phase_ns(publishing, publisher=number, publishers=publishers, rate=rate) for number in numbers]
    period_ns = round(SECOND_NS / rate)
    spread = f"{publishers} publishers spread evenly over" if publishers > 1 else "one publisher with"
    text = f"{spread} a period of {period_ns / 1e6:g} ms"
    return {"rule": "even", "text": text, "period_ns": period_ns, "offsets_ns": phases}
