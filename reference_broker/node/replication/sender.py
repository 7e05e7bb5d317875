"""The messages of a group's core on their way: read from the log, encoded, and put on the links.

A notice of a commit waits a little for an entry to go with, unless a client on the node waits for the notice.

*Spare copies* wait, too. A small entry needs only enough followers for a majority with the leader. Another follower, on
a node without clients of the queue, gets its copy some milliseconds later, together with later entries and with copies
of other groups. This holds as long as every follower whose answer counts has answered everything before, and is not
slower than the follower that would wait. So a member that stops, a slow drive or a lost link costs one such delay at
most (docs/decisions/0010).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Final, Protocol

from reference_broker.log.errors import EntryGoneError, SnapshotGoneError
from reference_broker.log.system import LogSystem
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.ports import NodePorts
from reference_broker.queues.port import HostedMachine
from reference_broker.raft import wire
from reference_broker.raft.core import RaftCore
from reference_broker.raft.leadership import Leadership
from reference_broker.raft.messages import InstallSnapshot
from reference_broker.raft.ready import Ready, Send, SendEntries, SendSnapshot
from reference_broker.raft.roles import Role
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId

_HEADS: Final = 1024
"""Octets of a frame that are reserved for the heads of its entries."""
_ENTRIES_WAITING_MAX: Final = 64
_RECENT: Final = 8
"""Number of answers that weigh in a running mean."""
_NEVER_NS: Final = 1 << 62
"""The mean of a node that never answered."""
_ALIKE_NS: Final = 1_000_000
"""Difference of means below which two nodes count as equally fast: a process that waits for its turn makes such a
difference."""


class AnswerTimes:
    """The time that each node takes to have a few entries on disk, to compare nodes.

    Running means in nanoseconds. For a peer the time runs from sending to the answer, for the node itself it is the
    time of its own log. A node that takes more than twice as long as another is *slower*; a node that never answered
    may be the slowest.
    """

    __slots__ = ("means",)

    def __init__(self) -> None:
        self.means: dict[NodeId, int] = {}

    def took(self, node: NodeId, ns: int) -> None:
        """An answer of ``node`` took ``ns``."""
        mean = self.means.get(node, ns)
        self.means[node] = mean + (ns - mean) // _RECENT

    def limit_of(self, node: NodeId) -> int:
        """A node with a greater mean is slower than ``node``."""
        return 2 * self.means[node] + _ALIKE_NS if node in self.means else -1


class SenderPorts(NodePorts, Protocol):
    """The node as a sender uses it."""

    answers: AnswerTimes

    @property
    def congested(self) -> Set[NodeId]:
        """The peers that should not be sent much now. It is the same set for as long as the node runs."""

    def now_ns(self) -> int:
        """The host's monotonic clock."""


class _Flow:
    """Large messages on their way to one follower; it exists only while there are some."""

    __slots__ = ("_sent", "held", "octets")

    def __init__(self) -> None:
        self.held: SendEntries | None = None
        """Entries that may not go yet."""
        self.octets = 0
        """Octets under way that are not known to be on the follower's disk."""
        self._sent: deque[tuple[LogIndex, int]] = deque()

    def sent(self, last: LogIndex, octets: int) -> None:
        """A message up to entry ``last`` went off."""
        self._sent.append((last, octets))
        self.octets += octets

    def stored(self, synced: LogIndex) -> None:
        """The follower has entries up to ``synced`` on disk."""
        while self._sent and self._sent[0][0] <= synced:
            self.octets -= self._sent.popleft()[1]

    def lost(self, first: LogIndex) -> None:
        """Entries from ``first`` on are sent again."""
        while self._sent and self._sent[-1][0] >= first:
            self.octets -= self._sent.pop()[1]

    @property
    def is_over(self) -> bool:
        """Whether no message is under way or held."""
        return not self._sent and self.held is None


