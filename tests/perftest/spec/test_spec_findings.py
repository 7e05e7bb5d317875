"""Findings of a workload file: what is refused, and what arrives in the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import workloads
from perftest.spec import SpecError, plan_for
from perftest.spec.codec import plan_digest, plan_from_json, plan_to_json
from perftest.spec.condense import workload_of
from perftest.spec.expected.findings import broken_finding
from perftest.spec.expected.trends import Finding, Trend

LABELS = ("in_flight=1", "in_flight=10", "in_flight=100")
RISES = Finding(trend=Trend.RISES, metric="rate", says="It rises.", steps=LABELS)
RATIO = Finding(trend=Trend.RATIO, metric="e2e.p99", says="Half.", steps=LABELS[:2], at_most=0.5)
GAIN = Finding(trend=Trend.BIGGEST_GAIN, metric="rate", says="There.", steps=LABELS[1:])
LAYOUTS = replace(RATIO, steps=LABELS, layouts=("one_hdd", "three_hdd"), at_least=1.2, at_most=None)

LEVEL = Finding(trend=Trend.LEVEL, metric="link_bodies", says="Twice.", steps=LABELS[:1], at_least=1.9, at_most=2.3)

CASES: list[tuple[Finding, list[tuple[str, str]]]] = [
    (RISES, []),
    (RATIO, []),
    (GAIN, []),
    (replace(RISES, metric="p99"), [("metric", "there is no metric")]),
    (replace(RISES, metric="loss"), [("metric", "is a count")]),
    (replace(RISES, says=" "), [("says", "needs a sentence")]),
    (replace(RISES, steps=LABELS[:1]), [("steps", "takes 2 or more steps")]),
    (replace(RISES, steps=(*LABELS[:2], LABELS[0])), [("steps", "named twice")]),
    (replace(RISES, steps=(*LABELS[:2], "in_flight=7")), [("steps.2", "no step in_flight=7")]),
    (replace(RISES, factor=1.0), [("factor", "above 1")]),
    (replace(RISES, tolerance=1.0), [("tolerance", "from 0 to below 1")]),
    (replace(RISES, at_most=2.0), [("at_most", "means nothing for rises")]),
    (replace(RATIO, at_most=None), [("trend", "needs a bound")]),
    (replace(RATIO, at_least=0.6), [("at_least", "above at_most")]),
    (replace(RATIO, at_most=-0.1), [("at_least", "not negative")]),
    (replace(RATIO, tolerance=0.1), [("tolerance", "means nothing for ratio")]),
    (replace(RATIO, steps=LABELS), [("steps", "takes 2 steps, this has 3")]),
    (replace(GAIN, steps=(LABELS[0], LABELS[2])), [("steps", "between neighbours")]),
    (replace(RISES, trend=Trend.KNEE, steps=LABELS[1:2]), []),
    (replace(RISES, trend=Trend.KNEE, steps=LABELS[:1]), [("steps", "a knee lies after a step")]),
    (replace(RISES, trend=Trend.KNEE, steps=(LABELS[1], LABELS[0])), [("steps", "a knee lies after a step")]),
    (replace(RISES, trend=Trend.BEST, steps=LABELS[:2]), []),
    (replace(RISES, trend=Trend.BEST, steps=LABELS), [("steps", "no other step")]),
    (LEVEL, []),
    (replace(LEVEL, at_least=None), []),
    (replace(LEVEL, at_least=None, at_most=None), [("trend", "a level needs a bound")]),
    (replace(LEVEL, at_least=3.0), [("at_least", "above at_most")]),
    (replace(LEVEL, metric="rate"), [("trend", "depends on the hardware")]),
    (replace(LEVEL, factor=2.0), [("factor", "means nothing for level")]),
    (replace(RATIO, metric="link_bodies"), []),
    (LAYOUTS, []),
    (replace(LAYOUTS, trend=Trend.BEST, layouts=("one_hdd",), at_least=None), []),
    (replace(LAYOUTS, steps=LABELS[:1]), []),
    (replace(LAYOUTS, layouts=(), workloads=("a/quorum", "a/mirrored")), []),
    (replace(LAYOUTS, layouts=(), workloads=("a/quorum",)), [("workloads", "takes 2 workloads, this has 1")]),
    (replace(LAYOUTS, workloads=("a/quorum", "a/mirrored")), [("workloads", "layouts or workloads, not both")]),
    (replace(RISES, needs=("backlog>1000", "drive_busy>0.5")), []),
    (replace(RISES, needs=("backlog",)), [("needs.0", "is not an objective")]),
    (replace(RISES, needs=("segments>0",)), [("needs.0", "there is no metric 'segments'")]),
    (replace(RISES, needs=("drive_busy>50%",)), [("needs.0", "is no part of the time")]),
    (replace(RISES, needs=("loss==0",)), [("needs.0", "counts over the whole run")]),
    (replace(LAYOUTS, layouts=("one_hdd",)), [("layouts", "takes 2 layouts, this has 1")]),
    (replace(LAYOUTS, layouts=("one_hdd", "one_hdd")), [("layouts", "a layout is named twice")]),
    (replace(LAYOUTS, layouts=("one_hdd", " ")), [("layouts.1", "needs a name")]),
    (replace(LAYOUTS, at_least=None), [("trend", "needs a bound")]),
    (replace(LAYOUTS, trend=Trend.KNEE, at_least=None), [("trend", "layouts have no order")]),
    (replace(LAYOUTS, trend=Trend.BIGGEST_GAIN, at_least=None), [("trend", "layouts have no order")]),
    (replace(LAYOUTS, steps=("in_flight=7",)), [("steps.0", "no step in_flight=7")]),
    (replace(LAYOUTS, steps=(LABELS[0], LABELS[0])), [("steps", "a step is named twice")]),
]


@pytest.mark.parametrize(("finding", "told"), CASES)
def test_every_broken_rule_is_told_at_its_key(finding: Finding, told: list[tuple[str, str]]) -> None:
    found = [(".".join(map(str, place)), rule) for place, rule, _, _ in broken_finding(finding, LABELS)]
    assert len(found) == len(told), found
    for (place, rule), (expected, words) in zip(found, told, strict=True):
        assert place == expected and words in rule


def test_a_gain_needs_another_gain_to_compare_with() -> None:
    rules = [rule for _, rule, _, _ in broken_finding(replace(GAIN, steps=LABELS[:2]), LABELS[:2])]
    assert rules == ["the sweep has no other gain to compare with"]


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a workload that sweeps the message size, with these findings."""

    def written(*findings: dict[str, Any], **changes: Any) -> Path:
        content = {
            "schema": 1,
            "name": "sizes",
            "title": "Sizes",
            "queues": [{"name": "q"}],
            "sweep": {"setting": "size", "values": ["1kB", "10kB", "100kB"]},
            "findings": list(findings),
            "step": {"duration": "4s"},
            **changes,
        }
        path = tmp_path / "sizes.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return written


