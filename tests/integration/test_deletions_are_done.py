"""A client that was told of an end can use the name at once: what ends with its request has ended, on its node."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exchange_type import ExchangeType

from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes

TRIES = 15


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> list[str]:
    """The URIs of three nodes."""
    return [node.uri for node in cluster.nodes]


def is_there(connection: BlockingConnection, *, queue: str = "", exchange: str = "") -> bool:
    """Whether a queue or an exchange exists."""
    channel = connection.channel()
    try:
        if queue:
            channel.queue_declare(queue, passive=True)
        else:
            channel.exchange_declare(exchange, passive=True)
    except pika.exceptions.ChannelClosedByBroker as closed:
        assert closed.reply_code == 404
        return False
    channel.close()
    return True


def cancel(_connection: BlockingConnection, channel: BlockingChannel, tag: str) -> None:
    channel.basic_cancel(tag)


def close_channel(_connection: BlockingConnection, channel: BlockingChannel, _tag: str) -> None:
    channel.close()


def close_connection(connection: BlockingConnection, _channel: BlockingChannel, _tag: str) -> None:
    connection.close()


ENDS: dict[str, Callable[[BlockingConnection, BlockingChannel, str], None]] = {
    "basic.cancel": cancel,
    "channel.close": close_channel,
    "connection.close": close_connection,
}


@pytest.mark.parametrize("where", ["on its owner", "on another node"])
@pytest.mark.parametrize("end", ENDS)
def test_an_auto_delete_queue_is_gone_when_the_end_of_its_last_consumer_is_answered(
    nodes: list[str], end: str, where: str
) -> None:
    """With it go its binding, and the auto-delete exchange that has no other."""
    with connect(nodes[0]) as owner, connect(nodes[0 if where == "on its owner" else 1]) as watch:
        for number in range(TRIES):
            queue, exchange = f"q{number}", f"x{number}"
            declaring = owner.channel()
            declaring.queue_declare(queue, auto_delete=True)
            declaring.exchange_declare(exchange, ExchangeType.fanout, auto_delete=True)
            declaring.queue_bind(queue, exchange)
            declaring.close()
            consuming = connect(nodes[0 if where == "on its owner" else 1])
            channel = consuming.channel()
            tag = channel.basic_consume(queue, lambda *_: None)
            ENDS[end](consuming, channel, tag)
            assert not is_there(watch, queue=queue)
            assert not is_there(watch, exchange=exchange)
            if consuming.is_open:
                consuming.close()


def test_a_queue_that_is_declared_again_behind_the_end_of_its_consumer_is_new(nodes: list[str]) -> None:
    """Nothing that is confirmed behind declare-ok goes with the former queue, also if nobody has waited for its end."""
    with connect(nodes[0]) as connection, connect(nodes[1]) as other:
        for number in range(2 * TRIES):
            name, channel = f"again{number}", connection.channel()
            channel.queue_declare(name, auto_delete=True)
            tag = channel.basic_consume(name, lambda *_: None)
            if number % 2:
                channel.basic_cancel(tag)
            else:
                channel._impl._send_method(pika.spec.Basic.Cancel(tag, nowait=True))
            again = (other if number % 4 == 1 else connection).channel()
            again.queue_declare(name, auto_delete=True)
            again.confirm_delivery()
            again.basic_publish("", name, b"kept", mandatory=True)
            assert again.queue_declare(name, passive=True).method.message_count == 1
            again.queue_delete(name)
            again.close()


def test_an_exclusive_queue_is_gone_when_the_end_of_its_connection_is_answered(nodes: list[str]) -> None:
    with connect(nodes[0]) as watch:
        for number in range(TRIES):
            with connect(nodes[0]) as owner:
                channel = owner.channel()
                channel.exchange_declare("gone", ExchangeType.fanout, auto_delete=True)
                channel.queue_declare(f"own{number}", exclusive=True)
                channel.queue_bind(f"own{number}", "gone")
            assert not is_there(watch, exchange="gone")
            channel = watch.channel()
            channel.queue_declare(f"own{number}", exclusive=True)
            channel.queue_delete(f"own{number}")
            channel.close()


def test_a_channel_number_can_be_used_again_while_its_end_is_waited_for(nodes: list[str]) -> None:
    """A client that does not wait for close-ok opens the channel anew, and consumes there."""
    with connect(nodes[0]) as connection:
        for _ in range(TRIES):
            channel = connection.channel(7)
            channel.queue_declare("twice", auto_delete=True)
            channel.basic_consume("twice", lambda *_: None)
            channel.close()
        assert not is_there(connection, queue="twice")
