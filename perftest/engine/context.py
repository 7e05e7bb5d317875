"""What the clients of a worker share: clock, recorder, ledger, counters, timers, and a way to speak up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from perftest.amqp.errors import AmqpError
from perftest.amqp.uri import AmqpUri
from perftest.engine.ledger import Ledger
from perftest.engine.observations import Observations
from perftest.engine.wakeups import Wakeups
from perftest.metrics.clock import Clock
from perftest.metrics.recorder import Recorder
from perftest.spec.plan import Plan


@dataclass(slots=True)
class Counters:
    """What is counted between two cuts; the names are those of :class:`~perftest.metrics.interval.Interval`."""

    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    returned: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    published_bytes: int = 0

    def cut(self) -> Counters:
        """The counts so far; and begin anew."""
        cut = replace(self)
        for one in fields(self):
            setattr(self, one.name, 0)
        return cut


class Emit(Protocol):
    """Writes an event."""

    def __call__(self, kind: str, text: str = "", **more: object) -> None:
        """``kind`` and ``text`` as in ``events.jsonl``; time and worker are added."""


@dataclass(slots=True, kw_only=True)
class Context:
    """See the module."""

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
    counters: Counters = field(default_factory=Counters)
    _next_scope: int = 0

    def new_scope(self) -> int:
        """A number for a consumer's channel, never used before in this worker."""
        self._next_scope += 1
        return self._next_scope
