"""A measured run, from its plan to its exit code: cluster, run directory, session, conclusion, report.

``run`` and ``sweep`` share this module; they differ only in where their plan comes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from perftest.cli.cluster_actions import refuse_actions
from perftest.cli.conclusion import Conclusion, print_failure
from perftest.cli.exits import CliError, Exit
from perftest.cli.exports import Exports
from perftest.cli.interrupts import Interrupts
from perftest.cli.measured_broker import broker_facts, node_addresses, on_bundled, taken_apart, target
from perftest.cli.measured_rabbitmq import rabbitmq
from perftest.cli.session import Session
from perftest.cli.session_options import Options
from perftest.engine.api import RunOutcome
from perftest.results.errors import RunNotWritableError
from perftest.results.writer import JudgedFindings, RunWriter
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from perftest.results.legacy import LegacyLatency


def measure(plan: Plan, options: Options) -> int:
    """Run a plan, print its results, and return the exit code. A plan without URIs gets a local cluster."""
    interrupts = Interrupts()
    with interrupts.installed():
        ran = run_plan(plan, options, interrupts)
        writer, code = ran.writer, ran.code
        conclusion = Conclusion(writer, options)
        interrupts.allow()
        conclusion.print_measured()
        if ran.failure is not None:  # the results are printed even if a full drive could not take them
            raise ran.failure
        print_failure(ran.outcome)
        reported = options.report and writer.rows and not ran.session.aborting
        report, doubt = report_or_doubt([writer.path], writer.path) if reported else (None, None)
        code = max(code, doubt.code) if doubt is not None and doubt.code is Exit.INTERRUPTED else code
        conclusion.print_end(code, report)
        if doubt is not None:
            click.echo(doubt.lines(), err=True)
        conclusion.copy_hlog()
    return int(code)


class Ran(NamedTuple):
    """A run that has ended, with its exit code. ``failure`` says what of the run could not be written."""

    writer: RunWriter
    session: Session
    outcome: RunOutcome
    code: Exit
    failure: RunNotWritableError | None


def run_plan(plan: Plan, options: Options, interrupts: Interrupts) -> Ran:
    """Execute the plan, with what it needs on other hosts. The results are written before what was started for the run
    is taken apart. When this function returns, signals are ignored."""
    prepared = options.prepare(options) if options.prepare is not None else contextlib.nullcontext(options)
    with taken_apart(prepared, options.out) as options:
        return _run_plan(plan, options, interrupts)


def _run_plan(plan: Plan, options: Options, interrupts: Interrupts) -> Ran:
    hosts = options.faults.names if options.faults is not None else ()
    refuse_actions(plan, options.cluster, options.layout, options.actions, hosts)
    exports = Exports(options, plan)  # first: a file or port that cannot be opened must not cost the start of a cluster
    with (
        rabbitmq(plan, options.cluster, options.out, options.layout) as measured,
        target(measured.plan, options.cluster, options.out, options.layout) as cluster,
    ):
        plan = on_bundled(measured.plan, cluster) if cluster is not None else measured.plan
        if options.load_from is not None:
            plan = replace(plan, hosts=options.load_from.load_hosts(plan.uris))
            options.load_from.measure_round_trips(node_addresses(plan, cluster))
        writer = RunWriter(options.out, plan, options.command or ["perftest", *sys.argv[1:]])
        with writer.recording(), interrupts.ignored_after():
            writer.objectives = options.objectives
            writer.judge_findings = None if options.is_round else _judge_of(writer)
            writer.legacy = _legacy(writer) if options.legacy_latency else None
            if options.load_from is not None:
                writer.describe_hosts(options.load_from.facts())
            writer.describe_broker(**broker_facts(plan, cluster), **measured.facts)
            session = Session(plan, options, writer, cluster, exports, measured.drives)
            outcome = asyncio.run(session.run(interrupts))
        return Ran(writer, session, outcome, *_concluded(session, outcome))


def _concluded(session: Session, outcome: RunOutcome) -> tuple[Exit, RunNotWritableError | None]:
    try:
        return session.conclude(outcome), None
    except RunNotWritableError as error:
        return Exit.RUN_ERROR, error


def report_or_doubt(runs: Sequence[Path], beside: Path) -> tuple[Path | None, CliError | None]:
    """The report of the runs in the directory ``beside``, or the reason why there is no report.

    A missing report does not spoil a measurement that succeeded.
    """
    from perftest.cli.report import build_report

    try:
        return build_report(runs, None, beside), None
    except CliError as error:
        return None, error
    except KeyboardInterrupt:
        fix = f"the results are complete; `perftest report {beside}` makes the page"
        return None, CliError("no report: interrupted", str(beside), fix, Exit.INTERRUPTED)


def _judge_of(writer: RunWriter) -> Callable[[Sequence[Mapping[str, Any]]], JudgedFindings | None] | None:
    """The judge of the findings of the plan; None for a plan without findings."""
    if not writer.plan.findings:
        return None
    from reports.stats.reproduction import judge_runs

    return lambda rows: judge_runs(writer.manifest["plan"], [(writer.manifest, rows)])


def _legacy(writer: RunWriter) -> LegacyLatency:
    # Only on request, because it decodes each histogram once more.
    from perftest.results.legacy import LegacyLatency

    return LegacyLatency(writer.started_ns, writer.plan.seed)
