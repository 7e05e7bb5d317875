"""Threads at virtual time, and the I/O policies that use them.

A store blocks in a sync, in the middle of its code. So a virtual thread is a real thread, of which at most one runs:
the world hands it the baton and waits until the thread is blocked or has nothing to do. Threads never run beside each
other or beside the world, so their order is the order of virtual time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from reference_broker.virtual.world import Process, VirtualWorld


class VirtualThread:
    """A thread of a process; ``body`` runs in it and parks where it has nothing to do."""

    def __init__(self, world: VirtualWorld, process: Process, name: str, body: Callable[[VirtualThread], None]) -> None:
        self.at_ns = 0
        self._world = world
        self._process = process
        self._body = body
        self._turn, self._done = _baton(), _baton()
        self._error: BaseException | None = None
        self._ends = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # world.Actor

    def spend(self, cost_ns: int) -> None:
        """Work; the event loop of the process cannot work meanwhile."""
        self.at_ns = self._process.run(self.at_ns, cost_ns, self._world.chance)

    def wait_until(self, when_ns: int) -> None:
        """Be blocked until a time. The world goes on meanwhile."""
        if when_ns > self._world.now:
            self._world.at(when_ns, self.resume)
            self.park()

    # Called by the world

    def resume(self) -> None:
        """Let the thread run until it blocks or parks."""
        world = self._world
        self.at_ns = world.now
        world.actor = self
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()
        self._done.acquire()
        world.actor = None
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """End the thread, wherever it is parked."""
        if self._thread.ident is not None and self._thread.is_alive():
            self._ends = True
            self._turn.release()
            self._thread.join()

    # Called in the thread

    def park(self) -> None:
        """Give the baton back until :meth:`resume`."""
        self._done.release()
        self._turn.acquire()
        if self._ends:
            raise SystemExit

    def _run(self) -> None:
        try:
            self._body(self)
        except SystemExit:
            return
        except BaseException as error:
            self._error = error
            self._done.release()


def _baton() -> threading.Lock:
    """A lock as a semaphore of one, and taken: half the price of :class:`threading.Semaphore`."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class WaitingLine:
    """Executors that wait for one of ``count`` threads, in the order in which they asked.

    The event loop counts as one of the threads while it handles operations, and may do so only while one is free
    (:meth:`may_work_here`), as in :class:`reference_broker.storage.executor.Pool`. It counts for as long as its local
    time runs ahead of the world's.
    """

    def __init__(self, world: VirtualWorld, process: Process, name: str, count: int) -> None:
        self._world = world
        self._process = process
        self._count = count
        self._waiting: deque[VirtualExecutor] = deque()
        self._working = 0
        self._here_until_ns = 0
        self.threads = [VirtualThread(world, process, name, self._serve) for _ in range(count)]
        self._idle = list(reversed(self.threads))

    def add(self, executor: VirtualExecutor) -> None:
        """Have an executor served. It has asked only once."""
        self._waiting.append(executor)
        self._wake_up()

    def may_work_here(self) -> bool:
        """Whether the event loop may work as one of the threads now."""
        return not self._waiting and self._working < self._count

    def worked_here(self) -> None:
        """The event loop has worked as one of the threads until its local time."""
        self._here_until_ns = self._world.clock()

    def _has_room(self) -> bool:
        """Whether one more thread may work at the time of the calling actor."""
        return self._working + (self._world.clock() < self._here_until_ns) < self._count

    def _wake_up(self) -> None:
        if not (self._waiting and self._idle):
            return
        if self._has_room():
            thread = self._idle.pop()
            delay_ns = self._process.delay_ns(asleep=True)
            self._world.at(self._world.clock() + delay_ns, thread.resume)
        elif self._working < self._count:
            self._world.at(self._here_until_ns, self._wake_up)

    def _serve(self, thread: VirtualThread) -> None:
        while True:
            while self._waiting and self._has_room():
                self._working += 1
                executor = self._waiting.popleft()
                thread.spend(self._process.costs.batch_ns)
                executor.serve()
                self._working -= 1
            self._idle.append(thread)
            self._wake_up()
            thread.park()


class VirtualExecutor:
    """An executor (:mod:`reference_broker.storage.executor`) whose operations a thread of a line handles."""

    def __init__(
        self, name: str, handle: Callable[[list[Any]], None], gather: Callable[[], None] | None, line: WaitingLine
    ) -> None:
        self.name = name
        self._is_asked = False
        """Whether a thread works on the operations, or will."""
        self._handle = handle
        self._gather = gather
        self._line = line
        self._pending: list[Any] = []

    def start(self) -> None:
        """The threads of the line begin when something waits."""

    def submit(self, operation: Any, /) -> None:
        """Hand over one operation. Never blocks."""
        self._pending.append(operation)
        if self._gather is None:
            self._ask()
        elif len(self._pending) == 1:
            self._gather()

    def go(self, *, here: bool) -> None:
        """Have the waiting operations handled: by the caller, if ``here`` and a thread of the line is free."""
        if not self._pending or self._is_asked:
            return
        if not (here and self._line.may_work_here()):
            self._ask()
            return
        self._is_asked = True
        self._work()
        self._line.worked_here()
        self._is_asked = False
        if self._gather is None:  # else the owner was told of what came meanwhile
            self._ask()

    def serve(self) -> None:
        """Handle what waits, in a thread of the line, and ask for what came meanwhile."""
        self._work()
        self._is_asked = False
        self._ask()

    def _ask(self) -> None:
        if self._pending and not self._is_asked:
            self._is_asked = True
            self._line.add(self)

    def _work(self) -> None:
        """Handle what waits, at the time of the calling actor."""
        operations, self._pending = self._pending, []
        self._handle(operations)

    @property
    def waits(self) -> bool:
        """Whether there is something to do."""
        return bool(self._pending)

    def run_pending(self) -> bool:
        """Handle the waiting operations at the time of the calling actor. False if there were none, or some are under
        way."""
        waits = self.waits and not self._is_asked
        if waits:
            self._work()
        return waits

    def close(self) -> None:
        """Drop what waits: a world ends as if the power went."""
        self._pending.clear()


class VirtualPolicy:
    """An I/O policy of one process: a thread for each executor, or one pool of ``pool`` threads for all."""

    def __init__(self, world: VirtualWorld, process: Process, pool: int = 0) -> None:
        self._world = world
        self._process = process
        self._lines: list[WaitingLine] = []
        self._pool = self._line("pool", pool) if pool else None
        self.shares_threads = bool(pool)

    def __call__(
        self, name: str, handle: Callable[[list[Any]], None], gather: Callable[[], None] | None = None, /
    ) -> VirtualExecutor:
        """An executor that runs ``handle``."""
        line = self._pool or self._line(name, 1)
        return VirtualExecutor(name, handle, gather, line)

    @property
    def threads(self) -> list[VirtualThread]:
        """All threads."""
        return [thread for line in self._lines for thread in line.threads]

    def end(self) -> None:
        """End all threads."""
        for thread in self.threads:
            thread.end()

    def _line(self, name: str, count: int) -> WaitingLine:
        line = WaitingLine(self._world, self._process, name, count)
        self._lines.append(line)
        return line
