"""Whole runs with a real worker process: what the sink gets, and how a run ends when something goes wrong."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import psutil
import pytest
from hdrh.histogram import HdrHistogram

from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.engine.host import ThisHost
from perftest.engine.workers import remote_worker
from perftest.metrics.interval import Interval, Phase, Series
from perftest.spec.behaviour import Connecting, Consuming, Exchange, ExitWhen, Publishing, RoutingKeys
from perftest.spec.plan import Group, Isolation, Plan, QueueSpec, QueueType, Settings, Step
from tests.perftest.testing.figures import figures


class MemorySink:
    """Keeps everything; calls ``on_interval`` after each interval."""

    def __init__(self, on_interval: Callable[[Interval], None] = lambda record: None) -> None:
        self.intervals: list[Interval] = []
        self.events: list[dict[str, Any]] = []
        self.ledgers: list[dict[str, Any]] = []
        self._on_interval = on_interval

    def interval(self, record: Interval) -> None:
        self.intervals.append(record)
        self._on_interval(record)

    def event(self, record: dict[str, object]) -> None:
        self.events.append(record)

    def ledger(self, record: dict[str, object]) -> None:
        self.ledgers.append(record)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]


def plan(uri: str, *settings: Settings, isolation: Isolation = Isolation.LIVE, **more: Any) -> Plan:
    steps = tuple(
        Step(number=number, label=f"step {number}", settings=one, duration_s=0.4, warmup_s=0.1)
        for number, one in enumerate(settings or (Settings(in_flight=5, size_bytes=100),), start=1)
    )
    plain = {"interval_s": 0.1, "drain_s": 5.0, "steps": steps, **more}
    plain.setdefault("queues", (QueueSpec(name="q"),))
    return Plan.of(name="t", title="t", uris=(uri,), isolation=isolation, **plain)


def run(
    stub: ModuleType, make: Callable[[str], Plan], sink: MemorySink, stop: StopRequest | None = None, **script: Any
) -> RunOutcome:
    async def scenario() -> RunOutcome:
        async with stub.StubBroker(stub.Script(**script)) as broker:
            return await execute(make(broker.uri), sink, stop or StopRequest())

    return asyncio.run(scenario())


def workers() -> list[psutil.Process]:
    """Worker processes that run, in the order of their start. Other tests' children may have ended and not been waited
    for yet."""
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    running = [child for child in children if "perftest.engine.workers.worker" in child.cmdline()]
    return sorted(running, key=lambda child: (child.create_time(), child.pid))


def test_a_live_sweep_is_recorded_without_a_gap(stub: ModuleType) -> None:
    sink = MemorySink()
    steps = (Settings(in_flight=1, size_bytes=100), Settings(in_flight=50, size_bytes=100, ack_interval=10))
    outcome = run(stub, lambda uri: plan(uri, *steps), sink)
    assert (outcome.state, outcome.error) == ("finished", None)
    assert (outcome.broker.product, outcome.broker.cluster_name) == ("Stub", "stub")
    order = [(i.step, i.phase) for i in sink.intervals]
    assert order == sorted(order, key=lambda key: (key[0], list(Phase).index(key[1])))
    assert set(order) == {(1, "warmup"), (1, "steady"), (2, "warmup"), (2, "steady"), (2, "drain")}
    for before, after in pairwise(sink.intervals):
        assert before.start_ns + before.length_ns == after.start_ns
    (ledger,) = sink.ledgers
    assert ledger["verdict"] == "ok" and ledger["complete"] and ledger["drained"]
    for name in ("published", "confirmed", "delivered"):
        assert sum(getattr(i, name) for i in sink.intervals) == ledger[name] > 0
    wanted = ["run_started", "connected", "step_started", "steady", "step_ended", "step_started", "setting_changed"]
    assert sink.kinds() == [*wanted, "steady", "step_ended", "drained", "run_ended"]
    assert all(event["t_ns"] > 1.7e18 for event in sink.events)
    assert not workers()


@pytest.mark.parametrize("warmup_s", [0.0, 0.1])
def test_no_interval_mixes_two_settings(stub: ModuleType, warmup_s: float) -> None:
    """While clients change, and more of them connect, the load is neither the one nor the other: that is in no figure,
    even where a step has no warm-up."""
    sink = MemorySink()
    settings = (
        Settings(in_flight=1, size_bytes=100),
        Settings(in_flight=5, size_bytes=100, publishers=20, consumers=20),
    )
    steps = tuple(
        Step(number=number, label="", settings=one, duration_s=0.4, warmup_s=warmup_s)
        for number, one in enumerate(settings, start=1)
    )
    outcome = run(stub, lambda uri: plan(uri, steps=steps, workers=2), sink)
    assert outcome.state == "finished", outcome
    (changed_ns,) = (event["t_ns"] for event in sink.events if event["kind"] == "setting_changed")
    second = [interval for interval in sink.intervals if interval.step == 2]
    mixed = {(i.worker, i.phase) for i in second if i.start_ns < changed_ns}
    assert mixed == {("0", "warmup"), ("1", "warmup")}
    assert {i.phase for i in second} == {"warmup", "steady", "drain"}
    for worker in ("0", "1"):
        mine = [interval for interval in sink.intervals if interval.worker == worker]
        assert all(a.start_ns + a.length_ns == b.start_ns for a, b in pairwise(mine))
    assert sum(interval.published for interval in sink.intervals) == sink.ledgers[0]["published"]


def test_latencies_of_an_interval_are_histograms_that_agree_with_its_counts(stub: ModuleType) -> None:
    sink = MemorySink()
    run(stub, lambda uri: plan(uri, Settings(in_flight=5, size_bytes=100, rate=500.0)), sink)
    for interval in sink.intervals:  # also in the drain, when the schedule has ended
        counts = [figures(interval.latencies[s]).count if s in interval.latencies else 0 for s in Series]
        by_series = dict(zip(Series, counts, strict=True))
        assert by_series[Series.CONFIRM] == by_series[Series.CONFIRM_SCHED]
        assert by_series[Series.E2E] == by_series[Series.E2E_SCHED]
    steady = [i for i in sink.intervals if i.phase is Phase.STEADY]
    assert set(steady[0].latencies) == set(Series)
    for interval in steady:
        for series, count in ((Series.E2E, interval.delivered), (Series.CONFIRM, interval.confirmed)):
            latency = figures(interval.latencies[series])
            decoded = HdrHistogram.decode(latency.payload)
            assert latency.count == decoded.get_total_count() == count
            assert latency.p99_ns == decoded.get_value_at_percentile(99)
            assert decoded.get_max_value() >= latency.max_ns
        assert abs(interval.intended - 500 * interval.length_ns / 1e9) <= 1
        assert interval.worker_cpu_ns > 0


def test_isolated_steps_get_queues_of_their_own(stub: ModuleType) -> None:
    """What one setting leaves in the queue must not be delivered to the next, and is not lost."""
    sink = MemorySink()
    steps = (Settings(in_flight=50, prefetch=1, size_bytes=100), Settings(in_flight=50, prefetch=100, size_bytes=100))
    outcome = run(stub, lambda uri: plan(uri, *steps, isolation=Isolation.ISOLATED, drain_s=0.0), sink)
    assert outcome.state == "finished"
    (ledger,) = sink.ledgers
    assert (ledger["lost"], ledger["foreign"], ledger["unexpected"]) == (0, 0, 0)
    assert ledger["undelivered"] == ledger["abandoned"]
    assert {i.step for i in sink.intervals} == {1, 2}
    assert sink.kinds().count("step_started") == 2


def test_the_rest_of_an_interval_is_acknowledged_and_counted_at_the_end_of_the_drain(stub: ModuleType) -> None:
    sink = MemorySink()
    run(stub, lambda uri: plan(uri, Settings(in_flight=5, size_bytes=100, ack_interval=700, prefetch=0)), sink)
    (ledger,) = sink.ledgers
    assert sum(interval.acked for interval in sink.intervals) == ledger["delivered"] > 0


@pytest.mark.parametrize("isolation", Isolation)
def test_a_step_ends_when_everybody_has_reached_the_limit(stub: ModuleType, isolation: Isolation) -> None:
    """In good order, as at the end of its time; fresh clients of a next step begin to count anew."""
    sink = MemorySink()
    one = Settings(in_flight=5, size_bytes=100, consumers=2)
    steps = tuple(Step(number=number, label="", settings=one, duration_s=math.inf, warmup_s=0) for number in (1, 2))
    more: dict[str, Any] = {"consuming": Consuming(messages=200), "steps": steps, "drain_s": 0.1}
    outcome = run(stub, lambda uri: plan(uri, isolation=isolation, **more), sink)
    assert (outcome.state, outcome.error) == ("finished", None)
    steps_run = 2 if isolation is Isolation.ISOLATED else 1
    reached = [event for event in sink.events if event["kind"] == "limit_reached"]
    assert [event["text"] for event in reached] == ["Consumer reached message limit [2]"] * steps_run
    assert [event["step"] for event in reached] == list(range(1, steps_run + 1))
    assert sum(interval.delivered for interval in sink.intervals) == 400 * steps_run
    assert sink.kinds().count("step_ended") == steps_run
    assert sink.kinds()[-1] == "run_ended"


def test_a_limit_that_is_reached_at_once_leaves_a_step_to_measure(stub: ModuleType) -> None:
    """A few messages are sent before anybody would have looked: they are no drain."""
    sink = MemorySink()
    few = Settings(in_flight=5, size_bytes=100)
    steps = (Step(number=1, label="", settings=few, duration_s=math.inf, warmup_s=0),)
    outcome = run(stub, lambda uri: plan(uri, publishing=Publishing(messages=3), steps=steps), sink)
    assert outcome.state == "finished"
    steady = [interval for interval in sink.intervals if interval.phase is Phase.STEADY]
    assert steady and sum(interval.published for interval in steady) == 3


class _Robbed(ThisHost):
    """Its hypervisor took an hour before the load began, and nothing since."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    def stolen_ns(self) -> int:
        self._asked += 1
        return 0 if self._asked == 1 else 3600 * 10**9


