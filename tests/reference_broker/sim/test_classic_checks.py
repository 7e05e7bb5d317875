"""What the simulator says of classic queues that break a promise: each check is shown a store that does."""

from __future__ import annotations

from random import Random

import pytest

from reference_broker.classic.parts import QueueName
from reference_broker.classic.store import ClassicStore, StoredQueue
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import Enqueue
from reference_broker.machines.config import FifoConfig, Overflow
from reference_broker.machines.fifo import FifoMachine
from reference_broker.machines.messages.origins import NEVER
from reference_broker.machines.messages.ready import FoundStretch
from reference_broker.message_run import MessageRun
from reference_broker.sim.checks.classic_checks import ClassicChecks
from reference_broker.sim.checks.fifo_checks import look_through
from reference_broker.sim.checks.invariants import ViolationError
from reference_broker.sim.checks.ledger import MessageLedger, MessageSort
from reference_broker.sim.classic_queues import plan_classic_queues
from reference_broker.sim.disk import CLASSIC, SimFiles
from reference_broker.sim.loop import Scheduler
from reference_broker.sim.owned import store_config
from reference_broker.sim.queues import QueuePlan
from reference_broker.sim.trace import Trace
from reference_broker.storage.executor import OwnersThread
from reference_broker.types import ChannelId, GroupId, NodeId

NODE, GROUP = NodeId(1), GroupId(7)
RECORD = QueueRecord(name="local", group=GROUP, members=(NODE,), leader=NODE, kind="classic")
PLAN = QueuePlan("local", (), is_kept=True, has_limits=False, is_classic=True)


class Bench:
    """One node's drive, store and checks, and a publisher."""

    def __init__(self) -> None:
        self.chance = Random(1)
        self.files = SimFiles(Scheduler(self.chance, Trace(0)), "n1")
        self.files.make_dir("data")
        self.ledger = MessageLedger()
        self.checks = ClassicChecks(self.ledger)
        self.checks.begins(RECORD)
        self.config = store_config(self.chance)
        self.store = self.open()

    def open(self) -> ClassicStore:
        return ClassicStore.open(self.config, self.files, lambda _notices: None, OwnersThread)

    @property
    def queue(self) -> StoredQueue:
        return self.store.queue(QueueName(GROUP, is_durable=True))

    def publish(self, *, is_persistent: bool = True, stored_as: bool | None = None, padding: int = 0) -> int:
        """A message that is in the queue from now on, and in the writer's hands. Returns its number."""
        number, body = self.ledger.body(1, padding, PLAN, MessageSort(is_persistent, 0))
        run = MessageRun.of(b"", [body])
        self.checks.applies(NODE, RECORD.name, [Enqueue(ChannelId(NODE, 1, 1, 1), number, run)])
        self.queue.add(run, is_persistent if stored_as is None else stored_as)
        return number

    def confirm(self, number: int) -> None:
        self.ledger.stored(number)
        self.ledger.confirms(PLAN, number)

    def stop(self, *, power: bool) -> None:
        self.ledger.process_ended(NODE)
        if power:
            self.files.crash()
        self.store = self.open()

    def look(self) -> None:
        self.checks.stored(NODE, self.files, {GROUP})

    def start(self) -> None:
        self.checks.recovered(NODE, self.store)

    def end(self, *living: QueueRecord) -> None:
        self.checks.ended(NODE, self.files, self.store, [(record, 0) for record in living])


@pytest.mark.parametrize("padding", [0, 5000], ids=["small", "large"])
def test_a_store_that_keeps_its_word_is_believed(padding: int) -> None:
    bench = Bench()
    number = bench.publish(padding=padding)
    bench.store.run_pending()
    bench.look()
    bench.confirm(number)
    bench.stop(power=True)
    bench.start()
    bench.ledger.settles(number)
    bench.ledger.check_nothing_lost()


