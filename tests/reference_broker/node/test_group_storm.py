"""The node's part of a queue in one thread: hosting, runners, proxies, Raft cores, logs and machines of several nodes,
and a hostile world.

Frames are delayed, links break and drop what was under way, nodes lose power and come back on what was synced, turns
and fsyncs happen when chance wills; members are added and removed, and nodes hear late of it, or twice. Publishers and
consumers on changing nodes, with and without a member, keep a ledger that knows only what clients know. A failure
prints the seed; ``GROUP_SEED=<seed> pytest <this file>`` replays it.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.classic.store import StoreConfig
from reference_broker.log.config import LogConfig
from reference_broker.log.notices import (
    HardStateSynced,
    Notice,
    RolledOver,
    SnapshotInstalled,
    SnapshotRejected,
    SnapshotTaken,
    Synced,
    Written,
)
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster import metadata
from reference_broker.machines.cluster.metadata import (
    AddMember,
    DeclareQueue,
    DeleteQueue,
    MetadataMachine,
    QueueRecord,
    RemoveMember,
)
from reference_broker.machines.commands import ChannelDown, Checkout, Enqueue, NodeDown, NodeUp, Settle
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.node.config import Limits
from reference_broker.node.hosting.hosted_queues import Hosting
from reference_broker.node.hosting.mirror_steps import MirrorChanges, MirrorSteps
from reference_broker.node.hosting.reconciliation import Reconciliation
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.links.peer_requests import Requests
from reference_broker.node.observer import NO_OBSERVER
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.node.peer_frames import Frames
from reference_broker.node.replication.batcher import Rounds
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.node.replication.proxy import Proxy
from reference_broker.node.replication.sender import AnswerTimes
from reference_broker.queues.kinds import KINDS
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.queues.session import PublishSession
from reference_broker.raft.roles import Role
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import (
    METADATA_GROUP,
    NOBODY,
    ChannelId,
    ConsumerId,
    Entry,
    EntryKind,
    GroupId,
    LogIndex,
    NodeId,
    Priority,
    Term,
)

FOUNDERS = (NodeId(1), NodeId(2), NodeId(3))
GROUP = GroupId(7)
RECORD = QueueRecord(name="q", group=GROUP, members=FOUNDERS, founders=FOUNDERS)
LIMITS = Limits(batch_bytes_max=4096, wal_file_bytes=16_384, memtable_bytes=8192)
ROUTE = b"\x00\x01q"
SEEDS = [int(os.environ["GROUP_SEED"])] if "GROUP_SEED" in os.environ else range(1, 9)
STEPS = int(os.environ.get("GROUP_STEPS", "6000"))


class MetadataGroup:
    """Stands for the metadata group's runner: proposals get into the one log of the world sooner or later."""

    leads = False

    def __init__(self) -> None:
        self.group = METADATA_GROUP
        self.core = SimpleNamespace(role=Role.FOLLOWER, term=Term(1))
        self.leader = NOBODY
        self.proposed: deque[Any] = deque()

    def propose(self, command: object, size: int) -> None:
        self.proposed.append(command)

    def peer_up(self, node: NodeId) -> None: ...

    def peer_down(self, node: NodeId) -> None: ...