class Sender:
    """The messages of one member of one group."""

    __slots__ = (
        "_asked",
        "_congested",
        "_copies_wait",
        "_core",
        "_entry_ns",
        "_group",
        "_host",
        "_log",
        "_node",
        "_notices_wait",
        "_octets_max",
        "_put_off",
        "_small",
        "_stopped",
        "_wait_for_link",
        "_wake",
        "chunks",
        "flows",
        "sending_snapshot",
    )

    def __init__(
        self,
        group: GroupId,
        core: RaftCore,
        log: LogSystem,
        node: SenderPorts,
        host: HostedMachine,
        wait_for_link: Callable[[NodeId], None],
        wake: Callable[[], None],
    ) -> None:
        """``wait_for_link``: have :meth:`go_on` called when the link to a node takes octets again. ``wake`` gives the
        member a turn, and with it its ticks, when it may have begun to wait for something outside of one."""
        self._group = group
        self._core = core
        self._log = log
        self._node = node
        self._host = host
        self._put_off: dict[NodeId, SendEntries] = {}
        """Spare copies, and notices of a commit for which no client on the node waits."""
        self._copies_wait = False
        self._notices_wait = False
        self._entry_ns = 0
        """When an entry was sent last, the short way."""
        self._asked: dict[NodeId, tuple[LogIndex, int]] = {}
        """An index that each node is to have on disk, and since when, in ns."""
        self.sending_snapshot = False
        self._stopped = False
        self._wait_for_link = wait_for_link
        self._wake = wake
        self._congested = node.congested
        self._small = node.limits.small_message_bytes
        """A larger copy is worth a message of its own; waiting would only bring a burst."""
        self._octets_max = node.limits.peer_frame_bytes_max - _HEADS
        self.flows: dict[NodeId, _Flow] = {}
        """Large messages on their way. With these, or with chunks, :meth:`go_on` may have something to do."""
        self.chunks: dict[NodeId, SendSnapshot] = {}
        """Chunks that wait for a link."""

    def send_all(self, ready: Ready) -> None:
        """Every message of a Ready."""
        before = _before_few(ready.append, self._small)
        if before is not None and ready.role is Role.LEADER:
            self._asked.setdefault(self._node.node, (ready.append[-1].index, self._node.now_ns()))
        for outgoing in ready.messages:
            match outgoing:
                case SendEntries():
                    self._send_entries(outgoing, before)
                case Send():
                    self._send_what_waits(outgoing.to)
                    self._node.send(outgoing.to, FrameKind.RAFT, wire.encode(self._group, outgoing.message))
                case SendSnapshot():
                    self._put_off.pop(outgoing.to, None)
                    self.flows.pop(outgoing.to, None)
                    self._send_snapshot(outgoing)

    def send_entry(self, entry: Entry, nodes: Sequence[NodeId]) -> None:
        """Send a new entry, the last of the log, behind entries of the same term, to these followers, or only to those
        that need it now."""
        few, before, now_ns = len(entry.payload) <= self._small, LogIndex(entry.index - 1), self._node.now_ns()
        self._entry_ns = now_ns
        if few:
            self._asked.setdefault(self._node.node, (entry.index, now_ns))
        buffers: list[bytes | memoryview] | None = None
        for node in nodes:
            waiting = self._put_off.get(node)
            may_wait = few and node not in self._host.client_nodes
            if self.flows or self._congested or (waiting is not None and waiting.last >= waiting.first):
                self._send_entries(self._entry(node, entry), before if few else None)
                continue
            if waiting is not None:
                del self._put_off[node]  # a notice, and the entry says the same
            if may_wait and self._is_spare(node, before):
                self._wait(self._entry(node, entry))
                continue
            if buffers is None:
                buffers = wire.encode_append(self._group, self._entry(node, entry), self._node.node, (entry,))
            self._asked.setdefault(node, (entry.index, now_ns))
            octets = self._node.send(node, FrameKind.RAFT, buffers)
            if octets > self._small:
                self.flows.setdefault(node, _Flow()).sent(entry.index, octets)

    def _entry(self, node: NodeId, entry: Entry) -> SendEntries:
        return SendEntries(
            to=node,
            term=entry.term,
            prev_index=LogIndex(entry.index - 1),
            prev_term=entry.term,
            commit=self._core.log.commit_index,
            first=entry.index,
            last=entry.index,
        )

    def tell_commit(self, leadership: Leadership) -> None:
        """More is committed: tell the followers with clients at once, and the others in a while, or with the next
        entry. Who will know by itself as soon as its own disk has it is one of the others, unless its disk is slow."""
        for node in leadership.progress:
            if node not in self._host.client_nodes or (leadership.is_told(node) and not self._is_slow(node)):
                if not self._notices_wait:
                    self._tell_later()
            elif (send := leadership.notice(node)) is not None:
                self._send_entries(send, None)

    def _is_slow(self, node: NodeId) -> bool:
        answers = self._node.answers
        return answers.means.get(node, _NEVER_NS) > answers.limit_of(self._node.node)

    def tell_synced(self, leadership: Leadership) -> None:
        """This leader has more on its disk: tell the followers with clients. They then learn of a commit without
        waiting for the leader's notice."""
        for node in leadership.progress:
            if node in self._host.client_nodes and (message := leadership.tell_synced(node)) is not None:
                self._node.send(node, FrameKind.RAFT, wire.encode(self._group, message))

    def _tell_later(self) -> None:
        if not self._notices_wait:
            self._notices_wait = True
            self._wait_for_notices(self._node.limits.commit_notice_delay_ms / 1000)

    def _wait_for_notices(self, delay_s: float) -> None:
        self._node.later(delay_s, self._notices_due)

    def answered(self, node: NodeId, synced: LogIndex) -> None:
        """A node, or this one itself, has entries up to ``synced`` on disk. :meth:`go_on` may have something to do."""
        if self.flows and (flow := self.flows.get(node)) is not None:
            flow.stored(synced)
        asked = self._asked.get(node)
        if asked is not None and synced >= asked[0]:
            del self._asked[node]
            self._node.answers.took(node, self._node.now_ns() - asked[1])

    def forget(self) -> None:
        """Forget the messages put off: they belong to a role that is over."""
        self._put_off.clear()
        self._asked.clear()
        self.flows.clear()
        self.chunks.clear()

    def peer_down(self, node: NodeId) -> None:
        """The link to a node broke. A majority may now need copies that were spare before."""
        self._put_off.pop(node, None)
        self._asked.pop(node, None)
        self.flows.pop(node, None)
        self.chunks.pop(node, None)
        self._send_all_that_waits()

    def go_on(self) -> None:
        """Send the held entries that may go now."""
        for node, flow in list(self.flows.items()):
            held, flow.held = flow.held, None
            if held is not None:
                self._send_while_it_may(held)
            if flow.is_over:
                del self.flows[node]
        for node in [node for node in self.chunks if node not in self._congested]:
            self._send_snapshot(self.chunks.pop(node))

    def stop(self) -> None:
        """The group is gone from this node."""
        self._stopped = True

    def release_snapshot(self) -> None:
        """No follower needs the snapshot any more: the log may drop it."""
        self.sending_snapshot = False
        self._log.release_snapshot(self._group)

    def _send_entries(self, send: SendEntries, before: LogIndex | None) -> None:
        """Send entries or a notice, or put them off. A message that was put off before goes along."""
        may_wait = self._may_wait(send, before)
        if (waiting := self._put_off.pop(send.to, None)) is not None:
            if send.commit and send.first == waiting.last + 1:
                send = _joined(waiting, send)
            else:
                self._send_now(waiting, few=True)
        if may_wait and send.last - send.first < _ENTRIES_WAITING_MAX:
            self._wait(send)
        else:
            self._send_now(send, few=before is not None)

    def _may_wait(self, send: SendEntries, before: LogIndex | None) -> bool:
        """Whether no node needs the message now. ``before``: the last entry before the entries of this turn, if these
        are small."""
        if not send.commit or send.to in self._host.client_nodes:
            return False
        return send.last < send.first or (before is not None and self._is_spare(send.to, before))

    def _is_spare(self, node: NodeId, before: LogIndex) -> bool:
        """Whether other followers make the majority, and not later than with this node: enough other voters can be
        reached, have everything up to ``before`` on disk, are not slower, and do not wait for copies themselves."""
        leadership, answers = self._core.leadership, self._node.answers
        if leadership is None:
            return False
        means, limit_ns = answers.means, answers.limit_of(node)
        prompt = 0
        if leadership.is_voter and self._core.log.synced_index >= before:
            prompt += means.get(self._node.node, _NEVER_NS) <= limit_ns
        for progress in leadership.voting:
            other = progress.node
            if other == node or not progress.reachable or progress.match_index < before:
                continue
            waiting = self._put_off.get(other)
            if waiting is None or waiting.last < waiting.first:
                prompt += means.get(other, _NEVER_NS) <= limit_ns
        return prompt >= leadership.majority

    def _wait(self, send: SendEntries) -> None:
        self._put_off[send.to] = send
        limits = self._node.limits
        if send.last < send.first:
            self._tell_later()
        elif send.last >= send.first and not self._copies_wait:
            self._copies_wait = True
            self._node.in_step(limits.spare_copy_delay_ms / 1000, self._copies_due)

    def _notices_due(self) -> None:
        """Tell what no entry has told meanwhile. While entries come, each tells of the commit of those before."""
        left_s = self._node.limits.commit_notice_delay_ms / 1000 - (self._node.now_ns() - self._entry_ns) / 1e9
        if left_s > 0 and not self._stopped:
            self._wait_for_notices(left_s)
            return
        self._notices_wait = False
        self._send_all_that_waits()
        leadership = self._core.leadership
        if leadership is None or self._stopped:
            return
        for node in leadership.progress:
            if (send := leadership.notice(node)) is not None:
                self._send_now(send, few=True)
                self._wake()

    def _copies_due(self) -> None:
        self._copies_wait = False
        for node in [node for node, waiting in self._put_off.items() if waiting.last >= waiting.first]:
            self._send_what_waits(node)

    def _send_all_that_waits(self) -> None:
        for node in list(self._put_off):
            self._send_what_waits(node)

    def _send_what_waits(self, node: NodeId) -> None:
        if not self._stopped and (waiting := self._put_off.pop(node, None)) is not None:
            self._send_now(waiting, few=True)

    def _send_now(self, send: SendEntries, *, few: bool) -> None:
        """Send entries, or a notice, or a question. ``few``: each of the entries is known to have few octets."""
        if (self.flows or self._congested) and self._is_held_back(send, few):
            return
        rest = self._send_some(send)
        if rest is not None:
            self._send_while_it_may(rest)

    def _is_held_back(self, send: SendEntries, few: bool) -> bool:
        """Whether to keep the message: an earlier message is held, or too much is under way."""
        flow = self.flows.get(send.to)
        has_entries = send.last >= send.first
        if flow is not None and flow.held is not None:
            if send.first == flow.held.last + 1 and (send.commit or has_entries):
                flow.held = _joined(flow.held, send)
                return True
            flow.held = None  # the core begins again after the last entry that the follower is known to have
        if flow is not None and has_entries:
            flow.lost(send.first)
        if not has_entries or self._may_go(send.to, few):
            return False
        self._hold(send)
        return True

    def _may_go(self, node: NodeId, few: bool) -> bool:
        flow = self.flows.get(node)
        if flow is not None and flow.octets >= self._node.limits.follower_bytes_max:
            return False
        return few or node not in self._congested

    def _hold(self, send: SendEntries) -> None:
        self.flows.setdefault(send.to, _Flow()).held = send
        if send.to in self._congested:
            self._wait_for_link(send.to)

    def _send_while_it_may(self, send: SendEntries) -> None:
        """Send one message after the other; hold the rest."""
        rest: SendEntries | None = send
        while rest is not None and self._may_go(rest.to, few=False):
            rest = self._send_some(rest)
        if rest is not None:
            self._hold(rest)

    def _send_some(self, send: SendEntries) -> SendEntries | None:
        """Send one message of as many entries as fit into a frame, or one; returns the rest."""
        if send.last < send.first:
            self._node.send(send.to, FrameKind.RAFT, wire.encode_append(self._group, send, self._node.node, ()))
            return None
        try:
            entries = self._log.entries(self._group, send.first, send.last, self._octets_max)
        except EntryGoneError:
            return (
                None  # compacted while the message waited, for a vote to be synced say; the core asks again, and sees
            )
        last = entries[-1]
        self._asked.setdefault(send.to, (last.index, self._node.now_ns()))
        message = wire.encode_append(self._group, send, self._node.node, entries)
        octets = self._node.send(send.to, FrameKind.RAFT, message)
        if octets > self._small:
            self.flows.setdefault(send.to, _Flow()).sent(last.index, octets)
        return None if last.index == send.last else _rest(send, last)

    def _send_snapshot(self, send: SendSnapshot) -> None:
        if send.to in self._congested:
            self.chunks[send.to] = send
            self._wait_for_link(send.to)
            return
        try:
            index, term, data, last = self._log.snapshot_chunk(self._group, send.number)
            if send.number == 1 and index < send.index:
                # One that is pinned for an earlier transfer: a follower that gets it would need the next one at once.
                self._log.release_snapshot(self._group)
                index, term, data, last = self._log.snapshot_chunk(self._group, 1)
        except SnapshotGoneError:
            return  # the core asks again, from the first chunk of the snapshot at that time
        self.sending_snapshot = True
        message = InstallSnapshot(
            term=send.term,
            leader=self._node.node,
            index=index,
            index_term=term,
            number=send.number,
            last=last,
            data=data,
        )
        self._node.send(send.to, FrameKind.RAFT, wire.encode(self._group, message))


def _joined(first: SendEntries, then: SendEntries) -> SendEntries:
    """One message for two that follow each other."""
    return SendEntries(
        to=then.to,
        term=then.term,
        prev_index=first.prev_index,
        prev_term=first.prev_term,
        commit=then.commit,
        first=first.first,
        last=then.last,
    )


def _rest(send: SendEntries, sent: Entry) -> SendEntries:
    """The rest of a message whose entries up to ``sent`` have gone."""
    return SendEntries(
        to=send.to,
        term=send.term,
        prev_index=sent.index,
        prev_term=sent.term,
        commit=send.commit,
        first=LogIndex(sent.index + 1),
        last=send.last,
    )


def _before_few(entries: Sequence[Entry], octets_max: int) -> LogIndex | None:
    """The index before these entries, if there are entries and all are commands of few octets; else None."""
    if not entries or sum([len(entry.payload) for entry in entries]) > octets_max:
        return None
    return None if any(entry.kind is not EntryKind.COMMAND for entry in entries) else LogIndex(entries[0].index - 1)
