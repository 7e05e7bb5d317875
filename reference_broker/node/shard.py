"""One shard of one node: a log, a set of Raft groups, the links to the peers, the channels of its clients.

A node is one shard today. Nothing here is global to the process, so that a node may become several processes, each
owning whole queues.

The shard decides when things run. All inputs of one turn of the event loop (sockets, notices of the log, timers)
are taken first;
then every group that has something to do gets one :meth:`~reference_broker.node.group.GroupRunner.turn`, and at
last every
connection that has something to say is flushed. So one turn makes at most one entry per queue and one write per socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.log.config import LogConfig
from reference_broker.log.files import Files, RealFiles
from reference_broker.log.notices import (
    Failed,
    GroupCreated,
    GroupDeleted,
    HardStateSynced,
    Notice,
    RolledOver,
    SnapshotInstalled,
    SnapshotRejected,
    SnapshotTaken,
    Written,
)
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.machines.commands import NodeDown, NodeUp, Tick
from reference_broker.machines.effects import DeadLetter
from reference_broker.machines.metadata import QueueRecord, record_from_json, record_to_json
from reference_broker.node.alarms import Alarms
from reference_broker.node.clock import host_clock
from reference_broker.node.config import NodeConfig
from reference_broker.node.dead_letters import DeadLetters
from reference_broker.node.group import GroupRunner, Host
from reference_broker.node.metadata import MetadataHost
from reference_broker.node.peers import Kind, Peers
from reference_broker.node.proposals import Lane, Proposal
from reference_broker.queues.quorum import Letter, Piece, QuorumQueue
from reference_broker.raft import wire
from reference_broker.raft.core import RaftConfig, RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import Message
from reference_broker.raft.ready import HardState, Role
from reference_broker.types import METADATA_GROUP, NOBODY, ChannelId, ConsumerId, GroupId, LogIndex, NodeId, Term

log = logging.getLogger(__name__)

_NODE_COMMAND_BYTES = 64
_FORGET_EVERY = 64
_EARLY_MAX = 256


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Connection(Protocol):
    """A client connection, as the shard sees it."""

    def deliver(self, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int) -> None:
        """Messages for a consumer of this connection."""

    def committed(self, channel: int, group: GroupId, last: int) -> bool:
        """Enqueues of a channel are committed; whether its client gets a confirm of any."""

    def rejected(self, channel: int, group: GroupId, first: int, last: int) -> None:
        """Enqueues of a channel were refused by a full queue."""

    def replied(self, correlation: int, value: int) -> None:
        """A command of a channel was applied."""

    def flush(self) -> None:
        """Write what has gathered."""

    def tick(self) -> None:
        """Heartbeats and time-outs."""

    def close(self, text: str) -> None:
        """The node stops."""

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue that the connection may use is gone."""


class Queue:
    """A queue that runs on this node: its record, its host and its runner."""

    __slots__ = ("host", "record", "runner")

    def __init__(self, record: QueueRecord, host: QuorumQueue, runner: GroupRunner) -> None:
        self.record = record
        self.host = host
        self.runner = runner


