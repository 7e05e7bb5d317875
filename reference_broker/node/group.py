"""One member of one Raft group, at work: the core, the log and the hosted machine, wired together.

The runner turns inputs (frames from peers, notices from the log, commands of local channels, ticks) into calls of
the pure core, and
carries out what the core's :class:`~reference_broker.raft.ready.Ready` asks for, in the order written there.

Batching happens here. Commands gather in the *outbox* until the group's previous entry is on this node's disk (or
the outbox is
full); then everything gathered becomes one entry. So the batch grows with the load and with the slowness of the
disk, and a lone
command waits for nothing: this is the rule that makes group commit pay at both ends of the in-flight curve.

Settles that nobody waits for are *lazy*: a few milliseconds long they wait for an enqueue to ride with, which at low
load halves the number of rounds. A settle whose consumer is short of credit is not lazy.

Work is done once per turn of the event loop (:meth:`GroupRunner.turn`), after all sockets were read.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.log.errors import EntryGoneError, SnapshotGoneError
from reference_broker.log.system import LogSystem
from reference_broker.node.config import Limits
from reference_broker.node.peers import Kind
from reference_broker.node.proposals import Lane, Pending, Proposal, Proposer, Seen, Segment, seal, sealed_at, unseal
from reference_broker.raft import wire
from reference_broker.raft.core import RaftCore
from reference_broker.raft.messages import InstallSnapshot, Message
from reference_broker.raft.ready import Ready, Role, Send, SendEntries, SendSnapshot
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

log = logging.getLogger(__name__)

_READ_MAX = 1 << 40
"""A range that the core asked to send is sent whole: the core bounds it in entries, the batch limit in octets."""


_HURRY_ENTRIES = 8
"""So many entries after the last hurried settle the group goes back to big batches."""


class Host(Protocol):
    """What a group replicates: a machine, and the execution of its effects on this node."""

    def encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        """The commands as one batch, stamped with the leader's time."""

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a batch forwarded at ``sent_ns``, which ends at octet ``end``, each with its size in
        octets."""

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry, whose batch ends at octet ``end``, but for the commands at the positions ``skip``; effects
        gather until :meth:`run_effects`."""

    def run_effects(self) -> None:
        """Carry out the effects of all entries applied since the last call."""

    def has_clients_on(self, node: NodeId) -> bool:
        """Whether somebody on that node waits for what is committed."""

    def became_leader(self) -> None:
        """This member leads now; everything committed so far is applied."""

    def lost_leadership(self) -> None:
        """This member no longer leads."""

    def snapshot(self) -> bytes:
        """The machine's state."""

    def restore(self, state: bytes) -> None:
        """At the start: take over this member's own snapshot, which may be older than what else is on its disk."""

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        """Replace the state by a newer one of another member's, jumping over entries that were never applied here.

        What their effects would have told this node's clients must be told now; ``skipped`` are this node's own
        commands among them.
        """

    def live_entries(self) -> Sequence[tuple[int, int]]:
        """Ranges of entries whose payload the state still refers to."""

    def lowest_live_entry(self) -> int | None:
        """The lowest of them, cheaply; None if there are none."""


class Surroundings(Protocol):
    """What a runner needs of its node."""

    node: NodeId
    incarnation: int
    limits: Limits
    anatomy: Anatomy

    def now_ns(self) -> int:
        """The host's monotonic clock."""

    def send(self, node: NodeId, kind: Kind, buffers: list[bytes | memoryview]) -> bool:
        """Queue a frame for a peer; False while it is down."""

    def wake(self, runner: GroupRunner) -> None:
        """Have ``runner.turn()`` called at the end of this turn of the event loop."""

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a while."""

    def leader_changed(self, runner: GroupRunner) -> None:
        """The runner's role, leader or term is another than before."""


