"""When an acknowledgement leaves, to the nanosecond, and what a commit covers: with a clock that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pamqp import commands, frame

from perftest.engine.consuming.acknowledger import Acknowledger
from perftest.engine.context import IntervalCounters
from perftest.metrics.recorder import Recorder
from perftest.spec.behaviour import Consuming
from perftest.spec.plan import Settings

MS = 1_000_000


class World:
    """What a consumer's acknowledgements need of a run: a clock, timers, a connection that notes what it is given."""

    def __init__(self, settings: Settings, **consuming: Any) -> None:
        self.now_ns = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.sent: list[tuple[int, int, bool]] = []
        self.commits: list[int] = []
        context: Any = SimpleNamespace(
            plan=SimpleNamespace(consuming=Consuming(**consuming), seed=1),
            clock=lambda: self.now_ns,
            wakeups=SimpleNamespace(at=lambda when_ns, call: self.timers.append((when_ns, call))),
            recorder=Recorder(),
            counters=IntervalCounters(),
        )
        self.settling = Acknowledger(context, settings, lambda error: None)

    async def attach(self) -> None:
        connection: Any = self
        await self.settling.attach(connection, 1)

    async def call(self, channel: int, method: object, answer: object) -> None:
        if isinstance(method, commands.Tx.Commit):
            self.commits.append(len(self.sent))

    def write(self, octets: bytes) -> None:
        while octets:
            size, _, method = frame.unmarshal(octets)
            assert isinstance(method, commands.Basic.Ack)
            self.sent.append((self.now_ns, method.delivery_tag, method.multiple))
            octets = octets[size:]

    def done(self, at_ns: int, first_tag: int, count: int) -> None:
        self.now_ns = at_ns
        self.settling.done(first_tag, count, at_ns, at_ns)
        self.settling.write()

    def ring(self, *, early_ns: int = 0) -> int:
        """The next timer comes, perhaps too early; when it was set for."""
        when_ns, call = self.timers.pop(0)
        self.now_ns = when_ns - early_ns
        call()
        return when_ns


def test_the_time_limit_is_that_of_the_interval_that_waits() -> None:
    """Neither sooner, by the timer of an interval that was full before its time, nor later."""

    async def scenario() -> None:
        world = World(replace(Settings(), ack_interval=3, ack_after_ms=5))
        await world.attach()
        world.done(10 * MS, 1, 1)
        world.done(12 * MS, 2, 3)  # the third fills the interval; the fourth begins the next
        assert world.sent == [(12 * MS, 3, True)]
        assert world.ring() == 15 * MS, "one timer for all: set for the first interval"
        assert len(world.sent) == 1, "the fourth has waited 3 of its 5 ms"
        assert world.ring(early_ns=1) == 17 * MS
        assert len(world.sent) == 1, "a timer that comes too early is no reason"
        assert world.ring() == 17 * MS
        assert world.sent[1:] == [(17 * MS, 4, True)]
        assert not world.timers, "nothing waits"
        world.done(40 * MS, 5, 1)
        assert world.ring() == 45 * MS and world.sent[-1] == (45 * MS, 5, True)

    asyncio.run(scenario())


def test_a_lost_channel_takes_the_open_transaction_with_it() -> None:
    """What was acknowledged and not committed comes again: the next commit counts from its own channel's beginning."""

    async def scenario() -> None:
        world = World(replace(Settings(), ack_interval=1), transaction=10)
        await world.attach()
        world.done(1, 1, 6)
        assert len(world.sent) == 6 and not world.commits
        world.settling.detach()
        await world.attach()
        world.done(2, 1, 9)
        await asyncio.sleep(0)
        assert len(world.sent) == 15 and not world.commits, "nine of ten"
        world.done(3, 10, 1)
        await asyncio.sleep(0)
        assert world.commits == [16]

    asyncio.run(scenario())
