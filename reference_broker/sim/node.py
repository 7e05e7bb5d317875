"""A node of the world: the production shard and its connections, on a simulated loop, network and drive.

:class:`SimNode` does the work of the process around a shard: it serves clients, ticks, and stops when the log fails.
Processes also have accidents: they are killed, lose power at any operation of their drive, are suspended, and come
back. What passes is shown to the checkers by :mod:`reference_broker.sim.watch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.classic.store import StoreConfig
from reference_broker.log.errors import LogError
from reference_broker.node.clients.client_connection import ClientConnection
from reference_broker.node.config import Limits, Member, NodeConfig
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.node.shard import Shard
from reference_broker.sim.checks.invariants import ViolationError
from reference_broker.sim.disk import CLASSIC, PowerLossError, SimFiles
from reference_broker.sim.environment import Checkers, Environment
from reference_broker.sim.loop import SimLoop
from reference_broker.sim.owned import watched_kinds
from reference_broker.sim.watch import NodeWatch
from reference_broker.storage.executor import Executor, IoPolicy, OwnersThread
from reference_broker.storage.files import Files
from reference_broker.types import METADATA_GROUP, NodeId

AMQP_PORT: Final = 5672
PEER_PORT: Final = 5700
_TICK_S: Final = 0.5
_READ: Final = 0.1
_SLOW_S: Final = 0.001
_EPOCH_MS: Final = 1_700_000_000_000
_SECRET: Final = b"what only the nodes of the world know"


def host_of(node: int) -> str:
    """The name of a node's host."""
    return f"n{node}"


class SimShard(Shard):
    """A shard whose store of classic queues has limits and threads of its own."""

    def __init__(self, owner: SimNode, config: NodeConfig, boot_id: int) -> None:
        self._owner = owner
        checkers = owner.checkers
        self.watch = watch = NodeWatch(owner.node, owner.files, checkers, lambda name: owner.moment(name, owner))
        watch.shard = self
        super().__init__(
            config, boot_id, owner.failed, files=owner.files, threads=False,
            policy=cast(IoPolicy, partial(SimWriter, owner.write)),
            now_ms=owner.now_ms, random_bits=owner.env.chance.getrandbits,
            kinds=watched_kinds(owner.node, checkers), observer=watch,
        )  # fmt: skip
        self.housekeeping = self.log.executors[1]

    def _owned_queues(self, files: Files, policy: IoPolicy) -> OwnedQueues:
        owner = self._owner
        return OwnedQueues(
            owner.store_config, files, owner.store_policy, self._call_soon, self._failed, observer=self._observer
        )


