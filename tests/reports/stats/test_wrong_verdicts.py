"""How often a verdict is wrong where the truth lies on the bound of a finding: at most one time in twenty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from reports.stats.reproduction import ReproductionOutcome, judge
from tests.reports.stats.test_contrasts import Floats, noise_of, sweeps

SEED: Final = 45
STEPS: Final = 6
LABELS: Final = tuple(f"s={number}" for number in range(STEPS))
COUNT: Final = 700
"""Sweeps of each case."""
AT_MOST: Final = 0.075
"""One in twenty, and three standard errors of so many sweeps."""


def truths(*factors: float) -> Floats:
    return np.asarray(factors)


BOUNDS: Final[Mapping[str, tuple[dict[str, Any], Floats]]] = {
    "flat, one step at the bound": ({"trend": "flat", "tolerance": 0.15}, truths(1, 1, 1, 1, 1, 1.15)),
    "flat, all pairs of a rise": ({"trend": "flat", "tolerance": 0.15}, 1.15 ** np.linspace(0, 1, STEPS)),
    "rises": ({"trend": "rises", "factor": 2}, 2.0 ** np.linspace(0, 1, STEPS)),
    "ratio": ({"trend": "ratio", "steps": ["s=0", "s=1"], "at_most": 1.1}, truths(1, 1.1, 1, 1, 1, 1)),
    "best": ({"trend": "best", "steps": ["s=2"], "tolerance": 0.05}, truths(1, 1, 1, 1.05, 1, 1)),
    "biggest gain": ({"trend": "biggest_gain", "steps": ["s=1", "s=2"]}, truths(1, 1.2, 2.2, 3.2, 3.4, 3.5)),
}


def rows_of(sweep: Floats) -> list[list[dict[str, Any]]]:
    """The rows of each round of a sweep: rounds, steps, seconds."""
    noise = [
        [{"delivered_per_s": each.scales} for each in noise_of(steps).values()] if len(sweep) == 1 else [{}] * STEPS
        for steps in sweep
    ]
    return [
        [
            {
                "label": label,
                "delivered": 1,
                "delivered_per_s": float(figures.mean()),
                "length_ns": len(figures) * 10**9,
                "start_ns": at * 63 * 10**9,
                "noise": noise[number][at],
                "trust": [],
            }
            for at, (label, figures) in enumerate(zip(LABELS, steps, strict=True))
        ]
        for number, steps in enumerate(sweep)
    ]


def verdicts(finding: Mapping[str, Any], truth: Sequence[float] | Floats, rounds: int) -> Counter[ReproductionOutcome]:
    plan = {
        "steps": [{"number": number, "label": label} for number, label in enumerate(LABELS)],
        "findings": [{"metric": "rate", "says": "so", "steps": list(LABELS), **finding}],
    }
    found = Counter[ReproductionOutcome]()
    for sweep in sweeps(SEED, rounds, STEPS)[:COUNT]:
        judged = judge(plan, rows_of(sweep * np.asarray(truth)[:, None]))
        assert judged is not None
        found[judged.outcome] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("name", BOUNDS)
def test_a_verdict_at_the_bound_is_wrong_one_time_in_twenty(name: str, rounds: int) -> None:
    finding, truth = BOUNDS[name]
    found = verdicts(finding, truth, rounds)
    for outcome in (ReproductionOutcome.REPRODUCED, ReproductionOutcome.NOT_REPRODUCED):
        assert found[outcome] <= AT_MOST * COUNT, f"{found}, seed {SEED}"


@pytest.mark.slow
def test_three_rounds_decide_what_is_plainly_so() -> None:
    """Fifteen pairs of six equal steps: each was tested as strictly as if one of them were enough."""
    found = verdicts({"trend": "flat", "tolerance": 0.15}, np.ones(STEPS), 3)
    assert found[ReproductionOutcome.REPRODUCED] >= 0.9 * COUNT, f"{found}, seed {SEED}"
