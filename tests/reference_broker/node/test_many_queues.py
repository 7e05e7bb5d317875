"""What a node does follows from what happens, not from how many queues there are: thousands that nobody uses must not
slow the one that somebody does."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord, record_to_json
from reference_broker.node.endpoints.status import status, summary
from reference_broker.node.replication import ticks
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.raft import wire
from reference_broker.raft.core import RaftCore
from reference_broker.raft.roles import Role
from reference_broker.types import METADATA_GROUP, GroupId, NodeId
from tests.reference_broker.node.quiet_cluster import NODES, names, quiet_cluster


class Calls:
    """How often something is called."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        """Count the calls of a method, or the looks at a property."""
        found = vars(owner)[name]
        call = found.fget if isinstance(found, property) else found

        def counted(*arguments: object, **named: object) -> object:
            self.count += 1
            return call(*arguments, **named)

        monkeypatch.setattr(owner, name, property(counted) if isinstance(found, property) else counted)


def work_of(call: Callable[[], object]) -> int:
    """How many instructions of Python the call takes: a measure that knows no clock, and sees every loop."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def test_a_tick_looks_at_no_queue_that_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty ticks a second, each of which looked at every queue, cost a quarter of a core with three thousand."""
    looked, ticked = Calls(), Calls()
    with quiet_cluster() as cluster:
        cluster.declare(names(50))
        cluster.pass_time(2)
        looked.of(monkeypatch, RaftCore, "needs_tick")
        ticked.of(monkeypatch, RaftCore, "tick")
        cluster.pass_time(5)
        assert (looked.count, ticked.count) == (0, 0)


def test_a_group_that_waits_gets_its_ticks() -> None:
    """A leader that is alone gives up after an election time, and is found again when another node is back: both are
    counted in ticks, of a group that nothing else happens to."""
    with quiet_cluster() as cluster:
        cluster.declare(names(3))
        cluster.pass_time(2)
        queues = list(cluster.shards[NODES[0]].queues.values())
        cluster.stop(*NODES[1:])
        cluster.wait(lambda: all(not queue.proposer.leader for queue in queues))
        cluster.start(NODES[1])
        cluster.wait_for_leaders()


def test_a_declare_does_as_much_with_many_queues_as_with_few() -> None:
    """Each looked at all queues that were there, so the ten thousandth took a hundred times as long as the first."""
    with quiet_cluster() as cluster:
        cluster.declare(names(20))
        cluster.pass_time(3)
        few = work_of(lambda: cluster.declare(names(5, "few-")))
        cluster.declare(names(400, "many-"))
        cluster.pass_time(3)
        many = work_of(lambda: cluster.declare(names(5, "late-")))
        assert many < few * 1.1, "one more sync is 6 %, a look at 400 queues at each declare on each node is 15 %"


def test_a_summary_says_as_much_of_many_queues_as_of_few() -> None:
    """A start asks for it in a loop, and a run once a second: with three thousand queues the nodes were busy with
    saying how they are."""
    with quiet_cluster() as cluster:
        cluster.declare(names(20))
        shard = cluster.shards[NODES[0]]
        cluster.pass_time(1)
        few = work_of(lambda: summary(shard, listening=True, serves_http=True))
        cluster.declare(names(200, "many-"))
        cluster.pass_time(1)
        found: list[dict[str, Any]] = []
        assert work_of(lambda: found.append(summary(shard, listening=True, serves_http=True))) < few * 1.05
        assert (found[0]["queue_count"], len(found[0]["busiest"]), found[0]["electing"]) == (220, 4, 0)
        assert (
            set(status(shard, listening=True, serves_http=True)) - set(found[0]) == {"queues"}
            and len(status(shard, listening=True, serves_http=True)["queues"]) == 220
        )


def test_queues_that_cannot_have_a_leader_are_not_waited_for() -> None:
    """A node that starts while most of the others are down would seem never to be ready."""
    with quiet_cluster() as cluster:
        cluster.declare(names(3))
        shard = cluster.shards[NODES[0]]
        cluster.stop(*NODES[1:])
        cluster.wait(lambda: len(shard.hosting.census.leaderless) == 4)
        assert shard.electing() == 0
        cluster.start(NODES[1])
        cluster.wait_for_leaders()
        assert shard.electing() == 0 and not shard.hosting.census.leaderless


