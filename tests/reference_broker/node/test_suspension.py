"""A node that was away: while it was, its consumers' messages went to others, and what it finds unread is older."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pamqp.commands import Basic

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import Checkout, Enqueue, Get
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.node.replication.sender import Sender
from reference_broker.node.shard import Shard
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.raft.roles import Role
from reference_broker.types import GET_TAG, ConsumerId, GroupId, NodeId, Priority
from tests.reference_broker.amqp.testing import publish
from tests.reference_broker.node.quiet_cluster import NODES, QuietCluster, quiet_cluster
from tests.reference_broker.node.test_back_pressure import Client, World, run

SUSPECT_S = 2.0
ALL = 1000
"""Credit for everything that is published here."""


def content(number: int) -> bytes:
    """A message that a reader knows by its number, as octets of a publish."""
    body = b"%011d" % number
    header = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x00\x00\xce"
    return header + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"


class Reader:
    """A connection with one consumer, which settles nothing. ``log`` is shared: who got which message, and how."""

    def __init__(self, cluster: QuietCluster, shard: Shard, group: GroupId, log: list[tuple[NodeId, int, int]]) -> None:
        self.cluster, self.shard, self.log = cluster, shard, log
        self.connection = self.deliveries = self.publishing = self.answers = self
        self.channel = shard.clients.new_channel(self, 1)  # type: ignore[arg-type]
        self.consumer = ConsumerId(self.channel, "c")
        self.replies: list[int] = []
        self.next_id = 0
        runner = shard.proposer(group)
        assert runner is not None
        self._runner = runner

    def propose(self, command: object, priority: Priority = Priority.NORMAL) -> None:
        self.cluster.loops[self.shard.node].run(self._runner.propose, command, 64, priority)

    def subscribe(self, credit: int) -> None:
        self.propose(Checkout(self.consumer, credit, False, 0, 1))
        self.cluster.wait(lambda: bool(self.replies))

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, pieces: list[RunSlice], delivery_count: int
    ) -> None:
        for piece, start, count, step in pieces:
            for position in range(start, start + count * step, step):
                if first_message_id >= self.next_id:
                    self.log.append((self.shard.node, int(piece.content(position)[-12:-1]), delivery_count))
                    self.next_id = first_message_id + 1
                first_message_id += 1

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        return True

    def replied(self, correlation: int, value: int) -> None:
        self.replies.append(value)

    def committed(self, *_: object) -> bool:
        return True

    def flush(self) -> None: ...

    def queue_removed(self, record: QueueRecord) -> None: ...


class Scene:
    """A queue that one node leads, a reader on each node, and a publisher on one that follows."""

    def __init__(self, cluster: QuietCluster, members: int) -> None:
        cluster.declare(["q"], **{"x-quorum-initial-group-size": members})
        self.cluster = cluster
        cluster.wait(lambda: all("q" in shard.queues for shard in cluster.shards.values()))
        self.group = next(iter(cluster.shards[NODES[0]].queues.values())).record.group
        cluster.wait_for_leaders()
        self.log: list[tuple[NodeId, int, int]] = []
        self.leader = next(
            shard.node
            for shard in cluster.shards.values()
            if (runner := shard.runners.get(self.group)) and runner.core.role is Role.LEADER
        )
        self.readers = {node: Reader(cluster, cluster.shards[node], self.group, self.log) for node in cluster.shards}
        self.published = 0

    @property
    def others(self) -> list[NodeId]:
        return [node for node in NODES if node != self.leader]

    def publish(self, count: int = 1) -> None:
        """From a node that follows."""
        reader = self.readers[self.others[0]]
        for _ in range(count):
            self.published += 1
            run = MessageRun.of(b"\x00\x01q", [content(self.published)])
            reader.propose(Enqueue(reader.channel, self.published, run), Priority.LOW)

    def pause(self, node: NodeId, seconds: float) -> None:
        self.cluster.loops[node].paused_until = self.cluster.scheduler.now + seconds

    def got(self, count: int) -> Callable[[], bool]:
        """Whether so many messages were delivered to anybody."""
        return lambda: len({number for _, number, _ in self.log}) >= count

    def doubts(self) -> dict[NodeId, int]:
        """How many doubts each member has had."""
        hosts = {node: shard.runners[self.group].host for node, shard in self.cluster.shards.items()}
        return {node: host._doubt.number for node, host in hosts.items() if isinstance(host, QuorumMember)}

    def late_and_unmarked(self) -> list[tuple[NodeId, int, int]]:
        """Deliveries as if for the first time of what somebody else had got before."""
        seen: dict[int, NodeId] = {}
        late = []
        for node, number, delivery_count in self.log:
            if number in seen and not delivery_count:
                late.append((node, number, delivery_count))
            seen[number] = node
        return late


@contextmanager
def scene(members: int = 3) -> Iterator[Scene]:
    with quiet_cluster(suspect_after_ms=int(1000 * SUSPECT_S)) as cluster:
        yield Scene(cluster, members)


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_what_others_got_while_a_node_was_suspended_is_not_delivered_there(who: str) -> None:
    """Whatever was under way when it stopped: the pause begins at many moments of a message's way."""
    for moment in range(12):
        with scene() as run:
            asleep = run.leader if who == "leader" else run.others[1]
            for node in (asleep, run.others[0]):
                run.readers[node].subscribe(ALL)
            run.publish(20)
            run.cluster.wait(run.got(20))
            run.publish(20)
            run.cluster.pass_time(moment * 0.0001)
            run.pause(asleep, 2 * SUSPECT_S)
            run.publish(20)
            run.cluster.wait(run.got(60))
            run.cluster.pass_time(3 * SUSPECT_S)
            assert not run.late_and_unmarked()
            assert any(count for _, _, count in run.log), "nothing was taken back"
            run.publish(20)
            run.cluster.wait(run.got(80))


