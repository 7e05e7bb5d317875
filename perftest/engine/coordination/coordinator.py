"""Drives a run from the command's process: plays the timeline of the plan, cuts intervals, records everything.

Theory of operation. The workers do everything that touches a message; the coordinator says when. The plan's timeline
(:mod:`perftest.engine.coordination.timeline`) names the actions of the run and their times. Between two actions the
coordinator cuts the time into intervals of the plan's length. An interval always ends at an action, so no interval
spans two phases or two settings. All cuts have absolute times of the monotonic clock: the workers learn the time of a
cut a moment ahead, and each cuts at exactly that time.

A live run opens the clients once, changes their settings from step to step, and drains after the last step. An isolated
run opens, drains and closes in every step. Whatever happens, the coordinator gives every record to the sink, closes the
ledger and ends the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from perftest.engine.accounting.ledger import merge_records
from perftest.engine.api import BrokerProperties, RunError, RunOutcome, Sink, StopRequest
from perftest.engine.coordination.background import BackgroundRun
from perftest.engine.coordination.clocks import Clocks, OnClock, ignore_clocks
from perftest.engine.coordination.load import Cut, IntervalPlace, Load, drain
from perftest.engine.coordination.timeline import (
    Action,
    BeginBackground,
    BeginBackgroundStep,
    BeginStep,
    Drain,
    EndBackground,
    EndStep,
    EndWarmup,
    Moment,
    timeline,
    with_more,
)
from perftest.engine.coordination.warm_up import WarmUpRule, WarmUpSlot
from perftest.engine.host import THIS_HOST, Host
from perftest.engine.workers import wire
from perftest.engine.workers.remote_worker import RemoteWorker, StartWorker, WorkerError
from perftest.engine.workers.shares import choose_workers, connections, files_needed, names_of_workers, seated
from perftest.engine.workers.transport import files_allowed
from perftest.metrics.interval import Interval, Phase
from perftest.spec.plan import Group, Isolation, Plan, Step

CLOSE_TIMEOUT_S: Final = 5.0
"""Time that a failed or aborted run may take to tidy up."""

CUT_LEAD_S: Final = 0.05
"""Time before a cut at which the workers are told."""

BEGIN_LEAD_S: Final = 0.02

LEAD_OF_HOSTS_S: Final = 0.25
"""Time before any common moment at which workers on other hosts are told."""

CUT_PATIENCE_S: Final = 0.5
"""Longest wait for an interval of another host, unless half an interval is shorter. A later interval counts at a later
cut."""
_SHORTEST_REST: Final = 0.25
"""Share of the usual length below which a last interval before an action is joined with the interval before it."""

_T = TypeVar("_T")
Handler = Callable[[Any], Awaitable[None]]
"""Function that carries out an action. No interval is cut meanwhile, so an action that takes long belongs in a task of
its own."""


OnProgress = Callable[[int, Phase, Sequence[Sequence[int]]], None]
"""Receiver of each interval of each worker: its step, its phase, and the notes of the worker
(:data:`perftest.metrics.recovery.Progress`)."""


def _ignore_progress(_step: int, _phase: Phase, _notes: Sequence[Sequence[int]]) -> None:
    """Nobody asks how the load recovers."""


async def execute(
    plan: Plan,
    sink: Sink,
    stop: StopRequest,
    *,
    more: Iterable[Moment] = (),
    handlers: Mapping[type[Action], Handler] | None = None,
    on_progress: OnProgress = _ignore_progress,
    on_clock: OnClock = ignore_clocks,
    addresses: Mapping[str, str] | None = None,
    start_worker: StartWorker = RemoteWorker.start,
    host: Host = THIS_HOST,
    warm_up: WarmUpRule | None = None,
) -> RunOutcome:
    """Run ``plan`` to its end, or until ``stop``; records go to ``sink`` as they come.

    ``more`` are moments beside the plan's, and ``handlers`` carry out their actions. ``on_progress`` gets the progress
    of the measured load, if the plan has a timeline, and ``on_clock`` the records of other hosts' clocks. Hosts with an
    address in ``addresses`` (by name) are asked for the time over UDP. ``start_worker`` starts a worker, and ``host``
    is the machine of the coordinator, whose time is the time of the run. ``warm_up`` may lengthen the warm-up of each
    step.

    Never raises for faults of a broker, a network or a user: the outcome of such a run is ``failed``, with a
    :class:`~perftest.engine.api.RunError`. An exception of the sink ends the run in the same way.
    """
    run = _Run(plan, sink, stop, start_worker, host, on_clock, addresses)
    run.handlers.update(handlers or {})
    run.on_progress = on_progress
    run.warm_up = warm_up
    return await run.drive(with_more(timeline(plan, isolated=plan.isolation is Isolation.ISOLATED), more))


class _SinkError(Exception):
    """The sink failed: nothing can be recorded any more."""


class _Run:
    """One run: its loads, the state of its timeline, and the way to the sink."""

    def __init__(
        self, plan: Plan, sink: Sink, stop: StopRequest, start_worker: StartWorker, host: Host, on_clock: OnClock,
        addresses: Mapping[str, str] | None,
    ) -> None:  # fmt: skip
        self.handlers: dict[type[Action], Handler] = {
            BeginBackground: self._begin_background,
            BeginBackgroundStep: self._begin_background_step,
            BeginStep: self._begin_step,
            EndWarmup: self._end_warmup,
            EndStep: self._end_step,
            Drain: self._drain,
            EndBackground: self._end_background,
        }
        self.on_progress: OnProgress = _ignore_progress
        self.warm_up: WarmUpRule | None = None
        self._warm_up_slots: list[WarmUpSlot] = []
        """The intervals of the present step's warm-up."""
        self._plan = plan
        self._sink = sink
        self._stop = stop
        self._start_worker = start_worker
        self._host = host
        self._stopping = asyncio.Event()
        self._aborting = asyncio.Event()
        self._broker = BrokerProperties()
        self._offset_ns = host.epoch_offset_ns()
        self._clocks = Clocks(
            self._offset_ns, host, lambda record: self._record(on_clock, record), self._event, addresses
        )
        self._cut_lead_s = LEAD_OF_HOSTS_S if plan.hosts else CUT_LEAD_S
        self._cut_patience_s = min(CUT_PATIENCE_S, plan.interval_s / 2) if plan.hosts else None
        self._begin_lead_s = LEAD_OF_HOSTS_S if plan.hosts else BEGIN_LEAD_S
        self._seated: dict[str, Plan] = {}
        """The plan of each group, by its name, with the workers that it has on each host."""
        self._workers: dict[str, int] = {}
        self._measured: list[Load] = []
        self._background: list[BackgroundRun] = []
        self._background_records: list[dict[str, Any]] = []
        self._step: Step | None = None
        self._phase = Phase.WARMUP
        self._open = False
        self._played_step = 0
        self._played_s = 0.0
        self._cut_at = 0.0
        self._step_has_intervals = False
        self._stolen_ns = host.stolen_ns()
        self._sink_broken: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        stop.subscribe(self._on_stop)

    async def drive(self, moments: Sequence[Moment]) -> RunOutcome:
        """See :func:`execute`."""
        try:
            outcome = await self._drive(moments)
        except WorkerError as failure:
            outcome = RunOutcome(state="failed", error=failure.error, broker=self._broker)
        except _SinkError as failure:
            cause = failure.__cause__
            error = RunError(
                what=f"the results cannot be recorded: {cause}",
                where="result sink",
                fix="make room on the disk, or check the permissions",
            )
            sink_cause = cause if isinstance(cause, Exception) else None
            outcome = RunOutcome(state="failed", error=error, cause=sink_cause, broker=self._broker)
        await self._end(outcome)
        return outcome

    async def _drive(self, moments: Sequence[Moment]) -> RunOutcome:
        self._event("run_started", text=self._plan.title or self._plan.name)
        if not self._stopping.is_set():
            self._workers = self._choose_workers()
            await self._play(moment for moment in moments if not _is_at_the_end(moment))
        if self._stopping.is_set():
            self._event("interrupted", text="stopped by the user; what was recorded is kept")
        complete = not self._stopping.is_set()
        await self._play(moment for moment in moments if _is_at_the_end(moment))
        await self._guard(_all(background.done() for background in self._background))
        if self._measured:
            ledgers = await self._guard(_all(load.ledger(complete=complete) for load in self._measured))
            self._record_ledger(list(zip(self._measured, ledgers, strict=True)), complete=complete)
        return RunOutcome(state="finished" if complete else "interrupted", broker=self._broker)

    def _on_stop(self) -> None:
        self._stopping.set()
        if self._stop.aborting:
            self._aborting.set()
            for load in self._loads:
                load.hurry()

    # The timeline

    async def _play(self, moments: Iterable[Moment]) -> None:
        for step, at_s, action in moments:
            if step != self._played_step:
                self._played_step, self._played_s = step, 0.0
            if at_s < self._played_s and not self._measured:
                self._played_s = at_s  # background load runs ahead of the first step
            await self._run_until(at_s)
            if not (self._over and self._is_left_out(action)):
                await self.handlers[type(action)](action)

    def _is_left_out(self, action: Action) -> bool:
        """Whether an action is not done once the load is over. Steps with clients of their own go on after a step whose
        clients have all stopped by themselves."""
        if isinstance(action, BeginStep):
            return action.index > 0 and (self._stopping.is_set() or not self._isolated)
        return not isinstance(action, EndStep | Drain | EndBackground)

    async def _run_until(self, at_s: float) -> None:
        """Cut intervals until a time of the step, until the user stops the run, or until all clients have stopped."""
        if at_s <= self._played_s:
            return
        length_s, self._played_s = at_s - self._played_s, at_s
        if not self._open:
            if at_s <= 0:  # background load runs ahead; between isolated steps the clock stands still
                await self._run_ahead(length_s)
            return
        end = self._cut_at + length_s
        if self._over:
            if self._phase is Phase.STEADY and not self._step_has_intervals and not self._stopping.is_set():
                await self._cut(self._phase)  # clients with little to do have done it before the first interval
            return
        interval_s = self._plan.interval_s
        while self._cut_at < end and not self._over:
            last = end - self._cut_at < interval_s * (1 + _SHORTEST_REST)
            self._cut_at = end if last else self._cut_at + interval_s
            await self._sleep_until(self._cut_at - self._cut_lead_s)
            await self._cut(self._phase, 0 if self._over else self._run_clock(self._cut_at), self._cut_patience_s)
            self._step_has_intervals = True
            if self._plan.hosts:
                self._skip_missed_cuts(end)

    def _skip_missed_cuts(self, end: float) -> None:
        """Other calls wait for every worker, also for one that is silent until it is given up. The intervals that
        passed meanwhile are one long interval, and not many that begin and end in the same moment."""
        missed = int((min(self._now(), end) - self._cut_at) // self._plan.interval_s)
        if missed > 1:
            self._cut_at += (missed - 1) * self._plan.interval_s
            self._event("cut_late", text=f"a worker answered late: {missed} intervals are one")

    async def _run_ahead(self, length_s: float) -> None:
        """Cut intervals of the background load for some time. They are warm-up of the step that comes."""
        self._cut_at = self._now()
        end = self._cut_at + length_s
        while self._cut_at < end and not self._stopping.is_set():
            self._cut_at = min(end, self._cut_at + self._plan.interval_s)
            await self._sleep_until(self._cut_at - self._cut_lead_s)
            await self._cut(Phase.WARMUP, 0 if self._over else self._run_clock(self._cut_at))

    @property
    def _isolated(self) -> bool:
        return self._plan.isolation is Isolation.ISOLATED

    @property
    def _over(self) -> bool:
        """Whether the user has stopped the run, or every client that stops by itself has stopped."""
        exhausted = bool(self._measured) and all(load.exhausted.is_set() for load in self._measured)
        return self._stopping.is_set() or exhausted

    async def _sleep_until(self, deadline: float) -> None:
        """Wait; a stop request or the last reached limit ends the wait, a failure raises."""
        waits = {asyncio.ensure_future(self._stopping.wait())}
        if self._measured:
            waits.add(asyncio.ensure_future(_all(load.exhausted.wait() for load in self._measured)))  # type: ignore[arg-type]
        waiting = asyncio.wait(waits, timeout=max(deadline - self._now(), 0), return_when=asyncio.FIRST_COMPLETED)
        try:
            await self._guard(waiting)
        finally:
            for wait in waits:
                wait.cancel()

    async def _cut(self, phase: Phase, at_ns: int = 0, patience_s: float | None = None) -> None:
        """End the interval of every load that runs: the measured loads, and the background loads that are steady
        now."""
        beside = [background for background in self._background if background.steady]
        place = IntervalPlace(self._step_number, phase)
        cuts = [(load, place) for load in self._measured]
        cuts += [(background.load, background.place(place)) for background in beside]
        await self._guard(_all(load.cut(at_ns, place, patience_s) for load, place in cuts))
        steal_ns = self._steal_ns()
        records = self._record_intervals([(load, load.take()) for load in self._measured], steal_ns)
        if phase is Phase.WARMUP:
            self._warm_up_slots.append(WarmUpSlot.of(records))
        for background in beside:
            self._record_background(background, background.load.take(), steal_ns)

    def _record_intervals(self, cuts: Iterable[tuple[Load, list[Cut]]], steal_ns: int) -> list[Interval]:
        return [self._record_interval(load, cut, steal_ns) for load, found in cuts for cut in found]

    def _record_background(self, background: BackgroundRun, found: list[Cut], steal_ns: int = 0) -> None:
        for cut in found:
            background.count(cut.source, cut.record)
            self._record_interval(background.load, cut, steal_ns)

    def _record_interval(self, load: Load, cut: Cut, steal_ns: int) -> Interval:
        source, record, (step, phase) = (
            cut.source,
            cut.record,
            cut.place or IntervalPlace(self._step_number, Phase.DRAIN),
        )
        place: dict[str, Any] = {"group": load.group.name, "measured": load.group.measured, **source._asdict()}
        place |= {"step": step, "phase": phase, "steal_ns": steal_ns}  # workers of other hosts tell their own
        latencies = wire.counts_from_json(record.pop("counts"))
        progress = record.pop("progress")
        if self._plan.timeline and load.group.measured:
            self.on_progress(step, phase, progress)
        interval = Interval(**place | record, latencies=latencies)
        self._record(self._sink.interval, interval)
        return interval

    @property
    def _step_number(self) -> int:
        """The number of the present step; before the first step, the first step's."""
        return (self._step or self._plan.steps[0]).number

    # Steps

    async def _begin_step(self, action: BeginStep) -> None:
        step = self._step = self._plan.steps[action.index]
        self._phase = Phase.WARMUP if step.warmup_s else Phase.STEADY
        self._step_has_intervals = False
        self._warm_up_slots.clear()
        if not self._measured:
            await self._start_measured()
        settings = dataclasses.asdict(step.settings)
        if self._open:
            self._event("step_started", label=step.label, settings=settings)
            at_ns = self._common_moment()
            await self._guard(
                _all(load.apply(load.group.steps[action.index].settings, at_ns) for load in self._measured)
            )
            self._event("setting_changed", text=step.label)
            await self._cut_after_change()
        else:
            self._steal_ns()
            await self._open_clients(action.index)
            self._event("step_started", label=step.label, settings=settings)
            self._cut_at = self._now() + self._begin_lead_s
            await self._cut_background()
            takes_only = not any(load.group.steps[action.index].settings.publishers for load in self._measured)
            if not takes_only:  # else the first interval began with the subscriptions
                self._steal_ns()
            at_ns = self._run_clock(self._cut_at)
            await self._guard(_all(load.begin(at_ns, takes_only=takes_only) for load in self._measured))

    async def _cut_after_change(self) -> None:
        """Close the interval in which clients changed from one setting to the next, one by one. It belongs to neither
        setting and is recorded as warm-up, which is in no figure."""
        self._cut_at = self._now() + self._begin_lead_s
        await self._cut(Phase.WARMUP, self._run_clock(self._cut_at), self._cut_patience_s)

    async def _cut_background(self) -> None:
        """Close the interval in which the measured clients connected: it belongs to no step."""
        beside = [background for background in self._background if background.steady]
        at_ns, place = self._run_clock(self._cut_at), IntervalPlace(self._step_number, Phase.WARMUP)
        await self._guard(_all(background.load.cut(at_ns, background.place(place)) for background in beside))
        for background in beside:
            self._record_background(background, background.load.take())

    async def _open_clients(self, index: int) -> None:
        first = self._broker == BrokerProperties()
        self._open = True
        loads = (load.open(load.group.steps[index].settings, fresh=self._isolated) for load in self._measured)
        opening = asyncio.ensure_future(self._guard(_all(loads)))
        aborted = asyncio.ensure_future(self._aborting.wait())
        await asyncio.wait({opening, aborted}, return_when=asyncio.FIRST_COMPLETED)
        aborted.cancel()
        if not opening.done():  # the user will not wait for thousands of connections
            opening.cancel()
            return
        self._broker = BrokerProperties(**opening.result()[0])
        if first:
            broker = f"{self._broker.product} {self._broker.version}".strip()
            self._event("connected", text=f"connected to {broker or 'a broker that does not say what it is'}")

    async def _end_warmup(self, action: EndWarmup) -> None:
        warmup_s = self._plan.steps[action.index].warmup_s
        said = f"warm-up of {warmup_s:g} s is over"
        if self.warm_up is not None:
            more_s = await self._warm_up_longer(self.warm_up)
            are_steady = self.warm_up.is_met(self._warm_up_slots)
            found = "rates are steady" if are_steady else "rates are not steady yet"
            said = f"warm-up of {warmup_s:g} s and of {more_s:g} s more is over: {found}"
        self._phase = Phase.STEADY
        self._event("steady", text=said)

    async def _warm_up_longer(self, rule: WarmUpRule) -> float:
        """Cut intervals until the rule is met or the time of the rule is over. The clock of the step stands still: the
        rest of the step is as long as planned. Returns the seconds."""
        step_s, more_s = self._played_s, 0.0
        while more_s < rule.more_s and not rule.is_met(self._warm_up_slots) and not self._over:
            length_s = min(self._plan.interval_s, rule.more_s - more_s)
            await self._run_until(step_s + length_s)
            self._played_s = step_s
            more_s += length_s
        return round(more_s, 6)

    async def _end_step(self, action: EndStep) -> None:
        step = self._plan.steps[action.index]
        if step is self._step:
            self._event("step_ended", label=step.label)

    async def _drain(self, _action: Drain) -> None:
        """Stop publishing, let consumers finish, close the account."""
        if not self._open:
            return
        drained = False
        if not self._stop.aborting:
            at_ns = self._common_moment()
            await self._guard(_all(load.quiesce(at_ns) for load in self._measured))
            drained = await self._await_drain()
        abandoned, delete = self._isolated and not drained, self._plan.delete_queues
        closing = self._guard(
            _all(load.close(drained=drained, abandoned=abandoned, delete=delete) for load in self._measured)
        )
        self._open = False
        if not self._stop.aborting:
            await closing
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await closing
        except TimeoutError:
            self._event("error", text="the broker did not let the connections and queues be closed in time")

    async def _await_drain(self) -> bool:
        """Wait until every confirmed message was delivered; returns whether that was so in time."""
        left, stalled, hopeless = await self._guard(drain(self._measured, self._plan.drain_s, self._pause_and_cut))
        await self._guard(_all(load.flush() for load in self._measured))
        await self._cut(Phase.DRAIN)
        if not left:
            self._event("drained", text="every confirmed message was delivered")
        elif hopeless:
            text = f"nobody is left to consume: {left} messages stay in their queues"
            self._event("not_drained", text=text, left=left)
        elif not self._stop.aborting:
            text = f"{left} messages were not delivered by the end of the drain"
            if stalled:
                text += ", which ended early: a worker is lost, and nothing arrived any more"
            self._event("drain_timeout", text=text, left=left)
        return not left

    async def _pause(self, seconds: float) -> bool:
        """Wait; returns whether the user still wants to wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._aborting.wait()
        return not self._aborting.is_set()

    async def _pause_and_cut(self, seconds: float) -> bool:
        """A pause in the drain of measured loads; its intervals are recorded, too."""
        if not await self._pause(seconds):
            return False
        if self._now() >= self._cut_at + self._plan.interval_s:
            self._cut_at = self._now()
            await self._cut(Phase.DRAIN)
        return True

    # Loads

    @property
    def _loads(self) -> list[Load]:
        return [*(background.load for background in self._background), *self._measured]

    def _choose_workers(self) -> dict[str, int]:
        """The number of workers of each group."""
        hosts, allowed, chosen = self._plan.hosts, files_allowed(), {}
        cores = sum(host.cores for host in hosts) or self._host.cores()
        for group in self._plan.groups:
            wanted = group.workers or (self._plan.workers if group.measured else 0)
            plan = dataclasses.replace(self._plan.only(group), workers=wanted)
            workers = choose_workers(plan, cores=cores, files=allowed)
            self._seated[group.name] = seated(self._plan, group, wanted=workers)
            workers = sum(host.workers for host in self._seated[group.name].hosts) or workers
            chosen[group.name] = workers
            needed = files_needed(plan, workers)
            if needed > allowed:
                raise WorkerError(_too_few_files(plan, workers, needed, allowed))
        return chosen

    async def _start_measured(self) -> None:
        for group in self._plan.measured:
            prefix = f"{group.name} " if group.name else ""
            names = self._names(group, prefix)
            self._measured.append(self._load(group, names))
        for load in self._measured:
            await load.start(self._offset_ns)
        by_group = {group.name: self._workers[group.name] for group in self._plan.measured}
        if (workers := sum(by_group.values())) > 1:
            text = f"{workers} worker processes share the clients"
            self._event("workers", text=text, workers=workers, by_group=by_group)

    def _load(self, group: Group, names: Sequence[str]) -> Load:
        def on_event(event: dict[str, object]) -> None:
            self._on_worker_event(event | {"group": group.name} if group.name else event)

        plan = self._seated[group.name]
        return Load(plan, group, names, on_event, self._clocks, self._start_worker, self._host)

    def _names(self, group: Group, prefix: str) -> list[str]:
        return names_of_workers(self._seated[group.name].hosts, prefix, self._workers[group.name])

    # Background load

    async def _begin_background(self, action: BeginBackground) -> None:
        group, workers = action.group, self._workers[action.group.name]
        name = f"background {group.name}"
        names = [name] if workers == 1 else self._names(group, f"{name} ")
        background = BackgroundRun(self._load(group, names))
        self._background.append(background)
        opening = background.then(lambda: self._open_background(background))
        if not self._open:  # nothing is measured yet: the measured load finds the background load at work
            await self._guard(opening)

    async def _open_background(self, background: BackgroundRun) -> None:
        load, group = background.load, background.group
        await load.start(self._offset_ns)
        await load.open(background.settings, fresh=False)
        await load.begin(self._common_moment())
        background.steady = True
        text, workers = f"background load {group.name} runs", len(load.names)
        self._event("background_started", text=text, group=group.name, workers=workers)

    async def _begin_background_step(self, action: BeginBackgroundStep) -> None:
        for background in self._backgrounds_of(action.group):
            background.then(functools.partial(self._change_background, background, action.index))

    async def _change_background(self, background: BackgroundRun, index: int) -> None:
        """Change the settings, and close the interval in which they changed: it belongs to neither step."""
        background.steady = False
        step = background.group.steps[index]
        if not background.recorded:  # connecting took all the time of its first step
            await self._cut_alone(background)
        await background.load.apply(step.settings, self._common_moment())
        background.step = index
        await self._cut_alone(background)
        background.steady = True
        name = background.group.name
        self._event("background_changed", text=f"background load {name}: {step.label}", group=name)

    async def _cut_alone(self, background: BackgroundRun) -> None:
        """End an interval of a background load that is not steady."""
        await background.load.cut(0, background.place(IntervalPlace(self._step_number, Phase.WARMUP)))
        self._record_background(background, background.load.take())

    async def _end_background(self, action: EndBackground) -> None:
        for background in list(self._backgrounds_of(action.group)):
            background.ended = True
            background.then(functools.partial(self._close_background, background, self._plan.drain_s))

    def _backgrounds_of(self, group: Group) -> Iterator[BackgroundRun]:
        """The background load of a group, if it has begun and was not told to end."""
        return (each for each in self._background if each.group is group and not each.ended)

    async def _close_background(self, background: BackgroundRun, drain_s: float) -> None:
        """Drain for at most ``drain_s``, clean up, and tell what became of the messages, if its workers still can."""
        load, background.steady = background.load, False
        try:
            await load.quiesce(self._common_moment())
            left, *_ = await drain([load], 0.0 if self._stop.aborting else drain_s, self._pause)
            await load.cut(0, background.place(IntervalPlace(self._step_number, Phase.DRAIN)))
            self._record_background(background, load.take())
            await load.close(drained=not left, abandoned=False, delete=self._plan.delete_queues)
            ledger = await load.ledger(complete=True)
        except WorkerError:
            return
        name = background.group.name
        self._background_records.append({"name": name, **ledger})
        self._event("background_ended", group=name, **background.summary(ledger))

    # The end

    def _record_ledger(self, ledgers: list[tuple[Load, dict[str, Any]]], *, complete: bool) -> None:
        record = ledgers[0][1]
        if len(ledgers) > 1:
            groups = [{"name": load.group.name, **ledger} for load, ledger in ledgers]
            record = merge_records(groups, complete=complete) | {"groups": groups}
        background = {"background": self._background_records} if self._background_records else {}
        self._record(self._sink.ledger, record | background)

    async def _end(self, outcome: RunOutcome) -> None:
        """Tidy up after a failure as well as can be, end the workers, write the last event."""
        try:
            if outcome.state == "failed" and self._measured:
                await self._salvage()
            await self._clocks.finish()
            if outcome.error is not None:
                self._event("error", text=f"{outcome.error.what} ({outcome.error.where})")
            self._event("run_ended", text=outcome.state)
        except (_SinkError, WorkerError, TimeoutError):
            pass  # the outcome already says why the run failed; nothing more can be recorded
        finally:
            for background in self._background:
                background.cancel()
            await _all(load.stop() for load in self._loads)

    async def _salvage(self) -> None:
        """Record the last intervals and the ledger of a run that failed, from the workers that still answer, and leave
        nothing behind on the broker, if the broker still answers."""
        if self._step is not None and self._open:
            cuts = await _all(load.salvage_cut() for load in self._measured)
            with contextlib.suppress(_SinkError):  # a sink that broke may still take the ledger, which is more
                self._record_intervals(zip(self._measured, cuts, strict=True), self._steal_ns())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await _all(load.salvage_close(delete=self._plan.delete_queues) for load in self._measured)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for background in [each for each in self._background if each.steady]:
                    await self._close_background(background, 0.0)
        ledgers = await _all(load.salvage_ledger() for load in self._measured)
        found = [(load, ledger) for load, ledger in zip(self._measured, ledgers, strict=True) if ledger is not None]
        if found:
            self._record_ledger(found, complete=False)

    # Plumbing

    def _now(self) -> float:
        """The monotonic clock, in seconds."""
        return self._host.monotonic_ns() / 1e9

    def _steal_ns(self) -> int:
        """The CPU time that a hypervisor took since the last call."""
        before_ns, self._stolen_ns = self._stolen_ns, self._host.stolen_ns()
        return max(self._stolen_ns - before_ns, 0)

    def _common_moment(self) -> int:
        """A moment for an action, late enough to tell all hosts, on the run clock; 0, now, on a single host."""
        return self._run_clock(self._now() + LEAD_OF_HOSTS_S) if self._plan.hosts else 0

    def _run_clock(self, at: float) -> int:
        """A moment of the monotonic clock, in seconds, as the workers tell the time."""
        return round(at * 1e9) + self._offset_ns

    async def _guard(self, work: Awaitable[_T]) -> _T:
        """Await ``work`` unless a worker gives up or the sink breaks first: then raise why."""
        task = asyncio.ensure_future(work)
        failures = [load.failed for load in self._loads]
        beside = [background.failed for background in self._background]
        rivals: set[asyncio.Future[Any]] = {task, self._sink_broken, *failures, *beside}
        try:
            await asyncio.wait(rivals, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return task.result()
        task.cancel()
        if self._sink_broken.done():
            raise _SinkError from self._sink_broken.result()
        if broken := [each.result() for each in beside if each.done()]:
            raise broken[0]
        raise WorkerError(next(failure.result() for failure in failures if failure.done()))

    def _event(self, kind: str, **more: object) -> None:
        record: dict[str, object] = {"t_ns": self._host.monotonic_ns() + self._offset_ns, "kind": kind}
        if self._step is not None and kind not in ("run_started", "run_ended"):
            record["step"] = self._step.number
        self._record(self._sink.event, record | more)

    def _on_worker_event(self, event: dict[str, object]) -> None:
        if self._step is not None:
            event["step"] = self._step.number
        try:
            self._record(self._sink.event, event)
        except _SinkError as failure:
            if not self._sink_broken.done() and isinstance(failure.__cause__, Exception):
                self._sink_broken.set_result(failure.__cause__)

    def _record(self, receive: Any, record: Any) -> None:
        try:
            receive(record)
        except Exception as error:
            raise _SinkError from error


def _is_at_the_end(moment: Moment) -> bool:
    """Whether a moment comes after the last step, also when the user has stopped the run."""
    return isinstance(moment.action, EndBackground) and math.isinf(moment.at_s)


async def _all(works: Iterable[Awaitable[_T]]) -> list[_T]:
    """The results of works that are done at the same time."""
    return await asyncio.gather(*works)


def _too_few_files(plan: Plan, workers: int, needed: int, allowed: int) -> RunError:
    processes = "one process" if workers == 1 else f"each of {workers} processes"
    return RunError(
        what=f"{connections(plan)} connections need {needed} open files in {processes}; {allowed} are allowed",
        where="limit of open files (ulimit -Hn)",
        fix=f"raise the hard limit to {needed} (ulimit -Hn {needed}, LimitNOFILE, limits.conf), or use more --workers",
    )
