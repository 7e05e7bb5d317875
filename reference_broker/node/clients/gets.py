"""basic.get: the messages that a channel fetches one by one."""

from __future__ import annotations

from collections.abc import Callable

from reference_broker.amqp.events import Get
from reference_broker.message_run import RunSlice
from reference_broker.node.clients.channel_context import ChannelContext
from reference_broker.queues.port import Queue
from reference_broker.queues.session import ConsumeSession
from reference_broker.records import record
from reference_broker.types import GET_TAG, ConsumerId, GroupId, Outcome


@record
class FetchedMessage:
    """The message that a queue delivered to a basic.get, until the get is answered."""

    message_id: int
    message: RunSlice
    delivery_count: int


class Gets:
    """The open get of a channel. ``consumers`` are the channel's consumers, by tag."""

    __slots__ = ("_consumers", "_context", "_fetched", "_open")

    def __init__(self, context: ChannelContext, consumers: dict[str, ConsumeSession]) -> None:
        self._context = context
        self._consumers = consumers
        self._open: ConsumeSession | None = None
        self._fetched: FetchedMessage | None = None

    def begin(self, queue: Queue, event: Get, set_apart: Callable[[str], None]) -> ConsumeSession:
        """The consumer that gets one message of the queue. ``set_apart`` frees a tag."""
        group, getter = queue.record.group, ConsumerId(self._context.id, GET_TAG)
        # A fetched message is settled like a consumer's; in the core, the tag of such messages names the queue.
        consumer = self._consumers.setdefault(event.consumer_tag, ConsumeSession(getter, group, event.no_ack))
        if consumer.group != group:  # the queue was deleted and declared again meanwhile
            set_apart(event.consumer_tag)
            consumer = self._consumers[event.consumer_tag] = ConsumeSession(getter, group, event.no_ack)
        self._open = consumer
        return consumer

    def deliver(self, group: GroupId, first: int, slices: list[RunSlice], delivery_count: int) -> None:
        """Keep the message of the open get. If no get waits and the client never had the message, return it: after this
        node has skipped entries, the queue repeats such deliveries."""
        if self._open is not None and self._open.group == group:
            if first >= self._open.next_message_id:
                self._fetched = FetchedMessage(first, slices[0], delivery_count)
            return
        last = first + sum(each[2] for each in slices) - 1
        for consumer in self._consumers.values():
            if consumer.is_get and consumer.group == group and consumer.next_message_id <= first:
                self._context.used[group].settle(consumer, Outcome.RETURN, ((first, last),))

    def answer(self, consumer: ConsumeSession, event: Get, *, left: int, counted: bool) -> None:
        """Answer the client. The message, if there is one, came just before the queue's reply. ``left``: messages left
        in the queue. ``counted``: the answer gives the number of the message's returns, also 0."""
        core = self._context.core
        fetched, self._fetched, self._open = self._fetched, None, None
        if fetched is None:
            core.get_empty(event.channel)
            return
        number = fetched.message_id
        consumer.next_message_id = number + 1
        what = number, fetched.message, fetched.delivery_count, left, event.no_ack
        if not core.get_ok(event.channel, event.consumer_tag, *what, counted=counted) and not event.no_ack:
            self._context.used[consumer.group].settle(consumer, Outcome.RETURN, ((number, number),))
