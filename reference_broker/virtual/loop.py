"""The event loop of a process on a modelled machine.

A turn is what asyncio makes of it: all callbacks that are ready when the turn begins are called one after the other,
and what they make ready has the next turn. A turn begins when process and machine have a core for it, and every
callback costs CPU time.
"""

from __future__ import annotations

import asyncio
from asyncio import _set_running_loop
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final

from reference_broker.virtual.world import Process, VirtualWorld
from reference_broker.worlds.loop import EventLoop, Handle, Sockets

_SECOND_NS: Final = 1_000_000_000


class VirtualLoop(EventLoop):
    """The event loop of one process."""

    def __init__(self, world: VirtualWorld, process: Process, sockets: Sockets) -> None:
        super().__init__(sockets, process.machine.name)
        self.world = world
        self.process = process
        self.at_ns = 0
        self._blocked_ns = 0

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
        handle, actor = Handle(callback, args, context), self.world.actor
        if actor is None or actor is self:
            self._make_ready(handle)
        else:  # a thread or another process is at work, and its time runs ahead
            self.world.at(actor.at_ns, self._due, handle)
        return handle

    def time(self) -> float:
        """Seconds at the place of whoever is at work."""
        return self.world.clock() / _SECOND_NS

    def _set_timer(self, when: float, handle: Handle) -> None:
        self.world.at(max(round(when * _SECOND_NS), self.world.clock()), self._due, handle)

    def _due(self, handle: Handle) -> None:
        if not handle.gone:
            self._make_ready(handle)

    def _ask_for_turn(self) -> None:
        now_ns, process = self.world.clock(), self.process
        asleep = process.busy_until_ns < now_ns
        self.world.at(now_ns + process.delay_ns(asleep=asleep), self._turn)

    def _turn(self) -> None:
        world, process = self.world, self.process
        begin_ns = process.start_ns(world.now)
        if begin_ns > world.now:
            process.waited_ns += begin_ns - max(world.now, process.busy_until_ns)
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

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise what a task or a callback raised and nobody took: a defect must not go unseen."""
        if (error := context.get("exception")) is not None:
            raise error
