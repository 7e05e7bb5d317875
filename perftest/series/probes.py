"""The probes of a search: short runs, one after the other, against one target; and the conclusion from all of them.

A probe is recorded like any other run, without a screen of its own.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perftest.engine.api import BrokerProperties, RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.exits import CliError, Exit
from perftest.measuring.exit_code import exit_code
from perftest.measuring.interrupts import Interrupts
from perftest.measuring.measured_broker import target, undo_leftovers
from perftest.measuring.measured_rabbitmq import rabbitmq
from perftest.measuring.samplers import Sampler
from perftest.metrics.figures import three_figures
from perftest.results.provenance import redact
from perftest.results.trust_list import failed
from perftest.results.writer import RunWriter, run_id
from perftest.search.bracket import Search, SearchAnswer
from perftest.search.frontier import Point, contenders, frontier, grid, recommend, sentences, settled
from perftest.series.reproduce import LOAD_FLAGS, run_command, sweep_command
from perftest.spec.expected.slo import Objective, Verdict, judge, shown
from perftest.spec.plan import Plan, Settings

if TYPE_CHECKING:
    from infra.fuse_drives import FuseDrives
    from infra.layout import PlacedLayout
    from infra.local_cluster import Cluster

_SEARCHED: Final = ("in_flight", "prefetch", "ack_interval")
"""The settings that ``--frontier`` changes."""
KEPT_UP: Final = 0.99
"""For a probe to pass: part of the asked rate that must be published, and part of that which must be delivered."""


@dataclass(frozen=True, slots=True)
class ProbeLimit:
    """The reason why a probe is invalid, and what to do about it; both are sentences."""

    what: str
    fix: str


REMEDIES: Final[Mapping[str, str]] = {
    "generator_cpu": "spread the load over more clients (-x, -y), each core has a worker process; or run the generator "
    "on a machine of its own, with more cores",
    "steal": "measure on a machine that shares its processors with nobody",
    "clock": "run the generator on one host, with one clock",
}
"""The checks of a step that fail when the figures are not the broker's, and what to do about each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of a probe: the rows of its steps, its ledger, and the texts of its failed checks (``faults``).

    ``limits`` are the failed checks about the load generator and its machine. With a limit, the probe says nothing
    about the broker.
    """

    path: Path
    rows: list[dict[str, Any]]
    ledger: Mapping[str, Any]
    faults: tuple[str, ...]
    interrupted: bool
    limits: tuple[ProbeLimit, ...] = ()


def probe(
    plan: Plan,
    out: Path,
    cluster: Cluster | None,
    stop: StopRequest,
    command: Sequence[str],
    drives: FuseDrives | None = None,
) -> Probe:
    """Run ``plan`` and record it below ``out``, with the ``command`` that makes the run again. ``drives`` belong to a
    RabbitMQ that was started for the search.

    Raises CliError if the run failed, and RunNotWritableError.
    """
    if cluster is not None:
        plan = plan.changed(uris=cluster.uris)
    writer = RunWriter(out, plan, command)
    with writer.recording():
        outcome = asyncio.run(_execute(plan, writer, Sampler(writer, cluster, drives=drives), stop))
    reason = outcome.error.what if outcome.error is not None else outcome.state
    writer.finish(outcome.state, redact(reason), connected=outcome.broker != BrokerProperties())
    writer.end(outcome.state, redact(reason), int(exit_code(outcome.state, writer.ledger_record, writer.trust)))
    if outcome.error is not None:
        raise CliError(redact(outcome.error.what), redact(outcome.error.where), outcome.error.fix)
    return probed(writer)


def probed(writer: RunWriter) -> Probe:
    """The result of a finished probe."""
    against = failed(writer.trust)
    return Probe(
        path=writer.path,
        rows=writer.rows,
        ledger=writer.ledger_record or {},
        faults=tuple(check.text for check in against),
        limits=tuple(ProbeLimit(check.text, REMEDIES[check.check]) for check in against if check.check in REMEDIES),
        interrupted=writer.manifest["state"] == "interrupted",
    )


async def _execute(plan: Plan, writer: RunWriter, sampler: Sampler, stop: StopRequest) -> RunOutcome:
    """Execute the plan, and sample the host and the nodes beside it."""
    sampling = asyncio.create_task(sampler.run())
    try:
        outcome = await execute(plan, writer, stop)
        await sampler.nodes()
        return outcome
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """The search that the command line asks for.

    ``swept`` are the settings that the workload file sweeps; the search keeps each at its first value. ``target`` are
    the words of the command line that name the broker, or what is started, and ``rabbitmq_home`` is the home of a
    RabbitMQ that is started instead of the installed one.
    """

    plan: Plan
    swept: tuple[str, ...]
    objectives: tuple[Objective, ...]
    out: Path
    cluster: Path | None
    layout: PlacedLayout | None
    target: tuple[str, ...]
    as_json: bool
    show: Callable[[str], None]
    rabbitmq_home: Path | None = None


@dataclass(slots=True)
class Prober:
    """Runs probes one after the other against one target, and keeps their results."""

    asked: SearchPlan
    cluster: Cluster | None
    out: Path
    stop: StopRequest
    flags: Mapping[str, Any]
    drives: FuseDrives | None = None
    records: list[dict[str, Any]] = field(default_factory=list)
    harmed: bool = False
    interrupted: bool = False
    limits: list[ProbeLimit] = field(default_factory=list)

    def run(self, label: str, settings: Settings) -> tuple[Probe, list[Verdict]]:
        """Run a probe with these settings; its result, and the verdict on each objective."""
        step = replace(self.asked.plan.steps[0], settings=settings, label=label)
        plan = self.asked.plan.changed(steps=(step,))
        command = _again(self.asked, plan, self.flags)
        found = probe(plan, self.out, self.cluster, self.stop, command, self.drives)
        self.interrupted |= found.interrupted
        self.harmed |= found.ledger.get("verdict") == "violated"
        self.limits += found.limits
        return found, judge(self.asked.objectives, found.rows, found.ledger)

    def limits_in_words(self) -> list[str]:
        """The reasons why probes were invalid, the latest of each kind, and what to do about each."""
        by_fix = {limit.fix: limit.what for limit in self.limits}
        return [f"  {what}\n  fix  {fix}" for fix, what in by_fix.items()]

    def note(self, record: dict[str, Any], line: str) -> None:
        """Keep and show the result of a probe."""
        self.records.append(record)
        if not self.asked.as_json:
            self.asked.show(line)


@contextmanager
def _prober(asked: SearchPlan, flags: Mapping[str, Any]) -> Iterator[Prober]:
    """A cluster, a directory for the runs, and signals that end the search in good order."""
    if asked.plan.timeline:
        fix = "leave out the timeline, or use perftest sweep"
        raise CliError("a search does not act on the nodes while it measures", "timeline", fix, Exit.USAGE)
    stop, interrupts = StopRequest(), Interrupts()
    undo_leftovers(asked.out)
    out = asked.out / run_id("search", time.time_ns())
    with (
        interrupts.installed(),
        rabbitmq(asked.plan, asked.cluster, out, asked.layout, asked.rabbitmq_home) as measured,
        target(measured.plan, asked.cluster, out, asked.layout) as cluster,
    ):
        asked = replace(asked, plan=measured.plan)

        def listen(_number: int) -> None:
            stop.abort() if stop.finishing else stop.finish_step()

        out.mkdir(parents=True, exist_ok=True)
        try:
            with interrupts.during(listen):
                yield Prober(asked, cluster, out, stop, flags, measured.drives)
        finally:
            with suppress(OSError):  # there are probes in it
                out.rmdir()


# The highest rate


def find_rate(asked: SearchPlan, flags: Mapping[str, Any]) -> Exit:
    """Find the highest rate that meets every objective. Raises CliError if there is no objective."""
    if not asked.objectives:
        fix = 'give an objective, such as --slo "e2e.p99<20ms", or compare settings with --frontier'
        raise CliError("there is no objective to meet", "--slo", fix, Exit.USAGE)
    with _prober(asked, flags) as prober:
        settings = asked.plan.steps[0].settings
        guess = _free_rate(prober, settings)
        state = Search(
            guess=guess,
            tolerance=flags["tolerance"],
            votes=flags["repeats"],
            probes_max=flags["max_probes"],
            floor=float(settings.publishers),
        )
        while not prober.stop.finishing and (rate := state.next_rate()) is not None:
            _probe_rate(prober, state, settings, rate)
        return _conclude(prober, state.answer(), flags)


def _free_rate(prober: Prober, settings: Settings) -> float:
    """The delivered rate without a schedule, where the search begins. Raises CliError if nothing is delivered."""
    found, _ = prober.run("unlimited", replace(settings, rate=None))
    row = found.rows[0] if found.rows else None
    rate = (row["delivered_per_s"] if row["delivered"] else row["published_per_s"]) if row else 0.0
    if found.interrupted and not rate:
        raise KeyboardInterrupt
    if not rate:
        fix = f"see {found.path}; make probes longer with --time"
        raise CliError("nothing came through, even without a schedule", str(found.path), fix, Exit.UNTRUSTED)
    line = f"without a schedule: {rate:,.0f} msg/s came through"
    line += " (the load generator or its machine was the limit)" if found.limits else ""
    record = {"rate": None, "delivered_per_s": rate, "invalid": bool(found.limits), "path": str(found.path)}
    prober.note(record, line)
    return float(rate)


def _probe_rate(prober: Prober, state: Search, settings: Settings, rate: float) -> None:
    """Run a probe at a rate of the whole load, and record its vote."""
    publishers = settings.publishers * prober.asked.plan.publishing.channels
    found, verdicts = prober.run(f"rate={float(f'{rate:.6g}'):.15g}", replace(settings, rate=rate / publishers))
    if found.interrupted:
        return
    missed = [*_not_kept_up(found, rate), *(_words(verdict) for verdict in verdicts if not verdict.met)]
    invalid = bool(found.limits)
    state.record(rate, passed=not missed, invalid=invalid)
    record = {
        "rate": rate,
        "passed": not missed and not invalid,
        "invalid": invalid,
        "missed": missed,
        "faults": found.faults,
        "path": str(found.path),
    }
    word = "INVALID" if invalid else "failed" if missed else "passed"
    said = [limit.what for limit in found.limits] or missed or map(_words, verdicts)
    prober.note(record, f"{rate:>12,.0f} msg/s  {word:<7}  {'; '.join(said)}")


def _words(verdict: Verdict) -> str:
    """The metric and its value, such as ``e2e.p99 31.4 ms``; the objective itself is shown at the end."""
    return f"{verdict.objective.metric} {shown(verdict.objective, verdict.value)}"


def _not_kept_up(found: Probe, rate: float) -> list[str]:
    """How a probe failed to publish or deliver at its rate; empty if it kept up."""
    if not found.rows:
        return ["nothing was measured"]
    row, missed = found.rows[0], []
    if row["published_per_s"] < KEPT_UP * rate:
        missed.append(f"published {row['published_per_s']:,.0f} of {rate:,.0f} msg/s")
    elif row["settings"]["consumers"] and row["delivered"] < KEPT_UP * row["published"]:
        missed.append(f"delivered {row['delivered']:,} of {row['published']:,}")
    return missed


def _conclude(prober: Prober, answer: SearchAnswer, flags: Mapping[str, Any]) -> Exit:
    """Show the answer of the search, and how certain it is."""
    words = [_found(answer, " and ".join(objective.text for objective in prober.asked.objectives))]
    if answer.rate is not None:
        words.append(f"to see it again: {shlex.join(_longer(prober.asked, answer.rate, flags))}")
    if answer.limited:
        words += prober.limits_in_words()
    elif not answer.converged:
        words.append(f"not converged after {answer.probes} probes: the bracket is what is known")
    record = {
        "rate": answer.rate,
        "fails_at": None if answer.limited else answer.below,
        "invalid_at": answer.below if answer.limited else None,
        "valid": not answer.limited,
        "converged": answer.converged,
        "probes": answer.probes,
    }
    _write(prober, record, words)
    return _code(prober, found=answer.rate is not None, valid=not answer.limited)


def _found(answer: SearchAnswer, objectives: str) -> str:
    """The answer in a sentence. The limit of the load generator is never told as the limit of the broker."""
    if answer.limited and answer.rate is None:
        return (
            f"INVALID: whether any rate meets {objectives} is not known: at {answer.below:,.0f} msg/s, the lowest "
            "tried, the load generator or its machine was the limit, not the broker"
        )
    if answer.rate is None:
        return f"no rate meets {objectives}"
    if answer.limited:
        return (
            f"INVALID: the highest rate that meets {objectives} is not known; it is at least {answer.rate:,.0f} msg/s "
            f"(at {answer.below:,.0f} the load generator or its machine was the limit, not the broker)"
        )
    bracket = f"fails at {answer.below:,.0f}" if answer.below is not None else "nothing higher was tried"
    return f"the highest rate that meets {objectives}: {answer.rate:,.0f} msg/s ({bracket})"


def _longer(asked: SearchPlan, rate: float, flags: Mapping[str, Any]) -> list[str]:
    """The command that runs the load at this rate for a minute."""
    step = asked.plan.steps[0]
    each = rate / (step.settings.publishers * asked.plan.publishing.channels)
    minute = replace(step, settings=replace(step.settings, rate=each), duration_s=60.0, warmup_s=5.0)
    return _again(asked, asked.plan.changed(steps=(minute,)), flags)


def _again(asked: SearchPlan, plan: Plan, flags: Mapping[str, Any]) -> list[str]:
    """The command that runs the load of a probe's plan."""
    if flags["workload"] is None:
        return run_command(plan, asked.target)
    changed = [name for name in LOAD_FLAGS if flags[name] is not None]
    searched = _SEARCHED if flags["frontier"] else ()
    return sweep_command(flags["workload"], plan, asked.target, [*asked.swept, *changed, *searched])


