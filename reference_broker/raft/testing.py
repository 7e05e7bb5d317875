"""A cluster in memory for tests: production cores over modelled disks and a modelled network, checked as it runs.

Theory of operation
-------------------
Each :class:`Member` is a shell as the node's is: it carries out Readys in their order, keeps messages back until the
hard state is on disk, and passes every message through the wire codec. A :class:`Disk` has what is durable and what
is merely written; a crash loses any tail of the latter. Nothing happens by itself: whoever drives the :class:`Cluster`
(a transcript, a seeded random walk) chooses what is delivered, synced, noticed, lost or crashed next.

:class:`Checker` compares everything anybody does with what everybody did before. It knows the true content of the
disks, so it sees a claim that no member could see to be false.

One simplification: a snapshot's state is the list of (term, CRC) of all entries up to it, so that states compare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from zlib import crc32

from reference_broker.raft import wire
from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.core import RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.quorum import majority
from reference_broker.raft.ready import HardState, Outgoing, Ready, Role, Send, SendEntries, SendSnapshot
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

GROUP: Final = GroupId(7)
_CHUNK_ENTRIES: Final = 3

State = tuple[tuple[Term, int], ...]
"""(term, CRC) of entries 1, 2, ...: what a machine that applied them must have seen."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state and the last entry in it."""

    index: LogIndex
    term: Term
    state: State


@dataclass(frozen=True, slots=True)
class Write:
    """One write to the WAL: what it drops, then what it adds; or a snapshot."""

    truncate_from: LogIndex | None = None
    reset_to: LogIndex | None = None
    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None
    installs: bool = False


@dataclass
class Disk:
    """What one member has on disk, and what it has written but not synced. Hard states have a file of their own."""

    hard_state: HardState = field(default_factory=lambda: HardState(term=Term(0), voted_for=NOBODY))
    snapshot: Snapshot | None = None
    entries: dict[LogIndex, Entry] = field(default_factory=dict)
    writes: deque[Write] = field(default_factory=deque)
    hard_states: deque[HardState] = field(default_factory=deque)

    def sync(self, count: int) -> list[Write]:
        """Make the oldest ``count`` writes durable and return them."""
        done = [self.writes.popleft() for _ in range(min(count, len(self.writes)))]
        for write in done:
            self._apply(write)
        return done

    def _apply(self, write: Write) -> None:
        if write.snapshot is not None:
            if self.snapshot is None or write.snapshot.index > self.snapshot.index:
                self.snapshot = write.snapshot
            return
        if write.reset_to is not None:
            self.entries.clear()
        if write.truncate_from is not None:
            self._truncate(write.truncate_from)
        if write.entries:
            self._truncate(write.entries[0].index)
            self.entries.update((entry.index, entry) for entry in write.entries)

    def _truncate(self, index: LogIndex) -> None:
        for at in [at for at in self.entries if at >= index]:
            del self.entries[at]

    def crash(self, surviving_writes: int) -> None:
        """Power fails: of the unsynced writes the oldest few may have reached the medium, the rest is gone."""
        self.sync(surviving_writes)
        self.writes.clear()
        self.hard_states.clear()

    def has(self, index: LogIndex, term: Term) -> bool:
        """Whether an entry would survive a crash now."""
        if self.snapshot is not None and index <= self.snapshot.index:
            return self.snapshot.state[index - 1][0] == term
        entry = self.entries.get(index)
        return entry is not None and entry.term == term

    def recover(self) -> LogView:
        """The view of the log that a restart finds, trimmed as the log layer would trim it."""
        indexes = sorted(self.entries)
        runs = [(at, self.entries[at].term) for at in indexes]
        starts = [run for before, run in zip([None, *runs], runs, strict=False) if not before or before[1] != run[1]]
        view = LogView.recovered(self.snapshot, starts, indexes[-1] if indexes else LogIndex(0))
        for at in [at for at in indexes if not view.snapshot_index < at <= view.last_index]:
            del self.entries[at]
        return view


class Violation(AssertionError):  # noqa: N818 - a failed check, not an error to be handled
    """An invariant of Raft does not hold."""


