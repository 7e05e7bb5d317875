"""A master and a mirror, each with a store of its own: the mirror has what the master has (I32)."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from reference_broker.classic.parts import QueueName
from reference_broker.classic.store import ClassicStore, StoreConfig, StoredQueue
from reference_broker.classic.writer import Notice, Stored
from reference_broker.message_run import MessageRun
from reference_broker.mirroring.master import Confirmations, RecordingStore
from reference_broker.mirroring.mirror import DivergedError, MirrorCopy
from reference_broker.mirroring.operations import Add, AppliedPublishes, Delivered, Take, decode
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import GroupId, NodeId

GROUP = GroupId(7)
ROUTE = b"\x00\x01q"


class Node:
    """The store of one node, and what it has told."""

    def __init__(self, *, lazy: bool = False) -> None:
        self.told = 0
        self.store = ClassicStore.open(StoreConfig(directory="/classic"), MemoryFiles(), self._notify, OwnersThread)
        self.queue: StoredQueue = self.store.queue(QueueName(GROUP, is_durable=True, is_lazy=lazy))

    def _notify(self, notices: list[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, Stored):
                self.told = max(self.told, notice.seq_end)

    def contents(self) -> list[tuple[int, bytes]]:
        """Every message that is in the queue: sequence number and content."""
        found: list[tuple[int, bytes]] = []
        for part in self.queue.parts():
            run = self.queue.run(part.seq)
            found += [(part.seq + at, run.content(at)) for at in part.positions().tolist()]
        return found


class Pair:
    """A master, and a mirror that gets every batch a little later."""

    def __init__(self, chance: Random, *, lazy: bool) -> None:
        self.chance = chance
        self.master, self.mirror = Node(lazy=lazy), Node(lazy=lazy)
        self.recording = RecordingStore(self.master.queue)
        self.recording.deliveries.is_free, self.recording.deliveries.ahead_min = False, 3
        self.copy = MirrorCopy(self.mirror.queue)
        self.batches: list[bytes] = []
        self.applied = 0
        self.published = 0

    def publish(self) -> None:
        count = self.chance.randint(1, 12)
        size = self.chance.choice([0, 30])
        contents = []
        for _ in range(count):
            self.published += 1
            contents.append((b"%06d" % self.published).ljust(size or self.chance.randint(8, 60), b"."))
        if size:
            run = MessageRun(count, ROUTE, b"".join(contents), size)
        else:
            run = MessageRun.of(ROUTE, contents)
        which = self.chance.choice([True, False, "mixed"])
        mask = np.array([self.chance.random() < 0.5 for _ in range(count)])
        self.recording.add(run, mask if which == "mixed" else bool(which), self.chance.choice([10**12, 2**63 - 1]))

    def take(self) -> None:
        parts = [part for part in self.master.queue.parts() if part.left]
        if parts:
            part = self.chance.choice(parts)
            positions = part.positions().tolist()
            start, step = self.chance.choice(positions), self.chance.choice([1, 1, 2, 3])
            count = 1
            while start + count * step in positions and self.chance.random() < 0.7:
                count += 1
            self.recording.take(part.seq, start, count, step)

    def send(self) -> None:
        if batch := self.recording.take_batch():
            self.batches.append(batch)
            self.recording.deliveries.sent(len(self.batches))

    def deliver(self) -> None:
        """Up to any message, if the mirror knows that this may happen."""
        end = self.recording.next_seq - self.chance.randint(0, 20)
        if self.recording.deliveries.allow(end):
            self.recording.delivered(end)

    def hear(self) -> None:
        """A batch is back at the master, which the mirror has had."""
        self.recording.deliveries.heard(self.chance.randint(0, self.applied))

    def arrive(self) -> None:
        if self.applied < len(self.batches):
            self.copy.apply(self.applied + 1, self.batches[self.applied])
            self.applied += 1

    def fill(self) -> None:
        """What a new mirror gets that is to have everything."""
        for part in self.master.queue.parts():
            run = self.recording.run(part.seq)
            taken = [Take(part.seq, *each) for each in part.gone or ()]
            add = Add(part.seq, run, part.is_persistent, part.expires)
            self.copy.fill(b"".join(b"".join(each.buffers()) for each in (add, *taken)))


@pytest.mark.seeds(120)
def test_a_mirror_has_the_masters_messages_at_the_same_batch(seed: int) -> None:
    """Whatever is published, taken and written meanwhile. With a mirror that begins late: from its first message on."""
    chance = Random(seed)
    pair = Pair(chance, lazy=seed % 3 == 0)
    late = seed % 4
    if late:
        for _ in range(chance.randint(1, 20)):
            chance.choice([pair.publish, pair.take, pair.deliver])()
        pair.recording.take_batch()
        pair.master.store.run_pending()
        if late > 1:
            pair.fill()
        pair.copy.begin(0, pair.recording.next_seq)
        pair.recording.deliveries.begin_anew()
    begins = pair.recording.next_seq if late == 1 else 0
    for _ in range(150):
        chance.choice([pair.publish, pair.take, pair.take, pair.send, pair.arrive, pair.arrive])()
        if chance.random() < 0.2:
            chance.choice([pair.master, pair.mirror]).store.run_pending()
        pair.deliver()
        pair.hear()
        known = pair.mirror.queue.delivered_end
        assert known >= pair.master.queue.delivered_end, f"seed {seed}: a message comes from both as new"
    pair.send()
    while pair.applied < len(pair.batches):
        pair.arrive()
    assert pair.mirror.contents() == [each for each in pair.master.contents() if each[0] >= begins], f"seed {seed}"
    assert pair.mirror.queue.next_seq == pair.master.queue.next_seq
    pair.recording.deliveries.heard(pair.applied)
    assert pair.recording.deliveries.allow(pair.recording.delivered_end + 1), f"seed {seed}: nothing was announced"
    assert (pair.mirror.queue.oldest() == pair.master.queue.oldest()) or late == 1


def test_a_promoted_mirror_begins_with_what_it_has() -> None:
    """As an owner begins with what its store finds after a restart: messages, places, sizes."""
    chance = Random(3)
    pair = Pair(chance, lazy=False)
    for _ in range(40):
        chance.choice([pair.publish, pair.take])()
    pair.send()
    pair.arrive()
    pair.mirror.queue.take_over()
    found = [(each.part.seq + at, size) for each in pair.mirror.queue.found
             for at, size in zip(each.positions.tolist(), each.sizes.tolist(), strict=True)]  # fmt: skip
    assert [seq for seq, _ in found] == [seq for seq, _ in pair.master.contents()]


def test_a_batch_is_confirmed_when_it_is_stored_and_both_copies_have_come() -> None:
    """RabbitMQ's mirrors wait for both, too."""
    pair = Pair(Random(1), lazy=False)
    process = NodeId(3), 9
    pair.copy.copies.receive(process, 1, ["first"])
    pair.recording.add(MessageRun.of(ROUTE, [b"x" * 30, b"y" * 31]), persistent=True)
    pair.recording.applied(*process, 2)
    pair.send()
    pair.arrive()
    assert pair.copy.confirm() == 0, "neither stored nor direct"
    pair.mirror.store.run_pending()
    pair.copy.stored(pair.mirror.told)
    assert pair.copy.confirm() == 0, "only the first direct copy"
    assert pair.copy.copies.rest() == []
    pair.copy.copies.receive(process, 2, ["second"])
    assert pair.copy.confirm() == 1
    assert pair.copy.copies.pending == 0


