"""The event loop of a process at virtual time: asyncio's, without files and signals.

Callbacks keep the order of ``call_soon``, as production code expects. When they have their turn, and how many have it
together, is for each kind of world to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol


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

    def listen(self, loop: Any, port: int, factory: Any) -> Any:
        """Serve a port of the loop's host; returns the server."""

    async def dial(self, loop: Any, host: str, port: int, factory: Any) -> Any:
        """Connect; returns transport and protocol. Raises OSError if nobody answers."""


class EventLoop(asyncio.AbstractEventLoop):  # missing methods raise NotImplementedError
    """The event loop of one process on the host ``host``."""

    def __init__(self, sockets: Sockets, host: str) -> None:
        self.host = host
        self.dead = False
        self._sockets = sockets
        self._ready: deque[Handle] = deque()
        self._has_turn = False
        """Whether a turn is on the agenda, or under way."""
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # Callbacks

    @abstractmethod
    def time(self) -> float:
        """Virtual seconds."""

    @abstractmethod
    def _ask_for_turn(self) -> None:
        """Put a turn on the agenda: callbacks are ready, and no turn is on the agenda."""

    @abstractmethod
    def _set_timer(self, when: float, handle: Handle) -> None:
        """Have a callback made ready at a time in seconds."""

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        """Call after the callbacks that wait already."""
        handle = Handle(callback, args, context)
        self._make_ready(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """As :meth:`call_soon`."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call after a virtual while."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call at a virtual time."""
        handle = Handle(callback, args, context, when)
        self._set_timer(when, handle)
        return handle

    def _make_ready(self, handle: Handle) -> None:
        if not self.dead:
            self._ready.append(handle)
            if not self._has_turn:
                self._has_turn = True
                self._ask_for_turn()

    def kill(self) -> None:
        """Stop this process for ever, and end its tasks without a word."""
        self.dead = True
        self._ready.clear()
        for task in self._tasks:
            coroutine: Any = task.get_coro()
            with contextlib.suppress(RuntimeError, ValueError):  # the coroutine that runs just now
                coroutine.close()
        self._tasks.clear()

    # What asyncio's own code asks of a loop

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        """A task of this loop."""
        task = asyncio.Task(coro, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined] # it dies with its process, and that is no accident
        task.add_done_callback(self._task_done)
        self._tasks[task] = None
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
        """Whether the process ended."""
        return self.dead

    # Sockets

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Listen on a port of this host."""
        return self._sockets.listen(self, int(port), protocol_factory)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Dial. Raises OSError if nobody answers."""
        return await self._sockets.dial(self, str(host), int(port), protocol_factory)