def test_what_others_got_while_a_non_member_was_suspended_is_not_delivered_there() -> None:
    """A node without a member is told by the leader, and what it was told before it stopped may be unread."""
    for moment in range(12):
        with scene(members=2) as run:
            asleep = next(node for node in NODES if run.group not in run.cluster.shards[node].runners)
            for node in (asleep, run.leader):
                run.readers[node].subscribe(ALL)
            run.publish(20)
            run.cluster.pass_time(moment * 0.0002)
            run.pause(asleep, 2 * SUSPECT_S)
            run.cluster.wait(run.got(20))
            run.cluster.pass_time(3 * SUSPECT_S)
            assert not run.late_and_unmarked()
            run.publish(20)
            run.cluster.wait(run.got(40))
            assert asleep in {node for node, *_ in run.log[-20:]}


def test_what_others_got_while_the_link_was_down_is_not_delivered_late() -> None:
    """The link to the leader breaks and is there again before anybody has begun an election. The leader's disk is slow
    to tell, so its followers hear of commits alone, which takes a moment longer."""
    for moment in range(12):
        with scene() as run, pytest.MonkeyPatch.context() as patched:
            patched.setattr(Sender, "tell_synced", lambda *_: None)
            away, stays = run.others[1], run.others[0]
            for node in (away, stays):
                run.readers[node].subscribe(ALL)
            run.publish(10)
            run.cluster.wait(run.got(10))  # the doubts that come with the election are over
            run.publish(20)
            run.cluster.pass_time(moment * 0.0001)
            for one, other in ((run.leader, away), (away, run.leader)):  # nothing is under way between them any more
                run.cluster.loops[one].run(run.cluster.shards[one].peers.links[other].close)
            run.cluster.wait(run.got(30))
            run.cluster.pass_time(SUSPECT_S)
            assert not run.late_and_unmarked()
            run.publish(20)
            run.cluster.wait(run.got(50))


def test_an_answer_that_waited_meanwhile_is_too_old() -> None:
    """The node had asked, was suspended, and finds the answer before it finds out that it did."""
    with scene() as run:
        node = run.others[1]
        run.readers[node].subscribe(ALL)
        shard, before, called = run.cluster.shards[node], run.doubts(), list[int]()
        shard.reads.catch_up = lambda call, group: call()  # type: ignore[method-assign]
        shard.turns._awake_ns -= int(SUSPECT_S * 1e9)
        run.cluster.loops[node].run(shard.services.when_current, run.group, lambda: called.append(run.doubts()[node]))
        assert called == [before[node] + 1]


