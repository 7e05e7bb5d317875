"""Whose thread does the work: the executor's own, or the owner's when it says so and the executor is idle."""

from __future__ import annotations

from threading import Event, get_ident

from reference_broker.storage.executor import DedicatedThread

LIMIT_S = 10


class Record:
    """Operations in the order they were handled, and in which thread."""

    def __init__(self) -> None:
        self.operations: list[str] = []
        self.threads: list[int] = []
        self.worked = Event()
        self.blocked = Event()
        self.release = Event()

    def handle(self, operations: list[str]) -> None:
        self.operations += operations
        self.threads += [get_ident()] * len(operations)
        if "block" in operations:
            self.blocked.set()
            assert self.release.wait(LIMIT_S)
        self.worked.set()


def test_what_is_handed_over_waits_for_the_word() -> None:
    record, asked = Record(), []
    executor = DedicatedThread("executor", record.handle, lambda: asked.append(1))
    executor.start()
    executor.submit("a")
    executor.submit("b")
    assert asked == [1], "asked once for what waits"
    executor.close()
    assert record.operations == ["a", "b"]


def test_the_owner_does_it_while_the_executor_is_idle() -> None:
    record = Record()
    executor = DedicatedThread("executor", record.handle, lambda: None)
    executor.start()
    executor.submit("first")
    while not record.operations:  # the thread may still be on its way to sleep
        executor.go(here=True)
    record.threads.clear()
    executor.submit("a")
    executor.submit("b")
    executor.go(here=True)
    assert record.operations == ["first", "a", "b"]
    assert record.threads == [get_ident()] * 2
    executor.close()


def test_what_is_handed_over_while_the_owner_does_it_comes_next() -> None:
    """What is on disk is told during the write, and whoever hears it asks for more: for a snapshot, or a fresh log."""
    done: list[str] = []
    asked: list[int] = []

    def handle(operations: list[str]) -> None:
        if "a" in operations:
            executor.submit("b")
        done.extend(operations)

    executor: DedicatedThread[str] = DedicatedThread("executor", handle, lambda: asked.append(len(done)))
    executor.submit("a")
    executor.go(here=True)
    assert done == ["a"] and asked == [0, 0], "asked again for what came meanwhile"
    executor.go(here=True)
    assert done == ["a", "b"]


def test_the_executor_keeps_the_order_while_it_is_busy() -> None:
    record = Record()
    executor = DedicatedThread("executor", record.handle, lambda: None)
    executor.start()
    executor.submit("block")
    while not record.blocked.is_set():
        executor.go(here=False)
    executor.submit("after")
    executor.go(here=True)
    assert record.operations == ["block"], "done by nobody while something handed over earlier is under way"
    record.release.set()
    executor.close()
    assert record.operations == ["block", "after"]
    assert get_ident() not in record.threads