class Checker:
    """The invariants, compared with everything that ever happened in this cluster."""

    def __init__(self) -> None:
        self._leaders: dict[Term, NodeId] = {}
        self._seen: dict[tuple[LogIndex, Term], tuple[int, Term]] = {}
        self._votes: dict[tuple[NodeId, Term], NodeId] = {}
        self._spoken: dict[NodeId, Term] = {}
        self.committed: list[tuple[Term, int]] = []

    def leads(self, member: Member) -> None:
        """I1 election safety, I3 leader completeness."""
        core = member.core
        if self._leaders.setdefault(core.term, member.node) != member.node:
            raise Violation(f"I1: {self._leaders[core.term]} and {member.node} both lead term {core.term}")
        for index, (term, _) in enumerate(self.committed[core.log.snapshot_index :], core.log.snapshot_index + 1):
            if core.log.term_at(LogIndex(index)) != term:
                raise Violation(f"I3: leader {member.node} of term {core.term} lacks committed entry {index}@{term}")

    def appended(self, member: Member, entry: Entry) -> None:
        """I2 log matching, by induction: one entry for each (index, term), with one predecessor."""
        if len(member.core.configuration.voters) == 1:
            return  # alone it may lead in one term twice, if a crash took the first time without a trace
        before = Term(0)
        if entry.index > 1:
            before = member.term_of(LogIndex(entry.index - 1))
        known = self._seen.setdefault((entry.index, entry.term), (entry.crc, before))
        if known != (entry.crc, before):
            raise Violation(f"I2: {member.node} has another {entry.index}@{entry.term}, or another entry before it")

    def applied(self, member: Member, index: LogIndex, term: Term, crc: int) -> None:
        """I4 state machine safety."""
        if index > len(self.committed):
            self.committed.append((term, crc))
        if self.committed[index - 1] != (term, crc):
            raise Violation(f"I4: {member.node} applies another entry {index}")

    def durable(self, members: Sequence[Member]) -> None:
        """I5: what is committed is on the disks of a majority, at every moment from then on."""
        if not self.committed:
            return
        index, term = LogIndex(len(self.committed)), self.committed[-1][0]
        holders = [member.node for member in members if member.disk.has(index, term)]
        if len(holders) < majority(len(members)):
            raise Violation(f"I5: committed entry {index}@{term} is on the disks of {holders} only")

    def sent(self, member: Member, message: Message) -> None:
        """I6 term and vote outlive a crash; and a follower claims no entry that is not on its disk."""
        if message.term < self._spoken.get(member.node, 0):
            raise Violation(f"I6: {member.node} spoke of term {self._spoken[member.node]}, and now of {message.term}")
        self._spoken[member.node] = max(message.term, self._spoken.get(member.node, Term(0)))
        if message.term > member.disk.hard_state.term:
            raise Violation(f"I6: {member.node} speaks of term {message.term}, which a crash would make it forget")
        if not isinstance(message, AppendReply) or not message.success or not message.synced_index:
            return
        if not member.disk.has(message.synced_index, message.synced_term):
            raise Violation(f"{member.node} claims {message.synced_index}@{message.synced_term}, not on its disk")

    def voted(self, member: Member, candidate: NodeId, message: VoteReply) -> None:
        """One vote a term, whatever crashes in between."""
        if self._votes.setdefault((member.node, message.term), candidate) != candidate:
            raise Violation(f"I6: {member.node} voted twice in term {message.term}")


