"""basic.get: the messages that a channel fetches one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import Get
from reference_broker.message_run import RunSlice
from reference_broker.queues.port import Queue
from reference_broker.queues.session import ConsumeSession
from reference_broker.records import record
from reference_broker.types import GET_TAG, ChannelId, ConsumerId, GroupId, Outcome


@record
class FetchedMessage:
    """The message that a queue delivered to a basic.get, until the get is answered."""

    message_id: int
    message: RunSlice
    delivery_count: int


class FetchingChannel(Protocol):
    """What a get needs of its channel."""

    id: ChannelId
    consumers: dict[str, ConsumeSession]

    def set_apart(self, tag: str) -> None:
        """Free a tag for another queue."""

    def queue_in_use(self, group: GroupId) -> Queue:
        """A queue that the channel has used."""

    def request(self, queue: Queue, answered: Callable[[int], None], event: Get, by: str) -> int:
        """Make the channel busy until the queue has answered."""


class Gets:
    """The open get of a channel."""

    __slots__ = ("_fetched", "_open")

    def __init__(self) -> None:
        self._open: ConsumeSession | None = None
        self._fetched: FetchedMessage | None = None

    def ask(self, channel: FetchingChannel, core: ServerConnection, queue: Queue, event: Get) -> None:
        """Ask the queue for one message, and answer the client then."""
        group, getter = queue.record.group, ConsumerId(channel.id, GET_TAG)
        # A fetched message is settled like a consumer's; in the core, the tag of such messages names the queue.
        consumer = channel.consumers.setdefault(event.consumer_tag, ConsumeSession(getter, group, event.no_ack))
        if consumer.group != group:  # the queue was deleted and declared again meanwhile
            channel.set_apart(event.consumer_tag)
            consumer = channel.consumers[event.consumer_tag] = ConsumeSession(getter, group, event.no_ack)
        self._open = consumer

        def answered(value: int) -> None:
            counted = queue.kind.counts_first_get
            self._answer(channel, core, consumer, event, left=max(value - 1, 0), counted=counted)

        queue.get(consumer, event.no_ack, channel.request(queue, answered, event, "basic.get"))

    def deliver(
        self, channel: FetchingChannel, group: GroupId, first: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Keep the message of the open get. If no get waits and the client never had the message, return it: after this
        node has skipped entries, the queue repeats such deliveries."""
        if self._open is not None and self._open.group == group:
            if first >= self._open.next_message_id:
                self._fetched = FetchedMessage(first, slices[0], delivery_count)
            return
        last = first + sum(each[2] for each in slices) - 1
        for consumer in channel.consumers.values():
            if consumer.is_get and consumer.group == group and consumer.next_message_id <= first:
                channel.queue_in_use(group).settle(consumer, Outcome.RETURN, ((first, last),))

    def _answer(
        self,
        channel: FetchingChannel,
        core: ServerConnection,
        consumer: ConsumeSession,
        event: Get,
        *,
        left: int,
        counted: bool,
    ) -> None:
        """Answer the client. The message, if there is one, came just before the queue's reply. ``counted``: it says
        how often it came back, also if it never did."""
        fetched, self._fetched, self._open = self._fetched, None, None
        if fetched is None:
            core.get_empty(event.channel)
            return
        number = fetched.message_id
        consumer.next_message_id = number + 1
        what = number, fetched.message, fetched.delivery_count, left, event.no_ack
        if not core.get_ok(event.channel, event.consumer_tag, *what, counted=counted) and not event.no_ack:
            channel.queue_in_use(consumer.group).settle(consumer, Outcome.RETURN, ((number, number),))
