"""A measured run, from its plan to its exit code: cluster, run directory, session, conclusion."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from perftest.actions.cluster_actions import refuse_actions
from perftest.engine.api import RunOutcome
from perftest.exits import Exit
from perftest.measuring.exports import Exports
from perftest.measuring.interrupts import Interrupts
from perftest.measuring.measured_broker import broker_facts, node_addresses, on_bundled, taken_apart, target
from perftest.measuring.measured_rabbitmq import rabbitmq
from perftest.measuring.session import RunSession
from perftest.measuring.session_options import Options
from perftest.results.errors import RunNotWritableError
from perftest.results.writer import JudgedFindings, RunWriter
from perftest.spec.expected.slo import parse_objective
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from perftest.results.legacy import LegacyLatency


class Ran(NamedTuple):
    """A run that has ended, with its exit code. ``failure`` says what of the run could not be written."""

    writer: RunWriter
    session: RunSession
    outcome: RunOutcome
    code: Exit
    failure: RunNotWritableError | None


def run_plan(plan: Plan, options: Options, interrupts: Interrupts) -> Ran:
    """Execute the plan, with the processes that it needs on other hosts. The results are written before the processes
    of the run are ended. When this function returns, signals are ignored."""
    prepared = options.prepare(options) if options.prepare is not None else contextlib.nullcontext(options)
    with taken_apart(prepared, options.out) as options:
        return _run_plan(plan, options, interrupts)


def _run_plan(plan: Plan, options: Options, interrupts: Interrupts) -> Ran:
    hosts = options.faults.names if options.faults is not None else ()
    refuse_actions(plan, options.cluster, options.layout, options.actions, hosts)
    exports = Exports(options, plan)  # first: a file or port that cannot be opened must not cost the start of a cluster
    home = options.rabbitmq_home
    with (
        rabbitmq(plan, options.cluster, options.out, options.layout, home, options.objectives) as measured,
        target(measured.plan, options.cluster, options.out, options.layout) as cluster,
    ):
        plan = on_bundled(measured.plan, cluster) if cluster is not None else measured.plan
        if options.load_from is not None:
            plan = replace(plan, hosts=options.load_from.load_hosts(plan.uris))
            options.load_from.measure_round_trips(node_addresses(plan, cluster))
        writer = RunWriter(options.out, plan, options.command or ["perftest", *sys.argv[1:]])
        with writer.recording(), interrupts.ignored_after():
            writer.objectives = options.objectives or tuple(map(parse_objective, plan.objectives))
            writer.judge_findings = None if options.is_round else _judge_of(writer)
            writer.legacy = _legacy(writer) if options.legacy_latency else None
            if options.load_from is not None:
                writer.describe_hosts(options.load_from.facts())
            writer.describe_broker(**broker_facts(plan, cluster), **measured.facts)
            if measured.broker_metrics:
                options = replace(options, broker_metrics=measured.broker_metrics)
            session = RunSession(plan, options, writer, cluster, exports, measured.drives)
            outcome = asyncio.run(session.run(interrupts))
        return Ran(writer, session, outcome, *_concluded(session, outcome))


def _concluded(session: RunSession, outcome: RunOutcome) -> tuple[Exit, RunNotWritableError | None]:
    try:
        return session.conclude(outcome), None
    except RunNotWritableError as error:
        return Exit.RUN_ERROR, error


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
