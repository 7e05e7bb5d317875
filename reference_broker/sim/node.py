"""A node of the world: the production shard and its connections, on a simulated loop, network and drive.

:class:`SimShard` changes nothing; it shows the checkers everything that passes. :class:`SimNode` does the work of the
process around a shard: it serves clients, ticks, and stops when the log fails. Processes also have accidents: they are
killed, lose power at any operation of their drive, are suspended, and come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.classic.store import StoreConfig
from reference_broker.log.errors import LogError
from reference_broker.log.notices import Notice, SnapshotInstalled, SnapshotTaken
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.consumers import Status
from reference_broker.machines.effects import DeadLetter
from reference_broker.message_run import RunSlice
from reference_broker.node.clients.client_channel import ClientChannel
from reference_broker.node.clients.client_connection import ClientConnection
from reference_broker.node.config import Limits, Member, NodeConfig
from reference_broker.node.links.boot_ids import BootIds
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.peers import Peers
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.shard import Shard
from reference_broker.queues.port import DeadMessage
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.roles import Role
from reference_broker.sim import fifo_checks
from reference_broker.sim.disk import CLASSIC, PowerLossError, SimFiles
from reference_broker.sim.environment import Checkers, Environment
from reference_broker.sim.invariants import ViolationError, check
from reference_broker.sim.loop import SimLoop
from reference_broker.sim.owned import SimOwnedQueues, Watch
from reference_broker.storage.executor import Executor, IoPolicy
from reference_broker.storage.files import Files
from reference_broker.types import METADATA_GROUP, ConsumerId, Entry, EntryKind, GroupId, LogIndex, NodeId

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
    """A shard that shows the checkers what passes."""

    def __init__(self, owner: SimNode, config: NodeConfig, boot_id: int) -> None:
        self.owner = owner
        self.checks = owner.checkers.raft
        self.story = owner.checkers.story
        self.jumped = False
        self.breaks = 0
        """How often a link broke or a leader changed. Since then, a non-member may have missed something that was taken
        back."""
        self._is_told = self._is_shown = False
        super().__init__(
            config,
            boot_id,
            owner.failed,
            files=owner.files,
            threads=False,
            now_ms=owner.now_ms,
            random_bits=owner.env.chance.getrandbits,
        )
        setattr(self.log, "write", partial(owner.write, self.log))  # noqa: B010 - a method, for this log alone
        self._show_looks()
        self._show_frames()
        self._show_deliveries()
        self._show_letters()

    def _owned_queues(self, files: Files, policy: IoPolicy) -> OwnedQueues:
        owner = self.owner
        watch = Watch(
            self.node, owner.files, owner.checkers.classic, self.story, partial(owner.moment, "stored", owner)
        )
        return SimOwnedQueues(owner.store_config, owner.store_policy, watch, self._call_soon, self._failed)

    def _show_looks(self) -> None:
        """Have the ledger hear when nobody could tell whether a queue exists."""
        when_queues_current, ledger = self.reads.when_queues_current, self.owner.checkers.ledger

        def shown(call: Callable[[bool], None]) -> None:
            def looked(found: bool) -> None:
                ledger.is_unsure = ledger.is_unsure or not found
                call(found)

            when_queues_current(looked)

        setattr(self.reads, "when_queues_current", shown)  # noqa: B010 - a method that is shown, not replaced

    def _show_log(self) -> None:
        """Show the log's methods. This must be done before the first member is at work, because some members are
        deleted while the shard is still being made."""
        self._is_shown = True
        self._show("append", self.story.appended, self._appends)
        self._show("truncate_from", self.story.truncated, self.checks.truncated)
        self._show("reset", self.story.reset, self.checks.reset)
        self._show("delete_group", self.story.left, self.checks.left)

    def _show(self, name: str, tell: Callable[..., None], checker: Callable[..., None]) -> None:
        """Have the story and a checker see each call of a method of the log before the log does."""
        method, node = getattr(self.log, name), self.node

        def shown(*arguments: Any) -> Any:
            tell(node, *arguments)
            checker(node, *arguments)
            return method(*arguments)

        setattr(self.log, name, shown)

    def _appends(self, node: NodeId, group: GroupId, entries: Sequence[Entry]) -> None:
        changes = [entry for entry in entries if entry.kind is EntryKind.CONFIG]
        if changes and (runner := self.runners.get(group)) is not None:
            # A sole voter syncs, commits and applies a change, and begins the next one, all in one step of its node.
            self.checks.looked_at(node, runner)
        self.checks.appended(node, group, entries)
        if changes and group != METADATA_GROUP and self.runners[group].core.role is Role.LEADER:
            for change in changes:
                former = self.runners[group].core.configuration_at(LogIndex(change.index - 1))
                self.owner.checkers.members.changed(group, former, Configuration.decode(change.payload))
        if changes:
            self.owner.moment("change", self.owner)

    def _shown(self, notify: Callable[[list[Notice]], None]) -> Callable[[list[Notice]], None]:
        def shown(notices: list[Notice]) -> None:
            self.story.noticed(self.node, notices)
            self.checks.noticed(self.node, [each for each in notices if self._is_current(each)])
            for notice in notices:
                if isinstance(notice, SnapshotTaken | SnapshotInstalled):
                    self.owner.moment("snapshot" if isinstance(notice, SnapshotTaken) else "install", self.owner)
            notify(notices)

        return shown

    def _is_current(self, notice: Notice) -> bool:
        """Whether a notice is about the present replica of its group. Late notices of a member that left belong to an
        earlier replica than the replica that joined since."""
        group, log_uid = getattr(notice, "group", None), getattr(notice, "log_uid", None)
        return group is None or log_uid is None or self.hosting.log_uids.get(group, log_uid) == log_uid

    def runner_made(self, runner: GroupRunner, state: RecoveredGroup | None) -> None:
        """Check what recovery found, and have the checkers see what is applied."""
        if not self._is_shown:
            self._show_log()
        name = runner.host.record.name if isinstance(runner.host, QuorumMember) else "metadata"
        self.story.begins(self.node, runner, name, state)
        self.checks.recovered(self.node, runner, state)
        if state is None and isinstance(runner.host, QuorumMember) and runner.host.record.membership_epoch(self.node):
            self.jumped = True  # the member delivers again what the leader told when this node was a non-member
            self.owner.moment("join", self.owner)
        self._show_applies(runner)

    def queue_gone(self, record: QueueRecord) -> None:
        """The deletion of a queue is committed."""
        self.checks.deleted(record.group)
        self._ids_begin_anew(record)
        super().queue_gone(record)

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the owner of a classic queue broke, and so did all subscriptions over it."""
        self._ids_begin_anew(record)
        super().queue_lost(record)

    def _ids_begin_anew(self, record: QueueRecord) -> None:
        channels = [each for each in self.clients.channels.values() if isinstance(each, ClientChannel)]
        consumers = [consumer for channel in channels for consumer in channel.consumers.values()]
        elsewhere = {consumer.id for consumer in consumers if consumer.group != record.group}
        self.owner.checkers.deliveries.queue_gone({channel.id for channel in channels}, elsewhere)

    def _show_applies(self, runner: GroupRunner) -> None:
        host: Any = runner.host
        apply, install, node, group = host.apply, host.install, self.node, runner.group
        truth, former, absences = self.checks.group(group), runner.applied, self.owner.checkers.absences
        is_queue, ledger, story = isinstance(host, QuorumMember), self.owner.checkers.ledger, self.story

        def shown(entry: Entry, end: int, skip: frozenset[int]) -> None:
            nonlocal former
            story.applies(node, group, entry)
            self.checks.applies(node, group, entry, former)
            former = entry.index
            if is_queue:
                ledger.committed(host.machine.config.name, entry.payload)
            apply(entry, end, skip)
            absences.applied(group, entry.index)
            if group == METADATA_GROUP:
                self.owner.checkers.masters.applied(group, entry.index)
                self.owner.checkers.members.heard(host.machine.queues.values())
                self.owner.checkers.mirrors.heard(host.machine.queues.values())
            if entry.index % fifo_checks.COMPARE_EVERY == 0 and not truth.deleted:
                fifo_checks.compare(truth, node, entry.index, host.machine)
            if is_queue and entry.index % fifo_checks.LOOK_EVERY == 0:
                fifo_checks.look_through(node, host.machine)

        def jumps(*arguments: Any) -> None:
            nonlocal former
            self.jumped = True
            former = runner.applied
            story.installs(node, group, former)
            truth.member(node).applied = former
            install(*arguments)

        host.apply, host.install = shown, jumps

    def _new_peers(self, boots: BootIds) -> Peers:
        """Show each Raft message that leaves."""
        peers = super()._new_peers(boots)
        send = peers.send

        def shown(node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
            if kind is FrameKind.RAFT:
                self.story.sends(self.node, node, buffers[0])
                self.checks.sends(self.node, node, buffers[0], len(buffers) == 1)
            return send(node, kind, buffers)

        setattr(peers, "send", shown)  # noqa: B010 - a method that is shown, not replaced
        return peers

    def leader_changed(self, runner: GroupRunner) -> None:
        """Look at once, for a node that leads only for a moment is a leader, too."""
        self.story.stands(self.node, runner)
        self.checks.looked_at(self.node, runner)
        self.owner.checkers.absences.ended(self.node, [runner.group])
        if runner.core.leader == self.node:
            self.owner.moment("election", self.owner)
        super().leader_changed(runner)

    def _show_letters(self) -> None:
        """Show dead letters that are about to be routed."""
        dead_letter = self.services.dead_letter

        def shown(group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
            self.story.buries(self.node, group, letters, contents)
            life = self.boot_id if group in self.owned.runners else 0
            self.owner.checkers.dead_letters.sent(self.node, group, letters, life)
            self.owner.moment("letters", self.owner)
            dead_letter(group, letters, contents)

        setattr(self.services, "dead_letter", shown)  # noqa: B010 - a method that is shown, not replaced

    def _show_deliveries(self) -> None:
        """Show which node executes which delivery."""
        deliver = self.clients.deliver

        def shown(
            group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
        ) -> None:
            self.story.delivers(self.node, consumer, first_message_id, slices, delivery_count)
            count = sum(each[2] for each in slices)
            if self._is_told:
                breaks = self.breaks
            else:
                breaks = self._doubts_before(group, consumer, first_message_id, delivery_count)
            channel = self._channel_of(consumer)
            gap = self.jumped or channel is None  # a client that is gone hears of no gap
            known = channel.consumers.get(consumer.tag) if channel is not None else None
            if known is not None and known.next_message_id == first_message_id:
                gap = True  # it gave back unseen what is in between, was cancelled, and has subscribed anew
            self.owner.checkers.deliveries.executed(
                self.node, self.boot_id, consumer, first_message_id, count, gap, breaks, is_told=self._is_told
            )
            deliver(group, consumer, first_message_id, slices, delivery_count)

        setattr(self.clients, "deliver", shown)  # noqa: B010 - a method that is shown, not replaced

    def _doubts_before(self, group: GroupId, consumer: ConsumerId, first_message_id: int, delivery_count: int) -> int:
        """How many doubts the delivering member has had. A first delivery must come without doubt."""
        channel = self._channel_of(consumer)
        known = channel.consumers.get(consumer.tag) if channel is not None else None
        owner = self.owned.runners.get(group)
        if owner is not None and owner.ring is not None and owner.ring.record.mirrors and not delivery_count:
            applied, what = self.runners[METADATA_GROUP].applied, f"{first_message_id} to {consumer}"
            self.owner.checkers.masters.delivers(self.node, METADATA_GROUP, applied, what)
        runner = self.runners.get(group) if known is not None and known.group == group else None
        if runner is None or not isinstance(runner.host, QuorumMember):
            return 0
        if not delivery_count:
            what = f"{first_message_id} to {consumer}"
            self.owner.checkers.absences.delivers(self.node, runner.group, runner.applied, what)
        return runner.host._doubt.number

    def _channel_of(self, consumer: ConsumerId) -> ClientChannel | None:
        channel = self.clients.channels.get(consumer.channel.connection)
        return channel if isinstance(channel, ClientChannel) else None

    def peer_up(self, node: NodeId, boot_id: int) -> None:
        """Note it."""
        self.breaks += 1
        led = [group for group, runner in self.runners.items() if runner.core.leader == node]
        self.owner.checkers.absences.ended(self.node, led)
        super().peer_up(node, boot_id)

    def peer_down(self, node: NodeId) -> None:
        """Note it."""
        self.breaks += 1
        self.owner.checkers.masters.ended(self.node, [METADATA_GROUP])
        self.owner.moment("link", self.owner)
        super().peer_down(node)

    def _show_frames(self) -> None:
        """Note whether a delivery is made here, or comes from the leader of a queue that has no member here."""
        take = self.peer_frame

        def shown(node: NodeId, kind: int, body: memoryview) -> None:
            self.breaks += kind == FrameKind.LEADING
            self._is_told = kind == FrameKind.EFFECTS
            take(node, kind, body)
            self._is_told = False

        self.peer_frame = shown


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
        if seconds * 2000 >= self._config.limits.suspect_after_ms:
            self.env.scheduler.at(end, self._goes_on, self.loop)

    def _goes_on(self, loop: SimLoop) -> None:
        if loop is self.loop and self.shard is not None and loop.paused_until == self.env.scheduler.now:
            self.checkers.absences.ended(self.node, self.shard.runners)
            self.checkers.masters.ended(self.node, [METADATA_GROUP])

    def write(self, log: LogSystem) -> None:
        """Do the work of :meth:`LogSystem.write`. Either the event loop writes by itself and hears of it before this
        returns, or it wakes the thread of the log. In production the speed of the drive decides, here chance does."""
        writing, loop, scheduler = log.executors[0], self.loop, self.env.scheduler
        assert loop is not None
        if writing.name in self._busy:
            return  # the thread is awake and writes this, too
        if self.sync_s < _SLOW_S and self.env.chance.random() < self._inline_share:
            writing.go(here=True)
            loop.paused_until = max(loop.paused_until, scheduler.now + self._sync_time())
        else:
            self._wake(writing)

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
                self._look_for_forgotten(self.shard)
                self._look_at_mailers(self.shard)
                for connection in list(self.shard.clients.connections):
                    connection.tick()

    def _look_for_forgotten(self, shard: SimShard) -> None:
        """Check that a consumer on a reachable node does not stay suspended once the leader has nothing more to say
        about it."""
        for runner in shard.runners.values():
            host = runner.host
            if not isinstance(host, QuorumMember) or not host.leading or runner.applied < runner.core.log.last_index:
                continue
            if any(True for commands in runner.unapplied for _ in commands.all()):
                continue
            for consumer in host.machine.state.all_consumers():
                channel = consumer.id.channel
                if consumer.status is Status.SUSPECTED and shard.nodes.boot_id_of(channel.node) == channel.boot_id:
                    where = f"queue {host.record.name}: node {self.node} leads and can reach node {channel.node}"
                    raise ViolationError("I18", f"{where}, but {consumer.id} is suspended")

    def _look_at_mailers(self, shard: SimShard) -> None:
        """Check that a node that no longer leads has left the dead letters to its successor."""
        for group in shard.dead_letters.mailing:
            runner = shard.runners.get(group)
            leads = runner is not None and isinstance(runner.host, QuorumMember) and runner.host.leading
            check(leads, "X6", f"node {self.node} does not lead group {group:x}, and sends its letters")

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
        for runner in shard.runners.values():
            core = runner.core
            member = self.checkers.raft.groups[runner.group].members[self.node]
            if (
                core.commit_index != member.commit
                or member.lost
                or runner.applied != member.applied
                or (core.leader == self.node and core.term != member.leads_in)
            ):
                if core.commit_index != member.commit:
                    self.checkers.story.committed(self.node, runner, member.commit)
                self.checkers.raft.looked_at(self.node, runner)
        housekeeping = shard.log.executors[1]
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
        first, last = (
            member.snapshot + 1,
            max(member.terms, default=0),
        )  # the entries that the log knows, not those that the core knows
        live = runner.host.lowest_live_entry()
        if live is not None and chance.random() < 0.5:
            self.checkers.raft.reads(self.node, runner, live, live=True)
        elif first <= last:
            self.checkers.raft.reads(self.node, runner, chance.randint(first, last))

    # For the end

    def is_ready(self) -> bool:
        """Whether the node knows a leader of the metadata group."""
        return self.shard is not None and self.shard.runners[METADATA_GROUP].core.leader != 0
