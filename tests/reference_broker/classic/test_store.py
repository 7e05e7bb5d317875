"""What the classic store writes, keeps in memory, reads back and removes, on files in memory."""

from __future__ import annotations

import errno
import itertools

import numpy as np
import pytest

from reference_broker.classic.index_codec import SEGMENT_MESSAGES
from reference_broker.classic.part_codec import LARGE_BYTES, stretches
from reference_broker.message_run import MessageRun
from reference_broker.storage.executor import OwnersThread
from tests.reference_broker.classic.store_world import POLICIES, ROOT, ROUTE, StoreWorld


@pytest.fixture(autouse=True, params=POLICIES.values(), ids=POLICIES.keys())
def _policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with one writer for all queues, and with a writer for each queue."""
    monkeypatch.setattr(StoreWorld, "policy", request.param)


def all_files(world: StoreWorld) -> list[str]:
    """Every file of the store."""
    queues = [
        f"{kind}/{queue}/{name}"
        for kind in ("durable", "transient")
        for queue in world.files.names(f"{ROOT}/{kind}")
        for name in world.files.names(f"{ROOT}/{kind}/{queue}")
    ]
    return queues + [f"shared/{name}" for name in world.shared_files()]


def test_what_is_gone_before_its_turn_is_never_written() -> None:
    """A queue whose consumers keep up must not pay for a drive."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [100] * 50)
    world.take_first(1, 50)
    world.step()
    assert not all_files(world)
    assert world.store.counters.classic_messages_skipped == 50


@pytest.mark.parametrize("persistent", [True, False])
def test_a_lazy_queue_writes_what_is_gone_already(persistent: bool) -> None:
    """The load that a lazy queue puts on a drive must not depend on how fast its consumers are."""
    world = StoreWorld()
    world.declare(1, lazy=True)
    world.publish(1, [100] * 50, persistent=persistent)
    world.take_first(1, 50)
    world.step()
    assert world.store.counters.classic_messages_skipped == 0
    assert world.store.counters.classic_messages_written == 50
    assert world.store.counters.classic_queue_bytes > 50 * 100


def test_a_deleted_lazy_queue_writes_nothing_more() -> None:
    """Nobody waits for messages of a queue that is gone, and its files would be removed at once."""
    world = StoreWorld()
    world.declare(1, lazy=True)
    world.publish(1, [100] * 50)
    world.delete(1)
    world.step()
    assert world.store.counters.classic_queue_bytes == 0
    assert not all_files(world)


def test_what_a_deleted_lazy_queue_has_not_written_is_never_written() -> None:
    """Large messages go to files of all queues, so the removal of the queue's own files does not stop them; and a list
    of operations may be longer than a batch."""
    world = StoreWorld()
    world.declare(1, lazy=True)
    world.publish(1, [5000] * 4)
    world.step()
    written = world.store.counters.classic_shared_bytes
    world.publish(1, [5000] * 20)
    world.take_first(1, 24)
    for _ in range(9):
        world.publish(1, [3000] * 1000)
    world.delete(1)
    world.step()
    counters = world.store.counters
    assert (counters.classic_shared_bytes, counters.classic_queue_bytes) == (written, 0)
    assert counters.classic_handed_bytes == counters.classic_done_bytes > 0
    assert not all_files(world)


def test_transient_messages_stay_in_memory_unless_the_queue_is_lazy() -> None:
    """A transient message that is written for nothing makes the queue slow."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [100] * 3, persistent=False)
    assert not any(executor.waits for executor in world.store.executors())
    world.declare(2, lazy=True)
    world.publish(2, [100] * 3, persistent=False)
    world.step()
    assert len(all_files(world)) == 2
    assert world.store.counters.classic_index_syncs == 0, "nobody waits for a transient message"
    world.check_reads()
    assert world.store.counters.classic_reads == 1, "a run is read back once"


def test_a_segment_goes_when_its_messages_are_gone() -> None:
    """The drive of a queue that is used for long would fill up."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [8] * SEGMENT_MESSAGES)
    world.publish(1, [8])
    world.step()
    assert len(all_files(world)) == 4
    world.queues[1].take(SEGMENT_MESSAGES, 0, SEGMENT_MESSAGES - 1)
    world.step()
    assert len(all_files(world)) == 4, "one message is left in the first segment"
    world.queues[1].take(SEGMENT_MESSAGES, SEGMENT_MESSAGES - 1, 1)
    world.step()
    assert [name.rpartition("/")[2] for name in all_files(world)] == ["00000002.qi", "00000002.qs"]


def test_an_empty_segment_goes_once_no_message_can_come_into_it() -> None:
    """The last messages of a segment may be gone before the next segment begins."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [8] * 10)
    world.step()
    world.take_first(1, 10)
    world.step()
    assert len(all_files(world)) == 2
    world.publish(1, [8] * SEGMENT_MESSAGES, persistent=False)
    world.publish(1, [8])
    world.step()
    assert [name.rpartition("/")[2] for name in all_files(world)] == ["00000002.qi", "00000002.qs"]


def test_a_shared_file_goes_with_the_last_message_in_it() -> None:
    """A file that goes too early loses messages of other queues; one that stays fills the drive."""
    world = StoreWorld(policy=OwnersThread)  # whose queues share files
    world.declare(1)
    world.declare(2)
    world.publish(1, [9000, 9000])
    world.publish(2, [9000])
    world.publish(1, [9000])
    world.step()
    first, *_ = shared = world.shared_files()
    assert len(shared) == 2
    world.take_first(1, 2)
    world.step()
    world.check_reads()
    assert first in world.shared_files(), "queue 2 has a message in it"
    world.take_first(2, 1)
    world.step()
    assert world.shared_files() == shared[1:]


def test_a_shared_file_stays_while_its_writer_may_append() -> None:
    """A file that goes under its writer takes the next large message with it."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [5000])
    world.step()
    world.take_first(1, 1)
    world.step()
    world.publish(1, [6000])
    world.step()
    world.check_reads()
    assert world.models[1].stored >= set(world.models[1].ready)
    world.restart(lost_power=True)


