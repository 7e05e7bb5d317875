"""When an operation of a modelled drive counts as late."""

from __future__ import annotations

import random

import pytest

from reference_broker.storage.drives.punctuality import Punctuality, Times, median_ns, weighty_ns

US, MS = 1_000, 1_000_000


@pytest.mark.parametrize("seed", range(3))
def test_half_of_the_time_goes_into_operations_that_are_at_least_so_long(seed: int) -> None:
    chance, times = random.Random(seed), Times()
    values = sorted(chance.randrange(1, 1 << chance.randrange(10, 30)) for _ in range(500))
    for value in values:
        times.add(value)
    found = times.weighty(0.5)
    assert sum(value for value in values if value >= found / 1.27) >= sum(values) / 2, f"seed {seed}"
    assert sum(value for value in values if value <= found * 1.27) >= sum(values) / 2, f"seed {seed}"


@pytest.mark.parametrize(("usual", "late"), [(median_ns, 100), (weighty_ns, 0)])
def test_short_requests_of_a_chain_are_late_by_what_the_chain_takes(usual: object, late: int) -> None:
    """A write of 20 us that is 30 us late is nothing to a broker that waits 1 ms for the flush after the write."""
    kept = Punctuality(usual)  # type: ignore[arg-type]
    kept.add(MS, 0)
    for _ in range(256):
        kept.add(20 * US, 0)
        kept.add(20 * US, 0)
        kept.add(MS, 0)
    before = kept.figures()["late"]
    for _ in range(100):
        kept.add(20 * US, 30 * US)
    assert kept.figures()["late"] - before == late


def test_nothing_counted_is_nothing_late() -> None:
    assert set(Punctuality(weighty_ns).figures().values()) == {0}
