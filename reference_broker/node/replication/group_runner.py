"""One member of one Raft group: its core, its log and the machine that it hosts, wired together.

The runner turns inputs (frames from peers, notices from the log, commands of local channels, ticks) into calls of the
pure core. It carries out what the core's :class:`~reference_broker.raft.ready.Ready` asks for, in the order written
there. How commands become entries is for :mod:`~reference_broker.node.replication.batcher`, how entries and messages
get to other members for :mod:`~reference_broker.node.replication.sender`.

Work is done once per turn of the event loop (:meth:`GroupRunner.turn`), after all sockets were read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol

from reference_broker.anatomy.track import Track
from reference_broker.log.system import LogSystem
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.ports import ProposingPorts
from reference_broker.node.replication.batcher import Batcher
from reference_broker.node.replication.non_members import NonMember
from reference_broker.node.replication.pipeline import Pipeline
from reference_broker.node.replication.proposals import DedupTable, UnappliedCommands, sealed_at, unseal
from reference_broker.node.replication.sender import Sender, SenderPorts
from reference_broker.queues.port import HostedMachine
from reference_broker.raft import steady, wire
from reference_broker.raft.configuration import Configuration, noop_version
from reference_broker.raft.core import RaftCore
from reference_broker.raft.messages import AppendEntries, AppendReply, InstallSnapshot, Message
from reference_broker.raft.ready import Ready
from reference_broker.raft.roles import Role
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Priority, Term

log = logging.getLogger(__name__)

_SNAPSHOT_MARK: Final = b"QGS"
_SNAPSHOT_FORMAT: Final = 2
_SNAPSHOT_HEAD: Final = Struct(">3sBIH")
_TOGETHER: Final = 8
"""Entries that a follower without clients of the queue applies together."""
_APPLY_NS: Final = 3_000_000
"""Time after which a member that applies entries lets others have a turn."""
_NEVER_NS: Final = 1 << 63
_APPLY_BYTES: Final = 1024 * 1024
"""Octets of entries that are read at a time to be applied: a member that is far behind must not read all at once."""


MachineCalls = tuple[Callable[[Entry, int, frozenset[int]], None], Callable[[bytes, list[Any]], None]]
"""How to apply an entry to a machine, and how to install a snapshot (:class:`HostedMachine`)."""


class GroupPorts(ProposingPorts, SenderPorts, Protocol):
    """The node as a member uses it."""

    def machine_calls(self, runner: GroupRunner) -> MachineCalls:
        """The calls of the member's machine, with the node's observer in between."""

    def leader_changed(self, runner: GroupRunner) -> None:
        """The member's role, leader or term has changed."""

    def reconcile(self, runner: GroupRunner) -> None:
        """Another step may be due to bring the group's members and settings in line with the metadata: a change of
        members is committed, or this node leads from now on."""


