"""Deliveries kept raw must come out as if each had been accounted for at once, in runs or one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perftest.amqp.events import Delivery, DeliveryRun
from perftest.engine.accounting import observations as observations_module
from perftest.engine.accounting import stamp
from perftest.engine.accounting.ledger import Ledger
from perftest.engine.accounting.observations import Observations
from perftest.engine.accounting.stamp import SIZE, STAMP
from perftest.metrics.histogram import SparseCounts
from perftest.metrics.interval import Series
from perftest.metrics.recorder import Recorder

RUN = 9
PUBLISHED = 10_000


class Observed:
    """A ledger and a recorder, fed by observations; publishers 0 and 1 have published everything."""

    def __init__(self) -> None:
        self.ledger, self.recorder = Ledger(RUN), Recorder()
        self.observations = Observations(self.ledger, self.recorder, sizes={50, 64})
        self.observations.scheduled = True
        for publisher in (0, 1):
            self.ledger.publisher(publisher).published(PUBLISHED, confirms=True)

    def result(self) -> tuple[dict[str, object], dict[Series, list[int]]]:
        self.observations.account()
        counts, _ = self.recorder.cut()
        return self.ledger.record(complete=True), {series: _plain(one) for series, one in counts.items()}


def _plain(counts: SparseCounts) -> list[int]:
    return [*counts.indexes.tolist(), *counts.counts.tolist(), counts.max_ns]


def body(publisher: int, number: int, size: int, damage: bool) -> bytes:
    head = STAMP.pack(stamp.source(run=RUN, publisher=publisher), number, 1000, 2000)
    octets = bytearray(head + stamp.filler(size - SIZE))
    if damage:
        octets[-1] ^= 0x80
    return bytes(octets)


RUNS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 1),
        st.integers(0, PUBLISHED - 100),
        st.integers(1, 60),
        st.sampled_from([50, 64, 40]),
        st.booleans(),
        st.integers(0, 100),
        st.booleans(),
    ),
    max_size=12,
)


@given(runs=RUNS)
def test_runs_and_single_deliveries_give_the_same_account(
    runs: list[tuple[int, int, int, int, int, bool, int, bool]],
) -> None:
    by_run, one_by_one = Observed(), Observed()
    for now, (scope, publisher, first, count, size, again, damaged_at, in_header) in enumerate(runs, start=3000):
        bodies = [body(publisher, first + i, size, i == damaged_at) for i in range(count)]
        table = np.frombuffer(b"".join(bodies), np.uint8).reshape(count, size)
        stamps = table[:, :SIZE] if in_header else None
        table = np.zeros((count, 5), np.uint8) if in_header else table
        by_run.observations.add_run(scope, DeliveryRun(1, 1, np.full(count, again, np.uint8), table, stamps), now)
        for octets in bodies:
            mark, octets = (octets[:SIZE], b"JSON!") if in_header else (None, octets)
            one_by_one.observations.add_one(scope, Delivery(1, 1, again, octets, mark), now)
    record, latencies = by_run.result()
    other_record, other_latencies = one_by_one.result()
    assert {k: v for k, v in record.items() if k != "examples"} == {
        k: v for k, v in other_record.items() if k != "examples"
    }
    assert latencies == other_latencies
    ours = [run for run in runs if not run[7]]  # what stands behind a stamp in a header is anybody's
    wrong_size = sum(count for _, _, _, count, size, _, _, _ in ours if size == 40)
    flipped = sum(1 for _, _, _, count, size, _, at, _ in ours if size != 40 and at < count)
    assert record["damaged"] == wrong_size + flipped


def test_more_than_fits_is_accounted_for_on_the_way() -> None:
    """A run longer than the columns must neither be cut off nor grow them."""
    observed = Observed()
    count = observations_module.ROWS + 1000
    table = np.frombuffer(b"".join(body(0, i, 50, False) for i in range(count)), np.uint8).reshape(count, 50)
    observed.observations.add_run(1, DeliveryRun(1, 1, np.zeros(count, np.uint8), table), 5000)
    record, _ = observed.result()
    assert record["delivered"] == record["unique"] == count


def test_a_message_of_another_run_is_foreign_and_not_damaged() -> None:
    """Its body has whatever size and content it likes."""
    observed = Observed()
    octets = STAMP.pack(stamp.source(run=RUN + 1, publisher=0), 5, 1000, 2000) + b"something else"
    observed.observations.add_one(1, Delivery(1, 1, False, octets), 5000)
    record, _ = observed.result()
    assert (record["foreign"], record["damaged"], record["delivered"]) == (1, 0, 0)


def test_bodies_too_short_for_a_stamp_are_foreign() -> None:
    observed = Observed()
    observed.observations.add_one(1, Delivery(1, 1, False, b"x"), 1)
    observed.observations.add_run(1, DeliveryRun(1, 1, np.zeros(4, np.uint8), np.zeros((4, 3), np.uint8)), 1)
    record, latencies = observed.result()
    assert (record["foreign"], record["delivered"], latencies) == (5, 0, {})


def test_a_message_given_back_by_one_channel_and_had_by_another_is_no_duplicate() -> None:
    """Both deliveries are in one batch, and the channel that had it last has the lower number."""
    observed = Observed()
    for scope, again in ((2, False), (1, True)):
        observed.observations.add_one(scope, Delivery(1, 1, again, body(0, 5, 50, False)), 3000)
    record, _ = observed.result()
    assert (record["delivered"], record["unique"], record["duplicated"]) == (2, 1, 0)