def test_what_a_hypervisor_took_before_the_load_is_in_no_interval(stub: ModuleType) -> None:
    """A step of some milliseconds would have lost many times its own length."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            made = plan(broker.uri).changed(steps=(replace(plan(broker.uri).steps[0], warmup_s=0.0),))
            await execute(made, sink, StopRequest(), host=_Robbed())

    sink = MemorySink()
    asyncio.run(scenario())
    assert sum(interval.steal_ns for interval in sink.intervals) == 0


def test_a_run_without_consumers_has_nothing_to_drain(stub: ModuleType) -> None:
    """A warning that is always there is read by nobody."""
    sink = MemorySink()
    run(stub, lambda uri: plan(uri, Settings(consumers=0, in_flight=5, size_bytes=100)), sink)
    assert "drain_timeout" not in sink.kinds()
    (told,) = (event for event in sink.events if event["kind"] == "not_drained")
    assert told["left"] == sink.ledgers[0]["undelivered"] > 0


async def _backlog(broker: Any, count: int) -> None:
    """Fill the queue q, and leave it so."""
    filler = replace(plan(broker.uri, Settings(consumers=0, size_bytes=100, in_flight=10)), delete_queues=False)
    steps = (replace(filler.steps[0], duration_s=math.inf, warmup_s=0.0),)
    await execute(filler.changed(steps=steps, publishing=Publishing(messages=count)), MemorySink(), StopRequest())
    assert len(broker.queues["q"].ready) == count


@pytest.mark.parametrize("count", [15, 1000])
@pytest.mark.parametrize("latency_us", [0, 100.0])
def test_a_drain_counts_from_the_subscription_on(stub: ModuleType, count: int, latency_us: float) -> None:
    """What lay in the queue comes before anybody would have looked: that is the load."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            await _backlog(broker, count)
            taker = plan(broker.uri, Settings(publishers=0, consumer_latency_us=latency_us))
            steps = (replace(taker.steps[0], duration_s=math.inf, warmup_s=0.0),)
            consuming = Consuming(exit_when=ExitWhen.EMPTY)
            taker = replace(taker.changed(steps=steps, consuming=consuming), delete_queues=False)
            outcome = await execute(taker, sink, StopRequest())
            assert outcome.state == "finished"

    sink = MemorySink()
    asyncio.run(scenario())
    steady = [interval for interval in sink.intervals if interval.phase is Phase.STEADY]
    assert sum(interval.delivered for interval in steady) == sum(interval.acked for interval in steady) == count
    assert sum(interval.handled for interval in steady) == count
    (taken,) = (event for event in sink.events if event["kind"] == "taken")
    whole_ns = steady[-1].start_ns + steady[-1].length_ns - steady[0].start_ns
    assert taken["count"] == count and 0 < taken["end_ns"] - taken["start_ns"] < whole_ns
    assert taken["start_ns"] >= steady[0].start_ns


