"""Virtual seconds, and the event loop of a host in a world of chance.

Theory of operation
-------------------
One :class:`Scheduler` holds everything that will happen, by virtual time. A host is one process of a node, or a client.
The callbacks of one host run one by one, in the order of ``call_soon``. *When* the next callback runs is chance, so
callbacks of different hosts, packets and disks interleave differently under each seed. A host that is paused runs
nothing until the pause is over; a host that died never runs again.

No real clock, socket or thread is involved, so the same seed gives the same run, octet by octet.
"""

from __future__ import annotations

import asyncio
from asyncio import _set_running_loop
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, Final

from reference_broker.sim.trace import Trace
from reference_broker.worlds.agenda import Agenda
from reference_broker.worlds.loop import EventLoop, Handle, Sockets

_STEP_S: Final = 40e-6
_HICCUP: Final = 0.002
_HICCUP_S: Final = 10e-3


class Scheduler(Agenda[float]):
    """Virtual time in seconds, and the trace of what happened."""

    def __init__(self, chance: Random, trace: Trace) -> None:
        super().__init__(chance, 0.0)
        self.trace = trace

    def after(self, delay: float, call: Callable[..., object], *args: Any) -> None:
        """Call after a virtual while."""
        self.at(self.now + delay, call, *args)


class SimLoop(EventLoop):
    """The event loop of one host."""

    def __init__(self, scheduler: Scheduler, network: Sockets, host: str) -> None:
        super().__init__(network, host)
        self.paused_until = 0.0
        self.on_idle: Callable[[], None] | None = None
        """Called after each callback, as part of it."""
        self.on_error: Callable[[BaseException], None] | None = None
        """Called with every exception that a callback raises."""
        self._scheduler = scheduler

    def time(self) -> float:
        """Virtual seconds."""
        return self._scheduler.now

    def _set_timer(self, when: float, handle: Handle) -> None:
        self._scheduler.at(when, self._make_ready, handle)

    def _ask_for_turn(self) -> None:
        chance = self._scheduler.chance.random()
        pause = chance * _STEP_S if chance > _HICCUP else self._scheduler.chance.random() * _HICCUP_S
        self._scheduler.after(pause, self._run_one)

    def _run_one(self) -> None:
        scheduler = self._scheduler
        if self.dead:
            return
        if self.paused_until > scheduler.now:
            scheduler.at(self.paused_until, self._run_one)
            return
        handle = self._ready.popleft()
        if not handle.gone:
            callback = handle.callback
            scheduler.trace.note(scheduler.now, self.host, getattr(callback, "__name__", "step"))
            self.run(callback, *handle.args, context=handle.context)
        if self._ready:
            self._ask_for_turn()
        else:
            self._has_turn = False

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

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        super()._task_done(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing: an exception of a task is taken when the task ends, and tasks die with their host."""
