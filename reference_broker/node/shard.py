"""One shard of one node: it makes the objects of the node, hands each the ports that it needs, and drives them.

A node is one shard today. Nothing here is global to the process, so a node may become several processes, each of which
owns whole queues. docs/internals/node.md says what the objects are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.checksum import crc32
from reference_broker.classic.store import StoreConfig
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.machines.cluster.policies import Policy, in_force
from reference_broker.mirroring.placement import HaPolicy, ha_policy
from reference_broker.node.alarms import NO_ALARM, REAL_ROOM, Alarm, Alarms, Room
from reference_broker.node.classic_place import claim
from reference_broker.node.clients.authorization import NodeAccess
from reference_broker.node.config import ConfigError, NodeConfig
from reference_broker.node.drives import NodeDrives
from reference_broker.node.hosting.dead_letters import DeadLetterRouter
from reference_broker.node.hosting.endings import Ending, Endings
from reference_broker.node.hosting.hosted_queues import Hosting
from reference_broker.node.hosting.local_clients import LocalClients
from reference_broker.node.hosting.log_notices import LogNotices
from reference_broker.node.hosting.mirror_steps import MirrorChanges, MirrorSteps
from reference_broker.node.hosting.peer_answers import PeerAnswers
from reference_broker.node.hosting.promotion import Promotion
from reference_broker.node.hosting.queue_services import QueueServices
from reference_broker.node.hosting.reads import NodeReads
from reference_broker.node.hosting.reconciliation import Reconciliation
from reference_broker.node.hosting.replacement import ClusterPorts, ReplacementSteps
from reference_broker.node.hosting.slices import Slices
from reference_broker.node.hosting.virtual_hosts import VirtualHosts
from reference_broker.node.links.boot_ids import BootIds, StaleDirectoryError
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.links.link_octets import LinkOctets
from reference_broker.node.links.peer_requests import Requests
from reference_broker.node.links.peers import Peers
from reference_broker.node.observer import NO_OBSERVER, NodeObserver, before
from reference_broker.node.operations.access_requests import AccessRequests
from reference_broker.node.operations.cluster_requests import Operations
from reference_broker.node.operations.figures import CLOSE, FIGURES, NodeFigures
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.node.peer_frames import Frames
from reference_broker.node.ports import Runner
from reference_broker.node.replication.batcher import Rounds
from reference_broker.node.replication.everywhere import Everywhere
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.node.replication.queue_runner import QueueRunner
from reference_broker.node.replication.sender import AnswerTimes
from reference_broker.node.replication.ticks import HandOver, Ticks
from reference_broker.node.start_problems import StartFindings
from reference_broker.node.turns import Turns, wall_ms
from reference_broker.queues.kinds import KINDS
from reference_broker.queues.port import Queue, QueueKind
from reference_broker.raft.quorum import majority
from reference_broker.raft.roles import Role
from reference_broker.storage.errors import MORE_FILES, START_BLANK, lacks_files
from reference_broker.storage.executor import IoPolicy, OwnersThread, policy_named
from reference_broker.storage.files import Files
from reference_broker.types import METADATA_GROUP, NOBODY, ChannelId, GroupId, LogIndex, NodeId

log = logging.getLogger(__name__)

_RETRY_TICKS = 10
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/time")


def host_clock() -> int:
    """A number above 0 that two processes share exactly when they have one monotonic clock: same boot of the same host,
    same time namespace. Where the system does not say, the number is this process's own."""
    try:
        name = f"{_BOOT.read_text().strip()} {_NAMESPACE.readlink()}"
    except OSError:
        name = os.urandom(16).hex()
    return crc32(name.encode()) or 1


