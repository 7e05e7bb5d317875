"""Which commands wait for others to share an entry with, and that none waits for ever."""

from __future__ import annotations

import pytest

from reference_broker.machines.commands import Settle
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.raft.roles import Role
from reference_broker.types import ChannelId, ConsumerId, NodeId, Priority
from tests.reference_broker.node.test_group_storm import Publisher, World

GONE = ConsumerId(ChannelId(NodeId(9), 1, 1, 1), "c")


def led(world: World) -> tuple[GroupRunner, NodeId]:
    """The queue's leader, and another member's node."""
    world.run_on()
    world.nodes[NodeId(1)].runner.lead_if_nobody_does()  # type: ignore[union-attr]
    world.run_on()
    member = world.nodes[NodeId(1)].member
    assert member is not None and member.core.role is Role.LEADER
    return member, NodeId(2)


def fire(world: World, node: NodeId) -> None:
    """All that waits on a node has waited enough."""
    for _ in range(len(world.nodes[node].timers)):
        world.nodes[node].fire_timer()
    world.run_on()


@pytest.mark.parametrize("lazy", [True, False])
def test_a_lazy_settle_waits_on_the_leader_too(lazy: bool) -> None:
    world = World(1)
    leader, other = led(world)
    publisher = Publisher(world.nodes[NodeId(1)], world)
    publisher.publish()
    world.run_on()
    fire(world, NodeId(1))
    entries = leader.core.log.last_index
    world.nodes[other].runner.propose(Settle(GONE, ((0, 0),)), 64, Priority.NORMAL, lazy=lazy)
    world.run_on()
    if lazy:
        assert leader.core.log.last_index == entries
        fire(world, other)  # it is forwarded now
        assert leader.core.log.last_index == entries
        publisher.publish()
        world.run_on()
    assert leader.core.log.last_index == entries + 1
    fire(world, NodeId(1))
    fire(world, other)
    assert leader.core.log.last_index == entries + 1
    assert not world.nodes[other].runner.unapplied[Priority.NORMAL].all()


def test_no_settle_waits_for_ever() -> None:
    """Nothing is published; once each node has waited it is an entry, and applied where it came from."""
    world = World(2)
    leader, other = led(world)
    entries = leader.core.log.last_index
    world.nodes[other].runner.propose(Settle(GONE, ((0, 0),)), 64, Priority.NORMAL, lazy=True)
    world.run_on()
    for node in (other, NodeId(1), NodeId(1), other):
        fire(world, node)
    assert leader.core.log.last_index == entries + 1
    assert not world.nodes[other].runner.unapplied[Priority.NORMAL].all()


def test_no_settle_is_hurried_by_the_wait_of_one_that_is_gone() -> None:
    """Else every other settle would be an entry of its own on a queue that is slower than the wait is long."""
    world = World(4)
    leader, _other = led(world)
    node = world.nodes[NodeId(1)]
    publisher = Publisher(node, world)
    leader.propose(Settle(GONE, ((0, 0),)), 64, Priority.NORMAL, lazy=True)
    world.run_on()
    node.time_ns += 150_000_000
    publisher.publish()  # it takes the settle along
    world.run_on()
    leader.propose(Settle(GONE, ((1, 1),)), 64, Priority.NORMAL, lazy=True)
    world.run_on()
    entries = leader.core.log.last_index
    [timer] = [timer for timer in node.timers if timer[1].__name__ == "_wait_no_longer"]
    node.timers.remove(timer)
    node.time_ns += 50_000_000
    timer[1]()
    world.run_on()
    assert leader.core.log.last_index == entries and timer[0] == 0.2
    [timer] = [timer for timer in node.timers if timer[1].__name__ == "_wait_no_longer"]
    assert timer[0] == 0.15
    fire(world, NodeId(1))
    assert leader.core.log.last_index == entries + 1


def test_publishes_ride_with_the_settles_of_a_consumer_with_a_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one does not: no settle has been there. Nor do later ones once no settle comes any more."""
    world = World(3)
    leader, _other = led(world)
    node = world.nodes[NodeId(1)]
    publisher = Publisher(node, world)
    monkeypatch.setattr(leader.host, "pace", lambda: 24)

    def entries_after(*, settles: bool, publishes: bool) -> int:
        before = leader.core.log.last_index
        if publishes:
            publisher.publish()
        if settles:
            leader.propose(Settle(GONE, ((0, 0),)), 64, Priority.NORMAL)
        world.run_on()
        return leader.core.log.last_index - before

    entries_after(settles=False, publishes=True)
    for _ in range(3):
        fire(world, NodeId(1))  # the queue has asked about the publisher's node, in the priority of settles
    assert entries_after(settles=False, publishes=True) == 1
    assert entries_after(settles=True, publishes=False) == 1
    assert entries_after(settles=False, publishes=True) == 0
    assert entries_after(settles=True, publishes=True) == 1
    assert not leader.unapplied[Priority.LOW].all()
    assert entries_after(settles=False, publishes=True) == 0
    before = leader.core.log.last_index
    fire(world, NodeId(1))  # a settle was there since the timer was set
    assert leader.core.log.last_index == before
    fire(world, NodeId(1))
    assert leader.core.log.last_index == before + 1
    assert entries_after(settles=False, publishes=True) == 1
