"""The publisher in virtual time: what a stall of the broker does to latencies, with a schedule and without."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import body, commands, frame

from perftest.amqp.events import Confirms, Delivery
from perftest.amqp.uri import AmqpUri
from perftest.engine.accounting.ledger import Ledger
from perftest.engine.accounting.observations import Observations
from perftest.engine.context import Context
from perftest.engine.publishing.publisher import Publisher
from perftest.metrics.interval import Series
from perftest.metrics.recorder import Recorder
from perftest.spec.plan import Isolation, Plan, QueueSpec, Settings
from tests.perftest.testing.figures import Figures, figures

MS = 1_000_000
SECOND = 1000 * MS
ROUND_TRIP = 2 * MS
QUEUE = QueueSpec(name="q")


class World:
    """A clock that jumps from one thing to do to the next."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    def clock(self) -> int:
        return self.now_ns

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (max(when_ns, self.now_ns), self._order, action))

    def run_until(self, end_ns: int) -> None:
        while self._agenda and self._agenda[0][0] <= end_ns:
            self.now_ns, _, action = heapq.heappop(self._agenda)
            action()
        self.now_ns = end_ns


class VirtualBroker:
    """Confirms and delivers each message a round trip after it was written, or at the end of its stall."""

    writable = True
    frame_max = 131072

    def __init__(self, world: World, observations: Observations, *, stall: range) -> None:
        self.publisher: Publisher | None = None
        self.written: list[int] = []
        self._world = world
        self._observations = observations
        self._stall = stall
        self._tag = 0

    async def open_channel(self, listener: object) -> int:
        return 1

    async def call(self, *_: object) -> None:
        return None

    def write(self, octets: bytes) -> None:
        at = 0
        while at < len(octets):
            taken, _, value = frame.unmarshal(octets[at:])
            at += taken
            if isinstance(value, body.ContentBody):
                self._accept(value.value)
            else:
                assert not isinstance(value, commands.Basic.Ack)

    def _accept(self, octets: bytes) -> None:
        self._tag += 1
        self.written.append(self._world.now_ns)
        done_ns = self._world.now_ns + ROUND_TRIP
        if done_ns in self._stall:
            done_ns = self._stall.stop
        tag = self._tag
        self._world.at(done_ns, lambda: self._finish(tag, octets))

    def _finish(self, tag: int, octets: bytes) -> None:
        now_ns = self._world.now_ns
        self._observations.add_one(1, Delivery(1, tag, False, octets), now_ns)
        assert self.publisher is not None
        self.publisher.on_confirms(Confirms(1, (tag,), False, False), now_ns)
        self.publisher.on_read_end()


def simulate(settings: Settings, *, seconds: float, stall: range) -> tuple[dict[Series, Figures], VirtualBroker, int]:
    """Latencies, the broker, and how many messages were intended."""
    context, (broker,), intended = simulate_many(settings, seconds=seconds, stall=stall)
    context.observations.account()
    counts = context.recorder.cut()[0]
    return {series: figures(one) for series, one in counts.items()}, broker, intended


def simulate_many(settings: Settings, *, seconds: float, stall: range) -> tuple[Context, list[VirtualBroker], int]:
    """As many publishers as the settings say, each with a broker of its own."""
    world = World()
    ledger, recorder = Ledger(1), Recorder()
    observations = Observations(ledger, recorder, sizes={settings.size_bytes})
    observations.scheduled = settings.rate is not None
    plan = Plan.of(name="t", title="t", uris=("amqp://",), queues=(QUEUE,), steps=(), isolation=Isolation.LIVE)
    context = Context(
        plan=plan,
        uris=(AmqpUri(),),
        run=1,
        clock=world.clock,
        ledger=ledger,
        recorder=recorder,
        observations=observations,
        wakeups=world,  # type: ignore[arg-type]
        emit=lambda *_args, **_more: None,
        fail=lambda *_: None,
    )
    brokers = [VirtualBroker(world, observations, stall=stall) for _ in range(settings.publishers)]
    publishers = [Publisher(context, number=n, queue=QUEUE, settings=settings) for n in range(settings.publishers)]

    async def attach() -> None:
        for publisher, broker in zip(publishers, brokers, strict=True):
            broker.publisher = publisher
            connection: Any = broker
            await publisher.attach(connection)

    asyncio.run(attach())
    for publisher in publishers:
        publisher.begin()
    world.run_until(round(seconds * SECOND))
    return context, brokers, sum(publisher.intended_since_cut(world.now_ns) for publisher in publishers)