def test_what_came_before_the_load_began_is_told(stub: ModuleType) -> None:
    """With publishers the load begins later: a backlog that is gone by then is no zero, but in no figure."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            await _backlog(broker, 30)
            await execute(replace(plan(broker.uri), delete_queues=False), sink, StopRequest())

    sink = MemorySink()
    asyncio.run(scenario())
    early = [event for event in sink.events if event["kind"] == "delivered_before"]
    counted = sum(interval.delivered for interval in sink.intervals)
    assert counted + sum(event["count"] for event in early) == sink.ledgers[0]["delivered"] + 30


def test_the_first_interrupt_ends_the_step_in_good_order(stub: ModuleType) -> None:
    stop = StopRequest()
    sink = MemorySink(lambda record: stop.finish_step() if record.phase is Phase.STEADY else None)
    step = Step(number=1, label="", settings=Settings(in_flight=5, size_bytes=100), duration_s=float("inf"), warmup_s=0)
    outcome = run(stub, lambda uri: plan(uri, steps=(step,)), sink, stop)
    assert outcome.state == "interrupted"
    (ledger,) = sink.ledgers
    assert (ledger["complete"], ledger["drained"], ledger["verdict"]) == (False, True, "ok")
    assert sink.kinds()[-3:] == ["drained", "interrupted", "run_ended"]


def test_an_abort_keeps_what_was_recorded(stub: ModuleType) -> None:
    stop = StopRequest()
    sink = MemorySink(lambda record: stop.abort() if record.phase is Phase.STEADY else None)
    outcome = run(stub, lambda uri: plan(uri), sink, stop)
    assert outcome.state == "interrupted"
    assert sink.intervals and len(sink.ledgers) == 1
    assert "drained" not in sink.kinds()
    assert not workers()


def test_a_stop_before_the_start_starts_nothing(stub: ModuleType) -> None:
    stop = StopRequest()
    stop.finish_step()
    sink = MemorySink()
    assert run(stub, lambda uri: plan(uri), sink, stop).state == "interrupted"
    assert sink.intervals == [] and sink.ledgers == []


@pytest.mark.parametrize(
    ("script", "what", "fix"),
    [
        ({"password": "other"}, "login refused", "password"),
        ({"vhosts": ("x",)}, "virtual host refused", "virtual host"),
        ({"refuse_declare": [(406, "PRECONDITION_FAILED")]}, "406 PRECONDITION_FAILED", "other properties"),
    ],
)
def test_a_refusal_comes_back_in_three_lines(stub: ModuleType, script: dict[str, Any], what: str, fix: str) -> None:
    outcome = run(stub, lambda uri: plan(uri), MemorySink(), **script)
    assert outcome.state == "failed" and outcome.error is not None
    assert what in outcome.error.what
    assert "127.0.0.1" in outcome.error.where and "guest@" not in outcome.error.where
    assert fix in outcome.error.fix


def test_an_unreachable_broker_is_said_to_be_unreachable() -> None:
    sink = MemorySink()
    outcome = asyncio.run(execute(plan("amqp://127.0.0.1:1"), sink, StopRequest()))
    assert outcome.state == "failed" and outcome.error is not None
    assert "127.0.0.1:1" in outcome.error.what
    assert sink.kinds()[-2:] == ["error", "run_ended"]
    assert not workers()


def test_a_killed_worker_fails_the_run_and_does_not_hang_it(stub: ModuleType) -> None:
    def kill(record: Interval) -> None:
        for worker in workers():
            os.kill(worker.pid, signal.SIGKILL)

    outcome = run(stub, lambda uri: plan(uri), MemorySink(kill))
    assert outcome.state == "failed" and outcome.error is not None
    assert "status -9" in outcome.error.what


def test_a_sink_that_fails_ends_the_run(stub: ModuleType) -> None:
    """A full disk must not look like a finished run."""

    def full(record: Interval) -> None:
        raise OSError(28, "No space left on device")

    outcome = run(stub, lambda uri: plan(uri), MemorySink(full))
    assert outcome.state == "failed" and isinstance(outcome.cause, OSError)
    assert outcome.error is not None and "No space left" in outcome.error.what
    assert not workers()


# Several workers


TWO_QUEUES = (QueueSpec(name="q0"), QueueSpec(name="q1"))
MANY = Settings(in_flight=5, size_bytes=100, publishers=3, consumers=5)


@pytest.mark.parametrize("settings", [MANY, Settings(in_flight=5, size_bytes=100), replace(MANY, ack_interval=7)])
@pytest.mark.parametrize(
    "more",
    [
        {"workers": 3},
        {"workers": 2, "queues": TWO_QUEUES},
        {"workers": 2, "queues": TWO_QUEUES, "connecting": Connecting(exclusive=True)},
        {"workers": 2, "publishing": Publishing(channels=3), "consuming": Consuming(channels=2)},
    ],
)
def test_workers_share_clients_and_their_records_add_up(
    stub: ModuleType, settings: Settings, more: dict[str, Any]
) -> None:
    """Publisher and consumer of one message are in different processes; each message is accounted for once."""
    sink = MemorySink()
    outcome = run(stub, lambda uri: plan(uri, settings, **more), sink)
    assert outcome.state == "finished", outcome
    (ledger,) = sink.ledgers
    assert (ledger["verdict"], ledger["drained"]) == ("ok", True), ledger
    assert ledger["published"] == ledger["unique"] > 0
    for name in ("published", "confirmed", "delivered"):
        assert sum(getattr(i, name) for i in sink.intervals) == ledger[name]
    names = {str(index) for index in range(more["workers"])}
    assert {i.worker for i in sink.intervals} == names
    for name in names:
        mine = [i for i in sink.intervals if i.worker == name]
        assert [(i.step, i.phase) for i in mine] == [(i.step, i.phase) for i in sink.intervals if i.worker == "0"]
        for before, after in pairwise(mine):
            assert before.start_ns + before.length_ns == after.start_ns
    assert not workers()


def test_every_worker_cuts_at_the_same_times(stub: ModuleType) -> None:
    """One schedule for all: they have as many intervals, and each is the same stretch of time."""
    sink = MemorySink()
    run(stub, lambda uri: plan(uri, MANY, workers=2), sink)
    first, second = ([i for i in sink.intervals if i.worker == name and i.phase is not Phase.DRAIN] for name in "01")
    for one, other in zip(first, second, strict=True):
        assert max(one.start_ns, other.start_ns) < min(one.start_ns + one.length_ns, other.start_ns + other.length_ns)


@pytest.mark.parametrize(
    ("fate", "what"), [("DUPLICATE", "duplicated"), ("DELAY", "reordered"), ("DAMAGE", "damaged"), ("LOSE", "lost")]
)
def test_a_lie_is_caught_in_whichever_worker_it_shows(stub: ModuleType, fate: str, what: str) -> None:
    def of(number: int) -> Any:
        return stub.Fate[fate] if number in (60, 105) else stub.Fate.DELIVER

    settings = Settings(in_flight=20, size_bytes=100)  # publisher and consumer are in different workers
    sink = MemorySink()
    outcome = run(stub, lambda uri: plan(uri, settings, workers=2, drain_s=0.5), sink, fate=of)
    (ledger,) = sink.ledgers
    assert outcome.state == "finished"
    assert (ledger[what], ledger["verdict"]) == (2, "violated"), ledger
    assert sum(example["last"] - example["first"] + 1 for example in ledger["examples"]) == 2


BY_KEY = {"exchange": Exchange(name="e"), "publishing": Publishing(routing_keys=RoutingKeys.FIXED, routing_key="k")}
GOES = QueueSpec(name="q", type=QueueType.CLASSIC, durable=False, auto_delete=True)
LOSING: dict[str, tuple[Settings, dict[str, Any], int]] = {
    "queue that goes with its consumer": (Settings(), {"queues": (GOES,)}, 2),
    "queues of consumers' own": (Settings(consumers=2), {"queues": (replace(GOES, name=""),), **BY_KEY}, 4),
    "several queues, one key": (Settings(consumers=2), {"queues": (GOES, replace(GOES, name="r")), **BY_KEY}, 4),
    "queue that stays": (Settings(), {"queues": (replace(GOES, auto_delete=False),), **BY_KEY}, 2),
}


@pytest.mark.parametrize("case", LOSING)
def test_a_loss_is_told_from_lateness_whatever_becomes_of_the_queue(stub: ModuleType, case: str) -> None:
    """PerfTest's queues go with their last consumer: they are kept until it was seen that they hold nothing."""

    def of(number: int) -> Any:
        return stub.Fate.LOSE if number in (60, 105) else stub.Fate.DELIVER

    settings, more, lost = LOSING[case]
    sink = MemorySink()
    settings = replace(settings, in_flight=20, size_bytes=100)
    run(stub, lambda uri: plan(uri, settings, workers=2, drain_s=0.3, **more), sink, fate=of)
    (ledger,) = sink.ledgers
    assert (ledger["lost"], ledger["verdict"]) == (lost, "violated"), ledger


