"""How often a comparison cries wolf, and how often it finds what changed: hundreds of synthetic pairs, seeded.

The runs are what real ones are: within a run a slow interval follows a slow one, and each run is a little faster or
slower than the next as a whole. Neither is a change of the broker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.hlog import HlogLine
from perftest.results.reader import Run, summarise
from reports.comparison.compare import CompareResult, compare
from reports.stats.confidence import ChangeVerdict
from reports.stats.two_sides import REPEATS_ADVISED, REPEATS_MIN
from tests.perftest.results.records import SECOND, STARTED_NS, ledger

Values = np.ndarray[Any, np.dtype[np.float64]]
DATA = Path(__file__).parents[2] / "data" / "same_broker_runs.csv"
INTERVALS = 35
INTERVAL_NS = SECOND // 5
NEIGHBOURS = 0.8
"""Correlation of an interval with the next."""
LABELS = tuple(f"in_flight={number}" for number in (1, 10, 100, 200, 500, 1000))


@dataclass(frozen=True)
class Machine:
    """How figures vary, in logarithms: from run to run, and from interval to interval within one."""

    runs: float = 0.05
    intervals: float = 0.10


def wander(rng: np.random.Generator, size: int, spread: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A series in which neighbours are alike (AR(1)), with the standard deviation ``spread``."""
    steps = rng.normal(0, spread * math.sqrt(1 - NEIGHBOURS**2), size)
    found = np.empty(size)
    found[0] = rng.normal(0, spread)
    for at in range(1, size):
        found[at] = NEIGHBOURS * found[at - 1] + steps[at]
    return found


def manifest(labels: tuple[str, ...]) -> dict[str, Any]:
    steps = [{"number": number, "label": label, "settings": {}} for number, label in enumerate(labels, 1)]
    plan = {"steps": steps, "interval_s": 0.2}
    return {"id": "run", "state": "finished", "started_ns": STARTED_NS, "plan": plan, "loop": "closed"}


def recorded(rng: np.random.Generator, machine: Machine) -> Run:
    """A run of one step with all its intervals and histograms, 60 messages an interval."""
    run = Run(path=Path("run"), manifest=manifest(LABELS[:1]), ledger=ledger("ok"))
    whole = rng.normal(0, machine.runs)
    for at, slower in enumerate(whole + wander(rng, INTERVALS, machine.intervals)):
        count = round(60 * math.exp(-slower))
        histogram = Histogram()
        histogram.record((rng.gamma(8, 2.5e5 * math.exp(slower), count)).astype(np.int64) + 1)
        start_ns = STARTED_NS + at * INTERVAL_NS
        counted: dict[str, Any] = dict.fromkeys(("published", "confirmed", "delivered"), count)
        run.intervals.append(
            Interval(
                worker="0",
                step=1,
                phase=Phase.STEADY,
                start_ns=start_ns,
                length_ns=INTERVAL_NS,
                worker_cpu_ns=INTERVAL_NS // 10,
                latencies={},
                **counted,
            )
        )
        run.histograms.append(
            HlogLine(
                series=Series.E2E,
                step=1,
                phase=Phase.STEADY,
                host="a",
                worker="0",
                start_ns=start_ns,
                length_ns=INTERVAL_NS,
                max_ns=histogram.max_ns,
                payload=histogram.encode(),
            )
        )
    run.result = summarise(run)
    return run


def finished(rng: np.random.Generator, machine: Machine, *, slower_by: float = 0.0) -> Run:
    """A run of six steps by its results alone: the mean over intervals that wander, around a level of the run's own.

    The tail varies three times as much as the median, as tails do.
    """
    rows = []
    for number, label in enumerate(LABELS, 1):
        level = rng.normal(0, machine.runs) + wander(rng, INTERVALS, machine.intervals).mean()
        e2e = {
            "count": 100_000,
            "p50_ns": 2e6 * math.exp(level) * (1 + slower_by),
            "p99_ns": 8e6 * math.exp(level + rng.normal(0, machine.runs)) * (1 + slower_by),
            "p999_ns": 2e7 * math.exp(level + rng.normal(0, 3 * machine.runs)) * (1 + slower_by),
        }
        rates = {f"{name}_per_s": 10_000 * math.exp(-level) / (1 + slower_by) for name in ("published", "delivered")}
        rows.append({"step": number, "label": label, "latency": {"e2e": e2e}, **rates})
    return Run(path=Path("run"), manifest=manifest(LABELS), result={"steps": rows, "trust": [], "valid": True})


def side(rng: np.random.Generator, machine: Machine, repeats: int, *, slower_by: float = 0.0) -> list[Run]:
    return [finished(rng, machine, slower_by=slower_by) for _ in range(repeats)]


def test_one_run_a_side_never_raises_an_alarm() -> None:
    """Two runs of one broker; an interval drawn from the intervals within a run calls half of such pairs changed."""
    rng = np.random.default_rng(1)
    for _ in range(12):
        result = compare([recorded(rng, Machine())], [recorded(rng, Machine())])
        assert result.lines
        assert {line.verdict for line in result.lines} == {ChangeVerdict.INCONCLUSIVE}


@pytest.mark.parametrize("repeats", [REPEATS_MIN, REPEATS_ADVISED])
@pytest.mark.parametrize("machine", [Machine(runs=0.05), Machine(runs=0.20)], ids=["steady", "noisy"])
def test_repetitions_of_the_same_thing_seldom_raise_an_alarm(repeats: int, machine: Machine) -> None:
    """Of 60 comparisons of a sweep, 30 metrics each, those in which any metric got worse or better: 5 % were allowed
    by the confidence, and what is noise takes most of these away."""
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(60):
        result = compare(side(rng, machine, repeats), side(rng, machine, repeats))
        alarms += bool(result.count(ChangeVerdict.REGRESSED) + result.count(ChangeVerdict.IMPROVED))
    assert alarms <= 3


