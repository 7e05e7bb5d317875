"""Histogram arithmetic against hdrhistogram itself, and payloads that must never reach its C decoder."""

from __future__ import annotations

import base64
import struct
import zlib
from types import ModuleType

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.pipeline import hdr

VALUES = st.lists(
    st.one_of(st.integers(0, 5000), st.integers(0, hdr.HIGHEST), st.sampled_from([2047, 2048, 2049, 4095, 4096])),
    max_size=60,
)


def recorded(values: list[int]) -> HdrHistogram:
    """The slow, obvious way: hdrhistogram, value by value."""
    histogram = HdrHistogram(hdr.LOWEST, hdr.HIGHEST, hdr.FIGURES)
    for value in values:
        assert histogram.record_value(value)
    return histogram


def payload_of(values: list[int]) -> str:
    text: str = recorded(values).encode().decode()
    return text


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_merging_gives_the_payload_of_decode_and_add(parts: list[list[int]]) -> None:
    """Percentiles over workers and hosts would be wrong by what a merge loses."""
    expected = HdrHistogram(hdr.LOWEST, hdr.HIGHEST, hdr.FIGURES)
    counts = np.zeros(hdr.bucket_count(), dtype=np.uint64)
    for part in parts:
        expected.decode_and_add(payload_of(part))
        counts += hdr.decode(payload_of(part))
    assert hdr.encode(counts) == expected.encode().decode()


@settings(derandomize=True, max_examples=60, deadline=None)
@given(VALUES.filter(bool), st.lists(st.floats(0.1, 100.0), min_size=1, max_size=4))
def test_figures_are_those_of_hdrhistogram(values: list[int], percentiles: list[float]) -> None:
    """A p99 in a report must be the p99 every other HdrHistogram tool reads from the same log."""
    expected = HdrHistogram.decode(payload_of(values))
    counts = hdr.decode(payload_of(values))
    assert hdr.values_at(counts, tuple(percentiles)) == [expected.get_value_at_percentile(p) for p in percentiles]
    assert hdr.total(counts) == expected.get_total_count()
    hdr.check_maximum(counts, expected.get_max_value())
    assert hdr.mean(counts) == pytest.approx(expected.get_mean_value(), rel=1e-12)


def test_every_bucket_edge_is_hdrhistograms() -> None:
    """One wrong edge shifts every percentile that falls into its bucket."""
    oracle = HdrHistogram(hdr.LOWEST, hdr.HIGHEST, hdr.FIGURES)
    edges = hdr.buckets()
    for index in [*range(4200), *range(4200, hdr.bucket_count(), 97), hdr.bucket_count() - 1]:
        lowest = oracle.get_value_from_index(index)
        assert edges.lowest[index] == lowest
        assert hdr.bucket_of(int(edges.lowest[index])) == hdr.bucket_of(int(edges.highest[index])) == index
        assert edges.highest[index] == oracle.get_highest_equivalent_value(lowest)


def test_totals_beyond_32_bits_survive() -> None:
    """A decoded histogram of hdrhistogram wraps at 2**31 samples: three hours at 200 000 messages per second."""
    counts = np.zeros(hdr.bucket_count(), dtype=np.uint64)
    counts[1000] = 3_000_000_000
    counts[2000] = 5_000_000_000
    again = hdr.decode(hdr.encode(counts))
    assert hdr.total(again) == 8_000_000_000
    assert hdr.values_at(again, (37.0, 38.0)) == [1000, 2000]
    assert hdr.mean(again) == pytest.approx((3 * 1000 + 5 * 2000) / 8)


def test_no_samples_are_no_error() -> None:
    """An interval in which nothing was delivered has an empty histogram, and a report all the same."""
    counts = hdr.decode(payload_of([]))
    assert (hdr.total(counts), hdr.mean(counts)) == (0, 0.0)
    hdr.check_maximum(counts, 0)
    assert hdr.values_at(counts, (50.0, 99.0)) == [0, 0]
    assert hdr.curve(counts) == []
    assert hdr.encode(counts) == payload_of([])


