"""A simulated cluster as the target of a timeline's actions: they take place at virtual time.

The caller is the simulated command, which has a machine of its own and works at no cost. A request goes to the event
loop of a node, costs a callback there, and is answered by the production code of a control port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from infra.cluster import ClusterError
from perftest.simulation.virtual_generator import EPOCH_NS
from reference_broker.node.drive_config import profile_of
from reference_broker.virtual.cluster import ProcessState, VirtualNode

if TYPE_CHECKING:
    from perftest.simulation.rabbitmq_nodes import RabbitNodes
    from reference_broker.virtual.cluster import VirtualCluster
    from reference_broker.virtual.loop import VirtualLoop

_ANSWER_S: Final = 60.0
_START_S: Final = 60.0
"""Longest time for a node to start, or to end by itself."""
_LOOK_AGAIN_S: Final = 0.02


class SimulatedTarget:
    """The cluster of one simulation (:class:`perftest.actions.action_target.ActionTarget`). ``roles`` gives the name of
    the drive of each role, and ``command`` is the event loop of the caller."""

    place = "simulated cluster"

    def __init__(self, cluster: VirtualCluster | RabbitNodes, roles: dict[str, str], command: VirtualLoop) -> None:
        self._nodes = {node.name: node for node in cluster.nodes if isinstance(node, VirtualNode)}
        self._roles = roles
        self._command = command

    def now_ns(self) -> int:
        """Of the world."""
        return EPOCH_NS + self._command.world.clock()

    def node(self, name: str) -> str:
        """The name itself. Raises ClusterError if there is no such node."""
        if name not in self._nodes:
            raise ClusterError(f"there is no node {name}", self.place, f"use one of {', '.join(self._nodes)}")
        return name

    async def leader(self, queue: str) -> str:
        """As any node answers."""
        return str((await self._change({"op": "leader", "queue": queue}))["leader"])

    async def change_members(self, do: str, queue: str, node: str) -> None:
        """By a request to any node."""
        await self._change({"op": do, "queue": queue, "node": node})

    async def kill(self, node: str) -> None:
        """At once."""
        if self._nodes[node].state is ProcessState.DOWN:
            raise ClusterError(f"{node} is not running", self.place, "start it first")
        self._nodes[node].kill()

    async def await_end(self, node: str) -> None:
        """Until the node meets its drive."""
        late = ClusterError(f"{node} goes on", self.place, "let the load write to the drive meanwhile")
        await self._until(lambda: self._nodes[node].state is ProcessState.DOWN, late)

    async def start(self, node: str) -> None:
        """Over the files that the node has."""
        started = self._nodes[node]
        if started.state is not ProcessState.DOWN:
            raise ClusterError(f"{node} already runs", self.place, "kill it first")
        started.start()
        late = ClusterError(f"{node} does not become ready", self.place, "start a majority of the nodes")
        await self._until(lambda: self._is_ready(started) or started.state is ProcessState.DOWN, late)
        if started.state is ProcessState.DOWN:
            raise ClusterError(f"{node} has ended: {started.failure}", self.place, "see why its start failed")

    async def pause(self, node: str) -> None:
        """At once."""
        self._running(node).pause()

    async def resume(self, node: str) -> None:
        """At once."""
        if self._nodes[node].state is not ProcessState.PAUSED:
            raise ClusterError(f"{node} is not paused", self.place, "pause it first")
        self._nodes[node].resume()

    async def drive(self, node: str, drive: str, do: str, **details: Any) -> None:
        """Change the drive, and have the node look whether it has room."""
        acted = self._nodes[node] if do == "restore" else self._running(node)
        role = next(role for role, name in self._roles.items() if name == drive)
        changed = acted.spec.drives[role]
        match do:
            case "slow":
                changed.slow(details["factor"])
            case "profile":
                changed.use(profile_of(details["profile"]))
            case _:
                getattr(changed, do)()
        acted.drive_changed()

    # Underneath

    def _running(self, name: str) -> VirtualNode:
        node = self._nodes[name]
        if node.state is not ProcessState.RUNNING:
            raise ClusterError(f"{name} is {node.state}", self.place, "bring the node back first")
        return node

    def _is_ready(self, node: VirtualNode) -> bool:
        """Whether clients can connect and all queues have leaders. Without a majority there can be no leader: then the
        node only needs to be there."""
        if node.shard is None:
            return False
        awake = sum(each.state is ProcessState.RUNNING for each in self._nodes.values())
        return 2 * awake <= len(self._nodes) or (node.is_listening and not node.shard.electing())

    async def _change(self, request: dict[str, object]) -> dict[str, Any]:
        """The answer of the first node that serves clients. Raises ClusterError if there is none, or it refuses."""
        asked = next(
            (node for node in self._nodes.values() if node.state is ProcessState.RUNNING and node.is_listening), None
        )
        if asked is None:
            raise ClusterError("no node of this cluster answers", self.place, "bring nodes back")
        assert asked.shard is not None
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        asked.loop.call_soon(
            asked.shard.operations.answer, request, lambda answer: self._command.call_soon(_settle, answered, answer)
        )
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await answered
        except TimeoutError:
            raise ClusterError(f"{asked.name} does not answer", self.place, "leave more time between actions") from None
        if "error" in answer:
            raise ClusterError(str(answer["error"]), self.place, str(answer.get("fix", "")))
        return answer

    async def _until(self, is_so: Callable[[], bool], late: ClusterError) -> None:
        for _ in range(round(_START_S / _LOOK_AGAIN_S)):
            if is_so():
                return
            await asyncio.sleep(_LOOK_AGAIN_S)
        raise late


def _settle(answered: asyncio.Future[dict[str, Any]], answer: dict[str, Any]) -> None:
    if not answered.done():
        answered.set_result(answer)
