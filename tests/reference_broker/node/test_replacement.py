"""A node that lost its directories: what becomes of its replicas, step by step, on metadata that commits at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import (
    DeclareQueue,
    MemberLeft,
    MetadataCommand,
    QueueRecord,
    RemoveMember,
    ReplaceMember,
    encode,
)
from reference_broker.node.config import Limits, Member
from reference_broker.node.hosting.replacement import STRIDE, ClusterPorts, Replacement
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.raft.configuration import Configuration
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term

ALL = (NodeId(1), NodeId(2), NodeId(3))
ME, LOST = NodeId(1), NodeId(3)


class Others:
    """What the asked node sees of the cluster: metadata that commits at once, nodes that answer at once."""

    def __init__(self) -> None:
        starter = SimpleNamespace(node=ME, boot_id=1)
        for name in ("queue_added", "queue_removed", "members_changed"):
            setattr(starter, name, lambda _record: None)
        starter.replica_gone = lambda _record, _epoch: None
        self.metadata = MetadataHost(starter)  # type: ignore[arg-type]
        self.limits = Limits()
        self.metadata.member = self  # type: ignore[assignment]
        members = tuple(
            Member(node=node, name=f"node{node}", host="", amqp_port=1, peer_port=2, control_port=3) for node in ALL
        )
        self.nodes = Nodes(members, ME, 1)
        self.nodes.up[ALL[1]] = 1
        self.core = SimpleNamespace(configuration=Configuration(ALL))
        self.leader = ME
        self.answers: list[Any] = []
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._timers.append((delay_s, call))

    def propose(self, command: MetadataCommand, _size: int) -> None:
        payload = encode([command])
        self.metadata.apply(Entry(LogIndex(1), Term(1), EntryKind.COMMAND, 0, payload), len(payload), frozenset())
        self.metadata.run_effects()

    def ask(self, _node: NodeId, request: Any, answered: Callable[[Any], None]) -> None:
        answered({"life": 7} if request["op"] == "known-life" else {"ok": True, "done": True})

    def replace(self, *, only_told: bool = False) -> None:
        cluster = ClusterPorts(self.nodes, self.metadata, self.ask, self.later, self.limits, _is_replicated)
        Replacement(LOST, self.answers.append, cluster, only_told=only_told).begin()

    def look_again(self) -> None:
        """The shortest time that anybody waits for is over."""
        first = min(self._timers, key=lambda timer: timer[0])
        self._timers.remove(first)
        first[1]()

    def record(self) -> QueueRecord:
        return self.metadata.machine.queues["q"]


def _is_replicated(record: QueueRecord) -> bool:
    return record.kind != "classic"


def others(*steps: MetadataCommand) -> Others:
    """After a queue of three was declared, and then ``steps``."""
    cluster = Others()
    record = QueueRecord(name="q", group=GroupId(7), members=ALL, founders=ALL)
    for command in (DeclareQueue(record=record, node=ME, correlation=0), *steps):
        cluster.propose(command, 0)
    return cluster


def left(membership_epoch: int) -> MemberLeft:
    return MemberLeft(
        name="q", group=GroupId(7), member=LOST, membership_epoch=membership_epoch, node=ME, correlation=0
    )


def test_a_lost_replica_leaves_and_another_one_is_wanted() -> None:
    cluster = others()
    cluster.replace()
    assert (cluster.record().members, cluster.record().leaving) == (ALL[:2], (LOST,))
    cluster.look_again()
    assert not cluster.answers, "it has not left yet"
    cluster.propose(left(0), 0)
    assert cluster.record().members == ALL and cluster.record().membership_epoch(LOST) == 1
    cluster.look_again()
    assert cluster.answers == [{"ok": True, "life": 7 + STRIDE, "queues": ["q"], "lost_queues": []}]


def test_what_a_replacement_would_cost_is_told_and_nothing_is_changed() -> None:
    """Somebody must be able to say no: afterwards the queue is deleted."""
    alone = QueueRecord(name="c", group=GroupId(8), members=(LOST,), founders=(LOST,), kind="classic")
    cluster = others(DeclareQueue(record=alone, node=ME, correlation=0))
    before = dict(cluster.metadata.machine.queues)
    cluster.replace(only_told=True)
    assert cluster.answers == [{"ok": True, "queues": ["q"], "lost_queues": ["c"]}]
    cluster.look_again()
    assert cluster.metadata.machine.queues == before and len(cluster.answers) == 1


@pytest.mark.parametrize("steps", [1, 2])
def test_another_one_is_wanted_though_the_node_that_saw_to_it_stops(steps: int) -> None:
    """Asked again, another node goes on: what the first one proposed is whole."""
    replaced = ReplaceMember(name="q", group=GroupId(7), member=LOST, node=ME, correlation=0)
    cluster = others(*(replaced, left(0))[:steps])
    cluster.replace()
    cluster.look_again()
    cluster.propose(left(cluster.record().membership_epoch(LOST)), 0)
    cluster.look_again()
    assert cluster.record().members == ALL and not cluster.record().leaving
    assert cluster.answers == [{"ok": True, "life": 7 + STRIDE, "queues": ["q"], "lost_queues": []}]


def test_a_replica_that_is_removed_while_it_is_replaced_does_not_come_back() -> None:
    cluster = others()
    cluster.replace()
    cluster.propose(RemoveMember(name="q", group=GroupId(7), member=LOST, node=ME, correlation=0), 0)
    cluster.propose(left(0), 0)
    cluster.look_again()
    assert cluster.record().members == ALL[:2] and cluster.answers


def test_a_replica_that_was_to_leave_before_it_was_lost_does_not_come_back() -> None:
    """Its operator took it away. But the node must not begin blank before it is gone: it would be that very replica."""
    cluster = others(RemoveMember(name="q", group=GroupId(7), member=LOST, node=ME, correlation=0))
    cluster.replace()
    cluster.look_again()
    assert not cluster.answers, "it has not left yet"
    cluster.propose(left(0), 0)
    cluster.look_again()
    assert cluster.record().members == ALL[:2]
    assert cluster.answers == [{"ok": True, "life": 7 + STRIDE, "queues": [], "lost_queues": []}]


def owned(name: str, node: NodeId, **more: Any) -> DeclareQueue:
    group = GroupId(100 + 10 * len(name) + node)
    record = QueueRecord(name=name, group=group, members=(node,), leader=node, kind="classic", **more)
    return DeclareQueue(record=record, node=ME, correlation=0)


def test_classic_queues_of_the_lost_node_are_deleted_and_named() -> None:
    """Nobody else has their messages, so nobody may wait for them. Those of other nodes stay."""
    cluster = others(
        owned("lost", LOST), owned("exclusive", LOST, exclusive=4, boot_id=9, durable=False), owned("c", ME)
    )
    cluster.replace()
    cluster.look_again()
    cluster.propose(left(0), 0)
    assert sorted(cluster.metadata.machine.queues) == ["c", "q"]
    cluster.look_again()
    lost = ["exclusive", "lost"]
    assert cluster.answers == [{"ok": True, "life": 7 + STRIDE, "queues": ["q"], "lost_queues": lost}]


def test_a_classic_queue_that_was_deleted_meanwhile_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = others(owned("lost", LOST))
    answering = cluster.ask

    def ask(node: NodeId, request: Any, answered: Callable[[Any], None]) -> None:
        if cluster.metadata.machine.queues["lost"].leader == LOST:
            cluster.metadata.delete(cluster.metadata.machine.queues["lost"], lambda _gone: None)
            cluster.propose(owned("lost", ME), 0)  # the name is free, and somebody takes it at once
        answering(node, request, answered)

    monkeypatch.setattr(cluster, "ask", ask)
    cluster.replace()
    cluster.look_again()
    cluster.propose(left(0), 0)
    cluster.look_again()
    assert cluster.answers and cluster.metadata.machine.queues["lost"].leader == ME


def test_nothing_is_deleted_while_the_only_member_of_a_quorum_queue_is_lost() -> None:
    """The replacement is refused as a whole: the operator may bring the directories back."""
    single = QueueRecord(name="alone", group=GroupId(8), members=(LOST,), founders=(LOST,))
    cluster = others(owned("lost", LOST), DeclareQueue(record=single, node=ME, correlation=0))
    cluster.replace()
    assert "only member of 'alone'" in cluster.answers[0]["error"]
    assert sorted(cluster.metadata.machine.queues) == ["alone", "lost", "q"]
