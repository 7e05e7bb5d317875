"""In which thread blocking I/O runs: the I/O policy, and the executors that it makes.

A store hands operations to an :class:`Executor`, which handles them in order, all waiting operations in one list, and
one list at a time. The store does not know the thread: the :class:`IoPolicy` that made the executor does. A node has
one policy, which it gives to every store, so that all stores may share threads. A policy is whatever makes executors:

* :class:`DedicatedThread` (``dedicated``): a thread for each executor. A slow store never holds up another store.
* :class:`Pool` (``pool:N``): N threads for all executors of the node, in the order in which they asked, as the dirty
  I/O schedulers of Erlang work. Slow stores that hold every thread keep all others waiting.
* :class:`OwnersThread`: no thread at all. The owner of the store calls :meth:`Executor.run_pending`, which is how tests
  and the simulator run a node in one thread, step by step.

:func:`policy_named` makes the policy that a configuration names.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

Op = TypeVar("Op")
OpIn = TypeVar("OpIn", contravariant=True)

POOL_THREADS_MAX: Final = 1024
"""Number of threads of the largest pool."""


class Health(Protocol):
    """Whether a store has failed: after any failure the state of its drive is unknown."""

    @property
    def failed(self) -> bool:
        """Whether it has."""

    def fail(self, where: str, error: Exception) -> None:
        """Stop for good and say so, once."""


def guarded(health: Health, where: str, handle: Callable[[list[Op]], None]) -> Callable[[list[Op]], None]:
    """``handle``, made to fail its store instead of raising, and to do nothing once the store has failed."""

    def run(operations: list[Op]) -> None:
        if health.failed:
            return
        try:
            handle(operations)
        except Exception as error:
            health.fail(where, error)

    return run


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

    @property
    def shares_threads(self) -> bool:
        """Whether all executors share some threads, so that an executor more is no thread more."""

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

    shares_threads: ClassVar[bool] = False

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


class OwnersPool(OwnersThread[Op]):
    """As :class:`OwnersThread`, for stores that make as many executors as over a :class:`Pool`."""

    shares_threads: ClassVar[bool] = True


class Pool:
    """N threads that serve all executors of a node: the executor that asked first gets the next free thread.

    An executor asks once for all its waiting operations, so it has at most one place in the line, and one list of
    operations under way. Operations handed over meanwhile go to the end of the line. The owner's own thread counts as
    one of the N while it handles operations (:meth:`Executor.go` with ``here``), and does so only while one of the N is
    free: no executor gets past the line.

    A thread that has nothing to do sleeps on a lock of its own, so a wake-up is one futex call.
    """

    shares_threads: ClassVar[bool] = True

    def __init__(self, threads: int) -> None:
        self.lock = threading.Lock()
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._asleep: list[threading.Lock] = []
        self._line: deque[PooledExecutor[Any]] = deque()
        self._working = 0
        self._open = 0

    def __call__(
        self, name: str, handle: Callable[[list[Any]], None], gather: Callable[[], None] | None = None, /
    ) -> Executor[Any]:
        """An executor that the threads of this pool serve (:class:`IoPolicy`)."""
        return PooledExecutor(self, name, handle, gather)

    def join(self) -> None:
        """An executor starts: the first has the threads started."""
        with self.lock:
            self._open += 1
            if self._open > 1:
                return
            self._threads = [
                threading.Thread(target=self._run, name=f"io-{number}", daemon=True)
                for number in range(1, self._threads_max + 1)
            ]
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """An executor is closed: the last has the threads end, and waits for them."""
        with self.lock:
            self._open -= 1
            if self._open:
                return
            while self._asleep:
                self._asleep.pop().release()
        for thread in self._threads:
            thread.join()

    def line_up(self, executor: PooledExecutor[Any]) -> None:
        """The end of the line, and a thread if one is free. The caller holds the lock."""
        self._line.append(executor)
        self._wake_up()

    def take_slot(self) -> bool:
        """Whether the caller may work as one of the threads at once. The caller holds the lock."""
        if self._line or self._working >= self._threads_max:
            return False
        self._working += 1
        return True

    def free_slot(self) -> None:
        """The caller has worked as one of the threads. The caller holds the lock."""
        self._working -= 1
        if self._line:
            self._wake_up()

    def _wake_up(self) -> None:
        if self._asleep and self._working < self._threads_max:
            self._asleep.pop().release()

    def _run(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        while True:
            with self.lock:
                executor = self._line.popleft() if self._line and self._working < self._threads_max else None
                if executor is None:
                    if not self._open:
                        return
                    self._asleep.append(wake)
                else:
                    self._working += 1
            if executor is None:
                wake.acquire()
            else:
                executor.serve()
                with self.lock:
                    self._working -= 1


class PooledExecutor(Generic[Op]):
    """An executor of a :class:`Pool`. All of its state is guarded by the pool's lock."""

    def __init__(
        self, pool: Pool, name: str, handle: Callable[[list[Op]], None], gather: Callable[[], None] | None
    ) -> None:
        self.name = name
        self._pool = pool
        self._handle = handle
        self._gather = gather
        self._pending: list[Op] = []
        self._started = False
        self._asked = False
        """In the line, or at work: it needs to ask no more."""
        self._finished: threading.Event | None = None

    def start(self) -> None:
        """From now on the pool's threads handle the operations."""
        self._pool.join()
        with self._pool.lock:
            self._started = True
            self._ask()

    def submit(self, operation: Op, /) -> None:
        """Hand over one operation. Never blocks."""
        with self._pool.lock:
            first = not self._pending
            self._pending.append(operation)
            if self._gather is None:
                self._ask()
        if first and self._gather is not None:
            self._gather()

    def go(self, *, here: bool) -> None:
        """Have the waiting operations handled: in the calling thread, if ``here`` and the pool has a thread free; else
        when the executor's turn comes."""
        with self._pool.lock:
            if not self._pending or self._asked:
                return
            if self._started and not (here and self._pool.take_slot()):
                self._ask()
                return
            if not (self._started or here):
                return
            operations = self._take()
        self._handle(operations)
        with self._pool.lock:
            if self._started:
                self._pool.free_slot()
            self._done(again=self._gather is None)

    @property
    def waits(self) -> bool:
        """Whether there is something to do."""
        return bool(self._pending)

    def run_pending(self) -> bool:
        """Handle the waiting operations in the calling thread. False if there were none, or some are under way."""
        with self._pool.lock:
            if self._asked or not self._pending:
                return False
            operations = self._take()
        self._handle(operations)
        with self._pool.lock:
            self._done(again=True)
        return True

    def close(self) -> None:
        """Finish the waiting operations and stop."""
        if not self._started:
            self.run_pending()
            return
        with self._pool.lock:
            self._ask()
            if self._asked:
                self._finished = threading.Event()
        if self._finished is not None:
            self._finished.wait()
        self._started = False
        self._pool.leave()

    def serve(self) -> None:
        """The executor's turn: called by a thread of the pool that took it out of the line."""
        with self._pool.lock:
            operations = self._take()
        self._handle(operations)
        with self._pool.lock:
            self._done(again=True)

    def _ask(self) -> None:
        if self._pending and self._started and not self._asked:
            self._asked = True
            self._pool.line_up(self)

    def _take(self) -> list[Op]:
        self._asked = True
        operations, self._pending = self._pending, []
        return operations

    def _done(self, *, again: bool) -> None:
        """A list is handled. With ``again`` the executor asks for a thread for later operations; else its owner was
        told."""
        self._asked = False
        if again:
            self._ask()
        if self._finished is not None and not self._asked:
            self._finished.set()


def policy_named(text: str) -> IoPolicy:
    """``dedicated``, or ``pool:N`` with N from 1 to :data:`POOL_THREADS_MAX`. Raises :class:`ValueError`."""
    if text == "dedicated":
        return DedicatedThread
    kind, _, number = text.partition(":")
    if kind == "pool" and number.isascii() and number.isdecimal() and 1 <= int(number) <= POOL_THREADS_MAX:
        return Pool(int(number))
    raise ValueError(f"must be dedicated, or pool:N with N from 1 to {POOL_THREADS_MAX}")
