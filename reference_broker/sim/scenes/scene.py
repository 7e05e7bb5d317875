"""A scene: the cluster, the clients, and the acts that a script has.

The nodes, drives and connections are those of every world, and every invariant is checked. Clients do what the script
says and nothing else, and the weather is the same all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from reference_broker.node.config import Limits
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.raft.roles import Role
from reference_broker.sim.clients import Crowd, SimClient, SimSession
from reference_broker.sim.environment import Checkers, Environment
from reference_broker.sim.network import Weather
from reference_broker.sim.node import SimNode, host_of
from reference_broker.sim.owned import store_config
from reference_broker.sim.queues import QueuePlan
from reference_broker.sim.recorder import WorldRecorder
from reference_broker.sim.traffic import SimConsumer
from reference_broker.storage.executor import OwnersThread
from reference_broker.types import NodeId

SOON_S: Final = 0.0004
"""Time in which a node tells what it has just become."""
_PATIENCE_S: Final = 30.0
"""Longest virtual time between two steps of a script."""
_CONSUMING: Final = 2
"""The channel of a client's first subscription."""
_LIMITS: Final = Limits(tick_ms=20, heartbeat_ms=50, suspect_after_ms=200, handshake_ms=500)


class Worker(SimClient):
    """A client that consumes one message at a time, and settles only what the script says."""

    def prefetch(self) -> int:
        """One message."""
        return 1

    def _act(self) -> None:
        pass

    @property
    def consumer(self) -> SimConsumer:
        """The subscription."""
        assert self.session is not None
        return self.session._consumers[_CONSUMING]

    def holds(self, message: int) -> Callable[[], bool]:
        """Whether the client has a message that is not settled, by its number."""
        return lambda: message in [number for _tag, number in self.consumer.held]


