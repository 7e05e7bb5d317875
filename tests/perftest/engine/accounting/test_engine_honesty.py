"""What a result must show, however inconvenient: a stall of the broker, and clocks that disagree."""

from __future__ import annotations

import numpy as np
import pytest

from perftest.amqp.events import Delivery
from perftest.engine.accounting import stamp
from perftest.engine.accounting.ledger import Ledger
from perftest.engine.accounting.observations import Observations
from perftest.metrics.interval import Series
from perftest.metrics.recorder import Recorder
from perftest.spec.plan import Settings
from tests.perftest.engine.publishing.test_engine_open_loop import MS, ROUND_TRIP, SECOND, simulate
from tests.perftest.testing.figures import Figures, figures

RUN = 1
SIZE = 100


def test_a_stall_of_two_seconds_is_in_the_scheduled_p99_and_not_in_the_service_p99() -> None:
    """20 s at 1000 messages a second, 100 in flight: a tenth should have left while the broker was silent, and
    whoever looks at service time alone sees one in two hundred wait."""
    stall = range(3 * SECOND, 5 * SECOND)
    found, broker, intended = simulate(Settings(rate=1000.0, in_flight=100), seconds=20, stall=stall)
    assert intended == len(broker.written) == 20_001
    for scheduled, service in ((Series.E2E_SCHED, Series.E2E), (Series.CONFIRM_SCHED, Series.CONFIRM)):
        assert found[scheduled].p99_ns > 1700 * MS
        assert found[service].p99_ns < 3 * ROUND_TRIP
        assert abs(found[service].max_ns - 2 * SECOND) < 2 * ROUND_TRIP, "the maximum is true in either"


def measured(true_ns: np.ndarray, skew_ns: int) -> tuple[Figures | None, int]:
    """End-to-end latency, and how many were negative, where the consumer's clock is ``skew_ns`` ahead."""
    ledger, recorder = Ledger(RUN), Recorder()
    observations = Observations(ledger, recorder, sizes={SIZE})
    ledger.publisher(0).published(len(true_ns), confirms=True)
    filler = bytes(stamp.filler(SIZE - stamp.SIZE))
    for number, latency_ns in enumerate(true_ns.tolist()):
        sent_ns = 10**18 + number * MS
        body = stamp.STAMP.pack(RUN << 16, number, sent_ns, sent_ns) + filler
        observations.add_one(1, Delivery(1, number + 1, False, body), sent_ns + latency_ns + skew_ns)
    observations.account()
    counts, negative = recorder.cut()
    return figures(counts[Series.E2E]) if Series.E2E in counts else None, negative


@pytest.mark.parametrize("skew_ns", [-5 * MS, -400_000, -1, 0, 1, 400_000, 5 * MS])
def test_a_clock_skew_stays_within_its_bound_and_is_never_folded(skew_ns: int) -> None:
    """Every percentile is off by the skew and no more (0.1 % is the buckets'); what would be below zero is counted.

    The absolute value of a difference, as others take it, would make a latency of 1 ms and a skew of -5 ms one of 4.
    """
    true_ns = np.sort(np.random.default_rng(7).lognormal(np.log(2 * MS), 0.8, 3000).astype(np.int64))
    found, negative = measured(true_ns, skew_ns)
    skewed = true_ns + skew_ns
    left = skewed[skewed >= 0]
    assert negative == len(skewed) - len(left) and found is not None and found.count == len(left)
    assert (negative > 0) == (skew_ns < -true_ns[0]), "a skew above the shortest latency cannot stay hidden"
    bound = abs(skew_ns)
    if not negative:
        truth, _ = measured(true_ns, 0)
        assert truth is not None
        for shown, true in (
            (found.p50_ns, truth.p50_ns), (found.p95_ns, truth.p95_ns), (found.p99_ns, truth.p99_ns)
        ):  # fmt: skip
            assert abs(shown - true) <= bound + (true + bound) // 1000 + 1
    assert found.max_ns == left.max()
