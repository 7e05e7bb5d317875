"""Objectives: one grammar, and verdicts that cannot be had by measuring nothing."""

from __future__ import annotations

from typing import Any

import pytest

from perftest.metrics.names import METRICS
from perftest.spec.expected.slo import any_of, highest_held, judge, parse_objective
from perftest.spec.units import UnitError


def row(**changes: Any) -> dict[str, Any]:
    """A step of a result."""
    latency = {"count": 10, "p50_ns": 900, "p99_ns": 2_000_000, "max_ns": 1_999_000, "mean_ns": 1000.0}
    plain = {
        "label": "",
        "published": 100,
        "delivered": 90,
        "published_per_s": 1000.0,
        "delivered_per_s": 900.0,
        "confirmed_per_s": 0.0,
        "nacked": 2,
        "broker_cpu_us_per_message": 40.0,
        "recovery_ns": 1_500_000_000,
        "gap_ns": None,
        "latency": {"e2e": latency, "e2e_sched": {**latency, "p99_ns": 5_000_000, "max_ns": 9_000_000}},
    }
    return {**plain, **changes}


LEDGER = {"lost": 0, "duplicated": 3}


@pytest.mark.parametrize(
    ("text", "value", "met"),
    [
        ("e2e.p99<6ms", 5_000_000, True),  # from the intended time: there was a schedule
        ("e2e_service.p99<=2ms", 1_999_000, True),  # a percentile is no larger than the exact maximum
        ("e2e.max < 9ms", 9_000_000, False),
        ("e2e.max<=9ms", 9_000_000, True),
        ("confirm.p99<1s", None, False),  # nothing was measured: missed
        ("rate>=900", 900, True),
        ("rate > 0.9k/s", 900, False),
        ("published>=1k", 1000, True),
        ("confirmed==0", 0, True),
        ("nacked==0", 2, False),
        ("loss==0", 0, True),
        ("duplicates!=3", 3, False),
        ("damaged==0", None, False),
        ("link_bodies<2.2", None, False),  # a broker that does not tell it
        ("broker_cpu<=40us", 40_000, True),
        ("recovery<2s", 1_500_000_000, True),
        ("gap<1s", None, False),  # it is not known after any action
    ],
)
def test_a_verdict_is_of_what_was_measured(text: str, value: float | None, met: bool) -> None:
    """Each comparison at and beside its limit."""
    (verdict,) = judge([parse_objective(text)], [row()], LEDGER)
    assert (verdict.value, verdict.met) == (value, met)
    assert ("missed" in verdict.sentence()) is not met


def test_the_answer_of_a_ladder_is_its_highest_rate_that_met_everything() -> None:
    """Whichever step that is, and whatever the order."""
    rows = [row(label=f"rate={n}", delivered_per_s=float(n), nacked=n // 300) for n in (200, 100, 400)]
    objectives = [parse_objective(text) for text in ("nacked==0", "loss==0")]
    assert highest_held(judge(objectives, rows, LEDGER), rows) == (
        "the highest rate that met all objectives: 200 msg/s at rate=200 (2 of 3 steps met them)"
    )
    assert highest_held(judge(objectives, rows[2:], LEDGER), rows[2:]) == ""
    never = judge([parse_objective("nacked>9")], rows, LEDGER)
    assert highest_held(never, rows) == "no step met all objectives"
    assert highest_held(judge(objectives[1:], rows, LEDGER), rows) == ""


def test_without_consumers_the_rate_is_that_of_publishing() -> None:
    """Filling a queue has a rate, too."""
    (verdict,) = judge([parse_objective("rate>=1k")], [row(delivered=0, delivered_per_s=0.0)], None)
    assert verdict.met


def test_every_step_is_judged_and_the_ledger_once() -> None:
    """A sweep meets an objective step by step; messages are lost by a run."""
    steps = [row(label="a"), row(label="b", delivered_per_s=1.0)]
    verdicts = judge([parse_objective("rate>=900"), parse_objective("loss==0")], steps, LEDGER)
    assert [(verdict.label, verdict.met) for verdict in verdicts] == [("a", True), ("b", False), ("", True)]


def test_a_run_without_steps_has_missed_all() -> None:
    """A gate that passes because nothing ran is worse than none."""
    assert [verdict.met for verdict in judge([parse_objective("rate>=0")], [], None)] == [False]


@pytest.mark.parametrize(
    ("text", "rule", "fix"),
    [
        ("e2e.p99", "not an objective", "e2e.p99<20ms"),
        ("p99<20ms", "no metric 'p99'", "e2e.p99"),
        ("e2e<20ms", "'e2e' needs a statistic", "e2e.p99"),
        ("e2e.p98<20ms", "no metric 'e2e.p98'", "did you mean e2e.p9"),
        ("confrim.p99<20ms", "no metric 'confrim.p99'", "did you mean confirm.p99?"),
        ("e2e.p99<20", "not a latency with its unit", "20ms"),
        ("rate>=fast", "'fast' is not a rate", "40k/s"),
        ("broker_cpu<20", "not a latency with its unit", "20ms"),
        ("rate>=unlimited", "no rate to compare with", "10k"),
        ("loss=0", "not an objective", "comparison"),
        ("link_bodies<2ms", "'2ms' is no number of bodies", "2.2"),
        ("loss==none", "'none' is not a count", "1000"),
    ],
)
def test_what_cannot_be_read_has_a_fix(text: str, rule: str, fix: str) -> None:
    """A misspelt objective must not pass as met."""
    with pytest.raises(UnitError) as caught:
        parse_objective(text)
    assert rule in caught.value.rule and fix in caught.value.fix


def test_every_metric_can_be_written() -> None:
    """The list that the suggestions come from is that of the parser."""
    for metric in METRICS:
        assert any_of(metric).metric == metric


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("e2e p99 < 20 ms", "e2e.p99<20ms"),
        ("confirm.p999<=1s", "confirm.p99.9<=1s"),
        ("delivered/s>=10k", "delivered>=10k"),
        ("broker CPU<40us", "broker_cpu<40us"),
        ("e2e.max<1m30s", "e2e.max<1m30s"),
    ],
)
def test_an_objective_is_printed_in_the_one_spelling(text: str, written: str) -> None:
    assert parse_objective(text).text == written
