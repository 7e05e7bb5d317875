"""What quorum queues answer to a declaration without a name and to a first basic.get, here and in RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import rabbitmq_cluster
from tests.integration.testing.pika_clients import connect

QUORUM = {"x-queue-type": "quorum"}
BROKERS = (
    pytest.param("bundled", marks=pytest.mark.processes),
    pytest.param(
        "rabbitmq",
        marks=(
            pytest.mark.rabbitmq,
            pytest.mark.skipif(not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed"),
        ),
    ),
)


@pytest.fixture
def channel(uri: str) -> Iterator[BlockingChannel]:
    connection = connect(uri)
    yield connection.channel()
    connection.close()


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("broker", BROKERS)
def test_a_quorum_queue_has_a_name(durable: bool, channel: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare("", durable=durable, arguments=QUORUM)
    text = "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    assert (refused.value.reply_code, refused.value.reply_text) == (406, text)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_fetched_message_counts_from_0_and_a_delivered_one_from_1(channel: BlockingChannel) -> None:
    queue = "perftest-counts"
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    try:
        found = []
        channel.basic_publish("", queue, b"fetched")
        for _ in range(2):
            method, properties, _ = channel.basic_get(queue)
            assert method is not None and properties is not None
            found.append((method.redelivered, properties.headers))
            channel.basic_nack(method.delivery_tag, requeue=len(found) < 2)
        assert found == [(False, {"x-delivery-count": 0}), (True, {"x-delivery-count": 1})]
        channel.basic_publish("", queue, b"delivered")
        method, properties, _ = next(channel.consume(queue, auto_ack=True, inactivity_timeout=30))
        assert method is not None and not method.redelivered and properties.headers is None
        channel.cancel()
    finally:
        channel.queue_delete(queue)
