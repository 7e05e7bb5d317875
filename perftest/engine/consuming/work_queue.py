"""The messages that wait for a consumer's work, or are being worked on, with the timer that ends the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perftest.amqp.transport import Connection
from perftest.engine.consuming.processing import Processing, TagRun
from perftest.engine.context import Context

US_NS: Final = 1000

HOLD_AT: Final = 1000
"""With this many messages at hand and no prefetch, a consumer stops reading its socket until half of them are done."""


class WorkQueue:
    """The messages at hand (:class:`~perftest.engine.consuming.processing.Processing`), and the timer for the work.

    ``on_done`` gets the messages that are done. It is called at each :meth:`go_on`, also when no message is done.
    """

    def __init__(
        self, context: Context, *, latency_us: float, rate: float | None, on_done: Callable[[list[TagRun], int], None]
    ) -> None:
        self.latency_us = latency_us
        self._context = context
        self._on_done = on_done
        self._processing = Processing(latency_ns=round(latency_us * US_NS), rate=rate)
        self._wake_ns = 0
        self._source: Connection | None = None
        self._holding = False

    @property
    def needed(self) -> bool:
        """Whether messages have to wait for work at all."""
        return self._processing.needed

    @property
    def waiting(self) -> int:
        """How many messages are at hand."""
        return self._processing.waiting

    @property
    def holding(self) -> bool:
        """Whether messages are left in the socket."""
        return self._holding

    def take_from(self, connection: Connection | None, *, bounded: bool) -> None:
        """Messages come from ``connection`` from now on; None: no messages come. ``bounded``: a prefetch limits
        them."""
        self._release()
        self._source = None if bounded else connection

    def arrived(self, first_tag: int, count: int, arrived_ns: int) -> None:
        """``count`` messages came. The caller calls :meth:`go_on` afterwards."""
        self._processing.arrived(first_tag, count, arrived_ns)
        if self._source is not None and self._processing.waiting > HOLD_AT and not self._holding:
            self._holding = True
            self._source.hold(self)

    def go_on(self, *, everything: bool = False) -> None:
        """Give ``on_done`` the messages that are done by now (``everything``: all of them), and set the timer."""
        now_ns = self._context.clock()
        handled = self._processing.everything() if everything else self._processing.done(now_ns)
        if self._processing.waiting <= HOLD_AT // 2:
            self._release()
        wake_ns = self._processing.wake_ns()
        if wake_ns is not None and (not self._wake_ns or wake_ns < self._wake_ns):
            self._wake_ns = wake_ns
            self._context.wakeups.at(wake_ns, self._on_time)
        self._on_done(handled, now_ns)

    def change(self, latency_us: float) -> None:
        """Work ``latency_us`` on each message from now on."""
        self.go_on()
        self.latency_us = latency_us
        self._processing.change(latency_ns=round(latency_us * US_NS), now_ns=self._context.clock())
        self.go_on()

    def forget(self) -> int:
        """Forget the messages at hand, which the broker will deliver again; returns how many."""
        forgotten = self._processing.waiting
        self._processing.forget()
        return forgotten

    def _on_time(self) -> None:
        self._wake_ns = 0
        if self._processing.waiting:
            self.go_on()

    def _release(self) -> None:
        if self._holding and self._source is not None:
            self._holding = False
            self._source.release(self)