@pytest.mark.parametrize("name", ["q", ""])
def test_what_waits_for_a_slow_consumer_is_not_lost(stub: ModuleType, name: str) -> None:
    """It goes back to its queue when the consumer leaves, and is seen there before the queue goes."""
    slow = Settings(in_flight=200, prefetch=5, size_bytes=100, consumer_latency_us=50_000)
    sink = MemorySink()
    run(stub, lambda uri: plan(uri, slow, drain_s=0.3, queues=(replace(GOES, name=name),), **BY_KEY), sink)
    (ledger,) = sink.ledgers
    assert (ledger["lost"], ledger["verdict"]) == (0, "unknown"), ledger
    assert ledger["undelivered"] > 0


@pytest.mark.parametrize("queue", [GOES, QueueSpec(name="q")])
def test_what_somebody_else_consumes_is_not_lost(stub: ModuleType, queue: QueueSpec) -> None:
    """Two runs that share a queue each get a part of what the other published."""

    async def scenario() -> MemorySink:
        async with stub.StubBroker() as broker:
            taker = replace(plan(broker.uri, Settings(publishers=0, in_flight=0), queues=(queue,)), delete_queues=False)
            taker = taker.changed(steps=(replace(taker.steps[0], duration_s=60.0),))
            takes = asyncio.Event()
            stop, beside, sink = StopRequest(), MemorySink(lambda record: takes.set()), MemorySink()
            other = asyncio.create_task(execute(taker, beside, stop))
            async with asyncio.timeout(30):
                await takes.wait()
            settings = Settings(in_flight=20, size_bytes=100)
            await execute(plan(broker.uri, settings, drain_s=0.3, queues=(queue,)), sink, StopRequest())
            stop.finish_step()
            await other
            return sink

    (ledger,) = asyncio.run(scenario()).ledgers
    assert (ledger["lost"], ledger["verdict"]) == (0, "unknown"), ledger
    assert ledger["undelivered"] > 0


