"""How fast the load generator itself can be on this machine.

It is run as it always is, against a broker that is near, and asked what a message cost it. A core's worth of that is
the most that one worker can do, whatever the broker: above it a result is the generator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from perftest.doctor.check import Check
from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.metrics.interval import Interval, Phase
from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step

QUEUE: Final = "perftest-doctor"
LOADS: Final = {"in bulk": Settings(in_flight=1000, prefetch=1000), "one by one": Settings(in_flight=1, prefetch=10)}
WARMUP_S: Final = 0.5


class _Cost:
    """A sink that keeps messages and CPU time of the steady phases."""

    def __init__(self) -> None:
        self.messages = 0
        self.cpu_ns = 0

    def interval(self, record: Interval) -> None:
        """Count."""
        if record.phase is Phase.STEADY:
            self.messages += record.delivered
            self.cpu_ns += record.worker_cpu_ns

    def event(self, record: dict[str, object]) -> None:
        """Nothing to learn from it."""

    def ledger(self, record: dict[str, object]) -> None:
        """Nothing to learn from it."""


def ceilings(uri: str, seconds: float, queue_type: QueueType) -> list[Check]:
    """One check a load, each run for ``seconds`` against the broker at ``uri``."""
    return [_ceiling(name, settings, uri, seconds, queue_type) for name, settings in LOADS.items()]


def _ceiling(name: str, settings: Settings, uri: str, seconds: float, queue_type: QueueType) -> Check:
    cost = _Cost()
    step = Step(number=1, label="", settings=settings, duration_s=seconds + WARMUP_S, warmup_s=WARMUP_S)
    plan = Plan.of(
        name="doctor",
        title="doctor",
        uris=(uri,),
        queues=(QueueSpec(name=QUEUE, type=queue_type),),
        steps=(step,),
        isolation=Isolation.LIVE,
        workers=1,
    )
    outcome: RunOutcome = asyncio.run(execute(plan, cost, StopRequest()))
    return finding(name, outcome, cost.messages, cost.cpu_ns)


def finding(name: str, outcome: RunOutcome, messages: int, cpu_ns: int) -> Check:
    """What the cost of a message says."""
    check = f"generator, {name}"
    if outcome.error is not None or not messages:
        why = outcome.error.what if outcome.error is not None else "no message was delivered"
        return Check(name=check, status="fail", text=f"the load generator could not be run: {why}")
    us = cpu_ns / 1000 / messages
    figures: Mapping[str, Any] = {"us_per_message": round(us, 3), "per_s_and_core": round(1e6 / us)}
    text = f"a message costs it {us:.2f} µs: at most {1e6 / us:,.0f} messages a second and core"
    return Check(name=check, status="pass", text=text, figures=dict(figures))
