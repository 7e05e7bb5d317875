"""The model of RabbitMQ, part by part, against figures that can be had with pencil and paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perftest.rabbitmq_model.channel import CREDIT, CREDIT_MORE
from perftest.rabbitmq_model.consumer import SOFT_LIMIT, Subscriber
from perftest.rabbitmq_model.files import DIRTY_IO_SCHEDULERS, DirtyIo
from perftest.rabbitmq_model.messages import AckLot
from perftest.rabbitmq_model.processes import TURN_MESSAGES, Cores, ErlangProcess
from perftest.rabbitmq_model.quorum_queue import SNAPSHOT_ENTRIES
from perftest.rabbitmq_model.wal import LogEntries, LogWriter
from tests.perftest.rabbitmq_model.rabbit import DRIVE, MS, NOTHING, SYNC_NS, World, client_of, cluster, lot, nodes

LINK_NS = MS // 10
NO_WAKE = (0, 0)


# Processes


@pytest.mark.parametrize(("cores", "end_ns"), [(1, 30), (2, 20), (3, 10)])
def test_processes_share_the_cores_of_their_machine(cores: int, end_ns: int) -> None:
    """Three processes with 10 ns of work each."""
    world, shared, ended = World(), Cores(cores), list[int]()
    for _ in range(3):
        process = ErlangProcess(world, shared, NO_WAKE, lambda _: 10, lambda _: ended.append(world.now))
        process.tell(AckLot(None, 1))  # type: ignore[arg-type]
    world.run()
    assert max(ended) == end_ns


def test_a_turn_takes_few_messages_and_what_came_meanwhile_is_the_next() -> None:
    world, turns = World(), list[list[int]]()
    process = ErlangProcess(
        world, Cores(1), NO_WAKE, lambda _: 10, lambda items: turns.append([each.count for each in items])
    )
    process.tell(AckLot(None, TURN_MESSAGES + 5))  # type: ignore[arg-type]
    process.tell(AckLot(None, 1))  # type: ignore[arg-type]
    world.run()
    assert turns == [[TURN_MESSAGES], [5, 1]] and process.cpu_ns == 20


def test_a_process_that_slept_pays_for_its_wake_up_once() -> None:
    world, ended = World(), list[int]()
    process = ErlangProcess(world, Cores(1), (100, 7), lambda _: 10, lambda _: ended.append(world.now))
    process.tell(AckLot(None, TURN_MESSAGES))  # type: ignore[arg-type]
    process.tell(AckLot(None, TURN_MESSAGES))  # type: ignore[arg-type]
    world.run()
    assert ended == [117, 127] and process.cpu_ns == 27


def test_a_process_that_holds_does_nothing() -> None:
    world, turns = World(), list[int]()
    process = ErlangProcess(world, Cores(1), NO_WAKE, lambda _: 10, lambda _: turns.append(world.now))
    process.hold()
    process.tell(AckLot(None, 1))  # type: ignore[arg-type]
    world.run()
    assert not turns
    process.release()
    world.run()
    assert turns == [10]


# Dirty I/O schedulers


@pytest.mark.parametrize("calls", [1, DIRTY_IO_SCHEDULERS, DIRTY_IO_SCHEDULERS + 1, 35])
def test_ten_schedulers_block_the_eleventh_call(calls: int) -> None:
    """Calls of 1 ms each end in groups of ten."""
    world, ended = World(), list[int]()
    io = DirtyIo(world)
    for _ in range(calls):
        io.run(lambda begin_ns: begin_ns + MS, lambda: ended.append(world.now))
    world.run()
    assert ended == [MS * (1 + number // DIRTY_IO_SCHEDULERS) for number in range(calls)]


def test_the_log_waits_behind_lazy_queues_though_its_drive_is_idle() -> None:
    """The collapse of the source: its own drive does not help a log that finds no scheduler."""
    world = World()
    slow = replace(DRIVE, latency_ns=100 * MS)
    of_one = cluster(world, 1, classic=slow)
    client, channel = client_of(of_one, world)
    of_one.declare("q", "quorum", of_one.nodes[0])
    for number in range(DIRTY_IO_SCHEDULERS):
        of_one.declare(f"lazy{number}", "classic", of_one.nodes[0])
        _, its = client_of(of_one, world)
        its.publish(lot(its, f"lazy{number}", 1))
    world.run(MS)
    channel.publish(lot(channel, "q", 1))
    world.run()
    assert client.confirmed[0][0] > 100 * MS, "a scheduler is free when the first lazy queue is done"


# The log


def test_the_log_writes_what_came_meanwhile_as_one_batch() -> None:
    """One write and one sync for each batch, whatever the entries: closed form of the latency."""
    world = World()
    (node,) = nodes(world)
    heard = list[tuple[int, int]]()
    member = LogWriter(lambda last: heard.append((world.now, last)))
    node.log(LogEntries(member, 1, 1, 100))
    world.run(MS)
    for last in range(2, 50):
        node.log(LogEntries(member, last, 1, 100))
    world.run()
    assert heard == [(SYNC_NS, 1), (2 * SYNC_NS, 49)]
    assert node.wal.batches == 2 and node.io.calls == 4


def test_a_full_log_is_emptied_into_segments_without_what_a_snapshot_covers() -> None:
    world = World()
    (node,) = nodes(world)
    node.wal._file.octets_max = 1000
    kept, covered = LogWriter(lambda _: None), LogWriter(lambda _: None, snapshot=10)
    node.log(LogEntries(kept, 10, 10, 5000))
    node.log(LogEntries(covered, 10, 10, 5000))
    world.run()
    node.log(LogEntries(kept, 11, 1, 100))
    world.run()
    assert (node.wal.segment_octets, node.wal.files_emptied) == (5000, 1)


# Quorum queues


@pytest.mark.parametrize(
    ("members", "leader_sync", "follower_sync", "confirm_ns"),
    [
        (1, MS, MS, SYNC_NS),
        (3, MS, MS, SYNC_NS + 2 * LINK_NS),
        (3, 10 * MS, MS, SYNC_NS + 2 * LINK_NS),
        (3, MS, 10 * MS, 10 * SYNC_NS + 2 * LINK_NS),
    ],
)
def test_a_majority_of_logs_confirms(members: int, leader_sync: int, follower_sync: int, confirm_ns: int) -> None:
    """The leader's own log counts, and is not needed if both followers have synced."""
    world = World()
    found = cluster(world, members, link_ns=LINK_NS)
    for node, sync_ns in zip(found.nodes, (leader_sync, follower_sync, follower_sync), strict=False):
        drive = node._places["wal"].drive  # type: ignore[attr-defined]
        drive.change(replace(drive.profile, latency_ns=sync_ns))
    client, channel = client_of(found, world)
    found.declare("q", "quorum", found.nodes[0])
    channel.publish(lot(channel, "q", 1))
    world.run()
    assert client.confirmed == [(confirm_ns, 1, 1)]


