"""The node's part of a queue in one thread: runner, Raft core, log and machine of three nodes, and a hostile world.

Frames are delayed, links break and drop what was under way, nodes lose power and come back on what was synced, turns
and fsyncs happen when chance wills. A publisher and a consumer on changing nodes keep a ledger that knows only what
clients know. A failure prints the seed; ``GROUP_SEED=<seed> pytest <this file>`` replays it.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.log.config import LogConfig
from reference_broker.log.memory_files import MemoryFiles
from reference_broker.log.notices import (
    HardStateSynced,
    RolledOver,
    SnapshotInstalled,
    SnapshotRejected,
    SnapshotTaken,
    Written,
)
from reference_broker.log.system import LogSystem
from reference_broker.machines.commands import ChannelDown, Checkout, NodeDown, NodeUp, Settle
from reference_broker.machines.metadata import QueueRecord
from reference_broker.message_run import MessageRun
from reference_broker.node.config import Limits
from reference_broker.node.group import GroupRunner
from reference_broker.node.peers import Kind
from reference_broker.node.proposals import Lane, Proposal
from reference_broker.queues.quorum import Piece, QuorumQueue
from reference_broker.queues.session import PublishSession
from reference_broker.raft import wire
from reference_broker.raft.core import RaftConfig, RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.ready import HardState, Role
from reference_broker.types import NOBODY, ChannelId, ConsumerId, GroupId, NodeId, Term

NODES = (NodeId(1), NodeId(2), NodeId(3))
GROUP = GroupId(7)
RECORD = QueueRecord(name="q", group=GROUP, members=NODES)
LIMITS = Limits(batch_bytes_max=4096, wal_file_bytes=16_384, memtable_bytes=8192)
ROUTE = b"\x00\x01q"
SEEDS = [int(os.environ["GROUP_SEED"])] if "GROUP_SEED" in os.environ else range(1, 9)
STEPS = int(os.environ.get("GROUP_STEPS", "6000"))


class Node:
    """One node: what lives in memory dies with :meth:`crash`, ``files`` and the number of lives stay."""

    def __init__(self, node: NodeId, world: World) -> None:
        self.node = node
        self.world = world
        self.limits = LIMITS
        self.files = MemoryFiles()
        self.incarnation = 0
        self.alive = False
        self.start()

    def start(self) -> None:
        self.incarnation += 1
        self.alive, self.awake = True, False
        self.notices: deque[Any] = deque()
        self.timers: list[Callable[[], None]] = []
        self.watched: set[NodeId] = set()
        self.channels: dict[int, Publisher | Consumer] = {}
        config = LogConfig(wal_dir="wal", data_dir="data", node=self.node, wal_file_bytes=LIMITS.wal_file_bytes,
                           memtable_bytes=LIMITS.memtable_bytes)  # fmt: skip
        store = b"store of node %02d" % self.node
        self.log, recovered = LogSystem.open(
            config, self.files, self.notices.extend, threads=False, new_store=lambda: store
        )
        view, hard_state = LogView(), HardState(term=Term(0), voted_for=NOBODY)
        state = recovered.get(GROUP)
        if state is None:
            self.log.create_group(GROUP, b"q")
        else:
            view = LogView.recovered(state.snapshot, state.terms, state.last_index)
            hard_state = HardState(term=state.term, voted_for=state.voted_for)
        self.host = QuorumQueue(RECORD, self, lambda: 0)
        self.anatomy = Anatomy(clock=1)
        core = RaftCore(self.node, NODES, view, hard_state, RaftConfig(), self.world.chance.randint)
        self.runner = GroupRunner(GROUP, core, self.log, self.host, self)
        self.host.payload, self.host.track = self.runner.payload, self.runner.track
        if state is not None and state.snapshot is not None:
            self.runner.restore(state.state)
        for other in NODES:
            if other != self.node and not self.world.is_up(self.node, other):
                self.runner.peer_down(other)

    def crash(self) -> None:
        self.alive = False
        self.files.crash(self.world.chance)

    # node.group.Surroundings

    def send(self, node: NodeId, kind: Kind, buffers: list[bytes | memoryview]) -> bool:
        return self.world.send(self.node, node, kind, b"".join(buffers))

    def wake(self, runner: GroupRunner) -> None:
        self.awake = True

    def now_ns(self) -> int:
        return 1

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append(call)

    def leader_changed(self, runner: GroupRunner) -> None:
        pass

    # queues.quorum.Clients

    def deliver(self, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int) -> None:
        client = self.channels.get(consumer.channel.connection)
        if isinstance(client, Consumer):
            client.delivered(first_message_id, pieces, delivery_count > 0)

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        client = self.channels.get(channel.connection)
        if isinstance(client, Publisher):
            client.committed(last)

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        pass

    def watch_node(self, group: GroupId, node: NodeId) -> None:
        self.watched.add(node)
        self.tell(node)

    def tell(self, node: NodeId) -> None:
        """What the shard does for a leader: say how a node stands."""
        if node in self.watched and self.runner.core.role is Role.LEADER:
            up = node == self.node or self.world.is_up(self.node, node)
            command = NodeUp(node, self.world.nodes[node].incarnation) if up else NodeDown(node)
            self.runner.propose(command, 64, Lane.EXPRESS)

    # Steps

    def turn(self) -> None:
        if self.awake:
            self.awake = False
            self.runner.turn()

    def take_notice(self) -> None:
        match self.notices.popleft() if self.notices else None:
            case RolledOver():
                if GROUP in self.log.snapshot_due():
                    self.runner.take_snapshot()
            case Written(_, index, term):
                self.runner.synced(index, term)
            case HardStateSynced():
                self.runner.hard_state_synced()
            case SnapshotTaken(_, index, term):
                self.runner.snapshot_taken(index, term)
            case SnapshotInstalled(_, index, term, state):
                self.runner.snapshot_installed(index, term, state)
            case SnapshotRejected(_, index, _, _):
                self.runner.snapshot_rejected(index)

    def fire_timer(self) -> None:
        if self.timers:
            self.timers.pop(0)()

    def frame(self, sender: NodeId, kind: Kind, body: bytes) -> None:
        if kind is Kind.RAFT:
            _, message = wire.decode(body)
            self.runner.step(sender, message)
        else:
            proposal, sealed = Proposal.unpack(memoryview(body))
            self.runner.proposed_by_peer(proposal, bytes(sealed))


class Publisher:
    """Publishes the next numbers, and knows which were confirmed."""

    def __init__(self, node: Node, world: World) -> None:
        self.node, self.world = node, world
        self.channel = ChannelId(node.node, node.incarnation, world.serial(), 1)
        self.session = PublishSession(self.channel)
        self.numbers: dict[int, int] = {}  # confirm seq -> number
        node.channels[self.channel.connection] = self

    def publish(self) -> None:
        count = self.world.chance.randint(1, 5)
        numbers = [self.world.next_number() for _ in range(count)]
        first = len(self.numbers) + 1
        self.numbers.update(enumerate(numbers, first))
        run = MessageRun.of(ROUTE, [self._body(number) for number in numbers])
        self.node.runner.propose(self.session.enqueue(run, first), len(run.data) + 64)

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
        self.id = ConsumerId(ChannelId(node.node, node.incarnation, world.serial(), 1), "c")
        self.next_id = 0
        self.held: list[int] = []
        self.newest: dict[int, int] = {}  # publisher -> its last number that came first here
        node.channels[self.id.channel.connection] = self
        checkout = Checkout(self.id, world.chance.randint(1, 20), auto_settle=False, priority=0, correlation=1)
        node.runner.propose(checkout, 64, Lane.EXPRESS)

    def delivered(self, first: int, pieces: list[Piece], redelivered: bool) -> None:
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
            self.node.runner.propose(command, 64, Lane.EXPRESS, lazy=self.world.chance.random() < 0.5)

    def close(self) -> None:
        self.node.runner.propose(ChannelDown(self.id.channel), 64)
        del self.node.channels[self.id.channel.connection]


class World:
    """Three nodes, the links between them, chance, and the ledger."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.links: dict[tuple[NodeId, NodeId], deque[tuple[Kind, bytes]]] = {}
        self.nodes: dict[NodeId, Node] = {}
        self._serial = self._number = 0
        self.confirmed: set[int] = set()
        self.seen: set[int] = set()
        self.first: set[int] = set()
        self.counts = {"crashes": 0, "breaks": 0, "redelivered": 0, "delivered": 0}
        for node in NODES:
            self.nodes[node] = Node(node, self)
        for a in NODES:
            for b in NODES:
                if a < b:
                    self.connect(a, b)

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def is_up(self, a: NodeId, b: NodeId) -> bool:
        return (a, b) in self.links

    def send(self, sender: NodeId, to: NodeId, kind: Kind, body: bytes) -> bool:
        if (link := self.links.get((sender, to))) is None:
            return False
        link.append((kind, body))
        return True

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
            self.nodes[one].runner.peer_up(other)
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
                self.nodes[one].runner.peer_down(other)
                self.nodes[one].tell(other)

    def crash(self, node: NodeId) -> None:
        self.counts["crashes"] += 1
        self.nodes[node].crash()
        for other in NODES:
            self.cut(min(node, other), max(node, other)) if other != node else None

    def restart(self, node: NodeId) -> None:
        self.nodes[node].start()
        for other in NODES:
            if other != node:
                self.connect(min(node, other), max(node, other))

    def one_step(self) -> None:
        node = self.nodes[self.chance.choice(NODES)]
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
                node.runner.tick,
                lambda: self.client_acts(node),
                lambda: self.trouble(node),
            ],
            weights=[30, 30, 12, 25, 4, 4, 12, 0.4],
        )[0]()

    def frames(self, node: Node) -> list[Callable[[], None]]:
        """Ways to deliver the next frame to ``node``: one for each link that has one."""
        ways = []
        for other in NODES:
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

    def trouble(self, node: Node) -> None:
        other = self.chance.choice([each for each in NODES if each != node.node])
        a, b = min(node.node, other), max(node.node, other)
        alive = sum(each.alive for each in self.nodes.values())
        if self.chance.random() < 0.5 and alive == len(NODES):
            self.crash(node.node)
        elif self.is_up(a, b):
            self.cut(a, b)
        else:
            self.connect(a, b)

    def settle_down(self) -> None:
        """Heal everything and let it run until nothing moves."""
        for node in NODES:
            if not self.nodes[node].alive:
                self.restart(node)
        for a in NODES:
            for b in NODES:
                if a < b:
                    self.connect(a, b)
        self._run(400)

    def settle_down_without(self, away: NodeId) -> None:
        """Let everything but one node, which nobody can reach, run for a while."""
        self._run(6, [node for node in self.nodes.values() if node.node != away])

    def _run(self, rounds: int, nodes: Sequence[Node] = ()) -> None:
        for _ in range(rounds):
            for node in nodes or self.nodes.values():
                self._work_off(node)
            self.pass_frames(nodes)

    def _work_off(self, node: Node) -> None:
        node.runner.tick()
        node.turn()
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


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_confirmed_is_lost_whatever_happens(seed: int) -> None:
    """The promise of a quorum queue, kept by the very code that the node runs."""
    world = World(seed)
    try:
        for _ in range(STEPS):
            world.one_step()
        world.settle_down()
        for node in world.nodes.values():
            for client in list(node.channels.values()):
                waits = isinstance(client, Publisher) and client.session.unconfirmed_bytes
                assert not waits, "a publisher waits for ever for a confirm"
                client.close()
        last = Consumer(world.nodes[NODES[0]], world)
        world.settle_down()
    except BaseException as error:
        error.add_note(f"replay with GROUP_SEED={seed} GROUP_STEPS={STEPS}; so far {world.counts}")
        raise
    lost = world.confirmed - world.seen
    assert not lost, f"seed {seed}: {len(lost)} confirmed messages lost, {sorted(lost)[:10]}; {world.counts}"
    assert not last.held
    for node in world.nodes.values():
        node.runner.take_snapshot()
    world.settle_down()
    behind = [
        node.node for node in world.nodes.values() if node.runner.core.log.snapshot_index + 20 < node.runner.applied
    ]
    assert not behind, f"seed {seed}: nodes {behind} take no snapshots any more, so their WAL would grow for ever"
    machines = [node.host.machine for node in world.nodes.values()]
    assert len({machine.snapshot() for machine in machines}) == 1, f"seed {seed}: the members disagree"
    assert machines[0].counts().ready == machines[0].counts().unacked == 0
    assert world.counts["delivered"] > STEPS / 100, f"seed {seed}: hardly anything happened: {world.counts}"


def test_a_snapshot_overtaken_by_an_installed_one_is_not_waited_for() -> None:
    """The log drops it without a word; a member that waited for it would never take one again and fill its disk."""
    world = World(1)
    world.settle_down()
    publisher, consumer = Publisher(world.nodes[NODES[0]], world), Consumer(world.nodes[NODES[0]], world)
    publisher.publish()
    world.settle_down()
    away = world.nodes[NODES[2]]
    for other in NODES[:2]:
        world.cut(other, away.node)
    for _ in range(200):
        publisher.publish()
        world.settle_down_without(away.node)
    while consumer.held:
        world.settle_down_without(away.node)
    for other in NODES[:2]:
        world.nodes[other].runner.take_snapshot()
    world.settle_down_without(away.node)
    world.connect(NODES[0], away.node)
    world.connect(NODES[1], away.node)
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
    away.runner.take_snapshot()  # the log gets to it only after the installed one has taken its place
    away.take_notice()
    away.turn()
    world.settle_down()
    publisher.publish()
    world.settle_down()
    away.runner.take_snapshot()
    world.settle_down()
    assert away.runner.core.log.snapshot_index == away.runner.applied