@pytest.mark.parametrize("value", [1, 2047, 2048, 4_194_305, 3_599_999_999_999])
def test_a_maximum_lies_in_the_highest_bucket(value: int) -> None:
    """A maximum of another histogram would be shown as the worst message of this one."""
    counts = hdr.decode(payload_of([1, value]))
    top = int(np.flatnonzero(counts)[-1])
    lowest, highest = int(hdr.buckets().lowest[top]), int(hdr.buckets().highest[top])
    for inside in (lowest, value, highest):
        hdr.check_maximum(counts, inside)
    for outside in (lowest - 1, highest + 1):
        with pytest.raises(hdr.PayloadError, match="bucket of the maximum"):
            hdr.check_maximum(counts, outside)


def test_a_value_beyond_all_buckets_keeps_its_maximum() -> None:
    """Longer than an hour: counted in the last bucket, and told as it was."""
    counts = np.zeros(hdr.bucket_count(), dtype=np.uint64)
    counts[-1] = 1
    hdr.check_maximum(counts, 10 * hdr.HIGHEST)


def test_curve_ends_where_samples_end_and_meets_the_table(synthetic_runs: ModuleType) -> None:
    """A curve that goes on past its last sample shows a tail that was never measured."""
    values = np.random.default_rng(3).lognormal(14, 0.5, 2000).astype(np.int64)
    counts = hdr.decode(synthetic_runs.histogram(values).encode().decode())
    points = {point.percentile: point for point in hdr.curve(counts, (50.0, 99.0, 99.9, 99.99))}
    assert 99.9 in points and 99.99 not in points
    assert points[99.0].value_ns == hdr.values_at(counts, (99.0,))[0]
    for point in points.values():
        assert point.count_above == int((values > point.value_ns).sum())
        assert 2000 * (100 - point.percentile) / 100 >= 1 - 1e-6


def wire(inner: bytes, cookie: int = 0x1C849314) -> str:
    compressed = zlib.compress(inner)
    return base64.b64encode(struct.pack(">II", cookie, len(compressed)) + compressed).decode()


def header(
    length: int, *, cookie: int = 0x1C849313, figures: int = 3, lowest: int = 1, offset: int = 0, ratio: float = 1.0
) -> bytes:
    return struct.pack(">IIiIQQd", cookie, length, offset, figures, lowest, hdr.HIGHEST, ratio)


GOOD = payload_of([1, 5000, 10**9])

DAMAGED = {
    "not base64": "HIST*not*base64",
    "empty": "",
    "only a cookie": base64.b64encode(b"\x1c\x84\x93\x14").decode(),
    "cut in the middle": GOOD[: len(GOOD) // 8 * 4],
    "another cookie": wire(header(0), cookie=0x1C849301),
    "V1 word size": wire(header(0), cookie=0x1C849384),
    "length too small": base64.b64encode(base64.b64decode(GOOD) + b"more").decode(),
    "not zlib": base64.b64encode(struct.pack(">II", 0x1C849314, 4) + b"oops").decode(),
    "header cut": wire(header(0)[:20]),
    "inner cookie": wire(header(0, cookie=0x1C849303)),
    "inner length": wire(header(10)),
    "two figures": wire(header(0, figures=2)),
    "from microseconds": wire(header(0, lowest=1000)),
    "shifted": wire(header(0, offset=1024)),
    "scaled": wire(header(0, ratio=2.0)),
    "varint without end": wire(header(1) + b"\x80"),
    "beyond the last bucket": wire(header(5) + b"\xff\xff\xff\x7f\x02"),
    "unfolds without end": wire(header(100_000_000) + bytes(100_000_000)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_payloads_are_refused(name: str) -> None:
    """Logs come from other machines; one bad line must neither crash a worker nor change a percentile."""
    with pytest.raises(hdr.PayloadError):
        hdr.decode(DAMAGED[name])


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.data())
def test_no_flipped_bit_crashes_the_decoder(data: st.DataObject) -> None:
    """Either a payload is refused or it is a histogram: never anything else."""
    octets = bytearray(base64.b64decode(GOOD))
    inner = bytearray(zlib.decompress(bytes(octets[8:])))
    at = data.draw(st.integers(0, len(inner) - 1))
    inner[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        counts = hdr.decode(wire(bytes(inner)))
    except hdr.PayloadError:
        return
    assert counts.shape == (hdr.bucket_count(),)