def test_what_must_survive_is_confirmed_when_it_is_stored() -> None:
    """A loss of power of all nodes would lose it otherwise, although it was confirmed."""
    pair = Pair(Random(1), lazy=False)
    for persistent in (False, True, False):
        pair.recording.add(MessageRun.of(ROUTE, [b"x" * 30]), persistent=persistent)
        pair.send()
        pair.arrive()
    assert pair.copy.confirm() == 1, "the second waits for the store, and the third for the second"
    pair.mirror.store.run_pending()
    pair.copy.stored(pair.mirror.told)
    assert pair.copy.confirm() == 3


def test_no_direct_copy_is_expected_over_a_broken_link() -> None:
    """Else a publisher that is gone would hold up all others."""
    pair = Pair(Random(1), lazy=False)
    pair.copy.copies.receive((NodeId(3), 9), 1, ["first"])
    pair.recording.add(MessageRun.of(ROUTE, [b"x" * 30]), persistent=False)
    pair.recording.applied(NodeId(3), 9, 2)
    pair.send()
    pair.arrive()
    assert pair.copy.confirm() == 0
    pair.copy.copies.link_broke(NodeId(3))
    assert pair.copy.confirm() == 1


def test_what_only_the_publishers_have_sent_is_left() -> None:
    """A new master takes it."""
    copies = MirrorCopy(Node().queue).copies
    copies.receive((NodeId(3), 9), 4, ["d", "e", "f"])
    copies.receive((NodeId(2), 1), 1, ["a"])
    copies.applied((NodeId(3), 9), 5)
    assert copies.rest() == ["a", "f"]


