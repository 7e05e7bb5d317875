"""Latencies between hosts: corrected as one by one, counted where the clocks leave them open, nothing dropped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.accounting import crossing as crossing_module
from perftest.engine.accounting.crossing import CrossingLatencies, Integers
from perftest.metrics.clock_model import ClockModel
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Series
from perftest.metrics.recorder import Recorder

OWN, OTHER, REFERENCE = 0, 1, 2
NOW = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


def clock(offset_ns: int, ppm: int, bound_ns: int) -> ClockModel:
    """Known for one second, with the same bound all the time."""
    knots = (NOW - offset_ns - SECOND_NS, NOW - offset_ns)
    offsets = (offset_ns - ppm * 1000, offset_ns)
    return ClockModel(knots_ns=knots, offsets_ns=offsets, bounds_ns=(bound_ns, bound_ns), rate=ppm / 1e6, rate_bound=0)


CLOCKS = (clock(5 * SECOND_NS, 100, 20_000), clock(-5 * SECOND_NS, -80, 30_000), None)


def hosts_of(publishers: Integers) -> Integers:
    """Publisher 7 is on host 7 % 3."""
    return publishers % 3


def crossing() -> tuple[CrossingLatencies, Recorder]:
    recorder = Recorder()
    made = CrossingLatencies(recorder, hosts_of, OWN)
    made.learn(CLOCKS)
    return made, recorder


def stamp_of(host: int, reference_ns: int) -> int:
    """A moment as the host's clock tells it."""
    known = CLOCKS[host]
    return reference_ns if known is None else known.to_host(reference_ns)


def array(values: list[int]) -> Integers:
    return np.array(values, np.int64)


def histogram(recorder: Recorder, series: Series = Series.E2E) -> Histogram:
    counts, negative = recorder.cut()
    assert not negative
    return Histogram.of(counts[series]) if series in counts else Histogram()


ROWS = st.lists(
    st.tuples(st.integers(1, 8).filter(lambda publisher: publisher % 3), st.integers(-200_000, 5_000_000)),
    min_size=1, max_size=60,
)  # fmt: skip


@given(ROWS, st.integers(1, 20))
def test_each_latency_is_the_true_one_in_whatever_batches(rows: list[tuple[int, int]], batch: int) -> None:
    made, recorder = crossing()
    for at in range(0, len(rows), batch):
        part = rows[at : at + batch]
        arrived = array([stamp_of(OWN, NOW - at)] * len(part))
        sent = array([stamp_of(publisher % 3, NOW - at - latency) for publisher, latency in part])
        left = made.set_aside(array([publisher for publisher, _ in part]), arrived, sent, sent, None)
        assert left is not None and not left.any(), "all came from other hosts"
    found = made.cut()
    bounds = {OTHER: 50_000, REFERENCE: 20_000}
    # Times are whole nanoseconds, and so are offsets: a latency is off by 3 ns at most.
    for name, counts in {
        "below_bound": lambda latency, bound: latency < bound,
        "below_zero": lambda latency, bound: latency < 0,
        "beyond_bound": lambda latency, bound: latency < -bound,
    }.items():
        low, high = (
            sum(counts(latency + error, bounds[publisher % 3]) for publisher, latency in rows) for error in (3, -3)
        )
        assert low <= found[name] <= high
    assert abs(found["clock_bound_ns"] - max(bounds[publisher % 3] for publisher, _ in rows)) <= 2
    true = sorted(max(latency, 0) for _, latency in rows)
    recorded = histogram(recorder)
    assert recorded.total == len(rows)
    assert abs(recorded.max_ns - true[-1]) <= 3
    (median,) = recorded.percentiles_ns([50])
    assert median == pytest.approx(true[(len(true) - 1) // 2], rel=2e-3, abs=2000) or len(true) % 2 == 0


def test_messages_of_the_own_host_are_left_alone() -> None:
    made, recorder = crossing()
    publishers = array([0, 3, 6])
    assert made.set_aside(publishers, publishers, publishers, None, None) is None
    ours = np.array([True, False, True])
    assert made.set_aside(publishers, publishers, publishers, None, ours) is ours
    assert made.cut() == {"clock_bound_ns": 0, "below_bound": 0, "below_zero": 0, "beyond_bound": 0}
    assert not histogram(recorder).total


def test_messages_of_other_runs_are_left_out() -> None:
    made, recorder = crossing()
    arrived, sent = array([NOW] * 3), array([NOW - 1] * 3)
    left = made.set_aside(array([2, 2, 3]), arrived, sent, None, np.array([True, False, True]))
    assert left is not None and left.tolist() == [False, False, True]
    made.cut()
    assert histogram(recorder).total == 1


def test_the_intended_time_is_corrected_like_the_time_of_sending() -> None:
    made, recorder = crossing()
    for intended in (None, array([stamp_of(OTHER, NOW - 9_000_000)])):
        sent = array([stamp_of(OTHER, NOW - 1_000_000)])
        made.set_aside(array([OTHER]), array([stamp_of(OWN, NOW)]), sent, intended, None)
    made.cut()
    counts, _ = recorder.cut()
    scheduled = Histogram.of(counts[Series.E2E_SCHED])
    assert (Histogram.of(counts[Series.E2E]).total, scheduled.total) == (2, 1)
    assert abs(scheduled.max_ns - 9_000_000) <= 3


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the newest models are used at once; a later model changes nothing of that."""
    monkeypatch.setattr(crossing_module, "ROWS_MAX", 10)
    made, recorder = crossing()
    for _ in range(11):
        sent = array([stamp_of(OTHER, NOW - 1_000_000)])
        made.set_aside(array([OTHER]), array([stamp_of(OWN, NOW)]), sent, None, None)
    made.learn((clock(0, 0, 1), None, None))
    assert made.cut()["clock_bound_ns"] == pytest.approx(50_000, abs=2)
    assert abs(histogram(recorder).max_ns - 1_000_000) <= 3


def test_counts_begin_anew_with_each_cut() -> None:
    made, recorder = crossing()
    early = array([stamp_of(OTHER, NOW + 60_000)])
    made.set_aside(array([OTHER]), array([stamp_of(OWN, NOW)]), early, None, None)
    found = made.cut()
    assert (found["below_bound"], found["below_zero"], found["beyond_bound"]) == (1, 1, 1)
    assert histogram(recorder).max_ns == 0, "a message that arrived before it was sent is kept as 0"
    assert set(made.cut().values()) == {0}
