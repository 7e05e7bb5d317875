"""A scene: a small cluster without trouble of its own, led step by step, for readers.

The nodes, drives and connections are those of every world, and every invariant is checked. Clients do what the scene
says and nothing else, and the weather is the same all the time. :mod:`reference_broker.sim.scenes` has the scenes that
the documentation shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reference_broker.node.config import Limits
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.raft.roles import Role
from reference_broker.sim.clients import Crowd, SimClient
from reference_broker.sim.environment import Checkers, Environment
from reference_broker.sim.network import Weather
from reference_broker.sim.node import SimNode, host_of
from reference_broker.sim.owned import store_config
from reference_broker.sim.queues import QueuePlan
from reference_broker.sim.recorder import WorldRecorder
from reference_broker.storage.executor import OwnersThread
from reference_broker.types import NodeId

QUEUE: Final = "orders"
"""The only queue of a scene."""
_PATIENCE_S: Final = 30.0
_LIMITS: Final = Limits(tick_ms=20, heartbeat_ms=50, suspect_after_ms=200, handshake_ms=500)


class Scene:
    """The cluster, its clients, and the acts of a scene. ``recorder`` takes down what happens."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.recorder = recorder = WorldRecorder()
        self._env = env = Environment(seed, 0, recorder)
        env.draining = True  # clients begin nothing by themselves
        env.network.weather = Weather(latency_s=0.0005, jitter_s=0.0001)
        self._plan = _plan(nodes)
        env.queues[:] = [self._plan]
        self.checkers = checkers = Checkers(env.scheduler, recorder)
        self.nodes = {
            node: SimNode(
                env, checkers, lambda _name, _node: None, node=node, nodes=nodes, limits=_LIMITS,
                store_config=store_config(env.chance), store_policy=OwnersThread, inline_share=0.0,
            )
            for node in map(NodeId, range(1, nodes + 1))
        }  # fmt: skip
        for node in self.nodes.values():
            node.start()
        self._clients: list[SimClient] = []

    # Acts

    def client(self, node: int, *, consumes: bool = False) -> SimClient:
        """A client that is connected to a node, and waits until it has declared the queue."""
        env, checkers = self._env, self.checkers
        crowd = Crowd(env, checkers.ledger, checkers.story, node_ids=[NodeId(node)], large_bytes=0)
        crowd.fan_share = 0.0
        found = SimClient(crowd, len(self._clients) + 1)
        found.consumers, found.haste, found.gets, found.window = int(consumes), 0.0, 0.0, 100
        self._clients.append(found)
        self.until(lambda: found.is_quiet)
        return found

    def publish(self, client: SimClient, count: int = 1) -> None:
        """Have a client publish the next message, or some messages at once."""
        assert client.session is not None
        client.session._publisher.publish_to(self._plan, count)

    def cut(self, side: Iterable[int]) -> None:
        """Have the nodes of one side and the others no longer hear each other."""
        self._each_way(side, self._env.network.block)

    def mend(self, side: Iterable[int]) -> None:
        """Have both sides hear each other again."""
        self._each_way(side, self._env.network.unblock)

    def _each_way(self, side: Iterable[int], act: Callable[[str, str], None]) -> None:
        here = {*side}
        for one in here:
            for other in self.nodes.keys() - here:
                act(host_of(one), host_of(other))
                act(host_of(other), host_of(one))

    def kill(self, node: NodeId) -> None:
        """Kill the process of a node. It stays away until :meth:`start`."""
        self.nodes[node].is_lost = True
        self.nodes[node].crash(power=False)

    def start(self, node: NodeId) -> None:
        """Start the process of a node again."""
        self.nodes[node].is_lost = False
        self.nodes[node].start()

    def hand_over(self, leader: NodeId, to: NodeId) -> None:
        """Have the leader of the queue hand over to another member."""
        node, runner = self.nodes[leader], self.members()[leader]
        assert node.loop is not None and node.shard is not None
        node.loop.run(runner.core.transfer, to)
        node.loop.run(node.shard.wake, runner)

    def note(self, title: str, text: str) -> None:
        """Say something about this moment to the reader."""
        self.recorder.add("", "note", title=title, text=text)

    # Waiting

    def until(self, holds: Callable[[], bool]) -> None:
        """Let things happen until something holds. Raises AssertionError if that takes too long."""
        scheduler = self._env.scheduler
        end = scheduler.now + _PATIENCE_S
        while not holds():
            assert scheduler.now < end, "the scene does not come to its next step"
            scheduler.step()

    def rest(self, seconds: float) -> None:
        """Let a virtual while pass."""
        end = self._env.scheduler.now + seconds
        self.until(lambda: self._env.scheduler.now >= end)

    # Looking

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self._env.scheduler.now

    def members(self) -> dict[NodeId, GroupRunner]:
        """The members of the queue on the nodes that run."""
        found = {}
        for node, each in self.nodes.items():
            queue = each.shard.metadata.machine.queues.get(QUEUE) if each.shard is not None else None
            if queue is not None and each.shard is not None and queue.group in each.shard.runners:
                found[node] = each.shard.runners[queue.group]
        return found

    def leader(self, among: Iterable[int] = ()) -> NodeId | None:
        """The node that leads the queue, among some nodes or all; the leader of the highest term if there are two."""
        wanted = {*among} or self.nodes.keys()
        leaders = [(runner.core.term, node) for node, runner in self.members().items()
                   if node in wanted and runner.core.role is Role.LEADER]  # fmt: skip
        return max(leaders)[1] if leaders else None

    def confirmed(self, count: int) -> Callable[[], bool]:
        """Whether so many messages are confirmed."""
        return lambda: self.checkers.ledger.confirmed >= count

    def synced(self, index: int, nodes: Iterable[int]) -> Callable[[], bool]:
        """Whether the logs of these nodes are on disk up to an index."""
        wanted = [*nodes]
        return lambda: all(self.members()[NodeId(node)].core.log.synced_index >= index for node in wanted)

    def level(self) -> bool:
        """Whether all nodes have the same log, have applied all of it, and follow one leader."""
        found = [(runner.core.leader, runner.core.log.last_index, runner.core.log.last_term, runner.applied)
                 for runner in self.members().values()]  # fmt: skip
        same = len(found) == len(self.nodes) and len({*found}) == 1
        return same and found[0][0] != 0 and found[0][1] == found[0][3]

    def close(self) -> None:
        """Release everything."""
        for loop in [node.loop for node in self.nodes.values()] + [client.loop for client in self._clients]:
            if loop is not None:
                loop.kill()


def _plan(nodes: int) -> QueuePlan:
    arguments = (("x-queue-type", "quorum"), ("x-quorum-initial-group-size", nodes))
    return QueuePlan(QUEUE, arguments, is_kept=True, has_limits=False)