def test_a_mirror_that_has_missed_a_batch_says_so() -> None:
    """It must not have other messages under the same numbers."""
    pair = Pair(Random(1), lazy=False)
    for _ in range(2):
        pair.publish()
        pair.send()
    with pytest.raises(DivergedError):
        pair.copy.apply(2, pair.batches[1])


def test_a_confirm_needs_all_mirrors() -> None:
    """A majority is not enough; and what is safe here alone is not confirmed."""
    confirmations = Confirmations()
    confirmations.mirrors_are((NodeId(2), NodeId(3)))
    confirmations.sent(1, 10)
    confirmations.sent(2, 20)
    confirmations.confirmed(NodeId(2), 2)
    assert confirmations.end(20) == 0
    confirmations.confirmed(NodeId(3), 1)
    assert confirmations.end(20) == 10
    assert confirmations.end(5) == 5
    confirmations.mirrors_are((NodeId(2),))
    assert confirmations.end(20) == 20


def test_operations_read_back() -> None:
    """Also from a batch that was cut anywhere: that is damage, and raises nothing else."""
    run = MessageRun.of(ROUTE, [b"x" * 30, b"y" * 12, b"z" * 40])
    operations = [
        Add(5, run, np.array([True, False, True]), 77), Take(5, 1, 1, 1), Delivered(8),
        AppliedPublishes(NodeId(2), 3, 4), Add(8, run, True, 2**63 - 1),
    ]  # fmt: skip
    octets = b"".join(b"".join(each.buffers()) for each in operations)
    found = list(decode(octets))
    assert [type(each) for each in found] == [type(each) for each in operations]
    assert found[1:4] == operations[1:4]
    first = found[0]
    assert isinstance(first, Add)
    assert isinstance(first.persistent, np.ndarray)
    assert (first.seq, first.expires, first.persistent.tolist()) == (5, 77, [True, False, True])
    for cut in range(len(octets)):
        try:
            list(decode(octets[:cut]))
        except ValueError:
            continue
        assert octets[:cut] in [b"".join(b"".join(e.buffers()) for e in operations[:n]) for n in range(5)]


def test_what_fills_a_copy_is_not_taken_once_more_from_publishers() -> None:
    """A publisher's node knew the new mirror before the master did, so message 27 came twice: straight, and as one of
    the messages of the queue. In the simulator's world 4800484, a promotion then put it into the queue again."""
    node, process = Node(), (NodeId(3), 3)
    copy = MirrorCopy(node.queue)
    copy.copies.receive(process, 27, ["twenty-seven", "twenty-eight"])
    run = MessageRun(1, ROUTE, b"." * 30, 30)
    filling = [*Add(node.queue.next_seq, run, True, 2**63 - 1).buffers(), *AppliedPublishes(*process, 27).buffers()]
    copy.fill(b"".join(filling))
    assert copy.copies.rest() == ["twenty-eight"]
    copy.copies.receive(process, 27, ["twenty-seven"])
    assert copy.copies.rest() == ["twenty-eight"]
