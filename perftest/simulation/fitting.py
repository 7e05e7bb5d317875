"""Calibration by measurement: short real runs on this machine, and costs that make simulated runs like them.

Two short loads are measured on a local cluster, several times. With one message in flight nearly all CPU time is paid
for calls, and nearly all latency is drive, wake-ups and calls. With 1000 in flight nearly all is paid for messages and
octets. The drive is measured by itself. The costs are then found by iteration: simulate the same two loads, compare CPU
time a message and confirm latency, correct, and again. The iteration is deterministic; the measurement is
not.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import perftest
from perftest.doctor.drive import drive
from perftest.doctor.host import processors
from perftest.exits import CliError
from perftest.results.provenance import host_facts
from perftest.series.sweep_plan import SweepRequest, swept_plan
from perftest.simulation.calibration import DRIVE, SHIPPED, Calibration, read
from perftest.simulation.simulated_drives import of_options
from perftest.simulation.simulated_run import StepLimits, simulate
from perftest.simulation.simulated_world import Setup
from reference_broker.storage.drives.profiles import MIB, DriveProfile
from reference_broker.virtual.network import OneWayLink

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from perftest.spec.plan import Plan

MEASURED: Final = 3
"""Number of times that the loads are measured. The median of each figure counts: the best CPU time of one run and the
best rate of another describe a machine that does not exist."""
LOOK_S: Final = 1.0
"""Time before each measurement for which the use of the processors by other programs is observed."""
ROUNDS: Final = 6
WARMUP_S: Final = 2.0
"""Time after which a log has spare files; while it makes them, confirms wait."""
SIMULATED_S: Final = 3.0
_WAKES: Final = 8
"""Approximate number of wake-ups of processes and threads on the way of a message and back to its publisher."""
_SLOWEST: Final = 4.0
"""Largest factor by which a round changes a cost, so that one bad round does no harm."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of one run: CPU time a message in microseconds, latency in nanoseconds, rate a second."""

    load_us: float
    broker_us: float
    confirm_ns: int
    p99_ns: int
    rate: float

    @classmethod
    def of(cls, row: dict[str, Any]) -> RunFigures:
        """From a row of results. Raises CliError if the row has no CPU time or latency."""
        load, broker = row["worker_cpu_us_per_message"], row["broker_cpu_us_per_message"]
        if not load or not broker or "confirm" not in row["latency"]:
            fix = "run again, with less beside it on this machine"
            raise CliError("a run of the calibration has no figures", row["label"], fix)
        confirm = row["latency"]["confirm"]
        return cls(load, broker, confirm["p50_ns"], confirm["p99_ns"], row["confirmed_per_s"])


def calibrate(directory: Path, seconds: float, tell: Callable[[str], None]) -> Calibration:
    """Measure this machine and the drive of ``directory``, and fit the costs."""
    tell("measuring the drive")
    profile = _profile(directory)
    with TemporaryDirectory(dir=directory, prefix=".calibration-") as place:
        plan = _plan(seconds)
        rounds = []
        for number in range(1, MEASURED + 1):
            tell_of_other_work(tell)
            tell(f"measuring two loads of {seconds:g} s on a local cluster, {number} of {MEASURED}")
            rounds.append([RunFigures.of(row) for row in real_rows(plan, Path(place))])
    real = [_typical(found) for found in zip(*rounds, strict=True)]
    start = replace(read(SHIPPED), drive=profile, measured_on=origin(directory), cores=_cores(), fit={})
    return _fitted(start, real, tell)


def tell_of_other_work(tell: Callable[[str], None]) -> None:
    """Say that this machine is not quiet, if so: its figures would look like a worse machine's."""
    check = processors(LOOK_S)
    if check.status != "pass":
        tell(f"this machine is not quiet: {check.text}")


def real_rows(plan: Plan, out: Path, layout: PlacedLayout | None = None) -> list[dict[str, Any]]:
    """The rows of a plan that is measured in real time, on a local cluster with this layout of drives."""
    from perftest.measuring.interrupts import Interrupts
    from perftest.measuring.measured_run import run_plan
    from perftest.measuring.session_options import Options

    options = Options(out=out, ui="none", as_json=False, report=False, layout=layout)
    interrupts = Interrupts()
    with interrupts.installed():
        ran = run_plan(plan, options, interrupts)
        interrupts.allow()
    if error := ran.failure or ran.outcome.error:
        raise CliError(error.what, error.where, error.fix)
    return ran.writer.rows


