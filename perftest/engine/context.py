"""The context that all clients of a worker share: clock, recorder, ledger, counters, timers, and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Final, Protocol

from perftest.amqp.errors import AmqpError
from perftest.amqp.uri import AmqpUri
from perftest.engine.accounting.ledger import Ledger
from perftest.engine.accounting.observations import Observations
from perftest.engine.accounting.promise import OF_CHANNELS, Promise
from perftest.engine.wakeups import Wakeups
from perftest.metrics.clock import Clock
from perftest.metrics.recorder import Recorder
from perftest.spec.plan import Plan

SLOW_START_S: Final = 1.0
"""Time between one consumer and the next with a slow start."""


@dataclass(slots=True)
class IntervalCounters:
    """Counts of the time between two cuts, by the names of :class:`~perftest.metrics.interval.Interval`."""

    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    returned: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    published_bytes: int = 0
    put_to_work: int = 0
    """Number of delivered messages that wait for their consumer's work."""
    worked_on: int = 0
    """Messages whose consumer is done with its work on them."""

    @property
    def processed(self) -> int:
        """Messages that consumers were done with, at once or after their work."""
        return self.delivered - self.put_to_work + self.worked_on

    def cut(self) -> IntervalCounters:
        """The counts since the last cut; all counts begin anew."""
        cut = replace(self)
        for one in fields(self):
            setattr(self, one.name, 0)
        return cut


class Emit(Protocol):
    """Writes an event of the run."""

    def __call__(self, kind: str, text: str = "", **more: object) -> None:
        """``kind`` and ``text`` as in ``events.jsonl``; time and worker are added."""


NUMBERS_PER_WORKER: Final = 1 << 24
"""Size of a worker's own range of numbers for scopes and queues, so that no two workers use the same number."""


@dataclass(slots=True, kw_only=True)
class Context:
    """The context of the clients of one worker.

    ``worker`` is the worker's index among ``workers``. ``near`` are the indexes of the URIs that connections begin
    with; empty stands for all. ``forward`` sends the other workers their deliveries. ``finished`` gets the name of a
    client that left by itself, and the reason in PerfTest's words. ``began_ns`` is the time at which publishers were
    told to begin, the same in all workers; cycles count from it. It is 0 before. ``subscribed_ns`` is when the first
    consumer subscribed (0: none has), and ``worked_ns`` when a consumer was last done with work on a message.
    """

    plan: Plan
    uris: tuple[AmqpUri, ...]
    run: int
    clock: Clock
    ledger: Ledger
    recorder: Recorder
    observations: Observations
    wakeups: Wakeups
    emit: Emit
    fail: Callable[[AmqpError, str], None]
    finished: Callable[[str, str], None] = lambda name, reason: None
    counters: IntervalCounters = field(default_factory=IntervalCounters)
    worker: int = 0
    workers: int = 1
    near: tuple[int, ...] = ()
    began_ns: int = 0
    subscribed_ns: int = 0
    worked_ns: int = 0
    forward: Callable[[], None] = lambda: None
    bindings: list[tuple[int, bool]] = field(default_factory=list)
    promise: Promise = OF_CHANNELS
    _scope_of: dict[int, int] = field(default_factory=dict)
    _next_scope: int = 0
    _next_queue: int = 0
    _next_turn_s: float = 0.0

    def new_scope(self, queue: int) -> int:
        """The scope of the deliveries on a consumer's new channel on ``queue``: an index in the plan, or the number
        that :meth:`bind_own_queue` gave. The scope is the same for all channels of a queue whose order spans them."""
        if self.promise.spans_channels and queue in self._scope_of:
            return self._scope_of[queue]
        self._next_scope += 1
        scope = self._scope_of[queue] = self.worker * NUMBERS_PER_WORKER + self._next_scope
        self.ledger.consume(scope, queue)
        return scope

    def bind_own_queue(self) -> int:
        """A consumer has bound a queue of its own, which the server named. From now on the ledger expects each message
        from this queue, too. Returns the number of the queue."""
        self._next_queue += 1
        queue = self.worker * NUMBERS_PER_WORKER + len(self.plan.queues) + self._next_queue
        self.ledger.bind(queue)
        self._tell(queue, bound=True)
        return queue

    def unbind_own_queue(self, queue: int) -> None:
        """The queue is gone, with all its messages."""
        self.observations.account()
        self.ledger.unbind(queue)
        self._tell(queue, bound=False)

    async def turn(self) -> None:
        """Wait until the next consumer may start: with a slow start one second after the consumer before."""
        if self.plan.consuming.slow_start:
            now_s = asyncio.get_running_loop().time()
            turn_s = max(self._next_turn_s, now_s + self.worker * SLOW_START_S if not self._next_turn_s else now_s)
            self._next_turn_s = turn_s + self.workers * SLOW_START_S
            await asyncio.sleep(turn_s - now_s)

    def _tell(self, queue: int, *, bound: bool) -> None:
        self.bindings.append((queue, bound))
        self.forward()
