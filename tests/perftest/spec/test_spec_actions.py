"""What is wrong with a timeline is told before the run, not when a node is already dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftest.spec.actions import Do, TimedAction, faults, parse_action, run_time_s
from perftest.spec.check import check
from perftest.spec.codec import plan_from_json, plan_to_json
from perftest.spec.condense import workload_of
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.units import UnitError

NODES = ("node1", "node2", "node3")
WORKLOAD = """\
schema: 1
name: base
title: base
queues: [{name: q}]
sweep: {setting: in_flight, values: [1, 10]}
step: {duration: 30s}
timeline:
- {at: 5s, do: kill, node: leader}
- {at: 10s, step: 2, do: restart, node: killed}
- {at: 250ms, do: transfer-leader, node: node2}
"""


def timed(at_s: float, do: str, node: str = "leader", step: int = 0) -> TimedAction:
    return TimedAction(at_s=at_s, do=Do(do), node=node, step=step)


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        ([timed(5, "kill"), timed(9, "restart", "killed")], []),
        ([timed(9, "restart", "killed", step=2), timed(20, "kill")], []),
        ([timed(5, "kill"), timed(9, "restart", "node2")], []),
        ([timed(5, "pause", "node1"), timed(6, "kill", "node2"), timed(7, "resume", "node1")], []),
        ([timed(5, "kill"), timed(9, "kill"), timed(10, "restart", "killed"), timed(11, "restart", "killed")], []),
        ([timed(60, "kill")], [(0, "at", "the run is over after 60 s")]),
        ([timed(30, "kill", step=2)], [(0, "at", "step 2 is over after 30 s")]),
        ([timed(1, "kill", step=3)], [(0, "step", "there is no step 3")]),
        ([timed(1, "kill", "node4")], [(0, "node", "there is no node 'node4'")]),
        ([timed(1, "restart", "killed")], [(0, "node", "nothing to restart")]),
        ([timed(9, "kill", "node1"), timed(5, "restart", "node1")], [(1, "node", "nothing to restart")]),
        ([timed(1, "kill", "node1"), timed(2, "resume", "node1")], [(1, "node", "nothing to resume")]),
        ([timed(1, "kill", "node1"), timed(2, "kill", "node1")], [(1, "node", "node1 is killed already")]),
        ([timed(1, "pause", "node1"), timed(2, "kill", "node1")], [(1, "node", "node1 is paused already")]),
        ([timed(1, "kill", "killed")], [(0, "node", "kill is for a node that runs")]),
        ([timed(1, "transfer-leader")], [(0, "node", "needs a node that does not lead")]),
        ([timed(1, "slow", "node1"), timed(70, "kill")], [(0, "do", "no drive of this cluster"), (1, "at", "is over")]),
    ],
)
def test_a_timeline_that_does_not_fit_is_told_whole(
    actions: list[TimedAction], told: list[tuple[int, str, str]]
) -> None:
    found = list(faults(actions, [30.0, 30.0], NODES))
    assert [(each.place, each.key) for each in found] == [(place, key) for place, key, _ in told]
    for each, (_, _, words) in zip(found, told, strict=True):
        assert words in each.rule and each.fix


def test_a_time_counts_from_the_run_or_from_its_step() -> None:
    durations = [30.0, 40.0]
    assert [run_time_s(timed(5, "kill", step=step), durations) for step in (0, 1, 2)] == [5, 5, 35]


def test_a_timeline_survives_its_file_and_json(tmp_path: Path) -> None:
    workload, document = parse_workload(WORKLOAD, "w.yaml")
    assert check(workload, document) == []
    plan = expand(workload, ("amqp://h",))
    assert plan.timeline == (
        timed(5, "kill"), timed(10, "restart", "killed", step=2), timed(0.25, "transfer-leader", "node2")
    )  # fmt: skip
    assert plan_from_json(plan_to_json(plan)) == plan
    import yaml

    again, _ = parse_workload(yaml.safe_dump(workload_of(plan)), "w.yaml")
    assert expand(again, plan.uris).timeline == plan.timeline


def test_a_workload_with_a_timeline_that_cannot_be_names_the_line() -> None:
    workload, document = parse_workload(WORKLOAD.replace("at: 5s", "at: 90s"), "w.yaml")
    (problem,) = [each for each in check(workload, document) if each.path.endswith(".at")]
    assert (problem.path, problem.line) == ("timeline[0].at", 8)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("30s kill", TimedAction(at_s=30.0, do=Do.KILL)),
        ("1.5 pause node2", TimedAction(at_s=1.5, do=Do.PAUSE, node="node2")),
        (" 250ms  transfer-leader node3 ", TimedAction(at_s=0.25, do=Do.TRANSFER_LEADER, node="node3")),
        ("5s restart killed step 2", TimedAction(at_s=5.0, do=Do.RESTART, node="killed", step=2)),
        ("5s kill step 2", TimedAction(at_s=5.0, do=Do.KILL, step=2)),
        ("5s kill step", TimedAction(at_s=5.0, do=Do.KILL, node="step")),
    ],
)
def test_an_action_is_typed_as_it_is_said(text: str, action: TimedAction) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "is not a time and an action"),
        ("30s", "is not a time and an action"),
        ("30s kill leader now please", "is not a time and an action"),
        ("30s explode node1", "'explode' is no action"),
        ("soon kill node1", "'soon' is not a duration"),
        ("-1s kill node1", "is not a duration"),
        ("30s kill leader step two", "'two' is not a count"),
        ("30s kill leader step 0", "steps are counted from 1"),
    ],
)
def test_what_cannot_be_typed_is_refused_with_a_fix(text: str, rule: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_action(text)
    assert rule in caught.value.rule and caught.value.fix
