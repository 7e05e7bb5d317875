"""Virtual time, and an event loop for each host in it.

Theory of operation
-------------------
One :class:`Scheduler` holds everything that will happen, by virtual time. A host is one process of a node, or a client.
Each host has an event loop of its own, as asyncio defines it, but without files and signals. The callbacks of one host
run in the order of ``call_soon``, as production code expects. *When* the next callback runs is chance, so callbacks of
different hosts, packets and disks interleave differently under each seed. A host that is paused runs nothing until the
pause is over; a host that died never runs again.

No real clock, socket or thread is involved, so the same seed gives the same run, octet by octet.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, Protocol

from reference_broker.sim.trace import Trace

_STEP_S: Final = 40e-6
_HICCUP: Final = 0.002
_HICCUP_S: Final = 10e-3


class Handle:
    """A callback that waits for its turn: asyncio's Handle and TimerHandle in one."""

    __slots__ = ("_when", "args", "callback", "context", "gone")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None, when: float = 0.0
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.gone = False
        self._when = when

    def cancel(self) -> None:
        """Never call the callback."""
        self.gone = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.gone

    def when(self) -> float:
        """The time for which the callback was set."""
        return self._when


class Scheduler:
    """Virtual time in seconds, and everything that will happen."""

    def __init__(self, chance: Random, trace: Trace) -> None:
        self.chance = chance
        self.trace = trace
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = 0

    def at(self, when: float, call: Callable[..., object], *args: Any) -> None:
        """Call at a virtual time; calls for the same time keep their order."""
        self._numbers += 1
        heappush(self._heap, (when if when > self.now else self.now, self._numbers, call, args))

    def after(self, delay: float, call: Callable[..., object], *args: Any) -> None:
        """Call after a virtual while."""
        self.at(self.now + delay, call, *args)

    def step(self) -> None:
        """Let the next thing happen. Raises IndexError if nothing ever will."""
        self.now, _, call, args = heappop(self._heap)
        call(*args)


class Sockets(Protocol):
    """The network as an event loop uses it."""

    def listen(self, loop: SimLoop, port: int, factory: Any) -> Any:
        """Serve a port of the loop's host; returns the server."""

    async def dial(self, loop: SimLoop, host: str, port: int, factory: Any) -> Any:
        """Connect; returns transport and protocol. Raises OSError if nobody answers."""


class SimLoop(asyncio.AbstractEventLoop):  # missing methods raise NotImplementedError
    """The event loop of one host."""

    def __init__(self, scheduler: Scheduler, network: Sockets, host: str) -> None:
        self.scheduler = scheduler
        self.network = network
        self.host = host
        self.dead = False
        self.paused_until = 0.0
        self.on_idle: Callable[[], None] | None = None
        """Called after each callback, as part of it."""
        self.on_error: Callable[[BaseException], None] | None = None
        """Called with every exception that a callback raises."""
        self._ready: deque[Handle] = deque()
        self._scheduled = False
        self.tasks: list[asyncio.Task[Any]] = []

    # Callbacks

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        """Call after the callbacks that wait already."""
        handle = Handle(callback, args, context)
        self._make_ready(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call after a virtual while."""
        return self.call_at(self.scheduler.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call at a virtual time."""
        handle = Handle(callback, args, context, when)
        self.scheduler.at(when, self._make_ready, handle)
        return handle

    def time(self) -> float:
        """Virtual seconds."""
        return self.scheduler.now

    def _make_ready(self, handle: Handle) -> None:
        if not self.dead:
            self._ready.append(handle)
            if not self._scheduled:
                self._scheduled = True
                self.scheduler.after(self._pause(), self._run_one)

    def _pause(self) -> float:
        chance = self.scheduler.chance.random()
        return chance * _STEP_S if chance > _HICCUP else self.scheduler.chance.random() * _HICCUP_S

    def _run_one(self) -> None:
        if self.dead:
            return
        if self.paused_until > self.scheduler.now:
            self.scheduler.at(self.paused_until, self._run_one)
            return
        handle = self._ready.popleft()
        if not handle.gone:
            callback = handle.callback
            self.scheduler.trace.note(self.scheduler.now, self.host, getattr(callback, "__name__", "step"))
            self.run(callback, *handle.args, context=handle.context)
        if self._ready:
            self.scheduler.after(self._pause(), self._run_one)
        else:
            self._scheduled = False

    def run(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> None:
        """Call at once, as this host."""
        _set_running_loop(self)
        try:
            if context is None:
                callback(*args)
            else:
                context.run(callback, *args)
            if self.on_idle is not None and not self.dead:
                self.on_idle()
        except BaseException as error:
            if self.on_error is None:
                raise
            self.on_error(error)
        finally:
            _set_running_loop(None)

    def kill(self) -> None:
        """Stop this host for ever."""
        self.dead = True
        self._ready.clear()
        for task in self.tasks:
            coroutine: Any = task.get_coro()
            with contextlib.suppress(RuntimeError, ValueError):  # the coroutine that runs just now
                coroutine.close()
        self.tasks.clear()

    # What asyncio's own code asks of a loop

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        """A task of this loop."""
        self.tasks = [task for task in self.tasks if not task.done()]
        task = asyncio.Task(coro, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined] # it dies with its host, and that is no accident
        task.add_done_callback(self._task_done)
        self.tasks.append(task)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def get_debug(self) -> bool:
        """Never in debug mode."""
        return False

    def is_running(self) -> bool:
        """Always true, because code only asks while it runs in the loop."""
        return True

    def is_closed(self) -> bool:
        """Whether the host died."""
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing: an exception of a task is taken when the task ends, and tasks die with their host."""

    # Sockets

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Listen on a port of this host."""
        return self.network.listen(self, int(port), protocol_factory)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Dial. Raises OSError if nobody answers."""
        return await self.network.dial(self, str(host), int(port), protocol_factory)