# The best setting


def compare_settings(asked: SearchPlan, flags: Mapping[str, Any]) -> Exit:
    """Run every setting of the grid in a closed loop, and recommend one."""
    settings = grid(map(round, flags["in_flights"]), map(round, flags["prefetches"]), flags["ack_parts"])
    with _prober(asked, flags) as prober:
        probes = _probe_settings(prober, settings)
        again = [(each.in_flight, each.prefetch, each.ack_interval) for each in contenders(probes)]
        for _ in range(flags["repeats"] - 1):
            probes += _probe_settings(prober, again)
        points = settled(probes)
        chosen, words = recommend(points), sentences(points)
        edge = ["worth having, by rate:", *(_shown(point) for point in frontier(points))] if points else []
        valid = not any(point.limits for point in points)
        record = {
            "recommended": _plain(chosen),
            "valid": valid,
            "frontier": [_plain(point) for point in frontier(points)],
        }
        _write(prober, record, [*edge, *words, *([] if valid else prober.limits_in_words())])
        return _code(prober, found=chosen is not None, valid=valid)


def _probe_settings(prober: Prober, settings: Sequence[tuple[int, int, int]]) -> list[Point]:
    """Probe each setting, until the search is stopped."""
    found: list[Point] = []
    for in_flight, prefetch, ack_interval in settings:
        if prober.stop.finishing:
            break
        found += _probe_setting(prober, in_flight, prefetch, ack_interval)
    return found


