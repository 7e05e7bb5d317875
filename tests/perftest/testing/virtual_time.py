"""An event loop whose time jumps to the next timer: an hour of waiting takes as long as what happens in it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

BEGIN_S = 1000.0


class _JumpingSelector(selectors.SelectSelector):
    """Where the loop would wait for a timer, time passes at once."""

    now_s = BEGIN_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen again"
            self.now_s += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Counts from :data:`BEGIN_S`. Threads and sockets are not for it: nobody waits for them."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_virtually(work: Coroutine[Any, Any, _T], limit_s: float) -> tuple[_T, float]:
    """The result of ``work``, and the virtual seconds that it took. Raises TimeoutError after ``limit_s`` of them."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        found = runner.run(asyncio.wait_for(work, limit_s))
        return found, loop.time() - BEGIN_S


class VirtualTimeHost:
    """The machine of a process in a :class:`VirtualTimeLoop` (:class:`perftest.engine.host.Host`); its clock may be
    ``ahead_ns``."""

    exact_timers = True
    collects_garbage = False

    def __init__(self, ahead_ns: int = 0) -> None:
        self._ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e9) + self._ahead_ns

    def epoch_offset_ns(self) -> int:
        return 1_700_000_000_000_000_000

    def cpu_ns(self) -> int:
        return 0

    def waited_ns(self) -> int:
        return 0

    def stolen_ns(self) -> int:
        return 0

    def cores(self) -> int:
        return 2

    def run_number(self) -> int:
        return 7
