"""The queues of the cluster as one node has them: for each queue a member of its group here, or a proxy.

The metadata group says which queues there are and where their members are wanted
(:mod:`reference_broker.machines.cluster.metadata`). This module starts and stops members and proxies accordingly. When
a member comes or goes, the commands that the node proposed and has not applied pass from proxy to member or back, with
their numbers. So no command is lost or done twice.

A node that starts hears the story of all queues from its metadata log once more, from the last snapshot on. For a while
it does not know how the story went on. So it begins no blank replica before it is *current*: a question that it asked
since its start must first come back through the metadata log, and with it everything that was committed before. A
replica that was deleted because the node was removed from a queue must not rise again from an old line of the log,
without memory of its votes and entries: two such replicas of three would elect each other.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from reference_broker.access.names import shown, vhost_of
from reference_broker.access.records import NO_LIMIT
from reference_broker.amqp.events import QueueDeclare
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster.metadata import QueueRecord, record_from_json, record_to_json
from reference_broker.machines.cluster.mirror_records import StartMaster, mirror_of
from reference_broker.mirroring.placement import HaPolicy, first_mirrors
from reference_broker.node.config import NodeConfig
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.endings import Ending, Endings
from reference_broker.node.hosting.queue_services import QueueServices
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.owned.mirror_runner import MirrorRunner
from reference_broker.node.owned.mirrors_here import Mirrors
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.node.owned.owner import OwnerPorts
from reference_broker.node.replication import non_members
from reference_broker.node.replication.census import Busiest, Census, placed
from reference_broker.node.replication.group_runner import GroupPorts, GroupRunner
from reference_broker.node.replication.known_groups import Groups
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.node.replication.proposals import UnappliedCommands
from reference_broker.node.replication.proxy import Proxy
from reference_broker.node.replication.queue_runner import QueueRunner
from reference_broker.node.replication.ticks import Campaigns
from reference_broker.queues.port import (
    GONE,
    Channels,
    HostedMachine,
    Proposer,
    Queue,
    QueueKind,
    QueueMember,
    QueueOwner,
    QueuePorts,
)
from reference_broker.raft.config import RaftConfig
from reference_broker.raft.core import RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import Message
from reference_broker.raft.ready import HardState
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, LogIndex, NodeId, Term

log = logging.getLogger(__name__)

_EARLY_MAX: Final = 256
_BUSIEST: Final = 4
"""The number of queues that a node names in its summary."""
_Unapplied = Sequence[UnappliedCommands]  # by priority


class HostingPorts(GroupPorts, OwnerPorts, QueuePorts, Protocol):
    """The node's services for members, proxies and queues, and the observer of their beginnings and ends."""

    config: NodeConfig
    log: LogSystem
    owned: OwnedQueues
    nodes: Nodes
    metadata: MetadataHost
    services: QueueServices
    endings: Endings

    @property
    def clients(self) -> Channels:
        """The channels of this node."""

    def now_ms(self) -> int:
        """The wall clock."""

    def random_bits(self, count: int, /) -> int:
        """A random number of ``count`` bits."""

    def member_begins(self, runner: GroupRunner, state: RecoveredGroup | None) -> None:
        """A member begins here, with what recovery found of it."""

    def reconcile(self, runner: QueueRunner) -> None:
        """The queue's members or settings may have to change, if this node leads the queue."""

    def ha_policy(self, record: QueueRecord) -> HaPolicy | None:
        """The policies' rule for copies of the queue."""

    def queue_gone(self, record: QueueRecord) -> None:
        """The queue was deleted."""

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the owner of a queue broke, which has ended this node's channels."""


