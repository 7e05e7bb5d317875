"""Scripts of a client: the same steps against any broker, and what the broker answered, as plain values to compare.

A script gets a :class:`Client` and returns what it saw. The name of the queue is a ``Q`` in the answers, so the same
script may run under many names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.testing.pika_clients import connect

Answer = Any
DEADLINE_S = 60
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a script runs: the node that gets the queue, the node that the client speaks to, and arguments that every
    declaration gets."""

    home: str
    uri: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class Client:
    """The connections of one script, and the queue that the script is about."""

    place: Place
    queue: str
    _connections: ExitStack
    _main: pika.BlockingConnection = field(init=False)

    def __post_init__(self) -> None:
        self._main = self.connect()

    @property
    def dead(self) -> str:
        """The queue for dead letters."""
        return f"{self.queue}-dead"

    def connect(self, uri: str = "") -> pika.BlockingConnection:
        """Another connection, to the client's node if no other is named. Closed with the script."""
        connection = connect(uri or self.place.uri)
        self._connections.callback(_close, connection)
        return connection

    def channel(self) -> BlockingChannel:
        """Another channel of the client's connection."""
        return self._main.channel()

    def close(self) -> None:
        """Close the client's connection and open another."""
        self._main.close()
        self._main = self.connect()

    def declare(self, queue: str = "", *, durable: bool = True, **arguments: Any) -> None:
        """Declare the script's queue (or another) on its home; arguments without ``x-``, with ``_``."""
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        with self.connect(self.place.home) as home:
            home.channel().queue_declare(
                queue or self.queue, durable=durable, arguments={**self.place.arguments, **named}
            )

    def declare_dying(self, **arguments: Any) -> None:
        """Declare the script's queue with a queue for its dead letters."""
        self.declare(self.dead)
        self.declare(dead_letter_exchange="", dead_letter_routing_key=self.dead, **arguments)

    def publish(self, bodies: Sequence[bytes], queue: str = "", **properties: Any) -> list[str]:
        """Publish, each confirmed before the next: what became of each."""
        channel = self.channel()
        channel.confirm_delivery()
        outcomes = [_published(channel, queue or self.queue, body, properties) for body in bodies]
        channel.close()
        return outcomes

    def counts(self, queue: str = "") -> tuple[int, int]:
        """Ready messages and consumers."""
        channel = self.channel()
        told = channel.queue_declare(queue or self.queue, passive=True).method
        channel.close()
        return told.message_count, told.consumer_count

    def ready(self, count: int, queue: str = "") -> int:
        """Wait until so many messages are ready. Returns how many there are."""
        return until(lambda: self.counts(queue)[0] == count, lambda: self.counts(queue)[0])

    def drain(self, queue: str = "") -> list[tuple[Any, ...]]:
        """All ready messages, for good: body, flag, and what else is told."""
        channel, found = self.channel(), []
        while (message := got(channel, queue or self.queue, auto_ack=True)) is not None:
            found.append(message)
        channel.close()
        return found

    def bodies(self, queue: str = "") -> list[tuple[bytes, bool]]:
        """All ready messages, for good: body and flag."""
        return [(message[-1], message[1]) for message in self.drain(queue)]


def _close(connection: pika.BlockingConnection) -> None:
    with suppress(pika.exceptions.AMQPError):
        if connection.is_open:
            connection.close()


def _published(channel: BlockingChannel, queue: str, body: bytes, properties: dict[str, Any]) -> str:
    try:
        channel.basic_publish(
            "", queue, body, pika.BasicProperties(**{"delivery_mode": 2, **properties}), mandatory=True
        )
    except pika.exceptions.NackError:
        return "refused"
    except pika.exceptions.UnroutableError as error:
        (message,) = error.messages
        return f"returned {message.method.reply_code} {message.method.reply_text} {message.method.routing_key}"
    return "taken"


