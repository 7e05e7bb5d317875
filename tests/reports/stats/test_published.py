"""Published findings over several brokers: the score, and why findings do not hold."""

from __future__ import annotations

import pytest

from reports.stats.published import PublishedWorkload, Tried, counted, reasons, sources_of
from reports.stats.reproduction import judge
from tests.reports.published_workloads import PLAN, RISES, STEPS, row, tried, workload


@pytest.mark.parametrize(
    ("brokers", "said"),
    [
        ({"ours": tried((1, 4))}, ["Not tried: 1 because s=1 needs backlog>1000, and has 0."]),
        (
            {"ours": tried((4, 1)), "theirs": tried((1, 4))},
            ["Does not hold: 1 and holds on another broker with the same drives and host: the broker makes the "
             "difference.", "Not tried: 1 because s=1 needs backlog>1000, and has 0."],
        ),
        (
            {"ours": tried((4, 1)), "theirs": tried((4, 1))},
            ["Does not hold: 1 on any broker here that decided it: drives or host differ from the source's.",
             "Not tried: 1 because s=1 needs backlog>1000, and has 0."],
        ),
        (
            {"ours": tried((4, 1)), "theirs": tried((1, 4), valid=False)},
            ["Does not hold: 1 and no other broker here has decided it: broker, drives or host may be why.",
             "Not tried: 1 because s=1 needs backlog>1000, and has 0."],
        ),
        (
            {"ours": tried((1, 4), valid=False)},
            ["Undecided: 1 for a step that is INVALID: the host was the limit, not the broker.",
             "Not tried: 1 because s=1 needs backlog>1000, and has 0."],
        ),
        ({"ours": Tried(why_not="it has no mirrored queues")}, ["one/rates did not run: it has no mirrored queues."]),
    ],
)  # fmt: skip
def test_reasons_follow_from_the_verdicts(brokers: dict[str, Tried], said: list[str]) -> None:
    (source,) = sources_of([workload(**brokers)])
    assert reasons(source, "ours") == said


def test_a_figure_that_a_broker_does_not_tell_is_named() -> None:
    plan = {**PLAN, "findings": [{**RISES, "metric": "link_bodies"}]}
    row_of = [[{**row(step, 1.0), "link_bodies": None} for step in STEPS] for _ in range(3)]
    (source,) = sources_of(
        [PublishedWorkload(name="n", plan=plan, brokers={"ours": Tried(reproduction=judge(plan, row_of))})]
    )
    assert "s=1 has no link_bodies" in str(source.findings[0].brokers["ours"])
    assert reasons(source, "ours") == ["Undecided: 1 for a figure that the run does not have."]


def test_every_finding_is_counted_once_on_each_broker() -> None:
    (source,) = sources_of([workload(ours=tried((1, 4)), theirs=Tried())])
    assert (source.title, source.address) == ("Rates", "https://example.org/rates")
    for broker, expected in (("ours", {"reproduced": 1, "not tried": 1}), ("theirs", {"not run": 2})):
        found = counted(source.findings, broker)
        assert {verdict: count for verdict, count in found.items() if count} == expected
        assert sum(found.values()) == len(PLAN["findings"])
