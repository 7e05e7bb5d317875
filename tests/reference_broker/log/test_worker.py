"""Whose thread does the work: the worker's own, or the owner's when it says so and the worker is idle."""

from __future__ import annotations

from threading import Event, get_ident

from reference_broker.log.worker import Worker

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
    worker = Worker("worker", record.handle, lambda: asked.append(1))
    worker.start()
    worker.submit("a")
    worker.submit("b")
    assert asked == [1], "asked once for what waits"
    worker.close()
    assert record.operations == ["a", "b"]


def test_the_owner_does_it_while_the_worker_is_idle() -> None:
    record = Record()
    worker = Worker("worker", record.handle, lambda: None)
    worker.start()
    worker.submit("first")
    while not record.operations:  # the thread may still be on its way to sleep
        worker.go(here=True)
    record.threads.clear()
    worker.submit("a")
    worker.submit("b")
    worker.go(here=True)
    assert record.operations == ["first", "a", "b"]
    assert record.threads == [get_ident()] * 2
    worker.close()


def test_what_is_handed_over_while_the_owner_does_it_comes_next() -> None:
    """What is on disk is told during the write, and whoever hears it asks for more: for a snapshot, or a fresh log."""
    done: list[str] = []
    asked: list[int] = []

    def handle(operations: list[str]) -> None:
        if "a" in operations:
            worker.submit("b")
        done.extend(operations)

    worker: Worker[str] = Worker("worker", handle, lambda: asked.append(len(done)))
    worker.submit("a")
    worker.go(here=True)
    assert done == ["a"] and asked == [0, 0], "asked again for what came meanwhile"
    worker.go(here=True)
    assert done == ["a", "b"]


def test_the_worker_keeps_the_order_while_it_is_busy() -> None:
    record = Record()
    worker = Worker("worker", record.handle, lambda: None)
    worker.start()
    worker.submit("block")
    while not record.blocked.is_set():
        worker.go(here=False)
    worker.submit("after")
    worker.go(here=True)
    assert record.operations == ["block"], "done by nobody while something handed over earlier is under way"
    record.release.set()
    worker.close()
    assert record.operations == ["block", "after"]
    assert get_ident() not in record.threads