def test_a_consumer_gets_no_more_than_its_prefetch_until_settles_are_committed() -> None:
    world = World()
    found = cluster(world, 1)
    client, channel = client_of(found, world)
    consumer = Subscriber(channel, "c", found.declare("q", "quorum", found.nodes[0]), 5, no_ack=False)
    channel.subscribe(consumer)
    channel.publish(lot(channel, "q", 8))
    world.run()
    assert sum(count for _, count in client.delivered) == 5
    channel.acknowledge(consumer, 5)
    asked_ns = world.now
    world.run()
    assert sum(count for _, count in client.delivered) == 8
    assert client.delivered[-1][0] == asked_ns + SYNC_NS
    assert found.queues["q"].ready.unacked == 3


def test_a_slow_channel_stops_the_reader() -> None:
    """The reader's credit, and not the client's window, is what is under way at most."""
    world = World()
    found = cluster(world, 1)
    client, channel = client_of(found, world)
    found.declare("q", "quorum", found.nodes[0])
    channel.publish(lot(channel, "q", 5000))
    world.run(SYNC_NS - 1)
    assert channel.pending["q"] == CREDIT and channel.unread == 5000 - CREDIT
    most = 0
    while sum(last - first + 1 for _, first, last in client.confirmed) < 5000:
        world.step()
        most = max(most, channel.pending["q"])
    assert most < CREDIT + CREDIT_MORE + SOFT_LIMIT
    seqs = [seq for _, first, last in client.confirmed for seq in range(first, last + 1)]
    assert seqs == list(range(1, 5001))


def test_acknowledgements_beyond_the_limit_share_a_command() -> None:
    world = World()
    found = cluster(world, 1)
    _, channel = client_of(found, world)
    consumer = Subscriber(channel, "c", found.declare("q", "quorum", found.nodes[0]), 0, no_ack=False)
    for _ in range(4 * SOFT_LIMIT):
        channel.acknowledge(consumer, 1)
    world.run()
    assert found.queues["q"]._last == SOFT_LIMIT + 1, "single commands, and one for all others"
    assert consumer.unsent == consumer.commands == 0


def test_a_queue_that_is_read_takes_snapshots() -> None:
    world = World()
    found = cluster(world, 1)
    client, channel = client_of(found, world)
    consumer = Subscriber(channel, "c", found.declare("q", "quorum", found.nodes[0]), 0, no_ack=True)
    channel.subscribe(consumer)
    channel.publish(lot(channel, "q", 3 * SNAPSHOT_ENTRIES))
    world.run()
    assert found.nodes[0].snapshots == 2, "the third would cover what is under way"
    assert sum(count for _, count in client.delivered) == 3 * SNAPSHOT_ENTRIES


# Classic queues


def test_a_lone_message_of_a_lazy_queue_costs_a_write_and_a_sync() -> None:
    """As strace shows of RabbitMQ 3.10.8: the delivery comes first, the confirm after the sync."""
    world = World()
    found = cluster(world, 1)
    client, channel = client_of(found, world)
    channel.subscribe(Subscriber(channel, "c", found.declare("q", "classic", found.nodes[0]), 0, no_ack=True))
    for _ in range(3):
        channel.publish(lot(channel, "q", 1))
        world.run()
    assert client.delivered == [(number * SYNC_NS, 1) for number in range(3)]
    assert [at_ns for at_ns, *_ in client.confirmed] == [number * SYNC_NS for number in range(1, 4)]
    assert found.nodes[0].io.calls == 6


def test_messages_that_come_during_a_sync_share_the_next() -> None:
    world = World()
    found = cluster(world, 1)
    client, channel = client_of(found, world)
    found.declare("q", "classic", found.nodes[0])
    channel.publish(lot(channel, "q", 1))
    world.run(MS)
    for seq in range(2, 10):
        channel.publish(lot(channel, "q", 1, seq))
    world.run()
    assert {at_ns for at_ns, *_ in client.confirmed} == {SYNC_NS, 2 * SYNC_NS}


def test_the_same_work_takes_the_same_time_again() -> None:
    costs = replace(NOTHING, turn_ns=5000, leader_enqueue_ns=20_000, channel_publish_ns=9000, wal_entry_ns=5000)

    def confirms() -> list[tuple[int, int, int]]:
        world = World()
        found = cluster(world, 3, costs=costs, link_ns=LINK_NS)
        client, channel = client_of(found, world)
        found.declare("q", "quorum", found.nodes[0])
        channel.publish(lot(channel, "q", 2000))
        world.run()
        return client.confirmed

    assert confirms() == confirms()