def test_a_queue_that_may_have_gone_meanwhile_accuses_nobody(stub: ModuleType) -> None:
    """Its consumer was away: what it held went with it, as it was told to."""

    async def scenario() -> MemorySink:
        script = stub.Script(fate=lambda number: stub.Fate.LOSE if number == 30 else stub.Fate.DELIVER)
        async with stub.StubBroker(script) as broker:
            dropped: list[Interval] = []

            def drop(record: Interval) -> None:
                if record.phase is Phase.STEADY and not dropped:
                    dropped.append(record)
                    broker.drop_connections()

            sink = MemorySink(on_interval=drop)
            settings = Settings(in_flight=20, size_bytes=100)
            await execute(plan(broker.uri, settings, drain_s=0.3, queues=(GOES,), **BY_KEY), sink, StopRequest())
            return sink

    (ledger,) = asyncio.run(scenario()).ledgers
    assert (ledger["lost"], ledger["verdict"]) == (0, "unknown"), ledger


def test_numbers_of_clients_change_over_workers(stub: ModuleType) -> None:
    steps = [
        replace(MANY, publishers=publishers, consumers=consumers) for publishers, consumers in ((1, 1), (5, 4), (2, 1))
    ]
    sink = MemorySink()
    run(stub, lambda uri: plan(uri, *steps, workers=2), sink)
    (ledger,) = sink.ledgers
    assert ledger["verdict"] == "ok", ledger
    assert ledger["unique"] == ledger["published"]


