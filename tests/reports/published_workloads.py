"""Workloads with findings that made-up brokers tried, for tests of their verdicts and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perftest.results.trust import Check, Status
from reports.stats.published import PublishedWorkload, Tried, judged_objectives
from reports.stats.reproduction import Reproduction, judge

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


def asserted(*met: bool, valid: bool = True) -> PublishedWorkload:
    """A workload with one objective and no finding, met or missed in each of several runs."""
    verdicts = [{"slo": "recovery<15s", "value": 4e9 if each else 20e9, "met": each} for each in met]
    results = [{"valid": valid, "objectives": [each]} for each in verdicts]
    plan = {**PLAN, "name": "one/lost", "findings": []}
    found = judged_objectives(["recovery<15s"], results)
    tried_here = Tried(reproduction=Reproduction(findings=found, rounds=len(met), outcome=found[0].outcome))
    return PublishedWorkload(name="one/lost", plan=plan, brokers={"ours": tried_here}, objectives=("recovery<15s",))
