"""Drives a run from the command's process: steps, phases, intervals, drain, ledger, and the end of it all.

Theory of operation. The worker does everything that touches a message; the coordinator says when. A step is a warm-up
and a steady phase; each phase is cut into intervals of the plan's length, and always at its end, so no interval spans
two phases. A live run opens the clients once, changes their settings from step to step, and drains after the last; an
isolated one opens, drains and closes in every step. Whatever happens, what was recorded goes to the sink, the ledger
is closed, and the worker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from perftest.engine import wire
from perftest.engine.api import BrokerProperties, RunError, RunOutcome, Sink, StopRequest
from perftest.engine.worker_process import WorkerError, WorkerProcess
from perftest.metrics.clock import epoch_offset_ns
from perftest.metrics.interval import Interval, Phase
from perftest.spec.codec import plan_to_json
from perftest.spec.plan import Isolation, Plan, Step

WORKER: Final = "0"
CLOSE_TIMEOUT_S: Final = 5.0
"""How long a failed or aborted run may take to tidy up behind itself."""

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
        self._done = asyncio.Event()
        self._broker = BrokerProperties()
        self._worker: WorkerProcess | None = None
        self._step: Step | None = None
        self._open = False
        self._sink_broken: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        stop.subscribe(self._stopping.set)

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
            self._worker = await WorkerProcess.start(self._first_message(), self._on_worker_event)
            for step in self._plan.steps:
                await self._one_step(step)
                if not self._open and (self._stopping.is_set() or self._plan.isolation is Isolation.LIVE):
                    break
        state = "interrupted" if self._stopping.is_set() else "finished"
        if state == "interrupted":
            self._event("interrupted", text="stopped by the user; what was recorded is kept")
        await self._close_ledger(complete=state == "finished")
        return RunOutcome(state="finished" if state == "finished" else "interrupted", broker=self._broker)

    def _first_message(self) -> wire.Message:
        return {
            "plan": plan_to_json(self._plan),
            "offset_ns": epoch_offset_ns(),
            "run": random.SystemRandom().getrandbits(16),
            "worker": WORKER,
        }

    # Steps

    async def _one_step(self, step: Step) -> None:
        self._step = step
        self._done.clear()
        isolated = self._plan.isolation is Isolation.ISOLATED
        settings = wire.settings_to_json(step.settings)
        if not self._open:
            await self._open_clients(settings, fresh=isolated)
            self._event("step_started", label=step.label, settings=settings)
            await self._call("begin")
        else:
            self._event("step_started", label=step.label, settings=settings)
            await self._call("apply", settings=settings)
            self._event("setting_changed", text=step.label)
        await self._phase(step, Phase.WARMUP, step.warmup_s)
        if step.warmup_s and not self._over:
            self._event("steady", text=f"warm-up of {step.warmup_s:g} s is over")
        await self._phase(step, Phase.STEADY, step.duration_s - step.warmup_s)
        self._event("step_ended", label=step.label)
        if isolated or step is self._plan.steps[-1] or self._over:
            await self._wind_down(step, isolated=isolated)

    async def _open_clients(self, settings: dict[str, Any], *, fresh: bool) -> None:
        first = self._broker == BrokerProperties()
        self._open = True
        self._broker = BrokerProperties(**await self._call("open", settings=settings, fresh=fresh))
        if first:
            broker = f"{self._broker.product} {self._broker.version}".strip()
            self._event("connected", text=f"connected to {broker or 'a broker that does not say what it is'}")

    async def _phase(self, step: Step, phase: Phase, length_s: float) -> None:
        """Cut intervals until the phase is over, or until the user stops it, or all clients have reached their
        limits."""
        if length_s <= 0 or self._over:
            return
        now = asyncio.get_running_loop().time
        interval_s = self._plan.interval_s
        end = now() + length_s
        at = now()
        while at < end and not self._over:
            at = end if end - at < interval_s * (1 + _SHORTEST_REST) else at + interval_s
            await self._sleep_until(at)
            await self._cut(step, phase)

    async def _sleep_until(self, deadline: float) -> None:
        """Wait; a stop request ends the wait, so does the last limit that is reached, a failure raises."""
        ends = {asyncio.ensure_future(event.wait()) for event in (self._stopping, self._done)}
        timeout_s = deadline - asyncio.get_running_loop().time()
        try:
            waiting = asyncio.wait(ends, timeout=max(timeout_s, 0), return_when=asyncio.FIRST_COMPLETED)
            await self._guard(waiting)
        finally:
            for end in ends:
                end.cancel()

    @property
    def _over(self) -> bool:
        """Whether nothing is to be measured any more."""
        return self._stopping.is_set() or self._done.is_set()

    async def _cut(self, step: Step, phase: Phase) -> None:
        self._record_interval(step, phase, await self._call("cut"))

    def _record_interval(self, step: Step, phase: Phase, record: wire.Message) -> None:
        latencies = wire.latencies(wire.counts_from_json(record.pop("counts")))
        self._record(
            self._sink.interval,
            Interval(worker=WORKER, step=step.number, phase=phase, latencies=latencies, **record),
        )

    async def _wind_down(self, step: Step, *, isolated: bool) -> None:
        """Stop publishing, let consumers finish, close the account."""
        drained = False
        if not self._stop.aborting:
            await self._call("quiesce")
            drained = await self._drain(step)
        delete = self._plan.delete_queues
        closing = self._call("close", drained=drained, abandoned=isolated and not drained, delete=delete)
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
        draining = asyncio.ensure_future(self._call("drain", timeout_s=self._plan.drain_s))
        aborted = asyncio.ensure_future(self._aborted())
        try:
            while not draining.done() and not aborted.done():
                waiting = {draining, aborted}
                await asyncio.wait(waiting, timeout=self._plan.interval_s, return_when=asyncio.FIRST_COMPLETED)
                await self._cut(step, Phase.DRAIN)
            if aborted.done():
                return False
            answer = await draining
        finally:
            draining.cancel()
            aborted.cancel()
        if answer["drained"]:
            self._event("drained", text="every confirmed message was delivered")
        else:
            left = answer["left"]
            self._event("drain_timeout", text=f"{left} messages were not delivered by the end of the drain", left=left)
        return bool(answer["drained"])

    async def _aborted(self) -> None:
        """Returns when the user wants an end at once."""
        wanted = asyncio.Event()
        self._stop.subscribe(lambda: wanted.set() if self._stop.aborting else None)
        await wanted.wait()

    # The end

    async def _close_ledger(self, *, complete: bool) -> None:
        if self._worker is not None:
            self._record(self._sink.ledger, await self._call("ledger", complete=complete))

    async def _end(self, outcome: RunOutcome) -> None:
        """Tidy up after a failure as well as can be, end the worker, write the last event."""
        try:
            if outcome.state == "failed" and self._worker is not None:
                await self._salvage(self._worker)
            if outcome.error is not None:
                self._event("error", text=f"{outcome.error.what} ({outcome.error.where})")
            self._event("run_ended", text=outcome.state)
        except (_SinkError, WorkerError, TimeoutError):
            pass  # the outcome already says why the run failed; nothing more can be recorded
        finally:
            if self._worker is not None:
                await self._worker.stop()

    async def _salvage(self, worker: WorkerProcess) -> None:
        """The last interval and the ledger of a run that failed, if the worker is still there to tell; and nothing left
        behind on the broker, if it still listens."""
        if self._step is not None and self._open:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                record = await worker.call("cut")
            with contextlib.suppress(_SinkError):  # a sink that broke may still take the ledger, which is more
                self._record_interval(self._step, Phase.DRAIN, record)
            closing = worker.call("close", drained=False, abandoned=False, delete=self._plan.delete_queues)
            with contextlib.suppress(WorkerError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await closing
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            ledger = await worker.call("ledger", complete=False)
        self._record(self._sink.ledger, ledger)

    # Plumbing

    async def _call(self, op: str, **arguments: object) -> Any:
        assert self._worker is not None
        return await self._guard(self._worker.call(op, **arguments))

    async def _guard(self, work: Awaitable[_T]) -> _T:
        """Await ``work`` unless the worker gives up or the sink breaks first: then raise why."""
        assert self._worker is not None
        task = asyncio.ensure_future(work)
        rivals: set[asyncio.Future[Any]] = {task, self._worker.failed, self._sink_broken}
        await asyncio.wait(rivals, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        if self._sink_broken.done():
            raise _SinkError from self._sink_broken.result()
        raise WorkerError(self._worker.failed.result())

    def _event(self, kind: str, **more: object) -> None:
        record: dict[str, object] = {"t_ns": time.time_ns(), "kind": kind}
        if self._step is not None and kind not in ("run_started", "run_ended"):
            record["step"] = self._step.number
        self._record(self._sink.event, record | more)

    def _on_worker_event(self, event: dict[str, object]) -> None:
        if self._step is not None:
            event["step"] = self._step.number
        if event["kind"] == "limit_reached":
            self._done.set()
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
