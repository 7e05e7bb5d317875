"""Direct reply-to: answers to the asking channel, through a queue that need not be declared.

A client consumes from the queue ``amq.rabbitmq.reply-to`` and publishes requests with that name as their ``reply_to``.
The receiver of a request finds another name there, and publishes the answer to the queue of that name. In RabbitMQ no
such queue exists. Here it is a classic queue that belongs to the client's connection and ends with its consumer: so
answers come from every node, by the way of all messages. Names, refusals and what a client can see are RabbitMQ's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Final

from reference_broker.amqp.addressing import Address, with_reply_to
from reference_broker.amqp.errors import BASIC_PUBLISH, ReplyCode, SoftError
from reference_broker.amqp.events import Consume, QueueDeclare
from reference_broker.message_run import MessageRun
from reference_broker.node.clients.answers import Answers
from reference_broker.node.clients.channel_context import ChannelContext
from reference_broker.queues.port import Queue
from reference_broker.types import REPLY_TO

NAME: Final = REPLY_TO.decode()


class Replies:
    """The consumer of direct replies of one channel, if it has one."""

    __slots__ = ("_answers", "_consumers", "_context", "_queue", "_tag")

    def __init__(self, context: ChannelContext, answers: Answers, consumers: Container[str]) -> None:
        """``consumers``: the tags that consume."""
        self._context = context
        self._answers = answers
        self._consumers = consumers
        self._tag: str | None = None
        self._queue = ""

    @property
    def is_set(self) -> bool:
        """Whether the channel consumes direct replies."""
        return self._tag is not None and self._tag in self._consumers

    def addressed(self, run: MessageRun, address: Address) -> MessageRun:
        """The messages of one address, which say where their answers go. Raises SoftError 406 for messages that ask for
        direct replies on a channel that does not consume them."""
        if not address.wants_reply:
            return run
        if not self.is_set:
            text = "fast reply consumer does not exist"
            raise SoftError(ReplyCode.PRECONDITION_FAILED, text, BASIC_PUBLISH)
        return with_reply_to(run, self._queue)

    def consume(self, event: Consume, begin: Callable[[Consume], None]) -> None:
        """basic.consume of direct replies; ``begin`` consumes from a queue."""
        if not event.no_ack:
            self._refuse("reply consumer cannot acknowledge")
        elif self.is_set:
            self._refuse("reply consumer already set")
        else:
            self._begin(event, begin)

    def _refuse(self, text: str) -> None:
        self._answers.refuse(ReplyCode.PRECONDITION_FAILED, text, "basic.consume")

    def _begin(self, event: Consume, begin: Callable[[Consume], None]) -> None:
        context = self._context
        name = f"{NAME}.{secrets.token_urlsafe(16)}"
        wanted = QueueDeclare(
            channel=event.channel, queue="", passive=False, durable=False, exclusive=True, auto_delete=True,
            nowait=True, arguments={},
        )  # fmt: skip

        def declared(queue: Queue) -> None:
            context.ports.owns(queue)
            self._tag, self._queue = event.consumer_tag, name
            begin(replace(event, queue=name))

        record = context.node.new_record(wanted, context.vhost.qualified(name), context.ports.number)
        context.node.declare(record, self._answers.until(declared))

    def declare(self, event: QueueDeclare) -> None:
        """queue.declare of a queue for direct replies, which only tells whether a client still waits there."""
        vhost = self._context.vhost
        if event.queue != NAME and event.queue not in vhost.queues:
            self._answers.refuse(ReplyCode.NOT_FOUND, f"no {vhost.queue_called(event.queue)}", "queue.declare")
        elif not event.nowait:
            self._context.core.queue_declare_ok(event.channel, event.queue, 0, 1)
