"""A cluster of production nodes in a world: each node a process with files of its own, on one machine or on many.

A node can be killed, paused, resumed and started again. A kill ends the process and not the machine: what the process
wrote stays in the page cache, and what had reached the kernel's sockets is delivered. The next process of the node
starts over the same files, and pays for it: CPU time to load its modules and to read its log, and reads of what the
page cache has forgotten. A node that cannot go on, because its drive fails, ends by itself.
"""

from __future__ import annotations

import asyncio
from asyncio import _set_running_loop
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.product import REFERENCE
from reference_broker.node.alarms import Room
from reference_broker.node.clients.client_connection import ClientConnection
from reference_broker.node.config import Limits, Member, NodeConfig
from reference_broker.node.endpoints.status import busiest, counters, links, role
from reference_broker.node.shard import Shard
from reference_broker.types import NodeId
from reference_broker.virtual.costs import Costs
from reference_broker.virtual.files import VirtualDrive, VirtualFiles
from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.network import VirtualNetwork
from reference_broker.virtual.threads import VirtualPolicy, VirtualThread
from reference_broker.virtual.world import Machine, Process, VirtualWorld

AMQP_PORT: Final = 5672
ROLES: Final = ("data", "segment", "wal", "classic")
"""Roles of a node's directories on drives."""
_CLASSIC: Final = "/data/classic"
"""Role of classic queues: on the drive of ``data``, unless they have a drive of their own."""
_PEER_PORT: Final = 5700
_TICK_S: Final = 0.5
_EPOCH_MS: Final = 1_735_689_600_000
_START_NS: Final = 500_000_000
"""CPU time of a new process until its modules are loaded; of no process that the world begins with. Measured on
2026-11-23 on 2 cores of an AMD EPYC, Python 3.11."""
_PARSE_KIB_NS: Final = 5_200
"""CPU time to recover each KiB of a log, from 5.5 s for 1 GiB (docs/internals/log-and-storage.md)."""
_MUCH: Final = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node: its machine, what its work costs, its drives by role, and its I/O policy (0: a thread for each store).
    Of the roles, ``classic`` may be left out."""

    machine: Machine
    costs: Costs
    drives: Mapping[str, VirtualDrive]
    pool: int = 0
    limits: Limits = field(default_factory=Limits)


class ProcessState(StrEnum):
    """What the process of a node does."""

    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"


class VirtualNode:
    """One node. ``failure`` says why the process of the node has ended by itself, if it has."""

    def __init__(
        self, world: VirtualWorld, network: VirtualNetwork, config: NodeConfig, spec: NodeSpec, port: int
    ) -> None:
        self.name = config.name
        self.spec = spec
        self.boot_id = 0
        """How many processes this node has had."""
        self.state = ProcessState.DOWN
        self.is_listening = False
        self.failure = ""
        self._world = world
        self._config = config
        self._port = port
        self._network = network
        self._former_cpu_ns = 0
        mounts = {_CLASSIC if role == "classic" else f"/{role}": drive for role, drive in spec.drives.items()}
        self._files = VirtualFiles(world, spec.costs, mounts)
        self._begin_process()

    def _begin_process(self, cost_ns: int = 0) -> None:
        """A new process, which needs so much CPU time before it is the node."""
        self.boot_id += 1
        self.state, self.failure = ProcessState.RUNNING, ""
        self.shard: Shard | None = None
        self.process = Process(self.spec.machine, self.spec.costs)
        self.loop = VirtualLoop(self._world, self.process, self._network)  # type: ignore[abstract]
        self._policy = VirtualPolicy(self._world, self.process, self.spec.pool)
        self._starter = VirtualThread(self._world, self.process, "start", lambda thread: self._recover(thread, cost_ns))
        self._world.at(self._world.clock(), self._starter.resume)

    @property
    def answers(self) -> bool:
        """Whether the node can tell of itself."""
        return self.state is ProcessState.RUNNING and self.shard is not None

    # What becomes of the process

    def kill(self) -> None:
        """End the process at once, as SIGKILL does."""
        self.state, self.is_listening = ProcessState.DOWN, False
        for actor in self._actors():
            self._world.end(actor)
        self._network.end(self.loop)
        self._files = self._files.next_process()
        self._former_cpu_ns += self.process.cpu_ns
        self.end()

    def start(self) -> None:
        """Begin a process over the files of the one that has ended. All drives of the node are what they were."""
        for drive in self.spec.drives.values():
            drive.restore()
        self._begin_process(_START_NS)

    def pause(self) -> None:
        """Let the process do nothing, as SIGSTOP does. Its connections stay open."""
        self.state = ProcessState.PAUSED
        for actor in self._actors():
            self._world.hold(actor)

    def resume(self) -> None:
        """Let the process go on, as SIGCONT does."""
        self.state = ProcessState.RUNNING
        for actor in self._actors():
            self._world.release(actor)

    def _actors(self) -> list[object]:
        return [self.loop, self._starter, *self._policy.threads]

    def drive_changed(self) -> None:
        """Have the node look at once whether it has room."""
        if self.shard is not None:
            self.loop.call_soon(self.shard.check_alarms)

    @property
    def cpu_ns(self) -> int:
        """CPU time of all processes of the node."""
        return self._former_cpu_ns + (self.process.cpu_ns if self.state is not ProcessState.DOWN else 0)

    # The process

    def _recover(self, thread: VirtualThread, cost_ns: int) -> None:
        """Start the node. This takes long, so a thread does it: in an event loop it would be one turn, which runs ahead
        of everybody with whom the node shares machine and drives."""
        thread.spend(cost_ns)
        thread.wait_until(thread.at_ns)
        self._files.parse_kib_ns = _PARSE_KIB_NS
        _set_running_loop(self.loop)
        shard = self._new_shard(self._files)
        _set_running_loop(None)
        self._files.parse_kib_ns = 0
        self.loop.call_soon(self._join, shard)
        thread.park()

    def _new_shard(self, files: VirtualFiles) -> Shard:
        return Shard(
            self._config,
            self.boot_id,
            self._failed,
            files=files,
            threads=False,
            policy=self._policy,
            now_ms=lambda: _EPOCH_MS + self._world.clock() // 1_000_000,
            random_bits=self._world.chance.getrandbits,
            room=Room(lambda: 0, lambda place: 0 if files.drive(str(place)).is_full else _MUCH),
        )

    def _join(self, shard: Shard) -> None:
        self.shard = shard
        self.loop.create_task(shard.start())
        self.loop.create_task(self._tick(shard))
        shard.when_ready(self._serve)

    def _serve(self) -> None:
        self._network.listen(self.loop, self._port, self._client)
        self.is_listening = True

    def _client(self) -> ClientConnection:
        assert self.shard is not None
        config = ConnectionConfig(
            product=REFERENCE._replace(platform="simulated"),
            cluster_name=self._config.cluster,
            node_properties={"node": self.name},
        )
        return ClientConnection(self.shard, config)

    async def _tick(self, shard: Shard) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            shard.tick_clients()

    def _failed(self, error: str) -> None:
        """The node cannot go on: its process ends, once the world has the turn."""
        if not self.failure:
            self.failure = error
            self._world.at(self._world.clock(), self._give_up, self.loop)

    def _give_up(self, loop: VirtualLoop) -> None:
        if loop is self.loop and self.state is not ProcessState.DOWN:
            self.kill()

    def sample(self) -> dict[str, Any]:
        """What a node tells of itself, as on its control port."""
        sample = {"node": self.name, "pid": self.boot_id, "cpu_ns": self.process.cpu_ns}
        if (shard := self.shard) is None:
            return sample | {"metrics": {}}
        hosting = shard.hosting
        told = {"role": role(hosting), "metrics": counters(shard), "queues": busiest(hosting), "links": links(shard)}
        return sample | told

    def anatomy(self) -> dict[str, Any]:
        """Where the time of messages went since the start of the process, as on the control port."""
        if self.shard is None or self.state is not ProcessState.RUNNING:
            return {}
        identity = {"name": self.name, "node": self._config.node, "incarnation": self.boot_id}
        return identity | self.shard.anatomy.snapshot().to_json()

    def end(self) -> None:
        """End all threads and tasks of the process."""
        self.loop.kill()
        self._policy.end()
        self._starter.end()


class VirtualCluster:
    """All nodes. The clients' addresses are in ``uris``."""

    def __init__(self, world: VirtualWorld, network: VirtualNetwork, specs: list[NodeSpec]) -> None:
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


class Starting(Protocol):
    """A cluster that starts."""

    @property
    def failure(self) -> str:
        """Why a node has stopped; empty if none has."""

    def is_ready(self) -> bool:
        """Whether clients can connect to every node."""


def start(world: VirtualWorld, cluster: Starting, on_step: Callable[[], None] = lambda: None) -> None:
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
        classic_dir=Path(_CLASSIC),
        limits=limits,
        secret=b"what only the nodes of one world know",
    )
