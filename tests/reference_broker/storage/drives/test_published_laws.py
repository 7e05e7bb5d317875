"""What was published of drive layouts under mixed load, as far as drives alone explain it.

The source measured a cluster of three nodes on network drives of spinning disks and on fast ones: with background load
on the same drive a quorum queue lost most of its throughput, a drive of its own for the WAL gave it back, and on fast
drives nothing of that showed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from reference_broker.storage.drives.profiles import IO1_200G, PROFILES, ST1_1T
from tests.reference_broker.storage.drives.closed_loop import throughput

ONE, TWO, THREE = "AAA", "AAB", "ABC"
"""On which drive data, segments and WAL are."""
LIGHT, MEDIUM = 400, 2000
"""Background messages a second."""


@cache
def rate(profile: str, layout: str, background: int) -> float:
    return throughput(PROFILES[profile], layout, background, seconds=3)


def test_without_background_load_the_segments_cost_one_drive_a_little() -> None:
    one, two, three = (rate(ST1_1T.name, layout, 0) for layout in (ONE, TWO, THREE))
    assert 0.7 * two < one < two
    assert three == pytest.approx(two, rel=0.02)


def test_light_background_load_halves_one_drive_and_leaves_a_wal_apart_alone() -> None:
    one, two, three = (rate(ST1_1T.name, layout, LIGHT) for layout in (ONE, TWO, THREE))
    assert 0.2 < one / two < 0.65
    assert two == pytest.approx(rate(ST1_1T.name, TWO, 0), rel=0.05)
    assert three == pytest.approx(two, rel=0.05)


def test_medium_background_load_breaks_one_drive_and_hurts_the_others() -> None:
    one, two, three = (rate(ST1_1T.name, layout, MEDIUM) for layout in (ONE, TWO, THREE))
    assert one < 0.3 * rate(ST1_1T.name, ONE, 0)
    assert two < 0.8 * rate(ST1_1T.name, TWO, 0)
    assert one < 0.5 * two
    assert two < three * 1.02


def test_fast_drives_do_not_feel_the_background_load() -> None:
    alone = rate(IO1_200G.name, ONE, 0)
    for layout in (ONE, TWO, THREE):
        for background in (LIGHT, MEDIUM):
            assert rate(IO1_200G.name, layout, background) == pytest.approx(alone, rel=0.05)


def test_one_drive_has_a_slope() -> None:
    rates = [rate(ST1_1T.name, ONE, background) for background in (100, 200, 300, 400, 500, 600)]
    assert all(later < sooner * 0.95 for sooner, later in pairwise(rates)), rates


def test_three_drives_have_a_cliff() -> None:
    """Flat while the data drive keeps up; then every thread waits for the data drive, and the WAL for a thread."""
    rates = [rate(ST1_1T.name, THREE, background) for background in (100, 200, 300, 400, 500)]
    assert max(rates) < min(rates) * 1.03, rates
    assert rate(ST1_1T.name, THREE, 800) < min(rates) * 0.8


def test_a_drive_without_credits_collapses() -> None:
    """At its baseline of 40 operations a second one drive for all is dead under medium load."""
    spent = replace(ST1_1T, credit_tokens=1)
    assert throughput(spent, ONE, MEDIUM, seconds=3) < 0.5 * rate(ST1_1T.name, ONE, MEDIUM)