class Node:
    """One node: what lives in memory dies with :meth:`crash`, ``files`` and the boot id stay."""

    def __init__(self, node: NodeId, world: World) -> None:
        self.node = node
        self.world = world
        self.limits = LIMITS
        self.config = SimpleNamespace(members=[SimpleNamespace(node=each) for each in world.all])
        self.files = MemoryFiles()
        self.boot_id = 0
        self.known = 0  # entries of the metadata log that were applied here, since this start or an earlier one
        self.alive = False
        self.start()

    def start(self) -> None:
        self.boot_id += 1
        self.alive = True
        self.anatomy = Anatomy(clock=1)
        self.answers = AnswerTimes()
        self.nodes = self
        self.congested: set[NodeId] = set()
        self.dirty: list[GroupRunner | Proxy] = []
        self.count = 0
        self.rounds = Rounds(self.wake, self.after, self, LIMITS.round_wait_ms)
        self.notices: deque[Any] = deque()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.time_ns = 1
        self.watched: set[NodeId] = set()
        self.channels: dict[int, Publisher | Consumer] = {}
        config = LogConfig(wal_dir="wal", data_dir="data", node=self.node, wal_file_bytes=LIMITS.wal_file_bytes,
                           memtable_bytes=LIMITS.memtable_bytes)  # fmt: skip
        store = b"store of node %02d" % self.node
        self.log, recovered = LogSystem.open(
            config, self.files, self.notice, policy=OwnersThread, new_store=lambda: store
        )
        self.clients = self.nobody = self.services = self
        self.owned = OwnedQueues(
            StoreConfig(directory="data/classic"), self.files, OwnersThread, lambda call: call(), pytest.fail
        )
        self.hosting = Hosting(self, KINDS)  # type: ignore[arg-type]
        self.group = MetadataGroup()
        self.hosting.runners[METADATA_GROUP] = self.group  # type: ignore[assignment]
        self.runners = self.hosting.runners
        self.metadata = MetadataHost(self.hosting)
        self.metadata.member = self.group  # type: ignore[assignment]
        changes = MirrorChanges(self.metadata)
        steps = MirrorSteps(self.hosting.groups, Nodes((), self.node, 1), changes, self.hosting.census, {}, self)
        self.reconciliation = Reconciliation(self.hosting.groups, self.metadata, steps, self.wake)
        requests = Requests(self, lambda node, request, answered: None)
        self.frames = Frames(
            self.hosting, requests, self, lambda call, *arguments: call(*arguments), lambda: None, self.nodes, lambda: 0
        )
        self.hosting.recover_queues(recovered)
        self.written_before = len(self.world.metadata)
        # The metadata group's own snapshot may be older than what was applied before the crash.
        self.applied = self.world.chance.randint(0, self.known)
        if self.applied:
            self.metadata.restore(self.world.metadata_at(self.applied))
            if self.applied == self.written_before:
                self.hosting.became_current()
        else:
            self.hear()

    def ha_policy(self, record: QueueRecord) -> None:
        """There are no policies."""

    @property
    def runner(self) -> GroupRunner | Proxy:
        return self.hosting.runners.get(GROUP) or self.hosting.proxies[GROUP]

    @property
    def member(self) -> GroupRunner | None:
        return self.hosting.runners.get(GROUP)

    @property
    def host(self) -> QuorumMember:
        host = self.hosting.by_group[GROUP].member
        assert isinstance(host, QuorumMember)
        return host

    def hear(self) -> None:
        """The next entry of the metadata log is committed here; now and then a snapshot jumps to the last one."""
        log = self.world.metadata
        if self.applied < len(log):
            if self.applied + 1 < len(log) and self.world.chance.random() < 0.2:
                skipped = [command for command in log[self.applied :] if command.node == self.node]
                self.applied = len(log)
                self.metadata.install(self.world.metadata_at(self.applied), skipped)
            else:
                payload = metadata.encode([log[self.applied]])
                self.applied += 1
                entry = Entry(LogIndex(self.applied), Term(1), EntryKind.COMMAND, 0, payload)
                self.metadata.apply(entry, len(payload), frozenset())
                self.metadata.run_effects()
            self.known = max(self.known, self.applied)
            if self.applied >= self.written_before:
                self.hosting.became_current()

    def speak(self) -> None:
        """A proposal to the metadata group is committed."""
        if self.group.proposed:
            self.world.metadata.append(self.group.proposed.popleft())

    def crash(self) -> None:
        self.alive = False
        self.files.crash(self.world.chance)

    # node.group.GroupPorts

    def send(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        return self.world.send(self.node, node, kind, b"".join(buffers))

    def wake(self, runner: GroupRunner | Proxy) -> None:
        self.dirty.append(runner)

    wake_late = wake

    def when_writable(self, node: NodeId, runner: GroupRunner | Proxy) -> None:
        raise AssertionError("no link is ever congested here")

    def now_ns(self) -> int:
        return self.time_ns

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append((delay_s, call))

    after = in_step = later

    def leader_changed(self, runner: GroupRunner) -> None:
        if runner.core.role is Role.LEADER:
            self.hosting.tell_non_members(runner)

    # What hosting needs of a shard

    def now_ms(self) -> int:
        return 0

    def boot_id_of(self, node: NodeId) -> int | None:
        return self.world.nodes[node].boot_id if self.world.is_up(self.node, node) else None

    def member_begins(self, runner: GroupRunner, state: object) -> None: ...

    machine_calls = NO_OBSERVER.machine_calls

    def reconcile(self, runner: GroupRunner) -> None:
        self.reconciliation.reconcile(runner)

    def lead_lost(self, group: GroupId) -> None: ...

    def queue_gone(self, record: QueueRecord) -> None:
        raise AssertionError("nobody deletes the queue")

    # queues.port.Channels and MemberPorts

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, pieces: list[RunSlice], delivery_count: int
    ) -> None:
        client = self.channels.get(consumer.channel.connection)
        if isinstance(client, Consumer):
            client.delivered(first_message_id, pieces, delivery_count > 0)

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        return True

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        client = self.channels.get(channel.connection)
        if isinstance(client, Publisher):
            client.committed(last)

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        raise AssertionError("the queue has no limits")

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        client = self.channels.get(channel.connection)
        if isinstance(client, Consumer):
            client.subscribed(value)

    def flush(self) -> None: ...

    def watch_node(self, group: GroupId, node: NodeId) -> None:
        self.watched.add(node)
        self.tell(node)

    def tell(self, node: NodeId) -> None:
        """What the shard does for a leader: say how a node stands."""
        if node in self.watched and (member := self.member) is not None and member.core.role is Role.LEADER:
            up = node == self.node or self.world.is_up(self.node, node)
            command = NodeUp(node, self.world.nodes[node].boot_id) if up else NodeDown(node)
            member.propose(command, 64, Priority.NORMAL)

    def when_current(self, group: GroupId, call: Callable[[], None]) -> None:
        """Whoever knows most answers at once."""
        members = [each.member for each in self.world.nodes.values() if each.alive]
        known = max(member.core.commit_index for member in members if member is not None)
        self.runners[group].when_applied(known, call)

    def settings_changed(self, group: GroupId) -> None:
        self.reconciliation.settings_changed(self.runners[group])

    # Steps

    def turn(self) -> None:
        dirty, self.dirty = self.dirty, []
        self.count += 1
        for runner in dirty:
            runner.turn()

    def tick(self) -> None:
        if (member := self.member) is not None:
            member.tick()
        self.reconciliation.retry()

    def notice(self, notices: Sequence[Notice]) -> None:
        self.notices += [notice for notice in notices if not isinstance(notice, Synced)]

    def take_notice(self) -> None:
        notice = self.notices.popleft() if self.notices else None
        member = self.member
        if member is None:
            return
        match notice:
            case RolledOver():
                if GROUP in self.log.snapshot_due():
                    member.take_snapshot()
            case Written(_, index, term):
                member.synced(index, term)
            case HardStateSynced():
                member.hard_state_synced()
            case SnapshotTaken(_, index, term):
                member.snapshot_taken(index, term)
            case SnapshotInstalled(_, index, term, state):
                member.snapshot_installed(index, term, state)
            case SnapshotRejected(_, index, _, _):
                member.snapshot_rejected(index)

    def fire_timer(self) -> None:
        if self.timers:
            delay_s, call = self.timers.pop(0)
            self.time_ns += int(delay_s * 1e9)
            call()

    def frame(self, sender: NodeId, kind: FrameKind, body: bytes) -> None:
        self.frames.take(sender, kind, memoryview(body))


