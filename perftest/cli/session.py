"""One measured run, from a plan to an exit code: cluster, run directory, engine, view, summary, report.

``run`` and ``sweep`` differ only in where their plan comes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from infra import local_cluster
from perftest.cli.exits import CliError, Exit, three_lines
from perftest.cli.interrupts import Interrupts
from perftest.cli.measured import broker_facts, on_bundled, target, target_name
from perftest.cli.served import Metrics, Served
from perftest.cli.stages import StageSampler
from perftest.cli.ui.board import Board
from perftest.cli.ui.csv_file import CsvFile
from perftest.cli.ui.gathering import Gathered, Gathering
from perftest.cli.ui.latencies import legacy_lines, percentiles_table
from perftest.cli.ui.perftest_lines import Style
from perftest.cli.ui.summary import INVALID, doubtful_note, doubts, knee_sentence, next_steps, steps_table, wrapped
from perftest.cli.ui.views import View, choose, make_view
from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordinator import execute
from perftest.metrics.interval import Interval
from perftest.results import schema
from perftest.results.errors import RunNotWritableError
from perftest.results.provenance import HostSampler, redact
from perftest.results.reader import earlier_run
from perftest.results.trust import is_valid
from perftest.results.writer import RunWriter
from perftest.spec.plan import Plan
from perftest.spec.slo import Objective, Verdict

if TYPE_CHECKING:
    from infra.local_cluster import Cluster
    from perftest.results.legacy import LegacyLatency

_FRAME_S: Final = 0.5
_STAGES_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``run`` and ``sweep`` have in common, and what only ``run`` has.

    ``cluster``
        the directory of a cluster that is kept.
    ``label``, ``metrics_format``, ``in_millis``
        the name of the run in PerfTest's lines and CSV, the format of the lines, and the unit of their latencies.
    ``plain``
        whether those lines are the progress where there is no terminal.
    ``output_file``, ``hlog_file``
        copies of the intervals and of the histograms, for those who want them in one place.
    ``objectives``
        what has to be reached, else the exit code is 4.
    ``percentiles``, ``legacy_latency``
        what is shown at the end beside the table.
    ``metrics``
        where Prometheus may scrape the run, if it may.
    """

    out: Path
    ui: str
    as_json: bool
    report: bool
    cluster: Path | None = None
    label: str = ""
    metrics_format: str = "default"
    plain: bool = False
    in_millis: bool = False
    output_file: Path | None = None
    hlog_file: Path | None = None
    objectives: tuple[Objective, ...] = ()
    percentiles: tuple[float, ...] = ()
    legacy_latency: bool = False
    metrics: Metrics | None = None


def measure(plan: Plan, options: Options) -> int:
    """Run a plan and say how it went; the exit code. Without URIs in the plan, a local cluster is started for it."""
    interrupts = Interrupts()
    with interrupts.installed():
        session, outcome = _run(plan, options, interrupts)
        try:
            code = session.conclude(outcome)
        finally:  # a drive that is full keeps nobody from reading what was measured
            interrupts.allow()
            session.print_measured()
        session.print_failure(outcome)
        report, doubt = _report(session.path) if options.report and session.is_reported else (None, None)
        code = max(code, doubt.code) if doubt is not None and doubt.code is Exit.INTERRUPTED else code
        session.print_end(code, report)
        if doubt is not None:
            click.echo(three_lines(doubt.what, doubt.where, doubt.fix), err=True)
        session.copy_hlog()
    return int(code)


def _run(plan: Plan, options: Options, interrupts: Interrupts) -> tuple[_Session, RunOutcome]:
    """Execute the plan; when this returns, no signal is listened to any more."""
    also = _Also.opened(options)  # what cannot be opened is told before a cluster is started
    with target(plan, options.cluster, options.out) as cluster:
        if cluster is not None:
            plan = on_bundled(plan, cluster)
        writer = RunWriter(options.out, plan, ["perftest", *sys.argv[1:]])
        writer.objectives = options.objectives
        writer.legacy = _legacy(writer) if options.legacy_latency else None
        writer.describe_broker(**broker_facts(plan, cluster))
        session = _Session(plan, options, writer, cluster, also)
        try:
            return session, asyncio.run(session.run(interrupts))
        except BaseException as error:
            # A defect of ours, or a signal before the loop was there: what was recorded is kept, the cause is told.
            interrupts.ignore()
            writer.finish("failed", f"{type(error).__name__}: {error}", Exit.RUN_ERROR)
            raise
        finally:
            interrupts.ignore()


