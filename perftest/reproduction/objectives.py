"""The objectives of a workload as findings, by what each run recorded of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perftest.results.claims import Claim, Finding, Trend
from perftest.spec.expected.slo import parse_objective, shown
from reports.stats.published import OBJECTIVE
from reports.stats.reproduction import JudgedClaim, JudgedFinding, ReproductionOutcome


def judged_objectives(texts: Sequence[str], results: Sequence[Mapping[str, Any]]) -> tuple[JudgedFinding, ...]:
    """The objectives of a workload as findings, by what each run recorded (``result.json``): an objective holds if
    every valid run met it in every step. An INVALID run says nothing."""
    return tuple(_objective(text, [result for result in results if result.get("valid")]) for text in texts)


def _objective(text: str, results: Sequence[Mapping[str, Any]]) -> JudgedFinding:
    objective = parse_objective(text)
    found = [each for result in results for each in result.get("objectives") or () if each["slo"] == objective.text]
    missed = [each for each in found if not each["met"]]
    worst = (missed or found or [{}])[0].get("value")
    outcome = (
        ReproductionOutcome.NOT_ENOUGH_DATA if not found
        else ReproductionOutcome.NOT_REPRODUCED if missed else ReproductionOutcome.REPRODUCED
    )  # fmt: skip
    words = f"met in {len(found) - len(missed)} of {len(found)} steps" if found else "no valid run judged it"
    claim = Claim(text=f"{words}: {shown(objective, worst)}" if found else words, doubt="" if found else "INVALID")
    finding = Finding(trend=Trend.LEVEL, metric=objective.metric, says=f"{OBJECTIVE}{objective.text}")
    return JudgedFinding(finding=finding, claims=(JudgedClaim(claim=claim, outcome=outcome),), outcome=outcome)
