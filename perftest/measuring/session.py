"""A measured run while it lasts: the engine's records are written and shown; samplers and signals work beside it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from perftest.actions.action_target import (
    ActionTarget,
    DrivesTarget,
    HostsTarget,
    LocalTarget,
    NoCluster,
    NodesElsewhere,
)
from perftest.actions.cluster_actions import ClusterActions
from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.engine.workers.remote_worker import RemoteWorker
from perftest.exits import Exit
from perftest.measuring.exit_code import exit_code
from perftest.measuring.exports import Exports
from perftest.measuring.interrupts import Interrupts
from perftest.measuring.measured_broker import target_name
from perftest.measuring.samplers import Sampler, StageSampler
from perftest.measuring.session_options import Options
from perftest.metrics.interval import Interval
from perftest.results.errors import RunNotWritableError
from perftest.results.provenance import redact
from perftest.results.writer import RunWriter
from perftest.screen.board import Board
from perftest.screen.interval_merger import IntervalMerger, MergedInterval
from perftest.screen.perftest_lines import Style
from perftest.screen.views import View, choose, make_view
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from infra.fuse_drives import FuseDrives
    from infra.local_cluster import Cluster
    from perftest.measuring.broker_metrics import BrokerMetrics

_FRAME_S: Final = 0.5
_STAGES_TIMEOUT_S: Final = 10.0


class RunSession:
    """The parts of one run, and the sink of the engine's records."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        writer: RunWriter,
        cluster: Cluster | None,
        exports: Exports,
        drives: FuseDrives | None = None,
    ) -> None:
        """``drives`` belong to a RabbitMQ that was started for the run; a cluster knows its own."""
        self._plan = plan
        self._options = options
        self._writer = writer
        self._cluster = cluster
        self._failure: RunNotWritableError | None = None
        self._stop = StopRequest()
        self._merger = IntervalMerger(self._merged)
        self._exports = exports
        self._board = Board(plan, writer.tally, writer.started_ns, target_name(plan, cluster), str(writer.path))
        self._view: View = self._make_view()
        metrics = _metrics_of(options, self.event)
        if metrics is not None:
            writer.describe_broker(metrics=metrics.shown)
        self._sampler = Sampler(
            writer, cluster, show=self._board.sample, tell=self.event, metrics=metrics, drives=drives,
            load_from=options.load_from, show_host=self._board.host_sample,
        )  # fmt: skip
        self._actions = ClusterActions(plan, _target_of(cluster, drives, options.nodes), self.event, options.faults)
        self._stages = StageSampler(plan, cluster, writer) if cluster is not None else None

    def interval(self, record: Interval) -> None:
        """Record an interval of a worker, then show it."""
        self._recorded(lambda: self._writer.interval(record))
        self._exports.interval(record)
        self._board.interval(record)
        self._view.interval(record)
        self._merger.add(record)

    def _merged(self, merged: MergedInterval) -> None:
        self._recorded(lambda: self._exports.merged(merged, self._writer.started_ns))
        self._board.merged(merged)
        self._view.merged(merged)

    def event(self, record: dict[str, object]) -> None:
        """Record an event, then show it."""
        self._recorded(lambda: self._writer.event(record))
        if self._stages is not None:
            self._stages.event(record)
        self._merger.event(record)
        self._board.event(record)
        self._view.event(record)

    def ledger(self, record: dict[str, object]) -> None:
        """Record the ledger."""
        self._recorded(lambda: self._writer.ledger(record))

    def clock(self, record: dict[str, Any]) -> None:
        """Record what is known of the clock of another host."""
        self._recorded(lambda: self._writer.clock(record))

    async def run(self, interrupts: Interrupts) -> RunOutcome:
        """Execute the plan with the samplers and the view beside it."""
        loop = asyncio.get_running_loop()
        beside = [self._draw(), self._recording(self._sampler.run)]
        if self._stages is not None:
            beside.append(self._recording(self._stages.run))
        helpers = [asyncio.create_task(each) for each in beside]
        with interrupts.during(lambda number: _in_loop(loop, self._interrupt, number)):
            try:
                outcome = await self._execute()
                with contextlib.suppress(RunNotWritableError):  # then the outcome, or the end, says so
                    await self._sampler.nodes()
                    await self._sampler.remote_nodes()
                await self._finish_stages()
                return outcome
            finally:
                for task in helpers:
                    task.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
                with contextlib.suppress(OSError, RunNotWritableError):  # the end says what could not be written
                    self._merger.flush()
                self._exports.close()
                with contextlib.suppress(OSError):  # the terminal may be gone; the results are not
                    self._view.close()

    async def _execute(self) -> RunOutcome:
        """Execute the plan with its timeline. Whatever happens, no node stays paused or killed."""
        actions = self._actions
        try:
            moments, handlers, progress = actions.moments(), actions.handlers, actions.progress
            hosts = self._options.load_from
            start = hosts.start_worker if hosts is not None else RemoteWorker.start
            addresses = hosts.addresses() if hosts is not None else {}
            return await execute(
                self._plan, self, self._stop, more=moments, handlers=handlers, on_progress=progress,
                on_clock=self.clock, addresses=addresses, start_worker=start,
            )  # fmt: skip
        finally:
            await actions.restore()

    def conclude(self, outcome: RunOutcome) -> Exit:
        """Finish the run directory and return the exit code. Raises RunNotWritableError."""
        stopped_in_order = outcome.state == "interrupted" and not self._stop.aborting and self._endless()
        state = "finished" if stopped_in_order else outcome.state
        reason = outcome.error.what if outcome.error else "stopped by Ctrl-C" if self._stop.finishing else state
        facts = {name: value for name, value in asdict(outcome.broker).items() if value}
        failure = self._failure
        parts: tuple[Callable[[], None], ...] = (
            lambda: self._writer.describe_broker(**facts),
            lambda: self._writer.finish(state, redact(reason), connected=bool(facts)),
        )
        for part in parts:
            try:
                part()
            except RunNotWritableError as error:  # on a full drive the rows can still be computed, and shown
                failure = failure or error
        if failure is not None:
            raise failure
        missed = not all(verdict.met for verdict in self._writer.verdicts) or self._not_reproduced()
        code = exit_code(state, self._writer.ledger_record, self._writer.trust, missed=missed)
        self._writer.end(state, redact(reason), int(code))
        return code

    def _not_reproduced(self) -> bool:
        """Whether findings had to be reproduced and were not."""
        found = self._writer.findings
        return self._options.assert_findings and not (found is not None and found.reproduced)

    @property
    def aborting(self) -> bool:
        """Whether the user has asked a second time to stop."""
        return self._stop.aborting

    def _make_view(self) -> View:
        options, width = self._options, shutil.get_terminal_size().columns
        otherwise = "plain" if options.plain else "line"
        terminal = sys.stderr.isatty()
        name = choose(options.ui, terminal=terminal, width=width, environment=os.environ, otherwise=otherwise)
        style = Style(
            label=self._exports.label, compact=options.metrics_format == "compact", in_millis=options.in_millis
        )
        out = sys.stderr if name == "plain" and options.as_json else sys.stdout
        return make_view(name, self._board, out, sys.stderr, style)

    def _interrupt(self, number: int) -> None:
        """End the step in good order at the first Ctrl-C; end everything at the second, or at another signal."""
        if self._stop.finishing or number != signal.SIGINT:
            self._stop.abort()
        else:
            self._stop.finish_step()
            self._board.stopping = True

    def _recorded(self, write: Callable[[], None]) -> None:
        """Write a record. If that fails, the run ends: the engine sees the exception, and the user sees its cause."""
        try:
            write()
        except RunNotWritableError as failure:
            self._failure = self._failure or failure
            raise

    async def _recording(self, sample: Callable[[], Awaitable[None]]) -> None:
        """Run a sampler. The run ends if the sampler cannot write its records."""
        try:
            await sample()
        except RunNotWritableError as failure:
            self._failure = self._failure or failure
            self._stop.abort()

    async def _finish_stages(self) -> None:
        """Wait for the stages of the last step, unless the user has asked a second time to stop."""
        if self._stages is not None and self._failure is None and not self._stop.aborting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STAGES_TIMEOUT_S):
                    await self._stages.finish()

    async def _draw(self) -> None:
        while True:
            self._view.frame()
            self._merger.tick()
            await asyncio.sleep(_FRAME_S)

    def _endless(self) -> bool:
        return any(math.isinf(step.duration_s) for step in self._plan.steps)


def _target_of(cluster: Cluster | None, drives: FuseDrives | None, nodes: NodesElsewhere | None) -> ActionTarget:
    if cluster is not None and nodes is not None:
        return HostsTarget(cluster, nodes)
    if cluster is not None:
        return LocalTarget(cluster)
    if drives is not None:
        return DrivesTarget(drives)
    return NoCluster("a broker at a URI", "actions on hosts and links")


def _metrics_of(options: Options, tell: Callable[[dict[str, object]], None]) -> BrokerMetrics | None:
    if not options.broker_metrics:
        return None
    from perftest.measuring.broker_metrics import BrokerMetrics  # aiohttp is only for this option

    return BrokerMetrics(options.broker_metrics, tell)


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[int], None], number: int) -> None:
    """Make the call in the event loop, because a signal handler may run between any two instructions."""
    loop.call_soon_threadsafe(call, number)
