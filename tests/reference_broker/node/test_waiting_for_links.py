"""Who has more to send than a link takes waits, and goes on in turn when the link takes octets again."""

from __future__ import annotations

from typing import Any

from reference_broker.sim.node import SimShard
from reference_broker.sim.world import World
from reference_broker.types import NodeId

THERE = NodeId(2)


class Waiting:
    """Has something to send: ``turns`` notes its turns, and it may congest the link again."""

    def __init__(self, name: str, turns: list[str], shard: SimShard, *, congests: bool = False) -> None:
        self.scheduled = False
        self._name, self._turns, self._shard, self._congests = name, turns, shard, congests

    def turn(self) -> None:
        self.scheduled = False
        self._turns.append(f"{self._name} in turn {self._shard.turns.count}")
        if self._congests:
            self._shard.peers.congested.add(THERE)


def shard_of(world: World) -> tuple[SimShard, Any]:
    node = world.nodes[NodeId(1)]
    assert node.shard is not None and node.loop is not None
    return node.shard, node.loop


def run(world: World) -> None:
    """Let all happen that is due at once."""
    end = world.scheduler.now + 0.005
    while world.scheduler.now < end:
        world.scheduler.step()


def test_one_goes_on_at_a_time_until_the_link_is_congested_again() -> None:
    """A thousand queues that all went on at once would fill the memory in one turn."""
    world = World(1)
    try:
        shard, loop = shard_of(world)
        turns: list[str] = []
        shard.peers.congested.add(THERE)
        for name in ("a", "b", "c"):
            waiting = Waiting(name, turns, shard, congests=name == "b")
            shard.when_writable(THERE, waiting)
            shard.when_writable(THERE, waiting)
        run(world)
        assert not turns
        for expected in ("ab", "abc"):
            shard.peers.congested.discard(THERE)
            loop.run(shard.peer_writable, THERE)
            run(world)
            assert "".join(turn[0] for turn in turns) == expected
        assert len({turn[2:] for turn in turns}) == 3, "each has a turn of its own"
        assert not shard.turns._waiting_to_send
    finally:
        world.close()


def test_nobody_waits_for_a_link_that_broke() -> None:
    """What was to be sent is asked for again when the next link stands."""
    world = World(1)
    try:
        shard, loop = shard_of(world)
        turns: list[str] = []
        shard.peers.congested.add(THERE)
        shard.when_writable(THERE, Waiting("a", turns, shard))
        loop.run(shard.peer_down, THERE)
        shard.peers.congested.discard(THERE)
        loop.run(shard.peer_writable, THERE)
        run(world)
        assert not turns
        assert not shard.turns._waiting_to_send
    finally:
        world.close()
