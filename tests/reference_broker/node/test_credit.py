"""What a node takes the queue to count against a consumer's credit: settles may wait only while that is little."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic

from reference_broker.queues.session import ConsumeSession
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId
from tests.reference_broker.amqp.testing import publish
from tests.reference_broker.node.test_back_pressure import Client, World, delivery_tags, run


def consumer(credit: int) -> ConsumeSession:
    """Of no particular queue."""
    made = ConsumeSession(ConsumerId(ChannelId(NodeId(1), 1, 1, 1), "c"), GroupId(7), no_ack=False)
    made.credit = credit
    return made


@pytest.mark.parametrize("applied, expected", [(2, True), (3, False), (4, False)])
def test_messages_given_up_count_until_the_queue_has_applied_that(applied: int, expected: bool) -> None:
    """Four given up in proposals 3 and 5, two still held, of a credit of ten."""
    one = consumer(10)
    one.held = 6
    one.release(1, 3)
    one.release(3, 5)
    assert one.held == 2
    assert one.is_short_of_credit(applied) is expected


def test_all_given_up_and_applied_leaves_nothing() -> None:
    """Nothing adds up over a long life."""
    one = consumer(10)
    for number in range(1, 1000):
        one.held += 5
        one.release(5, number)
        assert not one.is_short_of_credit(number)
    assert (one.held, one._released, len(one._releases)) == (0, 0, 0)


@pytest.mark.parametrize("ending, comes_back", [(Basic.Ack(1), []), (Basic.Reject(1, True), [2])])
def test_what_returns_does_not_wait_for_something_to_ride_with(ending: Basic.Ack, comes_back: list[int]) -> None:
    """A settle may; nobody waits for it."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.raw(publish(1, "q", b"body"))
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        client.send(1, ending)
        await world.settle()
        assert delivery_tags(client) == [1, *comes_back]
        assert world.shard.queues["q"].member.machine.counts().settled == 0

    run(scenario, settle_delay_ms=3_600_000)