def test_isolated_steps_over_workers_share_no_message(stub: ModuleType) -> None:
    sink = MemorySink()
    steps = (replace(MANY, prefetch=1), replace(MANY, prefetch=100))
    run(stub, lambda uri: plan(uri, *steps, isolation=Isolation.ISOLATED, workers=2), sink)
    (ledger,) = sink.ledgers
    assert (ledger["verdict"], ledger["foreign"], ledger["unexpected"]) == ("ok", 0, 0), ledger


def test_a_worker_that_dies_fails_the_run_and_costs_only_its_own_data(stub: ModuleType) -> None:
    """The last record of the other and the ledger of what it knows are kept."""
    killed: list[int] = []

    def kill(record: Interval) -> None:
        if record.phase is Phase.STEADY and not killed:
            victim = workers()[-1]
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    sink = MemorySink(kill)
    outcome = run(stub, lambda uri: plan(uri, MANY, workers=2), sink)
    assert outcome.state == "failed" and outcome.error is not None
    assert "status -9" in outcome.error.what
    (ledger,) = sink.ledgers
    assert (ledger["complete"], ledger["drained"], ledger["verdict"]) == (False, False, "unknown")
    assert len({i.worker for i in sink.intervals if i.phase is Phase.DRAIN}) == 1
    assert not workers()


