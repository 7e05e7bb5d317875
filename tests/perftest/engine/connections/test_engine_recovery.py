"""When connections are tried again, and where."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from perftest.amqp.errors import BrokerProtocolError, ConnectionLostError
from perftest.engine.connections.link import home
from perftest.engine.connections.recovery import LONGEST_DELAY_S, LinkRecovery, RecoveryOffError, first_uri
from perftest.engine.workers.failures import explain
from perftest.spec.behaviour import Allocation, Connecting, Consuming, Publishing
from perftest.spec.plan import Isolation, Plan, QueueSpec


def plan(uris: int = 3, queues: tuple[str, ...] = ("a", "b"), **fields: object) -> Plan:
    return Plan.of(
        name="t",
        title="t",
        uris=("amqp://",) * uris,
        queues=tuple(QueueSpec(name=name) for name in queues),
        steps=(),
        isolation=Isolation.LIVE,
        **fields,  # type: ignore[arg-type]
    )


def first_delays(recovery: LinkRecovery, *, lost: bool) -> list[float]:
    return list(islice(recovery.delays(lost=lost), 8))


def test_without_an_interval_the_first_try_is_at_once_and_the_others_never_far_apart() -> None:
    recovery = LinkRecovery.of(plan(confirm_timeout_s=7.0), "publisher 1")
    delays = first_delays(recovery, lost=True)
    assert delays[0] == 0 and delays == sorted(delays) and delays[-1] == LONGEST_DELAY_S
    assert first_delays(recovery, lost=False)[:-1] == delays[1:]
    assert recovery.limit_s == 7.0


@pytest.mark.parametrize("interval", [(5.0, 5.0), (30.0, 60.0)])
def test_an_interval_is_kept_from_the_first_try_on_for_as_long_as_it_takes(interval: tuple[float, float]) -> None:
    connecting = Connecting(recovery_s=interval)
    recovery = LinkRecovery.of(plan(connecting=connecting), "publisher 1")
    delays = first_delays(recovery, lost=True)
    assert all(interval[0] <= delay <= interval[1] for delay in delays)
    assert recovery.limit_s == math.inf
    assert delays == first_delays(recovery, lost=True), "the same seed, the same delays"
    other = first_delays(LinkRecovery.of(plan(connecting=connecting), "publisher 2"), lost=True)
    assert (other == delays) == (interval[0] == interval[1]), "a thousand clients must not return together"


def test_a_loss_is_final_where_recovery_is_off_but_its_own_reason_is_kept() -> None:
    off = LinkRecovery.of(plan(connecting=Connecting(recover=False)), "publisher 1")
    final = off.final(ConnectionLostError("the broker closed the socket"))
    assert isinstance(final, RecoveryOffError)
    assert "closed the socket" in explain(final).what and "-dcr" in explain(final).fix
    nonsense = BrokerProtocolError("nonsense")
    assert off.final(nonsense) is nonsense


def test_random_allocation_is_the_same_for_the_same_seed_and_even() -> None:
    drawn = [
        [
            first_uri(plan(connecting=Connecting(allocation=Allocation.RANDOM), seed=seed), "publisher", n)
            for n in range(300)
        ]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(80 < drawn[0].count(index) < 120 for index in range(3))
    assert [first_uri(plan(), "publisher", number) for number in range(4)] == [0, 1, 2, 0]
    assert [first_uri(plan(), "publisher", number, (2, 1)) for number in range(4)] == [2, 1, 2, 1]
    at_random = plan(connecting=Connecting(allocation=Allocation.RANDOM))
    assert {first_uri(at_random, "publisher", number, (0, 2)) for number in range(20)} == {0, 2}


def test_clients_go_to_the_nodes_that_the_plan_names() -> None:
    """What proxying costs is measured by placing clients; a client elsewhere would measure something else."""
    placed = plan(connecting=Connecting(publisher_nodes=(2,), consumer_nodes=(3, 1)))
    assert [first_uri(placed, "publisher", number, (0,)) for number in range(3)] == [1, 1, 1]
    assert [first_uri(placed, "consumer", number) for number in range(3)] == [2, 0, 2]
    assert [first_uri(placed, "queue", number) for number in range(3)] == [0, 1, 2]


HOMES = [
    (plan(), [("publisher", 0), ("publisher", 1), ("publisher", 2)], [("consumer", 0), ("consumer", 1)]),
    (
        plan(publishing=Publishing(channels=2), consuming=Consuming(channels=3)),
        [("publisher", 0), ("publisher", 0), ("publisher", 1)],
        [("consumer", 0), ("consumer", 0)],
    ),
    (
        plan(connecting=Connecting(exclusive=True), publishing=Publishing(channels=2)),
        [("queue", 0), ("queue", 1), ("queue", 0)],
        [("queue", 0), ("queue", 1)],
    ),
    (
        plan(queues=("",), connecting=Connecting(exclusive=True)),
        [("publisher", 0), ("publisher", 1), ("publisher", 2)],
        [("consumer", 0), ("consumer", 1)],
    ),
]


@pytest.mark.parametrize(("of", "publishers", "consumers"), HOMES)
def test_each_client_has_a_home(of: Plan, publishers: list[tuple[str, int]], consumers: list[tuple[str, int]]) -> None:
    assert [home(of, "publisher", number) for number in range(len(publishers))] == publishers
    assert [home(of, "consumer", number) for number in range(len(consumers))] == consumers
