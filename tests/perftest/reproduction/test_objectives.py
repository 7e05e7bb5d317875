"""The objectives of a workload, as findings."""

from __future__ import annotations

import pytest

from perftest.reproduction.objectives import judged_objectives
from reports.pages.model import PublishedPart
from reports.pages.several.published import published_page
from reports.stats.published import PublishedWorkload, Tried, sources_of
from reports.stats.reproduction import Reproduction
from tests.reports.published_workloads import PLAN


def asserted(*met: bool, valid: bool = True) -> PublishedWorkload:
    """A workload with one objective and no finding, met or missed in each of several runs."""
    verdicts = [{"slo": "recovery<15s", "value": 4e9 if each else 20e9, "met": each} for each in met]
    results = [{"valid": valid, "objectives": [each]} for each in verdicts]
    plan = {**PLAN, "name": "one/lost", "findings": []}
    found = judged_objectives(["recovery<15s"], results)
    tried_here = Tried(reproduction=Reproduction(findings=found, rounds=len(met), outcome=found[0].outcome))
    return PublishedWorkload(name="one/lost", plan=plan, brokers={"ours": tried_here}, objectives=("recovery<15s",))


@pytest.mark.parametrize(
    ("found", "verdict", "figures"),
    [
        (asserted(True, True), "reproduced", "met in 2 of 2 steps: 4 s"),
        (asserted(True, False), "not reproduced", "met in 1 of 2 steps: 20 s"),
        (asserted(True, valid=False), "not enough data", "no valid run judged it: INVALID"),
    ],
)
def test_an_objective_is_a_finding_that_every_valid_run_must_meet(
    found: PublishedWorkload, verdict: str, figures: str
) -> None:
    ((finding,),) = (source.findings for source in sources_of([found]))
    judged = finding.brokers["ours"]
    assert finding.says == "Objective: recovery<15s" and judged is not None
    assert (str(judged.outcome), judged.figures) == (verdict, figures)


def test_a_source_with_objectives_alone_has_no_ratios() -> None:
    (_, _), (_, part) = published_page([asserted(True)], generated="now").parts
    assert isinstance(part, PublishedPart) and not part.ratios
    assert part.table.rows[0][0] == "Objective: recovery<15s"
