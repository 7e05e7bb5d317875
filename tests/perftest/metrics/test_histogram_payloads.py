"""Histogram arithmetic against hdrhistogram itself, and payloads that must never reach its C decoder."""

from __future__ import annotations

import base64
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyhdrh
import pytest
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
    PayloadError,
    bucket_index,
)
from perftest.metrics.histogram import Histogram, SparseCounts, decode

VALUES = st.lists(
    st.one_of(st.integers(0, 5000), st.integers(0, HIGHEST_NS), st.sampled_from([2047, 2048, 2049, 4095, 4096])),
    max_size=60,
)


def recorded(values: list[int]) -> HdrHistogram:
    """The slow, obvious way: hdrhistogram, value by value."""
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for value in values:
        assert histogram.record_value(value)
    return histogram


def payload_of(values: list[int]) -> str:
    text: str = recorded(values).encode().decode()
    return text


def histogram_of(payload: str, max_ns: int | None = None) -> Histogram:
    histogram = Histogram()
    histogram.add_payload(payload, max_ns)
    return histogram


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_merging_gives_the_payload_of_decode_and_add(parts: list[list[int]]) -> None:
    """Percentiles over workers and hosts would be wrong by what a merge loses."""
    expected = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    merged = Histogram()
    for part in parts:
        expected.decode_and_add(payload_of(part))
        merged.add_payload(payload_of(part))
    assert merged.encode() == expected.encode().decode()


@given(VALUES.filter(bool), st.lists(st.floats(0.1, 100.0), min_size=1, max_size=4))
def test_figures_are_those_of_hdrhistogram(values: list[int], percentiles: list[float]) -> None:
    """A p99 in a report must be the p99 every other HdrHistogram tool reads from the same log."""
    expected = HdrHistogram.decode(payload_of(values))
    histogram = histogram_of(payload_of(values), expected.get_max_value())
    assert histogram.percentiles_ns(percentiles) == [expected.get_value_at_percentile(p) for p in percentiles]
    assert histogram.total == expected.get_total_count()
    counts = histogram.sparse()
    assert counts.percentiles_ns(percentiles) == histogram.percentiles_ns(percentiles)
    assert (counts.total, counts.min_ns) == (histogram.total, histogram.min_ns)
    histogram.check_maximum()
    assert histogram.mean_ns == pytest.approx(expected.get_mean_value(), rel=1e-12)


def test_every_bucket_edge_is_hdrhistograms() -> None:
    """One wrong edge shifts every percentile that falls into its bucket."""
    oracle = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for index in [*range(4200), *range(4200, BUCKETS, 97), BUCKETS - 1]:
        lowest = oracle.get_value_from_index(index)
        assert BUCKET_LOWEST_NS[index] == lowest
        edges = np.array([BUCKET_LOWEST_NS[index], BUCKET_HIGHEST_NS[index]])
        assert bucket_index(edges).tolist() == [index, index]
        assert BUCKET_HIGHEST_NS[index] == oracle.get_highest_equivalent_value(lowest)


def test_totals_beyond_32_bits_survive() -> None:
    """A decoded histogram of hdrhistogram wraps at 2**31 samples: three hours at 200 000 messages per second."""
    counts = SparseCounts(np.array([1000, 2000], np.int32), np.array([3_000_000_000, 5_000_000_000]), 2000)
    again = histogram_of(Histogram.of(counts).encode())
    assert again.total == 8_000_000_000
    assert again.percentiles_ns((37.0, 38.0)) == [1000, 2000]
    assert again.mean_ns == pytest.approx((3 * 1000 + 5 * 2000) / 8)


def test_no_samples_are_no_error() -> None:
    """An interval in which nothing was delivered has an empty histogram, and a report all the same."""
    histogram = histogram_of(payload_of([]))
    assert (histogram.total, histogram.mean_ns) == (0, 0.0)
    histogram.check_maximum()
    assert histogram.percentiles_ns((50.0, 99.0)) == [0, 0]
    assert histogram.encode() == payload_of([])


