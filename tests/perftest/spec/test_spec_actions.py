"""What is wrong with a timeline is told before the run, not when a node is already dead."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from perftest.spec.actions import Do, Places, TimedAction, faults, parse_action, run_time_s
from perftest.spec.check import check
from perftest.spec.codec import plan_from_json, plan_to_json
from perftest.spec.condense import workload_of
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.units import UnitError

PLACES = Places(("node1", "node2", "node3"), ("d1", "d2"), ("hdd7200", "nvme"))
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
- {at: 1s, do: slow, drive: d1, factor: 4}
- {at: 2s, do: profile, drive: d1, profile: hdd7200}
"""


def timed(at_s: float, do: str, node: str = "leader", step: int = 0, **details: Any) -> TimedAction:
    return TimedAction(at_s=at_s, do=Do(do), node=node, step=step, **details)


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
        ([timed(1, "slow", "node1", drive="d1", factor=4.0), timed(9, "slow", drive="d1")], []),
        ([timed(1, "profile", drive="d2", profile="hdd7200"), timed(2, "fill", drive="d1")], []),
        ([timed(1, "fail", drive="d1"), timed(9, "heal", "killed", drive="d1")], []),
        ([timed(1, "fail", "node2", drive="d1"), timed(9, "restart", "node2")], []),
        ([timed(1, "slow", "node1"), timed(70, "kill")], [(0, "drive", "slow needs a drive"), (1, "at", "is over")]),
        ([timed(1, "fill", drive="d3")], [(0, "drive", "there is no modelled drive 'd3'")]),
        ([timed(1, "free", "killed", drive="d1")], [(0, "node", "free is for a node that runs")]),
        ([timed(1, "heal", drive="d1")], [(0, "node", "nothing to heal")]),
        ([timed(1, "slow", drive="d1", factor=0.0)], [(0, "factor", "cannot be 0 times as slow")]),
        ([timed(1, "slow", drive="d1", factor=math.nan)], [(0, "factor", "cannot be nan times as slow")]),
        ([timed(1, "profile", drive="d1")], [(0, "profile", "there is no profile ''")]),
        ([timed(1, "profile", drive="d1", profile="tape")], [(0, "profile", "there is no profile 'tape'")]),
        (
            [timed(1, "kill", drive="d1", factor=2.0, profile="nvme")],
            [(0, "drive", "takes no drive"), (0, "factor", "takes no factor"), (0, "profile", "takes no profile")],
        ),
    ],
)
def test_a_timeline_that_does_not_fit_is_told_whole(
    actions: list[TimedAction], told: list[tuple[int, str, str]]
) -> None:
    found = list(faults(actions, [30.0, 30.0], PLACES))
    assert [(each.place, each.key) for each in found] == [(place, key) for place, key, _ in told]
    for each, (_, _, words) in zip(found, told, strict=True):
        assert words in each.rule and each.fix


def test_a_cluster_without_modelled_drives_has_none_to_act_on() -> None:
    (fault,) = faults([timed(1, "slow", drive="d1", factor=4.0)], [30.0], Places(PLACES.nodes))
    assert fault.key == "do" and "this cluster has none" in fault.rule and "--layout" in fault.fix


def test_a_time_counts_from_the_run_or_from_its_step() -> None:
    durations = [30.0, 40.0]
    assert [run_time_s(timed(5, "kill", step=step), durations) for step in (0, 1, 2)] == [5, 5, 35]


def test_a_timeline_survives_its_file_and_json(tmp_path: Path) -> None:
    workload, document = parse_workload(WORKLOAD, "w.yaml")
    assert check(workload, document) == []
    plan = expand(workload, ("amqp://h",))
    assert plan.timeline == (
        timed(5, "kill"), timed(10, "restart", "killed", step=2), timed(0.25, "transfer-leader", "node2"),
        timed(1, "slow", drive="d1", factor=4.0), timed(2, "profile", drive="d1", profile="hdd7200"),
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
        ("5s slow leader d1 4", TimedAction(at_s=5.0, do=Do.SLOW, drive="d1", factor=4.0)),
        (
            "5s profile node2 d1 nvme step 2",
            TimedAction(at_s=5.0, do=Do.PROFILE, node="node2", drive="d1", profile="nvme", step=2),
        ),
        ("5s fill leader d1", TimedAction(at_s=5.0, do=Do.FILL, drive="d1")),
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
        ("30s fill leader", "is not a time and an action"),
        ("30s slow leader d1", "is not a time and an action"),
        ("30s slow leader d1 much", "'much' is no factor"),
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
