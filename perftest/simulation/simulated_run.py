"""A simulated run from its plan to its run directory."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import perftest
from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.warm_up import WarmUpRule
from perftest.exits import Exit
from perftest.measuring.exit_code import exit_code
from perftest.measuring.samplers import Answering
from perftest.results.stages import StageSteps
from perftest.results.writer import RunWriter
from perftest.simulation.calibration import Calibration
from perftest.simulation.rabbitmq_nodes import VERSION
from perftest.simulation.simulated_world import Setup, Simulation, on_simulated
from perftest.simulation.virtual_generator import EPOCH_NS
from perftest.spec.codec import plan_digest
from perftest.spec.expected.slo import parse_objective
from perftest.spec.plan import Group, Plan, Step

if TYPE_CHECKING:
    from perftest.metrics.interval import Interval

DURABILITY: Final = "fdatasync of a modelled drive before each notice: nothing was written to a real one"

_BOUNDARIES: Final = frozenset({"steady", "step_started", "step_ended"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """The longest steady time of a step, the longest warm-up, and the longest time that a warm-up may go on until rates
    are steady, in seconds."""

    steady_s: float
    warmup_s: float
    settle_s: float = 0.0


class SimulatedRecorder:
    """The sink of a simulated run: everything goes to the run directory, with a sample of the nodes at each cut, and
    their latency stages at the boundaries of steps."""

    def __init__(self, writer: RunWriter, simulation: Simulation) -> None:
        self._writer = writer
        self._simulation = simulation
        self._answering = Answering([node.name for node in simulation.cluster.nodes], writer.event)
        self._steps = StageSteps({step.number for step in writer.plan.steps if not step.warmup_s})
        self._sampled_ns = 0

    def interval(self, record: Interval) -> None:
        """Write an interval."""
        self._writer.interval(record)
        self._sample_nodes()

    def _sample_nodes(self) -> None:
        t_ns, samples = self._simulation.samples()
        if t_ns > self._sampled_ns:
            self._sampled_ns = t_ns
            for sample in samples:
                self._writer.broker(sample)
            self._answering.compare({sample["node"] for sample in samples}, t_ns)

    def event(self, record: dict[str, object]) -> None:
        """Write an event."""
        self._writer.event(record)
        if record["kind"] in _BOUNDARIES:
            self._sample_nodes()
        if (boundary := self._steps.boundary(record)) is not None:
            self._writer.stages(self._steps.take(boundary, self._simulation.stages()))

    def ledger(self, record: dict[str, object]) -> None:
        """Write the ledger."""
        self._writer.ledger(record)


def simulate(
    plan: Plan, setup: Setup, calibration: Calibration, root: Path, limits: StepLimits,
    *, on_step: Callable[[], None] = lambda: None,
    stop: StopRequest | None = None,
) -> tuple[RunWriter, Exit]:  # fmt: skip
    """Run a plan in a world of its own, and write its run directory below ``root``. Returns the writer, which has the
    results, and the exit code."""
    simulation = Simulation(setup)
    stop = stop or StopRequest()
    shorter = shortened(plan, limits)
    ready = on_simulated(shorter, simulation.cluster)
    identity = _identity(ready, setup, calibration, limits)
    writer = RunWriter(root, ready, ["perftest", "simulate", plan.name], identity=identity, clock=lambda: EPOCH_NS)
    try:
        with writer.recording():
            writer.objectives = tuple(map(parse_objective, plan.objectives))
            writer.manifest["simulated"] = _facts(plan, shorter, setup, calibration)
            placed = {"layout": setup.placement.layout} if setup.placement.layout else {}
            writer.describe_broker(cluster="simulated", durability=DURABILITY, **placed)
            with _rare_collections():
                outcome = simulation.run(
                    ready, SimulatedRecorder(writer, simulation), stop, on_step, _warm_up(plan, limits)
                )
            return writer, _conclude(writer, outcome, simulation)
    finally:
        simulation.end()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector walk over all nodes seldom, as each node does in a process of its own: of a world with
    thousands of queues, the collector would take a sixth of the time. What is there before is not walked over."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _conclude(writer: RunWriter, outcome: RunOutcome, simulation: Simulation) -> Exit:
    writer.manifest["simulated"].update(simulation.facts())
    writer.describe_broker(**{name: value for name, value in asdict(outcome.broker).items() if value})
    reason = simulation.cluster.failure or (outcome.error.what if outcome.error else outcome.state)
    writer.finish(outcome.state, reason)
    missed = not all(verdict.met for verdict in writer.verdicts)
    code = exit_code(outcome.state, writer.ledger_record, writer.trust, missed=missed)
    writer.end(outcome.state, reason, int(code))
    return code


def _identity(plan: Plan, setup: Setup, calibration: Calibration, limits: StepLimits) -> str:
    """The name of the run directory: the same for the same simulation."""
    said = f"{plan_digest(plan)} {setup} {calibration.id} {limits.settle_s} {perftest.__version__}"
    said += f" {platform.python_version()}"
    return f"simulated-{plan.name.rsplit('/', 1)[-1]}-{sha256(said.encode()).hexdigest()[:8]}"


def _facts(plan: Plan, shorter: Plan, setup: Setup, calibration: Calibration) -> dict[str, Any]:
    """The manifest's record of the simulation."""
    placement = setup.placement
    times = [(step.duration_s, step.warmup_s) for step in (*plan.steps, *shorter.steps)]
    return {
        "broker": "production code" if setup.rabbit is None else f"model of RabbitMQ {VERSION}",
        "calibration": calibration.facts(),
        **({"broker_calibration": setup.rabbit.facts()} if setup.rabbit is not None else {}),
        "seed": setup.seed,
        "nodes": setup.nodes,
        "machines": "one for all" if setup.shared else "one for each node, one for the generator",
        "cores": setup.cores,
        "io_threads": placement.pool or "one for each store",
        "roles": placement.roles,
        "drives": {name: asdict(profile) for name, profile in placement.drives.items()},
        "drives_of": "each node" if placement.own_drives else "each machine",
        "octets_per_second": placement.octets_per_second or "no limit",
        **({"credits": placement.credits} if placement.credits < 1 else {}),
        "links": {"within": asdict(setup.within), "between": asdict(setup.between)},
        "shortened": _shortening(plan, shorter) if len(set(times)) > 1 and plan != shorter else "",
    }


