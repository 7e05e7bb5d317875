"""A node of the model in a world of its own, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from perftest.rabbitmq_model.channel import ModelledChannel
from perftest.rabbitmq_model.cluster import RabbitCluster
from perftest.rabbitmq_model.consumer import Subscriber
from perftest.rabbitmq_model.costs import RabbitCosts
from perftest.rabbitmq_model.messages import MessageLot
from perftest.rabbitmq_model.node import ModelledNode
from perftest.rabbitmq_model.processes import Cores
from reference_broker.storage.drives.journal import JournalModel
from reference_broker.storage.drives.model import DriveModel
from reference_broker.storage.drives.profiles import DriveProfile
from reference_broker.worlds.agenda import Agenda

NOTHING = RabbitCosts(**dict.fromkeys(RabbitCosts.__dataclass_fields__, 0))
"""Costs of processes that work for nothing: drives alone take time."""
MS = 1_000_000
DRIVE = DriveProfile(name="test", latency_ns=MS, octets_per_second=10**18)
"""A drive whose every operation takes 1 ms."""
SYNC_NS = 3 * MS
"""A sync of a file that has grown: its pages, the blocks of the file system's journal, the commit record."""
ROLES = ("wal", "segment", "classic")


class World(Agenda[int]):
    """Virtual time."""

    def __init__(self) -> None:
        super().__init__(Random(1), 0)

    def run(self, until_ns: int = 1 << 62) -> None:
        """Let everything happen before a time, or at all."""
        while self._heap and self._heap[0][0] <= until_ns:
            self.step()


@dataclass
class RecordingClient:
    """A client that notes what it hears, by virtual time."""

    world: World
    confirmed: list[tuple[int, int, int]] = field(default_factory=list)
    delivered: list[tuple[int, int]] = field(default_factory=list)

    def confirm(self, _channel: ModelledChannel, first_seq: int, last_seq: int) -> None:
        """Publishes are safe."""
        self.confirmed.append((self.world.now, first_seq, last_seq))

    def deliver(self, _consumer: Subscriber, lot: MessageLot) -> None:
        """Messages leave for a consumer."""
        self.delivered.append((self.world.now, lot.count))


def nodes(
    world: World, count: int = 1, costs: RabbitCosts = NOTHING, link_ns: int = 0, **drives: Any
) -> list[ModelledNode]:
    """Nodes with a drive for each role, or with the same drive for roles that name the same profile."""
    return [
        ModelledNode(
            f"node{number}", f"host{number}", world, Cores(2), costs,
            {role: JournalModel(DriveModel(drives.get(role, DRIVE))) for role in ROLES},
            lambda _here, _there, _octets: world.now + link_ns,
            1.0,
        )
        for number in range(1, count + 1)
    ]  # fmt: skip


def cluster(world: World, count: int = 3, **options: Any) -> RabbitCluster:
    """A cluster of such nodes."""
    return RabbitCluster(nodes(world, count, **options))


def client_of(cluster: RabbitCluster, world: World, node: int = 0) -> tuple[RecordingClient, ModelledChannel]:
    """A client with a channel on one node."""
    client = RecordingClient(world)
    return client, ModelledChannel(cluster.nodes[node], client, 1, cluster.queues)


def lot(channel: ModelledChannel, queue: str, count: int, seq: int = 1, octets: int = 1000) -> MessageLot:
    """Messages with confirms."""
    return MessageLot(channel, queue, None, 0, count, octets, seq)