def test_a_tick_gives_no_turn_to_a_group_in_which_nothing_comes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each quiet commit a leader waits for a second, twenty ticks: turns for nothing were a third of what a new
    queue cost."""
    turns, ticks = Calls(), Calls()
    with quiet_cluster() as cluster:
        cluster.declare(names(10))
        turns.of(monkeypatch, GroupRunner, "turn")
        ticks.of(monkeypatch, RaftCore, "tick")
        cluster.pass_time(1)
        assert ticks.count > 100 > turns.count


def test_a_declare_asks_nobody_for_a_vote_and_is_answered_by_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata group has agreed on the queue and its leader: everything else would be said twice."""
    said: Counter[str] = Counter()
    encode = wire.encode

    def noted(group: GroupId, message: Any) -> Any:
        said[type(message).__name__] += group != METADATA_GROUP
        return encode(group, message)

    monkeypatch.setattr(wire, "encode", noted)
    with quiet_cluster() as cluster:
        shard, loop, led = cluster.shards[NODES[1]], cluster.loops[NODES[1]], list[bool]()
        for name in names(10):
            record = shard.place(QueueRecord(name=name, group=GroupId(len(led) + 1), members=()))
            answered = len(led)
            loop.run(lambda record=record: shard.declare(record, lambda queue: led.append(queue.proposer.leader == 2)))
            cluster.wait(lambda answered=answered: len(led) > answered)
        cluster.wait_for_leaders()
        assert all(led) and set(+said) == {"AppendReply"}


@pytest.mark.parametrize("node", NODES)
def test_a_restart_knows_whom_the_declaration_elected(node: NodeId) -> None:
    """Power was lost when the group was on disk, and nothing else of it. A founder that forgot its vote could give it
    once more; a leader that led its first term again could write other entries in place of those that it lost."""
    with quiet_cluster() as cluster:
        shard = cluster.shards[node]
        record = shard.place(QueueRecord(name="q", group=GroupId(99), members=()))
        record = replace(record, leader=NODES[0])
        cluster.loops[node].run(lambda: shard.log.create_group(record.group, record_to_json(record)))
        shard.log.run_pending()
        cluster.stop()
        cluster.begin(node, lambda: None)
        core = cluster.shards[node].runners[record.group].core
        assert (core.role, core.term, core.voted_for) == (Role.FOLLOWER, 1, NODES[0])


def test_a_start_finds_the_leaders_of_before_with_one_election_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """All members of all groups stood against each other, and whoever had the lowest number led everything."""
    with quiet_cluster() as cluster:
        for node in NODES:
            cluster.declare(names(100, f"of-{node}-"), on=node)
        before = {node: len(cluster.shards[node].hosting.census.leading) for node in NODES}
        cluster.stop()
        rounds, elections = Calls(), Calls()
        rounds.of(monkeypatch, RaftCore, "_ask_pre_votes")
        elections.of(monkeypatch, RaftCore, "_stand")
        cluster.start()
        cluster.wait_for_leaders()
        after = {node: len(cluster.shards[node].hosting.census.leading) for node in NODES}
        assert all(abs(after[node] - before[node]) < 20 for node in NODES)
        assert elections.count < 330 and rounds.count < 400


def test_so_many_elections_begin_in_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is lost leaves thousands of groups without a leader: those that look for one must leave the others
    time to hear each other, or they lose each other, too. The metadata group does not wait for them."""
    monkeypatch.setattr(ticks, "_ELECTIONS_MAX", 2)
    begun: Counter[int] = Counter()
    with quiet_cluster() as cluster:
        cluster.declare(names(100))
        shard = cluster.shards[NODES[0]]
        cluster.stop(*NODES[1:])
        cluster.wait(lambda: len(shard.hosting.census.leaderless) == 101)
        cluster.pass_time(0.1)
        campaign = RaftCore.campaign

        def counted(core: RaftCore) -> None:
            begun[int(cluster.scheduler.now / 0.05)] += 1
            begun[-1] += core is shard.runners[METADATA_GROUP].core
            campaign(core)

        monkeypatch.setattr(RaftCore, "campaign", counted)
        cluster.pass_time(5)
        metadata = begun.pop(-1)
        assert metadata > 10 and 1 <= max(begun.values()) <= 4
        cluster.start(*NODES[1:])
        cluster.wait_for_leaders()
