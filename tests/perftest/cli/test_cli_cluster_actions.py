"""Actions on a cluster in the middle of a run: the right node, one after the other, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.cluster import ClusterError
from infra.layout import PlacedDrive, PlacedLayout
from perftest.actions import action_target
from perftest.actions.action_target import LocalTarget
from perftest.actions.cluster_actions import ClusterActions, refuse_actions
from perftest.engine.coordination.timeline import Moment
from perftest.metrics.interval import Phase
from perftest.spec.plan import Isolation, Plan, QueueSpec, Settings, Step
from perftest.spec.problem import SpecError
from perftest.spec.timed_action import Do, TimedAction


def timed(at_s: float, do: str, node: str = "leader", step: int = 0, **details: Any) -> TimedAction:
    return TimedAction(at_s=at_s, do=Do(do), node=node, step=step, **details)


def plan(*timeline: TimedAction, uris: tuple[str, ...] = ()) -> Plan:
    steps = tuple(
        Step(number=number, label="", settings=Settings(), duration_s=30.0, warmup_s=0.0) for number in (2, 1)
    )
    made = Plan.of(name="p", title="p", uris=uris, isolation=Isolation.LIVE, queues=(QueueSpec(name="q"),), steps=steps)
    return replace(made, timeline=timeline)


@dataclass
class FakeCluster:
    """A cluster whose first running node leads; it takes the calls of :mod:`infra.local_cluster`."""

    directory: str = "somewhere"
    done: list[str] = field(default_factory=list)
    down: list[str] = field(default_factory=list)
    broken: str = ""
    before_start: Callable[[], object] = lambda: None

    def node(self, name: str) -> Any:
        return SimpleNamespace(name=name)

    def act(self, verb: str, name: str) -> None:
        if verb == self.broken:
            raise ClusterError(f"{verb} does not work", self.directory, "")
        self.done.append(f"{verb} {name}")
        self.down = [each for each in self.down if each != name] + ([name] if verb in ("kill", "pause") else [])

    def change(self, request: Any) -> dict[str, Any]:
        if request["op"] != "leader":
            self.act(request["op"], request["node"])
            return {}
        return {"leader": next(name for name in ("node1", "node2", "node3") if name not in self.down)}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()
    for verb in ("kill", "pause", "resume"):
        monkeypatch.setattr(action_target.local_cluster, verb, lambda _, name, verb=verb: fake.act(verb, name))
    monkeypatch.setattr(action_target.local_cluster, "change", lambda _, request: fake.change(request))

    def start_node(same: Any, name: str) -> Any:
        fake.before_start()
        fake.act("start", name)
        return same

    def act_on_drive(_: Any, node: str, drive: str, do: str, **details: Any) -> dict[str, Any]:
        if node in fake.down:
            raise ClusterError(f"{node} is down", fake.directory, "")
        fake.done.append(" ".join([do, node, drive, *(f"{value}" for value in details.values())]))
        return {}

    def await_end(_: Any, name: str) -> None:
        fake.down.append(name)

    monkeypatch.setattr(action_target.local_cluster, "start_node", start_node)
    monkeypatch.setattr(action_target.local_cluster, "await_end", await_end)
    monkeypatch.setattr(action_target.control, "act_on_drive", act_on_drive)
    return fake


@dataclass
class FakeHosts:
    """Two broker hosts and one of load."""

    names: tuple[str, ...] = ("node1", "node2", "load1")
    done: list[str] = field(default_factory=list)
    broken: str = ""

    async def change_links(self, pairs: Any, changes: Any) -> None:
        if "links" in self.broken:
            raise ClusterError("nobody answers", "host node1", "")
        words = " ".join(f"{a}-{b}" for a, b in pairs)
        self.done.append(f"{words} {changes}")

    async def restore_links(self, pairs: Any) -> None:
        self.done.append("restore " + " ".join(f"{a}-{b}" for a, b in pairs))

    async def kill(self, host: str) -> None:
        self.done.append(f"kill {host}")

    async def pause(self, host: str) -> None:
        self.done.append(f"pause {host}")

    async def resume(self, host: str) -> None:
        self.done.append(f"resume {host}")


def played(cluster: FakeCluster, *timeline: TimedAction, hosts: FakeHosts | None = None) -> list[dict[str, object]]:
    """The events of a timeline that is played at once, and undone."""
    events: list[dict[str, object]] = []

    async def scenario() -> None:
        target = LocalTarget(cluster)  # type: ignore[arg-type]
        actions = ClusterActions(plan(*timeline), target, events.append, hosts)
        for moment in actions.moments():
            await actions.handlers[type(moment.action)](moment.action)
        await actions.restore()

    asyncio.run(scenario())
    return events


def test_the_leader_is_that_of_the_moment_and_every_node_runs_again_at_the_end(cluster: FakeCluster) -> None:
    events = played(cluster, timed(1, "kill"), timed(2, "pause"), timed(3, "transfer-leader", "node3"))
    assert cluster.done == ["kill node1", "pause node2", "transfer-leader node3", "resume node2", "start node1"]
    assert not cluster.down
    assert [(event["kind"], event["action"], event["node"]) for event in events[:2]] == [
        ("action", "kill", "node1"), ("action", "pause", "node2")
    ]  # fmt: skip
    assert events[0]["text"] == "kill node1, the leader of q"


def test_drives_change_and_are_at_the_end_what_they_were(cluster: FakeCluster) -> None:
    events = played(
        cluster,
        timed(1, "slow", drive="d1", factor=4.0),
        timed(2, "profile", "node2", drive="d1", profile="hdd7200"),
        timed(3, "fill", "node2", drive="d2"),
        timed(4, "free", "node2", drive="d2"),
        timed(5, "slow", "node2", drive="d1", factor=2.0),
    )
    assert cluster.done == [
        "slow node1 d1 4.0",
        "profile node2 d1 hdd7200",
        "fill node2 d2",
        "free node2 d2",
        "slow node2 d1 2.0",
        "restore node2 d2",
        "restore node2 d1",
        "restore node1 d1",
    ]
    assert [event["text"] for event in events[:2]] == ["slow node1 d1 4, the leader of q", "profile node2 d1 hdd7200"]


def test_links_are_given_back_when_asked_and_at_the_end(cluster: FakeCluster) -> None:
    hosts = FakeHosts()
    events = played(
        cluster,
        timed(1, "partition"),
        timed(2, "latency", "load1", peer="node2", latency_s=0.005, one_way=True),
        timed(3, "reconnect", "load1"),
        timed(4, "bandwidth", "node2", peer="load1", bandwidth_mbit=10.0),
        timed(5, "reconnect"),
        timed(6, "loss", "node2", peer="load1", loss=0.01, one_way=True),
        hosts=hosts,
    )
    assert hosts.done == [
        "node1-node2 node1-load1 node2-node1 load1-node1 {'cut': True}",
        "load1-node2 {'delay_ms': 5.0}",
        "restore node1-load1 load1-node1 load1-node2",
        "node2-load1 load1-node2 {'mbit': 10.0}",
        "restore node1-node2 node2-node1 node2-load1 load1-node2",
        "node2-load1 {'loss': 0.01}",
        "restore node2-load1",
    ]
    assert [event["text"] for event in events] == [
        "partition node1 all, the leader of q", "latency load1 node2 5ms one-way", "reconnect load1",
        "bandwidth node2 load1 10mbit", "reconnect", "loss node2 load1 1% one-way",
        "reconnect: all links are as they were",
    ]  # fmt: skip


def test_paused_hosts_are_resumed_at_the_end_and_nodes_of_killed_ones_started(cluster: FakeCluster) -> None:
    hosts = FakeHosts()
    played(
        cluster, timed(1, "pause-host", "load1"), timed(2, "resume-host", "paused"), timed(3, "pause-host"),
        timed(4, "kill-host", "node2"), hosts=hosts,
    )  # fmt: skip
    assert hosts.done == ["pause load1", "resume load1", "pause node1", "kill node2", "resume node1"]
    assert cluster.done == ["start node2"]


def test_links_that_cannot_be_changed_are_told_and_the_run_goes_on(cluster: FakeCluster) -> None:
    events = played(cluster, timed(1, "partition"), timed(2, "kill", "node2"), hosts=FakeHosts(broken="links"))
    assert [event["kind"] for event in events[:3]] == ["action", "action_failed", "action"]
    assert events[1]["text"] == "partition leader: nobody answers"


def test_a_node_whose_drive_failed_is_started_again(cluster: FakeCluster) -> None:
    """By the timeline, or at the end. Its process took the changes of its drives along."""
    played(cluster, timed(1, "slow", "node2", drive="d1", factor=4.0), timed(2, "fail", "node2", drive="d1"))
    assert cluster.done == ["slow node2 d1 4.0", "fail node2 d1", "start node2"]
    cluster.done.clear()
    played(cluster, timed(1, "fail", "node3", drive="d1"), timed(2, "heal", "node3", drive="d1"))
    assert cluster.done == ["fail node3 d1", "start node3"] and not cluster.down


def test_what_the_timeline_undoes_is_not_undone_again(cluster: FakeCluster) -> None:
    played(cluster, timed(1, "kill"), timed(2, "kill"), timed(3, "restart", "killed"), timed(4, "restart", "killed"))
    assert cluster.done == ["kill node1", "kill node2", "start node2", "start node1"]


def test_an_action_that_fails_is_told_and_those_after_it_go_on(cluster: FakeCluster) -> None:
    cluster.broken = "kill"
    events = played(cluster, timed(1, "kill"), timed(2, "restart", "killed"), timed(3, "pause", "node2"))
    failed = [str(event["text"]) for event in events if event["kind"] == "action_failed"]
    assert failed == ["kill leader: kill does not work", "restart killed: no node is killed"]
    assert cluster.done == ["pause node2", "resume node2"]


def test_a_node_that_starts_holds_up_only_actions_on_itself(cluster: FakeCluster) -> None:
    """A restart takes seconds. The pause of another node comes meanwhile, the pause of that node comes after it."""
    proceed = threading.Event()
    cluster.before_start = lambda: proceed.wait(20.0)

    async def scenario() -> None:
        made = plan(
            timed(1, "kill", "node3"),
            timed(2, "restart", "node3"),
            timed(3, "pause", "node3"),
            timed(4, "pause", "node1"),
        )
        actions = ClusterActions(made, LocalTarget(cluster), lambda event: None)  # type: ignore[arg-type]
        for moment in actions.moments():
            await actions.handlers[type(moment.action)](moment.action)
        async with asyncio.timeout(20.0):
            while "pause node1" not in cluster.done:
                await asyncio.sleep(0)
        assert cluster.done == ["kill node3", "pause node1"]
        proceed.set()
        await actions.restore()

    asyncio.run(scenario())
    assert cluster.done[2:4] == ["start node3", "pause node3"]
    assert not cluster.down


def test_a_restart_that_fails_is_tried_again_at_the_end(cluster: FakeCluster) -> None:
    """And neither attempt hides what went wrong."""
    cluster.broken = "start"
    events = played(cluster, timed(1, "kill", "node3"), timed(2, "restart", "node3"))
    failed = [str(event["text"]) for event in events if event["kind"] == "action_failed"]
    assert failed == ["restart node3: start does not work"] * 2


def test_recoveries_are_told_when_the_load_has_ended(cluster: FakeCluster) -> None:
    """Not of actions that failed, and not of what is undone at the end."""
    cluster.broken = "transfer-leader"
    events: list[dict[str, Any]] = []

    async def scenario() -> None:
        made = plan(timed(1, "kill", "node3"), timed(1.5, "transfer-leader", "node2"), timed(2, "pause", "node1"))
        actions = ClusterActions(made, LocalTarget(cluster), events.append)  # type: ignore[arg-type]
        began_ns = time.time_ns()
        for moment in actions.moments():
            await actions.handlers[type(moment.action)](moment.action)
        async with asyncio.timeout(20.0):
            while actions._tasks:
                await asyncio.sleep(0)
        later_ns = began_ns + 60_000_000_000
        actions.progress(1, Phase.STEADY, [(began_ns - 1, 5, 0), (later_ns, 5, 3)])
        assert not [event for event in events if event["kind"] == "recovery"]
        actions.progress(1, Phase.DRAIN, [])
        await actions.restore()

    asyncio.run(scenario())
    told = [event for event in events if event["kind"] == "recovery"]
    assert [(event["action"], event["node"]) for event in told] == [("kill", "node3"), ("pause", "node1")]
    assert told[0]["text"].startswith("after kill node3: no message was confirmed in the ")
    assert told[0]["observed_s"] == (told[1]["acted_ns"] - told[0]["acted_ns"]) / 1e9


def test_actions_of_steps_that_a_continued_sweep_has_measured_are_left_out(cluster: FakeCluster) -> None:
    made = plan(timed(5, "kill", step=1), timed(7, "pause", step=2))
    made = made.changed(steps=made.steps[1:])
    actions = ClusterActions(made, LocalTarget(cluster), lambda event: None)  # type: ignore[arg-type]
    assert [(moment.step, moment.at_s) for moment in actions.moments()] == [(0, 5)]


def test_a_time_of_a_step_is_that_of_the_step_wherever_it_runs(cluster: FakeCluster) -> None:
    """The steps of the plan run in the order 2, 1."""
    actions = ClusterActions(
        plan(timed(5, "kill", step=1), timed(40, "pause"), timed(7, "pause", step=2)),
        LocalTarget(cluster),  # type: ignore[arg-type]
        lambda event: None,
    )
    found = [(moment.step, moment.at_s) for moment in actions.moments()]
    assert found == [(1, 5), (1, 10), (0, 7)] and all(isinstance(moment, Moment) for moment in actions.moments())


def test_a_timeline_without_its_cluster_is_refused_before_anything_starts(tmp_path: Path) -> None:
    refuse_actions(plan(timed(1, "kill", "node3")), None, None)
    refuse_actions(plan(uris=("amqp://h",)), None, None)
    with pytest.raises(SpecError, match="actions are for a local cluster"):
        refuse_actions(plan(timed(1, "kill"), uris=("amqp://h",)), None, None)
    refuse_actions(plan(timed(1, "partition", "h1"), uris=("amqp://h",)), None, None, (), ("h1", "h2"))
    with pytest.raises(SpecError, match="kill is for a cluster of the bundled broker"):
        refuse_actions(plan(timed(1, "kill"), uris=("amqp://h",)), None, None, (), ("h1", "h2"))
    with pytest.raises(SpecError, match="all of this run is on one machine"):
        refuse_actions(plan(timed(1, "partition", "node1")), None, None)
    with pytest.raises(SpecError) as caught:
        refuse_actions(plan(timed(1, "kill", "node4"), timed(99, "pause"), timed(1, "fail", "node1")), None, None)
    assert [problem.path for problem in caught.value.problems] == [
        "timeline[0].node", "timeline[1].at", "timeline[2].do"
    ]  # fmt: skip


def test_the_drives_of_the_layout_are_those_to_act_on() -> None:
    layout = PlacedLayout(
        name="l", drives=(PlacedDrive(name="d1", profile="nvme"), PlacedDrive(name="d2", path="/mnt")), roles={}
    )
    refuse_actions(plan(timed(1, "slow", drive="d1", factor=4.0)), None, layout)
    with pytest.raises(SpecError, match="no modelled drive 'd2'"):
        refuse_actions(plan(timed(1, "slow", drive="d2", factor=4.0)), None, layout)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("run", "-z", "10", "--at", "5s kill node9"), ("--at '5s kill node9'", "there is no node 'node9'")),
        (("run", "-z", "10", "--at", "11s kill"), ("--at '11s kill'", "the run is over after 10 s")),
        (("run", "-h", "amqp://h", "-z", "10", "--at", "5s kill"), ("actions are for a local cluster",)),
        (("sweep", "--vary", "in_flight=1,2", "--at", "5s kill", "--at", "x kill", "--at", "5s"),
         ("'x' is not a duration", "'5s' is not a time and an action")),
        (("sweep", "--vary", "in_flight=1,2", "--at", "40s kill leader step 2"), ("step 2 is over after 30 s",)),
        (("sweep", "--vary", "in_flight=1,2", "--at", "5s resume paused"), ("nothing to resume",)),
        (("sweep", "--resume", ".", "--at", "5s kill"), ("a continued sweep cannot be changed",)),
    ],
)  # fmt: skip
def test_a_typed_action_follows_the_rules_of_the_file(
    call: Any, command: tuple[str, ...], says: tuple[str, ...]
) -> None:
    """Told before anything is started, with the option as it was typed."""
    code, _, err = call(*command)
    assert code == 2, err
    assert all(text in err for text in says), err


def test_typed_actions_come_beside_those_of_the_workload(call: Any, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(
        "{schema: 1, name: w, title: w, queues: [{name: q}], step: {duration: 30s}, "
        "timeline: [{at: 5s, do: kill, node: node2}]}"
    )
    code, out, err = call("sweep", str(file), "--at", "9s restart killed", "--dry-run", "--json")
    assert code == 0, err
    played = [(each["at_s"], each["do"], each["node"]) for each in json.loads(out)["plan"]["timeline"]]
    assert played == [(5.0, "kill", "node2"), (9.0, "restart", "killed")]