@dataclass(frozen=True, slots=True)
class _Also:
    """Where else intervals go beside the run directory, and the name of the run there."""

    label: str
    csv: CsvFile | None
    metrics: Served | None

    @classmethod
    def opened(cls, options: Options) -> _Also:
        """Open the file and the port that the options ask for. Raises CliError."""
        label = options.label or f"test-{datetime.now().astimezone():%H%M%S-%f}"[:-3]
        path = options.output_file
        csv = CsvFile(path, label, in_millis=options.in_millis) if path is not None else None
        return cls(label, csv, Served(options.metrics) if options.metrics is not None else None)

    def close(self) -> None:
        """Nobody is told any more."""
        if self.metrics is not None:
            self.metrics.close()


class _Session:
    """The pieces of one run, and the sink of its records."""

    def __init__(self, plan: Plan, options: Options, writer: RunWriter, cluster: Cluster | None, also: _Also) -> None:
        self.rows: list[dict[str, Any]] = []
        self._plan = plan
        self._options = options
        self._writer = writer
        self._cluster = cluster
        self._failure: RunNotWritableError | None = None
        self._stop = StopRequest()
        self._gathering = Gathering(self._gathered)
        self._also = also
        self._board = Board(plan, writer.tally, writer.started_ns, target_name(plan, cluster), str(writer.path))
        self._view: View = self._make_view()
        self._stages = StageSampler(plan, cluster, writer) if cluster is not None else None

    def interval(self, record: Interval) -> None:
        """Record, then show."""
        self._recorded(lambda: self._writer.interval(record))
        self._recorded(lambda: self._gathering.add(record))
        if self._also.metrics is not None:
            self._also.metrics.interval(record)
        self._board.interval(record)
        self._view.interval(record)

    def event(self, record: dict[str, object]) -> None:
        """Record, then show."""
        self._recorded(lambda: self._writer.event(record))
        if self._stages is not None:
            self._stages.event(record)
        self._gathering.event(record)
        self._board.event(record)
        self._view.event(record)

    def ledger(self, record: dict[str, object]) -> None:
        """Record."""
        self._recorded(lambda: self._writer.ledger(record))

    async def run(self, interrupts: Interrupts) -> RunOutcome:
        """Execute the plan with the samplers and the view beside it."""
        loop = asyncio.get_running_loop()
        helpers = [asyncio.create_task(self._sample()), asyncio.create_task(self._draw())]
        if self._stages is not None:
            helpers.append(asyncio.create_task(self._sample_stages(self._stages)))
        with interrupts.during(lambda number: _in_loop(loop, self._interrupt, number)):
            try:
                outcome = await execute(self._plan, self, self._stop)
                with contextlib.suppress(RunNotWritableError):  # then the outcome, or the end, says so
                    await self._sample_nodes()  # the last step's CPU time needs a sample after it
                await self._finish_stages()
                return outcome
            finally:
                for task in helpers:
                    task.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
                self._also.close()
                with contextlib.suppress(OSError):  # the terminal may be gone; the results are not
                    self._view.close()

    def conclude(self, outcome: RunOutcome) -> Exit:
        """Finish the run directory; the exit code by what it holds. Raises when it could not be written."""
        stopped_in_order = outcome.state == "interrupted" and not self._stop.aborting and self._endless()
        state = "finished" if stopped_in_order else outcome.state
        reason = outcome.error.what if outcome.error else "stopped by Ctrl-C" if self._stop.finishing else state
        failure = self._failure
        parts: tuple[Callable[[], None], ...] = (
            self._gathering.flush,
            lambda: self._writer.describe_broker(**_nonempty(asdict(outcome.broker))),
            lambda: self._writer.finish(state, redact(reason)),
        )
        for part in parts:
            try:
                part()
            except RunNotWritableError as error:  # on a full drive the rows can still be computed, and shown
                failure = failure or error
        self.rows = self._writer.rows
        if failure is not None:
            raise failure
        missed = not all(verdict.met for verdict in self._writer.verdicts)
        code = exit_code(state, self._writer.ledger_record, self.rows, self._writer.trust, missed=missed)
        self._writer.end(state, redact(reason), int(code))
        return code

    def print_measured(self) -> None:
        """What was measured and what to doubt, to stdout. For JSON see the end."""
        if self._json:
            return
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        if not self.rows and (self._writer.ledger_record or {}).get("verdict") != "violated" and not self.verdicts:
            return
        if width is not None:
            click.echo()  # a terminal has echoed ^C
        words = [knee_sentence(self.rows), *([] if self._writer.valid else [INVALID])]
        words += doubts(self.rows, self._writer.trust)
        table = "\n".join(filter(None, [steps_table(self.rows, width), doubtful_note(self.rows)])) if self.rows else ""
        verdicts = "\n".join(verdict.sentence() for verdict in self.verdicts)
        for part in filter(
            None, [table, *self._details(), verdicts, wrapped(words[:1], width), wrapped(words[1:], width)]
        ):
            click.echo(f"{part}\n")

    def print_failure(self, outcome: RunOutcome) -> None:
        """Why a run failed, to stderr."""
        if outcome.error is not None:
            error = outcome.error
            click.echo(three_lines(redact(error.what), redact(error.where), error.fix), err=True)

    def print_end(self, code: Exit, report: Path | None) -> None:
        """Where everything lies, or the one JSON object."""
        writer = self._writer
        if self._json:
            paths = {"path": str(writer.path), "report": str(report) if report else None, "exit_code": int(code)}
            result: dict[str, Any] = {
                "record": "result",
                **paths,
                "valid": writer.valid,
                "steps": self.rows,
                "trust": writer.trust,
            }
            if self.verdicts:
                result["objectives"] = [verdict.to_json() for verdict in self.verdicts]
            if writer.legacy is not None:
                result["legacy_latency"] = writer.legacy.to_json()
            click.echo(json.dumps(result, ensure_ascii=False, indent=None if self._options.ui == "json" else 1))
        else:
            base = earlier_run(writer.path, writer.manifest["plan"]["digest"])
            click.echo(next_steps(str(writer.path), report=_text(report), reportable=bool(self.rows), base=_text(base)))

    def copy_hlog(self) -> None:
        """The histograms of the run where ``--hlog`` wants them. Raises CliError."""
        target = self._options.hlog_file
        if target is None:
            return
        try:
            shutil.copyfile(self.path / schema.LATENCY_HLOG, target)
        except OSError as error:
            what = f"the histograms cannot be copied: {error.strerror or error}"
            raise CliError(what, str(target), f"they are in {self.path / schema.LATENCY_HLOG}") from error

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """What became of each objective."""
        return self._writer.verdicts

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._writer.path

    @property
    def is_reported(self) -> bool:
        """Whether there is something to report, and a user who has not insisted on stopping at once."""
        return bool(self.rows) and not self._stop.aborting

    @property
    def _json(self) -> bool:
        return self._options.as_json or self._options.ui == "json"

    def _gathered(self, gathered: Gathered) -> None:
        """An interval of the whole run, for the CSV file."""
        if self._also.csv is not None:
            self._also.csv.interval(gathered, self._writer.started_ns)

    def _details(self) -> Iterator[str]:
        """More about latencies, where somebody asked for it."""
        if self._options.percentiles and self.rows:
            yield percentiles_table(self._writer.tally, self.rows, self._options.percentiles)
        if self._writer.legacy is not None:
            yield legacy_lines(self._writer.legacy.to_json(), in_millis=self._options.in_millis)

    def _make_view(self) -> View:
        options, width = self._options, shutil.get_terminal_size().columns
        otherwise = "plain" if options.plain else "line"
        terminal = sys.stderr.isatty()
        name = choose(options.ui, terminal=terminal, width=width, environment=os.environ, otherwise=otherwise)
        style = Style(label=self._also.label, compact=options.metrics_format == "compact", in_millis=options.in_millis)
        out = sys.stderr if name == "plain" and options.as_json else sys.stdout
        return make_view(name, self._board, out, sys.stderr, style)

    def _interrupt(self, number: int) -> None:
        """The first Ctrl-C ends the step in good order, the second everything; so do the signals of a shutdown."""
        if self._stop.finishing or number != signal.SIGINT:
            self._stop.abort()
        else:
            self._stop.finish_step()
            self._board.stopping = True

    def _recorded(self, write: Callable[[], None]) -> None:
        """A record that cannot be written ends the run: the engine sees the exception, the user its cause."""
        try:
            write()
        except RunNotWritableError as failure:
            self._failure = self._failure or failure
            raise

    async def _sample(self) -> None:
        """The host and the broker's nodes, once per interval."""
        sampler = HostSampler()
        while True:
            try:
                self._writer.host(sampler.sample(time.time_ns()))
                await self._sample_nodes()
            except RunNotWritableError as failure:
                self._failure = self._failure or failure
                self._stop.abort()
                return
            await asyncio.sleep(self._plan.interval_s)

    async def _sample_stages(self, stages: StageSampler) -> None:
        """Where within the broker the time went, once per step."""
        try:
            await stages.run()
        except RunNotWritableError as failure:
            self._failure = self._failure or failure
            self._stop.abort()

    async def _finish_stages(self) -> None:
        """The last step's end is asked for while the run ends; but a user who insists does not wait for it."""
        if self._stages is not None and self._failure is None and not self._stop.aborting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STAGES_TIMEOUT_S):
                    await self._stages.finish()

    async def _sample_nodes(self) -> None:
        """A node that does not answer is left out. Raises RunNotWritableError."""
        if self._cluster is not None:
            for record in await asyncio.to_thread(local_cluster.sample, self._cluster, time.time_ns()):
                self._writer.broker(record)
                self._board.sample(record)

    async def _draw(self) -> None:
        while True:
            self._view.frame()
            self._recorded(self._gathering.tick)
            await asyncio.sleep(_FRAME_S)

    def _endless(self) -> bool:
        return any(math.isinf(step.duration_s) for step in self._plan.steps)


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[int], None], number: int) -> None:
    """Wake the loop up and make the call there: a signal handler may run between any two instructions."""
    loop.call_soon_threadsafe(call, number)