class Publisher:
    """Publishes the next numbers, and knows which were confirmed."""

    def __init__(self, node: Node, world: World) -> None:
        self.node, self.world = node, world
        self.channel = ChannelId(node.node, node.boot_id, world.serial(), 1)
        self.session = PublishSession(self.channel)
        self.numbers: dict[int, int] = {}  # confirm seq -> number
        node.channels[self.channel.connection] = self

    def publish(self) -> None:
        count = self.world.chance.randint(1, 5)
        numbers = [self.world.next_number() for _ in range(count)]
        first = len(self.numbers) + 1
        self.numbers.update(enumerate(numbers, first))
        run = MessageRun.of(ROUTE, [self._body(number) for number in numbers])
        command = Enqueue(self.channel, self.session.sent(run.count, len(run.data), first), run)
        self.node.runner.propose(command, len(run.data) + 64)

    def _body(self, number: int) -> bytes:
        return b"%d %d " % (number, self.channel.connection) + b"x" * self.world.chance.randint(0, 300)

    def committed(self, last: int) -> None:
        for first_seq, last_seq in self.session.committed(last):
            self.world.confirmed.update(self.numbers[seq] for seq in range(first_seq, last_seq + 1))

    def close(self) -> None:
        self.node.runner.propose(ChannelDown(self.channel), 64)
        del self.node.channels[self.channel.connection]