@pytest.mark.parametrize("value", [1, 2047, 2048, 4_194_305, 3_000_000_000_000])
def test_a_maximum_lies_in_the_highest_bucket(value: int) -> None:
    """A maximum of another histogram would be shown as the worst message of this one."""
    top = len(decode(payload_of([1, value]))) - 1
    lowest, highest = int(BUCKET_LOWEST_NS[top]), int(BUCKET_HIGHEST_NS[top])
    for inside in (lowest, value, highest):
        histogram_of(payload_of([1, value]), inside).check_maximum()
    for outside in (lowest - 1, highest + 1):
        with pytest.raises(PayloadError, match="bucket of the maximum"):
            histogram_of(payload_of([1, value]), outside).check_maximum()


def test_a_value_beyond_all_buckets_keeps_its_maximum() -> None:
    """Longer than an hour: counted in the last bucket or in the bucket of one hour, and told as it was."""
    Histogram.of(SparseCounts(np.array([BUCKETS - 1], np.int32), np.array([1]), 10 * HIGHEST_NS)).check_maximum()
    recorded_here = Histogram()
    recorded_here.record(np.array([5, 2 * HIGHEST_NS]))
    assert recorded_here.max_ns == 2 * HIGHEST_NS
    recorded_here.check_maximum()


def wire(inner: bytes, cookie: int = 0x1C849314) -> str:
    compressed = zlib.compress(inner)
    return base64.b64encode(struct.pack(">II", cookie, len(compressed)) + compressed).decode()


def header(
    length: int, *, cookie: int = 0x1C849313, figures: int = 3, lowest: int = 1, offset: int = 0, ratio: float = 1.0
) -> bytes:
    return struct.pack(">IIiIQQd", cookie, length, offset, figures, lowest, HIGHEST_NS, ratio)


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
    with pytest.raises(PayloadError):
        decode(DAMAGED[name])


@given(st.data())
def test_no_flipped_bit_crashes_the_decoder(data: st.DataObject) -> None:
    """Either a payload is refused or it is a histogram: never anything else."""
    octets = bytearray(base64.b64decode(GOOD))
    inner = bytearray(zlib.decompress(bytes(octets[8:])))
    at = data.draw(st.integers(0, len(inner) - 1))
    inner[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        counts = decode(wire(bytes(inner)))
    except PayloadError:
        return
    assert len(counts) <= BUCKETS


def test_threads_encode_side_by_side() -> None:
    """The stages of a step are encoded beside the intervals. While one payload was compressed, another thread put its
    own counters into the same place, and ``latency.hlog`` had a damaged record."""
    histograms = [Histogram(), Histogram()]
    histograms[0].record(np.arange(1, 2_000_000, 7))
    histograms[1].record(np.arange(5, 4_000_000, 9))
    with ThreadPoolExecutor(len(histograms)) as threads:
        payloads = list(threads.map(lambda each: [each.encode() for _ in range(150)], histograms))
    for histogram, of_thread in zip(histograms, payloads, strict=True):
        assert set(of_thread) == {histogram.encode()}


VARINTS = st.lists(
    st.one_of(st.integers(0, 1 << 16), st.sampled_from([1, 2, 2**20 - 1, 2**64 - 2, 2**64 - 1])), max_size=12
)


def varint(value: int) -> bytes:
    """Seven bits an octet, but for the ninth octet, which has eight."""
    octets = bytearray()
    while value > 0x7F and len(octets) < 8:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value & 0xFF])


@given(VARINTS, st.binary(max_size=4))
def test_counters_are_those_that_the_decoder_of_hdrhistogram_fills_in(varints: list[int], more: bytes) -> None:
    """Counters are decoded into an array that is used again: one payload must leave nothing behind for the next."""
    body = b"".join(map(varint, varints)) + more
    expected = np.zeros(BUCKETS, np.int64)
    try:
        if body:
            pyhdrh.decode(header(len(body)) + body, 40, expected.ctypes.data, BUCKETS, 8)
    except (IndexError, ValueError, OverflowError):
        with pytest.raises(PayloadError):
            decode(wire(header(len(body)) + body))
    else:
        found = decode(wire(header(len(body)) + body))
        assert np.array_equal(found, np.trim_zeros(expected, "b"))
    assert decode(GOOD).sum() == 3