class GroupRunner:
    """One member of one group (:class:`~reference_broker.node.replication.queue_runner.QueueRunner`)."""

    __slots__ = (
        "_applies_soon",
        "_apply_entry",
        "_awaited",
        "_batcher",
        "_committed",
        "_dedup",
        "_follower",
        "_hard_state_writes",
        "_held",
        "_install_state",
        "_installing",
        "_log",
        "_me",
        "_next_read",
        "_next_ready",
        "_node",
        "_non_members",
        "_propose_gathered",
        "_raft_log",
        "_reads",
        "_sender",
        "_snapshot_asked",
        "_standing",
        "_stopped",
        "_storing",
        "_waiting",
        "applied",
        "core",
        "group",
        "host",
        "newer_machine",
        "pace",
        "propose",
        "proposed_by_peer",
        "read_proposal",
        "scheduled",
        "track",
        "unapplied",
    )

    def __init__(
        self,
        group: GroupId,
        core: RaftCore,
        system: LogSystem,
        host: HostedMachine,
        node: GroupPorts,
        unapplied: Sequence[UnappliedCommands] | None = None,
    ) -> None:
        """``unapplied``: what this node has proposed to the group without a member of its own (:mod:`node.proxy`)."""
        self.group = group
        self.core = core
        self.host = host
        self.scheduled = False
        self.track = Track(node.anatomy)
        self._node = node
        self._me = (node.node, node.boot_id)
        self._standing = (Role.FOLLOWER, NOBODY, core.term)
        """The role that the machine knows. The only member of a group leads from the start, and the machine must be
        told."""
        forwarded = self.track.forwarded
        pipeline = Pipeline(group, node, self, host.encode, unapplied, forwarded=forwarded)
        self._batcher = batcher = Batcher(pipeline, core, host, node, self, self._make_entry)
        self.unapplied = pipeline.unapplied
        self._waiting = pipeline.waiting
        # Bound here, so that a call of these is a call of the pipeline, the batcher or the machine itself.
        self.propose = pipeline.propose
        self.read_proposal = batcher.read_proposal
        self.proposed_by_peer = batcher.proposed_by_peer
        self._propose_gathered = batcher.propose_gathered
        self._committed = batcher.committed
        self.pace = host.pace
        self._apply_entry, self._install_state = node.machine_calls(self)
        # Bound here, because they are the core's as long as it lives.
        self._raft_log, self._next_ready, self._follower = core.log, core.next_ready, core.follower
        self.applied = core.log.snapshot_index
        self._applies_soon = False
        self._log = system
        self._sender = Sender(group, core, system, node, host, self._wait_for_link, partial(node.wake, self))
        self._non_members: dict[NodeId, NonMember] = {}
        """Nodes without a member that are up to date with this leader."""
        self._held: list[Ready] = []
        self._hard_state_writes = 0
        self._stopped = False
        self._snapshot_asked = LogIndex(0)  # a snapshot is being taken as long as this is above the log's own
        self._storing = False
        """A whole snapshot is on its way to disk: another one, of the next leader, must not overtake it there."""
        self._installing: tuple[LogIndex, GroupSnapshot] | None = None
        self._dedup = DedupTable()
        self._reads: dict[int, Callable[[LogIndex | None], None]] = {}
        self._next_read = 1
        self._awaited: list[tuple[LogIndex, Callable[[], None]]] = []
        """The calls that wait until an entry is applied here."""
        self.newer_machine = 0
        """The version of the machine in effect if this node's is older: then the member keeps the log, and applies
        nothing (docs/internals/node.md)."""

    @property
    def leader(self) -> NodeId:
        """The node that leads, as far as this member knows."""
        return self.core.leader

    @property
    def leads(self) -> bool:
        """Whether this member leads."""
        return self.core.role is Role.LEADER

    @property
    def term(self) -> Term:
        """The term of the group, as far as this member knows."""
        return self.core.term

    def standing(self) -> dict[str, Any]:
        """The standing of this member. ``behind`` says why the member applies nothing, if it does not."""
        core, raft_log = self.core, self.core.log
        standing = {
            "role": str(core.role),
            "leader": core.leader,
            "term": core.term,
            "last_index": raft_log.last_index,
            "synced_index": raft_log.synced_index,
            "commit_index": core.commit_index,
            "applied_index": self.applied,
            "snapshot_index": raft_log.snapshot_index,
        }
        if self.newer_machine:
            standing["behind"] = f"machine version {self.newer_machine} is in effect, this node has {self.host.version}"
        return standing

    # Inputs

    def catch_up(self, node: NodeId, term: Term, boot_id: int, known: tuple[int, int], asked: Sequence[Any]) -> None:
        """A node without a member knows that this member leads, and has the results of its commands up to ``known`` of
        each priority: tell it what it may have missed, and from now on everything."""
        self.host.after_doubt(partial(self._catch_up, node, term, boot_id, known, asked))

    def _catch_up(self, node: NodeId, term: Term, boot_id: int, known: tuple[int, int], asked: Sequence[Any]) -> None:
        if self._standing[0] is Role.LEADER and term == self._standing[2]:
            applied, is_new = self.highest_applied(node, boot_id), node not in self._non_members
            non_member = self._non_members[node] = NonMember(self.group, node, boot_id, self._node)
            self.host.catch_up(non_member, asked)
            if (
                is_new and applied != known
            ):  # they were in the log before, and nobody has told the node their results since
                non_member.leading(term, *applied)

    def non_member_left(self, node: NodeId) -> None:
        """The node has no clients of the group any more."""
        self._non_members.pop(node, None)

    def highest_applied(self, node: NodeId, boot_id: int) -> tuple[int, int]:
        """The highest numbers applied of that start of a node, of normal and of low priority."""
        normal, low = (self._dedup.highest((node, priority, boot_id)) for priority in Priority)
        return normal, low

    def step(self, sender: NodeId, message: Message) -> None:
        """A Raft message of a peer."""
        core = self.core
        if type(message) is AppendReply:
            if message.success:
                self._sender.answered(sender, message.synced_index)
            if not steady.answered(core, sender, message):
                core.step(sender, message)
            self._wake_if_needed()
            return
        if type(message) is AppendEntries and not self._hard_state_writes and steady.take(core, message):
            if message.entries:
                self._stamp(message.entries)
                self._log.append(self.group, message.entries)
            if self._raft_log.commit_index > self.applied:
                self._have_applied(message)
            return
        if isinstance(message, InstallSnapshot) and core.accepts(sender, message) and not self._store(message):
            return  # unanswered, so the leader sends it again
        core.step(sender, message)
        self._wake_if_needed()

    def _have_applied(self, message: AppendEntries) -> None:
        """More is committed. If no client waits for it, the log writes first, because the leader waits for the answer,
        and several entries are applied together."""
        if not message.entries or self._me[0] in self.host.client_nodes:
            self._node.wake(self)
        elif self._raft_log.commit_index - self.applied >= _TOGETHER:
            self._node.wake_late(self)
        elif not self._applies_soon:
            self._applies_soon = True
            self._node.later(self._node.limits.commit_notice_delay_ms / 1000, self._apply_what_waits)

    def _apply_what_waits(self) -> None:
        self._applies_soon = False
        if self._raft_log.commit_index > self.applied and not self._stopped:
            self._node.wake(self)

    def _wake_if_needed(self) -> None:
        """Most answers, and most notices of the log, change nothing that a turn would act on."""
        next_ready, sender = self._next_ready, self._sender
        if (
            next_ready.pending
            or next_ready.committed
            or self._follower.answer_due
            or self._waiting.octets
            or sender.flows
            or sender.chunks
            or sender.sending_snapshot
        ):
            self._node.wake(self)

    def _store(self, chunk: InstallSnapshot) -> bool:
        if self._storing:
            return False
        place = (chunk.index, chunk.index_term)
        is_next = self._log.receive_chunk(self.group, *place, chunk.number, chunk.last, chunk.data)
        self._storing = is_next and chunk.last
        return is_next

    def synced(self, index: LogIndex, term: Term, times: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Entries up to ``index`` are on this node's disk; write begun, write ended, sync ended at ``times`` (ns)."""
        self.track.synced(index, *times)
        self._sender.answered(self._me[0], index)
        core = self.core
        if not steady.synced(core, index, term):
            core.synced(index, term)
        if not self._hard_state_writes:
            if core.leadership is not None:
                self._sender.tell_synced(core.leadership)
            elif (answer := steady.answer(core)) is not None:
                self._node.send(core.leader, FrameKind.RAFT, wire.encode(self.group, answer))
        self._wake_if_needed()

    def hard_state_synced(self) -> None:
        """One more hard state is on disk; the last one releases the held-back messages."""
        self._hard_state_writes -= 1
        if not self._hard_state_writes:
            held, self._held = self._held, []
            for ready in held:
                self._sender.send_all(ready)
        self._node.wake(self)

    def snapshot_taken(self, index: LogIndex, term: Term) -> None:
        """A snapshot of this member's own state is on disk."""
        self.core.snapshot_taken(index, term)
        self._node.wake(self)

    def snapshot_installed(self, index: LogIndex, term: Term, state: bytes) -> None:
        """The leader's snapshot is on this node's disk: it replaces log and state."""
        self._drain()
        snapshot = GroupSnapshot.unpack(state)
        configuration = snapshot.configuration or self.core.configuration_at(self.core.log.snapshot_index)
        self.core.installed(index, term, configuration, snapshot.machine_version)
        if index > self.applied:
            self._installing = (index, snapshot)
        self._drain()  # the log takes it over now, and another may come
        self._storing = False
        self._node.wake(self)

    def snapshot_rejected(self, index: LogIndex) -> None:
        """The snapshot that was received is damaged."""
        self._storing = False
        self.core.install_failed(index)
        self._node.wake(self)

    def restore(self, state: bytes) -> None:
        """At the start: take over the state of this member's own snapshot, as :meth:`take_snapshot` wrote it."""
        snapshot = GroupSnapshot.unpack(state)
        configuration = snapshot.configuration or self.core.configuration
        self.core.restored(configuration, snapshot.machine_version)
        if self._may_apply(snapshot.machine_version):
            self._dedup = snapshot.dedup
            self.host.restore(snapshot.state)

    def read(self, answered: Callable[[LogIndex | None], None]) -> None:
        """On the leader: call ``answered`` once everything is applied here that is committed now, with the index of the
        last such entry; with None if the leadership is lost before that is known."""
        token, self._next_read = self._next_read, self._next_read + 1
        self.core.read(token)
        self._reads[token] = answered
        self._node.wake(self)

    def when_applied(self, index: LogIndex, call: Callable[[], None]) -> None:
        """Call once entries up to ``index`` are applied here."""
        self._awaited.append((index, call))
        self._tell_awaiting()

    def _tell_awaiting(self) -> None:
        done = [call for index, call in self._awaited if index <= self.applied]
        self._awaited = [(index, call) for index, call in self._awaited if index > self.applied]
        for call in done:
            call()

    def _answer_reads(self, ready: Ready) -> None:
        for token, index in ready.reads:
            self._reads.pop(token)(index if index <= self.applied else None)  # this machine may be too old to apply
        for token in ready.reads_refused:
            self._reads.pop(token)(None)

    def lead_if_nobody_does(self) -> None:
        """Ask for votes at once instead of when a timer ends. Because of pre-vote this does no harm if a leader
        exists."""
        if not self.core.leader:
            self.core.campaign()
            self._node.wake(self)

    def hand_over(self, heirs: Iterable[NodeId]) -> bool:
        """Hand over to the first of these nodes that is a voter with every committed entry on disk. False if this
        member does not lead, hands over already, or finds no such node."""
        leadership = self.core.leadership
        heir = next(filter(leadership.may_inherit, heirs), None) if leadership is not None else None
        if heir is None:
            return False
        self.core.transfer(heir)
        self._node.wake(self)
        return True

    def tick(self) -> None:
        """One unit of Raft's time. A turn follows only if the core has something to do."""
        self.core.tick()
        if self.core.has_ready:
            self._node.wake(self)

    def was_suspended(self) -> None:
        """This process was suspended, and other nodes may have given its node up."""
        self._non_members.clear()
        self._doubt()

    def _doubt(self) -> None:
        if any(unapplied.is_used for unapplied in self.unapplied):  # else there is no receiver of deliveries
            self.host.doubt()

    def peer_up(self, node: NodeId) -> None:
        """The link to ``node`` is up again: frames under way to it may be lost."""
        self.core.node_up(node)
        if node == self.core.leader:
            self._doubt()
            self._batcher.start_over()
        self._node.wake(self)

    def peer_down(self, node: NodeId) -> None:
        """The link to ``node`` broke."""
        self._non_members.pop(node, None)
        self._sender.peer_down(node)
        self.core.node_down(node)
        self._node.wake(self)

    # One turn

    def turn(self) -> None:
        """Everything that this turn's inputs made necessary."""
        self.scheduled = False
        if self._stopped:
            return
        next_ready, follower, raft_log = self._next_ready, self._follower, self._raft_log
        is_ready = next_ready.pending or next_ready.committed or follower.answer_due
        if is_ready or raft_log.commit_index > self.applied or self._hard_state_writes:
            self._drain()
        if self._waiting.octets:
            self._propose_gathered()
            if next_ready.pending or self._hard_state_writes:
                self._drain()
        sender = self._sender
        if sender.flows or sender.chunks:
            sender.go_on()
        if sender.sending_snapshot and not self.core.pinned_snapshots():
            sender.release_snapshot()

    def _wait_for_link(self, node: NodeId) -> None:
        self._node.when_writable(node, self)

    def stop(self) -> None:
        """The group is gone from this node, and its log too. Later calls do nothing."""
        self._stopped = True
        self._batcher.stop()
        self.host.stop()
        self._sender.stop()
        reads, self._reads = self._reads, {}
        for answered in reads.values():
            answered(None)

    def take_snapshot(self) -> None:
        """Write the state at the last applied entry, so that the log before it can go."""
        newest = self.core.log.snapshot_index
        if self._snapshot_asked > newest or self.applied <= newest or self.newer_machine:
            return
        term = self.core.log.term_at(self.applied)
        if term is None:
            return
        self._snapshot_asked = self.applied
        configuration, version = self.core.configuration_at(self.applied), self.core.machine_version_at(self.applied)
        state = GroupSnapshot(configuration, version, self._dedup, self.host.snapshot()).pack()
        self._log.take_snapshot(self.group, self.applied, term, state, self.host.live_entries())

    def needed_entries(self) -> list[tuple[int, int]]:
        """The entries that a snapshot taken now would not free: live and unapplied ones."""
        return [*self.host.live_entries(), (self.applied + 1, self.core.log.last_index + 1)]

    def payload(self, index: LogIndex) -> bytes:
        """The payload of an entry that the state refers to."""
        return self._log.payload(self.group, index)

    # Carrying out the core's Ready

    def _make_entry(self, payload: bytes, crc: int, sealed_ns: int) -> None:
        """Make an entry of commands, by the steady way if there is one."""
        leadership = self.core.leadership
        made = None
        if leadership is not None and not self._hard_state_writes:
            made = steady.propose(leadership, payload, crc)
        if made is None:
            self.core.propose(EntryKind.COMMAND, payload, crc)
            return
        entry, nodes = made
        self.track.handed(entry.index, self._node.anatomy.clock, sealed_ns, self._node.now_ns())
        self._log.append(self.group, (entry,))
        self._sender.send_entry(entry, nodes)

    def _drain(self) -> None:
        core, raft_log, until_ns = self.core, self._raft_log, self._node.now_ns() + _APPLY_NS
        next_ready, follower = self._next_ready, self._follower
        if self._hard_state_writes:
            self._node.reconcile(self)
        elif next_ready.committed and steady.take_commit(core) and core.leadership is not None:
            self._committed(raft_log.commit_index)
            self._sender.tell_commit(core.leadership)
        while next_ready.pending or next_ready.committed or follower.answer_due:
            self._carry_out(core.ready(), until_ns)
        if raft_log.commit_index > self.applied and not self.newer_machine:
            self._apply(raft_log.commit_index, until_ns)
            if raft_log.commit_index > self.applied and not self.newer_machine:
                self._node.wake(self)
            if self._awaited:
                self._tell_awaiting()

    def _carry_out(self, ready: Ready, until_ns: int) -> None:
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
            hard = ready.hard_state
            self._log.store_hard_state(self.group, hard.term, hard.voted_for, forgetful=hard.forgetful)
        if self._hard_state_writes:
            self._held.append(ready)
        else:
            self._sender.send_all(ready)
        stands_otherwise = self._standing != (self.core.role, self.core.leader, self.core.term)
        if stands_otherwise:
            self._doubt()
        self._committed(ready.commit)
        if ready.commit > self.applied and not self.newer_machine:
            self._apply(ready.commit, _NEVER_NS if ready.reads else until_ns)
        if stands_otherwise:
            self._notice_standing()
        if ready.reads or ready.reads_refused:
            self._answer_reads(ready)
        if self._awaited:
            self._tell_awaiting()

    def _stamp(self, entries: Sequence[Entry]) -> None:
        """Note when entries were handed to this node's log."""
        now_ns = self._node.now_ns()
        for entry in entries:
            if entry.kind is EntryKind.COMMAND:
                made_ns, clock = sealed_at(entry.payload)
                self.track.handed(entry.index, clock, made_ns, now_ns)

    def _install(self, index: LogIndex, snapshot: GroupSnapshot) -> None:
        """Jump to the state of a snapshot. The log is ready: it can read the entries that the state refers to."""
        self._installing = None
        if not self._may_apply(snapshot.machine_version):
            return
        self._dedup = snapshot.dedup
        skipped: list[Any] = []
        for priority, unapplied in zip(Priority, self.unapplied, strict=True):
            skipped += unapplied.applied(self._dedup.highest((self._me[0], priority, self._me[1])))
        self.applied = index
        self._install_state(snapshot.state, skipped)
        self._node.reconcile(self)

    def _may_apply(self, version: int) -> bool:
        """Whether this node's machine is new enough for what one of ``version`` made."""
        if version > self.host.version and not self.newer_machine:
            self.newer_machine = version
            log.error(
                "group %x: entries of machine version %d, this node has %d: it keeps the log but applies nothing "
                "and serves no client from here on; start the newer program on it",
                self.group, version, self.host.version,
            )  # fmt: skip
        return not self.newer_machine

    def _apply(self, commit: LogIndex, until_ns: int) -> None:
        """Apply the entries up to ``commit``, but begin none after ``until_ns`` except the first."""
        committed_ns, first = self._node.now_ns(), self.applied + 1
        told: set[NodeId] = set()
        reconfigured = is_late = False
        while self.applied < commit and not self.newer_machine and not is_late:
            for entry in self._log.entries(self.group, LogIndex(self.applied + 1), commit, _APPLY_BYTES):
                if entry.kind is EntryKind.COMMAND:
                    end, segments = unseal(entry.payload)
                    self._apply_entry(entry, end, self._dedup.take(segments))
                    for node, priority, boot_id, number, count in segments:
                        if (node, boot_id) == self._me:
                            self._applied_own(entry.index, priority, number + count - 1)
                        elif node in self._non_members:
                            told.add(node)
                elif entry.kind is EntryKind.CONFIG:
                    reconfigured = True
                elif not self._may_apply(noop_version(entry.payload)):
                    break
                else:
                    self._term_begins(entry.term)
                self.applied = entry.index
                if is_late := until_ns < _NEVER_NS and self._node.now_ns() >= until_ns:
                    break
        self.track.applied(first, self.applied, committed_ns, self._node.now_ns())
        self.host.run_effects(self._non_members.values())
        if self.track.confirming:
            self.track.confirming.clear()
        for node in told:
            non_member = self._non_members[node]
            non_member.applied(*self.highest_applied(node, non_member.boot_id))
        if reconfigured:
            self._node.reconcile(self)

    def _applied_own(self, index: LogIndex, priority: Priority, number: int) -> None:
        """Entry ``index`` held what this node's own clients asked for, up to that command of the priority."""
        commands = self.unapplied[priority].applied(number)
        if priority is Priority.LOW:
            self.track.proposals_applied(index, number, commands)
        else:
            self.track.settled(number, self._node.now_ns())

    def _notice_standing(self) -> None:
        standing = (self.core.role, self.core.leader, self.core.term)
        if standing == self._standing:
            return
        was_leader = self._standing[0] is Role.LEADER
        self._standing = standing
        self._sender.forget()
        self._non_members.clear()
        self._batcher.stand(*standing)
        if was_leader:
            self.host.lost_leadership()
        self._node.leader_changed(self)
        if self.core.log.term_at(self.applied) == self.core.term:
            self._term_begins(self.core.term)
        self._node.wake(self)

    def _term_begins(self, term: Term) -> None:
        """Everything of earlier terms is applied here. If this member leads the term, the machine leads from now on;
        earlier, entries of a former leader could still have done a leader's tasks."""
        if self._standing[0] is Role.LEADER and self._standing[2] == term:
            self.host.run_effects(self._non_members.values())
            self.host.became_leader(term)
            self._node.reconcile(self)


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The snapshot of a member: configuration, machine version, dedup table and machine state.

    Octets: the mark ``QGS`` and the format (u8), the machine version (u32), the length of the configuration (u16), the
    configuration (:mod:`reference_broker.raft.configuration`), the dedup table
    (:class:`~reference_broker.node.replication.proposals.DedupTable`), the machine's state. Format 1 had neither mark
    nor configuration. It began with the dedup table, and its group had the members of the queue's declaration.
    """

    configuration: Configuration | None
    """None in format 1."""
    machine_version: int
    dedup: DedupTable
    state: bytes

    def pack(self) -> bytes:
        """The octets, in the newest format."""
        assert self.configuration is not None
        members = self.configuration.encode()
        head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_MARK, _SNAPSHOT_FORMAT, self.machine_version, len(members))
        return b"".join([head, members, self.dedup.pack(), self.state])

    @classmethod
    def unpack(cls, octets: bytes) -> GroupSnapshot:
        """Read any known format. Raises ValueError for a newer format."""
        if not octets.startswith(_SNAPSHOT_MARK):
            dedup, state = DedupTable.unpack(octets)
            return cls(None, 0, dedup, state)
        _, form, machine_version, size = _SNAPSHOT_HEAD.unpack_from(octets)
        if form != _SNAPSHOT_FORMAT:
            raise ValueError(
                f"a snapshot of format {form}, this program knows up to {_SNAPSHOT_FORMAT}: "
                "start the program that wrote it"
            )
        end = _SNAPSHOT_HEAD.size + size
        dedup, state = DedupTable.unpack(octets[end:])
        return cls(Configuration.decode(octets[_SNAPSHOT_HEAD.size : end]), machine_version, dedup, state)