class Shard:
    """One node, except for the sockets on which clients and operators connect."""

    def __init__(
        self,
        config: NodeConfig,
        boot_id: int,
        failed: Callable[[str], None],
        *,
        files: Files | None = None,
        threads: bool = True,
        policy: IoPolicy | None = None,
        now_ms: Callable[[], int] = wall_ms,
        random_bits: Callable[[int], int] = secrets.randbits,
        kinds: Mapping[str, QueueKind] = KINDS,
        room: Room = REAL_ROOM,
        observer: NodeObserver = NO_OBSERVER,
    ) -> None:
        """Made within the running event loop, whose clock and sockets it uses.

        The keywords are the rest of the world: a file system (the machine's own by default), whether the log has
        threads or the owner calls ``log.run_pending``, or a ``policy`` that chooses the log's threads, a wall clock in
        milliseconds, chance, the kinds of queues, the room that alarms watch, and an observer. Stamps are taken from
        the host's monotonic clock; without threads, where a seed decides what happens, from the event loop's.
        """
        self.config = config
        self.now_ms, self.random_bits = now_ms, random_bits
        self.node, self.boot_id = config.node, boot_id
        self.limits = config.limits
        self.nobody = ChannelId(config.node, boot_id, 0, 0)
        self.nodes = Nodes(config.members, config.node, boot_id)
        self.hosting = hosting = Hosting(self, kinds)
        self.new_record, self.place, self.declare = hosting.new_record, hosting.place, hosting.declare
        self.queues, self.runners, self.proposer = hosting.queues, hosting.runners, hosting.groups.proposer
        self.link_octets, self.metadata = LinkOctets(hosting.by_group), MetadataHost(hosting)
        self.dead_letters = DeadLetterRouter(self)
        self.drives = drives = NodeDrives(config)
        self.alarms = self._new_alarms(room, drives)
        self._failed = failed
        self._observer = observer
        self.machine_calls, self.member_begins = observer.machine_calls, observer.member_begins
        self.log: LogSystem
        self._loop = loop = asyncio.get_running_loop()
        self.now_ns = time.monotonic_ns if threads else lambda: int(loop.time() * 1e9)
        self.anatomy = Anatomy(host_clock() if threads else 1)
        self.answers = AnswerTimes()
        self._tick_task: asyncio.Task[None] | None = None
        self.turns = turns = Turns(
            self.anatomy, self.now_ns, config.limits.suspect_after_ms, failed=failed,
            on_suspension=self._was_suspended, forget_bodies=self._forget_bodies,
        )  # fmt: skip
        # Bound here, so that a call of these is a call of the turns themselves.
        self.wake, self.wake_late, self.touch = turns.wake, turns.wake_late, turns.touch
        self.when_writable = turns.when_writable
        self.in_step = turns.in_step
        self.later, self.after, self.check_suspension = turns.later, turns.after, turns.check_suspension
        self.rounds = Rounds(turns.wake, turns.after, turns, config.limits.round_wait_ms)
        self.clients = LocalClients(self.node, boot_id, self.anatomy, turns.touch, Slices(self.now_ns), observer)
        self._hand_over = HandOver(self.runners, self.hosting.census.leading, self.nodes)
        self._ticks = Ticks(self.runners, turns.stirred, self.hosting.campaigns, self.hosting.busiest)
        boots = self._boot_ids(files := files or drives.files)
        policy = policy or (policy_named(config.io) if threads else OwnersThread)
        recovered = self._open_log(files, policy)
        boots.begin(used=METADATA_GROUP in recovered and len(config.members) > 1)
        self.owned = self._owned_queues(files, policy)
        self.findings = StartFindings(
            {"log": self.log.findings, "classic": self.owned.findings, "boots": boots.findings}
        )
        self._wire(boots)
        turns.links = self.peers = self._new_peers(boots)
        self.send = before(observer.sends, self.peers.send)
        self.hosting.recover(recovered)

    def _open_log(self, files: Files, policy: IoPolicy) -> dict[GroupId, RecoveredGroup]:
        """The log, and its recovered groups; its notices come to the members in turns."""
        turns = self.turns
        notices = LogNotices(self.hosting.groups, self.anatomy, self._loop, turns.guarded, turns.together, self._failed)
        opened, recovered = LogSystem.open(
            self.config.log_config(),
            files,
            before(self._observer.log_tells, notices.notify),
            policy=policy,
            gather=turns.write_soon,
            new_store=lambda: self.random_bits(128).to_bytes(16, "big"),
            clock=self.now_ns,
        )
        self.log = notices.log = self._observer.log(opened)
        turns.write_log = notices.write
        return recovered

    def _new_alarms(self, room: Room, drives: NodeDrives) -> Alarms:
        free = Room(room.memory, lambda place: drives.free_bytes(place, room.disk))
        return Alarms(self.config.limits, self.config.watched_directories(), free)

    def _new_peers(self, boots: BootIds) -> Peers:
        config, chance = self.config, self.random_bits
        return Peers(
            config.me, config.members, config.cluster, boots, config.limits, self, config.secret, chance, config.tls,
            self.link_octets,
        )  # fmt: skip

    def _new_access(self) -> NodeAccess:
        metadata, clients = self.metadata, self.clients
        metadata.access_changed = clients.access_changed
        return NodeAccess(
            lambda: metadata.machine.access, lambda vhost: metadata.machine.routing(vhost),
            self.config.users, self.config.loopback_users, lambda: clients.connections,
            lambda: self.alarms.is_critical,
        )  # fmt: skip

    def _owned_queues(self, files: Files, policy: IoPolicy) -> OwnedQueues:
        claim(files, self.config)
        store = StoreConfig(directory=str(self.config.classic_dir))
        return OwnedQueues(store, files, policy, self._call_soon, self._failed, self.now_ns, self._observer)

    def _call_soon(self, call: Callable[[], None]) -> None:
        """Call in the loop's thread."""
        self._loop.call_soon_threadsafe(self.turns.guarded, call)

    def _wire(self, boots: BootIds) -> None:
        """The services: each gets the ports that it needs."""
        steps = ReplacementSteps(boots, self.nodes, self.metadata, self.now_ms, self.wake, self.stop)
        self.peer_answers = PeerAnswers(self.hosting.groups, self.wake, steps)
        self.requests = Requests(self, self.peer_answers.answer)
        ask, later = self.requests.ask, self.later
        self.reads = NodeReads(self.runners, self.proposer, ask, later, self.limits.read_timeout_ms)
        self.access = self._new_access()
        everywhere = Everywhere(self.node, self.nodes, self.runners, ask)
        self.virtual_host = VirtualHosts(self.hosting.groups, self.metadata, everywhere).named
        self.operations = Operations(
            ClusterPorts(self.nodes, self.metadata, ask, later, self.limits, self.hosting.is_replicated),
            AccessRequests(self.metadata, everywhere, self.random_bits).methods,
        )
        self.owned.policies = self.policies
        figures = NodeFigures(self.config, self.clients, self.hosting, self.alarms, self.findings)
        self.peer_answers.methods |= {FIGURES: figures.answer, CLOSE: figures.close_connection}
        hosting = self.hosting
        changes, mirrored = MirrorChanges(self.metadata), hosting.mirrors.mirrored
        self.promotion = Promotion(hosting.groups, self.nodes, changes, mirrored, self)
        steps_of_owner = MirrorSteps(hosting.groups, self.nodes, changes, hosting.census, mirrored, self)
        self._reconciliation = Reconciliation(hosting.groups, self.metadata, steps_of_owner, self.wake)
        self.endings = Endings(hosting.groups, self.metadata, self.reads, later, self.limits.read_timeout_ms)
        self.services = QueueServices(
            self.hosting.groups, self.nodes, self.endings, self.dead_letters, self.reads, self._reconciliation,
            self.now_ms, self.check_suspension, self._observer,
        )  # fmt: skip
        frames = Frames(
            self.hosting, self.requests, self.clients, self.turns.guarded, self.leader_found, self.nodes,
            self.check_suspension,
        )  # fmt: skip
        self.peer_frame = self._observer.frames(frames.take)

    # Start and stop

    async def start(self) -> None:
        """Join the cluster."""
        await self.peers.start()
        self.turns.is_awake()  # to read the disk may have taken its time
        self._tick_task = self._loop.create_task(self._tick())

    def close(self) -> None:
        """Leave the cluster in order. Nothing that was confirmed depends on this."""
        if self._tick_task is not None:
            self._tick_task.cancel()
        self.peers.tell_leaving()
        self.peers.close()
        self.log.close()
        self.owned.close()

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call once this node knows of every queue: the metadata group has a leader, and this node has applied every
        entry that was committed when the leader was found."""
        self.services.when_current(METADATA_GROUP, call)

    # What connections use

    def delete(self, record: QueueRecord, answered: Callable[[], None]) -> None:
        """Delete the queue that this record describes; a later queue of the same name stays."""
        self.metadata.delete(record, lambda _record: answered())

    def counts(self, group: GroupId, answered: Callable[[dict[str, Any]], None]) -> None:
        """Call with the counts of the queue's leader, or with an ``error``."""
        self.reads.counts(group, answered)

    def when_left(self, left: Sequence[Queue], owned: Sequence[Queue], call: Callable[[], None]) -> None:
        """Call when the queues are gone that end with a channel or a connection. Exclusive queues (``owned``) lose
        their names on this node at once: what this node asks of the metadata is done in order, so a new declaration
        comes after the deletion."""
        for queue in owned:
            self.hosting.groups.free_name(queue)
        self.endings.when_left(left, [queue.record for queue in owned], call)

    def home_node_down(self, record: QueueRecord) -> str | None:
        """The name of the node that has the queue, if that node alone has the queue and is out of reach."""
        if self.hosting.kinds[record.kind].owner is None or record.leader == self.node:
            return None
        if any(node in self.nodes.up for node in (record.leader, *[mirror.node for mirror in record.mirrors])):
            return None  # or a mirror is about to own it
        return self.nodes.name(record.leader)

    def who_reaches(self, record: QueueRecord) -> str | None:
        """The name of a node that reaches one that may lead the queue, if this node reaches none of them."""
        return self.nodes.who_reaches({*record.members, *record.leaving})

    def ha_policy(self, record: QueueRecord) -> HaPolicy | None:
        """The policies' rule for copies of the queue."""
        policy = in_force(self.policies(), record.name)
        return ha_policy(dict(policy.definition)) if policy is not None else None

    def mirror_lost(self, record: QueueRecord, mirror: Mirror) -> None:
        """A copy must begin anew, or is out of reach: have the metadata drop it."""
        self.hosting.mirrors.lost(record, mirror)

    def mirror_synchronised(self, record: QueueRecord, mirror: Mirror) -> None:
        """A copy has every message."""
        self.hosting.mirrors.synchronised(record, mirror)

    def when_queues_current(self, call: Callable[[bool], None]) -> None:
        """Call with True once this node knows of every queue that was declared or deleted before now, or with False
        once nobody could say in time."""
        self.reads.when_queues_current(before(self._observer.looked_up, call))

    def policies(self) -> Collection[Policy]:
        """The policies of the cluster, as this node knows them."""
        return self.metadata.machine.policies.values()

    def check_alarms(self) -> None:
        """See whether the node has enough disk and memory. Connections and peers are told a change at once."""
        if self.alarms.check():
            self.peers.tell_alarms(self.alarms.own)
            self._touch_all()

    def _touch_all(self) -> None:
        for connection in list(self.clients.connections):
            self.touch(connection)

    # node.hosting

    def tick_clients(self) -> None:
        """Heartbeats and time-outs of clients, every half second."""
        calm = not (self.alarms.reason or self.hosting.census.leaderless) and len(self.nodes.up) == len(self.nodes.all)
        self.clients.tick(self._loop.time(), calm=calm)

    def queue_gone(self, record: QueueRecord) -> None:
        """A queue was deleted: tell every connection."""
        self._observer.queue_gone(record)
        self.services.queue_gone(record)
        self.reads.queue_gone(record.group)
        for connection in list(self.clients.connections):
            connection.queue_removed(record)
            self.touch(connection)

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the owner of a queue broke: tell every connection."""
        self._observer.queue_lost(record)
        for connection in list(self.clients.connections):
            connection.queue_lost(record)
            self.touch(connection)

    def unused(self, group: GroupId) -> None:
        """The last consumer of an auto-delete queue is gone."""
        if (queue := self.hosting.by_group.get(group)) is not None:
            self.endings.end(queue.record, Ending.AUTO_DELETE, "its last consumer is gone")

    def drive_failed(self, reason: str) -> None:
        """A drive does not give a message back: stop the node."""
        self._failed(reason)

    def electing(self) -> int:
        """Number of groups with a member here that have no leader, but enough voters in reach to elect one."""
        voters = [self.runners[group].core.configuration.voters for group in self.hosting.census.leaderless]
        return sum(bool(of) and sum(node in self.nodes.up for node in of) >= majority(len(of)) for of in voters)

    def reconcile(self, runner: QueueRunner) -> None:
        """Bring a queue that this node leads in line with its metadata."""
        self._reconciliation.reconcile(runner)

    # node.group.GroupPorts

    @property
    def congested(self) -> Set[NodeId]:
        """The peers that should not be sent much now."""
        return self.peers.congested

    def leader_changed(self, runner: GroupRunner) -> None:
        """A member's role, leader or term has changed: tell everything that depends on it. A leadership of an earlier
        term is over, even if this member leads again."""
        self._observer.leader_changed(runner)
        self.services.lead_lost(runner.group)
        if runner.core.leader != NOBODY:
            self._ticks.leader_found(runner)
        self.hosting.census.member_knows(runner.group, runner.core.leader)
        if runner.core.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            self.hosting.campaigns.decided(runner.group)
        if runner.leads:
            self.hosting.tell_non_members(runner)
            if runner.group == METADATA_GROUP:
                self.promotion.look_for_masters()
        if runner.core.leader != NOBODY:
            self.leader_found()

    def leader_found(self) -> None:
        """A group has a leader: reads that waited for one go on."""
        self.reads.leader_found()

    # node.peers.PeerEvents

    def peer_up(self, node: NodeId, boot_id: int) -> None:
        """A peer is up: groups resume with it, and leaders tell their machines."""
        self._observer.peer_up(node)
        self.nodes.came(node, boot_id)
        self.hosting.peer_up(node, up=self.nodes.up)
        self.services.node_changed(node)

    def peer_down(self, node: NodeId) -> None:
        """A peer is down: groups suspect it, and leaders tell their machines."""
        self._observer.peer_down(node)
        self.nodes.went(node)
        self.peer_alarms(node, NO_ALARM)
        self.turns.link_broken(node)
        self.requests.peer_down(node)
        self.hosting.peer_down(node)
        self.promotion.node_lost(node)
        self.services.node_changed(node)

    def stop(self, error: StaleDirectoryError | OSError) -> None:
        """Stop the node: its directory is an older copy or cannot be written, so nothing more may be promised on it."""
        if isinstance(error, StaleDirectoryError):
            self._failed(str(self._stale_directory(error)))
        else:
            what = f"the boot id of a peer cannot be written: {error}"
            fix = MORE_FILES if lacks_files(error) else "make room on the drive, or mend it"
            self._failed(str(ConfigError(what, str(self.config.data_dir), fix)))

    def _stale_directory(self, error: StaleDirectoryError) -> ConfigError:
        what = f"this directory is an older copy, or a blank one: it has boot id {self.boot_id}, and {error}"
        fix = f"put the newest copy in its place, or let the node learn everything from the others: {START_BLANK}"
        return ConfigError(what, str(self.config.data_dir), fix)

    def peer_alarms(self, node: NodeId, alarms: int) -> None:
        """A peer's alarms have changed. Publishers stop for the alarms of any node."""
        if self.alarms.told(node, Alarm(alarms)):
            self._touch_all()

    def peer_reaches(self, node: NodeId, reached: frozenset[NodeId]) -> None:
        """A peer has a link more, or a link less: rings of mirrors go where there are links."""
        self.nodes.says_it_reaches(node, reached)
        self.hosting.links_changed()
        self.promotion.look_for_masters()  # a master may have been within the reach of that peer only

    def peer_writable(self, node: NodeId) -> None:
        """Runners that wait for the link go on."""
        self.turns.link_writable(node)

    # Inside

    def _boot_ids(self, files: Files) -> BootIds:
        """The boot ids of all nodes, read before anything else: the log of an older copy must not even be opened."""
        try:
            return BootIds(files, str(self.config.data_dir), (self.boot_id, self.now_ms()))
        except StaleDirectoryError as error:
            raise self._stale_directory(error) from error

    def _forget_bodies(self, runners: list[Runner]) -> None:
        """Free the payloads of entries that no message of the state lies in any more."""
        for runner in runners:
            if not isinstance(runner, GroupRunner) or self.runners.get(runner.group) is not runner:
                continue  # a proxy has no log here; or the member was removed in this very turn
            lowest = runner.host.lowest_live_entry()
            self.log.drop_payloads(runner.group, LogIndex(runner.applied if lowest is None else lowest))

    def _was_suspended(self) -> None:
        """Other nodes may have given this node up: members doubt, and unwritten deliveries go as redelivered."""
        self.hosting.was_suspended()
        for connection in self.clients.connections:
            connection.was_suspended()

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(self.limits.tick_ms / 1000)
            ticks += 1
            self.turns.tick()
            if ticks % _RETRY_TICKS == 0:
                self._reconciliation.retry()
                self.promotion.look_again()
                self._hand_over.look()
            self._ticks.tick()
