"""The server side against a client that somebody else wrote."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator

import pika
import pytest

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import (
    Cancel,
    ConnectionClosed,
    Consume,
    Event,
    Publish,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    Settled,
)
from reference_broker.message_run import MessageRun
from reference_broker.types import Outcome

Waiting = tuple[MessageRun, int]


class OneQueueBroker:
    """The least broker there can be: queues in memory, one connection, deliveries at once."""

    def __init__(self, server: ServerConnection) -> None:
        self.server = server
        self.ready: dict[str, list[Waiting]] = defaultdict(list)
        self.consumers: dict[str, Consume] = {}
        self.held: dict[str, dict[int, Waiting]] = defaultdict(dict)
        self.next_id: dict[str, int] = defaultdict(int)

    def handle(self, event: Event) -> None:
        server = self.server
        match event:
            case QueueDeclare(channel=channel, queue=queue, passive=True) if queue not in self.ready:
                server.channel_error(channel, 404, f"no queue '{queue}' in vhost '/'", "queue.declare")
            case QueueDeclare(channel=channel, queue=queue):
                server.queue_declare_ok(channel, queue, len(self.ready[queue]), 0)
            case QueuePurge(channel=channel, queue=queue):
                server.queue_purge_ok(channel, len(self.ready.pop(queue, [])))
            case QueueDelete(channel=channel, queue=queue):
                server.queue_delete_ok(channel, len(self.ready.pop(queue, [])))
            case Consume(channel=channel, queue=queue, consumer_tag=tag):
                self.consumers[queue] = event
                server.consume_ok(channel, tag)
            case Cancel(channel=channel, consumer_tag=tag):
                self.consumers = {queue: each for queue, each in self.consumers.items() if each.consumer_tag != tag}
                server.cancel_ok(channel, tag)
            case Publish():
                self.publish(event)
            case Settled(consumer_tag=tag, outcome=outcome, ranges=ranges):
                for first, last in ranges:
                    for each in range(first, last + 1):
                        message = self.held[tag].pop(each)
                        if outcome is Outcome.RETURN:
                            self.ready["q"].insert(0, message)
        for queue, consumer in self.consumers.items():
            self.deliver(queue, consumer, isinstance(event, Settled))

    def publish(self, event: Publish) -> None:
        last = event.first_seq + event.run.count - 1
        if event.routing_key in self.ready:
            self.ready[event.routing_key] += [(event.run, position) for position in range(event.run.count)]
        elif event.mandatory:
            self.server.returned(event.channel, 312, "NO_ROUTE", "", event.routing_key, event.run)
        if event.first_seq:
            self.server.confirm(event.channel, event.first_seq, last)

    def deliver(self, queue: str, consumer: Consume, redelivered: bool) -> None:
        waiting, self.ready[queue] = self.ready[queue], []
        for run, position in waiting:
            each = self.next_id[consumer.consumer_tag]
            self.next_id[consumer.consumer_tag] += 1
            self.held[consumer.consumer_tag][each] = (run, position)
            piece = (run, position, 1, 1)
            assert self.server.deliver(consumer.channel, consumer.consumer_tag, each, [piece], int(redelivered))


def serve(peer: socket.socket) -> None:
    """One client, from its first octet to its last."""
    server = ServerConnection(ConnectionConfig(), 0.0)
    broker = OneQueueBroker(server)
    while data := peer.recv(1 << 16):
        events = server.receive(data, 0.0)
        is_over = False
        while events:
            for event in events:
                broker.handle(event)
                is_over = is_over or isinstance(event, ConnectionClosed)
            events = server.go_on()
        server.flush_confirms()
        peer.sendall(b"".join(server.take_output()))
        if is_over:
            return


def accept(listener: socket.socket) -> None:
    """Serve one client, and close its socket whatever happens: an open one is a warning in some later test."""
    with contextlib.suppress(OSError), listener.accept()[0] as peer:
        peer.settimeout(20)
        serve(peer)


@pytest.fixture
def connection() -> Iterator[pika.BlockingConnection]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    thread = threading.Thread(target=accept, args=(listener,))
    thread.start()
    client = None
    try:
        client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", listener.getsockname()[1], heartbeat=0))
        yield client
    finally:
        if client is not None and client.is_open:
            client.close()
        thread.join()
        listener.close()


def test_pika_publishes_confirmed_and_consumes(connection: pika.BlockingConnection) -> None:
    """The most used Python client works: declare, confirmed publish, consume, ack, requeue, cancel, delete."""
    channel = connection.channel()
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    bodies = [b"", b"hello", b"x" * 300_000]
    for number, body in enumerate(bodies):
        properties = pika.BasicProperties(delivery_mode=2, message_id=str(number), headers={"n": number})
        channel.basic_publish("", "q", body, properties)
    channel.basic_qos(prefetch_count=10)
    found = []
    for method, properties, body in channel.consume("q", inactivity_timeout=20):
        assert method is not None
        found.append((properties.message_id, properties.headers, body, method.redelivered))
        if len(found) == 1:
            channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag)
        if len(found) == 4:
            break
    channel.cancel()
    sent = [(str(number), {"n": number}, body, False) for number, body in enumerate(bodies)]
    again = (sent[0][0], {"n": 0, "x-delivery-count": 1}, sent[0][2], True)
    assert found == [*sent, again]
    assert channel.queue_purge("q").method.message_count == 0
    channel.queue_delete("q")


def test_pika_understands_our_refusals(connection: pika.BlockingConnection) -> None:
    """Errors arrive as the exceptions that applications catch, and the connection goes on."""
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare("missing", passive=True)
    assert (refused.value.reply_code, refused.value.reply_text) == (404, "NOT_FOUND - no queue 'missing' in vhost '/'")
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"x", mandatory=True)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.exchange_declare("x", "moon")
    assert closed.value.reply_code == 503