@contextmanager
def client(place: Place, queue: str) -> Iterator[Client]:
    """A client for one script. Its queues are deleted and its connections closed afterwards."""
    with ExitStack() as connections:
        made = Client(place, queue, connections)
        yield made
        for name in (queue, made.dead, f"{queue}-other"):
            with suppress(pika.exceptions.ChannelClosedByBroker):
                made.connect().channel().queue_delete(name)


def answer_of(place: Place, queue: str, script: Callable[[Client], Answer]) -> Answer:
    """What the script saw, or what it was closed with."""
    with client(place, queue) as made:
        try:
            seen = script(made)
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as closed:
            seen = _closed(closed)
    return _anonymous(seen, queue)


def _closed(error: Any) -> tuple[str, int, str]:
    what = "channel" if isinstance(error, pika.exceptions.ChannelClosedByBroker) else "connection"
    return what, error.reply_code, error.reply_text


def _anonymous(value: Any, name: str) -> Any:
    """The value without the name of the queue and without times."""
    if isinstance(value, str):
        return value.replace(name, "Q")
    if isinstance(value, dict):
        return {key: _anonymous(each, name) for key, each in value.items() if key != "time"}
    if isinstance(value, list | tuple):
        return type(value)(_anonymous(each, name) for each in value)
    return value


def end(channel: BlockingChannel) -> None:
    """Close a channel as other clients do. Pika cancels the consumers first, which is another story."""
    channel._impl._consumers.clear()
    channel._impl.close()
    channel._flush_output(lambda: channel.is_closed)
    channel._cleanup()


def refusal(call: Callable[[], object]) -> Answer:
    """What a call is refused with."""
    try:
        call()
    except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as closed:
        return _closed(closed)
    return "ok"


def until(condition: Callable[[], bool], value: Callable[[], Answer] = lambda: None) -> Answer:
    """Wait for a condition, and return a value then. After the deadline the value is returned as it is."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return value()


def got(channel: BlockingChannel, queue: str, **options: Any) -> tuple[Any, ...] | None:
    """A basic.get: what is told about the message, headers, expiration and body; None if there was none."""
    method, properties, body = channel.basic_get(queue, **options)
    if method is None:
        return None
    told = (method.delivery_tag, method.redelivered, method.exchange, method.routing_key, method.message_count)
    return (*told, dict(properties.headers or {}), properties.expiration, body)


class Consumers:
    """Consumers on one channel, and what they got: tag, number of the delivery, flag, body; and who was cancelled."""

    def __init__(self, channel: BlockingChannel, queue: str, prefetch: int = 0) -> None:
        self.channel = channel
        self.got: list[tuple[str, int, bool, bytes]] = []
        self.cancelled: list[str] = []
        self._queue = queue
        if prefetch:
            channel.basic_qos(prefetch_count=prefetch)
        channel.add_on_cancel_callback(lambda frame: self.cancelled.append(frame.method.consumer_tag))

    def add(self, tag: str, **options: Any) -> None:
        """Subscribe."""
        self.channel.basic_consume(self._queue, self.delivered, consumer_tag=tag, **options)

    def wait(self, count: int) -> list[tuple[str, int, bool, bytes]]:
        """What all have got once it is so much, and no more is on its way."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.got) < count and time.monotonic() < deadline:
            self._look()
        self.fence()
        return list(self.got)

    def wait_cancelled(self, count: int) -> list[str]:
        """Who was cancelled by the broker, once it is so many."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.cancelled) < count and time.monotonic() < deadline:
            self._look()
        return sorted(self.cancelled)

    def fence(self) -> None:
        """Two round trips to the queue: what the queue sent before them has come.

        One is not enough in RabbitMQ: the channel hears the answer while earlier deliveries wait in its mailbox.
        """
        for _ in range(2):
            self.channel.queue_declare(self._queue, passive=True)
        self._look()

    def _look(self) -> None:
        self.channel.connection.process_data_events(_POLL_S)

    def delivered(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        """What a consumer got."""
        self.got.append((method.consumer_tag, method.delivery_tag, method.redelivered, body))