STALL = range(1 * SECOND, 1 * SECOND + 500 * MS)
NO_STALL = range(0)


def test_a_stall_shows_in_the_latency_from_the_schedule() -> None:
    """500 ms of silence in 5 s at 1000 messages a second with 10 in flight: a tenth of the messages should have left
    in it. Service latency sees ten messages wait; whoever reads only that calls this broker fast."""
    found, broker, intended = simulate(Settings(rate=1000.0, in_flight=10), seconds=5, stall=STALL)
    assert intended == len(broker.written) == 5001
    assert found[Series.E2E].p99_ns < 3 * ROUND_TRIP
    assert found[Series.E2E_SCHED].p99_ns > 400 * MS
    assert found[Series.CONFIRM].p99_ns < 3 * ROUND_TRIP
    assert found[Series.CONFIRM_SCHED].p99_ns > 400 * MS
    assert found[Series.LAG].p99_ns > 400 * MS
    assert abs(found[Series.E2E].max_ns - 500 * MS) < 2 * ROUND_TRIP


def test_without_a_stall_both_latencies_agree() -> None:
    found, _, _ = simulate(Settings(rate=1000.0, in_flight=10), seconds=2, stall=NO_STALL)
    assert found[Series.E2E_SCHED].max_ns == found[Series.E2E].max_ns == ROUND_TRIP
    assert found[Series.LAG].max_ns == 0


def test_a_closed_loop_records_no_schedule() -> None:
    """There is none, and a made-up one would look like a measurement."""
    found, broker, intended = simulate(Settings(in_flight=10), seconds=2, stall=STALL)
    assert set(found) == {Series.E2E, Series.CONFIRM}
    assert intended == len(broker.written)


def test_after_a_stall_only_overdue_messages_are_caught_up() -> None:
    """Once the backlog is gone the rate is the intended one again: no stored permits, no burst."""
    _, broker, _ = simulate(Settings(rate=100.0, in_flight=1000), seconds=4, stall=STALL)
    for start in range(0, 4 * SECOND, 100 * MS):
        inside = sum(1 for at in broker.written if start < at <= start + 100 * MS)
        assert inside == 10


def test_a_fast_schedule_is_served_in_quanta_without_losing_messages() -> None:
    found, broker, intended = simulate(Settings(rate=50_000.0, in_flight=1000), seconds=1, stall=NO_STALL)
    assert intended == 50_001
    assert intended - len(broker.written) <= 10
    assert found[Series.LAG].max_ns <= 250_000


def test_the_window_is_never_exceeded() -> None:
    _, broker, _ = simulate(Settings(in_flight=7), seconds=1, stall=STALL)
    assert len(broker.written) == 7 * (SECOND // ROUND_TRIP) + 7 or len(broker.written) == 7 * (SECOND // ROUND_TRIP)


@pytest.mark.parametrize(
    ("publishers", "rate", "seconds"), [(1, 20_000.0, 1.0), (10, 1000.0, 1.0), (500, 7.0, 3.0), (5000, 0.9, 4.0)]
)
def test_any_number_of_publishers_keeps_its_rate(publishers: int, rate: float, seconds: float) -> None:
    """When the broker keeps up, what is published is what the schedules asked for, and that is the rate: spread evenly,
    so that no stretch of time has more than its share."""
    settings = Settings(rate=rate, in_flight=100, publishers=publishers)
    _, brokers, intended = simulate_many(settings, seconds=seconds, stall=NO_STALL)
    written = sorted(at for broker in brokers for at in broker.written)
    assert intended - 5 <= len(written) <= intended
    assert abs(len(written) - publishers * rate * seconds) <= max(0.005 * publishers * rate * seconds, 1)
    assert max(broker.written[-1] for broker in brokers) <= seconds * SECOND
    share = publishers * rate / 10
    for start in range(0, round(seconds * SECOND) - SECOND // 10, SECOND // 10):
        inside = bisect_right(written, start + SECOND // 10) - bisect_right(written, start)
        assert abs(inside - share) <= max(0.02 * share, 5)
