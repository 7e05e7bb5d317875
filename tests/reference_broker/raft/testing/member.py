"""One node's shell around one core, with a modelled disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol
from zlib import crc32

from reference_broker.raft import wire
from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.core import RaftCore
from reference_broker.raft.errors import NotLeaderError
from reference_broker.raft.messages import AppendEntries, AppendReply, InstallSnapshot, LeaderSynced, Message, VoteReply
from reference_broker.raft.ready import Outgoing, Ready, Send, SendEntries, SendSnapshot
from reference_broker.raft.roles import Role
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term
from tests.reference_broker.raft.testing import steady
from tests.reference_broker.raft.testing.checker import Checker, Violation
from tests.reference_broker.raft.testing.disk import Disk, Snapshot, Write
from tests.reference_broker.raft.testing.transcript import sketch

GROUP: Final = GroupId(7)
_CHUNK_ENTRIES: Final = 3


class ClusterPorts(Protocol):
    """The parts of a cluster that a member needs: settings, the checker, links to other members, and a listener."""

    config: RaftConfig
    jitter: Jitter
    voters: tuple[NodeId, ...]
    machine_versions: dict[NodeId, int]
    checker: Checker

    def send(self, sender: NodeId, to: NodeId, body: bytes) -> None:
        """Put a frame on its link, unless the link is cut."""

    def cut_off(self, node: NodeId) -> None:
        """Everything under way from or to ``node`` is lost."""

    def say(self, line: str) -> None:
        """Tell the listener, if there is one."""

    def say_ready(self, member: Member, ready: Ready) -> None:
        """Tell what a Ready asks for."""

    def forget(self, node: NodeId) -> None:
        """``node`` starts again: forget what was said about it."""


class Member:
    """One node's shell around one core."""

    goes_short_ways = False
    tells_synced = False
    """Whether it tells its followers what it has on disk, as to nodes with clients."""
    """Whether it follows a steady leader without a Ready, compared with the general way."""

    def __init__(self, cluster: ClusterPorts, node: NodeId, disk: Disk) -> None:
        self.node = node
        self.disk = disk
        self.up = False
        self._cluster = cluster
        self.replica_id = 0
        self.ways: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Recover from the disk, as after a crash. State is rebuilt from the snapshot; entries follow by commit."""
        disk, cluster = self.disk, self._cluster
        cluster.forget(self.node)
        view = disk.recover()
        members = cluster.voters if self.node in cluster.voters and not self.replica_id else ()
        version = cluster.machine_versions.get(self.node, 1)
        self.core = RaftCore(
            self.node, members, view, disk.hard_state, cluster.config, cluster.jitter, version, self.replica_id
        )
        if disk.snapshot is not None:
            self.core.restored(disk.snapshot.configuration)
        self.changes: list[LogIndex] = []  # where configurations are in its log
        for entry in disk.special():
            self.core.recovered(entry)
            if entry.kind is EntryKind.CONFIG:
                self.changes.append(entry.index)
        self.entries = dict(disk.entries)
        self.state: list[tuple[Term, int]] = list(disk.snapshot.state) if disk.snapshot else []
        self.notices: deque[Callable[[], None]] = deque()
        self._held: deque[tuple[int, tuple[Outgoing, ...]]] = deque()
        self._chunks: list[bytes] = []
        self._asked: list[int] = []
        self._pinned: Snapshot | None = None
        self._hard_states_written = self._hard_states_synced = 0
        self._led = Term(0)
        self.up = True

    def crash(self, surviving_writes: int = 0) -> None:
        """Stop at once; memory is lost."""
        self.disk.crash(surviving_writes)
        self.up = False
        for token in self._asked:
            self._cluster.checker.forgotten(token)

    def lose(self, count: int) -> None:
        """Stop, and lose the last entries that were on disk."""
        self.crash()
        self.disk.lose(count)

    def wipe(self) -> None:
        """The removed member's replica is deleted; the node is ready to join again, with no memory. Its links are new
        then: nothing of the former replica arrives any more."""
        self.replica_id += 1
        for token in self._asked:
            self._cluster.checker.forgotten(token)
        self.disk.wipe()
        self._cluster.cut_off(self.node)
        self._cluster.checker.wiped(self.node)
        self.restart()

    # Inputs

    def receive(self, sender: NodeId, body: bytes) -> None:
        """One frame from the network."""
        _group, message = wire.decode(body)
        if self.goes_short_ways and isinstance(message, AppendEntries) and self._takes(sender, message):
            return
        if isinstance(message, InstallSnapshot) and self.core.accepts(sender, message):
            self._store_chunk(message)
        before = self.core.commit_index
        if self._is_answered(sender, message):
            self.ways.append("answered")
        else:
            self.core.step(sender, message)
        if isinstance(message, LeaderSynced):
            self._check_knowledge(before)
        self.pump()

    def _is_answered(self, sender: NodeId, message: Message) -> bool:
        if not (self.goes_short_ways and isinstance(message, AppendReply)) or self.core.leadership is None:
            return False
        return steady.answered(self.core, sender, message)

    def _takes(self, sender: NodeId, message: AppendEntries) -> bool:
        """As a node does: the short way, if no message is held back."""
        if self.core.role is Role.LEADER or self._hard_states_written != self._hard_states_synced:
            return False
        if not steady.take(self.core, sender, message):
            return False
        self.ways.append("take")
        if message.entries:
            self.disk.writes.append(Write(None, None, message.entries))
            self._note(message.entries)
        self._apply(self.core.commit_index)
        return True

    def _answer(self) -> None:
        if not self.goes_short_ways or self._hard_states_written != self._hard_states_synced:
            return
        if (reply := steady.answer(self.core)) is not None:
            self.ways.append("answer")
            self._send(Send(to=self.core.leader, message=reply))

    def propose(self, payload: bytes) -> LogIndex:
        """Propose a command here. Raises NotLeaderError."""
        if (steadily := self._propose_steadily(payload)) is not None:
            return steadily
        index = self.core.propose(EntryKind.COMMAND, payload, crc32(payload))
        self.pump()
        return index

    def _propose_steadily(self, payload: bytes) -> LogIndex | None:
        if not self._may_lead_shortly or (steadily := steady.propose(self.core, payload, crc32(payload))) is None:
            return None
        self.ways.append("propose")
        entry, sends = steadily
        self.disk.writes.append(Write(None, None, (entry,)))
        self._note((entry,))
        for send in sends:
            self._send(send)
        return entry.index

    def _take_commit(self) -> None:
        if not self._may_lead_shortly or (notices := steady.take_commit(self.core)) is None:
            return
        self.ways.append("commit")
        commit = self.core.commit_index
        if commit > len(self.state):
            self._cluster.checker.commits(self, commit, [self.core.configuration])
        for notice in notices:
            self._send(notice)
        self._apply(commit)

    @property
    def _may_lead_shortly(self) -> bool:
        nothing_held = self._hard_states_written == self._hard_states_synced
        return self.goes_short_ways and self.core.leadership is not None and nothing_held

    def read(self, token: int) -> None:
        """Begin a consistent read here. Raises NotLeaderError."""
        self._cluster.checker.asked(token)
        try:
            self.core.read(token)
        except NotLeaderError:
            self._cluster.checker.refused(token)
            raise
        self._asked.append(token)
        self.pump()

    def sync(self, count: int = 1 << 30) -> int:
        """Sync the oldest writes of the WAL; the notices wait to be delivered. Returns how many writes there were."""
        done = self.disk.sync(count)
        last = next((write.entries[-1] for write in reversed(done) if write.entries), None)
        if last is not None:
            self.notices.append(lambda: self._synced(last))
        for write in done:
            if write.snapshot is not None:
                self.notices.append(self._snapshot_notice(write.snapshot, write.installs))
        return len(done)

    def _synced(self, last: Entry) -> None:
        before, followed = self.core.commit_index, self.core.leadership is None
        if self.goes_short_ways and not followed and steady.synced(self.core, last.index, last.term):
            self.ways.append("synced")
        else:
            self.core.synced(last.index, last.term)
        if followed:
            self._check_knowledge(before)

    def sync_hard_state(self) -> bool:
        """Sync the oldest hard state; messages that waited for it leave. False if there was none."""
        if not self.disk.hard_states:
            return False
        self.disk.sync_hard_state()
        self._hard_states_synced += 1
        self._note_office()
        self._release()
        return True

    def notice(self) -> bool:
        """Deliver the oldest notice of the disk. False if there was none."""
        if not self.notices:
            return False
        self.notices.popleft()()
        self._tell_synced()
        self._answer()
        self.pump()
        return True

    def _tell_synced(self) -> None:
        leadership = self.core.leadership
        if not self.tells_synced or leadership is None or self._hard_states_written != self._hard_states_synced:
            return
        for node in leadership.progress:
            if (message := leadership.tell_synced(node)) is not None:
                self.ways.append("tell")
                self._send(Send(to=node, message=message))

    def _check_knowledge(self, before: LogIndex) -> None:
        """A follower that commits by itself must be right as a leader must."""
        core = self.core
        if core.commit_index > before:
            self.ways.append("know")
            self._cluster.checker.commits(self, core.commit_index, [core.configuration])

    def take_snapshot(self) -> bool:
        """Write a snapshot at the last applied entry. False if there is nothing new in it."""
        index = LogIndex(len(self.state))
        if index <= self.core.log.snapshot_index:
            return False
        configuration = self.core.configuration_at(index)
        snapshot = Snapshot(index, self.state[-1][0], tuple(self.state), configuration)
        self.disk.writes.append(Write(snapshot=snapshot))
        return True

    # The shell's work

    def pump(self) -> None:
        """Carry out everything the core asks for."""
        self._take_commit()
        while self.core.has_ready:
            self._carry_out(self.core.ready())

    def _carry_out(self, ready: Ready) -> None:
        self._cluster.say_ready(self, ready)
        if ready.reset_to is not None:
            self.entries.clear()
            self.changes.clear()
        if ready.truncate_from is not None:
            for at in [at for at in self.entries if at >= ready.truncate_from]:
                del self.entries[at]
            self.changes = [at for at in self.changes if at < ready.truncate_from]
        if ready.reset_to is not None or ready.truncate_from is not None or ready.append:
            self.disk.writes.append(Write(ready.truncate_from, ready.reset_to, ready.append))
        counted = [self.core.configuration]
        if any(entry.kind is EntryKind.CONFIG for entry in ready.append):
            counted.insert(0, self.core.configuration_at(LogIndex(ready.append[0].index - 1)))
        self._note(ready.append)
        if ready.hard_state is not None:
            self.disk.hard_states.append(ready.hard_state)
            self._hard_states_written += 1
        leads = self.core.role is Role.LEADER or self._led == self.core.term  # it steps down when its removal commits
        if ready.commit > len(self.state) and leads:
            self._cluster.checker.commits(self, ready.commit, counted)
        self._held.append((self._hard_states_written, ready.messages))
        self._release()
        self._apply(ready.commit)
        self._answer_reads(ready)
        self._note_office()

    def _note_office(self) -> None:
        """This member leads, and would know of the term after a crash. A lone voter leads before that, for itself."""
        core = self.core
        if core.role is Role.LEADER and self._led != core.term and self.disk.hard_state.term == core.term:
            self._led = core.term
            self._cluster.checker.leads(self)

    def _note(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.entries[entry.index] = entry
            self._cluster.checker.appended(self, entry)
            if entry.kind is EntryKind.CONFIG:
                self.changes.append(entry.index)
                before = self.core.configuration_at(LogIndex(entry.index - 1))
                self._cluster.checker.changes(self, entry, before)

    def _answer_reads(self, ready: Ready) -> None:
        for token, index in ready.reads:
            self._cluster.checker.answered(self, token, index)
        for token in ready.reads_refused:
            self._cluster.checker.refused(token)

    def _apply(self, commit: LogIndex) -> None:
        if commit < len(self.state):
            raise Violation(f"I7: the commit index of {self.node} went back from {len(self.state)} to {commit}")
        for index in range(len(self.state) + 1, commit + 1):
            entry = self.entries[LogIndex(index)]
            self.state.append((entry.term, entry.crc))
            self._cluster.checker.applied(self, entry.index, entry.term, entry.crc)

    def _release(self) -> None:
        while self._held and self._held[0][0] <= self._hard_states_synced:
            for outgoing in self._held.popleft()[1]:
                self._send(outgoing)

    def _send(self, outgoing: Outgoing) -> None:
        match outgoing:
            case SendEntries():
                entries = [self.entries[LogIndex(at)] for at in range(outgoing.first, outgoing.last + 1)]
                body = b"".join(wire.encode_append(GROUP, outgoing, self.node, entries))
            case SendSnapshot():
                body = b"".join(wire.encode(GROUP, self._chunk(outgoing)))
            case Send():
                if isinstance(outgoing.message, VoteReply) and outgoing.message.granted:
                    self._cluster.checker.voted(self, outgoing.to, outgoing.message)
                body = b"".join(wire.encode(GROUP, outgoing.message))
        message = wire.decode(body)[1]
        self._cluster.checker.sent(self, message)
        self._cluster.say(f"{self.node}->{outgoing.to} {sketch(message)}")
        self._cluster.send(self.node, outgoing.to, body)

    # For people

    def describe(self) -> str:
        """Where this member stands, with its followers if it leads."""
        core = self.core
        if not self.up:
            return f"{self.node} down"
        head = f"{self.node} {core.role} term {core.term} leader {core.leader} commit {core.commit_index}"
        progress = core.leadership.progress if core.leadership is not None else {}
        followers = [f"  follower {node}: {each.describe()}" for node, each in progress.items()]
        now = core.configuration
        members = "" if now == Configuration(self._cluster.voters) else f" | members {now}"
        forgetful = " forgetful" if core.forgetful else ""
        return "\n".join([f"{head}{forgetful} | {core.log.describe()}{members}", *followers])

    # Snapshots

    def term_of(self, index: LogIndex) -> Term:
        """The term of an entry, from memory or from the state."""
        if not index:
            return Term(0)
        return self.entries[index].term if index in self.entries else self.state[index - 1][0]

    def _chunk(self, wanted: SendSnapshot) -> InstallSnapshot:
        if wanted.number == 1:
            self._pinned = self.disk.snapshot
        pinned = self._pinned
        if pinned is None or pinned.index < wanted.index or wanted.index not in self.core.pinned_snapshots():
            raise Violation(f"{self.node} must send snapshot {wanted.index}, but does not keep it")
        if pinned.index != wanted.index and wanted.number > 1:
            wanted = replace(wanted, number=1)
        pairs = [b"%d,%d" % pair for pair in pinned.state]
        start = (wanted.number - 1) * _CHUNK_ENTRIES
        return InstallSnapshot(
            term=wanted.term,
            leader=self.node,
            index=pinned.index,
            index_term=pinned.term,
            number=wanted.number,
            last=start + _CHUNK_ENTRIES >= len(pairs),
            data=pinned.configuration.encode().hex().encode() + b"|" + b";".join(pairs[start : start + _CHUNK_ENTRIES]),
        )

    def _store_chunk(self, message: InstallSnapshot) -> None:
        if message.number == 1:
            self._chunks.clear()
        self._chunks.append(message.data)
        if len(self._chunks) != message.number:
            raise Violation(f"{self.node} was told to store chunk {message.number} after {len(self._chunks) - 1}")
        if message.last:
            heads, parts = zip(*(chunk.split(b"|") for chunk in self._chunks), strict=True)
            configuration = Configuration.decode(bytes.fromhex(heads[0].decode()))
            pairs = [pair.split(b",") for pair in b";".join(parts).split(b";")]
            state = tuple((Term(int(term)), int(crc)) for term, crc in pairs)
            snapshot = Snapshot(message.index, message.index_term, state, configuration)
            self.disk.writes.append(Write(snapshot=snapshot, installs=True))

    def _snapshot_notice(self, snapshot: Snapshot, installs: bool) -> Callable[[], None]:
        def taken() -> None:
            self.core.snapshot_taken(snapshot.index, snapshot.term)

        def installed() -> None:
            if snapshot.index > len(self.state):
                self.state = list(snapshot.state)
            self.core.installed(snapshot.index, snapshot.term, snapshot.configuration)

        return installed if installs else taken