def _shortening(plan: Plan, shorter: Plan) -> str:
    asked, simulated = (sum(step.duration_s for step in each.steps) for each in (plan, shorter))
    return f"the steps of the plan last {asked:g} s, those simulated {simulated:g} s"


def shortened(plan: Plan, limits: StepLimits) -> Plan:
    """The plan with shorter steps, because a steady state need not be simulated for minutes. A plan whose background
    load comes and goes keeps its times, and so does a plan with a timeline."""
    if _keeps_its_times(plan):
        return plan
    groups = tuple(_shortened(group, limits) for group in plan.groups)
    return replace(plan, groups=groups)


def _keeps_its_times(plan: Plan) -> bool:
    own = (group.has_own_steps or group.start_s > 0 or group.stop_s < float("inf") for group in plan.background)
    return bool(plan.timeline) or any(own)


def _warm_up(plan: Plan, limits: StepLimits) -> WarmUpRule | None:
    """The rule of the warm-ups; None for a plan that keeps its times."""
    return WarmUpRule(limits.settle_s) if limits.settle_s and not _keeps_its_times(plan) else None


def _shortened(group: Group, limits: StepLimits) -> Group:
    if not group.measured:
        return replace(group, start_s=max(group.start_s, -limits.warmup_s))
    return replace(group, steps=tuple(_shorter(step, limits) for step in group.steps))


def _shorter(step: Step, limits: StepLimits) -> Step:
    warmup_s = min(step.warmup_s, limits.warmup_s)
    return replace(step, warmup_s=warmup_s, duration_s=warmup_s + min(step.duration_s - step.warmup_s, limits.steady_s))