def exit_code(
    state: str,
    ledger: Mapping[str, Any] | None,
    rows: Sequence[Mapping[str, Any]],
    run_trust: Sequence[Mapping[str, str]],
    *,
    missed: bool = False,
) -> Exit:
    """The gravest thing that can be said of a run: unsafe messages, a failed run, an interruption, a missed objective,
    a doubt."""
    if ledger is not None and "violated" in (each.get("verdict") for each in (ledger, *ledger.get("background", ()))):
        return Exit.SAFETY
    if state == "failed":
        return Exit.RUN_ERROR
    if state == "interrupted":
        return Exit.INTERRUPTED
    if missed:
        return Exit.TREND
    return Exit.OK if rows and is_valid(rows, run_trust) else Exit.UNTRUSTED


def _report(run: Path) -> tuple[Path | None, CliError | None]:
    """The report of the run, or why there is none: that does not spoil a measurement that succeeded."""
    from perftest.cli.report import build_report

    try:
        return build_report([run], None), None
    except CliError as error:
        return None, error
    except KeyboardInterrupt:
        fix = f"the results are complete; `perftest report {run}` makes the page"
        return None, CliError("no report: interrupted", str(run), fix, Exit.INTERRUPTED)


def _legacy(writer: RunWriter) -> LegacyLatency:
    # Only for those who ask: it decodes each histogram once more.
    from perftest.results.legacy import LegacyLatency

    return LegacyLatency(writer.started_ns, writer.plan.seed)


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def _nonempty(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value}
