"""What a node counts of its queues as they come and go is what it would find if it looked at all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.policies import Policy
from reference_broker.node.replication.census import Busiest, Census, placed
from reference_broker.types import NOBODY, GroupId, LogIndex, NodeId

NODES = [NodeId(number) for number in range(1, 6)]
_STEPS = 4000


def record(group: int, members: tuple[NodeId, ...], leader: NodeId) -> QueueRecord:
    return QueueRecord(name=f"q{group}", group=GroupId(group), members=members, founders=members, leader=leader)


def counted(counts: Counter[NodeId]) -> dict[NodeId, int]:
    return {node: counts[node] for node in NODES}


def test_the_counts_are_those_of_a_look_at_all_queues() -> None:
    """A node that counted wrongly would give new queues to nodes that have most already, for ever."""
    chance, census = Random(1), Census(NODES[0])
    records: dict[GroupId, QueueRecord] = {}
    leaders: dict[GroupId, NodeId] = {}
    known: dict[GroupId, NodeId] = {}
    for number in range(_STEPS):
        step, group = chance.random(), chance.choice(list(records) or [GroupId(0)])
        members = tuple(sorted(chance.sample(NODES, 3)))
        if step < 0.3 or not records:
            new = record(number, members, chance.choice(members))
            records[new.group], leaders[new.group], known[new.group] = new, new.leader, NOBODY
            census.member_knows(new.group, NOBODY)
            census.queue_is(new)
        elif step < 0.5:
            records[group] = replace(records[group], members=members)
            census.queue_is(records[group])
        elif step < 0.8:
            known[group] = leader = chance.choice([NOBODY, *NODES])
            leaders[group] = leader or leaders[group]
            census.member_knows(group, leader)
        else:
            del records[group], leaders[group], known[group]
            census.queue_gone(group)
            census.member_gone(group)
        assert counted(census.members) == counted(Counter(n for each in records.values() for n in each.members))
        assert counted(census.led) == counted(Counter(leaders.values()))
        assert set(census.leaderless) == {each for each, leader in known.items() if leader == NOBODY}
        assert set(census.leading) == {each for each, leader in known.items() if leader == NODES[0]}


def test_news_of_a_group_that_is_no_queue_counts_for_nobody() -> None:
    """The metadata group has leaders, too, and news of a queue may come when it is gone."""
    census = Census(NODES[0])
    census.member_knows(GroupId(0), NodeId(2))
    census.leader_is(GroupId(9), NodeId(3))
    census.queue_gone(GroupId(9))
    assert not any(census.led.values()) and not any(census.members.values()) and not census.leaderless


def test_a_balanced_queue_is_led_where_fewest_are_and_its_members_are_where_fewest_are() -> None:
    """The one thing that the counts are for."""
    census = Census(NODES[0])
    census.queue_is(record(1, (NodeId(1), NodeId(2), NodeId(3)), NodeId(1)))
    census.queue_is(record(2, (NodeId(1), NodeId(2), NodeId(4)), NodeId(2)))
    census.leader_is(GroupId(2), NodeId(1))
    wanted = replace(record(3, (), NOBODY), arguments=(("x-queue-leader-locator", "balanced"),))
    found = placed(wanted, NodeId(1), NODES, NODES, census, is_replicated=True)
    assert (found.leader, found.members) == (NodeId(2), (NodeId(2), NodeId(3), NodeId(5)))
    assert placed(record(3, (), NOBODY), NodeId(1), NODES, NODES, census, is_replicated=True).leader == NodeId(1)


def test_the_few_are_those_of_a_look_at_all() -> None:
    """Whoever watches a run would see the wrong queue, or none."""
    chance, commits = Random(1), dict[GroupId, LogIndex]()
    looks = 0

    def everything() -> list[tuple[GroupId, LogIndex]]:
        nonlocal looks
        looks += 1
        return list(commits.items())

    few = Busiest(4, everything)
    for number in range(1, 3000):
        group = GroupId(number if chance.random() < 0.1 else chance.choice(list(commits) or [GroupId(number)]))
        if chance.random() < 0.05 and group in commits:
            del commits[group]
            few.gone(group)
        else:
            commits[group] = LogIndex(commits.get(group, 0) + chance.randint(1, 9))
            few.note(group, commits[group])
        if chance.random() < 0.2:
            found = few.groups()
            assert len(found) == min(4, len(commits))
            assert sorted(commits[each] for each in found) == sorted(commits.values())[-4:]
            assert found == sorted(found, key=lambda each: (-commits[each], each))
    assert 0 < looks < 30, "only after one of the few was deleted"


def test_a_policy_may_choose_the_node_that_leads_the_fewest_queues() -> None:
    """For classic queues under the older name, too. The policy leaves the arguments of the queue as they were."""
    census, up = Census(NODES[0]), NODES[:3]
    census.queue_is(record(1, (NODES[0],), NODES[0]))
    for kind, key, value in (
        ("quorum", "queue-leader-locator", "balanced"), ("classic", "queue-master-locator", "min-masters"),
    ):  # fmt: skip
        new = QueueRecord(name="new", group=GroupId(9), members=(), kind=kind)
        policy = Policy(name="p", pattern="^new$", definition=((key, value),))
        for policies, leader in (((), NODES[0]), ((policy,), NODES[1])):
            found = placed(new, NODES[0], up, up, census, is_replicated=kind == "quorum", policies=policies)
            assert (found.leader, found.arguments) == (leader, ())