class Member:
    """One node's shell around one core."""

    def __init__(self, cluster: Cluster, node: NodeId, disk: Disk) -> None:
        self.node = node
        self.disk = disk
        self.up = False
        self._cluster = cluster
        self.restart()

    def restart(self) -> None:
        """Recover from the disk, as after a crash. State is rebuilt from the snapshot; entries follow by commit."""
        disk, cluster = self.disk, self._cluster
        cluster.forget(self.node)
        view = disk.recover()
        members = tuple(cluster.nodes)
        self.core = RaftCore(self.node, members, view, disk.hard_state, cluster.config, cluster.jitter)
        self.entries = dict(disk.entries)
        self.state: list[tuple[Term, int]] = list(disk.snapshot.state) if disk.snapshot else []
        self.notices: deque[Callable[[], None]] = deque()
        self._held: deque[tuple[int, tuple[Outgoing, ...]]] = deque()
        self._chunks: list[bytes] = []
        self._pinned: Snapshot | None = None
        self._hard_states_written = self._hard_states_synced = 0
        self._led = Term(0)
        self.up = True

    def crash(self, surviving_writes: int = 0) -> None:
        """Stop at once; memory is lost."""
        self.disk.crash(surviving_writes)
        self.up = False

    # Inputs

    def receive(self, sender: NodeId, body: bytes) -> None:
        """One frame from the network."""
        _group, message = wire.decode(body)
        if isinstance(message, InstallSnapshot) and self.core.accepts(sender, message):
            self._store_chunk(message)
        self.core.step(sender, message)
        self.pump()

    def propose(self, payload: bytes) -> LogIndex:
        """Propose a command here. Raises NotLeaderError."""
        index = self.core.propose(EntryKind.COMMAND, payload, crc32(payload))
        self.pump()
        return index

    def sync(self, count: int = 1 << 30) -> int:
        """Sync the oldest writes of the WAL; the notices wait to be delivered. Returns how many writes there were."""
        done = self.disk.sync(count)
        last = next((write.entries[-1] for write in reversed(done) if write.entries), None)
        if last is not None:
            self.notices.append(lambda: self.core.synced(last.index, last.term))
        for write in done:
            if write.snapshot is not None:
                self.notices.append(self._snapshot_notice(write.snapshot, write.installs))
        return len(done)

    def sync_hard_state(self) -> bool:
        """Sync the oldest hard state; messages that waited for it leave. False if there was none."""
        if not self.disk.hard_states:
            return False
        self.disk.hard_state = self.disk.hard_states.popleft()
        self._hard_states_synced += 1
        self._release()
        return True

    def notice(self) -> bool:
        """Deliver the oldest notice of the disk. False if there was none."""
        if not self.notices:
            return False
        self.notices.popleft()()
        self.pump()
        return True

    def take_snapshot(self) -> bool:
        """Write a snapshot at the last applied entry. False if there is nothing new in it."""
        index = LogIndex(len(self.state))
        if index <= self.core.log.snapshot_index:
            return False
        self.disk.writes.append(Write(snapshot=Snapshot(index, self.state[-1][0], tuple(self.state))))
        return True

    # The shell's work

    def pump(self) -> None:
        """Carry out everything the core asks for."""
        while self.core.has_ready:
            self._carry_out(self.core.ready())

    def _carry_out(self, ready: Ready) -> None:
        self._cluster.say_ready(self, ready)
        if ready.reset_to is not None:
            self.entries.clear()
        if ready.truncate_from is not None:
            for at in [at for at in self.entries if at >= ready.truncate_from]:
                del self.entries[at]
        if ready.reset_to is not None or ready.truncate_from is not None or ready.append:
            self.disk.writes.append(Write(ready.truncate_from, ready.reset_to, ready.append))
        for entry in ready.append:
            self.entries[entry.index] = entry
            self._cluster.checker.appended(self, entry)
        if ready.hard_state is not None:
            self.disk.hard_states.append(ready.hard_state)
            self._hard_states_written += 1
        self._held.append((self._hard_states_written, ready.messages))
        self._release()
        self._apply(ready.commit)
        if ready.role is Role.LEADER and self._led != self.core.term:
            self._led = self.core.term
            self._cluster.checker.leads(self)

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
        followers = [f"  follower {node}: {text}" for node, text in core.status()["followers"].items()]
        return "\n".join([f"{head} | {core.log.describe()}", *followers])

    # Snapshots

    def term_of(self, index: LogIndex) -> Term:
        """The term of an entry, from memory or from the state."""
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
            data=b";".join(pairs[start : start + _CHUNK_ENTRIES]),
        )

    def _store_chunk(self, message: InstallSnapshot) -> None:
        if message.number == 1:
            self._chunks.clear()
        self._chunks.append(message.data)
        if len(self._chunks) != message.number:
            raise Violation(f"{self.node} was told to store chunk {message.number} after {len(self._chunks) - 1}")
        if message.last:
            pairs = [pair.split(b",") for pair in b";".join(self._chunks).split(b";")]
            state = tuple((Term(int(term)), int(crc)) for term, crc in pairs)
            self.disk.writes.append(Write(snapshot=Snapshot(message.index, message.index_term, state), installs=True))

    def _snapshot_notice(self, snapshot: Snapshot, installs: bool) -> Callable[[], None]:
        def taken() -> None:
            self.core.snapshot_taken(snapshot.index, snapshot.term)

        def installed() -> None:
            if snapshot.index > len(self.state):
                self.state = list(snapshot.state)
            self.core.installed(snapshot.index, snapshot.term, self.core.configuration)

        return installed if installs else taken