class SimWriter(OwnersThread[Any]):
    """The writer of a log. In production the speed of the drive decides who writes, here the node does."""

    def __init__(
        self, written: Callable[[Executor[Any], Callable[[], None]], None], name: str,
        handle: Callable[[list[Any]], None], gather: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """``written`` gets the executor, and a call that writes at once."""
        super().__init__(name, handle, gather)
        self._written = written

    def go(self, *, here: bool) -> None:
        """Have the node decide, whatever the log would like."""
        self._written(self, partial(super().go, here=True))


class SimNode:
    """One node of the cluster over all its starts."""

    def __init__(
        self,
        env: Environment,
        checkers: Checkers,
        moment: Callable[[str, SimNode], None],
        *,
        node: NodeId,
        nodes: int,
        limits: Limits,
        store_config: StoreConfig,
        store_policy: IoPolicy,
        inline_share: float,
    ) -> None:
        """``moment`` hears of each step at which trouble would be bad. ``inline_share`` is the share of the writes that
        the event loop does by itself, if it may. ``store_config`` has the limits of the store of classic queues,
        and ``store_policy`` makes its writers."""
        self.store_config = store_config
        self.store_policy = store_policy
        self.env = env
        self.checkers = checkers
        self.moment = moment
        self.node = node
        self.host = host_of(node)
        self.files = SimFiles(env.scheduler, self.host)
        self.boot_id = 0
        self.clock_offset_ms = 0
        self.sync_s = 0.0003
        self.loop: SimLoop | None = None
        self.shard: SimShard | None = None
        self.is_lost = False
        """The node does not come back by itself."""
        self.is_awaited = False
        """The node comes back on a blank drive, once the others have agreed."""
        self.is_damaged = False
        """The drive of the node has lost synced octets, and the node does not count yet."""
        self.refused: Callable[[SimNode], None] = lambda _node: None
        """Hears that the log is refused, because the drive is damaged."""
        members = tuple(
            Member(node=NodeId(n), name=host_of(n), host=host_of(n), amqp_port=AMQP_PORT, peer_port=PEER_PORT,
                   control_port=PEER_PORT + 1)
            for n in range(1, nodes + 1)
        )  # fmt: skip
        self._config = NodeConfig(
            name=self.host, node=node, cluster="sim", members=members, data_dir=Path("data"), wal_dir=Path("wal"),
            segment_dir=Path("segments"), logs_dir=Path("logs"), classic_dir=Path(CLASSIC),
            limits=limits, secret=_SECRET,
        )  # fmt: skip
        self._inline_share = inline_share
        self._amqp = ConnectionConfig(heartbeat_s=0)
        self._busy: set[str] = set()
        self._stopping = False

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._config.cluster

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.loop is not None

    def suffer(self, trouble: Callable[[SimNode], None]) -> None:
        """Note one kind of trouble, and have it happen to the node, if the process runs."""
        if self.alive:
            self.env.note(self.host, "nemesis", trouble.__name__)
            trouble(self)

    def now_ms(self) -> int:
        """The wall clock of the node, which may jump."""
        return _EPOCH_MS + int(self.env.scheduler.now * 1000) + self.clock_offset_ms

    def counts_not_yet(self) -> bool:
        """Whether damage to the drive is not made good yet."""
        if self.is_damaged and self.shard is not None:
            self.is_damaged = bool(self.shard.hosting.forgetful)
        return self.is_damaged

    # Life

    def start(self) -> None:
        """Start the process on the drive as it is."""
        self.boot_id += 1
        self._stopping = self.files.injected = False
        self._busy.clear()
        loop = self.loop = SimLoop(self.env.scheduler, self.env.network, self.host)  # type: ignore[abstract]
        loop.on_idle, loop.on_error = self._after, self._raised
        self.env.note(self.host, "start", self.boot_id)
        self.env.network.host_up(self.host)
        loop.run(self._begin)

    def begin_blank(self, first_boot_id: int) -> None:
        """Start on a new drive, with a first boot id that the cluster chose. The replicas of the old drive are gone."""
        checks = self.checkers.raft
        self.checkers.ledger.drive_lost(self.node)
        for group, truth in checks.groups.items():
            if self.node in truth.members:
                checks.left(self.node, group)
        self.files = SimFiles(self.env.scheduler, self.host)
        self._config = replace(self._config, first_life=first_boot_id)
        self.boot_id = first_boot_id - 1
        self.is_lost = self.is_awaited = self.is_damaged = False
        self.start()

    def pause(self, seconds: float) -> None:
        """Stop the process for a while. After a long pause, the node has missed something."""
        assert self.loop is not None
        end = self.loop.paused_until = self.env.scheduler.now + seconds
        if self.env.recorder is not None:
            self.env.recorder.add(self.host, "pause", until=end)
        if seconds * 2000 >= self._config.limits.suspect_after_ms:
            self.env.scheduler.at(end, self._goes_on, self.loop)

    def _goes_on(self, loop: SimLoop) -> None:
        if loop is self.loop and self.shard is not None and loop.paused_until == self.env.scheduler.now:
            self.checkers.absences.ended(self.node, self.shard.runners)
            self.checkers.masters.ended(self.node, [METADATA_GROUP])

    def write(self, writer: Executor[Any], write_here: Callable[[], None]) -> None:
        """Have the log write. Either the event loop writes by itself and hears of it before this returns, or it wakes
        the thread of the log. In production the speed of the drive decides, here chance does."""
        loop, scheduler = self.loop, self.env.scheduler
        assert loop is not None
        if writer.name in self._busy:
            return  # the thread is awake and writes this, too
        if self.sync_s < _SLOW_S and self.env.chance.random() < self._inline_share:
            write_here()
            loop.paused_until = max(loop.paused_until, scheduler.now + self._sync_time())
        else:
            self._wake(writer)

    def _wake(self, executor: Executor[Any]) -> None:
        self._busy.add(executor.name)
        self.env.scheduler.after(self._sync_time(), self._disk, executor, self.boot_id)

    def _begin(self) -> None:
        assert self.loop is not None
        try:
            self.shard = SimShard(self, self._config, self.boot_id)
        except LogError as error:
            if not self.is_damaged:
                raise ViolationError("I10", f"node {self.node} cannot start: {error}") from error
            self._give_up_drive()
            return
        self.loop.create_task(self.shard.start())
        self.loop.create_task(self._tick())
        self.shard.when_ready(self._serve)
        self.moment("start", self)

    def _give_up_drive(self) -> None:
        """The log is refused: an operator has to replace the node."""
        assert self.loop is not None
        self.env.note(self.host, "refused", "")
        self.is_lost = self.is_awaited = True
        self.checkers.ledger.has_lost_classic_queues = True
        self.crash(power=True)
        self.env.scheduler.after(0.0, self.refused, self)

    def _serve(self) -> None:
        assert self.loop is not None
        self.env.network.listen(self.loop, AMQP_PORT, self._client)

    def _client(self) -> ClientConnection:
        assert self.shard is not None
        return ClientConnection(self.shard, self._amqp)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self.shard is not None:
                self.shard.watch.look()
                self.shard.tick_clients()

    def failed(self, error: str) -> None:
        """The shard gives up. Only an error of the drive may make it do so."""
        if error.startswith("defect") or not self.files.injected:
            raise ViolationError("X1", f"node {self.node} stops: {error}")
        if not self._stopping:
            self._stopping = True
            self.env.scheduler.after(0.001, self._stop, self.boot_id)

    def _stop(self, boot_id: int) -> None:
        if self.alive and boot_id == self.boot_id:
            self.crash(power=self.env.chance.random() < 0.5)

    def crash(self, *, power: bool, silent: bool = False) -> None:
        """End the process without a word. With ``power``, octets that were not synced are lost by chance."""
        assert self.loop is not None
        self.env.note(self.host, "power" if power else "kill", "")
        self.loop.kill()
        self.loop = self.shard = None
        self.checkers.ledger.process_ended(self.node)
        self.env.network.host_down(self.host, silent=silent)
        if power:
            self.files.crash(self.env.chance)
        self.files.repair()
        delay = 0.01 if self.env.draining else 0.02 + 2 * self.env.chance.random() ** 3
        self.env.scheduler.after(delay, self._restart)

    def _restart(self) -> None:
        if not self.alive and not self.is_lost:
            self.start()

    def _raised(self, error: BaseException) -> None:
        if isinstance(error, PowerLossError):
            self.crash(power=True, silent=self.env.chance.random() < 0.5)
        elif isinstance(error, OSError) and self.files.injected:
            self.crash(power=False)
        elif isinstance(error, ViolationError):
            raise error
        else:
            raise ViolationError("X1", f"node {self.node}: {error!r}") from error

    # After each step

    def _after(self) -> None:
        shard = self.shard
        if shard is None:
            return
        shard.watch.stepped()
        housekeeping = shard.housekeeping
        if housekeeping.waits and housekeeping.name not in self._busy:
            self._wake(housekeeping)
        store = shard.owned.store
        for executor in store.executors() if store is not None else ():
            if executor.waits and executor.name not in self._busy:
                self._wake(executor)

    def _sync_time(self) -> float:
        return self.sync_s * (0.2 + 4 * self.env.chance.random() ** 3)

    def _disk(self, executor: Executor[Any], boot_id: int) -> None:
        """A thread of the log takes its turn."""
        if boot_id != self.boot_id or self.loop is None:
            return
        if self.loop.paused_until > self.env.scheduler.now:
            self.env.scheduler.at(self.loop.paused_until, self._disk, executor, boot_id)
            return
        self._busy.discard(executor.name)
        self.loop.run(executor.run_pending)
        if self.loop is not None and self.env.chance.random() < _READ:
            self.loop.run(self._read_something)

    def _read_something(self) -> None:
        if self.shard is None or self.files.injected:
            return
        chance = self.env.chance
        runner = chance.choice(list(self.shard.runners.values()))
        member = self.checkers.raft.group(runner.group).member(self.node)
        first, last = member.snapshot + 1, max(member.terms, default=0)  # what the log knows, not what the core knows
        live = runner.host.lowest_live_entry()
        if live is not None and chance.random() < 0.5:
            self.checkers.raft.reads(self.node, runner, live, live=True)
        elif first <= last:
            self.checkers.raft.reads(self.node, runner, chance.randint(first, last))

    # For the end

    def is_ready(self) -> bool:
        """Whether the node knows a leader of the metadata group."""
        return self.shard is not None and self.shard.runners[METADATA_GROUP].core.leader != 0
