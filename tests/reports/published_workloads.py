"""Workloads with findings that made-up brokers tried, for tests of their verdicts and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perftest.results.trust import Check, Status
from reports.stats.published import PublishedWorkload, Tried
from reports.stats.reproduction import judge

STEPS = ("s=1", "s=2")
RISES = {"trend": "rises", "metric": "rate", "says": "It rises.", "steps": STEPS, "factor": 2}
NEEDS = {**RISES, "says": "It rises with a backlog.", "needs": ["backlog>1000"]}
PLAN: dict[str, Any] = {
    "name": "one/rates",
    "source": "https://example.org/rates",
    "source_title": "Rates",
    "steps": [{"number": number, "label": label} for number, label in enumerate(STEPS, 1)],
    "findings": [RISES, NEEDS],
}


def row(label: str, rate: float, *, valid: bool = True) -> dict[str, Any]:
    trust = [{"check": "host_cpu", "status": "pass" if valid else "fail", "text": "the host was busy"}]
    figures = {"delivered": 1, "delivered_per_s": rate, "published_per_s": rate, "backlog": 0, "latency": {}}
    return {"label": label, "length_ns": 10**10, "trust": trust, **figures}


def tried(rates: Sequence[float], *, valid: bool = True) -> Tried:
    rounds = [[row(label, rate * (1 + at / 100), valid=valid) for label, rate in zip(STEPS, rates, strict=True)]
              for at in range(3)]  # fmt: skip
    trust = [Check("host_cpu", Status.PASS if valid else Status.FAIL, "the host was busy")]
    return Tried(reproduction=judge(PLAN, rounds), trust=(trust,) * len(rounds))


def workload(**brokers: Tried) -> PublishedWorkload:
    return PublishedWorkload(name="one/rates", plan=PLAN, brokers=brokers)