class Cluster:
    """Members and the messages between them. ``links[a, b]`` is what ``a`` sent to ``b``, oldest first."""

    def __init__(self, disks: dict[NodeId, Disk], config: RaftConfig, jitter: Jitter) -> None:
        self.config = config
        self.jitter = jitter
        self.nodes = sorted(disks)
        self.checker = Checker()
        self.trace: Callable[[str], None] | None = None
        self._said: dict[NodeId, tuple[Role, NodeId, LogIndex]] = {}
        self.links: dict[tuple[NodeId, NodeId], deque[bytes]] = {
            (a, b): deque() for a in self.nodes for b in self.nodes if a != b
        }
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.members = {node: Member(self, node, disks[node]) for node in self.nodes}

    def say(self, line: str) -> None:
        """Tell whoever listens."""
        if self.trace is not None:
            self.trace(line)

    def say_ready(self, member: Member, ready: Ready) -> None:
        """What a Ready asks for, apart from its messages: they are told when they leave."""
        if self.trace is None:
            return
        parts = []
        if ready.hard_state is not None:
            parts.append(f"write term {ready.hard_state.term} vote {ready.hard_state.voted_for}")
        if ready.reset_to is not None:
            parts.append(f"reset log to {ready.reset_to}")
        if ready.truncate_from is not None:
            parts.append(f"drop {ready.truncate_from}..")
        parts += [f"append {' '.join(f'{entry.index}@{entry.term}' for entry in ready.append)}"] if ready.append else []
        before = self._said.get(member.node, (Role.FOLLOWER, NOBODY, member.core.log.snapshot_index))
        if before[:2] != (ready.role, ready.leader):
            parts.append(f"{ready.role} of {ready.leader or 'nobody'}")
        if before[2] != ready.commit:
            parts.append(f"commit {ready.commit}")
        self._said[member.node] = (ready.role, ready.leader, ready.commit)
        if parts:
            self.say(f"{member.node}: {', '.join(parts)}")

    def forget(self, node: NodeId) -> None:
        """``node`` starts again: what was said about it is no longer so."""
        self._said.pop(node, None)

    def send(self, sender: NodeId, to: NodeId, body: bytes) -> None:
        """Put a frame on its link, unless the link is cut."""
        if (sender, to) not in self.cut:
            self.links[sender, to].append(body)

    def deliver(self, sender: NodeId, to: NodeId, position: int = 0, *, keep: bool = False) -> bool:
        """Deliver one frame of a link, by default the oldest; ``keep`` leaves a duplicate behind. False if there is
        none or nobody to take it."""
        link = self.links[sender, to]
        if position >= len(link):
            return False
        body = link[position]
        if not keep:
            del link[position]
        if self.members[to].up:
            self.members[to].receive(sender, body)
        return True

    def lose(self, sender: NodeId, to: NodeId) -> None:
        """Lose everything under way on a link."""
        self.links[sender, to].clear()

    def settle(self, rounds: int = 1000) -> None:
        """Sync, deliver and notice everything, in a fixed order, until nothing is left to do."""
        for _ in range(rounds):
            if not self.settle_once():
                return
        raise Violation(f"the cluster is still busy after {rounds} rounds of delivering everything")

    def settle_once(self) -> bool:
        """One round of :meth:`settle`. False when there was nothing to do."""
        busy = False
        for member in (self.members[node] for node in self.nodes):
            if member.up:
                member.pump()
                busy = member.sync_hard_state() or busy
                busy = bool(member.sync()) or busy
                busy = member.notice() or busy
        for (sender, to), link in self.links.items():
            for _ in range(len(link)):
                busy = self.deliver(sender, to) or busy
        self.check()
        return busy

    def check(self) -> None:
        """The invariants that are about all members at once."""
        self.checker.durable(list(self.members.values()))

    def leader(self) -> Member | None:
        """The member that leads in the highest term, if any does."""
        leading = [member for member in self.members.values() if member.up and member.core.role is Role.LEADER]
        return max(leading, key=lambda member: member.core.term, default=None)


def sketch(message: Message) -> str:
    """A message in one line."""
    name = type(message).__name__
    match message:
        case AppendEntries():
            entries = " ".join(f"{entry.index}@{entry.term}" for entry in message.entries)
            prev = f"{message.prev_index}@{message.prev_term}"
            return f"{name} term {message.term} prev {prev} commit {message.commit} [{entries}]"
        case AppendReply():
            verdict = "fits" if message.success else "does not fit"
            synced = f"{message.synced_index}@{message.synced_term}"
            return f"{name} term {message.term} {verdict}, next {message.next_index}, synced {synced}"
        case PreVoteRequest() | VoteRequest():
            return f"{name} term {message.term} log {message.last_index}@{message.last_term}"
        case PreVoteReply() | VoteReply():
            return f"{name} term {message.term} {'granted' if message.granted else 'refused'}"
        case InstallSnapshot():
            last = " last" if message.last else ""
            at = f"{message.index}@{message.index_term}"
            return f"{name} term {message.term} up to {at} chunk {message.number}{last}"
        case InstallReply():
            state = "done" if message.done else f"got {message.number}"
            return f"{name} term {message.term} up to {message.index} {state}"
        case Heartbeat() | HeartbeatReply():
            return f"{name} term {message.term} round {message.round}"
        case TimeoutNow():
            return f"{name} term {message.term}"


def replay(transcript: str, answer: Callable[[str], str]) -> str:
    """A transcript with every answer given anew.

    Blocks are separated by empty lines. A block is comments (``# ...``), commands, a line ``----`` and what they
    answered. Comments and commands stay; what follows ``----`` is replaced by what ``answer`` says to each command.
    """
    blocks = []
    for block in transcript.strip().split("\n\n"):
        head = block.split("\n----", 1)[0].splitlines()
        answers = [answer(line) for line in head if line and not line.startswith("#")]
        said = "\n".join(text for text in answers if text)
        blocks.append("\n".join([*head, *(["----"] if answers else []), *([said] if said else [])]))
    return "\n\n".join(blocks) + "\n"