def test_shared_files_stay_over_a_restart() -> None:
    """What recovery forgets to count goes with the next removal."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [9000, 9000, 9000, 9000])
    world.step()
    before = world.shared_files()
    world.open()
    assert world.shared_files() == before
    world.check_recovered(lost_power=False)
    world.take_first(1, 2)
    world.step()
    assert len(world.shared_files()) == len(before)
    world.take_first(1, 2)
    world.step()
    assert not world.shared_files()


def test_a_deleted_queue_leaves_nothing() -> None:
    """Files of deleted queues would fill the drive for ever."""
    world = StoreWorld()
    for group, durable in ((1, True), (2, False)):
        world.declare(group, durable=durable, lazy=True)
        world.publish(group, [10, 6000, 20] * 4)
    world.step()
    world.delete(1)
    world.delete(2)
    world.step()
    assert [name for name in all_files(world) if not name.startswith("shared")] == []
    assert world.models[1].is_deleted
    assert world.store.memory_bytes == 0
    world.restart(lost_power=False)
    assert not all_files(world)


def test_a_queue_that_a_start_finds_empty_leaves_nothing_when_it_is_deleted() -> None:
    """Its directory would stay for ever: no later start removes a directory of a queue that was durable."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [100] * 3)
    world.step()
    world.take_first(1, 3)
    world.step()
    world.restart(lost_power=False)
    assert world.files.names(f"{ROOT}/durable") != []
    world.delete(1)
    world.step()
    assert world.files.names(f"{ROOT}/durable") == []


def test_memory_has_a_limit() -> None:
    """A backlog that is on the drive anyway must not take all memory."""
    world = StoreWorld(memory_bytes=1000)
    world.declare(1)
    for _ in range(10):
        world.publish(1, [200] * 5)
    world.step()
    assert world.store.memory_bytes == 2000
    world.check_reads()
    world.take_first(1, 50)
    assert world.store.memory_bytes == 0


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_delivered_is_known_after_a_clean_stop(clean: bool) -> None:
    """A message that may have been delivered comes back as redelivered; after a kill, each message may have been."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [20] * 6)
    world.step()
    first = world.models[1].ready[0]
    world.queues[1].delivered(first + 4)
    if clean:
        world.store.close()
    world.restart(lost_power=False)
    assert world.queues[1].delivered_end == (first + 4 if clean else world.queues[1].next_seq)
    world.files.crash()
    world.restart(lost_power=True)
    assert world.queues[1].delivered_end == world.queues[1].next_seq, "a clean stop counts once"


@pytest.mark.parametrize("call", range(1, 5))
def test_a_store_that_cannot_write_how_it_stopped_stops_all_the_same(call: int) -> None:
    """A drive that is full when the node is told to stop costs the marks of what was delivered, and no message."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [20] * 6)
    world.step()
    world.queues[1].delivered(world.models[1].ready[4])
    world.files.fail_at(call, errno.ENOSPC)
    world.store.close()
    world.files.heal()
    world.restart(lost_power=False)
    assert world.queues[1].delivered_end in (world.models[1].ready[4], world.queues[1].next_seq)
    world.check_reads()


@pytest.mark.seeds(30)
def test_a_run_is_cut_where_its_messages_part_ways(seed: int) -> None:
    """Against the obvious: each message asked for itself."""
    chance = np.random.default_rng(seed)
    sizes = chance.choice([8, 100, LARGE_BYTES - 1, LARGE_BYTES, 9000], chance.integers(1, 30)).tolist()
    persistent = chance.random(len(sizes)) < 0.5
    seq = SEGMENT_MESSAGES * 3 - int(chance.integers(0, 20))
    run = MessageRun.of(ROUTE, [bytes(size) for size in sizes])
    kinds = [
        (size >= LARGE_BYTES, bool(flag), (seq + at) // SEGMENT_MESSAGES)
        for at, (size, flag) in enumerate(zip(sizes, persistent, strict=True))
    ]
    cut = [
        (each.is_large, each.is_persistent, (seq + at) // SEGMENT_MESSAGES)
        for each in stretches(run, seq, persistent)
        for at in range(each.start, each.start + each.count)
    ]
    assert cut == kinds
    assert len(list(stretches(run, seq, persistent))) == 1 + sum(a != b for a, b in itertools.pairwise(kinds))


def test_a_queue_becomes_lazy_and_is_so_no_more() -> None:
    """By a policy. What came before stays as it came, and what was written goes from the drive when it is taken."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [100] * 3, persistent=False)
    world.queues[1].be_lazy(True)
    world.publish(1, [100] * 3, persistent=False)
    world.step()
    assert len(all_files(world)) == 2
    world.queues[1].be_lazy(False)
    world.publish(1, [100] * 3, persistent=False)
    world.step()
    world.check_reads()
    assert world.store.counters.classic_reads == 1, "of three runs one was written"
    parts = world.queues[1].parts()
    assert [part.is_written for part in parts] == [False, True, False]
    world.take(1, list(world.models[1].ready))
    world.step()
    assert not world.queues[1].parts()
