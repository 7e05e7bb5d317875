"""In which threads the stores of a node work: what holds under every policy, and what only a shared line does."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from reference_broker.log.config import LogConfig
from reference_broker.log.notices import Notice, SnapshotTaken, Written
from reference_broker.log.system import LogSystem
from reference_broker.storage.executor import Executor, IoPolicy, OwnersThread, Pool, policy_named
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, Term

GROUP = GroupId(7)
LIMIT_S = 20
POLICIES = ("dedicated", "pool:1", "pool:3")


class Notices:
    """What the log has told, from whatever thread."""

    def __init__(self) -> None:
        self.all: list[Notice] = []
        self._changed = threading.Condition()

    def notify(self, notices: list[Notice]) -> None:
        with self._changed:
            self.all.extend(notices)
            self._changed.notify_all()

    def await_any(self, holds: Callable[[Notice], bool]) -> Notice:
        """The first notice of this kind, once it has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(holds, self.all)), LIMIT_S)
            return next(filter(holds, self.all))


class Store:
    """A store whose first operation ``hold`` keeps its thread until :attr:`release` is set."""

    def __init__(
        self, policy: IoPolicy, name: str, served: list[str], gather: Callable[[], None] | None = None
    ) -> None:
        self.name, self.served = name, served
        self.threads: list[int] = []
        self.held, self.release = threading.Event(), threading.Event()
        self.executor: Executor[str] = policy(name, self.handle, gather)
        self.executor.start()

    def handle(self, operations: list[str]) -> None:
        self.threads.append(threading.get_ident())
        self.served.append(f"{self.name}: {' '.join(operations)}")
        if "hold" in operations:
            self.held.set()
            assert self.release.wait(LIMIT_S)

    def hold_a_thread(self) -> None:
        self.executor.submit("hold")
        self.executor.go(here=False)
        assert self.held.wait(LIMIT_S)


def entry(index: int) -> Entry:
    payload = b"entry %d" % index
    return Entry(LogIndex(index), Term(1), EntryKind.COMMAND, zlib.crc32(payload), payload)


def opened(policy: IoPolicy, notices: Notices, files: MemoryFiles) -> LogSystem:
    config = LogConfig(wal_dir="/wal", data_dir="/data", wal_file_bytes=16384)
    return LogSystem.open(config, files, notices.notify, policy=policy, new_store=lambda: b"the store's mark")[0]


def test_a_slow_store_holds_up_the_log_of_a_pool_of_one() -> None:
    """That is what a shared line does to a WAL whose own drive is idle, so a measurement must be able to show it."""
    policy, notices = Pool(1), Notices()
    log = opened(policy, notices, MemoryFiles())
    log.create_group(GROUP, b"")
    log.append(GROUP, [entry(1)])
    notices.await_any(lambda notice: isinstance(notice, Written) and notice.index == 1)
    store = Store(policy, "classic", [])
    store.hold_a_thread()
    log.append(GROUP, [entry(2)])
    log.append(GROUP, [entry(3)])
    assert not [notice for notice in notices.all if isinstance(notice, Written) and notice.index > 1]
    store.release.set()
    written = notices.await_any(lambda notice: isinstance(notice, Written) and notice.index > 1)
    assert isinstance(written, Written) and written.index == 3, "both entries waited, so one batch holds them"
    log.close()
    store.executor.close()


def test_a_slow_store_does_not_hold_up_a_log_with_a_thread_of_its_own() -> None:
    policy, notices = policy_named("dedicated"), Notices()
    log = opened(policy, notices, MemoryFiles())
    store = Store(policy, "classic", [])
    store.hold_a_thread()
    log.create_group(GROUP, b"")
    log.append(GROUP, [entry(1)])
    notices.await_any(lambda notice: isinstance(notice, Written) and notice.index == 1)
    store.release.set()
    log.close()
    store.executor.close()


@pytest.mark.parametrize("name", POLICIES)
def test_what_the_log_promised_survives_under_every_policy(name: str) -> None:
    """The order of writing and of notices is the log's own, whoever lends it a thread."""
    notices, files = Notices(), MemoryFiles()
    log = opened(policy_named(name), notices, files)
    log.create_group(GROUP, b"meta")
    log.append(GROUP, [entry(index) for index in range(1, 6)])
    notices.await_any(lambda notice: isinstance(notice, Written) and notice.index == 5)
    log.take_snapshot(GROUP, LogIndex(3), Term(1), b"state", ())
    notices.await_any(lambda notice: isinstance(notice, SnapshotTaken) and notice.index == 3)
    log.close()
    files.crash()
    _log, recovered = LogSystem.open(
        LogConfig(wal_dir="/wal", data_dir="/data", wal_file_bytes=16384), files, lambda _: None, policy=OwnersThread
    )
    group = recovered[GROUP]
    assert (group.meta, group.state, group.first_index, group.last_index) == (b"meta", b"state", 4, 5)


