"""Histograms are the record: merged wrongly, every percentile of every report is wrong."""

from __future__ import annotations

import base64
import random

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from hdr_buckets import HIGHEST_NS, PayloadError
from perftest.metrics.histogram import Histogram, decode
from tests.examples import dear

PERCENTS = (50.0, 75.0, 95.0, 99.0, 99.9, 99.99, 100.0)
values = st.lists(st.integers(min_value=1, max_value=HIGHEST_NS), min_size=1, max_size=60)


def encoded(recorded: list[int]) -> tuple[HdrHistogram, str]:
    histogram = HdrHistogram(1, HIGHEST_NS, 3)
    for value in recorded:
        assert histogram.record_value(value)
    return histogram, histogram.encode().decode()


@given(st.lists(values, min_size=1, max_size=4))
def test_merging_is_the_histogram_of_the_union(parts: list[list[int]]) -> None:
    """Over workers, intervals and hosts: the same counters, bucket by bucket, and the same percentiles."""
    merged = Histogram()
    for part in parts:
        merged.add_payload(encoded(part)[1], max(part))
    everything = [value for part in parts for value in part]
    union, payload = encoded(everything)
    assert np.array_equal(merged.counts, decode(payload))
    assert (merged.total, merged.max_ns) == (len(everything), max(everything))
    for percent in PERCENTS:
        assert merged.percentiles_ns((percent,))[0] == union.get_value_at_percentile(percent)


@dear(40)
@given(values)
def test_the_librarys_own_addition_agrees(recorded: list[int]) -> None:
    """The oracle is hdrhistogram's decode_and_add."""
    half = len(recorded) // 2
    oracle = HdrHistogram(1, HIGHEST_NS, 3)
    merged = Histogram()
    for part in (recorded[:half], recorded[half:]):
        if part:
            payload = encoded(part)[1]
            oracle.decode_and_add(payload)
            merged.add_payload(payload)
    assert np.array_equal(merged.counts, decode(oracle.encode().decode()))
    assert merged.max_ns == oracle.get_max_value()
    assert merged.min_ns == oracle.get_min_value()
    assert merged.mean_ns == pytest.approx(oracle.get_mean_value(), rel=1e-3)


def test_an_empty_histogram_has_no_values() -> None:
    """An interval without messages is no latency of zero."""
    merged = Histogram()
    merged.add_payload(encoded([])[1])
    assert (merged.total, merged.max_ns, merged.min_ns, merged.mean_ns) == (0, 0, 0, 0.0)
    assert merged.percentiles_ns((99.0,)) == [0]


def test_every_cut_and_every_flipped_bit_is_refused_or_harmless() -> None:
    """The C decoder must never see what a damaged file holds: it would read past its buffer."""
    _, payload = encoded([random.Random(4).randrange(1, HIGHEST_NS) for _ in range(30)])
    for length in range(len(payload)):
        with pytest.raises(PayloadError):
            decode(payload[:length])
    raw = base64.b64decode(payload)
    accepted = 0
    for bit in range(0, len(raw) * 8, 5):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decode(base64.b64encode(bytes(damaged)).decode())
            accepted += 1
        except PayloadError:
            pass
    # zlib's header has one bit nobody checks (the level); its check sum catches everything else.
    assert accepted <= 2


@pytest.mark.parametrize("other", [HdrHistogram(1, HIGHEST_NS, 2), HdrHistogram(1, 10**9, 3)])
def test_other_settings_are_refused(other: HdrHistogram) -> None:
    """Counters of another layout would be added to the wrong buckets."""
    other.record_value(5)
    with pytest.raises(PayloadError, match="3 significant"):
        decode(other.encode().decode())
