"""Our histogram must be HdrHistogram: same buckets, percentiles and unions. Otherwise nothing merges with anything."""

from __future__ import annotations

import numpy as np
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from hdr_buckets import (
    BUCKET_HIGHEST_NS,
    BUCKET_LOWEST_NS,
    BUCKETS,
    HIGHEST_NS,
    LOWEST_NS,
    SIGNIFICANT_FIGURES,
    Counts,
    bucket_index,
)
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Series
from perftest.metrics.recorder import BUFFER_VALUES, Recorder, SeriesRecorder
from tests.examples import dear

VALUES = st.lists(
    st.one_of(st.integers(0, 5000), st.integers(0, HIGHEST_NS), st.sampled_from([0, 2047, 2048, 4095, HIGHEST_NS])),
    min_size=1,
    max_size=200,
)
PERCENTILES = (0.1, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9, 99.99, 100.0)


def oracle(values: list[int]) -> HdrHistogram:
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for value in values:
        assert histogram.record_value(value)
    return histogram


def ours(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record(np.array(values, np.int64))
    return histogram


def every_bucket(histogram: Histogram) -> Counts:
    """The counts with those of the empty buckets above the highest one in use."""
    return np.pad(histogram.counts, (0, BUCKETS - len(histogram.counts)))


def test_each_bucket_has_hdrhistograms_edges() -> None:
    """All 33792 of them, both edges."""
    reference = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    assert reference.counts_len == BUCKETS
    lows = np.array([reference.get_value_from_index(index) for index in range(BUCKETS)])
    assert BUCKET_LOWEST_NS.tolist() == lows.tolist()
    highs = [reference.get_highest_equivalent_value(int(low)) for low in lows]
    assert BUCKET_HIGHEST_NS.tolist() == highs
    everywhere = np.arange(BUCKETS)
    assert (bucket_index(lows) == everywhere).all()
    assert (bucket_index(np.array(highs)) == everywhere).all()


@given(values=VALUES)
def test_counts_and_percentiles_are_hdrhistograms(values: list[int]) -> None:
    histogram, reference = ours(values), oracle(values)
    assert every_bucket(histogram).tolist() == list(reference.counts)
    expected = [reference.get_value_at_percentile(p) for p in PERCENTILES]
    assert histogram.percentiles_ns(PERCENTILES) == expected
    assert histogram.max_ns == max(values)


@dear(40)
@given(first=VALUES, second=VALUES)
def test_a_payload_decodes_to_the_union_after_merging(first: list[int], second: list[int]) -> None:
    """What reports do with the lines of latency.hlog."""
    merged = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    merged.decode_and_add(ours(first).encode())
    merged.decode_and_add(ours(second).encode())
    assert list(merged.counts) == list(oracle(first + second).counts)
    added = ours(first)
    added.add_sparse(ours(second).sparse())
    assert every_bucket(added).tolist() == list(merged.counts)
    assert added.total == len(first) + len(second)


def test_values_above_an_hour_count_in_the_last_bucket_and_keep_their_maximum() -> None:
    """A message that took two hours is the one nobody may lose."""
    histogram = ours([1, 2 * HIGHEST_NS])
    assert histogram.total == 2
    assert histogram.percentiles_ns((100.0,)) == ours([HIGHEST_NS]).percentiles_ns((100.0,))
    assert histogram.max_ns == 2 * HIGHEST_NS


def test_an_empty_histogram_has_no_percentiles_and_encodes() -> None:
    assert Histogram().percentiles_ns((50.0,)) == [0]
    assert HdrHistogram.decode(Histogram().encode()).get_total_count() == 0


@dear(40)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(["one", "many", "repeated"]), st.integers(-5, 10**9), st.integers(1, 3 * BUFFER_VALUES)
        ),
        max_size=8,
    )
)
def test_a_recorder_loses_nothing_however_it_is_filled(parts: list[tuple[str, int, int]]) -> None:
    """Also across the border of its buffer; negative values are counted apart."""
    recorder = SeriesRecorder()
    expected: list[int] = []
    for kind, value, count in parts:
        if kind == "one":
            recorder.one(value)
            expected.append(value)
        elif kind == "many":
            values = value + np.arange(count)
            recorder.many(values)
            expected += values.tolist()
        else:
            recorder.repeated(value, count)
            expected += [value] * count
    counts = recorder.cut()
    good = [value for value in expected if value >= 0]
    assert recorder.negative == len(expected) - len(good)
    if counts is None:
        assert not good
    else:
        assert counts.max_ns == max(good)
        assert counts.counts.sum() == len(good)
    assert recorder.cut() is None


def test_a_cut_contains_only_series_that_saw_something() -> None:
    recorder = Recorder()
    recorder[Series.E2E].one(5)
    recorder[Series.CONFIRM].one(-5)
    counts, negative = recorder.cut()
    assert (set(counts), negative) == ({Series.E2E}, 1)
    assert recorder.cut() == ({}, 0)
