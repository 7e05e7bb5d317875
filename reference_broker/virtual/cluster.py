"""A cluster of production nodes in a world: each node a process with files of its own, on one machine or on many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import reference_broker
from reference_broker.amqp.config import ConnectionConfig
from reference_broker.node.client import ClientConnection
from reference_broker.node.config import Limits, Member, NodeConfig
from reference_broker.node.shard import Shard
from reference_broker.types import NodeId
from reference_broker.virtual.costs import Costs
from reference_broker.virtual.files import VirtualDrive, VirtualFiles
from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.network import VirtualNetwork
from reference_broker.virtual.threads import VirtualPolicy
from reference_broker.virtual.world import Machine, Process, World

AMQP_PORT: Final = 5672
ROLES: Final = ("data", "segment", "wal", "classic")
"""What a node keeps on drives; each role is a directory of its own."""
_CLASSIC: Final = "/data/classic"
"""Where a node has its classic queues: on the drive of ``data``, unless they have a drive of their own."""
_PEER_PORT: Final = 5700
_TICK_S: Final = 0.5
_EPOCH_MS: Final = 1_735_689_600_000
_USERS: Final = {"guest": "guest"}
_REAL_TIMES: Final = frozenset(
    {
        "recovery_ns", "meta_sync_ns_total", "snapshot_sync_ns_total", "segment_sync_ns_total",
        "classic_sync_ns_total",
    }
)  # fmt: skip
"""Counters that the stores take from the clock of the real machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node: its machine, what its work costs, its drives by role, and its I/O policy (0: a thread for each store).
    Of the roles, ``classic`` may be left out."""

    machine: Machine
    costs: Costs
    drives: Mapping[str, VirtualDrive]
    pool: int = 0
    limits: Limits = field(default_factory=Limits)


class VirtualNode:
    """One node. ``failure`` says why the node has stopped, if it has."""

    def __init__(self, world: World, network: VirtualNetwork, config: NodeConfig, spec: NodeSpec, port: int) -> None:
        self.name = config.name
        self.process = Process(spec.machine, spec.costs)
        self.loop = VirtualLoop(world, self.process, network)  # type: ignore[abstract]
        self.is_listening = False
        self.failure = ""
        self.shard: Shard | None = None
        self._world = world
        self._config = config
        self._port = port
        self._network = network
        mounts = {_CLASSIC if role == "classic" else f"/{role}": drive for role, drive in spec.drives.items()}
        self._files = VirtualFiles(world, spec.costs, mounts)
        self._policy = VirtualPolicy(world, self.process, spec.pool)
        self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        chance = self._world.chance
        self.shard = Shard(
            self._config,
            1,
            self._failed,
            files=self._files,
            threads=False,
            policy=self._policy,
            now_ms=lambda: _EPOCH_MS + self._world.clock() // 1_000_000,
            random_bits=chance.getrandbits,
        )
        self.loop.create_task(self.shard.start())
        self.loop.create_task(self._tick())
        self.shard.when_ready(self._serve)

    def _serve(self) -> None:
        self._network.listen(self.loop, self._port, self._client)
        self.is_listening = True

    def _client(self) -> ClientConnection:
        assert self.shard is not None
        config = ConnectionConfig(
            users=_USERS,
            product="reference_broker",
            version=reference_broker.__version__,
            platform="simulated",
            cluster_name=self._config.cluster,
            node_properties={"node": self.name},
        )
        return ClientConnection(self.shard, config)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self.shard is not None:
                for connection in list(self.shard.clients.connections):
                    connection.tick()

    def _failed(self, error: str) -> None:
        self.failure = self.failure or error

    def sample(self) -> dict[str, Any]:
        """What a node tells of itself, as on its control port. Times that the real clock took are left out."""
        shard = self.shard
        metrics = {} if shard is None else {**shard.log.counters(), **shard.owned.counters()}
        known = {name: value for name, value in metrics.items() if name not in _REAL_TIMES}
        return {"node": self.name, "pid": 0, "cpu_ns": self.process.cpu_ns, "metrics": known}

    def end(self) -> None:
        """End all threads and tasks of the node."""
        self.loop.kill()
        self._policy.end()


class VirtualCluster:
    """All nodes. The clients' addresses are in ``uris``."""

    def __init__(self, world: World, network: VirtualNetwork, specs: list[NodeSpec]) -> None:
        members = tuple(
            Member(
                node=NodeId(number),
                name=f"node{number}",
                host=spec.machine.name,
                amqp_port=AMQP_PORT + number,
                peer_port=_PEER_PORT + number,
                control_port=0,
            )
            for number, spec in enumerate(specs, 1)
        )
        self.uris = tuple(f"amqp://guest:guest@{member.host}:{member.amqp_port}" for member in members)
        self.nodes = [
            VirtualNode(world, network, _config(member, members, spec.limits), spec, member.amqp_port)
            for member, spec in zip(members, specs, strict=True)
        ]

    def is_ready(self) -> bool:
        """Whether clients can connect to every node."""
        return all(node.is_listening for node in self.nodes)

    @property
    def failure(self) -> str:
        """Why a node has stopped; empty if none has."""
        return next((f"{node.name}: {node.failure}" for node in self.nodes if node.failure), "")

    def end(self) -> None:
        """End all threads and tasks."""
        for node in self.nodes:
            node.end()


def start(world: World, cluster: VirtualCluster, on_step: Callable[[], None] = lambda: None) -> None:
    """Run the world until clients can connect to every node."""
    while not cluster.is_ready():
        world.step()
        on_step()
        if cluster.failure:
            raise RuntimeError(cluster.failure)


def _config(member: Member, members: tuple[Member, ...], limits: Limits) -> NodeConfig:
    return NodeConfig(
        name=member.name,
        node=member.node,
        cluster="simulated",
        members=members,
        data_dir=Path("/data"),
        wal_dir=Path("/wal"),
        segment_dir=Path("/segment"),
        logs_dir=Path("/data"),
        users=_USERS,
        limits=limits,
        secret=b"what only the nodes of one world know",
    )