def test_a_real_change_is_found_with_ten_repetitions() -> None:
    """30 % slower in all six steps: each of 12 comparisons says so, of most steps, and calls nothing improved."""
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(12):
        sides = side(rng, Machine(), REPEATS_ADVISED), side(rng, Machine(), REPEATS_ADVISED, slower_by=0.3)
        result = compare(*sides)
        worse = {line.step for line in result.lines if line.verdict is ChangeVerdict.REGRESSED}
        assert worse
        assert result.count(ChangeVerdict.IMPROVED) == 0
        found += len(worse)
    assert found >= 0.7 * 12 * len(LABELS)


# The gate as a whole: how often it fails, over all its figures, as `perftest compare` judges them

FIGURES = 9
"""Of :func:`measured`, in the order of the columns of the recorded runs."""
P99 = 3
TRIALS = 200
"""A gate that fails in 10 % of all comparisons has ten alarms or fewer of 200 in one of 120 cases (binomial). The seeds
are fixed."""
ALARMS_MAX = TRIALS * 5 // 100
FOUND_MIN = TRIALS * 80 // 100


def measured(values: Values) -> Run:
    """A run of one step that measured these figures: two rates, three percentiles of two latencies, and CPU."""
    delivered, published, *percentiles, cpu = values.tolist()
    names = ("p50_ns", "p99_ns", "p999_ns")
    latency = {
        series: {"count": 100_000, **dict(zip(names, percentiles[at : at + 3], strict=True))}
        for series, at in (("e2e", 0), ("confirm", 3))
    }
    row = {"step": 1, "label": LABELS[0], "latency": latency, "broker_cpu_us_per_message": cpu}
    row |= {"delivered_per_s": delivered, "published_per_s": published}
    return Run(path=Path("run"), manifest=manifest(LABELS[:1]), result={"steps": [row], "trust": [], "valid": True})


def judged(base: Values, candidate: Values) -> CompareResult:
    """What ``perftest compare`` says of two sides, of which each row is a run and each column a figure."""
    result = compare(*([measured(values) for values in side] for side in (base, candidate)))
    assert len(result.lines) == FIGURES and not result.refused
    return result


def alarms(pairs: Iterable[tuple[Values, Values]]) -> int:
    """How many comparisons call any figure changed."""
    found = [judged(*pair) for pair in pairs]
    return sum(bool(result.count(ChangeVerdict.REGRESSED) + result.count(ChangeVerdict.IMPROVED)) for result in found)


def simulated(rng: np.random.Generator, runs: float) -> tuple[Values, Values]:
    """Ten runs of each side: each run is a little slower as a whole, and each figure varies by itself, too."""
    whole, own = rng.normal(0, runs / math.sqrt(2), (2, 10, 1)), rng.normal(0, runs / math.sqrt(2), (2, 10, FIGURES))
    base, candidate = 1e6 * np.exp(whole + own)
    return base, candidate


@pytest.mark.parametrize("runs", [0.03, 0.10])
def test_the_gate_seldom_fails_without_a_change(runs: float) -> None:
    """Over all figures together; wide runs are where noise thresholds do not help."""
    rng = np.random.default_rng(4)
    assert alarms(simulated(rng, runs) for _ in range(TRIALS)) <= ALARMS_MAX


def test_the_gate_finds_a_p99_worse_by_a_tenth() -> None:
    """With ten runs a side that differ by 3 %, among nine figures."""
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(TRIALS):
        base, candidate = simulated(rng, 0.03)
        candidate[:, P99] *= 1.1
        (line,) = (line for line in judged(base, candidate).lines if line.metric == "e2e.p99")
        found += line.verdict is ChangeVerdict.REGRESSED
    assert found >= FOUND_MIN


def recorded_values() -> Values:
    """Runs of one broker, one after the other, with nothing changed (see the head of the file)."""
    return np.loadtxt(DATA, delimiter=",", comments="#", skiprows=3)


def halves(rng: np.random.Generator, values: Values) -> tuple[Values, Values]:
    """Two sides of ten, by chance."""
    chosen = rng.permutation(len(values))[:20]
    return values[chosen[:10]], values[chosen[10:]]


def test_the_gate_seldom_fails_on_recorded_runs_of_one_broker() -> None:
    """Splits of runs that were really measured, on a machine that others used."""
    rng, values = np.random.default_rng(6), recorded_values()
    assert len(values) >= 20
    assert alarms(halves(rng, values) for _ in range(TRIALS)) <= ALARMS_MAX


def test_the_gate_finds_a_tenth_in_recorded_runs_where_they_are_steady() -> None:
    """The delivered rate of the recorded runs varies by 1 %, so a tenth less is found. Their latencies vary by 30 to
    70 %: there the gate asks for more repetitions, and does not say that nothing changed."""
    rng, values = np.random.default_rng(7), recorded_values()
    found = 0
    for _ in range(TRIALS // 5):
        base, candidate = halves(rng, values)
        candidate[:, [0, P99]] *= 0.9, 1.1
        lines = {line.metric: line for line in judged(base, candidate).lines}
        found += lines["delivered"].verdict is ChangeVerdict.REGRESSED
        latency = lines["e2e.p99"]
        assert latency.verdict is ChangeVerdict.REGRESSED or (
            latency.verdict is ChangeVerdict.INCONCLUSIVE and latency.needed
        )
    assert found >= FOUND_MIN // 5