class Scene:
    """The cluster, its clients, and the acts of a scene. ``recorder`` takes down what happens."""

    def __init__(self, nodes: int, seed: int, queues: Iterable[QueuePlan]) -> None:
        """``queues``: every client declares them. The scene looks at the first one."""
        self.recorder = recorder = WorldRecorder()
        self._env = env = Environment(seed, 0, recorder)
        env.draining = True  # clients begin nothing by themselves
        env.network.weather = Weather(latency_s=0.0005, jitter_s=0.0001)
        env.queues[:] = queues
        self._plan = env.queues[0]
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
        """A client that is connected to a node, and waits until it has declared the queues."""
        client = SimClient(self._crowd(node), len(self._clients) + 1)
        self._begun(client, int(consumes))
        self.until(lambda: client.is_quiet)
        return client

    def worker(self, node: int) -> Worker:
        """A client that is connected to a node, and consumes the first queue."""
        client = Worker(self._crowd(node), len(self._clients) + 1)
        session = self._begun(client, 1)
        self.until(lambda: _CONSUMING in session._consumers and session._consumers[_CONSUMING].is_consuming)
        return client

    def _crowd(self, node: int) -> Crowd:
        env, checkers = self._env, self.checkers
        crowd = Crowd(env, checkers.ledger, checkers.story, node_ids=[NodeId(node)], large_bytes=0)
        crowd.fan_share = 0.0
        return crowd

    def _begun(self, client: SimClient, consumers: int) -> SimSession:
        """The connection of a client, as soon as the queues are declared."""
        client.consumers, client.haste, client.gets, client.window = consumers, 0.0, 0.0, 100
        self._clients.append(client)
        self.until(lambda: client.session is not None and client.session._is_running)
        assert client.session is not None
        return client.session

    def publish(self, client: SimClient, count: int = 1) -> None:
        """Have a client publish the next message, or some messages at once."""
        assert client.session is not None
        client.session._publisher.publish_to(self._plan, count)

    def ask(self, of: NodeId, **request: Any) -> Callable[[], bool]:
        """Ask a node for a change of the first queue, as an operator does. Returns whether the change has come true."""
        answers: list[dict[str, Any]] = []
        asked = self.nodes[of]
        assert asked.loop is not None and asked.shard is not None
        asked.loop.run(asked.shard.operations.answer, {"queue": self._plan.name, **request}, answers.append)

        def is_done() -> bool:
            assert not any("error" in each for each in answers), answers
            return bool(answers)

        return is_done

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

    def note(self, title: str, text: str, queue: str = "") -> None:
        """Say something about this moment to the reader, who is to see the logs of a queue (empty: the first)."""
        self.recorder.add("", "note", title=title, text=text, shows=queue or self._plan.name)

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

    def members(self, name: str = "") -> dict[NodeId, GroupRunner]:
        """The members of a queue (empty: of the first) on the nodes that run."""
        found = {}
        for node, each in self.nodes.items():
            queue = each.shard.metadata.machine.queues.get(name or self._plan.name) if each.shard is not None else None
            if queue is not None and each.shard is not None and queue.group in each.shard.runners:
                found[node] = each.shard.runners[queue.group]
        return found

    def leader(self, among: Iterable[int] = ()) -> NodeId | None:
        """The node that leads the queue, among some nodes or all; the leader of the highest term if there are two."""
        wanted = {*among} or self.nodes.keys()
        leaders = [(runner.core.term, node) for node, runner in self.members().items()
                   if node in wanted and runner.core.role is Role.LEADER]  # fmt: skip
        return max(leaders)[1] if leaders else None

    def led(self) -> NodeId:
        """The node that leads the queue, where there is one."""
        found = self.leader()
        assert found is not None
        return found

    def confirmed(self, count: int) -> Callable[[], bool]:
        """Whether so many messages are confirmed."""
        return lambda: self.checkers.ledger.confirmed >= count

    def has_seen(self, what: str, message: int) -> Callable[[], bool]:
        """Whether an event of a kind about a message has happened."""
        begin = len(self.recorder.events)
        return lambda: any(
            each.what == what and message in each.fields["messages"] for each in self.recorder.events[begin:]
        )

    def synced(self, index: int, nodes: Iterable[int]) -> Callable[[], bool]:
        """Whether the logs of these nodes are on disk up to an index."""
        return lambda: {*nodes} <= {*self.holders(index)}

    def holders(self, index: int) -> list[NodeId]:
        """The nodes whose logs are on disk up to an index."""
        return [node for node, runner in self.members().items() if runner.core.log.synced_index >= index]

    def last_index(self) -> int:
        """The place of the last entry in the leader's log."""
        return self.members()[self.led()].core.log.last_index

    def level(self) -> bool:
        """Whether all members have the same log, have applied all of it, and follow one leader."""
        members, leader = self.members(), self.leader()
        if leader is None or {*members} != {*members[leader].core.configuration.voters}:
            return False
        found = {(runner.core.leader, runner.core.log.last_index, runner.core.log.last_term, runner.applied)
                 for runner in members.values()}  # fmt: skip
        return found == {(leader, self.last_index(), members[leader].core.log.last_term, self.last_index())}

    def close(self) -> None:
        """Release everything."""
        for loop in [node.loop for node in self.nodes.values()] + [client.loop for client in self._clients]:
            if loop is not None:
                loop.kill()


def plan_of(name: str, members: int, *, buries: bool = False, **arguments: Any) -> QueuePlan:
    """A quorum queue with so many members. ``arguments`` have ``_`` for ``-`` in their names; with ``buries``, messages
    may leave the queue as dead letters."""
    given = {each.replace("_", "-"): value for each, value in arguments.items()}
    told = {"x-queue-type": "quorum", "x-quorum-initial-group-size": members, **given}
    return QueuePlan(name, tuple(told.items()), is_kept=True, has_limits=buries)


def names_of(nodes: Iterable[int]) -> str:
    """Two nodes and more as words: ``n1, n2 and n3``."""
    *others, last = [f"n{node}" for node in nodes]
    return f"{', '.join(others)} and {last}"
