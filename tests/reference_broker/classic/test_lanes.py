"""A writer for each queue: many threads over one store, and a writer ends with its queue."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reference_broker.classic.parts import QueueName
from reference_broker.classic.queue_files import QueueFiles
from reference_broker.classic.store import ClassicStore, StoreConfig
from reference_broker.classic.writer import Deleted, Notice, Stored
from reference_broker.message_run import MessageRun
from reference_broker.storage.executor import OwnersPool, OwnersThread, Pool
from reference_broker.storage.files import RealFiles
from reference_broker.types import GroupId
from tests.reference_broker.classic.store_world import ROUTE, StoreWorld

QUEUES, RUNS, LARGE = 24, 12, 5000


class Heard:
    """Notes what the writers tell, from whatever thread."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.stored: dict[int, int] = {}
        self.deleted: set[int] = set()

    def notify(self, notices: list[Notice]) -> None:
        with self.condition:
            for notice in notices:
                if isinstance(notice, Stored):
                    self.stored[notice.group] = notice.seq_end
                elif isinstance(notice, Deleted):
                    self.deleted.add(notice.group)
            self.condition.notify_all()


def body(group: int, number: int) -> bytes:
    """Every third message is large."""
    return (b"%d/%d" % (group, number)).ljust(LARGE if number % 3 == 0 else 100, b".")


def test_writers_of_many_queues_work_side_by_side(tmp_path: Path) -> None:
    """A counter, a file number or a reference that two threads take at once shows as a message that is lost, or of
    another queue, or as files that stay."""
    config = StoreConfig(directory=str(tmp_path), shared_file_bytes=4 * LARGE)
    heard = Heard()
    store = ClassicStore.open(config, RealFiles(), heard.notify, Pool(8))
    queues = [store.queue(QueueName(GroupId(group), is_durable=True, is_lazy=group % 2 == 0))
              for group in range(1, QUEUES + 1)]  # fmt: skip
    taken = 0
    for number in range(RUNS):
        for queue in queues:
            [part] = queue.add(MessageRun.of(ROUTE, [body(queue.name.group, number)]), True)
            if number % 4 == 3:
                queue.take(part.seq, 0, 1)
                taken += 1
    wanted = {queue.name.group: queue.next_seq for queue in queues}
    with heard.condition:
        assert heard.condition.wait_for(lambda: heard.stored == wanted, 60)
    gone = queues.pop()
    gone.delete()
    with heard.condition:
        assert heard.condition.wait_for(lambda: gone.name.group in heard.deleted, 60)
    store.close()
    counters = store.counters
    assert counters.classic_messages_written + counters.classic_messages_skipped == QUEUES * RUNS
    assert counters.classic_segments == QUEUES - 1

    again = ClassicStore.open(config, RealFiles(), heard.notify, Pool(2))
    figures = [lane.counters for lane in again._lanes._lanes.values()]  # type: ignore[attr-defined]
    assert len({id(each) for each in figures}) == QUEUES - 1, "each counter has one writing thread"
    assert all(found.files._counters is lane for found, lane in zip(again._found.values(), figures, strict=True))
    for queue in queues:
        group = queue.name.group
        found = again.queue(QueueName(GroupId(group), is_durable=True))
        contents = [found.run(each.part.seq).content(at) for each in found.found for at in each.positions.tolist()]
        assert contents == [body(group, number) for number in range(RUNS) if number % 4 != 3]
    again.keep_only([queue.name.group for queue in queues])
    for queue in queues:
        again.queue(queue.name).delete()
    again.close()
    assert not list((tmp_path / "shared").glob("*.rdq")), "nothing is left to refer to"
    assert not list((tmp_path / "durable").iterdir())


def test_a_writer_ends_with_its_queue_and_its_figures_stay() -> None:
    """Queues that come and go must not leave their writers behind."""
    world = StoreWorld(policy=OwnersPool)
    for group in range(1, 11):
        world.declare(group)
        world.publish(group, [100, 5000])
        world.step()
        world.delete(group)
        world.step()
    world.declare(11)
    world.publish(11, [100])
    world.step()
    assert len(list(world.store.executors())) == 1
    assert world.store.counters.classic_messages_written == 21
    assert world.store.counters.classic_segments == 1
    assert world.shared_files() == []


def test_a_queue_that_never_wrote_gets_no_writer() -> None:
    """Every reply queue of a client would get one when it is deleted."""
    world = StoreWorld(policy=OwnersPool)
    world.declare(1, durable=False)
    world.publish(1, [100] * 3)
    world.delete(1)
    assert list(world.store.executors()) == []


def test_a_failure_of_one_writer_silences_a_writer_that_is_at_work() -> None:
    """After a sync that failed, a later sync may succeed and yet have lost what the first one should have kept."""
    world = StoreWorld(policy=OwnersPool)
    for group in (1, 2):
        world.declare(group)
        world.publish(group, [100])
    health = world.store._health
    sync = QueueFiles.sync_messages

    def fails_elsewhere(files: QueueFiles) -> None:
        sync(files)
        health.has_failed = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueueFiles, "sync_messages", fails_elsewhere)
        world.step()
    assert all(not model.stored for model in world.models.values())


def test_each_queue_syncs_for_itself() -> None:
    """What the pool is there to show: five queues with one message each are five syncs, and not one batch."""
    batches = {}
    for policy in (OwnersThread, OwnersPool):
        world = StoreWorld(policy=policy)
        for group in range(1, 6):
            world.declare(group)
            world.publish(group, [100])
        world.step()
        batches[policy] = world.store.counters.classic_batches
    assert batches == {OwnersThread: 1, OwnersPool: 5}
