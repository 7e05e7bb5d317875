"""What the API asks of the cluster: rows of all nodes, changes of the metadata, and AMQP as a user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from reference_broker.machines.cluster.metadata import MetadataMachine
from reference_broker.machines.cluster.policies import in_force, in_force_for_exchange
from reference_broker.management import shapes
from reference_broker.management.rates import Rates
from reference_broker.management.session import ManagementSession
from reference_broker.management.shapes import Row
from reference_broker.node.links.peer_requests import Answer
from reference_broker.node.operations.figures import CLOSE, FIGURES
from reference_broker.node.shard import Shard
from reference_broker.routing.records import PREDECLARED
from reference_broker.types import NodeId

_TIMEOUT_S: Final = 30.0
_ROWS_A_TURN: Final = 200


class OperationError(Exception):
    """An operation was refused. ``fix`` says what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}: {fix}")


class ManagedCluster:
    """The cluster through one of its nodes."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.rates = Rates(time.monotonic)

    @property
    def machine(self) -> MetadataMachine:
        """The metadata as this node has applied it."""
        return self.shard.metadata.machine

    @property
    def nodes(self) -> shapes.Nodes:
        """The name of each node, and whether it is up."""
        nodes = self.shard.nodes
        return {node: (nodes.name(node), node in nodes.up) for node in nodes.all}

    def session(self, at: Row) -> ManagementSession:
        """AMQP as the user who asks, in the virtual host of the path."""
        return ManagementSession(self.shard, at["user"], at["vhost"])

    async def change(self, op: str, **values: Any) -> Answer:
        """An operation of operators. Raises :class:`OperationError`."""
        operations = self.shard.operations
        answer = await _answer(lambda answered: operations.answer({"op": op, **values}, answered))
        if "error" in answer:
            raise OperationError(answer["error"], answer["fix"])
        return answer

    async def rows(self, kind: str) -> list[Row]:
        """The rows of a kind (:mod:`reference_broker.node.operations.figures`) of all nodes that answer."""
        parts = await asyncio.gather(*(self._rows_of(node, kind) for node in self.shard.nodes.running))
        return [row for part in parts for row in part]

    async def _rows_of(self, node: NodeId, kind: str) -> list[Row]:
        found: list[Row] = []
        name = self.shard.nodes.name(node)
        following: int | None = 0
        while following is not None:
            request = {"op": FIGURES, "of": kind, "from": following}
            answer = await _answer(lambda answered, request=request: self.shard.requests.ask(node, request, answered))  # type: ignore[misc]
            following = answer.get("next")
            found += [{"node": name} | row for row in answer.get("rows", ())]
            await asyncio.sleep(0)  # the answer of this node itself takes no turn of the loop
        return found

    async def close_connection(self, name: str, reason: str) -> bool:
        """Close a client's connection, wherever it is. Returns whether there was one."""
        request = {"op": CLOSE, "name": name, "reason": reason}
        ask = self.shard.requests.ask
        answers = await asyncio.gather(
            *(_answer(lambda answered, node=node: ask(node, request, answered)) for node in self.shard.nodes.running)  # type: ignore[misc]
        )
        return any(answer.get("closed") for answer in answers)

    async def queues(self) -> list[Row]:
        """All queues, those of a virtual host together."""
        counts = {(row["vhost"], row["name"]): row for row in await self.rows("queues")}
        policies = list(self.machine.policies.values())
        nodes, found = self.nodes, []
        for name, record in sorted(self.machine.queues.items()):
            in_effect = in_force(policies, name), in_force(policies, name, operator=True)
            row = shapes.queue(record, counts.get((record.vhost, record.short_name)), in_effect, nodes)
            row["message_stats"] = self.rates.beside(row["message_stats"], "queue", name)
            found.append(row)
            if len(found) % _ROWS_A_TURN == 0:
                await asyncio.sleep(0)  # messages have their turn
        return found

    async def connections(self) -> list[Row]:
        """All connections of clients."""
        return [
            row | self.rates.beside(_octets(row), "connection", row["name"]) for row in await self.rows("connections")
        ]

    async def node_rows(self) -> list[Row]:
        """All nodes, also those that do not answer."""
        found = {row["name"]: row for row in await self.rows("node")}
        for name, row in found.items():
            row["message_stats"] = self.rates.beside(row["message_stats"], "node", name)
        return [found.get(name, {"name": name, "running": False}) for name, _is_up in self.nodes.values()]

    def exchanges(self) -> list[Row]:
        """All exchanges, the predeclared ones too."""
        policies = list(self.machine.policies.values())
        return [
            shapes.exchange(vhost, each, in_force_for_exchange(policies, vhost, each.name))
            for vhost in sorted(self.machine.access.vhosts)
            for each in [*PREDECLARED.values(), *self.machine.routing(vhost).declared()]
        ]

    def bindings(self) -> list[Row]:
        """All bindings, those of the default exchange too."""
        default = [shapes.default_binding(record) for _name, record in sorted(self.machine.queues.items())]
        return default + [
            shapes.binding(vhost, each)
            for vhost in sorted(self.machine.access.vhosts)
            for each in self.machine.routing(vhost).bindings()
        ]


def _octets(connection: Row) -> Row:
    return {name: connection[name] for name in ("recv_oct", "send_oct")}


async def _answer(ask: Callable[[Callable[[Answer], None]], None]) -> Answer:
    """The answer to a question that takes a callback. Raises TimeoutError."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def once(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    ask(once)
    return await asyncio.wait_for(answered, _TIMEOUT_S)
