"""All nodes, and what operators and clients declare: queues by name, exchanges with their bindings."""

from __future__ import annotations

from typing import Final

from perftest.rabbitmq_model.classic_queue import ClassicQueue
from perftest.rabbitmq_model.node import ModelledNode
from perftest.rabbitmq_model.quorum_queue import QuorumQueue

MEMBERS: Final = 3
"""Members of a quorum queue, if there are as many nodes."""


class RabbitCluster:
    """The cluster. A queue is on the node that declares the queue, and the leader of a quorum queue, too."""

    def __init__(self, nodes: list[ModelledNode]) -> None:
        self.nodes = nodes
        self.queues: dict[str, QuorumQueue | ClassicQueue] = {}
        self._deleted: list[QuorumQueue | ClassicQueue] = []
        self._bindings: dict[tuple[str, str], str] = {}

    def declare(self, name: str, kind: str, node: ModelledNode) -> QuorumQueue | ClassicQueue:
        """A new queue of a kind (``quorum`` or ``classic``), or the queue of this name."""
        if name not in self.queues:
            first = self.nodes.index(node)
            around = [*self.nodes[first:], *self.nodes[:first]]
            is_quorum = kind == "quorum"
            self.queues[name] = QuorumQueue(name, around[:MEMBERS]) if is_quorum else ClassicQueue(name, node)
        return self.queues[name]

    def delete(self, name: str) -> int:
        """Forget a queue, if there is one of this name; returns the number of its ready messages."""
        queue = self.queues.pop(name, None)
        if queue is None:
            return 0
        self._deleted.append(queue)
        return queue.ready.count

    @property
    def all_queues(self) -> list[QuorumQueue | ClassicQueue]:
        """Queues that are there, and queues that were deleted."""
        return [*self.queues.values(), *self._deleted]

    def bind(self, exchange: str, key: str, queue: str) -> None:
        """Route an exchange's messages with a key to a queue."""
        self._bindings[exchange, key] = queue

    def route(self, exchange: str, key: str) -> str:
        """The name of the queue of a message; empty if no queue gets the message."""
        return self._bindings.get((exchange, key), "") if exchange else key
