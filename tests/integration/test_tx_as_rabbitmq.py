"""One script, two brokers: what transactions do here and in a real RabbitMQ, with quorum and classic queues."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import rabbitmq_cluster
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.processes,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]

Answer = Any
DEADLINE_S = 20
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def brokers(rabbitmq: str, cluster: Cluster) -> dict[str, str]:
    """URIs of RabbitMQ, and of two nodes of our cluster."""
    return {"RabbitMQ": rabbitmq, "ours": cluster.nodes[0].uri, "another node": cluster.nodes[1].uri}


class Scene:
    """A channel, and a second connection that sees what others see. The queues ``a`` and ``b`` are empty."""

    def __init__(self, uri: str, kind: str) -> None:
        self.kind = kind
        self.connection, self._other = connect(uri), connect(uri)
        self.watch = self._other.channel()
        self.names = {name: f"tx-{kind}-{name}" for name in "ab"}
        for name in self.names.values():
            self.watch.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        self.watch.exchange_declare("tx-fan", "fanout", durable=True)
        for name in self.names.values():
            self.watch.queue_bind(name, "tx-fan")
        self.channel = self.connection.channel()

    def publish(self, *bodies: bytes, to: str = "a", channel: BlockingChannel | None = None, **more: Any) -> None:
        """Publish to a queue through the default exchange."""
        for body in bodies:
            (channel or self.channel).basic_publish("", self.names.get(to, to), body, PERSISTENT, **more)

    def fill(self, *bodies: bytes, to: str = "a") -> None:
        """Have messages in a queue, confirmed."""
        channel = self._other.channel()
        channel.confirm_delivery()
        self.publish(*bodies, to=to, channel=channel)
        channel.close()

    def get(self, queue: str = "a", *, auto_ack: bool = False) -> tuple[int, bytes]:
        """Delivery tag and body of the next message; nothing: tag 0."""
        method, _properties, body = self.channel.basic_get(self.names[queue], auto_ack)
        return (method.delivery_tag, body) if method is not None else (0, b"")

    def fence(self) -> None:
        """Everything that the channel has sent before is done."""
        self.channel.queue_declare(self.names["a"], passive=True)

    def seen(self, queue: str = "a") -> list[tuple[bytes, bool]]:
        """Take everything that is ready: bodies, and whether redelivered."""
        found = []
        while (got := self.watch.basic_get(self.names[queue], auto_ack=True))[0] is not None:
            found.append((got[2], got[0].redelivered))
        return found

    def end_channel(self, ready: int) -> None:
        """Close the channel, and wait until so many messages are ready in queue ``a``."""
        self.channel.close()
        deadline = time.monotonic() + DEADLINE_S
        while self.watch.queue_declare(self.names["a"], passive=True).method.message_count < ready:
            assert time.monotonic() < deadline, f"{ready} messages are not there"

    def close(self) -> None:
        """Close the connections."""
        for connection in (self.connection, self._other):
            if connection.is_open:
                connection.close()


Script = Callable[[Scene], Answer]
SCRIPTS: list[Script] = []


def script(function: Script) -> Script:
    SCRIPTS.append(function)
    return function


@script
def a_commit_publishes(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(b"1", b"2")
    s.publish(b"3", to="b")
    s.fence()
    before = s.seen(), s.seen("b")
    s.channel.tx_commit()
    return before, s.seen(), s.seen("b")


@script
def a_rollback_drops_publishes(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(b"1")
    s.channel.tx_rollback()
    s.publish(b"2")
    s.channel.tx_commit()
    return s.seen()


@script
def an_empty_transaction(s: Scene) -> Answer:
    s.channel.tx_select()
    s.channel.tx_commit()
    s.channel.tx_rollback()
    s.channel.tx_commit()
    return s.seen()


@script
def selecting_twice_keeps_the_transaction(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(b"1")
    s.channel.tx_select()
    before = s.seen()
    s.channel.tx_commit()
    return before, s.seen()


@script
def a_channel_that_closes_rolls_back(s: Scene) -> Answer:
    s.fill(b"kept")
    s.channel.tx_select()
    tag, _ = s.get()
    s.channel.basic_ack(tag)
    s.publish(b"lost")
    s.end_channel(ready=1)
    return s.seen()


@script
def a_connection_that_closes_rolls_back(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(b"lost")
    s.connection.close()
    return s.seen()


@script
def a_commit_acknowledges(s: Scene) -> Answer:
    s.fill(b"1", b"2")
    s.channel.tx_select()
    tags = [s.get()[0], s.get()[0]]
    s.channel.basic_ack(tags[0])
    s.channel.tx_commit()
    s.end_channel(ready=1)
    return tags, s.seen()


@script
def a_rollback_takes_back_acknowledgements(s: Scene) -> Answer:
    s.fill(b"1", b"2")
    s.channel.tx_select()
    tags = [s.get()[0], s.get()[0]]
    s.channel.basic_ack(tags[1], multiple=True)
    s.channel.tx_rollback()
    before = s.seen()
    s.channel.basic_ack(tags[0])
    s.channel.tx_commit()
    s.end_channel(ready=1)
    return tags, before, s.seen()


@script
def a_rollback_takes_back_requeueing(s: Scene) -> Answer:
    s.fill(b"1")
    s.channel.tx_select()
    tag, _ = s.get()
    s.channel.basic_nack(tag, requeue=True)
    s.fence()
    before = s.seen()
    s.channel.tx_rollback()
    s.channel.basic_nack(tag, requeue=True)
    s.channel.tx_commit()
    return before, s.seen()


@script
def an_acknowledgement_is_known_before_the_commit(s: Scene) -> Answer:
    s.fill(b"1")
    s.channel.tx_select()
    tag, _ = s.get()
    s.channel.basic_ack(tag)
    s.channel.basic_ack(tag)
    s.channel.tx_commit()
    return s.seen()


@script
def an_unknown_tag_in_a_transaction(s: Scene) -> Answer:
    s.channel.tx_select()
    s.channel.basic_ack(7)
    s.channel.tx_commit()
    return "ok"


@script
def publish_and_acknowledge_together(s: Scene) -> Answer:
    s.fill(b"in")
    s.channel.tx_select()
    tag, body = s.get()
    s.publish(body + b"-out", to="b")
    s.channel.basic_ack(tag)
    s.channel.tx_commit()
    s.channel.close()
    return s.seen(), s.seen("b")


@script
def through_an_exchange(s: Scene) -> Answer:
    s.channel.tx_select()
    s.channel.basic_publish("tx-fan", "", b"1", PERSISTENT)
    s.fence()
    before = s.seen(), s.seen("b")
    s.channel.tx_commit()
    return before, s.seen(), s.seen("b")


@script
def to_an_exchange_that_is_not_there(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(b"lost")
    s.channel.basic_publish("nowhere", "", b"1", PERSISTENT)
    s.fence()
    return "ok"


@script
def to_a_queue_that_is_not_there(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(b"1", to="nobody")
    s.publish(b"2")
    s.channel.tx_commit()
    return s.seen()


@script
def mandatory_messages_come_back_at_the_commit(s: Scene) -> Answer:
    returned: list[bytes] = []
    s.channel.add_on_return_callback(lambda _channel, _method, _properties, body: returned.append(body))
    s.channel.tx_select()
    s.publish(b"1", to="nobody", mandatory=True)
    s.fence()
    s.connection.process_data_events(0)
    before = [*returned]
    s.channel.tx_commit()
    s.connection.process_data_events(0)
    return before, returned


@script
def mandatory_messages_that_are_rolled_back(s: Scene) -> Answer:
    returned: list[bytes] = []
    s.channel.add_on_return_callback(lambda _channel, _method, _properties, body: returned.append(body))
    s.channel.tx_select()
    s.publish(b"1", to="nobody", mandatory=True)
    s.channel.tx_rollback()
    s.channel.tx_commit()
    s.connection.process_data_events(0)
    return returned


@script
def commit_without_select(s: Scene) -> Answer:
    s.channel.tx_commit()
    return "ok"


@script
def rollback_without_select(s: Scene) -> Answer:
    s.channel.tx_rollback()
    return "ok"


@script
def confirms_after_select(s: Scene) -> Answer:
    s.channel.tx_select()
    s.channel.confirm_delivery()
    return "ok"


@script
def select_after_confirms(s: Scene) -> Answer:
    s.channel.confirm_delivery()
    s.channel.tx_select()
    return "ok"


@script
def recover_in_a_transaction(s: Scene) -> Answer:
    s.fill(b"1", b"2")
    s.channel.tx_select()
    tag, _ = s.get()
    s.get()
    s.channel.basic_ack(tag)
    s.channel.basic_recover(requeue=True)
    before = s.seen()
    s.channel.tx_commit()
    s.channel.close()
    return before, s.seen()


@script
def many_messages(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(*[b"%d" % number for number in range(500)])
    s.publish(b"x" * 300_000)
    s.channel.tx_commit()
    return s.seen()


@script
def several_transactions(s: Scene) -> Answer:
    s.channel.tx_select()
    for number in range(20):
        s.publish(b"%d" % number, to="ab"[number % 2])
        (s.channel.tx_commit, s.channel.tx_rollback)[number % 3 == 2]()
    return s.seen(), s.seen("b")


@script
def a_queue_that_goes_before_the_commit(s: Scene) -> Answer:
    s.channel.tx_select()
    s.publish(b"1")
    s.publish(b"2", to="b")
    s.fence()
    s.watch.queue_delete(s.names["a"])
    s.channel.tx_commit()
    return s.seen("b")


@script
def a_queue_that_is_full(s: Scene) -> Answer:
    s.names["full"] = s.names["a"] + "-full"
    limits = {"x-queue-type": s.kind, "x-max-length": 1, "x-overflow": "reject-publish"}
    s.watch.queue_declare(s.names["full"], durable=True, arguments=limits)
    s.fill(b"1", to="full")
    s.channel.tx_select()
    s.publish(b"2")
    for _ in range(10):
        s.publish(b"3", to="full")
    s.channel.tx_commit()
    return "ok"


@script
def acknowledgements_without_a_tag_of_their_own(s: Scene) -> Answer:
    s.fill(b"1", b"2", b"3")
    s.channel.tx_select()
    for _ in range(3):
        s.get()
    s.channel.basic_ack(0, multiple=True)
    s.channel.tx_commit()
    s.channel.close()
    return s.seen()


def answer(uri: str, kind: str, play: Script) -> Answer:
    """What the script got, or what it was closed with."""
    scene = Scene(uri, kind)
    try:
        return play(scene)
    except pika.exceptions.ChannelClosedByBroker as closed:
        return "channel", closed.reply_code, closed.reply_text
    except pika.exceptions.ConnectionClosedByBroker as closed:
        return "connection", closed.reply_code, closed.reply_text
    finally:
        scene.close()
        with connect(uri) as last:
            for name in scene.names.values():
                last.channel().queue_delete(name)
            last.channel().exchange_delete("tx-fan")


STRICTER = {("a_queue_that_is_full", "quorum"): ("channel", 406, "PRECONDITION_FAILED - partial tx completion")}
"""RabbitMQ's quorum queues refuse publishes a while after they are full, and a whole transaction may slip in."""


@pytest.mark.parametrize("kind", ["quorum", "classic"])
@pytest.mark.parametrize("play", SCRIPTS, ids=lambda each: each.__name__)
def test_both_brokers_answer_alike(brokers: dict[str, str], kind: str, play: Script) -> None:
    found = {name: answer(uri, kind, play) for name, uri in brokers.items()}
    wanted = STRICTER.get((play.__name__, kind), found["RabbitMQ"])
    assert (found["ours"], found["another node"]) == (wanted, wanted)