class Consumer:
    """Takes deliveries and settles some of them, sometimes."""

    def __init__(self, node: Node, world: World) -> None:
        self.node, self.world = node, world
        self.id = ConsumerId(ChannelId(node.node, node.boot_id, world.serial(), 1), "c")
        self.next_id = 0
        self.held: list[int] = []
        self.newest: dict[int, int] = {}  # publisher -> its last number that came first here
        node.channels[self.id.channel.connection] = self
        checkout = Checkout(self.id, world.chance.randint(1, 20), auto_settle=False, priority=0, correlation=1)
        node.runner.propose(checkout, 64, Priority.NORMAL)

    def subscribed(self, next_message_id: int) -> None:
        self.next_id = max(self.next_id, next_message_id)

    def delivered(self, first: int, pieces: list[RunSlice], redelivered: bool) -> None:
        bodies = [run.content(start + step * k) for run, start, count, step in pieces for k in range(count)]
        # A gap: dealt and taken back in entries that this node jumped over. An overlap: redelivered after a jump.
        fresh = bodies[max(0, self.next_id - first) :]
        self.held += range(first + len(bodies) - len(fresh), first + len(bodies))
        self.next_id = max(self.next_id, first + len(bodies))
        for body in fresh:
            number, publisher = map(int, body.split()[:2])
            self.world.took(number, redelivered)
            if not redelivered:
                assert number > self.newest.get(publisher, 0), "out of the order in which its channel published"
                self.newest[publisher] = number

    def settle(self) -> None:
        count = self.world.chance.randint(0, len(self.held))
        if count:
            settled, self.held = self.held[:count], self.held[count:]
            command = Settle(self.id, ((settled[0], settled[-1]),))
            self.node.runner.propose(command, 64, Priority.NORMAL, lazy=self.world.chance.random() < 0.5)

    def close(self) -> None:
        self.node.runner.propose(ChannelDown(self.id.channel), 64)
        del self.node.channels[self.id.channel.connection]


