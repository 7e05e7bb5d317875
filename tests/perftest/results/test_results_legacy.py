"""PerfTest's figures beside ours: a sample, and what it misses."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from hdr_buckets import BUCKET_HIGHEST_NS, bucket_index
from perftest.metrics.interval import Phase
from perftest.results.legacy import SIZE, LegacyLatency, Reservoir


def counts_of(*values: int, times: int = 1) -> np.ndarray:
    """A histogram with each value so many times."""
    places = bucket_index(np.array(values, np.int64))
    counts = np.zeros(int(places.max()) + 1, np.int64)
    np.add.at(counts, places, times)
    return counts


def test_all_that_fits_is_kept_and_weighted_alike() -> None:
    """Few values at one time: the quantiles are those of the values."""
    reservoir = Reservoir(1)
    assert reservoir.to_json() == {"seen": 0, "kept": 0}
    reservoir.add(counts_of(*range(1, 101)), 1.0)
    found = reservoir.to_json()
    assert (found["seen"], found["kept"], found["min_ns"], found["max_ns"]) == (100, 100, 1, 100)
    assert [found[name] for name in ("median_ns", "p75_ns", "p95_ns", "p99_ns")] == [
        pytest.approx(expected, abs=1) for expected in (50, 75, 95, 99)
    ]


def test_a_sample_of_many_is_fair() -> None:
    """Each value of an interval has the same chance, however the buckets lie."""
    reservoir = Reservoir(2)
    reservoir.add(counts_of(1000, 2000, 4_000_000, times=20_000), 1.0)
    values, kept = np.unique(reservoir._values, return_counts=True)
    assert reservoir.to_json()["kept"] == SIZE == kept.sum()
    assert list(values) == [int(BUCKET_HIGHEST_NS[at]) for at in bucket_index(np.array([1000, 2000, 4_000_000]))]
    assert kept.min() > SIZE / 3 - 5 * (SIZE * 2 / 9) ** 0.5, kept


def test_what_is_old_fades() -> None:
    """After ten minutes of as many values, those before them are one in e^9: the summary tells of the last minutes."""
    reservoir = Reservoir(3)
    for second in range(300):
        reservoir.add(counts_of(50_000, times=1000), float(second))
    for second in range(900, 1200):
        reservoir.add(counts_of(1000, times=1000), float(second))
    assert (reservoir._values > 40_000).sum() <= 3
    assert reservoir.to_json()["p99_ns"] < 2000


def test_a_stall_that_every_user_felt_may_be_missing() -> None:
    """Ten slow messages of a million: the maximum of a sample is no maximum. That is why it stands beside ours."""
    reservoir = Reservoir(4)
    reservoir.add(counts_of(1_000_000, times=1_000_000), 1.0)
    reservoir.add(counts_of(2_000_000_000, times=10), 1.0)
    assert reservoir.to_json()["max_ns"] < 2_000_000 and reservoir.seen == 1_000_010


def test_the_drain_is_left_out_and_the_warm_up_is_not(records: ModuleType) -> None:
    """As there."""
    legacy = LegacyLatency(records.STARTED_NS)
    made = records.intervals(records.plan(steps=1))
    for record in made:
        legacy.interval(record)
    assert made[0].phase is Phase.WARMUP
    assert {name: values["seen"] for name, values in legacy.to_json().items()} == {"consumer": 800, "confirm": 800}
