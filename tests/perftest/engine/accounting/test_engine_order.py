"""The order that a queue promises: known from the plan, and checked against an oracle that keeps every delivery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.accounting.account import PublisherLedger
from perftest.engine.accounting.key_order import KeyOrder
from perftest.engine.accounting.ledger import Ledger, merge_records
from perftest.engine.accounting.promise import OF_CHANNELS, Order, Promise, promise_of
from perftest.engine.context import NUMBERS_PER_WORKER
from perftest.engine.workers.shares import Share
from perftest.spec.behaviour import Consuming, Exchange, Publishing, RoutingKeys
from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step

RUN = 77
KEYED = {"x-key": "routing-key"}
IN_TURN = Publishing(routing_keys=RoutingKeys.RANDOM, routing_key_cache=5)


def plan(*queues: QueueSpec, consumers: int = 1, acks: int = 1, **more: Any) -> Plan:
    settings = Settings(consumers=consumers, ack_interval=acks)
    step = Step(number=1, label="", settings=settings, duration_s=1, warmup_s=0)
    return Plan.of(name="t", title="t", uris=(), queues=queues, steps=(step,), isolation=Isolation.LIVE, **more)


QUORUM = QueueSpec(name="q")
SINGLE = QueueSpec(name="q", arguments={"x-single-active-consumer": True})
BY_ROUTING_KEY = QueueSpec(name="k", type=QueueType.KEYED, arguments=KEYED)
BY_HEADER = QueueSpec(name="k", type=QueueType.KEYED)
HEADER = Publishing(properties={"x-group-key": "c-17"})


@pytest.mark.parametrize(
    ("wanted", "of"),
    [
        (Promise(Order.QUEUE), plan(QUORUM)),
        (Promise(Order.QUEUE), plan(SINGLE, consumers=7)),
        (Promise(Order.QUEUE), plan(QUORUM, replace(QUORUM, name="r"), consumers=2)),
        (Promise(Order.QUEUE), plan(QueueSpec(name="", type=QueueType.CLASSIC), consumers=9)),
        (OF_CHANNELS, plan(QUORUM, consumers=2)),
        (OF_CHANNELS, plan(QueueSpec(name="c", type=QueueType.CLASSIC, auto_delete=True))),
        (OF_CHANNELS, plan(QUORUM, consuming=Consuming(channels=2))),
        (OF_CHANNELS, plan(QUORUM, replace(QUORUM, name="r"), consumers=3)),
        (OF_CHANNELS, plan(replace(QUORUM, predeclared=True))),
        (Promise(Order.KEY, 5), plan(BY_ROUTING_KEY, consumers=9, publishing=IN_TURN)),
        (Promise(Order.KEY, 5), plan(BY_ROUTING_KEY, acks=0, publishing=IN_TURN)),
        (Promise(Order.KEY, 1), plan(BY_ROUTING_KEY, consumers=9)),
        (Promise(Order.KEY, 1), plan(BY_HEADER, consumers=9, publishing=HEADER)),
        (Promise(Order.KEY, 1), plan(replace(QUORUM, type=QueueType.CLASSIC, arguments=KEYED), consumers=2)),
        (Promise(Order.NONE), plan(BY_HEADER)),
        (Promise(Order.NONE), plan(BY_ROUTING_KEY, publishing=replace(IN_TURN, routing_key_cache=0))),
        (Promise(Order.NONE), plan(BY_ROUTING_KEY, consumers=2, acks=0)),
        (Promise(Order.NONE), plan(BY_ROUTING_KEY, QUORUM, consumers=2)),
    ],
)
def test_the_promise_follows_from_queue_arguments_and_consumers(wanted: Promise, of: Plan) -> None:
    assert promise_of(of) == wanted


def overtaken(promise: Promise, deliveries: list[tuple[int, int, bool]], twice: set[int]) -> int:
    """Each delivery is compared with all deliveries of its scope before it that count."""
    found, seen = 0, set[int]()
    counting: list[tuple[int, int]] = []
    for scope, number, again in deliveries:
        first = number not in seen
        seen.add(number)
        counts = {Order.KEY: True, Order.QUEUE: first, Order.CHANNEL: first and not again, Order.NONE: False}
        if counts[promise.order]:
            same = [n for s, n in counting if s == scope and (not promise.keys or (n - number) % promise.keys == 0)]
            found += number not in twice and any(earlier > number for earlier in same)
            counting.append((scope, number))
    return found


PROMISES = [Promise(Order.QUEUE), OF_CHANNELS, Promise(Order.NONE), *(Promise(Order.KEY, n) for n in (1, 2, 7, 90))]
RUNS = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.one_of(
            st.lists(st.integers(0, 59), min_size=1, max_size=12),
            st.tuples(st.integers(0, 59), st.integers(1, 20)).map(lambda run: list(range(run[0], min(sum(run), 60)))),
        ),
        st.lists(st.booleans(), min_size=20, max_size=20),
    ),
    max_size=14,
)


@pytest.mark.parametrize("promise", PROMISES)
@given(runs=RUNS, twice=st.sets(st.integers(0, 59), max_size=4), flagged=st.booleans())
def test_what_overtakes_is_what_the_oracle_finds(
    promise: Promise, runs: list[tuple[int, list[int], list[bool]]], twice: set[int], flagged: bool
) -> None:
    """First deliveries and redeliveries, in runs and alone, over two scopes."""
    ledger = Ledger(RUN, promise=promise)
    account = ledger.publisher(0)
    account.published(60, confirms=True)
    account.republished(np.array(sorted(twice), np.int64))
    told: list[tuple[int, int, bool]] = []
    for scope, numbers, flags in runs:
        again = [flagged and flag for flag in flags[: len(numbers)]]
        ledger.delivered(scope, np.full(len(numbers), RUN << 16), np.array(numbers), np.array(again))
        told += [(scope, number, flag) for number, flag in zip(numbers, again, strict=True)]
    record = ledger.record(complete=True)
    assert (record["order"], record["delivered"]) == (promise.order, len(told))
    assert record["reordered"] == overtaken(promise, told, twice)


def delivered(promise: Promise, *deliveries: tuple[int, int, bool], batch: bool = True) -> dict[str, Any]:
    """The record of deliveries (scope, number, redelivered) of one publisher, in one batch or one by one."""
    ledger = Ledger(RUN, promise=promise)
    for publisher in (0, 1):
        ledger.publisher(publisher).published(100, confirms=True)
    rows = [deliveries] if batch else [(each,) for each in deliveries]
    for part in rows:
        scopes, numbers, again = (np.array([each[at] for each in part]) for at in range(3))
        ledger.delivered_to(scopes, np.full(len(part), RUN << 16), numbers, again.astype(np.bool_))
    return ledger.record(complete=True)


@pytest.mark.parametrize("batch", [True, False])
def test_keys_may_pass_each_other_and_no_message_passes_within_its_key(batch: bool) -> None:
    """Two keys: even and odd numbers. A retry comes before the next message of its key, whoever gets it."""
    by_key = Promise(Order.KEY, 2)
    apart = [(1, 0, False), (1, 1, False), (1, 3, False), (1, 5, False), (1, 0, True), (1, 2, False)]
    assert delivered(by_key, *apart, batch=batch)["verdict"] == "unknown"
    late_retry = delivered(by_key, *apart, (1, 0, True), batch=batch)
    assert (late_retry["reordered"], late_retry["verdict"]) == (1, "violated")
    assert late_retry["examples"] == [{"publisher": 0, "first": 0, "last": 0, "what": "reordered"}]
    assert delivered(by_key, *apart, (1, 7, False), (1, 4, False), batch=batch)["reordered"] == 0
    assert delivered(OF_CHANNELS, *apart, batch=batch)["reordered"] == 1  # 2 after 5


def test_the_first_sight_of_a_redelivery_is_in_the_order_of_a_queue() -> None:
    """Messages that were on the way to a lost consumer come next, and before all later ones."""
    lost_two = [(1, 0, False), (1, 1, True), (1, 2, True), (1, 3, False)]
    assert delivered(Promise(Order.QUEUE), *lost_two)["reordered"] == 0
    swapped = [(1, 0, False), (1, 3, False), (1, 1, True), (1, 2, True)]
    assert delivered(Promise(Order.QUEUE), *swapped)["reordered"] == 2
    assert delivered(OF_CHANNELS, *swapped)["reordered"] == 0


def test_several_publishers_and_queues_are_checked_in_the_order_of_arrival() -> None:
    """A redelivery is not moved behind the next message of its key, as it is where channels are checked alone."""
    ledger = Ledger(RUN, promise=Promise(Order.KEY, 1))
    for publisher in (0, 1):
        ledger.publisher(publisher).published(9, confirms=True)
    sources = RUN << 16 | np.array([0, 1, 0, 1, 0, 1])
    numbers, again = np.array([0, 0, 0, 1, 1, 0]), np.array([False, False, True, False, False, True])
    ledger.delivered_to(np.array([1, 2, 1, 2, 1, 2]), sources, numbers, again)
    record = ledger.record(complete=True)
    assert [(each["publisher"], each["first"]) for each in record["examples"]] == [(1, 0)]


@given(numbers=st.lists(st.integers(0, 200), min_size=1, max_size=40), keys=st.integers(1, 9), cut=st.integers(0, 40))
def test_a_run_of_a_key_order_is_its_messages_one_by_one(numbers: list[int], keys: int, cut: int) -> None:
    last: dict[int, int] = {}
    wanted = []
    for number in numbers:
        wanted.append(number < last.get(number % keys, -1))
        last[number % keys] = max(number, last.get(number % keys, -1))
    order = KeyOrder(keys)
    found = [order.late(np.array(part)).tolist() for part in (numbers[:cut], numbers[cut:]) if part]
    assert [each for part in found for each in part] == wanted
    assert [order.rises(last[key]) for key in last] == [False] * len(last)
    assert all(order.rises(number + keys) for number in last.values())


def test_keys_cost_memory_by_their_number_and_not_by_the_messages() -> None:
    ledger = Ledger(RUN, promise=Promise(Order.KEY, 3))
    account = ledger.publisher(0)
    assert isinstance(account, PublisherLedger)
    for first in range(0, 30_000, 300):
        account.published(300, confirms=True)
        numbers = np.arange(first, first + 300)
        ledger.delivered(1, np.full(300, RUN << 16), numbers, np.zeros(300, np.bool_))
        account.answered(numbers, 1)
    assert len(account._keys_of) == 1 and not account._highest
    ledger.close(drained=True, abandoned=False)
    assert ledger.record(complete=True)["verdict"] == "ok"


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_consumers_of_an_order_are_in_one_worker(workers: int) -> None:
    """The order of deliveries is known in the process that reads them."""
    keyed = (BY_ROUTING_KEY, replace(BY_ROUTING_KEY, name="l"), replace(BY_ROUTING_KEY, name="m"))
    shared = plan(*keyed, consumers=11, publishing=IN_TURN, exchange=Exchange(name="x", type="fanout"))
    places = {number: index for index in range(workers) for number in Share(shared, index, workers).consumers(11)}
    assert sorted(places) == list(range(11))
    for queue in range(3):
        assert len({places[number] for number in range(queue, 11, 3)}) == 1
    assert len(set(places.values())) == min(workers, 3)
    assert NUMBERS_PER_WORKER > 11


def test_a_sum_of_records_names_the_order_that_all_have() -> None:
    records = [Ledger(RUN, promise=promise).record(complete=True) for promise in (OF_CHANNELS, Promise(Order.KEY, 3))]
    assert merge_records([records[1], records[1]], complete=True)["order"] == "key"
    assert merge_records(records, complete=True)["order"] == "several"