@pytest.mark.parametrize("suffix", [".qs", ".qi", ".rdq"], ids=["messages", "records", "large messages"])
def test_what_is_told_before_its_sync_is_seen(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """X9. One kind of file is written, and never synced."""
    bench = Bench()
    changing = bench.files.changing

    class LostSyncError(Exception):
        """The sync that does not happen."""

    def skipped(name: str, path: str, *rest: object, **more: object) -> None:
        if name == "datasync" and path.endswith(suffix):
            raise LostSyncError
        changing(name, path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.files, "changing", skipped)
    bench.publish(padding=0 if suffix == ".qs" else 5000)
    with pytest.raises(LostSyncError):
        bench.store.run_pending()
    with pytest.raises(ViolationError, match="X9"):
        bench.look()


def test_a_file_without_a_name_on_disk_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """X9."""
    bench = Bench()
    monkeypatch.setattr(bench.files, "sync_dir", lambda _path: None)
    bench.publish()
    bench.store.run_pending()
    with pytest.raises(ViolationError, match=r"X9.*\n.*the name of the file"):
        bench.look()


def test_a_confirmed_message_that_a_start_does_not_find_is_missed() -> None:
    """X10."""
    bench = Bench()
    bench.confirm(bench.publish())
    bench.stop(power=True)
    with pytest.raises(ViolationError, match=r"X10.*\n.*without 1 confirmed"):
        bench.start()


def test_a_transient_message_that_comes_back_is_seen() -> None:
    """X10."""
    bench = Bench()
    bench.publish(is_persistent=False, stored_as=True)
    bench.store.run_pending()
    bench.stop(power=False)
    with pytest.raises(ViolationError, match=r"X10.*\n.*transient message 1"):
        bench.start()


def test_a_drive_that_is_lost_takes_its_messages_with_it() -> None:
    bench = Bench()
    early, late = bench.publish(), bench.publish()
    bench.confirm(early)
    bench.ledger.drive_lost(NODE)
    bench.confirm(late)
    bench.ledger.check_nothing_lost()


@pytest.mark.parametrize("ends", [True, False])
def test_a_transient_message_lives_as_long_as_the_process_of_its_owner(ends: bool) -> None:
    """I22."""
    bench = Bench()
    bench.confirm(bench.publish(is_persistent=False))
    if ends:
        bench.ledger.process_ended(NODE)
        bench.ledger.check_nothing_lost()
    else:
        with pytest.raises(ViolationError, match="I22"):
            bench.ledger.check_nothing_lost()


@pytest.mark.parametrize(("seq_end", "is_safe"), [(5, False), (6, True)])
def test_a_confirm_before_the_owner_heard_of_the_store_is_seen(seq_end: int, is_safe: bool) -> None:
    """I22."""
    bench = Bench()
    number, body = bench.ledger.body(1, 0, PLAN)
    commands = [Enqueue(ChannelId(NODE, 1, 1, 1), number, MessageRun.of(b"", [body]))]
    bench.checks.numbered(GROUP, 5, commands)
    bench.checks.applies(NODE, RECORD.name, commands)
    bench.checks.heard(GROUP, seq_end)
    if is_safe:
        bench.ledger.confirms(PLAN, number)
    else:
        with pytest.raises(ViolationError, match=r"I22.*\n.*not stored"):
            bench.ledger.confirms(PLAN, number)


def test_a_classic_queue_may_be_above_a_limit_that_was_lowered() -> None:
    """I28. It refuses message by message, and keeps what it has."""
    config = FifoConfig(name="local", max_length=2, overflow=Overflow.REJECT_PUBLISH)
    machine = FifoMachine.beside_a_store(config)
    found = FoundStretch(entry=1, offset=0, start=0, count=3, expires=NEVER, size=9, was_delivered=True)
    machine.load([found], 4, 0)
    look_through(NODE, machine)


def test_a_message_that_is_enqueued_twice_is_seen() -> None:
    """I23."""
    bench = Bench()
    number = bench.publish()
    twice = Enqueue(ChannelId(NODE, 1, 1, 1), number, MessageRun.of(b"", [b"<1 1>"]))
    with pytest.raises(ViolationError, match="I23"):
        bench.checks.applies(NODE, RECORD.name, [twice])


def test_files_of_a_queue_that_is_gone_are_seen() -> None:
    """X11."""
    bench = Bench()
    bench.publish()
    bench.store.run_pending()
    bench.queue.take(bench.queue.next_seq - 1, 0, 1)
    bench.store.run_pending()
    bench.end(RECORD)
    with pytest.raises(ViolationError, match=r"X11.*\n.*queues that are gone"):
        bench.end()


def test_a_wrong_count_of_files_is_seen() -> None:
    """X11."""
    bench = Bench()
    bench.store.counters.classic_segments += 1
    with pytest.raises(ViolationError, match=r"X11.*\n.*and counts"):
        bench.end()


def test_a_fault_hits_the_store_of_classic_queues_only() -> None:
    bench = Bench()
    bench.files.fail_in_store(2, power=False)
    for _ in range(5):
        bench.files.make_dir("wal")
        bench.files.sync_dir("wal")
    bench.files.sync_dir(CLASSIC)
    with pytest.raises(OSError, match=CLASSIC):
        bench.files.sync_dir(CLASSIC)
    assert bench.files.injected


def test_worlds_have_classic_queues_of_all_sorts() -> None:
    plans = [plan for seed in range(200) for plan in plan_classic_queues(Random(seed), [])]
    assert {plan.is_durable for plan in plans} == {plan.is_auto_delete for plan in plans} == {True, False}
    names = {name for plan in plans for name, _value in plan.arguments}
    assert names >= {"x-queue-mode", "x-max-priority", "x-max-length", "x-message-ttl", "x-single-active-consumer",
                     "x-dead-letter-exchange", "x-queue-leader-locator", "x-expires", "x-overflow"}  # fmt: skip
    assert all(plan.is_classic for plan in plans)
