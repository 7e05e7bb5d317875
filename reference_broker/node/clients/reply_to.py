"""Direct reply-to: answers that go to the channel that asked, through a queue that nobody has to declare.

A client consumes from the queue ``amq.rabbitmq.reply-to`` and publishes requests with that name as their ``reply_to``.
Whoever gets a request finds another name there, and publishes the answer to the queue of that name. In RabbitMQ no such
queue exists. Here it is a classic queue that belongs to the client's connection and ends with its consumer: so answers
come from every node, by the way of all messages. Names, refusals and what a client can see are RabbitMQ's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from reference_broker.amqp.addressing import Address, with_reply_to
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.errors import BASIC_PUBLISH, ReplyCode, SoftError
from reference_broker.amqp.events import Consume, QueueDeclare
from reference_broker.message_run import MessageRun
from reference_broker.node.clients.client_ports import ClientPorts, ConnectionPorts
from reference_broker.node.hosting.virtual_hosts import VirtualHost
from reference_broker.queues.port import Queue
from reference_broker.types import REPLY_TO

NAME: Final = REPLY_TO.decode()
T = TypeVar("T")


class Replies:
    """The consumer of direct replies of one channel, if it has one."""

    __slots__ = ("_consumers", "_queue", "_tag")

    def __init__(self, consumers: Container[str]) -> None:
        """``consumers``: the tags that consume."""
        self._consumers = consumers
        self._tag: str | None = None
        self._queue = ""

    @property
    def is_set(self) -> bool:
        """Whether the channel consumes direct replies."""
        return self._tag is not None and self._tag in self._consumers

    def begin(self, tag: str, queue: str) -> None:
        """The consumer of this tag gets the replies, which come to this queue."""
        self._tag, self._queue = tag, queue

    def addressed(self, run: MessageRun, address: Address) -> MessageRun:
        """The messages of one address, which say where their answers go. Raises SoftError 406 for messages that ask for
        direct replies on a channel that does not consume them."""
        if not address.wants_reply:
            return run
        if not self.is_set:
            text = "fast reply consumer does not exist"
            raise SoftError(ReplyCode.PRECONDITION_FAILED, text, BASIC_PUBLISH)
        return with_reply_to(run, self._queue)


class ReplyChannel(Protocol):
    """What direct replies need of their channel."""

    replies: Replies
    node: ClientPorts
    ports: ConnectionPorts
    vhost: VirtualHost

    def consume(self, event: Consume) -> None:
        """Consume from a queue."""

    def declare(self, event: QueueDeclare) -> None:
        """Declare a queue."""

    def until(self, answered: Callable[[T], None]) -> Callable[[T], None]:
        """Make the channel busy until the returned function is called."""

    def refuse(self, code: int, text: str, method: str) -> None:
        """Close the channel."""


def consume(channel: ReplyChannel, event: Consume) -> None:
    """basic.consume, of a queue or of direct replies."""
    if event.queue != NAME:
        channel.consume(event)
    elif not event.no_ack:
        channel.refuse(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge", "basic.consume")
    elif channel.replies.is_set:
        channel.refuse(ReplyCode.PRECONDITION_FAILED, "reply consumer already set", "basic.consume")
    else:
        _begin(channel, event)


def _begin(channel: ReplyChannel, event: Consume) -> None:
    name = f"{NAME}.{secrets.token_urlsafe(16)}"
    wanted = QueueDeclare(
        channel=event.channel, queue="", passive=False, durable=False, exclusive=True, auto_delete=True, nowait=True,
        arguments={},
    )  # fmt: skip

    def declared(queue: Queue) -> None:
        channel.ports.owns(queue)
        channel.replies.begin(event.consumer_tag, name)
        channel.consume(replace(event, queue=name))

    record = channel.node.new_record(wanted, channel.vhost.qualified(name), channel.ports.number)
    channel.node.declare(record, channel.until(declared))


def declare(channel: ReplyChannel, event: QueueDeclare) -> None:
    """queue.declare. Of a queue for direct replies it only tells whether somebody still waits there."""
    if not event.queue.startswith(NAME):
        channel.declare(event)
    elif event.queue != NAME and event.queue not in channel.vhost.queues:
        channel.refuse(ReplyCode.NOT_FOUND, f"no {channel.vhost.queue_called(event.queue)}", "queue.declare")
    elif not event.nowait:
        core: ServerConnection = channel.ports.core
        core.queue_declare_ok(event.channel, event.queue, 0, 1)
