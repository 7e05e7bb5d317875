"""Intervals of contrasts: how often they hold the truth, for the noise that was measured on shared machines."""

from __future__ import annotations

from math import sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from perftest.results.noise import StepNoise, scales_of
from reports.stats.contrasts import half_width

Floats = npt.NDArray[np.float64]

TRIALS: Final = 2000
SECONDS: Final = 60
GAP: Final = 3
"""Seconds between two steps: drain and warm-up."""
NOISE: Final = {
    # Relative sizes, as fitted to the seconds of sweeps on a virtual machine of two cores.
    "memory": (0.5, 0.04),  # correlation of neighbouring seconds, and scatter of the median step
    "steps_differ": 0.5,  # logarithm by which the scatter of steps differs
    "drift": (300.0, 0.03),  # seconds, and scatter of what changes slowly
    "stolen": (120.0, 8.0, 0.4),  # seconds between, longest duration, greatest loss
    "outliers": (0.01, 0.6),  # part of the seconds, greatest loss
}


def autoregressive(random: np.random.Generator, shape: tuple[int, int], memory: float) -> Floats:
    """Series of unit variance, one a row."""
    found = random.normal(size=shape)
    for at in range(1, shape[1]):
        found[:, at] = memory * found[:, at - 1] + sqrt(1 - memory**2) * found[:, at]
    return found


def stolen(random: np.random.Generator, shape: tuple[int, int], every_s: float, most_s: float, most: float) -> Floats:
    """Logarithms of what is left while others get the machine."""
    found = np.zeros(shape)
    for row in found:
        for begin in np.flatnonzero(random.random(shape[1]) < 1 / every_s):
            row[begin : begin + int(random.uniform(1, most_s)) + 1] = np.log(1 - random.uniform(0.03, most))
    return found


def sweeps(seed: int, rounds: int, steps: int, seconds: int = SECONDS) -> Floats:
    """Figures of each second that would all be 1 without noise: trials, rounds, steps, seconds."""
    random = np.random.default_rng(seed)
    length = rounds * steps * (seconds + GAP)
    memory, scatter = NOISE["memory"]
    slow_s, drift = NOISE["drift"]
    part, loss = NOISE["outliers"]
    of_steps = scatter * np.exp(NOISE["steps_differ"] * random.normal(size=(TRIALS, 1, steps, 1)))
    fast = autoregressive(random, (TRIALS, length), memory).reshape(TRIALS, rounds, steps, -1) * of_steps
    slow = drift * autoregressive(random, (TRIALS, length), np.exp(-1 / slow_s))
    slow += stolen(random, slow.shape, *NOISE["stolen"])
    slow += np.where(random.random(slow.shape) < part, np.log(1 - random.uniform(0.2, loss, slow.shape)), 0.0)
    return np.exp(fast + slow.reshape(fast.shape))[..., GAP:]


def noise_of(figures: Floats) -> dict[str, StepNoise]:
    """The noise of a round: steps, seconds."""
    seconds = figures.shape[-1]
    return {
        str(step): StepNoise(scales=scales_of(row), interval_s=1, start_s=step * (seconds + GAP), length_s=seconds)
        for step, row in enumerate(figures)
    }


def holds(sweep: Floats, first: int, second: int) -> tuple[bool, float]:
    """Whether the interval of 95 % of a ratio whose truth is 1 holds the truth, and how wide it is."""
    levels = np.log(sweep.mean(axis=-1))
    steps = {str(step): levels[:, step].tolist() for step in range(levels.shape[1])}
    values = levels[:, second] - levels[:, first]
    noise = noise_of(sweep[0]) if len(sweep) == 1 else {}
    half = half_width(values.tolist(), {str(first): -1.0, str(second): 1.0}, steps, noise, 0.95)
    return bool(abs(values.mean()) <= half), half


@pytest.mark.parametrize("steps", [3, 6])
@pytest.mark.parametrize(("rounds", "seconds"), [(1, 10), (1, 60), (3, 3), (3, 60), (5, 60)])
def test_intervals_of_95_percent_hold_the_truth_in_93_to_97_percent(rounds: int, seconds: int, steps: int) -> None:
    seed = 44
    random = np.random.default_rng(seed)
    pairs = [sorted(random.choice(steps, 2, replace=False).tolist()) for _ in range(TRIALS)]
    found = [holds(sweep, *pair) for sweep, pair in zip(sweeps(seed, rounds, steps, seconds), pairs, strict=True)]
    covered = sum(held for held, _ in found) / TRIALS
    assert 0.93 <= covered <= 0.97, f"{covered:.1%}, seed {seed}"


@pytest.mark.parametrize("steps", [3, 6])
def test_three_seconds_of_one_round_claim_no_more_than_they_know(steps: int) -> None:
    """So few differences say little about their own memory: the intervals are rather too wide."""
    seed = 44
    found = [holds(sweep, 0, steps - 1)[0] for sweep in sweeps(seed, 1, steps, 3)]
    assert 0.93 <= sum(found) / TRIALS <= 0.99, f"seed {seed}"


def test_more_rounds_and_more_steps_narrow_the_interval() -> None:
    def typical(rounds: int, steps: int) -> float:
        return float(np.median([holds(sweep, 0, 1)[1] for sweep in sweeps(7, rounds, steps)[:300]]))

    assert typical(5, 6) < typical(3, 6) < typical(1, 6)
    assert typical(3, 6) < typical(3, 2)


@pytest.mark.parametrize(
    ("case", "half"),
    [
        ({"values": [0.5]}, float("inf")),
        ({"values": [0.5, 0.5, 0.5]}, 0.0),
        ({"values": [0.0, 0.2], "steps": {"a": [0.0, 0.0], "b": [0.0, 0.2]}}, 12.706 * 0.1),
    ],
    ids=["one round without intervals", "rounds that agree", "two rounds"],
)
def test_what_little_data_tell(case: dict[str, Any], half: float) -> None:
    found = half_width(case["values"], {"a": -1.0, "b": 1.0}, case.get("steps", {}), {}, 0.95)
    assert found == pytest.approx(half, rel=1e-3)


def test_a_noisy_step_keeps_its_own_variance() -> None:
    """Quiet neighbours lend their variance, but count at most six times."""
    random = np.random.default_rng(3)
    quiet = {str(step): (0.01 * random.normal(size=5)).tolist() for step in range(4)}
    noisy = (0.5 * random.normal(size=5)).tolist()
    values = [after - before for before, after in zip(quiet["0"], noisy, strict=True)]
    among = half_width(values, {"0": -1.0, "n": 1.0}, {**quiet, "n": noisy}, {}, 0.95)
    alone = half_width(values, {"0": -1.0, "n": 1.0}, {"0": quiet["0"], "n": noisy}, {}, 0.95)
    assert 0.5 * alone < among < alone


@pytest.mark.parametrize(("averaged", "square"), [(1, 4.0), (2, 0.0)])
def test_scales_are_mean_squares_of_differences(averaged: int, square: float) -> None:
    """Figures that alternate by a factor of e squared: averages over two of them are equal."""
    scales = scales_of([1.0, float(np.exp(2))] * 4)
    assert next(each[1] for each in scales if each[0] == averaged) == pytest.approx(square)
    assert [each[0] for each in scales] == [1, 2, 4] and [each[2] for each in scales] == [7, 3, 1]