def _probe_setting(prober: Prober, in_flight: int, prefetch: int, ack_interval: int) -> list[Point]:
    base = prober.asked.plan.steps[0].settings
    settings = replace(base, in_flight=in_flight, prefetch=prefetch, ack_interval=ack_interval, rate=None)
    found, verdicts = prober.run(f"in_flight={in_flight} prefetch={prefetch} ack_interval={ack_interval}", settings)
    if not found.rows or found.interrupted:
        return []
    row = found.rows[0]
    limits = tuple(limit.what for limit in found.limits)
    other = (fault for fault in found.faults if fault not in limits)
    missed = (*other, *(verdict.objective.text for verdict in verdicts if not verdict.met))
    point = Point(
        in_flight=in_flight,
        prefetch=prefetch,
        ack_interval=ack_interval,
        rate=row["delivered_per_s"],
        latency_ns=row["latency"].get("e2e", {}).get("p99_ns", 0),
        missed=missed,
        limits=limits,
    )
    prober.note({**(_plain(point) or {}), "path": str(found.path)}, _shown(point))
    return [point]


def _shown(point: Point) -> str:
    limits = [f"INVALID: {limit}" for limit in point.limits]
    doubts = f"  ({'; '.join([*limits, *point.missed])})" if limits or point.missed else ""
    return f"  {point.setting:<52} {point.rate:>10,.0f} msg/s  p99 {three_figures(point.latency_ns / 1e6)} ms{doubts}"


def _plain(point: Point | None) -> dict[str, Any] | None:
    return None if point is None else asdict(point)


# The end


def _write(prober: Prober, record: dict[str, Any], words: Sequence[str]) -> None:
    """Write ``search.json`` beside the runs, and show its sentences."""
    plain = {
        "schema": 1,
        "objectives": [objective.text for objective in prober.asked.objectives],
        **record,
        "interrupted": prober.stop.finishing,
        "tried": prober.records,
        "sentences": list(words),
    }
    path = prober.out / "search.json"
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if prober.asked.as_json:
        prober.asked.show(json.dumps({**plain, "path": str(path)}, indent=1, ensure_ascii=False))
        return
    prober.asked.show("\n" + "\n".join(words) + f"\n\nsearch  {path}")


def _code(prober: Prober, *, found: bool, valid: bool) -> Exit:
    if prober.harmed:
        return Exit.SAFETY
    if prober.stop.finishing:
        return Exit.INTERRUPTED
    if not valid:
        return Exit.UNTRUSTED
    return Exit.OK if found else Exit.MISSED
