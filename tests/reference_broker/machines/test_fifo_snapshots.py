"""Snapshots as octets: canonical, checked, and refused when damaged."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from zlib import crc32

import pytest

from reference_broker.machines.commands import Cancel, Checkout, Enqueue, Label, NodeDown, Purge, Return, Settle, Tick
from reference_broker.machines.config import FifoConfig, KeyedConfig
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.machines.fifo_snapshot import SNAPSHOT_VERSION, DamagedSnapshotError
from reference_broker.types import LogIndex

from .logs import TERM, RandomLog, apply, channel, consumer, drained, held, machine, run_of

CONFIG = FifoConfig(name="q")


def a_queue_with_everything() -> FifoMachine:
    queue = machine()
    a, b = consumer(1), consumer(2, "ü")
    apply(queue, Checkout(a, 5, False, 0, 1), Checkout(b, 5, False, 3, 2), Checkout(consumer(3), 1, True, -1, 3))
    apply(queue, Enqueue(channel(1), 1, run_of(7)), Return(b, ((1, 2),)), Settle(a, ((1, 1),)))
    apply(queue, NodeDown(a.channel.node), NodeDown(b.channel.node), NodeDown(consumer(3).channel.node))
    apply(queue, Checkout(a, 2, False, 0, 1), Enqueue(channel(1), 8, run_of(30)))
    return queue


def a_keyed_queue() -> FifoMachine:
    """Keys of all three states, and messages without a key."""
    queue = FifoMachine(FifoConfig(name="q", keyed=KeyedConfig(retry_delay_ms=50, reserve_ms=70)))
    labels = ((2, Label(b"a")), (1, Label(None)), (3, Label(b"b", 30, 9)), (1, Label(None, 5)), (2, Label(b"", 0, 0)))
    apply(queue, Checkout(consumer(1), 3, False, 0, 1), Enqueue(channel(1), 1, run_of(9), 700, labels))
    apply(queue, Return(consumer(1), ((1, 1),)), Enqueue(channel(2), 1, run_of(2), -1, ((2, Label(b"b")),)))
    counts = queue.counts()
    assert (counts.keys, counts.reserved_keys) == (5, 2)
    return queue


QUEUES = pytest.mark.parametrize("make", [a_queue_with_everything, a_keyed_queue])


@QUEUES
def test_a_restored_queue_shows_the_same_to_everybody(make: Callable[[], FifoMachine]) -> None:
    """After an install nobody may notice that the member did not apply the log itself."""
    queue = make()
    copy = FifoMachine.restore(queue.snapshot())
    assert copy.counts() == queue.counts()
    assert copy.service_order() == queue.service_order()
    assert copy.channels() == queue.channels()
    assert copy.live_entries() == queue.live_entries()
    assert copy.applied == queue.applied
    assert held(copy) == held(queue)
    assert drained(copy) == drained(queue)


def test_what_a_queue_only_remembers_to_save_looking_is_no_part_of_its_state() -> None:
    """A message with a time to live came and went. The member that restarts does not know; the others do."""
    queue = machine()
    apply(queue, Enqueue(channel(1), 1, run_of(1), ttl_ms=5), Purge(channel(1), 1))
    copy = FifoMachine.restore(queue.snapshot())
    for one in (queue, copy):
        apply(one, Tick(), time_ms=9)
    assert copy.snapshot() == queue.snapshot()


@QUEUES
def test_every_damaged_octet_is_noticed(make: Callable[[], FifoMachine]) -> None:
    """A snapshot replaces the log: a wrong octet taken in would be there for ever, on this member only."""
    snapshot = make().snapshot()
    for at in range(len(snapshot)):
        damaged = bytearray(snapshot)
        damaged[at] ^= 0x10
        with pytest.raises(DamagedSnapshotError):
            FifoMachine.restore(bytes(damaged))


@QUEUES
def test_every_cut_off_snapshot_is_noticed(make: Callable[[], FifoMachine]) -> None:
    """A crash while a snapshot is written or sent leaves a prefix of it."""
    snapshot = make().snapshot()
    for end in range(len(snapshot)):
        with pytest.raises(DamagedSnapshotError):
            FifoMachine.restore(snapshot[:end])


@QUEUES
@pytest.mark.parametrize("seed", range(5))
def test_nonsense_with_a_right_checksum_raises_the_typed_error(make: Callable[[], FifoMachine], seed: int) -> None:
    """A bug in another version is not a traceback here."""
    random = Random(seed)
    snapshot = make().snapshot()
    for _ in range(500):
        body = bytearray(snapshot[10:])
        for _ in range(3):
            body[random.randrange(len(body))] = random.randrange(256)
        octets = snapshot[:6] + crc32(bytes(body)).to_bytes(4, "big") + bytes(body)
        try:
            FifoMachine.restore(octets)
        except DamagedSnapshotError:
            continue


def test_another_version_is_named() -> None:
    """Downgrading must say why it does not work."""
    snapshot = bytearray(a_queue_with_everything().snapshot())
    snapshot[5] = SNAPSHOT_VERSION + 1
    with pytest.raises(DamagedSnapshotError, match=f"version {SNAPSHOT_VERSION + 1}"):
        FifoMachine.restore(bytes(snapshot))


def test_a_snapshot_has_no_bodies() -> None:
    """A million waiting messages of 1 KB make a snapshot of some KB; bodies stay in the log."""
    queue = machine()
    for turn in range(100):
        apply(queue, Enqueue(channel(1), 1 + 10_000 * turn, run_of(10_000)))
    assert queue.counts().ready == 1_000_000
    assert len(queue.snapshot()) < 4096


def test_a_large_backlog_takes_thirty_two_octets_a_run() -> None:
    """Publishers that wait for each confirm make runs of one: still no object per message."""
    queue = machine()
    for turn in range(5000):
        apply(queue, Enqueue(channel(1), 1 + turn, run_of(1)))
    assert len(queue.snapshot()) < 32 * 5000 + 400


@pytest.mark.parametrize("seed", range(20))
def test_the_order_in_which_things_were_learnt_does_not_show(seed: int) -> None:
    """Octets are compared between members that came here by different ways: by the log, and by a snapshot."""
    queue, other = machine(), machine()
    for position, payload in enumerate(RandomLog(Random(seed)).entries(40)):
        for member in (queue, other):
            apply_payload(member, payload)
        if position % 7 == seed % 7:
            other = FifoMachine.restore(other.snapshot())
        assert other.snapshot() == queue.snapshot()


def test_the_order_of_returns_does_not_show() -> None:
    """What waits for redelivery is ordered by message: how it came back is history, not state."""
    snapshots = set()
    for ranges in (((2, 2), (0, 0), (1, 1)), ((0, 0), (1, 1), (2, 2)), ((1, 1), (2, 2), (0, 0))):
        queue = machine()
        runs = [Enqueue(channel(1), 1 + turn, run_of(1)) for turn in range(3)]
        apply(queue, Checkout(consumer(2), 3, False, 0, 1), *runs, Cancel(consumer(2), 2), Return(consumer(2), ranges))
        snapshots.add(queue.snapshot())
    assert len(snapshots) == 1


def apply_payload(queue: FifoMachine, payload: bytes) -> None:
    queue.apply(Meta(LogIndex(queue.applied + 1), TERM), payload)
