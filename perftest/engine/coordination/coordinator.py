"""Drives a run from the command's process: steps, phases, intervals, drain, ledger, and the end of it all.

Theory of operation. The workers do everything that touches a message; the coordinator says when. A step is a warm-up
and a steady phase; each phase is cut into intervals of the plan's length, and always at its end, so no interval spans
two phases. A live change ends an interval, too, so none spans two settings. There is one schedule of cuts, in absolute
times of the monotonic clock: the workers are told a moment ahead, and each cuts at that very time. A live run opens the
clients once, changes their settings from step to step, and drains after the last; an isolated one opens, drains and
closes in every step. Whatever happens, what was recorded goes to the sink, the ledger is closed, and the workers end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from perftest.engine.api import BrokerProperties, RunError, RunOutcome, Sink, StopRequest
from perftest.engine.coordination.background import BackgroundLoad, in_words
from perftest.engine.coordination.load import Load
from perftest.engine.workers import wire
from perftest.engine.workers.files import files_allowed
from perftest.engine.workers.health import Steal
from perftest.engine.workers.shares import choose_workers, connections, files_needed
from perftest.engine.workers.worker_process import WorkerError
from perftest.metrics.clock import epoch_offset_ns
from perftest.metrics.interval import Interval, Phase
from perftest.spec.plan import Isolation, Plan, Step

CLOSE_TIMEOUT_S: Final = 5.0
"""How long a failed or aborted run may take to tidy up behind itself."""

CUT_LEAD_S: Final = 0.05
"""So long before a cut the workers hear of it."""

BEGIN_LEAD_S: Final = 0.02
DRAIN_POLL_S: Final = 0.02
DRAIN_POLL_SHARE: Final = 4
"""Between two looks at what is left so many times as long as the last one took, at least."""

_SHORTEST_REST: Final = 0.25
"""An interval at the end of a phase shorter than this share of the usual length is joined with the one before."""

_T = TypeVar("_T")


async def execute(plan: Plan, sink: Sink, stop: StopRequest) -> RunOutcome:
    """Run ``plan`` to its end, or until ``stop``; records go to ``sink`` as they come.

    Never raises for what a broker, a network or a user does: such a run comes back as ``failed`` with a
    :class:`~perftest.engine.api.RunError`. An exception of the sink ends the run in the same way.
    """
    return await _Run(plan, sink, stop).drive()


class _SinkError(Exception):
    """The sink failed: nothing can be recorded any more."""


class _Run:
    def __init__(self, plan: Plan, sink: Sink, stop: StopRequest) -> None:
        self._plan = plan
        self._sink = sink
        self._stop = stop
        self._stopping = asyncio.Event()
        self._broker = BrokerProperties()
        self._offset_ns = epoch_offset_ns()
        self._load: Load | None = None
        self._background: list[BackgroundLoad] = []
        self._background_records: list[dict[str, Any]] = []
        self._step: Step | None = None
        self._open = False
        self._cut_at = 0.0
        self._steal = Steal()
        self._sink_broken: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        stop.subscribe(self._on_stop)

    async def drive(self) -> RunOutcome:
        """See :func:`execute`."""
        try:
            outcome = await self._drive()
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

    async def _drive(self) -> RunOutcome:
        self._event("run_started", text=self._plan.title or self._plan.name)
        if not self._stopping.is_set():
            await self._start_loads()
            for step in self._plan.steps:
                await self._one_step(step)
                if self._over and (self._stopping.is_set() or not self._isolated):
                    break
        state = "interrupted" if self._stopping.is_set() else "finished"
        if state == "interrupted":
            self._event("interrupted", text="stopped by the user; what was recorded is kept")
        await self._guard(self._end_background(0.0 if self._stop.aborting else self._plan.drain_s))
        await self._close_ledger(complete=state == "finished")
        return RunOutcome(state="finished" if state == "finished" else "interrupted", broker=self._broker)

    def _on_stop(self) -> None:
        self._stopping.set()
        if self._stop.aborting:
            for load in self._loads:
                load.hurry()

    @property
    def _loads(self) -> list[Load]:
        measured = [self._load] if self._load is not None else []
        return [*(background.load for background in self._background), *measured]

    @property
    def _isolated(self) -> bool:
        return self._plan.isolation is Isolation.ISOLATED

    @property
    def _over(self) -> bool:
        """Whether the user, or every client that stops by itself, has had enough."""
        return self._stopping.is_set() or (self._load is not None and self._load.exhausted.is_set())

    # Workers

    async def _start_loads(self) -> None:
        allowed = files_allowed()
        workers = choose_workers(self._plan, cores=_cores(), files=allowed)
        needed = files_needed(self._plan, workers)
        if needed > allowed:
            raise WorkerError(_too_few_files(self._plan, workers, needed, allowed))
        for background in self._plan.background:
            load = BackgroundLoad(self._plan, background, self._on_worker_event)
            self._background.append(load)
            await self._guard(load.begin(self._offset_ns))
            self._event("background_started", text=f"background load {load.name} runs")
        self._load = Load(self._plan, [str(index) for index in range(workers)], self._on_worker_event)
        await self._load.start(self._offset_ns)
        if workers > 1:
            self._event("workers", text=f"{workers} worker processes share the clients", workers=workers)

    async def _end_background(self, drain_s: float) -> None:
        for load in self._background:
            ended = await load.end(drain_s)
            if ended is None:
                continue
            self._background_records.append({"name": load.name, **ended["ledger"]})
            self._event("background_ended", text=in_words(ended), **ended)

    # Steps

    async def _one_step(self, step: Step) -> None:
        self._step = step
        settings = wire.settings_to_json(step.settings)
        if not self._open:
            await self._open_clients(settings)
            self._event("step_started", label=step.label, settings=settings)
            self._cut_at = _now() + BEGIN_LEAD_S
            await self._guard(self._clients.begin(self._run_clock(self._cut_at)))
        else:
            self._event("step_started", label=step.label, settings=settings)
            await self._guard(self._clients.apply(settings))
            self._event("setting_changed", text=step.label)
            await self._cut_after_change(step)
        await self._phase(step, Phase.WARMUP, step.warmup_s)
        if step.warmup_s and not self._over:
            self._event("steady", text=f"warm-up of {step.warmup_s:g} s is over")
        await self._phase(step, Phase.STEADY, step.duration_s - step.warmup_s)
        self._event("step_ended", label=step.label)
        if self._isolated or step is self._plan.steps[-1] or self._over:
            await self._wind_down(step)

    async def _cut_after_change(self, step: Step) -> None:
        """Close the interval in which clients changed from one setting to the next, one by one: it belongs to neither,
        and is recorded as warm-up, which is in no figure."""
        self._cut_at = _now() + BEGIN_LEAD_S
        await self._cut(step, Phase.WARMUP, self._run_clock(self._cut_at))

    async def _open_clients(self, settings: dict[str, Any]) -> None:
        first = self._broker == BrokerProperties()
        self._open = True
        opening = asyncio.ensure_future(self._guard(self._clients.open(settings, fresh=self._isolated)))
        aborted = asyncio.ensure_future(self._aborted())
        await asyncio.wait({opening, aborted}, return_when=asyncio.FIRST_COMPLETED)
        aborted.cancel()
        if not opening.done():  # the user will not wait for thousands of connections
            opening.cancel()
            return
        self._broker = BrokerProperties(**opening.result())
        if first:
            broker = f"{self._broker.product} {self._broker.version}".strip()
            self._event("connected", text=f"connected to {broker or 'a broker that does not say what it is'}")

    async def _phase(self, step: Step, phase: Phase, length_s: float) -> None:
        """Cut intervals until the phase is over, the user stops it, or nobody has anything left to do."""
        if length_s <= 0 or self._over:
            if length_s > 0 and not step.warmup_s and not self._stopping.is_set():
                await self._cut(step, phase)  # whoever had little to do has done it before the first interval
            return
        interval_s = self._plan.interval_s
        end = self._cut_at + length_s
        while self._cut_at < end and not self._over:
            last = end - self._cut_at < interval_s * (1 + _SHORTEST_REST)
            self._cut_at = end if last else self._cut_at + interval_s
            await self._sleep_until(self._cut_at - CUT_LEAD_S)
            await self._cut(step, phase, 0 if self._over else self._run_clock(self._cut_at))

    async def _sleep_until(self, deadline: float) -> None:
        """Wait; a stop request or the last reached limit ends the wait, a failure raises."""
        waits = {asyncio.ensure_future(event.wait()) for event in (self._stopping, self._clients.exhausted)}
        waiting = asyncio.wait(waits, timeout=max(deadline - _now(), 0), return_when=asyncio.FIRST_COMPLETED)
        try:
            await self._guard(waiting)
        finally:
            for wait in waits:
                wait.cancel()

    async def _cut(self, step: Step, phase: Phase, at_ns: int = 0) -> None:
        self._record_intervals(step, phase, await self._guard(self._clients.cut(at_ns)))

    def _record_intervals(self, step: Step, phase: Phase, records: list[tuple[str, wire.Message]]) -> None:
        steal_ns = self._steal.cut()
        for worker, record in records:
            latencies = wire.counts_from_json(record.pop("counts"))
            place = {"worker": worker, "step": step.number, "phase": phase}
            interval = Interval(**place, **record, steal_ns=steal_ns, latencies=latencies)  # type: ignore[arg-type]
            self._record(self._sink.interval, interval)

    async def _wind_down(self, step: Step) -> None:
        """Stop publishing, let consumers finish, close the account."""
        drained = False
        if not self._stop.aborting:
            await self._guard(self._clients.quiesce())
            drained = await self._drain(step)
        abandoned = self._isolated and not drained
        closing = self._guard(
            self._clients.close(drained=drained, abandoned=abandoned, delete=self._plan.delete_queues)
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

    async def _drain(self, step: Step) -> bool:
        """Wait until every confirmed message was delivered; whether that was so in time."""
        deadline = _now() + self._plan.drain_s
        aborted = asyncio.ensure_future(self._aborted())
        try:
            while True:
                began = _now()
                left = await self._guard(self._clients.left())
                if not left["left"] or _now() >= deadline or not (left["consumers"] or left["unconfirmed"]):
                    break
                pause = max(DRAIN_POLL_S, DRAIN_POLL_SHARE * (_now() - began))
                await self._guard(asyncio.wait({aborted}, timeout=pause))
                if aborted.done():
                    break
                if _now() >= self._cut_at + self._plan.interval_s:
                    self._cut_at = _now()
                    await self._cut(step, Phase.DRAIN)
            await self._guard(self._clients.flush())
            await self._cut(step, Phase.DRAIN)
        finally:
            aborted.cancel()
        self._tell_of_drain(left["left"], aborted=self._stop.aborting)
        return not left["left"]

    def _tell_of_drain(self, left: int, *, aborted: bool) -> None:
        if not left:
            self._event("drained", text="every confirmed message was delivered")
        elif not aborted:
            self._event("drain_timeout", text=f"{left} messages were not delivered by the end of the drain", left=left)

    async def _aborted(self) -> None:
        """Returns when the user wants an end at once."""
        wanted = asyncio.Event()
        self._stop.subscribe(lambda: wanted.set() if self._stop.aborting else None)
        await wanted.wait()

    # The end

    async def _close_ledger(self, *, complete: bool) -> None:
        if self._load is not None:
            self._record_ledger(await self._guard(self._load.ledger(complete=complete)))

    def _record_ledger(self, record: dict[str, Any]) -> None:
        background = {"background": self._background_records} if self._background_records else {}
        self._record(self._sink.ledger, record | background)

    async def _end(self, outcome: RunOutcome) -> None:
        """Tidy up after a failure as well as can be, end the workers, write the last event."""
        try:
            if outcome.state == "failed" and self._load is not None:
                await self._salvage(self._load)
            if outcome.error is not None:
                self._event("error", text=f"{outcome.error.what} ({outcome.error.where})")
            self._event("run_ended", text=outcome.state)
        except (_SinkError, WorkerError, TimeoutError):
            pass  # the outcome already says why the run failed; nothing more can be recorded
        finally:
            await asyncio.gather(*(load.stop() for load in self._loads))

    async def _salvage(self, load: Load) -> None:
        """The last interval and the ledger of a run that failed, from the workers that are still there to tell; and
        nothing left behind on the broker, if it still listens."""
        if self._step is not None and self._open:
            records = await load.salvage_cut()
            with contextlib.suppress(_SinkError):  # a sink that broke may still take the ledger, which is more
                self._record_intervals(self._step, Phase.DRAIN, records)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await load.salvage_close(delete=self._plan.delete_queues)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._end_background(0.0)
        ledger = await load.salvage_ledger()
        if ledger is not None:
            self._record_ledger(ledger)

    # Plumbing

    @property
    def _clients(self) -> Load:
        assert self._load is not None
        return self._load

    def _run_clock(self, at: float) -> int:
        """A moment of the monotonic clock, in seconds, as the workers tell the time."""
        return round(at * 1e9) + self._offset_ns

    async def _guard(self, work: Awaitable[_T]) -> _T:
        """Await ``work`` unless a worker gives up or the sink breaks first: then raise why."""
        task = asyncio.ensure_future(work)
        failures = [background.load.failed for background in self._background]
        failures += [self._load.failed] if self._load is not None else []
        rivals: set[asyncio.Future[Any]] = {task, self._sink_broken, *failures}
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
        raise WorkerError(next(failure.result() for failure in failures if failure.done()))

    def _event(self, kind: str, **more: object) -> None:
        record: dict[str, object] = {"t_ns": time.time_ns(), "kind": kind}
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


def _now() -> float:
    """The monotonic clock, in seconds."""
    return time.monotonic()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _too_few_files(plan: Plan, workers: int, needed: int, allowed: int) -> RunError:
    processes = "one process" if workers == 1 else f"each of {workers} processes"
    return RunError(
        what=f"{connections(plan)} connections need {needed} open files in {processes}; {allowed} are allowed",
        where="limit of open files (ulimit -Hn)",
        fix=f"raise the hard limit to {needed} (ulimit -Hn {needed}, LimitNOFILE, limits.conf), or use more --workers",
    )
