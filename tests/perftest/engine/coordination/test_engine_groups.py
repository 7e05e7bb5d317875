"""Runs with more than production has today: several measured groups, a further kind of action, workers elsewhere."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from perftest.engine.api import RunError, RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.engine.coordination.timeline import Action, Moment
from perftest.engine.workers.remote_worker import RemoteWorker, WorkerError
from perftest.metrics.interval import Phase
from perftest.metrics.recovery import Progress
from perftest.spec.plan import Group, Plan, QueueSpec, Settings, Step
from perftest.spec.timed_action import Do, TimedAction
from tests.perftest.engine.coordination.test_engine_execute import MemorySink, plan
from tests.perftest.testing.memory_transport import MemoryTransport

SMALL = Settings(in_flight=5, size_bytes=100)


async def in_memory() -> MemoryTransport:
    return MemoryTransport()


def run(stub: ModuleType, sink: MemorySink, change: Any = lambda plan: plan, **more: Any) -> RunOutcome:
    """A run of one step whose workers live in this process."""

    async def scenario() -> RunOutcome:
        async with stub.StubBroker() as broker:
            more.setdefault("start_worker", functools.partial(RemoteWorker.start, start=in_memory))
            made = change(plan(broker.uri, SMALL, drain_s=5.0))
            return await execute(made, sink, StopRequest(), **more)

    return asyncio.run(scenario())


def test_a_run_needs_nothing_of_its_workers_but_the_transport(stub: ModuleType) -> None:
    """Wherever a worker is: the same records come back."""
    sink = MemorySink()
    outcome = run(stub, sink)
    assert outcome.state == "finished", outcome
    (ledger,) = sink.ledgers
    assert ledger["verdict"] == "ok" and ledger["published"] == sum(i.published for i in sink.intervals) > 0
    assert {(interval.group, interval.host) for interval in sink.intervals} == {("", "local")}


def test_a_failure_in_the_moment_in_which_an_interval_is_cut_does_not_lose_it(stub: ModuleType) -> None:
    """The answer with the interval comes first, and the failure before anybody could record it."""
    cuts = 0

    async def start(*arguments: Any) -> RemoteWorker:
        worker = await RemoteWorker.start(*arguments, start=in_memory)
        call = worker.call

        async def call_and_fail(op: str, **more: Any) -> Any:
            nonlocal cuts
            answer = await call(op, **more)
            cuts += op == "cut"
            if op == "cut" and cuts == 3:
                worker.failed.set_result(RunError(what="gave up", where="test", fix=""))
            return answer

        worker.call = call_and_fail  # type: ignore[method-assign]
        return worker

    sink = MemorySink()
    outcome = run(stub, sink, start_worker=start)
    assert outcome.error is not None and outcome.error.what == "gave up"
    assert len(sink.intervals) == 4, "the last one is the time after the failure"
    assert sum(interval.published for interval in sink.intervals) == sink.ledgers[0]["published"] > 0


def test_measured_groups_run_side_by_side_and_their_records_stay_apart(stub: ModuleType) -> None:
    def two_groups(made: Plan) -> Plan:
        quick = made.steps
        slow = tuple(replace(step, settings=replace(SMALL, rate=100.0)) for step in quick)
        orders = Group(name="orders", queues=(QueueSpec(name="o"),), steps=quick)
        audits = Group(name="audits", queues=(QueueSpec(name="a"),), steps=slow)
        return replace(made, groups=(orders, audits, Group.background("noise", (QueueSpec(name="n"),), SMALL)))

    sink = MemorySink()
    outcome = run(stub, sink, two_groups)
    assert outcome.state == "finished", outcome
    published = {
        name: sum(interval.published for interval in sink.intervals if interval.group == name)
        for name in ("orders", "audits")
    }
    measured = [interval for interval in sink.intervals if interval.measured]
    assert {interval.group for interval in measured} == published.keys(), "background load is in no figure"
    assert {interval.worker for interval in measured} == {"orders 0", "audits 0"}
    (ledger,) = sink.ledgers
    assert {each["name"]: each["published"] for each in ledger["groups"]} == published
    assert ledger["published"] == sum(published.values()) and ledger["verdict"] == "ok"
    (noise,) = ledger["background"]
    beside = [interval for interval in sink.intervals if not interval.measured]
    assert noise["name"] == "noise" and {interval.group for interval in beside} == {"noise"}
    assert noise["published"] == sum(interval.published for interval in beside) > 0
    of_audits = [interval for interval in sink.intervals if interval.group == "audits"]
    seconds = sum(interval.length_ns for interval in of_audits) / 1e9
    assert 0 < published["audits"] <= 1 + 100.0 * seconds, "each group has settings of its own"
    steady = [sum(i.group == name and i.phase is Phase.STEADY for i in sink.intervals) for name in published]
    assert steady[0] == steady[1] > 0, "all are cut together"


@dataclass(frozen=True, slots=True)
class Note(Action):
    """A kind of action that production does not have."""

    text: str


def test_a_further_kind_of_action_is_done_at_its_time_and_ends_an_interval(stub: ModuleType) -> None:
    sink, done = MemorySink(), []

    async def note(action: Note) -> None:
        done.append((action.text, len(sink.intervals)))

    outcome = run(stub, sink, more=[Moment(0, 0.25, Note("in the middle"))], handlers={Note: note})
    assert outcome.state == "finished", outcome
    ((text, intervals_before),) = done
    assert text == "in the middle" and 0 < intervals_before < len(sink.intervals)
    length_ns = sum(interval.length_ns for interval in sink.intervals[:intervals_before])
    assert length_ns > 0.2e9, "the intervals before it cover its time"


def test_an_action_is_left_out_once_the_load_is_over(stub: ModuleType) -> None:
    done: list[Any] = []

    async def note(action: Note) -> None:
        done.append(action)

    def stopped_early(made: Plan) -> Plan:
        return made.changed(publishing=replace(made.publishing, messages=10))

    sink = MemorySink()
    outcome = run(stub, sink, stopped_early, more=[Moment(0, 0.3, Note("too late"))], handlers={Note: note})
    assert (outcome.state, done) == ("finished", [])
    assert "limit_reached" in sink.kinds() and sink.ledgers[0]["published"] == 10


def noise(start_s: float, stop_s: float, *rates: float) -> Group:
    """Background load with a step of 0.2 s for each rate."""
    steps = tuple(
        Step(number=at, label=f"rate={rate:g}", settings=replace(SMALL, rate=rate), duration_s=0.2, warmup_s=0.0)
        for at, rate in enumerate(rates, start=1)
    )
    return Group(
        name="noise", measured=False, queues=(QueueSpec(name="n"),), steps=steps, start_s=start_s, stop_s=stop_s
    )


def test_background_load_begins_changes_and_ends_at_its_own_times(stub: ModuleType) -> None:
    """Each of its intervals is of one of its steps, and all of them together are its account."""
    sink = MemorySink()
    outcome = run(stub, sink, lambda made: longer(made, noise(0.2, 0.8, 100.0, 400.0)))
    assert outcome.state == "finished", outcome
    kinds = sink.kinds()
    order = ["step_started", "background_started", "background_changed", "background_ended"]
    assert [kind for kind in kinds if kind in order] == order, kinds
    beside = [interval for interval in sink.intervals if not interval.measured]
    assert [step for step, _ in itertools.groupby(interval.step for interval in beside)] == [1, 2]
    assert beside[-1].phase is Phase.DRAIN and any(i.phase is Phase.WARMUP and i.step == 2 for i in beside)
    (ended,) = [event for event in sink.events if event["kind"] == "background_ended"]
    (account,) = sink.ledgers[0]["background"]
    assert account["verdict"] == "ok" and account["published"] == ended["published"] > 0
    assert ended["published"] == sum(interval.published for interval in beside)
    measured = [interval for interval in sink.intervals if interval.measured]
    assert sink.ledgers[0]["published"] == sum(interval.published for interval in measured)


def test_background_load_ahead_of_the_measured_load_is_warm_up_until_then(stub: ModuleType) -> None:
    sink = MemorySink()
    outcome = run(stub, sink, lambda made: longer(made, noise(-0.5, math.inf, 200.0)))
    assert outcome.state == "finished", outcome
    first = next(at for at, interval in enumerate(sink.intervals) if interval.measured)
    assert first > 1 and {interval.phase for interval in sink.intervals[:first]} == {Phase.WARMUP}
    assert sum(interval.length_ns for interval in sink.intervals[:first]) > 0.4e9


def longer(made: Plan, beside: Group) -> Plan:
    """A plan of a second without a warm-up, with a background load."""
    steps = tuple(replace(step, duration_s=1.2, warmup_s=0.0) for step in made.steps)
    return replace(made.changed(steps=steps), groups=(made.changed(steps=steps).load, beside), interval_s=0.1)


def test_background_load_that_fails_in_the_middle_fails_the_run_and_keeps_what_was_measured(stub: ModuleType) -> None:
    """The rest would be another experiment: the measured load without its background."""

    async def start(first: Any, *arguments: Any) -> RemoteWorker:
        worker = await RemoteWorker.start(first, *arguments, start=in_memory)
        call = worker.call

        async def refuse(op: str, **more: Any) -> Any:
            if op == "prepare":
                raise WorkerError(RunError(what="refused", where="queue 'n'", fix=""))
            return await call(op, **more)

        if first["worker"].startswith("background"):
            worker.call = refuse  # type: ignore[method-assign]
        return worker

    sink = MemorySink()
    outcome = run(stub, sink, lambda made: longer(made, noise(0.3, math.inf, 200.0)), start_worker=start)
    assert outcome.state == "failed" and outcome.error is not None and outcome.error.what == "refused"
    assert sink.ledgers[0]["published"] == sum(interval.published for interval in sink.intervals) > 0


def test_the_progress_of_the_measured_load_is_told_to_its_last_message(stub: ModuleType) -> None:
    """Finer than the intervals; nothing of the background load; and nothing at all without a timeline."""
    told: list[tuple[int, Phase, Progress]] = []

    def hear(step: int, phase: Phase, notes: Any) -> None:
        told.extend((step, phase, Progress(*note)) for note in notes)

    def with_timeline(made: Plan) -> Plan:
        noise = Group.background("noise", (QueueSpec(name="n"),), SMALL)
        timeline = (TimedAction(at_s=0.1, do=Do.KILL),)
        return replace(made, groups=(*made.groups, noise), timeline=timeline)

    sink = MemorySink()
    outcome = run(stub, sink, with_timeline, on_progress=hear)
    assert outcome.state == "finished", outcome
    measured = [interval for interval in sink.intervals if interval.measured]
    for phase in (Phase.WARMUP, Phase.STEADY, Phase.DRAIN):
        of_phase = [note for _, noted, note in told if noted is phase]
        assert sum(note.confirmed for note in of_phase) == sum(i.confirmed for i in measured if i.phase is phase)
    moments = [note.t_ns for _, _, note in told]
    assert moments == sorted(moments) and {step for step, *_ in told} == {1}
    assert {i.start_ns + i.length_ns for i in measured} <= set(moments), "the end of an interval is known"
    told.clear()
    run(stub, MemorySink(), on_progress=hear)
    assert not told