class World:
    """The nodes, the links between them, the log of the metadata, chance, and the ledger."""

    def __init__(self, seed: int, nodes: int = 3, *, changes: bool = False) -> None:
        self.chance = random.Random(seed)
        self.all = [NodeId(number) for number in range(1, nodes + 1)]
        self.changes = changes
        self.links: dict[tuple[NodeId, NodeId], deque[tuple[FrameKind, bytes]]] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.metadata: list[Any] = [DeclareQueue(record=RECORD, node=NOBODY, correlation=0)]
        self._serial = self._number = 0
        self.confirmed: set[int] = set()
        self.seen: set[int] = set()
        self.first: set[int] = set()
        self.counts = {
            "crashes": 0,
            "breaks": 0,
            "redelivered": 0,
            "delivered": 0,
            "changes": 0,
            "read": 0,
            "refused": 0,
        }
        for node in self.all:
            self.nodes[node] = Node(node, self)
        for a in self.all:
            for b in self.all:
                if a < b:
                    self.connect(a, b)

    def metadata_at(self, index: int) -> bytes:
        """A snapshot of the metadata after so many entries."""
        machine = MetadataMachine()
        for command in self.metadata[:index]:
            machine.apply(metadata.encode([command]))
        return machine.snapshot()

    @property
    def record(self) -> QueueRecord:
        """The queue as the whole log of the metadata has it."""
        machine = MetadataMachine.restore(self.metadata_at(len(self.metadata)))
        return machine.queues["q"]

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def is_up(self, a: NodeId, b: NodeId) -> bool:
        return (a, b) in self.links

    def send(self, sender: NodeId, to: NodeId, kind: FrameKind, body: bytes) -> int:
        if (link := self.links.get((sender, to))) is None:
            return 0
        link.append((kind, body))
        return len(body)

    def took(self, number: int, redelivered: bool) -> None:
        """A consumer got a message."""
        self.counts["delivered"] += 1
        self.counts["redelivered"] += redelivered
        if not redelivered:
            assert number not in self.first, "delivered twice without the redelivered flag"
            self.first.add(number)
        self.seen.add(number)

    # What happens

    def connect(self, a: NodeId, b: NodeId) -> None:
        if self.is_up(a, b) or not (self.nodes[a].alive and self.nodes[b].alive):
            return
        self.links[a, b], self.links[b, a] = deque(), deque()
        for one, other in ((a, b), (b, a)):
            self.nodes[one].hosting.peer_up(other, up=())
            self.nodes[one].tell(other)

    def cut(self, a: NodeId, b: NodeId) -> None:
        if not self.is_up(a, b):
            return
        self.counts["breaks"] += 1
        for one, other in ((a, b), (b, a)):
            link = self.links.pop((one, other))
            keep = self.chance.randint(0, len(link))  # TCP may still deliver some of what was sent, in order
            for kind, body in list(link)[:keep]:
                if self.nodes[other].alive:
                    self.nodes[other].frame(one, kind, body)
        for one, other in ((a, b), (b, a)):
            if self.nodes[one].alive:
                self.nodes[one].hosting.peer_down(other)
                self.nodes[one].tell(other)

    def crash(self, node: NodeId) -> None:
        self.counts["crashes"] += 1
        self.nodes[node].crash()
        for other in self.all:
            self.cut(min(node, other), max(node, other)) if other != node else None

    def restart(self, node: NodeId) -> None:
        self.nodes[node].start()
        for other in self.all:
            if other != node:
                self.connect(min(node, other), max(node, other))

    def one_step(self) -> None:
        node = self.nodes[self.chance.choice(self.all)]
        if not node.alive:
            if self.chance.random() < 0.05:
                self.restart(node.node)
            return
        self.chance.choices(
            [
                lambda: self.chance.choice(self.frames(node))() if self.frames(node) else None,
                node.turn,
                lambda: node.log.run_pending(),
                node.take_notice,
                node.fire_timer,
                node.tick,
                lambda: self.client_acts(node),
                lambda: self.trouble(node),
                node.hear,
                node.speak,
                lambda: self.change(node),
                lambda: self.read(node),
            ],
            weights=[30, 30, 12, 25, 4, 4, 12, 0.4, 3, 3, 0.4 if self.changes else 0, 3],
        )[0]()

    def frames(self, node: Node) -> list[Callable[[], None]]:
        """Ways to deliver the next frame to ``node``: one for each link that has one."""
        ways = []
        for other in self.all:
            link = self.links.get((other, node.node))
            if link:
                ways.append(lambda other=other, link=link: node.frame(other, *link.popleft()))
        return ways

    def client_acts(self, node: Node) -> None:
        clients = list(node.channels.values())
        if len(clients) < 2 and self.chance.random() < 0.3:
            self.chance.choice([Publisher, Consumer])(node, self)
        elif clients:
            client = self.chance.choice(clients)
            if self.chance.random() < 0.01:
                client.close()
            elif isinstance(client, Publisher):
                client.publish()
            else:
                client.settle()

    def change(self, node: Node) -> None:
        """An operator adds or removes a member."""
        record = self.nodes[node.node].hosting.by_group[GROUP].record
        kind = self.chance.choice([AddMember, RemoveMember])
        if kind is RemoveMember and len(record.members) <= 2:
            return
        self.counts["changes"] += 1
        member = self.chance.choice(self.all)
        node.metadata.change(kind, record, member, lambda _record: None)

    def read(self, node: Node) -> None:
        """Ask whoever believes to lead how far it is: it must not answer with less than anybody knows of now."""
        member = node.member
        if member is None or member.core.role is not Role.LEADER:
            return
        applied = [each.member.applied for each in self.nodes.values() if each.alive and each.member is not None]

        def answered(index: LogIndex | None) -> None:
            self.counts["read" if index is not None else "refused"] += 1
            assert index is None or max(applied) <= index <= member.applied, "a read is older than its question"

        member.read(answered)

    def trouble(self, node: Node) -> None:
        other = self.chance.choice([each for each in self.all if each != node.node])
        a, b = min(node.node, other), max(node.node, other)
        alive = sum(each.alive for each in self.nodes.values())
        if self.chance.random() < 0.5 and alive == len(self.all):
            self.crash(node.node)
        elif self.is_up(a, b):
            self.cut(a, b)
        else:
            self.connect(a, b)

    def settle_down(self) -> None:
        """Heal everything and let it run until nothing moves."""
        for node in self.all:
            if not self.nodes[node].alive:
                self.restart(node)
        for a in self.all:
            for b in self.all:
                if a < b:
                    self.connect(a, b)
        self._run(400)

    def run_on(self, held: Collection[tuple[NodeId, NodeId]] = ()) -> None:
        """Until nothing moves any more but for timers, ticks and clients, and for frames on the links ``held``."""
        moved = True
        while moved:
            moved = False
            for node in self.nodes.values():
                node.hear()
                moved |= bool(node.dirty or node.notices)
                node.turn()
                moved |= node.log.run_pending()
                while node.notices:
                    node.take_notice()
                for other in self.all:
                    link = self.links.get((other, node.node))
                    while link and (other, node.node) not in held:
                        moved = True
                        node.frame(other, *link.popleft())

    def settle_down_without(self, away: NodeId) -> None:
        """Let everything but one node, which nobody can reach, run for a while."""
        self._run(6, [node for node in self.nodes.values() if node.node != away])

    def _run(self, rounds: int, nodes: Sequence[Node] = ()) -> None:
        for _ in range(rounds):
            for node in nodes or self.nodes.values():
                self._work_off(node)
            self.pass_frames(nodes)

    def _work_off(self, node: Node) -> None:
        node.tick()
        node.turn()
        node.hear()
        node.speak()
        node.log.run_pending()
        while node.notices:
            node.take_notice()
        node.turn()
        while node.timers:
            node.fire_timer()
        node.turn()
        for client in list(node.channels.values()):
            if isinstance(client, Consumer):
                client.settle()

    def pass_frames(self, nodes: Sequence[Node] = ()) -> None:
        """Deliver everything that is under way."""
        for node in nodes or self.nodes.values():
            while ways := self.frames(node):
                ways[0]()