def setup_of(known: Calibration, seed: int = 1, nodes: int = 3) -> Setup:
    """The local cluster of the calibrated machine."""
    link = OneWayLink(latency_ns=known.loopback_ns, octets_per_second=known.loopback_octets_per_second)
    return Setup(
        nodes=nodes, seed=seed, node_costs=known.node, generator_costs=known.generator,
        placement=of_options((), 0, known.drive), within=link, between=link, cores=known.cores, shared=True,
    )  # fmt: skip


def _plan(seconds: float) -> Plan:
    times = f"step={{duration: {seconds + WARMUP_S:g}s, warmup: {WARMUP_S:g}s}}"
    return swept_plan(SweepRequest(overrides=(times,), varied=("in_flight=1,1000",), isolated=True))[0]


def _profile(directory: Path) -> DriveProfile:
    figures = drive(directory).figures
    latency_ns = int(figures["fdatasync_p50_us"]) * 1000
    octets = max(int(figures["write_mib_per_s"]), 1) * MIB
    return DriveProfile(name=DRIVE, latency_ns=latency_ns // 2, flush_ns=latency_ns // 2, octets_per_second=octets)


def _typical(found: Sequence[RunFigures]) -> RunFigures:
    """The median of each figure."""
    return RunFigures(*(median(values) for values in zip(*map(astuple, found), strict=True)))


def _fitted(known: Calibration, real: list[RunFigures], tell: Callable[[str], None]) -> Calibration:
    for number in range(1, ROUNDS + 1):
        found = _simulated(known)
        tell(f"round {number} of {ROUNDS}: {_errors(real, found)}")
        known = _corrected(known, real, found)
    found = _simulated(known)
    tell(f"fitted: {_errors(real, found)}")
    return replace(known, fit={"in_flight": [1, 1000], "real": _table(real), "simulated": _table(found)})


def _simulated(known: Calibration) -> list[RunFigures]:
    limits = StepLimits(steady_s=SIMULATED_S, warmup_s=WARMUP_S)
    with TemporaryDirectory() as place:
        writer, _ = simulate(_plan(SIMULATED_S), setup_of(known), known, Path(place), limits)
        return [RunFigures.of(row) for row in writer.rows]


def _corrected(known: Calibration, real: list[RunFigures], found: list[RunFigures]) -> Calibration:
    """Calls by the load of one message, contents by the load of a thousand, wake-ups by the missing latency."""
    ratios = [(wanted.broker_us / got.broker_us, wanted.load_us / got.load_us)
              for wanted, got in zip(real, found, strict=True)]  # fmt: skip
    missing_ns = (real[0].confirm_ns - found[0].confirm_ns) // _WAKES
    wake_ns = max(0, known.node.wake_ns + missing_ns)
    # Of messages one by one, 4 % meet a hiccup; 1 % then meet one that is longer than about its mean.
    spread_ns = (real[0].p99_ns - real[0].confirm_ns) - (found[0].p99_ns - found[0].confirm_ns)
    hiccup_ns = max(0, known.node.hiccup_ns + spread_ns // 2)
    costs = [
        replace(
            each.scaled(calls=_bounded(ratios[0][at]), contents=_bounded(ratios[1][at])),
            wake_ns=wake_ns,
            hiccup_ns=hiccup_ns,
        )
        for at, each in enumerate((known.node, known.generator))
    ]
    return replace(known, node=costs[0], generator=costs[1])


def _bounded(ratio: float) -> float:
    return min(max(ratio, 1 / _SLOWEST), _SLOWEST)


def _errors(real: list[RunFigures], found: list[RunFigures]) -> str:
    """The distance of the simulated figures from the real ones, in words."""
    parts = []
    for name, wanted, got in zip(("1 in flight", "1000 in flight"), real, found, strict=True):
        figures = zip(("rate", "p50", "p99", "broker CPU"), _compared(wanted), _compared(got), strict=True)
        parts.append(f"{name}: " + ", ".join(f"{figure} {is_ / was - 1:+.0%}" for figure, was, is_ in figures))
    return "; ".join(parts)


def _compared(figures: RunFigures) -> tuple[float, ...]:
    return figures.rate, figures.confirm_ns, figures.p99_ns, figures.broker_us


def _table(figures: list[RunFigures]) -> list[dict[str, float]]:
    return [asdict(each) for each in figures]


def _cores() -> int:
    from perftest.engine.host import THIS_HOST

    return THIS_HOST.cores()


def origin(directory: Path) -> dict[str, Any]:
    """The machine of a calibration, its date, and the versions of perftest and Python."""
    facts = host_facts(directory)
    return {
        **{name: facts[name] for name in ("cpu", "cores", "memory_bytes", "kernel", "filesystem")},
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "perftest": perftest.__version__,
        "python": platform.python_version(),
    }