class Hosting:
    """All queues and groups of one node (:class:`reference_broker.node.replication.metadata_group.QueueStarter`)."""

    def __init__(self, node: HostingPorts, kinds: Mapping[str, QueueKind]) -> None:
        self.node = node.node
        self.boot_id = node.boot_id
        self._jitter = random.Random(f"{node.node}/{node.boot_id}").randint
        limits = node.limits
        self._raft = RaftConfig(
            election_ticks_min=limits.election_ticks_min, election_ticks_max=limits.election_ticks_max
        )
        self.kinds = kinds
        self.groups = groups = Groups()
        self.queues, self.by_group = groups.queues, groups.by_group
        self.runners, self.proxies, self.log_uids = groups.runners, groups.proxies, groups.log_uids
        self.hosted = groups.hosted
        self.census = Census(node.node)
        self.busiest = Busiest(_BUSIEST, self._commits)
        self.campaigns = Campaigns(self._stand)
        self.mirrors = Mirrors(node, kinds)
        self._ports = node
        self._early: dict[GroupId, list[tuple[NodeId, Message]]] = {}
        """Messages for groups that are not here: the first messages of a new queue may overtake the news of the
        queue."""
        self._early_count = 0
        self._non_members: dict[GroupId, set[NodeId]] = {}
        """The non-members of each group that want to know its leader, whether or not this node leads or has a member. A
        non-member may learn of a new member here before this node learns that the former member is to go."""

    def recover(self, recovered: dict[GroupId, RecoveredGroup]) -> None:
        """Start the members that were here when the node stopped. Runs once, before the links are up."""
        ports = self._ports
        self._forgetful = {group for group, state in recovered.items() if state.forgetful}
        self.recover_queues(recovered)
        state = recovered.get(METADATA_GROUP)
        if state is None:
            self._create(METADATA_GROUP, b"%d" % ports.config.first_life)
        replica_id = int(state.meta or 0) if state is not None else ports.config.first_life
        members = () if replica_id else tuple(sorted(member.node for member in ports.config.members))
        metadata = self._run(METADATA_GROUP, members, ports.metadata, state, None, replica_id=replica_id)
        ports.metadata.member = metadata
        ports.metadata.when_current(self.became_current)

    @property
    def forgetful(self) -> Collection[GroupId]:
        """The groups whose synced entries this node may have forgotten: the node does not vote in them yet."""
        runners = self.runners
        self._forgetful = {each for each in self._forgetful if each in runners and runners[each].core.forgetful}
        return self._forgetful

    def recover_queues(self, recovered: dict[GroupId, RecoveredGroup]) -> None:
        """Start the members of queues."""
        for group, state in recovered.items():
            if group != METADATA_GROUP:
                self._run_queue(record_from_json(json.loads(state.meta)), state)

    def became_current(self) -> None:
        """This node has heard everything that was committed before its start. Blank replicas may begin, and the rest of
        deleted queues goes: the metadata's snapshot may be newer than the last deletion that reached the disk."""
        self.groups.is_current = True
        self.queues_replaced(list(self._ports.metadata.machine.queues.values()))
        self._ports.owned.became_current(self.mirrors.left_behind())
        for queue in list(self.by_group.values()):
            if queue.member is None and queue.record.has_replica(self.node):
                self._join(queue.record)
        self._reconcile_all()
        self._begin_anew()
        for queue in list(self.by_group.values()):
            if queue.record.ended_with(self.node, self.boot_id):
                self._ports.endings.end(queue.record, Ending.TRANSIENT, "its node has started again")

    # For clients

    def new_record(self, event: QueueDeclare, name: str, connection: int) -> QueueRecord:
        """The record of a queue of this name in the cluster, which may be declared. Raises
        :class:`~reference_broker.node.hosting.declaration.DeclarationError`."""
        ports, vhost = self._ports, vhost_of(name)
        known = ports.metadata.machine.access.vhosts.get(vhost)
        declaration.check_limit(name, len(self.groups.of_vhost(vhost)), known.max_queues if known else NO_LIMIT)
        return self.place(
            declaration.new_record(
                event, name, ports.nodes.all, ports.random_bits, self.kinds, (self.node, self.boot_id, connection)
            )
        )

    def place(self, record: QueueRecord) -> QueueRecord:
        """The record with its members and its first leader."""
        nodes, policies = self._ports.nodes, self._ports.metadata.machine.policies.values()
        is_replicated = self.is_replicated(record)
        record = placed(
            record, self.node, nodes.all, nodes.up, self.census, is_replicated=is_replicated, policies=policies
        )
        if is_replicated or record.leader not in nodes.up:
            return record
        return first_mirrors(self._ports.ha_policy(record), record, nodes.up_names, nodes.up, self.census.members)

    def is_replicated(self, record: QueueRecord) -> bool:
        """Whether the queue is of a kind with members on several nodes."""
        return self.kinds[record.kind].owner is None

    def declare(self, record: QueueRecord, answered: Callable[[Queue], None]) -> None:
        """Create the queue if its name is free; ``answered`` gets the queue of that name, which may have no leader
        yet."""

        def committed(existing: QueueRecord | None) -> None:
            if existing is None and record.vhost not in self._ports.metadata.machine.access.vhosts:
                return  # the virtual host was deleted, and its connections are being closed
            if existing is None:  # declared and deleted again within entries that this node jumped over
                self.declare(replace(record, group=declaration.new_group(self._ports.random_bits)), answered)
                return
            if (proxy := self.proxies.get(existing.group)) is not None:
                proxy.attach()
            elif (runner := self.runners.get(existing.group)) is not None and existing.leader in (NOBODY, self.node):
                runner.lead_if_nobody_does()
            answered(self.queues[existing.name])

        self._ports.metadata.declare(record, committed)

    # node.metadata.QueueStarter

    def queue_added(self, record: QueueRecord) -> None:
        """Run the queue here, and give it its name: after a restart the log may tell of queues of that name that came
        and went before."""
        if (known := self.by_group.get(record.group)) is not None:
            self.groups.name(record, known)
            if known.record.changes <= record.changes:
                self.members_changed(record)
        elif record.leader == self.node and not self.is_replicated(record):
            self._begin_owner(record)
        elif record.has_replica(self.node) and self.groups.is_current:
            self._begin_member(record, None)
        else:
            self._stand_in(record, None)
        if not self.is_replicated(record):
            self.mirrors.record_is(record)

    def queue_removed(self, record: QueueRecord) -> None:
        """Stop the queue's group, here and for good."""
        queue = self.by_group.pop(record.group, None)
        if queue is None:
            return
        runner = self.hosted.pop(record.group, None) or self.proxies[record.group]
        runner.stop()
        for commands in runner.unapplied:
            commands.forget()
        queue.proposer = GONE
        self.census.queue_gone(record.group)
        self._member_gone(record.group)
        self.groups.free_name(queue)
        self.proxies.pop(record.group, None)
        if self.runners.pop(record.group, None) is not None:
            self._ports.log.delete_group(record.group)
        self._ports.owned.gone(queue.record)
        self.mirrors.queue_gone(record.group)
        self._non_members.pop(record.group, None)
        self._ports.queue_gone(record)

    def members_changed(self, record: QueueRecord) -> None:
        """Start or stop a member here as the record says, and take the next step if this node leads."""
        queue = self.by_group.get(record.group)
        if queue is None:
            return
        if queue.member is not None and record.changes < queue.membership_epoch:
            return  # an old story, told again at a start: it knows nothing of this replica
        if not self.is_replicated(record):
            self._owner_changed(queue, record)
            return
        queue.record = record
        if queue.member is not None:
            queue.member.record = record
        elif (proxy := self.proxies.get(record.group)) is not None:
            proxy.members_changed(record)
        self.census.queue_is(record)
        if record.has_replica(self.node):
            if queue.member is None:
                if self.groups.is_current:
                    self._join(record)
            elif queue.membership_epoch < record.membership_epoch(self.node):
                # This node was removed and added again while it did not listen. Its old replica is not a member any
                # more, so it must not speak with the voice of the new one.
                self._leave(record)
                if self.groups.is_current:
                    self._join(record)
        elif queue.member is not None:
            self._leave(record)
        if (runner := self.runners.get(record.group)) is not None:
            self._ports.reconcile(runner)

    def replica_gone(self, record: QueueRecord, membership_epoch: int) -> None:
        """Delete the replica of that membership epoch. A replica of a later epoch stays: at a start the log tells old
        stories."""
        queue = self.by_group.get(record.group)
        if queue is not None and queue.member is not None and queue.membership_epoch <= membership_epoch:
            self._leave(record)

    def policies_changed(self) -> None:
        """Another policy may hold: leaders have their queues follow."""
        self._ports.owned.policies_changed()
        self._reconcile_all()

    def _reconcile_all(self) -> None:
        for runner in self.hosted.values():
            self._ports.reconcile(runner)

    def queues_replaced(self, records: Sequence[QueueRecord]) -> None:
        """These are all queues, after a jump over the metadata log: drop the others."""
        wanted = {record.group for record in records}
        for queue in list(self.by_group.values()):
            if queue.record.group not in wanted:
                self.queue_removed(queue.record)

    # Peers

    def early_message(self, group: GroupId, node: NodeId, message: Message) -> None:
        """A message for a member that is not here, and may be about to come."""
        self._early.setdefault(group, []).append((node, message))
        self._early_count += 1
        if self._early_count > _EARLY_MAX:
            self._early_count -= len(self._early.pop(next(iter(self._early))))

    def peer_up(self, node: NodeId, *, up: Collection[NodeId]) -> None:
        """A link is up; ``up`` are the nodes that can be reached now, this node among them. Once they are a majority,
        this node stands for election in the groups without a leader in which it voted for itself last. In a group
        without votes, the lowest node stands."""
        for runner in self.hosted.values():
            runner.peer_up(node)
        for proxy in self.proxies.values():
            proxy.peer_up(node)
        self.mirrors.peer_up(node)
        if 2 * len(up) > len(self._ports.config.members):
            lowest = min(up)
            groups = sorted(self.census.leaderless, key=lambda group: group != METADATA_GROUP)  # the rest as they are
            self.campaigns.begin(
                group for group in groups if (self.runners[group].core.voted_for or lowest) == self.node
            )

    def _stand(self, group: GroupId) -> None:
        self.runners[group].lead_if_nobody_does()

    def peer_down(self, node: NodeId) -> None:
        """A link broke."""
        for non_members_of in self._non_members.values():
            non_members_of.discard(node)
        for runner in self.hosted.values():
            runner.peer_down(node)
        for proxy in self.proxies.values():
            proxy.peer_down(node)
        self.mirrors.peer_down(node)

    def links_changed(self) -> None:
        """Other nodes reach each other, or do so no more: the rings of the queues that are owned here may change."""
        for group in list(self.mirrors.mirrored):
            if (runner := self._ports.owned.runners.get(group)) is not None:
                self._ports.reconcile(runner)

    def was_suspended(self) -> None:
        """This process was suspended, and other nodes may have given this node up."""
        for runner in self.hosted.values():
            runner.was_suspended()
            if runner.leads:
                self.tell_non_members(runner)
        for proxy in self.proxies.values():
            proxy.was_suspended()

    def attached(self, group: GroupId, node: NodeId, *, stays: bool) -> None:
        """A node without a member has clients of the queue, or has none any more."""
        runner = self.hosted.get(group)
        if stays:
            self._non_members.setdefault(group, set()).add(node)
            if runner is not None and runner.leads:
                self._say_leading(runner, node)
        else:
            self._non_members.get(group, set()).discard(node)
            if runner is not None:
                runner.non_member_left(node)

    def tell_non_members(self, runner: QueueRunner) -> None:
        """This node leads the group now: tell the non-members."""
        for node in sorted(self._non_members.get(runner.group, ())):
            self._say_leading(runner, node)

    def _say_leading(self, runner: QueueRunner, node: NodeId) -> None:
        if (boot_id := self._ports.nodes.boot_id_of(node)) is not None:
            applied = runner.highest_applied(node, boot_id)
            frame = non_members.pack_leading(runner.group, runner.term, *applied)
            self._ports.send(node, FrameKind.LEADING, [frame])

    # Members that come and go

    def _join(self, record: QueueRecord) -> None:
        """A member is here from now on, instead of the proxy."""
        log.info("queue %s: a member here, membership epoch %d", shown(record.name), record.membership_epoch(self.node))
        proxy = self.proxies.pop(record.group)
        proxy.stop()
        self._begin_member(record, proxy.unapplied)

    def _begin_member(self, record: QueueRecord, unapplied: _Unapplied | None) -> None:
        """Begin a member with a blank replica, which the leader tells everything."""
        self._create(record.group, record_to_json(record))
        runner = self._run_queue(record, None, unapplied)
        early = self._early.pop(record.group, [])
        self._early_count -= len(early)
        for node, message in early:
            runner.step(node, message)
        if record.leader == self.node and not record.membership_epoch(self.node) and not record.elected:
            runner.lead_if_nobody_does()  # an older program declared the queue, and elected no leader

    def _begin_owner(
        self, record: QueueRecord, copy: MirrorRunner | None = None, unapplied: _Unapplied | None = None
    ) -> None:
        """Own a queue that is not replicated. ``copy``: the mirror that was here before, and becomes the master;
        ``unapplied``: the commands of this node's clients."""
        ports, kind = self._ports, self.kinds[record.kind]
        published = copy.hand_over() if copy is not None else ()
        runner, owner = ports.owned.begin(record, kind, ports.clients, ports.services, ports, ports.now_ms)
        self.hosted[record.group] = runner
        self._has(record, runner, owner)
        self.census.member_knows(record.group, self.node)
        if record.mirrors:
            runner.have_mirrors(record, copy.ring if copy is not None else None)
            self.mirrors.ring_made(record.group)
            if not self.groups.is_current:
                runner.doubt()  # the record may be an old story
        if unapplied is not None:
            runner.take_over(unapplied, published)
        self.tell_non_members(runner)
        self._ports.reconcile(runner)

    def _owner_changed(self, queue: Queue, record: QueueRecord) -> None:
        """The queue has another owner, or other mirrors."""
        if record.changes < queue.record.changes:
            return  # an old story, told again at a start
        former, queue.record = queue.record, record
        if queue.member is not None:
            queue.member.record = record
        self.census.queue_is(record)
        owner = self._ports.owned.runners.get(record.group)
        if owner is not None and (record.leader, record.owner_since) != (former.leader, former.owner_since):
            self._give_up(former, record)
            owner = None
        if record.leader == self.node and owner is None:
            self._take_over(former, record)
        elif record.leader == self.node and owner is not None:
            had_ring = owner.ring is not None
            owner.record_changed(record)
            if owner.ring is not None and not had_ring:
                self.mirrors.ring_made(record.group)
            if record.epoch != former.epoch:
                self.tell_non_members(owner)
        else:
            self.proxies[record.group].members_changed(record)
        self.mirrors.record_is(record)
        if (runner := self.hosted.get(record.group)) is not None:
            self._ports.reconcile(runner)

    def _take_over(self, former: QueueRecord, record: QueueRecord) -> None:
        """This node owns the queue from now on. Its messages come from the mirror here, or from the drive, where a
        former process of this node left them."""
        log.info("queue %s: this node is the master now, epoch %d", shown(record.name), record.epoch)
        mirror = mirror_of(former, self.node, record.owner_since)
        if mirror is not None and mirror.boot_id == self.boot_id and not mirror.is_synchronised:
            self._ports.owned.lacks_messages(record, self._ports.nodes.name(former.leader))
        self.proxies[record.group].owned_here()
        proxy, copy = self.proxies.pop(record.group), self.mirrors.take(record)
        self._begin_owner(record, copy, proxy.unapplied)

    def _give_up(self, former: QueueRecord, record: QueueRecord) -> None:
        """Another copy is the master's from now on. What is here goes; the clients here go on there. The copy may be
        one of this node, too, if a jump over the metadata log left out the owners between."""
        log.info("queue %s: node %s is the master now, epoch %d", shown(record.name), record.leader, record.epoch)
        runner = self._ports.owned.runners[record.group]
        del self.hosted[record.group]
        runner.stop()
        self._ports.owned.gone(former)
        self._member_gone(record.group)
        self._ports.services.lead_lost(record.group)
        self._stand_in(record, runner.numbers()).attach()
        self._ports.queue_lost(former)

    def _begin_anew(self) -> None:
        """The mirrors of queues that this node owned before its start followed a process that is gone."""
        for record in list(self.mirrors.mirrored.values()):
            if record.leader == self.node and record.owner_boot != self.boot_id:
                values = {"epoch": record.epoch, "owner_boot": self.boot_id}
                self._ports.metadata.change_mirrors(StartMaster, record, lambda _record: None, **values)

    def _leave(self, record: QueueRecord) -> None:
        """No member is here any more. The commands that were proposed here go on through a proxy."""
        log.info("queue %s: no member here any more, its replica is deleted", shown(record.name))
        runner = self.runners.pop(record.group)
        del self.hosted[record.group]
        runner.stop()
        self._member_gone(record.group)
        self._ports.services.lead_lost(record.group)
        self._ports.log.delete_group(record.group)
        self._stand_in(record, runner.unapplied).attach()

    def _create(self, group: GroupId, meta: bytes) -> None:
        self.log_uids[group] = self._ports.log.create_group(group, meta)

    def _stand_in(self, record: QueueRecord, unapplied: _Unapplied | None) -> Proxy:
        kind = self.kinds[record.kind]
        lost = self._ports.queue_lost if kind.owner is not None else None
        proxy = self.proxies[record.group] = Proxy(
            record, kind, self._ports, self._ports.now_ms, unapplied, lost, self.mirrors.published_here
        )
        self._has(record, proxy, None)
        return proxy

    def _run_queue(
        self, record: QueueRecord, state: RecoveredGroup | None, unapplied: _Unapplied | None = None
    ) -> GroupRunner:
        make = self.kinds[record.kind].member
        assert make is not None, f"queues of kind {record.kind} have no members"
        member = make(record, self._ports.clients, self._ports.services, self._ports.now_ms)
        members, replica_id = record.first_configuration(self.node), record.membership_epoch(self.node)
        elected = record.elected_by(self.node)
        runner = self._run(record.group, members, member, state, unapplied, replica_id=replica_id, elected=elected)
        member.payload, member.track = runner.payload, runner.track
        self._has(record, runner, member, record.membership_epoch(self.node))
        return runner

    def _member_gone(self, group: GroupId) -> None:
        self.census.member_gone(group)
        self.busiest.gone(group)
        self.campaigns.decided(group)

    def _commits(self) -> Iterator[tuple[GroupId, LogIndex]]:
        return ((group, self.runners[group].core.commit_index) for group in self.runners if group != METADATA_GROUP)

    def _has(
        self,
        record: QueueRecord,
        proposer: Proposer,
        member: QueueMember | QueueOwner | None,
        membership_epoch: int = 0,
    ) -> None:
        queue = self.by_group.get(record.group)
        if queue is None:
            kind = self.kinds[record.kind]
            queue = kind.queue(kind, record, self._ports)
        queue.record, queue.proposer = record, proposer
        queue.member, queue.membership_epoch = member, membership_epoch
        self.groups.name(record, queue)
        self.by_group[record.group] = queue
        self.census.queue_is(record)

    def _run(
        self,
        group: GroupId,
        members: tuple[NodeId, ...],
        host: HostedMachine,
        state: RecoveredGroup | None,
        unapplied: _Unapplied | None,
        *,
        replica_id: int,
        elected: NodeId = NOBODY,
    ) -> GroupRunner:
        ports = self._ports
        view, hard_state = LogView(), HardState(term=Term(0), voted_for=NOBODY)
        if state is not None:
            self.log_uids[group] = state.log_uid
            view = LogView.recovered(state.snapshot, state.terms, state.last_index)
            hard_state = HardState(term=state.term, voted_for=state.voted_for, forgetful=state.forgetful)
        core = RaftCore(self.node, members, view, hard_state, self._raft, self._jitter, host.version, replica_id)
        runner = GroupRunner(group, core, ports.log, host, ports, unapplied)
        self.runners[group] = self.hosted[group] = runner
        if state is not None and state.snapshot is not None:
            runner.restore(state.state)
        for entry in state.special if state is not None else ():
            core.recovered(entry)
        if elected != NOBODY:
            core.founded(elected, blank=state is None)
        self.census.member_knows(group, core.leader)
        for member in ports.config.members:
            if member.node != self.node and ports.nodes.boot_id_of(member.node) is None:
                runner.peer_down(member.node)
        ports.member_begins(runner, state)
        ports.wake(runner)
        return runner
