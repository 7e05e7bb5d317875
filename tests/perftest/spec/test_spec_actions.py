"""What is wrong with a timeline is told before the run, not when a node is already dead."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from perftest.spec import link_actions
from perftest.spec.actions import Places, faults, parse_action, run_time_s
from perftest.spec.check import check
from perftest.spec.codec import plan_from_json, plan_to_json
from perftest.spec.condense import workload_of
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.timed_action import Do, TimedAction
from perftest.spec.units import UnitError

PLACES = Places(("node1", "node2", "node3"), ("d1", "d2"), ("hdd7200", "nvme"))
OVER_HOSTS = Places(("node1", "node2"), hosts=("node1", "node2", "load1"))
WITHOUT_NODES = Places((), hosts=("load1", "load2"))
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
- {at: 3s, do: partition, node: node1, peer: node2, one_way: true}
- {at: 4s, do: latency, latency: 5ms}
- {at: 5500ms, do: loss, node: node1, loss: 1%}
- {at: 6s, do: bandwidth, node: node2, bandwidth: 1gbit}
- {at: 7s, do: reconnect}
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


@pytest.mark.parametrize(
    ("actions", "places", "told"),
    [
        ([timed(1, "kill-host", "load1"), timed(2, "pause-host", "node1")], OVER_HOSTS, []),
        ([timed(1, "pause-host", "load1"), timed(2, "resume-host", "paused")], OVER_HOSTS, []),
        ([timed(1, "kill-host"), timed(2, "restart", "killed")], OVER_HOSTS, []),
        ([timed(1, "resume-host", "load1")], OVER_HOSTS, [("node", "nothing to resume")]),
        ([timed(1, "kill-host", "node1")], PLACES, [("do", "all of this run is on one machine")]),
        ([timed(1, "partition"), timed(2, "latency", "load1", latency_s=0.1), timed(3, "reconnect")], OVER_HOSTS, []),
        ([timed(1, "loss", "load1", peer="node2", loss=0.01, one_way=True)], OVER_HOSTS, []),
        ([timed(1, "partition", "node3")], OVER_HOSTS, [("node", "there is no host 'node3'")]),
        ([timed(1, "kill", "load1")], OVER_HOSTS, [("node", "there is no node 'load1'")]),
        ([timed(1, "partition", "node1", peer="node3")], OVER_HOSTS, [("peer", "there is no host 'node3'")]),
        ([timed(1, "partition", "node1", peer="node1")], OVER_HOSTS, [("peer", "no link to itself")]),
        ([timed(1, "partition", "node1")], PLACES, [("do", "all of this run is on one machine")]),
        ([timed(1, "latency", "load1", latency_s=61.0)], OVER_HOSTS, [("latency", "cannot take 61 s")]),
        ([timed(1, "reconnect", "load1", one_way=True)], OVER_HOSTS, [("one_way", "takes no one_way")]),
        ([timed(1, "partition")], WITHOUT_NODES, [("node", "there is no host 'leader'")]),
        ([timed(1, "partition", "load1"), timed(2, "reconnect")], WITHOUT_NODES, []),
        (
            [timed(1, "kill", peer="node2", latency_s=1.0, loss=0.5, bandwidth_mbit=1.0)],
            OVER_HOSTS,
            [(each, f"takes no {each}") for each in ("peer", "latency", "loss", "bandwidth")],
        ),
        ([timed(1, "partition", "node1", loss=0.5)], OVER_HOSTS, [("loss", "takes no loss")]),
    ],
)
def test_actions_on_hosts_and_links_need_hosts(
    actions: list[TimedAction], places: Places, told: list[tuple[str, str]]
) -> None:
    found = list(faults(actions, [30.0], places))
    assert [each.key for each in found] == [key for key, _ in told], found
    for each, (_, words) in zip(found, told, strict=True):
        assert words in each.rule and each.fix


@pytest.mark.parametrize(
    ("action", "links", "change", "words"),
    [
        (timed(1, "partition", "a"), "ab ba ac ca", {"cut": True}, " all"),
        (timed(1, "partition", "a", peer="b"), "ab ba", {"cut": True}, " b"),
        (timed(1, "partition", "a", peer="b", one_way=True), "ab", {"cut": True}, " b one-way"),
        (timed(1, "latency", "c", latency_s=0.005, one_way=True), "ca cb", {"delay_ms": 5.0}, " all 5ms one-way"),
        (timed(1, "loss", "c", peer="a", loss=0.015), "ca ac", {"loss": 0.015}, " a 1.5%"),
        (timed(1, "loss", "c", peer="a", loss=1.0), "ca ac", {"loss": 1.0}, " a 100%"),
        (timed(1, "bandwidth", "c", peer="a", bandwidth_mbit=100.0), "ca ac", {"mbit": 100.0}, " a 100mbit"),
    ],
)
def test_an_action_names_its_links(action: TimedAction, links: str, change: dict[str, object], words: str) -> None:
    found = link_actions.pairs(action, action.node, ("a", "b", "c"))
    assert sorted(found) == sorted((each[0], each[1]) for each in links.split())
    assert link_actions.changes(action) == change
    assert link_actions.in_words(action) == words


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
        timed(3, "partition", "node1", peer="node2", one_way=True), timed(4, "latency", latency_s=0.005),
        timed(5.5, "loss", "node1", loss=0.01), timed(6, "bandwidth", "node2", bandwidth_mbit=1000.0),
        timed(7, "reconnect"),
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
        ("5s pause-host load1", TimedAction(at_s=5.0, do=Do.PAUSE_HOST, node="load1")),
        ("5s partition", TimedAction(at_s=5.0, do=Do.PARTITION)),
        ("5s partition a b step 2", TimedAction(at_s=5.0, do=Do.PARTITION, node="a", peer="b", step=2)),
        ("5s partition a b one-way", TimedAction(at_s=5.0, do=Do.PARTITION, node="a", peer="b", one_way=True)),
        ("5s latency 5ms", TimedAction(at_s=5.0, do=Do.LATENCY, latency_s=0.005)),
        ("5s latency a b 5ms", TimedAction(at_s=5.0, do=Do.LATENCY, node="a", peer="b", latency_s=0.005)),
        ("5s loss a 1% one-way", TimedAction(at_s=5.0, do=Do.LOSS, node="a", loss=0.01, one_way=True)),
        ("5s bandwidth a b 1gbit", TimedAction(at_s=5.0, do=Do.BANDWIDTH, node="a", peer="b", bandwidth_mbit=1e3)),
        ("5s reconnect", TimedAction(at_s=5.0, do=Do.RECONNECT)),
        ("5s reconnect a", TimedAction(at_s=5.0, do=Do.RECONNECT, node="a")),
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
