"""The event loop of a process at virtual time.

A turn is what asyncio makes of it: all callbacks that are ready when the turn begins are called one after the other,
and what they make ready has the next turn. A turn begins when process and machine have a core for it, and every
callback costs CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol

from reference_broker.virtual.world import Process, VirtualWorld

_SECOND_NS = 1_000_000_000


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
        """The time for which the callback was set, in seconds."""
        return self._when


class Sockets(Protocol):
    """The network as an event loop uses it."""

    def listen(self, loop: VirtualLoop, port: int, factory: Any) -> Any:
        """Serve a port of the loop's machine; returns the server."""

    async def dial(self, loop: VirtualLoop, host: str, port: int, factory: Any) -> Any:
        """Connect; returns transport and protocol. Raises OSError if nobody answers."""


class VirtualLoop(asyncio.AbstractEventLoop):  # missing methods raise NotImplementedError
    """The event loop of one process."""

    def __init__(self, world: VirtualWorld, process: Process, sockets: Sockets) -> None:
        self.world = world
        self.process = process
        self.at_ns = 0
        self._sockets = sockets
        self._ready: deque[Handle] = deque()
        self._has_turn = False
        self._blocked_ns = 0
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # world.Actor

    def spend(self, cost_ns: int) -> None:
        """Work, within a turn."""
        process = self.process
        end_ns = self.at_ns + cost_ns
        self.at_ns = end_ns if end_ns < process.hiccup_ns else process.stretched(self.at_ns, cost_ns, self.world.chance)
        process.cpu_ns += cost_ns

    def wait_until(self, when_ns: int) -> None:
        """Hold the whole turn up: the loop does nothing else meanwhile, but its core is free for others."""
        if when_ns > self.at_ns:
            self._blocked_ns += when_ns - self.at_ns
            self.at_ns = when_ns

    # Callbacks

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        """Call after the callbacks that wait already."""
        handle = Handle(callback, args, context)
        world = self.world
        if world.actor is None or world.actor is self:
            self._make_ready(handle)
        else:  # a thread is at work, and its time runs ahead
            world.at(world.actor.at_ns, self._make_ready, handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call after a while."""
        return self._call_at_ns(self.world.clock() + round(delay * _SECOND_NS), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call at a time."""
        return self._call_at_ns(round(when * _SECOND_NS), callback, args, context)

    def _call_at_ns(
        self, when_ns: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Handle:
        handle = Handle(callback, args, context, when_ns / _SECOND_NS)
        self.world.at(max(when_ns, self.world.clock()), self._make_ready, handle)
        return handle

    def time(self) -> float:
        """Seconds at the place of whoever is at work."""
        return self.world.clock() / _SECOND_NS

    def _make_ready(self, handle: Handle) -> None:
        if handle.gone:
            return
        self._ready.append(handle)
        if not self._has_turn:
            self._has_turn = True
            now_ns = self.world.clock()
            process = self.process
            asleep = process.busy_until_ns < now_ns
            self.world.at(now_ns + process.delay_ns(asleep=asleep), self._turn)

    def _turn(self) -> None:
        world, process = self.world, self.process
        begin_ns = process.start_ns(world.now_ns)
        if begin_ns > world.now_ns:
            process.waited_ns += begin_ns - max(world.now_ns, process.busy_until_ns)
            world.at(begin_ns, self._turn)
            return
        core, self.at_ns, self._blocked_ns = process.machine.core(), begin_ns, 0
        world.actor = self
        _set_running_loop(self)
        try:
            self._call_ready()
        finally:
            _set_running_loop(None)
            world.actor = None
        process.machine.free_ns[core] = self.at_ns - self._blocked_ns
        process.busy_until_ns = self.at_ns
        self._has_turn = bool(self._ready)
        if self._ready:
            world.at(self.at_ns, self._turn)

    def _call_ready(self) -> None:
        costs, ready = self.process.costs, self._ready
        self.spend(costs.turn_ns)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.gone:
                continue
            self.spend(costs.callback_ns)
            if handle.context is None:
                handle.callback(*handle.args)
            else:
                handle.context.run(handle.callback, *handle.args)

    def run_until_done(self, work: Coroutine[Any, Any, Any], on_step: Callable[[], None] = lambda: None) -> Any:
        """Run the world until ``work``, a task of this loop, is done; returns its result. ``on_step`` is called now and
        then."""
        tasks: list[asyncio.Task[Any]] = []
        self.call_soon(lambda: tasks.append(self.create_task(work)))
        world, steps = self.world, 0
        while not tasks or not tasks[0].done():
            world.step()
            steps += 1
            if steps & 0xFFFF == 0:
                on_step()
        return tasks[0].result()

    def kill(self) -> None:
        """End all tasks, without a word."""
        for task in self._tasks:
            coroutine: Any = task.get_coro()
            with contextlib.suppress(RuntimeError, ValueError):
                coroutine.close()
        self._tasks.clear()

    # What asyncio's own code asks of a loop

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        """A task of this loop."""
        task = asyncio.Task(coro, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined] # the end of a simulation ends tasks
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def get_debug(self) -> bool:
        """Never in debug mode."""
        return False

    def is_running(self) -> bool:
        """Always true, because code only asks while it runs in the loop."""
        return True

    def is_closed(self) -> bool:
        """Never: the world ends as a whole."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise what a task or a callback raised and nobody took: a defect must not go unseen."""
        if (error := context.get("exception")) is not None:
            raise error

    # Sockets

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Listen on a port of this machine."""
        return self._sockets.listen(self, int(port), protocol_factory)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Dial. Raises OSError if nobody answers."""
        return await self._sockets.dial(self, str(host), int(port), protocol_factory)