def stop_one(phase: Phase, stopped: list[psutil.Process], which: int = -1) -> Callable[[Interval], None]:
    """Stops one worker, in the order of their start, once an interval of that phase is over."""

    def act(record: Interval) -> None:
        if record.phase is phase and not stopped:
            stopped.append(workers()[which])
            stopped[0].suspend()

    return act


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is silent for long."""
    monkeypatch.setattr(remote_worker, "WATCH_S", 0.1)
    monkeypatch.setattr(remote_worker, "SILENCE_S", 2.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("phase", [Phase.WARMUP, Phase.STEADY])
def test_a_worker_that_is_stopped_is_named_and_killed_and_costs_only_its_own_data(
    stub: ModuleType, phase: Phase
) -> None:
    """It is there and says nothing, on a machine that hangs or in somebody's debugger: no wait for it is endless."""
    stopped: list[psutil.Process] = []
    sink = MemorySink(stop_one(phase, stopped))
    outcome = run(stub, lambda uri: plan(uri, MANY, workers=2), sink)
    assert outcome.state == "failed" and outcome.error is not None
    assert "said nothing for 2" in outcome.error.what and "SIGSTOP" in outcome.error.fix
    assert str(stopped[0].pid) in outcome.error.where
    assert "worker 1, with 1 of 3 publishers and 3 of 5 consumers" in outcome.error.where
    assert not stopped[0].is_running()
    (ledger,) = sink.ledgers
    assert (ledger["complete"], ledger["drained"], ledger["verdict"]) == (False, False, "unknown")
    kept = [interval for interval in sink.intervals if interval.worker == "0"]
    assert sum(interval.published for interval in kept) == ledger["published"] > 0
    assert [before.start_ns + before.length_ns for before in kept[:-1]] == [after.start_ns for after in kept[1:]]
    assert not workers()


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_is_killed_in_the_middle_of_a_cut_costs_no_interval_of_the_others(stub: ModuleType) -> None:
    killed: list[psutil.Process] = []

    def kill(record: Interval) -> None:
        if record.phase is Phase.STEADY and not killed:
            killed.append(workers()[-1])
            killed[0].suspend()  # the next cut stays without its answer
            asyncio.get_running_loop().call_later(0.5, killed[0].kill)

    sink = MemorySink(kill)
    outcome = run(stub, lambda uri: plan(uri, MANY, workers=2), sink)
    assert outcome.error is not None and "status -9" in outcome.error.what
    (ledger,) = sink.ledgers
    kept = [interval for interval in sink.intervals if interval.worker == "0"]
    assert sum(interval.published for interval in kept) == ledger["published"] > 0


def test_who_insists_on_an_end_does_not_wait_for_a_stopped_worker(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_worker, "WATCH_S", 0.1)
    monkeypatch.setattr(remote_worker, "SILENCE_S", 10_000.0)
    monkeypatch.setattr(remote_worker, "HURRY_SILENCE_S", 0.5)
    stopped: list[psutil.Process] = []
    stop = StopRequest()
    act = stop_one(Phase.WARMUP, stopped)

    def interval(record: Interval) -> None:
        act(record)
        stop.abort()

    sink = MemorySink(interval)
    outcome = run(stub, lambda uri: plan(uri, MANY, workers=2), sink, stop)
    assert outcome.state == "failed" and outcome.error is not None
    assert "said nothing" in outcome.error.what
    assert len(sink.ledgers) == 1
    assert not workers()


def test_a_background_load_that_is_stopped_fails_the_run_and_the_measured_ledger_is_kept(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_worker, "WATCH_S", 0.1)
    monkeypatch.setattr(remote_worker, "SILENCE_S", 1.0)
    background = Group.background(
        name="noise", queues=(QueueSpec(name="b"),), settings=Settings(in_flight=5, size_bytes=100)
    )
    sink = MemorySink(stop_one(Phase.STEADY, [], which=0))
    long = Step(number=1, label="", settings=Settings(in_flight=5, size_bytes=100), duration_s=60, warmup_s=0)
    outcome = run(stub, lambda uri: plan(uri, steps=(long,), background=(background,)), sink)
    assert outcome.error is not None and "background noise" in outcome.error.where
    assert (
        sum(interval.published for interval in sink.intervals if interval.measured) == sink.ledgers[0]["published"] > 0
    )
    assert not workers()


def test_every_queue_of_every_worker_gets_its_copy(stub: ModuleType) -> None:
    """One key for two queues, and a queue of each consumer's own: three copies and more of each message."""
    queues = (QueueSpec(name="a"), QueueSpec(name=""))
    sink = MemorySink()
    fixed = Publishing(routing_keys=RoutingKeys.FIXED, routing_key="k")
    fields: dict[str, Any] = {"queues": queues, "publishing": fixed, "exchange": Exchange(name="e", type="fanout")}
    settings = replace(MANY, consumers=4, publishers=3)  # consumers 1 and 3 have queues of their own
    outcome = run(stub, lambda uri: plan(uri, settings, workers=3, **fields), sink)
    assert outcome.state == "finished", outcome
    (ledger,) = sink.ledgers
    assert ledger["verdict"] == "ok", ledger
    assert ledger["unique"] == ledger["delivered"] == 3 * ledger["published"] > 0


def test_the_run_ends_when_the_last_limit_in_any_worker_is_reached(stub: ModuleType) -> None:
    endless = Step(number=1, label="", settings=MANY, duration_s=float("inf"), warmup_s=0)
    sink = MemorySink()
    limits: dict[str, Any] = {"publishing": Publishing(messages=40), "consuming": Consuming(messages=24)}
    outcome = run(stub, lambda uri: plan(uri, steps=(endless,), workers=3, **limits), sink)
    assert outcome.state == "finished", outcome
    (reached,) = [event["text"] for event in sink.events if event["kind"] == "limit_reached"]
    assert "[3]" in reached and "[5]" in reached
    assert sink.ledgers[0]["published"] == sink.ledgers[0]["delivered"] == 120


