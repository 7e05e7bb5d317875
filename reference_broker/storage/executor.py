"""In which thread blocking I/O runs: the I/O policy, and the executors that it makes.

A store hands operations to an :class:`Executor`, which handles them in their order, all that wait in one go, and never
two lists at once. The store does not know the thread: the :class:`IoPolicy` that made the executor does. A node has one
policy, which it gives to every store, so that all stores may share threads. A policy is whatever makes executors:

* :class:`DedicatedThread` (``dedicated``): a thread for each executor. A slow store never holds up another store.
* :class:`OwnersThread`: no thread at all. The owner of the store calls :meth:`Executor.run_pending`, which is how tests
  and the simulator run a node in one thread, step by step.

The port leaves room for a pool of N threads that serves all executors in the order in which they asked, as the dirty
I/O schedulers of Erlang do: such a policy changes no store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

Op = TypeVar("Op")
OpIn = TypeVar("OpIn", contravariant=True)


class Executor(Protocol[OpIn]):
    """Handles lists of operations in the order of :meth:`submit`, one list at a time."""

    name: str

    def start(self) -> None:
        """From now on operations are handled without the owner's help, if the policy has threads."""

    def submit(self, operation: OpIn, /) -> None:
        """Hand over one operation. Never blocks."""

    def go(self, *, here: bool) -> None:
        """Have the waiting operations handled. With ``here`` the calling thread, which must be the only thread that
        hands over, handles them itself, unless the executor is at work already."""

    @property
    def waits(self) -> bool:
        """Whether there is something to do."""

    def run_pending(self) -> bool:
        """Handle the waiting operations in the calling thread. False if there were none."""

    def close(self) -> None:
        """Finish the waiting operations and stop."""


class IoPolicy(Protocol):
    """Makes an executor for a store."""

    def __call__(
        self, name: str, handle: Callable[[list[Any]], None], gather: Callable[[], None] | None = None, /
    ) -> Executor[Any]:
        """An executor that runs ``handle``, which must not raise.

        With ``gather``, which is called when something begins to wait, the operations wait until the owner calls
        :meth:`Executor.go`. So the owner can handle them itself where that takes less time than to wake a thread and to
        be woken by it.
        """


class DedicatedThread(Generic[Op]):
    """An executor with a thread of its own.

    The wake-up is a lock used as a semaphore: one futex call, and none at all while the thread is busy.
    """

    def __init__(self, name: str, handle: Callable[[list[Op]], None], gather: Callable[[], None] | None = None) -> None:
        self.name = name
        self._handle = handle
        self._gather = gather
        self._pending: list[Op] = []
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def submit(self, operation: Op, /) -> None:
        """Hand over one operation. Never blocks."""
        with self._lock:
            first = not self._pending
            self._pending.append(operation)
            if self._gather is None:
                self._wake_up()
        if first and self._gather is not None:
            self._gather()

    def go(self, *, here: bool) -> None:
        """Have the waiting operations handled: in the calling thread, if ``here`` and the own thread is idle or there
        is none; else in the own thread, or by :meth:`run_pending`."""
        with self._lock:
            if not self._pending or not (self._asleep or self._thread is None):
                return  # a thread at work looks for more before it sleeps
            if not here:
                self._wake_up()
                return
            operations, self._pending = self._pending, []
        self._handle(operations)

    def _wake_up(self) -> None:
        if self._asleep:
            self._asleep = False
            self._wake.release()

    @property
    def waits(self) -> bool:
        """Whether there is something to do."""
        return bool(self._pending)

    def run_pending(self) -> bool:
        """Handle the waiting operations in the calling thread. False if there were none."""
        with self._lock:
            operations, self._pending = self._pending, []
        if operations:
            self._handle(operations)
        return bool(operations)

    def close(self) -> None:
        """Finish the waiting operations and stop."""
        with self._lock:
            self._closing = True
            self._wake_up()
        if self._thread is None:
            self.run_pending()
        else:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                operations, self._pending = self._pending, []
                if not operations:
                    if self._closing:
                        return
                    self._asleep = True
            if operations:
                self._handle(operations)
            else:
                self._wake.acquire()


class OwnersThread(DedicatedThread[Op]):
    """An executor without a thread: the owner calls :meth:`run_pending`, or :meth:`go`."""

    def start(self) -> None:
        """There is no thread to start."""