def test_the_line_is_served_in_the_order_of_asking() -> None:
    policy = Pool(1)
    served: list[str] = []
    stores = {name: Store(policy, name, served) for name in ("first", "second", "third")}
    stores["first"].hold_a_thread()
    for name in ("second", "third", "first", "second"):
        stores[name].executor.submit(f"from-{name}")
    stores["first"].release.set()
    for store in stores.values():
        store.executor.close()
    assert served == ["first: hold", "second: from-second from-second", "third: from-third", "first: from-first"]


def test_the_owner_works_itself_only_while_a_thread_of_the_pool_is_free() -> None:
    """Else the owner's store would get past the line, and the result would not be that of the policy."""
    policy = Pool(1)
    served: list[str] = []
    mine, other = Store(policy, "mine", served, lambda: None), Store(policy, "other", served)
    mine.executor.submit("free")
    mine.executor.go(here=True)
    assert served == ["mine: free"] and mine.threads == [threading.get_ident()]
    other.hold_a_thread()
    mine.executor.submit("busy")
    mine.executor.go(here=True)
    assert served == ["mine: free", "other: hold"]
    other.release.set()
    mine.executor.close()
    other.executor.close()
    assert served[2:] == ["mine: busy"] and mine.threads[1] != threading.get_ident()


def test_the_pool_waits_while_the_owner_works_in_the_place_of_its_only_thread() -> None:
    policy = Pool(1)
    served: list[str] = []
    other = Store(policy, "other", served)
    seen: list[list[str]] = []

    def handle(_operations: list[str]) -> None:
        other.executor.submit("meanwhile")
        seen.append(list(served))

    mine = policy("mine", handle, lambda: None)
    mine.start()
    mine.submit("mine")
    mine.go(here=True)
    mine.close()
    other.executor.close()
    assert seen == [[]] and served == ["other: meanwhile"]


def test_what_comes_while_the_owner_works_is_asked_for_again() -> None:
    policy = Pool(1)
    asked: list[int] = []
    done: list[str] = []

    def handle(operations: list[str]) -> None:
        if "a" in operations:
            executor.submit("b")
        done.extend(operations)

    executor = policy("executor", handle, lambda: asked.append(len(done)))
    executor.start()
    executor.submit("a")
    executor.go(here=True)
    assert done == ["a"] and asked == [0, 0]
    executor.go(here=True)
    assert done == ["a", "b"]
    executor.close()


@pytest.mark.parametrize("seed", range(12))
def test_every_operation_is_done_once_in_its_order_and_never_on_more_threads_than_n(seed: int) -> None:
    rng = random.Random(seed)
    threads = rng.randint(1, 4)
    policy, lock = Pool(threads), threading.Lock()
    working: list[str] = []
    most: list[int] = []
    done: dict[str, list[int]] = {name: [] for name in "abcdef"}

    def executor_of(name: str) -> Executor[int]:
        def handle(operations: list[int]) -> None:
            with lock:
                assert name not in working, f"seed {seed}: two lists of one executor at once"
                working.append(name)
                most.append(len(working))
            done[name].extend(operations)
            with lock:
                working.remove(name)

        return policy(name, handle, (lambda: None) if name in "abc" else None)

    executors = {name: executor_of(name) for name in done}
    for executor in executors.values():
        executor.start()
    for number in range(2000):
        name = rng.choice("abcdef")
        executors[name].submit(number)
        if name in "abc" and rng.random() < 0.7:
            executors[name].go(here=rng.random() < 0.5)
    for executor in executors.values():
        executor.close()
        assert not executor.waits
    assert sorted(number for numbers in done.values() for number in numbers) == list(range(2000)), f"seed {seed}"
    assert all(numbers == sorted(numbers) for numbers in done.values()), f"seed {seed}"
    assert max(most) <= threads, f"seed {seed}"


def test_no_thread_of_a_pool_outlives_its_last_executor() -> None:
    before = set(threading.enumerate())
    policy: Any = Pool(3)
    executors = [policy(name, lambda _operations: None) for name in ("a", "b")]
    for executor in executors:
        executor.start()
    assert len(set(threading.enumerate()) - before) == 3
    executors[0].close()
    executors[0].close()
    assert len(set(threading.enumerate()) - before) == 3, "closed twice, it leaves the pool once"
    executors[1].close()
    assert set(threading.enumerate()) <= before


def test_work_of_the_owner_before_the_start_waits_for_nobody() -> None:
    done: list[str] = []
    executor = Pool(1)("executor", done.extend)
    executor.submit("a")
    assert executor.run_pending() and not executor.run_pending()
    executor.submit("b")
    executor.close()
    assert done == ["a", "b"]


@pytest.mark.parametrize("text", ["", "pool", "pool:0", "pool:-1", "pool:1025", "pool:٣", "pool:2.5", "shared"])
def test_a_policy_that_is_none_is_named_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be dedicated, or pool:N with N from 1 to 1024"):
        policy_named(text)