FALLS = {"trend": "falls", "metric": "rate", "says": "Large messages are slow."}


def test_steps_become_labels(write: Any) -> None:
    """A value may be written as in the sweep, as a number, or as the label of the step; nothing stands for all."""
    plan = plan_for(write(FALLS, {**FALLS, "steps": ["1kB", 10000, "size=100000"]}), ())
    assert [finding.steps for finding in plan.findings] == [("size=1000", "size=10000", "size=100000")] * 2


def test_all_problems_come_at_once_with_their_places(write: Any) -> None:
    bad = {**FALLS, "metric": "speed", "steps": ["1kB", "2kB"]}
    with pytest.raises(SpecError) as caught:
        plan_for(write(FALLS, bad, {**FALLS, "at_least": 1}), ())
    assert [problem.path for problem in caught.value.problems] == [
        "findings[1].metric",
        "findings[1].steps[1]",
        "findings[2].at_least",
    ]
    assert all(problem.line for problem in caught.value.problems)


def test_findings_without_a_sweep_are_refused(write: Any) -> None:
    with pytest.raises(SpecError, match="takes 2 or more steps"):
        plan_for(write(FALLS, sweep=None), ())


def test_a_changed_sweep_need_not_have_the_steps(write: Any) -> None:
    """The verdict says that the step was not measured."""
    plan = plan_for(write({**FALLS, "steps": ["1kB", "100kB"]}), (), ["sweep.values=[1kB, 2kB]"])
    assert plan.findings[0].steps == ("size=1000", "size=100000")