class Shard:
    """Everything of one node but its listening sockets."""

    def __init__(
        self,
        config: NodeConfig,
        incarnation: int,
        failed: Callable[[str], None],
        *,
        files: Files | None = None,
        threads: bool = True,
        now_ms: Callable[[], int] = _now_ms,
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        """Made within the running event loop, whose clock and sockets it uses.

        The keywords are the rest of the world: a file system (the machine's own by default), whether the log has
        threads or the owner calls ``log.run_pending``, a wall clock in milliseconds, and chance. Stamps of the latency
        anatomy are taken from the host's monotonic clock; without threads, where a seed decides what happens and the
        octets of entries with it, from the event loop's.
        """
        self.config = config
        self.now_ms = now_ms
        self.random_bits = random_bits
        self.node = config.node
        self.incarnation = incarnation
        self.limits = config.limits
        self.queues: dict[str, Queue] = {}
        self._by_group: dict[GroupId, Queue] = {}
        self.clients: dict[Connection, None] = {}  # a set, in the order of arrival
        self.connections: dict[int, Connection] = {}
        """By the number that stands in the identity of a channel of theirs."""
        self.runners: dict[GroupId, GroupRunner] = {}
        self.metadata = MetadataHost(self)
        self.dead_letters = DeadLetters(self)
        directories = (config.data_dir, config.wal_dir, config.segment_dir)
        self.alarms = Alarms(config.limits, directories)
        self._failed = failed
        self._loop = loop = asyncio.get_running_loop()
        self.now_ns = time.monotonic_ns if threads else lambda: int(loop.time() * 1e9)
        self.anatomy = Anatomy(host_clock() if threads else 1)
        self._up: dict[NodeId, int] = {config.node: incarnation}
        self._watchers: dict[NodeId, set[GroupId]] = {}
        self._timers: dict[GroupId, int] = {}
        self._dirty: list[GroupRunner] = []
        self._touched: dict[Connection, None] = {}  # a set, in the order of arrival
        self._turn_scheduled = False
        self._ready_waiters: list[Callable[[], None]] = []
        self._tick_task: asyncio.Task[None] | None = None
        self._turns = 0
        self._thread = get_ident()
        self._writing_here = False
        self._notices: deque[list[Notice]] = deque()
        self._channels = 0
        self._early: deque[tuple[GroupId, NodeId, Message]] = deque(maxlen=_EARLY_MAX)
        """Messages for groups that are not here: a new queue's first ones may overtake the news of the queue."""
        self.delivered = 0
        self.redelivered = 0
        self.log, recovered = LogSystem.open(
            self._log_config(),
            files or RealFiles(),
            self._notify,
            threads=threads,
            gather=self._write_soon,
            new_store=lambda: random_bits(128).to_bytes(16, "big"),
        )
        self.peers = Peers(config.me, config.members, config.cluster, incarnation, config.limits, self)
        self._recover(recovered)

    # Life

    async def start(self) -> None:
        """Join the cluster."""
        await self.peers.start()
        self._tick_task = self._loop.create_task(self._tick())

    def close(self) -> None:
        """Leave, orderly: nothing that was confirmed depends on it."""
        if self._tick_task is not None:
            self._tick_task.cancel()
        self.peers.close()
        self.log.close()

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call once the metadata group has a leader."""
        if self.runners[METADATA_GROUP].core.leader != NOBODY:
            call()
        else:
            self._ready_waiters.append(call)

    # What connections use

    def declare(self, record: QueueRecord, answered: Callable[[Queue], None]) -> None:
        """Create the queue if its name is free; ``answered`` gets the queue of that name once it has a leader."""

        def committed(existing: QueueRecord | None) -> None:
            if existing is None:  # declared and deleted again within entries that this node jumped over
                self.declare(record, answered)
                return
            queue = self.queues[existing.name]
            queue.runner.lead_if_nobody_does()
            self._when_led(queue, answered)

        self.runners[METADATA_GROUP].propose(*self.metadata.declare(record, committed))

    def delete(self, record: QueueRecord, answered: Callable[[], None]) -> None:
        """Delete this incarnation of the queue."""
        self.runners[METADATA_GROUP].propose(*self.metadata.delete(record, lambda _record: answered()))

    def new_channel(self, connection: Connection, number: int) -> ChannelId:
        """An identity that no channel had before: channel numbers are used again and again."""
        self._channels += 1
        self.connections[self._channels] = connection
        return ChannelId(self.node, self.incarnation, self._channels, number)

    def forget_channel(self, channel: ChannelId) -> None:
        """The channel is gone."""
        self.connections.pop(channel.connection, None)

    def check_alarms(self) -> None:
        """Look whether the node has disk and memory enough; connections notice a change at once."""
        if self.alarms.check():
            for connection in list(self.clients):
                self.touch(connection)

    def touch(self, connection: Connection) -> None:
        """Have the connection flushed at the end of this turn."""
        self._touched[connection] = None
        self._schedule()

    # queues.quorum.Clients

    def deliver(self, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int) -> None:
        """Hand messages to the connection of the consumer."""
        if (connection := self.connections.get(consumer.channel.connection)) is not None:
            connection.deliver(consumer, first_message_id, pieces, delivery_count)
            self.anatomy.hold(connection)
            count = sum(piece[2] for piece in pieces)
            self.delivered += count
            self.redelivered += count if delivery_count else 0
            self.touch(connection)

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        """Hand commits to the connection of the publisher."""
        if (connection := self.connections.get(channel.connection)) is not None:
            if connection.committed(channel.channel, group, last):
                self.anatomy.hold(connection)
            self.anatomy.drop()
            self.touch(connection)

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        """Hand refusals to the connection of the publisher."""
        if (connection := self.connections.get(channel.connection)) is not None:
            connection.rejected(channel.channel, group, first, last)
            self.touch(connection)

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        """Hand an answer to the connection that asked."""
        if (connection := self.connections.get(channel.connection)) is not None:
            connection.replied(correlation, value)
            self.touch(connection)

    def watch_node(self, group: GroupId, node: NodeId) -> None:
        """A leader wants to know about a node: tell it how things stand, and keep telling."""
        self._watchers.setdefault(node, set()).add(group)
        self._tell(group, node)

    def dead_letter(self, group: GroupId, letters: DeadLetter, contents: list[Letter]) -> None:
        """Send them on their way."""
        if (queue := self._by_group.get(group)) is not None:
            self.dead_letters.route(queue.record, letters, contents)

    def set_timer(self, group: GroupId, at_ms: int) -> None:
        """Keep the time, and propose a tick when it has come."""
        self._timers[group] = at_ms
        self.later(max(0, at_ms - _now_ms()) / 1000, lambda: self._timer_due(group, at_ms))

    def queue_expired(self, group: GroupId) -> None:
        """Delete the queue as a client would."""
        if (runner := self.runners.get(group)) is not None and isinstance(runner.host, QuorumQueue):
            self.delete(runner.host.record, lambda: None)

    # node.metadata.QueueStarter

    def queue_added(self, record: QueueRecord) -> None:
        """Run the queue's group here, and let it have its name: after a restart the log may tell of queues of that name
        that came and went before."""
        if record.group in self._by_group:
            self.queues[record.name] = self._by_group[record.group]
            return
        if self.node not in record.members:
            return
        self.log.create_group(record.group, record_to_json(record))
        runner = self._run_queue(record, None)
        for group, node, message in list(self._early):
            if group == record.group:
                runner.step(node, message)

    def queue_removed(self, record: QueueRecord) -> None:
        """Stop the queue's group, here and for good."""
        queue = self._by_group.pop(record.group, None)
        if queue is None:
            return
        del self.runners[record.group]
        queue.runner.stop()
        if self.queues.get(record.name) is queue:
            del self.queues[record.name]
        self.log.delete_group(record.group)
        self.dead_letters.queue_removed(record)
        for connection in list(self.clients):
            connection.queue_removed(record)
            self.touch(connection)

    def queues_replaced(self, records: Sequence[QueueRecord]) -> None:
        """After a jump over the metadata log: drop what no longer exists."""
        wanted = {record.group for record in records}
        for queue in list(self._by_group.values()):
            if queue.record.group not in wanted:
                self.queue_removed(queue.record)

    # node.group.Surroundings

    def send(self, node: NodeId, kind: Kind, buffers: list[bytes | memoryview]) -> bool:
        """Queue a frame for a peer."""
        return self.peers.send(node, kind, buffers)

    def wake(self, runner: GroupRunner) -> None:
        """Give the runner its turn at the end of this turn."""
        if not runner.scheduled:
            runner.scheduled = True
            self._dirty.append(runner)
            self._schedule()

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a while."""
        self._loop.call_later(delay_s, call)

    def leader_changed(self, runner: GroupRunner) -> None:
        """Note it, and let those go on who waited for a leader."""
        log.info(
            "group %x: %s, leader %d, term %d", runner.group, runner.core.role, runner.core.leader, runner.core.term
        )
        if runner.core.leader == NOBODY:
            return
        if runner.group == METADATA_GROUP or runner.group in self.runners:
            waiters, self._ready_waiters = self._ready_waiters, []
            for call in waiters:
                self._loop.call_soon(call)

    # node.peers.PeerEvents

    def peer_up(self, node: NodeId, incarnation: int) -> None:
        """A peer is there: groups resume with it, leaders tell their machines."""
        self._up[node] = incarnation
        first = min(self._up) == self.node and 2 * len(self._up) > len(self.config.members)
        for runner in self.runners.values():
            runner.peer_up(node)
            if first:
                runner.lead_if_nobody_does()
        for group in self._watchers.get(node, ()):
            self._tell(group, node)

    def peer_down(self, node: NodeId) -> None:
        """A peer is gone: groups suspect it, leaders tell their machines."""
        self._up.pop(node, None)
        for runner in self.runners.values():
            runner.peer_down(node)
        for group in self._watchers.get(node, ()):
            self._tell(group, node)

    def peer_frame(self, node: NodeId, kind: int, body: memoryview) -> None:
        """A frame for one of the groups. Raises ValueError if it is damaged."""
        if kind == Kind.RAFT:
            group, message = wire.decode(body)
            if (runner := self.runners.get(group)) is not None:
                self._guarded(runner.step, node, message)
            else:
                self._early.append((group, node, message))
        else:
            proposal, sealed = Proposal.unpack(body)
            if (runner := self.runners.get(proposal.group)) is not None:
                self._guarded(runner.proposed_by_peer, proposal, bytes(sealed))

    # Inside

    def _log_config(self) -> LogConfig:
        return LogConfig(
            wal_dir=self.config.wal_dir,
            data_dir=self.config.data_dir,
            segment_dir=self.config.segment_dir,
            cluster=self.config.cluster,
            node=self.config.node,
            wal_file_bytes=self.limits.wal_file_bytes,
            memtable_bytes=self.limits.memtable_bytes,
            sync=self.config.sync,
        )

    def _recover(self, recovered: dict[GroupId, RecoveredGroup]) -> None:
        if METADATA_GROUP not in recovered:
            self.log.create_group(METADATA_GROUP, b"")
        members = tuple(sorted(member.node for member in self.config.members))
        for group, state in recovered.items():
            if group != METADATA_GROUP:
                record = record_from_json(json.loads(self.log.groups_meta[group]))
                self._run_queue(record, state)
        self._run(METADATA_GROUP, members, self.metadata, recovered.get(METADATA_GROUP))

    def _run_queue(self, record: QueueRecord, state: RecoveredGroup | None) -> GroupRunner:
        host = QuorumQueue(record, self, self.now_ms)
        runner = self._run(record.group, record.members, host, state)
        host.payload, host.track = runner.payload, runner.track
        self.queues[record.name] = self._by_group[record.group] = Queue(record, host, runner)
        return runner

    def _run(
        self, group: GroupId, members: tuple[NodeId, ...], host: Host, state: RecoveredGroup | None
    ) -> GroupRunner:
        view, hard_state = LogView(), HardState(term=Term(0), voted_for=NOBODY)
        if state is not None:
            view = LogView.recovered(state.snapshot, state.terms, state.last_index)
            hard_state = HardState(term=state.term, voted_for=state.voted_for)
        timer = random.Random(f"{self.node}/{self.incarnation}/{group}")
        config = RaftConfig(
            election_ticks_min=self.limits.election_ticks_min, election_ticks_max=self.limits.election_ticks_max
        )
        core = RaftCore(self.node, members, view, hard_state, config, timer.randint)
        runner = self.runners[group] = GroupRunner(group, core, self.log, host, self)
        if state is not None and state.snapshot is not None:
            runner.restore(state.state)
        for node in members:
            if node != self.node and node not in self._up:
                runner.peer_down(node)
        self.wake(runner)
        return runner

    def _when_led(self, queue: Queue, call: Callable[[Queue], None]) -> None:
        if queue.runner.core.leader != NOBODY:
            call(queue)
        else:
            self._ready_waiters.append(lambda: self._when_led(queue, call))

    def _tell(self, group: GroupId, node: NodeId) -> None:
        runner = self.runners.get(group)
        if runner is None or runner.core.role is not Role.LEADER:
            return
        incarnation = self._up.get(node)
        command = NodeDown(node) if incarnation is None else NodeUp(node, incarnation)
        runner.propose(command, _NODE_COMMAND_BYTES, Lane.EXPRESS)

    def _timer_due(self, group: GroupId, at_ms: int) -> None:
        if self._timers.get(group) != at_ms:
            return
        del self._timers[group]
        if (runner := self.runners.get(group)) is not None and runner.core.role is Role.LEADER:
            runner.propose(Tick(), _NODE_COMMAND_BYTES, Lane.EXPRESS)

    def _schedule(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        self._guarded(self._work)

    def _guarded(self, call: Callable[..., None], *arguments: object) -> None:
        """A defect, or a safety violation, must not leave a node that looks alive and confirms nothing: it stops."""
        try:
            call(*arguments)
        except Exception as error:
            log.exception("defect")
            self._failed(f"defect: {error!r}")

    def _work(self) -> None:
        dirty, self._dirty = self._dirty, []
        for runner in dirty:
            runner.turn()
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.flush()
            if self.anatomy.waits:
                self.anatomy.written(connection, self.now_ns())
        self._turns += 1
        if self._turns % _FORGET_EVERY == 0:
            self._forget_bodies(dirty)

    def _forget_bodies(self, runners: Sequence[GroupRunner]) -> None:
        """Let the memory go of bodies that no message of the state lies in any more."""
        for runner in runners:
            if self.runners.get(runner.group) is not runner:
                continue  # removed in this very turn
            lowest = runner.host.lowest_live_entry()
            self.log.drop_payloads(runner.group, LogIndex(runner.applied if lowest is None else lowest))

    def _write_soon(self) -> None:
        """Something waits to be written: once what this turn has to say to the peers is under way."""
        self._loop.call_soon(self._guarded, self._write)

    def _write(self) -> None:
        self._writing_here = True
        self.log.write()
        self._writing_here = False

    def _notify(self, notices: list[Notice]) -> None:
        """Called in one of the log's threads, or in this one within :meth:`_write`."""
        self._notices.append(notices)
        if self._writing_here and get_ident() == self._thread:
            self._take_notices()
        else:
            self._loop.call_soon_threadsafe(self._guarded, self._take_notices)

    def _take_notices(self) -> None:
        """All there are, in their order: those of a thread may still wait for their turn when newer ones come."""
        while self._notices:
            self._take_some(self._notices.popleft())

    def _take_some(self, notices: list[Notice]) -> None:
        for notice in notices:
            if type(notice) is Written:
                self.anatomy.wal_synced(notice.written_ns, notice.synced_ns)
            match notice:
                case RolledOver():
                    for group in self.log.snapshot_due(self._needed_entries):
                        if (runner := self.runners.get(group)) is not None:
                            runner.take_snapshot()
                case Failed(error):
                    self._failed(error)
                case GroupCreated() | GroupDeleted():
                    pass  # nothing waits for these: a group's first write implies its creation
                case _:
                    self._take_group_notice(notice)

    def _needed_entries(self, group: GroupId) -> Sequence[tuple[int, int]] | None:
        runner = self.runners.get(group)
        return runner.needed_entries() if runner is not None else None

    def _take_group_notice(
        self, notice: Written | HardStateSynced | SnapshotTaken | SnapshotInstalled | SnapshotRejected
    ) -> None:
        runner = self.runners.get(notice.group)
        if runner is None:
            return
        match notice:
            case Written(_, index, term, begun_ns, written_ns, synced_ns):
                runner.synced(index, term, (begun_ns, written_ns, synced_ns))
            case HardStateSynced():
                runner.hard_state_synced()
            case SnapshotTaken(_, index, term):
                runner.snapshot_taken(index, term)
            case SnapshotInstalled(_, index, term, state):
                runner.snapshot_installed(index, term, state)
            case SnapshotRejected(_, index, _, error):
                log.warning("group %x: snapshot up to %d refused: %s", notice.group, index, error)
                runner.snapshot_rejected(index)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.limits.tick_ms / 1000)
            for runner in list(self.runners.values()):
                if runner.core.needs_tick:
                    runner.tick()
