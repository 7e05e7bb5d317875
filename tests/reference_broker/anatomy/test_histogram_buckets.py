"""The broker's histograms are HdrHistogram's, bucket by bucket."""

from __future__ import annotations

from random import Random

import numpy as np
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from hdr_buckets import HIGHEST_NS, bucket_index, encode
from reference_broker.anatomy.anatomy import Anatomy, Histograms

VALUES = st.one_of(st.integers(0, 5000), st.integers(0, HIGHEST_NS), st.integers(0, 41).map(lambda bits: 1 << bits))


def hdr() -> HdrHistogram:
    return HdrHistogram(1, HIGHEST_NS, 3)


@given(st.lists(st.tuples(VALUES, VALUES, st.integers(1, 5000)), min_size=1, max_size=8))
def test_weighted_rows_are_the_librarys_counts(rows: list[tuple[int, int, int]]) -> None:
    """One row stands for many messages: its weight must reach every column, and the sums too."""
    table = np.array(rows, np.int64)
    histograms = Histograms(3)
    histograms.record(table[:, :2], table[:, 2], first=1)
    assert not histograms.counts[0].any()
    for column in (0, 1):
        oracle = hdr()
        for row in rows:
            oracle.record_value(row[column], row[2])
        assert histograms.counts[1 + column].tolist() == list(oracle.counts)
        assert histograms.sums[1 + column] == sum(row[column] * row[2] for row in rows)


def test_the_payload_is_read_back_by_the_library() -> None:
    """The load generator and every other tool decode what a node answers."""
    values = [Random(7).randrange(10**9) for _ in range(2000)]
    histograms, oracle = Histograms(1), hdr()
    histograms.record(np.array(values)[:, None], np.ones(len(values), np.int64))
    for value in values:
        oracle.record_value(value)
    back = HdrHistogram.decode(encode(histograms.counts[0]))
    assert list(back.counts) == list(oracle.counts)
    assert back.get_total_count() == len(values)


def test_cumulated_counts_are_exact_at_powers_of_two() -> None:
    """Prometheus gets few buckets, but each must hold exactly the values below its edge."""
    values = [Random(3).randrange(1 << 22) for _ in range(500)] + [1 << 11, (1 << 11) - 1, 1 << 21]
    anatomy = Anatomy(1)
    for value in values:
        anatomy.gauge("x", value)
    found = anatomy.snapshot().gauges["x"].cumulated(range(11, 35))
    assert found == [(1 << bit, sum(value < 1 << bit for value in values)) for bit in range(11, 35)]


def test_nothing_recorded_is_a_histogram_too() -> None:
    """A node that served nobody answers like the others."""
    assert HdrHistogram.decode(encode(np.zeros(0, np.int64))).get_total_count() == 0


def test_an_endless_wait_is_counted_and_not_lost() -> None:
    """A message that waited for two hours belongs in the last bucket."""
    histograms = Histograms(1)
    histograms.record(np.array([[2 * HIGHEST_NS]]), np.array([3]))
    assert histograms.counts[0][bucket_index(np.array([HIGHEST_NS]))[0]] == 3
