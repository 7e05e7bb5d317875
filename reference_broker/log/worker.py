"""A thread that takes everything that is waiting, in one go.

The wake-up is a lock used as a semaphore: one futex call, and none at all while the thread is busy.
Without ``start`` there is no thread: :meth:`Worker.run_pending` does the work in the caller's, which is how tests and
the simulator run the log in one thread, step by step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Op = TypeVar("Op")


class Worker(Generic[Op]):
    """Runs ``handle`` with lists of operations, in the order of :meth:`submit`. ``handle`` must not raise."""

    def __init__(self, name: str, handle: Callable[[list[Op]], None]) -> None:
        self._name = name
        self._handle = handle
        self._pending: list[Op] = []
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def submit(self, operation: Op) -> None:
        """Hand over one operation. Never blocks."""
        with self._lock:
            self._pending.append(operation)
            if self._asleep:
                self._asleep = False
                self._wake.release()

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
            if self._asleep:
                self._asleep = False
                self._wake.release()
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