@pytest.mark.parametrize(
    ("nodes", "changes"), [(3, False), (4, False), (5, True)], ids=["members", "guest", "changing"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_confirmed_is_lost_whatever_happens(seed: int, nodes: int, changes: bool) -> None:
    """The promise of a quorum queue, kept by the very code that the node runs."""
    world = World(seed, nodes, changes=changes)
    try:
        for _ in range(STEPS):
            world.one_step()
        world.settle_down()
        for node in world.nodes.values():
            for client in list(node.channels.values()):
                waits = isinstance(client, Publisher) and client.session.unconfirmed_bytes
                assert not waits, "a publisher waits for ever for a confirm"
                client.close()
        last = Consumer(world.nodes[world.all[0]], world)
        world.settle_down()
        while any(node.member and node.host.machine.counts().ready for node in world.nodes.values()):
            before = len(world.seen)
            world.settle_down()
            assert len(world.seen) > before, "nothing is delivered any more"
        check_ledger(world, last)
    except BaseException as error:
        error.add_note(f"replay with GROUP_SEED={seed} GROUP_STEPS={STEPS} -k {nodes}; so far {world.counts}")
        raise


def check_ledger(world: World, last: Consumer) -> None:
    """After everything was consumed: nothing is lost, the members agree, and their logs do not grow for ever."""
    lost = world.confirmed - world.seen
    assert not lost, f"{len(lost)} confirmed messages lost, {sorted(lost)[:10]}"
    assert not last.held
    record = world.record
    assert not record.leaving, "a member does not get away"
    members = [world.nodes[node] for node in record.members]
    runners = [node.member for node in members]
    for runner in runners:
        assert runner is not None, "a member that is wanted is not there"
        assert runner.core.configuration.voters == record.members, "the configuration is not what is wanted"
        runner.take_snapshot()
    assert all((node.member is None) == (node.node not in record.members) for node in world.nodes.values())
    world.settle_down()
    behind = [runner.core.node for runner in runners if runner and runner.core.log.snapshot_index + 20 < runner.applied]
    assert not behind, f"nodes {behind} take no snapshots any more, so their WAL would grow for ever"
    machines = [node.host.machine for node in members]
    assert len({machine.snapshot() for machine in machines}) == 1, "the members disagree"
    assert machines[0].counts().ready == machines[0].counts().unacked == 0
    assert world.counts["read"], "no read was ever answered"
    assert world.counts["delivered"] > STEPS / 100, "hardly anything happened"


def member_of(world: World, node: NodeId) -> GroupRunner:
    member = world.nodes[node].member
    assert member is not None
    return member


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_replica_that_left_does_not_rise_again_from_the_log(seed: int) -> None:
    """At its start a node hears the metadata log once more, and for a while only its beginning. Blank replicas of two
    nodes that were removed would be a majority of the founders, elect each other and lose every message."""
    world = World(seed)
    world.settle_down()
    gone = world.nodes[FOUNDERS[2]]
    world.metadata.append(RemoveMember(name="q", group=GROUP, member=gone.node, node=NOBODY, correlation=0))
    world.settle_down()
    assert gone.member is None
    gone.crash()
    gone.known = 0
    gone.start()
    while gone.applied < len(world.metadata):
        assert gone.member is None, f"a blank replica after {gone.applied} of {len(world.metadata)} entries"
        gone.hear()
    assert gone.member is None


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_member_that_is_removed_before_it_ever_ran_can_still_be_counted_on(seed: int) -> None:
    """A node slept while the queue was declared and removed from it again, and another member is being removed, too.
    The leader removes that one first, which takes a majority of itself and the sleeper: a vote that nobody has, if the
    sleeper does not begin because it is to leave."""
    world = World(seed)
    sleeper = world.nodes[FOUNDERS[2]]
    world.crash(sleeper.node)
    sleeper.files, sleeper.known = MemoryFiles(), 0
    awake = [world.nodes[node] for node in FOUNDERS[:2]]
    world.settle_down_without(sleeper.node)
    while not any(member_of(world, node.node).core.role is Role.LEADER for node in awake):
        world.settle_down_without(sleeper.node)
    leads = next(node for node in awake if member_of(world, node.node).core.role is Role.LEADER)
    for member in (FOUNDERS[2], next(node.node for node in awake if node is not leads)):
        world.metadata.append(RemoveMember(name="q", group=GROUP, member=member, node=NOBODY, correlation=0))
    world.settle_down()
    assert not world.record.leaving, "a member does not get away"
    assert sleeper.member is None and member_of(world, leads.node).core.configuration.voters == (leads.node,)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_queue_that_was_deleted_while_a_node_was_down_goes_there_too(seed: int) -> None:
    """Even if the metadata's snapshot does not know it any more, since the deletion of the replica had not reached the
    disk when the node stopped. Otherwise the replica would ask for votes for ever."""
    world = World(seed)
    world.settle_down()
    node = world.nodes[FOUNDERS[2]]
    node.crash()
    world.metadata.append(DeleteQueue(name="q", group=GROUP, node=NOBODY, correlation=0))
    node.queue_gone = lambda record: None  # type: ignore[method-assign]
    node.known = len(world.metadata)
    node.start()
    while node.applied < len(world.metadata):
        node.hear()
    assert GROUP not in node.hosting.by_group


def test_a_snapshot_overtaken_by_an_installed_one_is_not_waited_for() -> None:
    """The log drops it without a word; a member that waited for it would never take one again and fill its disk."""
    world = World(1)
    world.settle_down()
    publisher, consumer = Publisher(world.nodes[FOUNDERS[0]], world), Consumer(world.nodes[FOUNDERS[0]], world)
    publisher.publish()
    world.settle_down()
    away = world.nodes[FOUNDERS[2]]
    for other in FOUNDERS[:2]:
        world.cut(other, away.node)
    for _ in range(200):
        publisher.publish()
        world.settle_down_without(away.node)
    while consumer.held:
        world.settle_down_without(away.node)
    for other in FOUNDERS[:2]:
        member_of(world, other).take_snapshot()
    world.settle_down_without(away.node)
    world.connect(FOUNDERS[0], away.node)
    world.connect(FOUNDERS[1], away.node)
    for _ in range(2000):
        if any(isinstance(notice, SnapshotInstalled) for notice in away.notices):
            break
        world.settle_down_without(away.node)
        world.pass_frames()
        away.turn()
        away.log.run_pending()
        while away.notices and not isinstance(away.notices[0], SnapshotInstalled):
            away.take_notice()
    assert away.notices, "the test needs a follower that gets a snapshot"
    member_of(world, away.node).take_snapshot()  # the log gets to it only after the installed one has taken its place
    away.take_notice()
    away.turn()
    world.settle_down()
    publisher.publish()
    world.settle_down()
    member_of(world, away.node).take_snapshot()
    world.settle_down()
    assert member_of(world, away.node).core.log.snapshot_index == member_of(world, away.node).applied


def test_the_snapshot_of_the_next_leader_does_not_overtake_the_one_that_is_written() -> None:
    """On a slow drive. The member would start anew behind a snapshot that has given way to the newer one, and stop."""
    world = World(1)
    world.settle_down()
    first = next(node for node in FOUNDERS if member_of(world, node).core.role is Role.LEADER)
    next_one, last = (node for node in FOUNDERS if node != first)
    away = world.nodes[last]
    publisher, consumer = Publisher(world.nodes[first], world), Consumer(world.nodes[first], world)
    for other in (first, next_one):
        world.cut(min(other, last), max(other, last))

    def move_on() -> None:
        for _ in range(100):
            publisher.publish()
            world.settle_down_without(away.node)
        while consumer.held:
            world.settle_down_without(away.node)
        member_of(world, first).take_snapshot()
        member_of(world, next_one).take_snapshot()
        world.settle_down_without(away.node)

    def hear() -> None:
        """All run, but the one that was away writes no snapshot: its drive is busy with the WAL."""
        for _ in range(100):
            world.settle_down_without(away.node)
            for deliver in iter(lambda: next(iter(world.frames(away)), None), None):
                deliver()
            away.turn()
            away.log.executors[0].run_pending()
            while away.notices:
                away.take_notice()
            away.turn()

    move_on()
    for other in (first, next_one):
        world.connect(min(other, last), max(other, last))
    hear()
    move_on()
    member_of(world, first).core.transfer(next_one)
    hear()
    assert member_of(world, next_one).core.role is Role.LEADER
    away.log.run_pending()
    installed = [notice.index for notice in away.notices if isinstance(notice, SnapshotInstalled)]
    assert len(installed) == 1, "one overtook the other"
    world.settle_down()
    assert member_of(world, away.node).applied == member_of(world, next_one).applied > installed[0]


def test_a_non_member_is_not_forgotten_with_the_replica_that_left() -> None:
    """It attaches to a node that, it has heard, has a member again; the node has yet to hear that the former one left.
    Forgotten, it would never learn that this node leads, and what its clients settle would go to nobody."""
    world = World(1, nodes=4)
    non_member = world.nodes[NodeId(4)]
    consumer = Consumer(non_member, world)
    world.settle_down()
    late, leader = next((n, non_member.runner.leader) for n in FOUNDERS if n != non_member.runner.leader)
    for kind in (RemoveMember, AddMember):
        world.metadata.append(kind(name="q", group=GROUP, member=late, node=NOBODY, correlation=0))
        for _ in range(20):
            world.settle_down_without(late)
    assert late in non_member.hosting.by_group[GROUP].record.members, "the test needs a non-member that knows more"
    world.pass_frames([world.nodes[late]])
    world.settle_down()
    member_of(world, leader).core.transfer(late)
    world.settle_down()
    assert member_of(world, late).core.role is Role.LEADER and non_member.runner.leader == late
    consumer.close()
