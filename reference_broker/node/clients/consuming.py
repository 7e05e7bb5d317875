"""The consumers of a channel: the deliveries of queues, and the client's answers to them."""

from __future__ import annotations

from typing import Protocol

from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import Cancel, Consume, Get, Settled
from reference_broker.message_run import RunSlice, without_first
from reference_broker.node.clients import queue_requests
from reference_broker.node.clients.answers import Answers
from reference_broker.node.clients.channel_context import ChannelContext
from reference_broker.node.clients.gets import Gets
from reference_broker.node.clients.queue_access import QueueAccess
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.declaration import DeclarationError
from reference_broker.queues.session import NOTHING_MISSED, NOTHING_YET, ConsumeSession
from reference_broker.types import GET_TAG, IN_EXCLUSIVE_USE, ConsumerId, GroupId, IdRange, Outcome


class Consuming:
    """The consumers of one channel, by tag."""

    __slots__ = (
        "_access", "_core", "_credit_owed", "_gets", "_number", "_ports", "_used", "answers", "consumers", "context",
    )  # fmt: skip

    def __init__(self, context: ChannelContext, access: QueueAccess, consumers: dict[str, ConsumeSession]) -> None:
        self.context = context
        self.answers: Answers = access.answers
        self.consumers = consumers
        self._access = access
        self._core, self._number, self._ports, self._used = context.core, context.number, context.ports, context.used
        self._gets = Gets(context, consumers)
        self._credit_owed: list[tuple[ConsumeSession, IdRange]] = []

    # Results of queues

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Deliver messages of a queue to a consumer. Drops messages that the consumer had before, and messages of a
        queue that its tag no longer subscribes to: the tag's former consumer holds these."""
        if consumer.tag == GET_TAG:
            self._gets.deliver(group, first_message_id, slices, delivery_count)
            return
        known = self.consumers.get(consumer.tag)
        if known is None or known.group != group:
            return
        count = sum(each[2] for each in slices)
        first, last = first_message_id, first_message_id + count - 1
        if last < known.next_message_id:
            return
        if first < known.next_message_id:
            slices = without_first(slices, known.next_message_id - first)
            first = known.next_message_id
        known.next_message_id = last + 1
        known.held += last - first + 1
        if not self._core.deliver(self._number, consumer.tag, first, slices, delivery_count):
            self.settle(known, Outcome.RETURN, ((first, last),))
        elif known.no_ack:
            if self._ports.is_writable:
                self.settle(known, Outcome.SETTLE, ((first, last),))
            else:
                self._credit_owed.append((known, (first, last)))

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        """Whether the client reads. If not, the consumer misses the messages up to id ``last`` for now
        (:mod:`~reference_broker.node.clients.behind`)."""
        known = self.consumers.get(consumer.tag)
        if known is None or known.group != group:
            return True
        if known.missed_up_to == NOTHING_MISSED and not self._ports.is_unread_full:
            return True
        self.missed(group, consumer, last)
        return False

    def missed(self, group: GroupId, consumer: ConsumerId, last: int) -> None:
        """The consumer gets no messages up to id ``last`` for now, nor those behind them."""
        known = self.consumers.get(consumer.tag)
        if known is not None and known.group == group:
            known.missed_up_to = max(known.missed_up_to, last)
            self._ports.fell_behind(self._number)

    def cancel_all(self, group: GroupId) -> None:
        """A queue is gone for its consumers: cancel them."""
        for tag, consumer in list(self.consumers.items()):
            if consumer.group == group:
                del self.consumers[tag]
                self._core.set_apart(self._number, tag)  # its messages are not this channel's any more
                if not consumer.is_cancelled:  # else the client knows its end, and may reuse the tag
                    self._core.cancelled_by_broker(self._number, tag)

    # What the client says of deliveries

    def settle(self, consumer: ConsumeSession, outcome: Outcome, ranges: tuple[IdRange, ...], read_ns: int = 0) -> None:
        """Tell the queue the outcome of messages that the consumer held."""
        self._used[consumer.group].settle(consumer, outcome, ranges, read_ns)
        if consumer.is_cancelled:
            self._forget_if_done(consumer)

    def pay_credit(self) -> None:
        """The client reads again: give consumers without acknowledgement their credit back."""
        owed, self._credit_owed = self._credit_owed, []
        for consumer, ids in owed:
            if consumer.group in self._used:
                self.settle(consumer, Outcome.SETTLE, (ids,))

    def uses(self, group: GroupId) -> bool:
        """Whether the channel consumes from a queue."""
        return any(consumer.group == group for consumer in self.consumers.values())

    # Requests

    def consume(self, event: Consume) -> None:
        """basic.consume."""
        queue = self._access.queue_or_error(event, "basic.consume")
        if queue is None:
            return
        try:
            priority = declaration.consumer_priority(event, queue)
        except DeclarationError as refused:
            self.answers.refuse(refused.code, refused.text, "basic.consume")
            return
        known = self._session(event, queue.record.group)
        known.credit, known.priority = event.prefetch or self.context.node.limits.credit_default, priority

        def consuming(next_message_id: int) -> None:
            if next_message_id == IN_EXCLUSIVE_USE:
                text = f"{self.context.vhost.queue_called(event.queue)} in exclusive use"
                self.answers.refuse(ReplyCode.ACCESS_REFUSED, text, "basic.consume")
                return
            if known.next_message_id == NOTHING_YET or next_message_id > known.next_message_id:
                known.next_message_id = next_message_id  # else a late reply, which names a message that is held already
            if queue.record.auto_delete:
                self._core.close_late(self._number)
            if not event.nowait:
                self._core.consume_ok(self._number, event.consumer_tag)

        def gone() -> None:
            self._access.refuse_missing(event.queue, "basic.consume")

        queue.subscribe(known, priority, self.answers.request(queue, consuming, gone, event))

    def _session(self, event: Consume, group: GroupId) -> ConsumeSession:
        """The consumer of a tag: a new one, or the existing one with other settings."""
        known = self.consumers.get(event.consumer_tag)
        if known is not None and known.group != group:
            self.set_apart(event.consumer_tag)
            known = None
        if known is None:
            identity = ConsumerId(self.context.id, event.consumer_tag)
            known = self.consumers[event.consumer_tag] = ConsumeSession(identity, group, event.no_ack)
            known.next_message_id = NOTHING_YET
        known.no_ack, known.is_cancelled, known.is_exclusive = event.no_ack, False, event.exclusive
        known.cancels_on_failover = bool(event.arguments.get("x-cancel-on-ha-failover"))
        return known

    def cancel(self, event: Cancel) -> None:
        """basic.cancel."""
        consumer = self.consumers.get(event.consumer_tag)
        if consumer is None:
            self._core.cancel_ok(self._number, event.consumer_tag)
            return
        queue = self._used[consumer.group]

        def gone() -> None:
            self.give_back(consumer)
            consumer.is_cancelled = True
            self._forget_if_done(consumer)
            if not event.nowait:
                self._core.cancel_ok(self._number, event.consumer_tag)

        def cancelled(_value: int) -> None:
            if queue.record.auto_delete:  # and maybe deleted: then the client may use the name at once
                queue_requests.count(self.answers, queue, lambda _counts: gone())
            else:
                gone()

        queue.unsubscribe(consumer, self.answers.ask(queue, cancelled, gone, gone))

    def give_back(self, consumer: ConsumeSession) -> None:
        """Return the missed messages of a consumer that is cancelled: its client expects nothing more."""
        first, last = consumer.next_message_id, consumer.missed_up_to
        if last == NOTHING_MISSED:
            return
        consumer.missed_up_to = NOTHING_MISSED
        if first <= last:
            consumer.next_message_id = last + 1
            consumer.held += last - first + 1
            self.settle(consumer, Outcome.RETURN, ((first, last),))

    def _forget_if_done(self, consumer: ConsumeSession) -> None:
        """Forget a cancelled consumer when it holds no messages."""
        if not consumer.held:
            for tag in [tag for tag, each in self.consumers.items() if each is consumer]:
                del self.consumers[tag]

    def set_apart(self, tag: str) -> None:
        """Free a tag for another queue. The tag's former consumer gets no more messages, and settles those it holds."""
        former = self.consumers.pop(tag)
        former.is_cancelled = True
        name = self._core.set_apart(self._number, tag)
        if former.held:
            self.consumers[name] = former

    def get(self, event: Get) -> None:
        """basic.get."""
        queue = self._access.queue_or_error(event, "basic.get")
        if queue is None:
            return
        try:
            declaration.check_get(queue)
        except DeclarationError as refused:
            self.answers.refuse(refused.code, refused.text, "basic.get")
            return
        consumer = self._gets.begin(queue, event, self.set_apart)

        def answered(value: int) -> None:
            self._gets.answer(consumer, event, left=max(value - 1, 0), counted=queue.kind.counts_first_get)

        def gone() -> None:
            self._access.refuse_missing(event.queue, "basic.get")

        queue.get(consumer, event.no_ack, self.answers.request(queue, answered, gone, event))


class ConsumingChannel(Protocol):
    """A channel as an acknowledgement uses it."""

    consuming: Consuming


def settled(channel: ConsumingChannel, event: Settled) -> None:
    """basic.ack, basic.nack, basic.reject and basic.recover."""
    consuming = channel.consuming
    if (consumer := consuming.consumers.get(event.consumer_tag)) is not None:
        consuming.settle(consumer, event.outcome, event.ranges, consuming.context.ports.read_ns)
