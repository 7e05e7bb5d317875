"""Three whole nodes in virtual time on a network and drives that never fail: for what a cluster does, and how often.

Unlike a world of the simulator nothing here is left to chance but what a fixed seed draws, and no checker looks on, so
that a thousand queues are cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.config import Limits, Member, NodeConfig
from reference_broker.node.shard import Shard
from reference_broker.queues.kinds import KINDS
from reference_broker.queues.port import Queue, QueueKind
from reference_broker.raft.roles import Role
from reference_broker.sim.loop import Scheduler, SimLoop
from reference_broker.sim.network import Network
from reference_broker.sim.trace import Trace
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, NodeId

NODES = (NodeId(1), NodeId(2), NodeId(3))
_PATIENCE_S = 60.0
_EPOCH_MS = 1_700_000_000_000


class QuietCluster:
    """Three nodes that start, serve, and start again on what they have written."""

    def __init__(self, kinds: Mapping[str, QueueKind] = KINDS, **limits: int) -> None:
        self.kinds = kinds
        self.chance = Random(1)
        self.scheduler = Scheduler(self.chance, Trace(0))
        self.network = Network(self.scheduler)
        self.limits = Limits(**limits)
        self.files = {node: MemoryFiles() for node in NODES}
        self.boot_ids = dict.fromkeys(NODES, 0)
        self.loops: dict[NodeId, SimLoop] = {}
        self.shards: dict[NodeId, Shard] = {}
        self.groups = 0

    def start(self, *nodes: NodeId) -> None:
        """Start these, or all, and wait until all that run know of every queue."""
        ready: set[NodeId] = set()
        for node in nodes or NODES:
            self.begin(node, lambda node=node: ready.add(node))
        self.wait(lambda: len(ready) == len(nodes or NODES))

    def begin(self, node: NodeId, ready: Callable[[], None]) -> None:
        """Start one, and call when it knows of every queue."""
        self.boot_ids[node] += 1
        loop = self.loops[node] = SimLoop(self.scheduler, self.network, f"n{node}")  # type: ignore[abstract]
        loop.on_error = _raise
        self.network.host_up(loop.host)

        def begin() -> None:
            shard = self.shards[node] = Shard(
                self._config(node),
                self.boot_ids[node],
                _fail,
                files=self.files[node],
                threads=False,
                now_ms=lambda: _EPOCH_MS + int(self.scheduler.now * 1000),
                random_bits=self.chance.getrandbits,
                kinds=self.kinds,
            )
            loop.on_idle = lambda: self._write(shard)
            loop.create_task(shard.start())
            shard.when_ready(ready)

        loop.run(begin)

    def stop(self, *nodes: NodeId) -> None:
        """End their processes at once."""
        for node in nodes or NODES:
            self.loops.pop(node).kill()
            del self.shards[node]
            self.network.host_down(f"n{node}", silent=False)

    @staticmethod
    def _write(shard: Shard) -> None:
        """The drive takes no time."""
        shard.log.run_pending()

    def _config(self, node: NodeId) -> NodeConfig:
        members = tuple(
            Member(node=each, name=f"n{each}", host=f"n{each}", amqp_port=1, peer_port=2, control_port=3)
            for each in NODES
        )
        return NodeConfig(
            name=f"n{node}", node=node, cluster="c", members=members, data_dir=Path("data"), wal_dir=Path("wal"),
            segment_dir=Path("segments"), logs_dir=Path("logs"), classic_dir=Path("data/classic"), users={},
            limits=self.limits, secret=b"s",
        )  # fmt: skip

    # What happens

    def wait(self, done: Callable[[], bool]) -> None:
        """Let things happen until it is done."""
        end = self.scheduler.now + _PATIENCE_S
        while not done():
            assert self.scheduler.now < end, "it does not come to that"
            self.scheduler.step()

    def pass_time(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        end = self.scheduler.now + seconds
        self.wait(lambda: self.scheduler.now >= end)

    def declare(self, names: list[str], on: NodeId = NODES[0], kind: str = "quorum", **arguments: Any) -> None:
        """Declare queues one after the other, and wait until each of them can be used."""
        shard, loop = self.shards[on], self.loops[on]
        for name in names:
            self.groups += 1
            values = {"kind": kind, "arguments": tuple(sorted(arguments.items()))}
            record = QueueRecord(name=name, group=GroupId(self.groups), members=NODES, **values)
            answered: list[Queue] = []
            loop.run(lambda record=record, answered=answered: shard.declare(shard.place(record), answered.append))
            self.wait(lambda answered=answered: bool(answered) and answered[0].proposer.leader != NOBODY)

    def wait_for_leaders(self) -> None:
        """Every member of every group knows who leads."""
        self.wait(
            lambda: all(
                runner.core.leader != NOBODY for shard in self.shards.values() for runner in shard.runners.values()
            )
        )

    def leader(self, group: GroupId = METADATA_GROUP) -> Shard:
        """The node that leads a group."""
        return next(shard for shard in self.shards.values() if shard.runners[group].core.role is Role.LEADER)


def names(count: int, prefix: str = "q") -> list[str]:
    """So many names of queues."""
    return [f"{prefix}{number}" for number in range(count)]


@contextmanager
def quiet_cluster(kinds: Mapping[str, QueueKind] = KINDS, **limits: int) -> Iterator[QuietCluster]:
    """A cluster that has started; its loops end with the block."""
    cluster = QuietCluster(kinds, **limits)
    try:
        cluster.start()
        yield cluster
    finally:
        for loop in cluster.loops.values():
            loop.kill()


def _raise(error: BaseException) -> None:
    raise error


def _fail(error: str) -> None:
    raise AssertionError(error)
