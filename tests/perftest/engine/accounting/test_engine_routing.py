"""How many copies of a message the ledger expects, and what an empty queue tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perftest.engine.accounting.routing import is_fleeting, is_transient, keeps_messages, queues_of_each
from perftest.spec.behaviour import Connecting, Consuming, Exchange, ExitWhen, Publishing, RoutingKeys
from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step

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
    plan = Plan.of(
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


STEP = Step(number=1, label="", settings=Settings(), duration_s=1, warmup_s=0)
GOES = QueueSpec(name="a", type=QueueType.CLASSIC, durable=False, auto_delete=True)
SERVERS = {"queues": (replace(GOES, name=""),), "exchange": DIRECT, "publishing": FIXED}


def steps(**changes: Any) -> dict[str, Any]:
    return {"steps": (STEP, replace(STEP, settings=replace(STEP.settings, **changes)))}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"queues": (GOES,)}, True),
        ({"queues": (GOES,), "delete_queues": False}, False),
        ({"queues": (GOES,), "consuming": Consuming(messages=5)}, False),
        ({"queues": TWO[:1], "consuming": Consuming(messages=5)}, True),
        ({"queues": (GOES,), "consuming": Consuming(exit_when=ExitWhen.IDLE)}, False),
        ({"queues": (GOES,), **steps(consumers=0)}, False),
        ({"queues": (GOES, TWO[1])}, False),  # the second has no consumer
        (SERVERS, True),
        ({**SERVERS, "queues": (replace(GOES, name="", auto_delete=False),)}, False),
        ({**SERVERS, "consuming": Consuming(polling=True)}, False),
        ({**SERVERS, **steps(consumers=2)}, False),
        ({"exchange": DIRECT, "publishing": FIXED}, True),
        ({"exchange": DIRECT, "publishing": RANDOM}, False),
        ({"exchange": FANOUT, "publishing": RANDOM}, True),
        ({"publishing": FIXED}, False),
        ({"queues": (replace(TWO[0], predeclared=True),)}, False),
        ({"queues": (replace(TWO[0], arguments={"x-max-length": 5}),)}, False),
        ({"connecting": Connecting(exclusive=True)}, False),
        (steps(ack_interval=0), False),
    ],
)
def test_when_an_empty_queue_tells_of_loss(changes: dict[str, Any], expected: bool) -> None:
    """Wherever a message may have left it by another way, or the queue with the message, it tells nothing."""
    plain: dict[str, Any] = {"queues": TWO[:1], "steps": (STEP,), "exchange": Exchange(), "publishing": QUEUE}
    plan = Plan.of(name="t", title="t", uris=(), isolation=Isolation.LIVE, **plain | changes)
    assert keeps_messages(plan) is expected


def test_what_a_restart_may_forget() -> None:
    plan = Plan.of(name="t", title="t", uris=(), isolation=Isolation.LIVE, queues=TWO[:1], steps=(STEP,))
    assert not is_transient(plan) and not is_fleeting(plan)
    assert is_transient(plan.changed(queues=(replace(TWO[0], durable=False),)))
    assert is_transient(plan.changed(**steps(persistent=False)))
    assert is_fleeting(plan.changed(queues=(GOES,))) and is_fleeting(plan.changed(queues=OWN))