class GroupRunner:
    """One member of one group."""

    def __init__(self, group: GroupId, core: RaftCore, system: LogSystem, host: Host, node: Surroundings) -> None:
        self.group = group
        self.core = core
        self.host = host
        self.applied = core.log.snapshot_index
        self.scheduled = False
        self._log = system
        self._node = node
        self._me = (node.node, node.incarnation)
        self._pending = {lane: Pending() for lane in Lane}
        self._outbox: dict[Lane, list[tuple[Any, int, Proposer, int]]] = {lane: [] for lane in Lane}
        """Command, octets, proposer, its number; by lane."""
        self._outbox_bytes = 0
        self._held: list[Ready] = []
        self._hard_state_writes = 0
        self._standing: tuple[Role, NodeId, Term] = (Role.FOLLOWER, NOBODY, core.term)
        """What the machine knows of; the only member of a group leads from the start, and the machine must hear it."""
        self._stopped = False
        self._snapshot_asked = LogIndex(0)  # a snapshot is being taken as long as this is above the log's own
        self._sending_snapshot = False
        self._installing: tuple[LogIndex, bytes] | None = None
        self._urgent = False  # the outbox holds a command that is not lazy
        self._waiting = False  # a timer runs for lazy ones
        self._put_off: dict[NodeId, SendEntries] = {}  # notices of a commit that nobody on the node waits for
        self._hurry_until = 0  # up to this entry, a consumer is short of credit
        self._seen = Seen()
        self.track = node.anatomy.track()

    # Inputs

    def propose(self, command: object, size: int, lane: Lane = Lane.BULK, *, lazy: bool = False) -> int:
        """Have ``command`` applied by every member, once, in this node's order within the lane; a lazy one a little
        later. Returns its number in the lane."""
        number = self._pending[lane].add(command, size)
        if self._standing[0] is Role.LEADER or self._standing[1]:
            self._gather(command, size, (self._me[0], lane, self._me[1]), number)
        self._urgent = self._urgent or not lazy
        if lane is Lane.EXPRESS and not lazy:
            self._hurry()
        self._node.wake(self)
        return number

    def proposed_by_peer(self, proposal: Proposal, sealed: bytes) -> None:
        """A follower's commands. Refused unless this member leads in just the term that the follower believes in."""
        if self._standing[0] is not Role.LEADER or proposal.term != self._standing[2]:
            return
        end, segments = unseal(sealed)
        sent_ns, clock = sealed_at(sealed)
        commands = iter(self.host.decode(sealed, end, sent_ns if clock == self._node.anatomy.clock else 0))
        for node, lane, incarnation, first, count in segments:
            for number, (command, size) in zip(range(first, first + count), commands, strict=False):
                self._gather(command, size, (node, lane, incarnation), number)
        self._urgent = True
        if proposal.hurried:
            self._hurry()
        self._node.wake(self)

    def step(self, sender: NodeId, message: Message) -> None:
        """A Raft message of a peer."""
        if isinstance(message, InstallSnapshot) and self.core.accepts(sender, message) and not self._store(message):
            return  # unanswered, so the leader sends it again
        self.core.step(sender, message)
        self._node.wake(self)

    def _store(self, chunk: InstallSnapshot) -> bool:
        return self._log.receive_chunk(self.group, chunk.index, chunk.index_term, chunk.number, chunk.last, chunk.data)

    def synced(self, index: LogIndex, term: Term, times: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Entries up to ``index`` are on this node's disk; write begun, write ended, sync ended at ``times`` (ns)."""
        self.track.synced(index, *times)
        self.core.synced(index, term)
        self._node.wake(self)

    def hard_state_synced(self) -> None:
        """One more hard state is on disk; the last one releases what was held back."""
        self._hard_state_writes -= 1
        if not self._hard_state_writes:
            held, self._held = self._held, []
            for ready in held:
                self._send_all(ready)
        self._node.wake(self)

    def snapshot_taken(self, index: LogIndex, term: Term) -> None:
        """A snapshot of this member's own state is on disk."""
        self.core.snapshot_taken(index, term)
        self._node.wake(self)

    def snapshot_installed(self, index: LogIndex, term: Term, state: bytes) -> None:
        """The leader's snapshot is on this node's disk: it replaces log and state."""
        self._drain()
        self.core.installed(index, term, self.core.configuration)
        if index > self.applied:
            self._installing = (index, state)
        self._node.wake(self)

    def snapshot_rejected(self, index: LogIndex) -> None:
        """What was received is not sound."""
        self.core.install_failed(index)
        self._node.wake(self)

    def restore(self, state: bytes) -> None:
        """At the start: take over the state of this member's own snapshot, as :meth:`take_snapshot` wrote it."""
        self._seen, machine_state = Seen.unpack(state)
        self.host.restore(machine_state)

    def lead_if_nobody_does(self) -> None:
        """Ask for votes at once instead of when a timer ends. Pre-vote makes it harmless if somebody leads."""
        if not self.core.leader:
            self.core.campaign()
            self._node.wake(self)

    def tick(self) -> None:
        """One unit of Raft's time."""
        self.core.tick()
        self._node.wake(self)

    def peer_up(self, node: NodeId) -> None:
        """The link to ``node`` stands again: whatever was under way to it may be lost."""
        self.core.node_up(node)
        if node == self.core.leader:
            self._start_over()
        self._node.wake(self)

    def peer_down(self, node: NodeId) -> None:
        """The link to ``node`` broke."""
        self.core.node_down(node)
        self._node.wake(self)

    # One turn

    def turn(self) -> None:
        """Everything that this turn's inputs made necessary."""
        self.scheduled = False
        if self._stopped:
            return
        self._drain()
        if self._outbox_bytes and self._due():
            if self._standing[0] is Role.LEADER:
                self._lead()
            elif self._standing[1]:
                self._forward()
        self._drain()
        if self._sending_snapshot and not self.core.pinned_snapshots():
            self._sending_snapshot = False
            self._log.release_snapshot(self.group)

    def stop(self) -> None:
        """The group is gone from this node, its log with it: whatever still calls, nothing more happens."""
        self._stopped = True

    def take_snapshot(self) -> None:
        """Write the state at the last applied entry, so that the log before it can go."""
        newest = self.core.log.snapshot_index
        if self._snapshot_asked > newest or self.applied <= newest:
            return
        term = self.core.log.term_at(self.applied)
        if term is None:
            return
        self._snapshot_asked = self.applied
        state = self._seen.pack() + self.host.snapshot()
        self._log.take_snapshot(self.group, self.applied, term, state, self.host.live_entries())

    def needed_entries(self) -> list[tuple[int, int]]:
        """The entries that a snapshot taken now would not free: live ones, and those that were not applied yet."""
        return [*self.host.live_entries(), (self.applied + 1, self.core.log.last_index + 1)]

    def payload(self, index: LogIndex) -> bytes:
        """The payload of an entry that the state refers to."""
        return self._log.payload(self.group, index)

    # Proposing

    def _hurry(self) -> None:
        self._hurry_until = self.core.log.last_index + _HURRY_ENTRIES

    def _due(self) -> bool:
        """Whether the outbox should become entries now; if it holds lazy commands only, soon."""
        if not self._urgent and not self._waiting:
            self._waiting = True
            self._node.later(self._node.limits.settle_delay_ms / 1000, self._wait_no_longer)
        return self._urgent

    def _wait_no_longer(self) -> None:
        self._waiting = False
        if self._outbox_bytes:
            self._urgent = True
            self._node.wake(self)

    def _gather(self, command: object, size: int, proposer: Proposer, number: int) -> None:
        self._outbox[proposer[1]].append((command, size, proposer, number))
        self._outbox_bytes += size

    def _lead(self) -> None:
        """Make entries of the outbox while the disk is idle or a full batch is there."""
        while self._outbox_bytes and self._has_room():
            commands, segments = self._cut_batch()
            payload = seal(self.host.encode(commands), segments, self._node.now_ns(), self._node.anatomy.clock)
            self.core.propose(EntryKind.COMMAND, payload, zlib.crc32(payload))
            self._node.anatomy.gauge("entry.bytes", len(payload))

    def _has_room(self) -> bool:
        """Whether another entry may follow those that are under way.

        Normally when the disk is idle, or when a full batch is there. While a consumer is short of credit its settles
        should not find a long line of entries before them: fewer and smaller ones then (see :meth:`_batch_bytes_max`).
        """
        limits, raft_log = self._node.limits, self.core.log
        if not self.core.accepting:
            return False
        uncommitted = raft_log.last_index - self.core.commit_index
        if raft_log.last_index < self._hurry_until:
            return uncommitted < limits.entries_uncommitted_hurried_max
        idle = raft_log.last_index - raft_log.synced_index < limits.rounds_in_flight_max
        return uncommitted < limits.entries_uncommitted_max and (idle or self._outbox_bytes >= limits.batch_bytes_max)

    def _batch_bytes_max(self) -> int:
        whole = self._node.limits.batch_bytes_max
        return whole // 2 if self.core.log.last_index < self._hurry_until else whole

    def _forward(self) -> None:
        """Send the outbox to the leader, in batches. If the link is down the commands stay pending."""
        _role, leader, term = self._standing
        hurried = self.core.log.last_index < self._hurry_until
        head = Proposal(group=self.group, term=term, hurried=hurried).pack()
        while self._outbox_bytes:
            commands, segments = self._cut_batch()
            sealed = seal(self.host.encode(commands), segments, self._node.now_ns(), self._node.anatomy.clock)
            self._node.send(leader, Kind.PROPOSE, [head, sealed])

    def _cut_batch(self) -> tuple[list[Any], list[Segment]]:
        """The next batch, express lane first, and whose commands it holds."""
        batch: list[Any] = []
        segments: list[Segment] = []
        for lane in Lane:
            self._cut_lane(self._outbox[lane], batch, segments)
        self._urgent = self._urgent and self._outbox_bytes > 0
        return batch, segments

    def _cut_lane(
        self, outbox: list[tuple[Any, int, Proposer, int]], batch: list[Any], segments: list[Segment]
    ) -> None:
        """Move commands into the batch until it is full; the first of a batch always fits."""
        bytes_max, commands_max = self._batch_bytes_max(), self._node.limits.batch_commands_max
        size, before = 0, len(batch)
        run: tuple[Proposer, int, int] | None = None  # proposer, first number, next number
        for command, command_size, proposer, number in outbox:
            if batch and (size + command_size > bytes_max or len(batch) >= commands_max):
                break
            size += command_size
            batch.append(command)
            if run is not None and run[0] == proposer and run[2] == number:
                run = (proposer, run[1], number + 1)
            else:
                _close(run, segments)
                run = (proposer, number, number + 1)
        _close(run, segments)
        del outbox[: len(batch) - before]
        self._outbox_bytes -= size

    def _start_over(self) -> None:
        """Propose again everything of this node that is not seen applied; forget what others forwarded, as they
        start over too."""
        self._outbox, self._outbox_bytes = {lane: [] for lane in Lane}, 0
        if self._standing[0] is Role.LEADER or self._standing[1]:
            for lane, pending in self._pending.items():
                for number, command, size in pending.all():
                    self._gather(command, size, (self._me[0], lane, self._me[1]), number)
        self._urgent = self._outbox_bytes > 0

    # Carrying out what the core asks for

    def _drain(self) -> None:
        while self.core.has_ready:
            self._carry_out(self.core.ready())

    def _carry_out(self, ready: Ready) -> None:
        if ready.reset_to is not None:
            self._log.reset(self.group, ready.reset_to, self.core.log.snapshot_term)
        if self._installing is not None:
            self._install(*self._installing)
        if ready.truncate_from is not None:
            self._log.truncate_from(self.group, ready.truncate_from)
        if ready.append:
            self._stamp(ready.append)
            self._log.append(self.group, ready.append)
        if ready.hard_state is not None:
            self._hard_state_writes += 1
            self._log.store_hard_state(self.group, ready.hard_state.term, ready.hard_state.voted_for)
        if self._hard_state_writes:
            self._held.append(ready)
        else:
            self._send_all(ready)
        if ready.commit > self.applied:
            self._apply(ready.commit)
        self._notice_standing()

    def _stamp(self, entries: Sequence[Entry]) -> None:
        """Entries go to this node's log."""
        now_ns = self._node.now_ns()
        for entry in entries:
            if entry.kind is EntryKind.COMMAND:
                made_ns, clock = sealed_at(entry.payload)
                self.track.handed(entry.index, clock, made_ns, now_ns)

    def _install(self, index: LogIndex, state: bytes) -> None:
        """Jump to the state of a snapshot. The log is ready for it: what the state refers to can be read."""
        self._installing = None
        self._seen, machine_state = Seen.unpack(state)
        skipped: list[Any] = []
        for lane, pending in self._pending.items():
            skipped += pending.applied(self._seen.highest((self._me[0], lane, self._me[1])))
        self.applied = index
        self.host.install(machine_state, skipped)

    def _send_all(self, ready: Ready) -> None:
        for outgoing in ready.messages:
            match outgoing:
                case SendEntries():
                    self._send_entries(outgoing)
                case Send():
                    self._node.send(outgoing.to, Kind.RAFT, wire.encode(self.group, outgoing.message))
                case SendSnapshot():
                    self._send_snapshot(outgoing)

    def _send_entries(self, send: SendEntries) -> None:
        """Send entries; a mere notice of a commit goes with the next ones, or soon, if no client of the node waits."""
        if send.last < send.first and send.commit and not self.host.has_clients_on(send.to):
            if not self._put_off:
                self._node.later(self._node.limits.commit_notice_delay_ms / 1000, self._send_put_off)
            self._put_off[send.to] = send
            return
        self._put_off.pop(send.to, None)
        self._send_now(send)

    def _send_put_off(self) -> None:
        put_off, self._put_off = self._put_off, {}
        for send in put_off.values() if not self._stopped else ():
            self._send_now(send)

    def _send_now(self, send: SendEntries) -> None:
        try:
            entries = self._log.entries(self.group, send.first, send.last, _READ_MAX) if send.last >= send.first else []
        except EntryGoneError:
            return  # compacted while the message waited for a vote to be synced; the core asks again, and sees
        self._node.send(send.to, Kind.RAFT, wire.encode_append(self.group, send, self._node.node, entries))

    def _send_snapshot(self, send: SendSnapshot) -> None:
        try:
            index, term, data, last = self._log.snapshot_chunk(self.group, send.number)
            if send.number == 1 and index < send.index:
                # One that is pinned for an earlier transfer: a follower that gets it would need the next one at once.
                self._log.release_snapshot(self.group)
                index, term, data, last = self._log.snapshot_chunk(self.group, 1)
        except SnapshotGoneError:
            return  # the core asks again, from the first chunk of the one that is there then
        self._sending_snapshot = True
        message = InstallSnapshot(
            term=send.term,
            leader=self._node.node,
            index=index,
            index_term=term,
            number=send.number,
            last=last,
            data=data,
        )
        self._node.send(send.to, Kind.RAFT, wire.encode(self.group, message))

    def _apply(self, commit: LogIndex) -> None:
        committed_ns, first = self._node.now_ns(), self.applied + 1
        for entry in self._log.entries(self.group, LogIndex(self.applied + 1), commit, _READ_MAX):
            if entry.kind is EntryKind.COMMAND:
                end, segments = unseal(entry.payload)
                self.host.apply(entry, end, self._seen.take(segments))
                for node, lane, incarnation, number, count in segments:
                    if (node, incarnation) == self._me:
                        self._applied_own(entry.index, lane, number + count - 1)
            self.applied = entry.index
        self.track.applied(first, commit, committed_ns, self._node.now_ns())
        self.host.run_effects()
        self.track.forget_confirms()

    def _applied_own(self, index: LogIndex, lane: Lane, number: int) -> None:
        """Entry ``index`` held what this node's own clients asked for, up to that command of the lane."""
        commands = self._pending[lane].applied(number)
        if lane is Lane.BULK:
            self.track.proposals_applied(index, commands)
        else:
            self.track.settled(number, self._node.now_ns())

    def _notice_standing(self) -> None:
        standing = (self.core.role, self.core.leader, self.core.term)
        if standing == self._standing:
            return
        was_leader = self._standing[0] is Role.LEADER
        self._standing = standing
        self._put_off.clear()
        self._start_over()
        if standing[0] is Role.LEADER and not was_leader:
            self.host.became_leader()
        elif was_leader and standing[0] is not Role.LEADER:
            self.host.lost_leadership()
        self._node.leader_changed(self)
        self._node.wake(self)


def _close(run: tuple[Proposer, int, int] | None, segments: list[Segment]) -> None:
    if run is not None:
        (node, lane, incarnation), first, following = run
        segments.append((node, lane, incarnation, first, following - first))
