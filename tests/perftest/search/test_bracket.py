"""The search against brokers whose limit is known, and against such as err by chance."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.search.bracket import Search, SearchAnswer


def searched(search: Search, passes: Callable[[float], bool]) -> SearchAnswer:
    """Probe until the search is over."""
    while (rate := search.next_rate()) is not None:
        search.record(rate, passed=passes(rate))
    return search.answer()


@given(
    limit=st.floats(min_value=2, max_value=1e6),
    guess=st.floats(min_value=1, max_value=1e7),
    tolerance=st.sampled_from([0.02, 0.05, 0.2]),
)
def test_a_sharp_limit_is_found(limit: float, guess: float, tolerance: float) -> None:
    """Wherever it lies from the guess: the bracket holds it, and is as narrow as was asked for."""
    search = Search(guess=guess, tolerance=tolerance, probes_max=200)
    answer = searched(search, lambda rate: rate <= limit)
    assert answer.converged
    assert answer.rate is not None
    assert answer.below is not None
    assert answer.rate <= limit < answer.below
    assert answer.below <= max(answer.rate * (1 + tolerance), answer.rate * 1.011)
    assert search.tried[answer.rate].count == search.tried[answer.below].count == 3
    assert all(votes.count <= 3 for votes in search.tried.values())


def test_a_good_guess_takes_few_probes() -> None:
    """Within 5 % in a dozen, both ends confirmed three times: four for the bracket and its halves, four to confirm."""
    answer = searched(Search(guess=100_000), lambda rate: rate <= 90_000)
    assert answer.probes <= 12
    assert answer.rate is not None
    assert 85_000 <= answer.rate <= 90_000


@pytest.mark.seeds(40)
def test_chance_near_the_limit_does_not_win(seed: int) -> None:
    """Between 90 and 110 a probe passes by chance, the more often the lower: the answer lies there, or near."""
    chance = random.Random(seed)
    search = Search(guess=150, probes_max=60)
    answer = searched(search, lambda rate: chance.random() < (110 - rate) / 20)
    assert answer.rate is not None, f"seed {seed}"
    assert 80 <= answer.rate <= 110, f"seed {seed}"
    assert answer.converged, f"seed {seed}"


def test_a_lucky_pass_is_taken_back() -> None:
    """The first probe of 80 passes, every other fails: the majority decides, and the search goes on below."""
    luck = iter([True])
    answer = searched(Search(guess=100, probes_max=60), lambda rate: rate <= 50 or next(luck, False))
    assert answer.rate is not None
    assert answer.rate <= 50


def test_nothing_passes() -> None:
    """Down to the floor, which is confirmed: then there is no rate."""
    search = Search(guess=1000, floor=10)
    answer = searched(search, lambda _rate: False)
    assert (answer.rate, answer.below, answer.converged) == (None, 10, True)
    assert search.tried[10].failed == 3


def test_everything_passes_up_to_the_ceiling() -> None:
    """A goal that is too easy ends at the ceiling, not at infinity."""
    answer = searched(Search(guess=1000, ceiling=5000), lambda _rate: True)
    assert (answer.rate, answer.below, answer.converged) == (5000, None, True)


@given(st.integers(1, 30), st.randoms(use_true_random=False))
def test_the_number_of_probes_is_bounded(probes_max: int, chance: random.Random) -> None:
    """Whatever the broker does; what is known by then is said, and not to be converged."""
    search = Search(guess=1000, probes_max=probes_max)
    answer = searched(search, lambda _rate: chance.random() < 0.5)
    assert answer.probes <= probes_max
    if answer.rate is not None and answer.below is not None:
        assert answer.rate < answer.below


def test_rates_are_such_as_a_person_would_type() -> None:
    """Three figures: a probe at 12,345.678 suggests a precision that nobody has."""
    search = Search(guess=12_345.678)
    rates = []
    while (rate := search.next_rate()) is not None:
        rates.append(rate)
        search.record(rate, passed=rate < 9000)
    assert all(rate == float(f"{rate:.3g}") for rate in rates)
    assert all(math.isfinite(rate) for rate in rates)


@given(limit=st.floats(min_value=2, max_value=1e5), ceiling=st.floats(min_value=2, max_value=1e5))
def test_the_generator_limit_is_never_the_answer(limit: float, ceiling: float) -> None:
    """A broker that passes up to ``limit``, asked by a generator that measures itself beyond ``ceiling``."""
    search = Search(guess=50_000, probes_max=200)
    while (rate := search.next_rate()) is not None:
        search.record(rate, passed=rate <= limit, invalid=rate > ceiling)
    answer = search.answer()
    assert answer.rate is not None and answer.rate <= min(limit, ceiling)
    assert answer.below is not None and answer.below > min(limit, ceiling)
    assert answer.limited is (answer.below > ceiling)
    assert answer.converged is not answer.limited


@pytest.mark.parametrize("doubted", range(1, 10))
def test_a_chance_doubt_is_outvoted(doubted: int) -> None:
    """The hypervisor took a moment of one probe, whichever: that must not end a search."""
    search, count = Search(guess=1000, probes_max=60), 0
    while (rate := search.next_rate()) is not None:
        count += 1
        search.record(rate, passed=rate <= 900, invalid=count == doubted)
    answer = search.answer()
    assert count >= doubted and sum(votes.invalid for votes in search.tried.values()) == 1
    assert answer.converged and not answer.limited and answer.rate is not None
    assert 850 <= answer.rate <= 900


def test_no_rate_at_all_can_be_judged() -> None:
    """Not the same as a broker that meets no objective at any rate."""
    search = Search(guess=1000)
    while (rate := search.next_rate()) is not None:
        search.record(rate, passed=False, invalid=True)
    answer = search.answer()
    assert (answer.rate, answer.limited, answer.converged) == (None, True, False)