def test_what_a_get_was_dealt_is_told_in_any_case() -> None:
    """Its client waits for it; after a while away as redelivered, if it was taken back since."""
    with scene() as run:
        node = run.others[1]
        reader, shard = run.readers[node], run.cluster.shards[node]
        run.publish(1)
        getter = ConsumerId(reader.channel, GET_TAG)
        host = shard.runners[run.group].host
        assert isinstance(host, QuorumMember)
        run.cluster.wait(lambda: host.machine.counts().ready == 1)
        run.cluster.loops[node].run(shard.hosting.was_suspended)
        reader.propose(Get(getter, False, 7))
        run.cluster.wait(lambda: bool(reader.replies))
        assert reader.replies == [1]
        assert run.log == [(node, 1, 0)]


def test_a_leader_that_was_away_takes_nothing_from_those_who_were_not() -> None:
    """All its links are dead when it goes on, so it sees everybody go down: its successor knows better."""
    for moment in range(12):
        with scene() as run:
            for node in NODES:
                run.readers[node].subscribe(ALL)
            run.publish(20)
            run.cluster.pass_time(moment * 0.0001)
            run.pause(run.leader, 2 * SUSPECT_S)
            run.cluster.wait(run.got(20))
            run.cluster.pass_time(4 * SUSPECT_S)
            first = {number: node for node, number, _ in reversed(run.log)}
            lost = [number for node, number, _ in run.log if first[number] != run.leader and node != first[number]]
            assert not lost, "taken from a node that was there all the time"


def test_a_short_pause_is_none() -> None:
    """Shorter than half of the others' patience: nothing is asked, nothing is marked."""
    with scene() as run:
        run.readers[run.leader].subscribe(ALL)
        run.publish(1)
        run.cluster.wait(run.got(1))
        doubts = run.doubts()
        run.pause(run.leader, 0.4 * SUSPECT_S)
        run.publish(5)
        run.cluster.wait(run.got(6))
        assert doubts == run.doubts()
        assert [count for _, _, count in run.log] == [0] * 6


def test_what_is_not_written_when_a_node_is_suspended_goes_as_redelivered() -> None:
    """Other consumers may have it by now, whenever the suspension began: between the writes of two connections, or just
    before a write."""

    async def scenario(world: World) -> None:
        publisher, first, second = Client(world), Client(world), Client(world)
        for consumer in (first, second):
            consumer.send(1, Basic.Qos(0, 10, False), Basic.Consume(0, "q", "c"))
        await world.settle()
        written, flushed = first.socket.writelines, second.server.flush

        def falls_asleep() -> None:
            world.shard.turns._awake_ns -= int(SUSPECT_S * 1e9)

        def behind(call: Callable[..., None]) -> Callable[..., None]:
            return lambda *what: (call(*what), falls_asleep())[0]

        def just_before_the_write() -> None:
            falls_asleep()
            flushed()

        first.socket.writelines = behind(written)  # type: ignore[method-assign]
        assert await _flags(world, publisher, first, second) == [False, True]
        first.socket.writelines = written  # type: ignore[method-assign]
        assert await _flags(world, publisher, first, second) == [False, False]
        second.server.flush = just_before_the_write  # type: ignore[method-assign]
        assert await _flags(world, publisher, first, second) == [False, True]

    run(scenario, suspect_after_ms=int(1000 * SUSPECT_S))


async def _flags(world: World, publisher: Client, *consumers: Client) -> list[bool]:
    """Whether the next message of each consumer is marked redelivered. All are written in one turn."""
    for consumer in consumers:
        consumer.heard()
    publisher.raw(b"".join(publish(1, "q", b"%d" % number) for number, _ in enumerate(consumers)))
    await world.settle()
    heard = [[each for each in consumer.heard() if isinstance(each, Basic.Deliver)] for consumer in consumers]
    assert [len(each) for each in heard] == [1] * len(consumers)
    return [bool(deliver.redelivered) for (deliver,) in heard]
