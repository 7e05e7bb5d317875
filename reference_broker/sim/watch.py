"""The observer of a node of the world: it shows the story and the checkers everything that passes, and changes nothing.

:class:`NodeWatch` lives as long as one process of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from reference_broker.classic.store import ClassicStore
from reference_broker.classic.writer import Notice as StoreNotice
from reference_broker.classic.writer import Stored
from reference_broker.log.notices import Notice, SnapshotInstalled, SnapshotTaken
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.consumers import Status
from reference_broker.machines.effects import DeadLetter
from reference_broker.message_run import RunSlice
from reference_broker.node.clients.client_channel import ClientChannel
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.observer import Call, NodeObserver
from reference_broker.node.replication.group_runner import GroupRunner, MachineCalls
from reference_broker.node.shard import Shard
from reference_broker.queues.port import DeadMessage, Queue
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.roles import Role
from reference_broker.sim.checks import fifo_checks
from reference_broker.sim.checks.invariants import ViolationError, check
from reference_broker.sim.disk import SimFiles
from reference_broker.sim.environment import Checkers
from reference_broker.types import METADATA_GROUP, ConsumerId, Entry, EntryKind, GroupId, LogIndex, NodeId


class NodeWatch(NodeObserver):
    """Who watches one process of a node. ``shard`` is set before the shard tells anything."""

    shard: Shard

    def __init__(self, node: NodeId, files: SimFiles, checkers: Checkers, moment: Callable[[str], None]) -> None:
        """``moment`` hears of each step at which trouble would be bad."""
        self._node = node
        self._files = files
        self._checkers = checkers
        self._checks = checkers.raft
        self._story = checkers.story
        self._moment = moment
        self._has_jumped = False
        """A member took over the state of another member, so clients may miss deliveries without an error."""
        self._breaks = 0
        """How often a link broke or a leader changed. Since then, a non-member may have missed something that was taken
        back."""
        self._is_told = False
        """Whether a delivery comes from the leader of a queue that has no member here."""

    # The log

    def log(self, log: LogSystem) -> LogSystem:
        """Have the story and the checkers see what changes a replica before the log does."""
        story, checks = self._story, self._checks
        seen: Mapping[str, Iterable[Callable[..., None]]] = {
            "append": (story.appended, self._appends),
            "truncate_from": (story.truncated, checks.truncated),
            "reset": (story.reset, checks.reset),
            "delete_group": (story.left, checks.left),
        }
        return cast(LogSystem, WatchedLog(log, self._node, seen))

    def _appends(self, _node: NodeId, group: GroupId, entries: Sequence[Entry]) -> None:
        changes = [entry for entry in entries if entry.kind is EntryKind.CONFIG]
        runners = self.shard.runners
        if changes and (runner := runners.get(group)) is not None:
            # A sole voter syncs, commits and applies a change, and begins the next one, all in one step of its node.
            self._look_at(runner)
        self._checks.appended(self._node, group, entries)
        if changes and group != METADATA_GROUP and runners[group].core.role is Role.LEADER:
            for change in changes:
                former = runners[group].core.configuration_at(LogIndex(change.index - 1))
                self._checkers.members.changed(group, former, Configuration.decode(change.payload))
        if changes:
            self._moment("change")

    def log_tells(self, notices: list[Notice]) -> None:
        """Have the checkers hear it."""
        self._story.noticed(self._node, notices)
        known = self.shard.hosting.log_uids
        self._checks.noticed(self._node, [each for each in notices if is_current(each, known)])
        for notice in notices:
            if isinstance(notice, SnapshotTaken | SnapshotInstalled):
                self._moment("snapshot" if isinstance(notice, SnapshotTaken) else "install")

    # The store of classic queues

    def store_opened(self, store: ClassicStore) -> None:
        """Check what the store has found."""
        self._checkers.classic.recovered(self._node, store)

    def store_tells(self, notices: Sequence[StoreNotice]) -> None:
        """The writer of the store has finished a batch: check the drive."""
        self._story.classic_noticed(self._node, notices)
        if told := {notice.group for notice in notices if isinstance(notice, Stored)}:
            self._checkers.classic.stored(self._node, self._files, told)
            self._moment("stored")

    # Members

    def member_begins(self, runner: GroupRunner, state: RecoveredGroup | None) -> None:
        """Check what recovery found."""
        host = runner.host
        self._story.begins(
            self._node, runner, host.record.name if isinstance(host, QuorumMember) else "metadata", state
        )
        self._checks.recovered(self._node, runner, state)
        if state is None and isinstance(host, QuorumMember) and host.record.membership_epoch(self._node):
            self._has_jumped = True  # the member delivers again what the leader told when this node was a non-member
            self._moment("join")

    def machine_calls(self, runner: GroupRunner) -> MachineCalls:
        """Have the checkers see each entry before a machine applies it, and the machine now and then afterwards."""
        host: Any = runner.host
        node, group, story, ledger = self._node, runner.group, self._story, self._checkers.ledger
        is_queue, former = isinstance(host, QuorumMember), -1

        def apply(entry: Entry, end: int, skip: frozenset[int]) -> None:
            nonlocal former
            story.applies(node, group, entry)
            self._checks.applies(node, group, entry, former if former >= 0 else runner.applied)
            former = entry.index
            if is_queue:
                ledger.committed(host.machine.config.name, entry.payload)
            host.apply(entry, end, skip)
            self._applied(group, entry.index, host)
            if entry.index % fifo_checks.COMPARE_EVERY == 0 and not (truth := self._checks.group(group)).deleted:
                fifo_checks.compare(truth, node, entry.index, host.machine)
            if is_queue and entry.index % fifo_checks.LOOK_EVERY == 0 and not skip:  # else maybe nothing was dealt
                fifo_checks.look_through(node, host.machine)

        def install(state: bytes, skipped: list[Any]) -> None:
            nonlocal former
            self._has_jumped = True
            former = runner.applied
            story.installs(node, group, former)
            self._checks.group(group).member(node).applied = former
            host.install(state, skipped)

        return apply, install

    def _applied(self, group: GroupId, index: LogIndex, host: Any) -> None:
        checkers = self._checkers
        checkers.absences.applied(group, index)
        if group == METADATA_GROUP:
            checkers.masters.applied(group, index)
            checkers.members.heard(host.machine.queues.values())
            checkers.mirrors.heard(host.machine.queues.values())

    def leader_changed(self, runner: GroupRunner) -> None:
        """Look at once, for a node that leads only for a moment is a leader, too."""
        self._story.stands(self._node, runner)
        self._look_at(runner)
        self._checkers.absences.ended(self._node, [runner.group])
        if runner.core.leader == self._node:
            self._moment("election")

    # Links

    def sends(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> None:
        """Look at each Raft message that leaves."""
        self._story.sends(self._node, node, kind, buffers[0])
        if kind is FrameKind.RAFT:
            self._checks.sends(self._node, node, buffers[0], len(buffers) == 1)

    def frames(self, take: Call) -> Call:
        """Note whether a delivery is made here, or comes from the leader of a queue that has no member here."""

        def watched(node: NodeId, kind: int, body: memoryview) -> None:
            self._breaks += kind == FrameKind.LEADING
            self._is_told = kind == FrameKind.EFFECTS
            take(node, kind, body)
            self._is_told = False

        return cast(Call, self._story.frames(self._node, watched))

    def peer_up(self, node: NodeId) -> None:
        """Note it."""
        self._breaks += 1
        self._story.linked(self._node, node, up=True)
        led = [group for group, runner in self.shard.runners.items() if runner.core.leader == node]
        self._checkers.absences.ended(self._node, led)

    def peer_down(self, node: NodeId) -> None:
        """Note it."""
        self._breaks += 1
        self._story.linked(self._node, node, up=False)
        self._checkers.masters.ended(self._node, [METADATA_GROUP])
        self._moment("link")

    # Queues and clients

    def looked_up(self, found: bool) -> None:
        """Have the ledger hear when nobody could tell whether a queue exists."""
        ledger = self._checkers.ledger
        ledger.is_unsure = ledger.is_unsure or not found

    def queue_gone(self, record: QueueRecord) -> None:
        """Nothing of its group counts any more."""
        self._checks.deleted(record.group)
        self._ids_begin_anew(record)

    def queue_lost(self, record: QueueRecord) -> None:
        """Consumers begin anew."""
        self._ids_begin_anew(record)

    def _ids_begin_anew(self, record: QueueRecord) -> None:
        channels = [each for each in self.shard.clients.channels.values() if isinstance(each, ClientChannel)]
        consumers = [consumer for channel in channels for consumer in channel.consumers.values()]
        elsewhere = {consumer.id for consumer in consumers if consumer.group != record.group}
        self._checkers.deliveries.queue_gone({channel.id for channel in channels}, elsewhere)

    def buries(self, queue: Queue, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """Check that dead letters go once."""
        group = queue.record.group
        self._story.buries(self._node, group, letters, contents)
        life = self.shard.boot_id if group in self.shard.owned.runners else 0
        self._checkers.dead_letters.sent(self._node, group, letters, life)
        self._moment("letters")

    def delivers(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Check which node executes which delivery."""
        self._story.delivers(self._node, group, consumer, first_message_id, slices, delivery_count)
        channel = self.shard.clients.channels.get(consumer.channel.connection)
        known = channel.consumers.get(consumer.tag) if isinstance(channel, ClientChannel) else None
        if self._is_told:
            breaks = self._breaks
        else:
            is_group = known is not None and known.group == group
            breaks = self._doubts_before(group, consumer, first_message_id, delivery_count, is_group=is_group)
        gap = self._has_jumped or not isinstance(channel, ClientChannel)  # a client that is gone hears of no gap
        if known is not None and known.next_message_id == first_message_id:
            gap = True  # it gave back unseen what is in between, was cancelled, and has subscribed anew
        count = sum(each[2] for each in slices)
        self._checkers.deliveries.executed(
            self._node, self.shard.boot_id, consumer, first_message_id, count, gap, breaks, is_told=self._is_told
        )

    def misses(self, _group: GroupId, consumer: ConsumerId, last: int) -> None:
        """Have the checker of deliveries know what was left out."""
        self._checkers.deliveries.missed(consumer, last)

    def _doubts_before(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, delivery_count: int, *, is_group: bool
    ) -> int:
        """How many doubts the delivering member has had. A first delivery must come without doubt. ``is_group``:
        whether the consumer is known as one of the group's queue."""
        shard, what = self.shard, f"{first_message_id} to {consumer}"
        owner = shard.owned.runners.get(group)
        if owner is not None and owner.ring is not None and owner.ring.record.mirrors and not delivery_count:
            applied = shard.runners[METADATA_GROUP].applied
            self._checkers.masters.delivers(self._node, METADATA_GROUP, applied, what)
        queue = shard.hosting.by_group.get(group) if is_group else None
        member = queue.member if queue is not None else None
        if not isinstance(member, QuorumMember):
            return 0
        if not delivery_count:
            self._checkers.absences.delivers(self._node, group, shard.runners[group].applied, what)
        return member._doubt.number  # a member that leaves has no runner any more, and delivers what it kept

    # Looked at

    def stepped(self) -> None:
        """The node has done something: look at the members that have changed."""
        for runner in self.shard.runners.values():
            core = runner.core
            member = self._checks.groups[runner.group].members[self._node]
            if (
                core.commit_index != member.commit
                or member.lost
                or runner.applied != member.applied
                or (core.leader == self._node and core.term != member.leads_in)
            ):
                self._look_at(runner)

    def _look_at(self, runner: GroupRunner) -> None:
        """Tell how far the member has come, and check where it stands."""
        self._story.reached(self._node, runner, self._checks.group(runner.group).member(self._node).commit)
        self._checks.looked_at(self._node, runner)

    def look(self) -> None:
        """Look, now and then, for what the node should have done by now."""
        self._look_for_forgotten(self.shard)
        self._look_at_mailers(self.shard)

    def _look_for_forgotten(self, shard: Shard) -> None:
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
                    where = f"queue {host.record.name}: node {self._node} leads and can reach node {channel.node}"
                    raise ViolationError("I18", f"{where}, but {consumer.id} is suspended")

    def _look_at_mailers(self, shard: Shard) -> None:
        """Check that a node that no longer leads has left the dead letters to its successor."""
        for group in shard.dead_letters.mailing:
            runner = shard.runners.get(group)
            leads = runner is not None and isinstance(runner.host, QuorumMember) and runner.host.leading
            check(leads, "X6", f"node {self._node} does not lead group {group:x}, and sends its letters")


class WatchedLog:
    """A log of a node. Before each call of a method in ``seen``, the calls there are made with the same arguments."""

    def __init__(self, log: LogSystem, node: NodeId, seen: Mapping[str, Iterable[Callable[..., None]]]) -> None:
        self._log = log
        self._watched = {name: partial(self._call, node, calls, getattr(log, name)) for name, calls in seen.items()}

    def __getattr__(self, name: str) -> Any:
        return self._watched.get(name) or getattr(self._log, name)

    @staticmethod
    def _call(node: NodeId, seen: Iterable[Callable[..., None]], call: Callable[..., Any], *arguments: Any) -> Any:
        for each in seen:
            each(node, *arguments)
        return call(*arguments)


def is_current(notice: Notice, log_uids: dict[GroupId, int]) -> bool:
    """Whether a notice is about the present replica of its group, of which ``log_uids`` tells. Late notices of a member
    that left belong to an earlier replica than the replica that joined since."""
    group, log_uid = getattr(notice, "group", None), getattr(notice, "log_uid", None)
    return group is None or log_uid is None or log_uids.get(group, log_uid) == log_uid
