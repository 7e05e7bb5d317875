"""What the broker may say on a connection: deliveries, confirms, returns, answers, notices.

Everything here is total: what is said to a channel that is gone, or closing, falls silent, because the broker learns
of the end of a channel later than the channel itself. The one answer that matters is that of :meth:`Outbound.deliver`,
for messages that were not delivered must go back.

Invariants: octets are appended in the order of the calls, but for confirms, which wait for :meth:`flush_confirms`; so a
basic.return comes before the confirm of its message if ``returned`` was called before the flush.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pamqp import commands

from reference_broker.amqp import deliveries
from reference_broker.amqp.channel import Channel
from reference_broker.amqp.link import Link
from reference_broker.message_run import MessageRun

Piece = tuple[MessageRun, int, int, int]
"""Run, start, count, step: messages ``start, start + step, ...`` of a run."""


class Outbound(ABC):
    """The broker's half of a connection. :class:`~reference_broker.amqp.connection.ServerConnection` is the other."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._channels: dict[int, Channel] = {}
        self._confirming: dict[int, Channel] = {}

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether notices may be sent."""

    # -- deliveries and confirms ------------------------------------------------------------------------------------

    def deliver(
        self, channel: int, consumer_tag: str, first_message_id: int, pieces: Sequence[Piece], delivery_count: int
    ) -> bool:
        """Deliver messages with the ids ``first_message_id``, +1, ... to a consumer. With a ``delivery_count`` above 0
        they are redelivered, and say so in a header.

        False if there is no such consumer any more: then nothing was delivered, and the messages belong back in
        their queue.
        """
        found = self._channels.get(channel)
        consumer = found.consumers.get(consumer_tag) if found is not None else None
        if found is None or consumer is None:
            return False
        first_tag = tag = found.next_delivery_tag
        for piece in pieces:
            self._link.output.append(
                deliveries.deliver(consumer, channel, tag, piece, delivery_count, self._link.frame_max)
            )
            tag += piece[2]
        found.next_delivery_tag = tag
        if not consumer.no_ack and tag > first_tag:
            found.unacked.add(first_tag, tag - first_tag, consumer_tag, first_message_id)
        return True

    def get_ok(
        self,
        channel: int,
        consumer_tag: str,
        message_id: int,
        piece: Piece,
        delivery_count: int,
        left: int,
        no_ack: bool,
    ) -> bool:
        """Answer a Get with the one message of ``piece``; ``left`` messages are ready behind it. False if the channel
        is gone, then the message belongs back in its queue."""
        found = self._channel(channel)
        if found is None:
            return False
        tag = found.next_delivery_tag
        found.next_delivery_tag += 1
        frames = deliveries.got(channel, tag, piece, delivery_count, left, self._link.frame_max)
        self._link.output.append(frames)
        if not no_ack:
            found.unacked.add(tag, 1, consumer_tag, message_id)
        return True

    def get_empty(self, channel: int) -> None:
        """Answer a Get: nothing is ready."""
        if self._channel(channel) is not None:
            self._link.send(channel, commands.Basic.GetEmpty())

    def confirm(self, channel: int, first_seq: int, last_seq: int) -> None:
        """These publishes are safe. The client hears of it at the next :meth:`flush_confirms`."""
        found = self._channels.get(channel)
        if found is not None and found.confirms is not None and not found.closing:
            found.confirms.confirm(first_seq, last_seq)
            self._confirming[channel] = found

    def reject(self, channel: int, first_seq: int, last_seq: int) -> None:
        """These publishes were refused by a queue: basic.nack at the next :meth:`flush_confirms`."""
        found = self._channels.get(channel)
        if found is not None and found.confirms is not None and not found.closing:
            found.confirms.reject(first_seq, last_seq)
            self._confirming[channel] = found

    def flush_confirms(self) -> None:
        """Tell the client all that was confirmed and rejected, in as few frames as can say it. Once per turn."""
        if self._confirming:
            self._flush_confirms()

    def _flush_confirms(self) -> None:
        for channel in self._confirming.values():
            self._flush_channel_confirms(channel)
        self._confirming.clear()

    def _flush_channel_confirms(self, channel: Channel) -> None:
        if channel.confirms is not None and channel.confirms.pending:
            self._link.output.append(channel.confirms.flush(channel.number))

    def returned(self, channel: int, code: int, text: str, exchange: str, routing_key: str, run: MessageRun) -> None:
        """Send a mandatory run back: basic.return with each content. Call it before the run's ``confirm``."""
        if self._channel(channel) is not None:
            frames = deliveries.returned(channel, code, text, exchange, routing_key, run, self._link.frame_max)
            self._link.output.append(frames)

    # -- answers and notices ----------------------------------------------------------------------------------------

    def queue_declare_ok(self, channel: int, queue: str, messages: int, consumers: int) -> None:
        """Answer a QueueDeclare, unless it came with nowait."""
        if (found := self._channel(channel)) is not None:
            found.queue_declare_ok(queue, messages, consumers)

    def queue_delete_ok(self, channel: int, messages: int) -> None:
        """Answer a QueueDelete, unless it came with nowait."""
        if (found := self._channel(channel)) is not None:
            found.queue_delete_ok(messages)

    def queue_purge_ok(self, channel: int, messages: int) -> None:
        """Answer a QueuePurge, unless it came with nowait."""
        if (found := self._channel(channel)) is not None:
            found.queue_purge_ok(messages)

    def consume_ok(self, channel: int, consumer_tag: str) -> None:
        """Answer a Consume, before its first delivery."""
        if (found := self._channel(channel)) is not None:
            found.consume_ok(consumer_tag)

    def cancel_ok(self, channel: int, consumer_tag: str) -> None:
        """Answer a Cancel: no delivery to this consumer comes after it."""
        if (found := self._channel(channel)) is not None:
            found.cancel_ok(consumer_tag)

    def set_apart(self, channel: int, consumer_tag: str) -> str:
        """The tag, or the gets of a queue, are for another queue from here on. Returns the name under which everything
        is settled that was delivered before."""
        found = self._channel(channel)
        return found.set_apart(consumer_tag) if found is not None else ""

    def cancelled_by_broker(self, channel: int, consumer_tag: str) -> None:
        """End a subscription the client did not end: basic.cancel, if the client understands it."""
        if (found := self._channel(channel)) is not None:
            found.cancelled_by_broker(consumer_tag)

    def blocked(self, reason: str) -> None:
        """Tell the client that its publishes will not be read for now, if it understands that."""
        if self.is_open and "connection.blocked" in self._link.capabilities:
            self._link.send(0, commands.Connection.Blocked(reason))

    def unblocked(self) -> None:
        """Tell the client that its publishes are read again."""
        if self.is_open and "connection.blocked" in self._link.capabilities:
            self._link.send(0, commands.Connection.Unblocked())

    def _channel(self, number: int) -> Channel | None:
        channel = self._channels.get(number)
        return None if channel is None or channel.closing else channel
