"""A thread that takes everything that is waiting, in one go.

The wake-up is a lock used as a semaphore: one futex call, and none at all while the thread is busy.
Without ``start`` there is no thread: :meth:`Worker.run_pending` does the work in the caller's, which is how tests and
the simulator run the log in one thread, step by step.

With ``gather`` the thread is not woken by what is handed over but by :meth:`Worker.go`, and the owner may do the work
itself instead: where it takes less time than waking a thread and being woken by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Op = TypeVar("Op")


class Worker(Generic[Op]):
    """Runs ``handle`` with lists of operations, in the order of :meth:`submit`. ``handle`` must not raise."""

    def __init__(self, name: str, handle: Callable[[list[Op]], None], gather: Callable[[], None] | None = None) -> None:
        """``gather`` is called when something waits for :meth:`go`."""
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

    def submit(self, operation: Op) -> None:
        """Hand over one operation. Never blocks."""
        with self._lock:
            first = not self._pending
            self._pending.append(operation)
            if self._gather is None:
                self._wake_up()
        if first and self._gather is not None:
            self._gather()

    def go(self, *, here: bool) -> None:
        """Have what was handed over done: in the calling thread, which must be the only one that hands over, if
        ``here`` and the worker's own is idle, or there is none; else by the worker's, or by :meth:`run_pending`."""
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
        """Handle what is waiting, in the calling thread. False if there was nothing."""
        with self._lock:
            operations, self._pending = self._pending, []
        if operations:
            self._handle(operations)
        return bool(operations)

    def close(self) -> None:
        """Finish what is waiting and stop."""
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