def test_an_abort_while_clients_connect_ends_the_run(stub: ModuleType) -> None:
    """Thousands of connections take a while; who insists does not wait for them."""
    stop = StopRequest()

    class Impatient(MemorySink):
        def event(self, record: dict[str, object]) -> None:
            super().event(record)
            if record["kind"] == "workers":
                stop.abort()

    sink = Impatient()
    outcome = run(stub, lambda uri: plan(uri, replace(MANY, publishers=300, consumers=300), workers=2), sink, stop)
    assert outcome.state == "interrupted"
    assert "connected" not in sink.kinds()
    assert not workers()


def test_a_background_load_runs_beside_and_is_in_no_figure(stub: ModuleType) -> None:
    beside = Group.background(
        name="noise",
        queues=(QueueSpec(name="other"),),
        settings=Settings(in_flight=3, size_bytes=60),
    )
    sink = MemorySink()
    outcome = run(stub, lambda uri: plan(uri, background=(beside,)), sink)
    assert outcome.state == "finished", outcome
    (ledger,) = sink.ledgers
    measured, beside = ([i for i in sink.intervals if i.measured is which] for which in (True, False))
    assert {(i.worker, i.group) for i in measured} == {("0", "")}
    assert {(i.worker, i.group) for i in beside} == {("background noise", "noise")}
    assert ledger["published"] == sum(i.published for i in measured)
    assert ledger["foreign"] == 0
    (noise,) = ledger["background"]
    assert noise["published"] == sum(i.published for i in beside)
    assert (noise["name"], noise["verdict"]) == ("noise", "ok")
    (ended,) = [event for event in sink.events if event["kind"] == "background_ended"]
    assert ended["published"] == noise["published"] > 0
    kinds = sink.kinds()
    assert (
        kinds.index("background_started")
        < kinds.index("connected")
        < kinds.index("drained")
        < kinds.index("background_ended")
    )


def test_a_background_load_that_cannot_run_fails_the_run(stub: ModuleType) -> None:
    beside = Group.background(name="noise", queues=(QueueSpec(name="other"),), settings=Settings(size_bytes=60))
    sink = MemorySink()
    refusal = [(406, "PRECONDITION_FAILED")]
    outcome = run(stub, lambda uri: plan(uri, background=(beside,)), sink, refuse_declare=refusal)
    assert outcome.state == "failed" and outcome.error is not None
    assert "other" in outcome.error.where
    assert not workers()


def test_more_connections_than_files_are_refused_with_the_number_needed(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perftest.engine.coordination.coordinator.files_allowed", lambda: 100)
    sink = MemorySink()
    outcome = run(stub, lambda uri: plan(uri, replace(MANY, publishers=200), workers=2), sink)
    assert outcome.state == "failed" and outcome.error is not None
    assert "205 connections need 167 open files in each of 2 processes; 100 are allowed" in outcome.error.what
    assert "167" in outcome.error.fix


def test_messages_given_back_to_another_worker_accuse_nobody(stub: ModuleType) -> None:
    """Every message is refused and comes again, perhaps to a consumer of the other worker, which may be heard first."""
    sink = MemorySink()
    refusing = Consuming(nack=True, requeue=True)
    settings = Settings(in_flight=3, prefetch=2, size_bytes=100, publishers=2, consumers=4, rate=100.0)
    run(stub, lambda uri: plan(uri, settings, workers=2, consuming=refusing, drain_s=0.2), sink)
    (ledger,) = sink.ledgers
    assert ledger["redelivered"] > 0
    assert (ledger["duplicated"], ledger["reordered"], ledger["unexpected"]) == (0, 0, 0), ledger


def test_connections_lost_in_all_workers_cost_no_message_and_accuse_nobody(stub: ModuleType) -> None:
    sink = MemorySink()

    async def scenario() -> RunOutcome:
        async with stub.StubBroker() as broker:
            lost: list[int] = []

            def lose(record: Interval) -> None:
                if record.phase is Phase.STEADY and record.worker == "0" and len(lost) < 2:
                    lost.append(1)
                    broker.drop_connections()

            sink._on_interval = lose
            return await execute(plan(broker.uri, MANY, workers=2, drain_s=20.0), sink, StopRequest())

    outcome = asyncio.run(scenario())
    assert outcome.state == "finished", outcome
    (ledger,) = sink.ledgers
    assert ledger["verdict"] == "ok", ledger
    assert sink.kinds().count("connection_lost") >= 8
