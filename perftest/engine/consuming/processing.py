"""A consumer's work on messages before it acknowledges them: one message after another, with a latency and a rate.

Theory of operation. A consumer is a server with a queue. It begins message ``i`` when the message before is done, when
message ``i`` has come, and not before its slot of the rate. The message is done one latency later. No message needs a
timer of its own: the moments of a received run are an arithmetic series, so a division tells how many messages are done
by ``now``. If the event loop is late, messages still count as done at their own times, and the next message begins at
that time and not later. So the latency is exact on average, also below a millisecond, and consumers that share a loop
do not slow each other down.

Invariants: messages are done in their order, each once; a message is done one latency after it was begun; two messages
never begin less than one period apart (idle time gives no credit); moments are exact multiples and not summed up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from perftest.amqp.transport import Connection
from perftest.engine.context import Context
from perftest.engine.schedule.intended_times import SECOND_NS

_UNIT: Final = 1 << 20
"""Fraction of a nanosecond in which moments are kept: a period of 3,333.3 ns must not become one of 3,333."""

SHARE: Final = 4
"""Divisor of the waiting messages: one wake-up serves at most a quarter of them; all except the last are told late."""
LATEST_NS: Final = 1_000_000
"""Longest time by which a message is told late."""

US_NS: Final = 1000

HOLD_AT: Final = 1000
"""Number of messages at hand at which a consumer without a prefetch stops reading its socket, until half of them are
done."""


@dataclass(slots=True)
class TagRun:
    """``count`` messages with consecutive delivery tags that came at one moment."""

    first_tag: int
    count: int
    arrived_ns: int


class Processing:
    """The messages that one consumer has at hand. ``latency_ns`` is the work on each message, ``rate`` the number of
    messages that may begin in a second (None: any number)."""

    def __init__(self, *, latency_ns: int, rate: float | None) -> None:
        self.waiting = 0
        self._latency = latency_ns * _UNIT
        self._period = round(SECOND_NS * _UNIT / rate) if rate else 0
        self._runs: deque[TagRun] = deque()
        self._in_work: tuple[TagRun, int] | None = None
        self._free = 0
        self._slot = 0

    @property
    def needed(self) -> bool:
        """Whether messages have to wait for work at all."""
        return bool(self._latency or self._period or self.waiting)

    def arrived(self, first_tag: int, count: int, arrived_ns: int) -> None:
        """Messages came."""
        self._runs.append(TagRun(first_tag, count, arrived_ns))
        self.waiting += count

    def done(self, now_ns: int) -> list[TagRun]:
        """The messages that are done by now, in their order; each message is returned once."""
        now = now_ns * _UNIT
        handled = self._finish_work(now)
        while self._runs and self._in_work is None:
            run = self._runs[0]
            begin = self._begin(run)
            first_done = begin + self._latency
            if first_done > now:
                break
            step = max(self._latency, self._period)
            count = min(run.count, (now - first_done) // step + 1) if step else run.count
            last_begin = begin + (count - 1) * step
            self._free, self._slot = last_begin + self._latency, last_begin + self._period
            handled.append(self._take(count))
        return handled

    def everything(self) -> list[TagRun]:
        """All messages at hand, done or not; the work on them ends."""
        handled = [self._in_work[0]] if self._in_work is not None else []
        handled += self._runs
        self.forget()
        return handled

    def wake_ns(self) -> int | None:
        """When to ask again which messages are done; None when no message is at hand.

        If few messages wait, this is the moment of the next message. If many wait, it is the moment when a share of
        them is done, because a wake-up for each would cost more than the messages.
        """
        if not self.waiting:
            return None
        if self._in_work is not None:
            return -(-self._in_work[1] // _UNIT)
        share_step = max(self._latency, self._period) * max(self.waiting // SHARE - 1, 0)
        first_done = self._begin(self._runs[0]) + self._latency
        return -(-(first_done + min(share_step, LATEST_NS * _UNIT)) // _UNIT)

    def change(self, *, latency_ns: int, now_ns: int) -> None:
        """Work ``latency_ns`` on each message that is begun from now on. Call :meth:`done` before."""
        if self._runs and self._in_work is None and self._begin(self._runs[0]) <= now_ns * _UNIT:
            begin = self._begin(self._runs[0])
            self._slot = begin + self._period
            waiting = self.waiting
            self._in_work = self._take(1), begin + self._latency
            self.waiting = waiting
        self._latency = latency_ns * _UNIT

    def forget(self) -> None:
        """The channel is gone: the broker will deliver the messages at hand again. The rate goes on."""
        self._runs.clear()
        self._in_work = None
        self.waiting = 0

    def _begin(self, run: TagRun) -> int:
        return max(self._free, run.arrived_ns * _UNIT, self._slot)

    def _finish_work(self, now: int) -> list[TagRun]:
        """The message that was begun before the latency was changed, if it is done."""
        if self._in_work is None or self._in_work[1] > now:
            return []
        (message, self._free), self._in_work = self._in_work, None
        self.waiting -= 1
        return [message]

    def _take(self, count: int) -> TagRun:
        """Take messages off the front."""
        run = self._runs.popleft()
        if count < run.count:
            self._runs.appendleft(TagRun(run.first_tag + count, run.count - count, run.arrived_ns))
        self.waiting -= count
        return TagRun(run.first_tag, count, run.arrived_ns)


class WorkQueue:
    """The messages at hand (:class:`Processing`), and the timer for the work.

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
        """Number of messages at hand."""
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
        """Forget the messages at hand, which the broker will deliver again; returns their number."""
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
