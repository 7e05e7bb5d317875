"""How many copies of a message the ledger expects."""

from __future__ import annotations

from typing import Any

import pytest

from perftest.engine.routing import queues_of_each
from perftest.spec.behaviour import Exchange, Publishing, RoutingKeys
from perftest.spec.plan import Isolation, Plan, QueueSpec

FIXED, RANDOM, QUEUE = (Publishing(routing_keys=RoutingKeys(kind)) for kind in ("fixed", "random", "queue"))
FANOUT, DIRECT, TOPIC = (Exchange(name="e", type=kind) for kind in ("fanout", "direct", "topic"))
TWO = (QueueSpec(name="a"), QueueSpec(name="b"))
OWN = (QueueSpec(name=""),)


@pytest.mark.parametrize(
    ("queues", "exchange", "publishing", "expected"),
    [
        (TWO, Exchange(), QUEUE, None),
        (TWO, Exchange(), FIXED, None),
        (TWO, DIRECT, QUEUE, None),
        (TWO, DIRECT, FIXED, (0, 1)),
        (TWO, TOPIC, FIXED, (0, 1)),
        (TWO, DIRECT, RANDOM, None),
        (TWO, FANOUT, QUEUE, (0, 1)),
        (TWO, FANOUT, RANDOM, (0, 1)),
        (TWO[:1], FANOUT, QUEUE, None),
        (TWO, Exchange(name="e", type="x-consistent-hash"), RANDOM, None),
        ((*TWO, QueueSpec(name="c", bound=False)), FANOUT, QUEUE, (0, 1)),
        (OWN, DIRECT, QUEUE, ()),
        (OWN, DIRECT, FIXED, ()),
        (OWN, DIRECT, RANDOM, None),
        (OWN, FANOUT, RANDOM, ()),
        ((*OWN, *TWO), FANOUT, QUEUE, (1, 2)),
    ],
)
def test_queues_that_get_each_message(queues: Any, exchange: Exchange, publishing: Publishing, expected: Any) -> None:
    plan = Plan(
        name="t",
        title="t",
        uris=(),
        queues=queues,
        steps=(),
        isolation=Isolation.LIVE,
        exchange=exchange,
        publishing=publishing,
    )
    assert queues_of_each(plan) == expected
