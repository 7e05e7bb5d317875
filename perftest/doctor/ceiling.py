"""Measures how fast the load generator itself can be on this machine.

The generator runs as always, against a broker on the same machine, and its CPU time per message is measured. One worker
can handle at most as many messages as fit into the CPU time of one core, whatever the broker. A result near that rate
is a result about the generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from perftest.doctor.check import DoctorCheck
from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.metrics.interval import Interval, Phase
from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step

QUEUE: Final = "perftest-doctor"
LOADS: Final = {"in bulk": Settings(in_flight=1000, prefetch=1000), "one by one": Settings(in_flight=1, prefetch=10)}
WARMUP_S: Final = 0.5


class _Cost:
    """A sink that counts the messages and the CPU time of the steady phases."""

    def __init__(self) -> None:
        self.messages = 0
        self.cpu_ns = 0

    def interval(self, record: Interval) -> None:
        """Count the messages and the CPU time of an interval."""
        if record.phase is Phase.STEADY:
            self.messages += record.delivered
            self.cpu_ns += record.worker_cpu_ns

    def event(self, record: dict[str, object]) -> None:
        """Ignore the record."""

    def ledger(self, record: dict[str, object]) -> None:
        """Ignore the record."""


def ceilings(uri: str, seconds: float, queue_type: QueueType) -> list[DoctorCheck]:
    """A check for each load. Each load runs for ``seconds`` against the broker at ``uri``."""
    return [_ceiling(name, settings, uri, seconds, queue_type) for name, settings in LOADS.items()]


def _ceiling(name: str, settings: Settings, uri: str, seconds: float, queue_type: QueueType) -> DoctorCheck:
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


def finding(name: str, outcome: RunOutcome, messages: int, cpu_ns: int) -> DoctorCheck:
    """The check with the cost of a message, and what follows from that cost."""
    check = f"generator, {name}"
    if outcome.error is not None or not messages:
        why = outcome.error.what if outcome.error is not None else "no message was delivered"
        return DoctorCheck(name=check, status="fail", text=f"the load generator could not be run: {why}")
    us = cpu_ns / 1000 / messages
    figures: Mapping[str, Any] = {"us_per_message": round(us, 3), "per_s_and_core": round(1e6 / us)}
    text = f"a message costs it {us:.2f} µs: at most {1e6 / us:,.0f} messages a second and core"
    return DoctorCheck(name=check, status="pass", text=text, figures=dict(figures))