def test_findings_survive_a_manifest_and_a_file(write: Any, tmp_path: Path) -> None:
    plan = plan_for(write({**FALLS, "factor": 2, "tolerance": 0.2, "place": "figure 3"}), ())
    assert plan_from_json(plan_to_json(plan)) == plan
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(workload_of(plan), sort_keys=False))
    assert plan_for(again, ()) == plan


COMPARED = {"trend": "ratio", "metric": "rate", "says": "Three are faster.", "layouts": ["a", "b"], "at_least": 1.2}


def test_a_finding_over_layouts_needs_no_sweep(write: Any) -> None:
    """Without a sweep it is about the only step, with one about all steps, or about those that are named."""
    assert plan_for(write(COMPARED, sweep=None), ()).findings[0].steps == ("",)
    assert plan_for(write(COMPARED), ()).findings[0].steps == ("size=1000", "size=10000", "size=100000")
    (found,) = plan_for(write({**COMPARED, "steps": ["10kB"]}), ()).findings
    assert (found.steps, found.layouts, found.compared) == (("size=10000",), ("a", "b"), ("a", "b"))


@pytest.mark.parametrize("changes", [{}, {"sweep": None}])
def test_findings_over_layouts_survive_a_manifest_and_a_file(write: Any, tmp_path: Path, changes: Any) -> None:
    plan = plan_for(write(COMPARED, **changes), ())
    assert plan_from_json(plan_to_json(plan)) == plan
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(workload_of(plan), sort_keys=False))
    assert plan_for(again, ()) == plan


def test_findings_are_no_part_of_the_experiment(write: Any) -> None:
    """Runs with and without findings can be compared."""
    assert plan_digest(plan_for(write(FALLS), ())) == plan_digest(plan_for(write(), ()))


def test_a_level_needs_no_sweep(write: Any) -> None:
    said = {"trend": "level", "metric": "link_bodies", "says": "Twice.", "at_most": 2.3}
    assert plan_for(write(said, sweep=None), ()).findings[0].steps == ("",)
    assert plan_for(write(said), ()).findings[0].steps == ("size=1000", "size=10000", "size=100000")


@pytest.mark.parametrize("name", ["classic_proxied", "quorum_leader", "quorum_local", "quorum_proxied"])
def test_workloads_about_links_state_how_often_a_message_is_carried(name: str) -> None:
    (found,) = plan_for(workloads.path_of(f"locality/{name}"), ()).findings
    assert found.metric == "link_bodies" and found.at_least and found.at_most


@pytest.mark.parametrize("kind", ["", "_mirrored"])
@pytest.mark.parametrize("name", ["in_flight", "prefetch", "ack_interval"])
def test_published_sweeps_state_what_their_source_found(name: str, kind: str) -> None:
    plan = plan_for(workloads.path_of(f"flow_control/{name}{kind}"), ())
    assert len(plan.findings) >= 3
    assert all(finding.place for finding in plan.findings)


def test_a_finding_about_all_steps_says_nothing_of_a_changed_sweep_with_one() -> None:
    """A search, or --vary, may leave a single step."""
    flat = Finding(trend=Trend.FLAT, metric="rate", says="It stays.", steps=LABELS[:1])
    assert [*broken_finding(flat, LABELS[:1], known=False)] == []
    assert [rule for _, rule, _, _ in broken_finding(flat, LABELS[:1])] == ["flat takes 2 or more steps, this has 1"]
