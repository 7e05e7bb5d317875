"""One channel: its consumers, its delivery tags, its confirms, and what each method does to them.

Theory of operation
-------------------
A channel is *open*, or *closing* after a channel-level exception: then everything the client still sends on it is
dropped until its channel.close-ok. Within an open channel at most one content is being assembled; while it is, only
its own header and body frames may come.

``HANDLERS`` is the table of every method a client may send on a channel, ``NOT_IMPLEMENTED`` those that this broker
refuses with 540 and a sentence. What is in neither belongs to the server and is refused with 503. A handler answers by
itself what needs no broker and otherwise appends an event; the broker's answer comes back through one of the ``*_ok``
methods; until then the channel is *held*, and nothing more of it is read. A question with ``nowait`` gets none: neither
does the broker give it, nor does it come out here.

Invariants: delivery tags grow by one per delivery and are never used twice; a consumer tag is in ``consumers`` from
basic.consume until its cancellation is answered (with
``nowait``: is read); publish sequence numbers are given out in the order of the wire.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from pamqp import base, commands

from reference_broker.amqp.assembly import Assembly
from reference_broker.amqp.confirms import ConfirmTracker
from reference_broker.amqp.errors import HardError, MethodId, ReplyCode, SoftError
from reference_broker.amqp.events import Cancel, Consume, Get, Outcome, QueueDeclare, QueueDelete, QueuePurge, Settled
from reference_broker.amqp.frames import (
    QueueDeclareOk,
    short_string,
)
from reference_broker.amqp.link import Link
from reference_broker.amqp.unacked import Unacked, by_consumer

_PUBLISH: Final[MethodId] = (60, 40)


@dataclass(slots=True)
class Consumer:
    """A subscription. ``template`` belongs to :mod:`~reference_broker.amqp.deliveries`."""

    tag: str
    no_ack: bool
    nowait: bool
    cancelling: bool = False
    """The client asked to cancel and waits for the answer."""
    template: object = None


@dataclass(slots=True)
class Route:
    """What a basic.publish method frame says, kept by its octets so that it is decoded once."""

    channel: Channel
    exchange: str
    routing_key: str
    mandatory: bool
    octets: bytes
    """Exchange and routing key as two short strings."""


class Channel:
    """The state of one channel number while it is in use."""

    __slots__ = (
        "_awaiting",
        "_former",
        "_generated_tags",
        "_link",
        "assembly",
        "closing",
        "confirms",
        "consumers",
        "global_prefetch",
        "held",
        "last_queue",
        "next_delivery_tag",
        "number",
        "prefetch",
        "takes_runs",
        "unacked",
    )

    def __init__(self, number: int, link: Link) -> None:
        self.number = number
        self._link = link
        self.closing = False
        self.held: deque[tuple[bytes, int]] | None = None
        """While the broker owes an answer: the frames that came since (:mod:`~reference_broker.amqp.unread`)."""
        self.consumers: dict[str, Consumer] = {}
        self.unacked = Unacked()
        self.next_delivery_tag = 1
        self.confirms: ConfirmTracker | None = None
        self.prefetch = 0
        self.global_prefetch = 0
        self.last_queue = ""
        self.assembly: Assembly | None = None
        self.takes_runs = True
        """Whether whole messages and acknowledgements may be read many at a time: it is open and not held, and no
        content is being put together."""
        self._awaiting: Counter[str] = Counter()
        self._generated_tags = count(1)
        self._former = count(1)

    # -- methods ---------------------------------------------------------------------------------------------------

    def handle(self, method: base.Frame) -> None:
        """Do what a client's method asks. Raises SoftError and HardError."""
        kind = type(method)
        handler = HANDLERS.get(kind)
        if handler is not None:
            handler(self, method)
        elif kind in NOT_IMPLEMENTED:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, NOT_IMPLEMENTED[kind], _id(method))
        else:
            raise HardError(ReplyCode.COMMAND_INVALID, f"{method.name} is not for a client to send", _id(method))

    def route(self, method: commands.Basic.Publish) -> Route:
        """Where a basic.publish goes. SoftError 404 for an exchange that does not exist, HardError 540 for
        *immediate*."""
        if method.immediate:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, "immediate=true", _PUBLISH)
        if method.exchange:
            text = f"no exchange '{method.exchange}' in vhost '{self._link.vhost}'"
            raise SoftError(ReplyCode.NOT_FOUND, text, _PUBLISH)
        octets = short_string(method.exchange) + short_string(method.routing_key)
        return Route(self, method.exchange, method.routing_key, bool(method.mandatory), octets)

    def _flow(self, method: commands.Channel.Flow) -> None:
        if not method.active:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, "active=false", _id(method))
        self._link.send(self.number, commands.Channel.FlowOk(True))

    def _ignore(self, method: base.Frame) -> None:
        """An answer to something we said: nothing depends on it."""

    def _queue_declare(self, method: commands.Queue.Declare) -> None:
        if method.queue.startswith("amq.") and not method.passive:
            text = f"queue name '{method.queue}' contains reserved prefix 'amq.*'"
            raise SoftError(ReplyCode.ACCESS_REFUSED, text, _id(method))
        queue = self._queue_name(method.queue, method) if method.passive else method.queue
        self.last_queue = queue or self.last_queue
        self._awaiting["declare"] += not method.nowait
        self._link.events.append(
            QueueDeclare(
                channel=self.number,
                queue=queue,
                passive=method.passive,
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
                nowait=method.nowait,
                arguments=dict(method.arguments or {}),
            )
        )

    def _queue_delete(self, method: commands.Queue.Delete) -> None:
        queue = self._queue_name(method.queue, method)
        self._awaiting["delete"] += not method.nowait
        self._link.events.append(
            QueueDelete(self.number, queue, if_unused=method.if_unused, if_empty=method.if_empty, nowait=method.nowait)
        )

    def _queue_purge(self, method: commands.Queue.Purge) -> None:
        queue = self._queue_name(method.queue, method)
        self._awaiting["purge"] += not method.nowait
        self._link.events.append(QueuePurge(self.number, queue, method.nowait))

    def _queue_name(self, name: str, method: base.Frame) -> str:
        """An empty name stands for the queue last declared on this channel."""
        if name or self.last_queue:
            return name or self.last_queue
        raise SoftError(ReplyCode.NOT_FOUND, "no previously declared queue", _id(method))

    def _qos(self, method: commands.Basic.Qos) -> None:
        if method.prefetch_size:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})", _id(method))
        if method.global_:
            self.global_prefetch = method.prefetch_count
        else:
            self.prefetch, self.global_prefetch = method.prefetch_count, 0
        self._link.send(self.number, commands.Basic.QosOk())

    def _consume(self, method: commands.Basic.Consume) -> None:
        queue = self._queue_name(method.queue, method)
        if method.consumer_tag in self.consumers:
            text = f"attempt to reuse consumer tag '{method.consumer_tag}'"
            raise HardError(ReplyCode.NOT_ALLOWED, text, _id(method))
        if self.global_prefetch:
            text = f"queue '{queue}' in vhost '{self._link.vhost}' does not support global qos"
            raise HardError(ReplyCode.NOT_IMPLEMENTED, text, _id(method))
        tag = method.consumer_tag or self._new_tag()
        self.consumers[tag] = Consumer(tag, method.no_ack, method.nowait)
        self._link.events.append(
            Consume(
                channel=self.number,
                queue=queue,
                consumer_tag=tag,
                no_ack=method.no_ack,
                exclusive=method.exclusive,
                nowait=method.nowait,
                prefetch=self.prefetch,
                arguments=dict(method.arguments or {}),
            )
        )

    def _new_tag(self) -> str:
        return next(tag for number in self._generated_tags if (tag := f"amq.ctag-{number}") not in self.consumers)

    def _cancel(self, method: commands.Basic.Cancel) -> None:
        consumer = self.consumers.get(method.consumer_tag or "")
        if consumer is not None and not consumer.cancelling:
            if method.nowait:  # to the client it is gone already
                del self.consumers[consumer.tag]
            consumer.cancelling = True
            self._link.events.append(Cancel(self.number, consumer.tag, method.nowait))
        elif not method.nowait:  # cancelling what is not there succeeds, as in RabbitMQ
            self._link.send(self.number, commands.Basic.CancelOk(method.consumer_tag))

    def _get(self, method: commands.Basic.Get) -> None:
        queue = self._queue_name(method.queue, method)
        self._link.events.append(Get(self.number, queue, get_tag(queue), method.no_ack))

    def _recover(self, method: commands.Basic.Recover | commands.Basic.RecoverAsync) -> None:
        """Everything unacknowledged goes back to its queue, that of cancelled consumers too."""
        if not method.requeue:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, "requeue=false", _id(method))
        for tag, ranges in by_consumer(self.unacked.take_all()).items():
            self._link.events.append(Settled(self.number, tag, Outcome.RETURN, ranges))
        if isinstance(method, commands.Basic.Recover):
            self._link.send(self.number, commands.Basic.RecoverOk())

    def _confirm_select(self, method: commands.Confirm.Select) -> None:
        if self.confirms is None:
            self.confirms = ConfirmTracker()
        if not method.nowait:
            self._link.send(self.number, commands.Confirm.SelectOk())

    def begin_content(self, route: Route) -> None:
        """basic.publish came; its content header is due."""
        self.assembly = Assembly(route, self.number, self._link)
        self.takes_runs = False

    def end_content(self) -> None:
        """The content is complete."""
        self.assembly = None
        self.takes_runs = True

    # -- the broker's answers --------------------------------------------------------------------------------------

    def _answer(self, what: str, method: base.Frame) -> None:
        """Answer a question of its kind. Without one there is nothing to say: the client wanted no answer, or a channel
        that is gone asked on this number."""
        if self._awaiting[what] > 0:
            self._awaiting[what] -= 1
            self._link.send(self.number, method)

    def queue_declare_ok(self, queue: str, messages: int, consumers: int) -> None:
        """Answer the oldest queue.declare."""
        self.last_queue = queue
        self._answer("declare", QueueDeclareOk(queue, messages, consumers))

    def queue_delete_ok(self, messages: int) -> None:
        """Answer the oldest queue.delete."""
        self._answer("delete", commands.Queue.DeleteOk(messages))

    def queue_purge_ok(self, messages: int) -> None:
        """Answer the oldest queue.purge."""
        self._answer("purge", commands.Queue.PurgeOk(messages))

    def consume_ok(self, tag: str) -> None:
        """The subscription stands."""
        consumer = self.consumers.get(tag)
        if consumer is not None and not consumer.nowait:
            self._link.send(self.number, commands.Basic.ConsumeOk(tag))

    def cancel_ok(self, tag: str) -> None:
        """The subscription is over, as the client asked. What it holds unacknowledged stays so."""
        consumer = self.consumers.get(tag)
        if consumer is not None and consumer.cancelling:
            del self.consumers[tag]
            self._link.send(self.number, commands.Basic.CancelOk(tag))

    def set_apart(self, tag: str) -> str:
        """Have what was delivered under a tag be settled under a name of its own, which it returns: longer than any tag
        can be."""
        name = f"former {next(self._former)} ".ljust(256) + tag
        self.unacked.rename(tag, name)
        return name

    def cancelled_by_broker(self, tag: str) -> None:
        """The subscription is over, for example because its queue was deleted."""
        consumer = self.consumers.get(tag)
        if consumer is None:
            return
        del self.consumers[tag]
        if consumer.cancelling:
            self._link.send(self.number, commands.Basic.CancelOk(tag))
        elif "consumer_cancel_notify" in self._link.capabilities:
            self._link.send(self.number, commands.Basic.Cancel(tag, True))


def get_tag(queue: str) -> str:
    """What stands for a consumer tag where a message was fetched with basic.get: longer than any tag can be."""
    return "get ".ljust(256) + queue


def _id(method: base.Frame) -> MethodId:
    return method.index >> 16, method.index & 0xFFFF


Handler = Callable[[Channel, Any], None]  # each is called with the one method it is listed for

HANDLERS: Final[dict[type[base.Frame], Handler]] = {
    commands.Channel.Flow: Channel._flow,
    commands.Channel.FlowOk: Channel._ignore,
    commands.Queue.Declare: Channel._queue_declare,
    commands.Queue.Delete: Channel._queue_delete,
    commands.Queue.Purge: Channel._queue_purge,
    commands.Basic.Qos: Channel._qos,
    commands.Basic.Consume: Channel._consume,
    commands.Basic.Cancel: Channel._cancel,
    commands.Basic.CancelOk: Channel._ignore,
    commands.Basic.Get: Channel._get,
    commands.Basic.Recover: Channel._recover,
    commands.Basic.RecoverAsync: Channel._recover,
    commands.Confirm.Select: Channel._confirm_select,
}
"""Methods a client may send on an open channel. channel.open and close, basic.publish and the three ways to settle
are the connection's and the fast path's."""

_ONE_EXCHANGE: Final = "only the default exchange exists: exchanges and bindings are not implemented"
_NO_TX: Final = "transactions are not implemented: use publisher confirms (confirm.select)"
NOT_IMPLEMENTED: Final[dict[type[base.Frame], str]] = {
    commands.Exchange.Declare: _ONE_EXCHANGE,
    commands.Exchange.Delete: _ONE_EXCHANGE,
    commands.Exchange.Bind: _ONE_EXCHANGE,
    commands.Exchange.Unbind: _ONE_EXCHANGE,
    commands.Queue.Bind: _ONE_EXCHANGE,
    commands.Queue.Unbind: _ONE_EXCHANGE,
    commands.Tx.Select: _NO_TX,
    commands.Tx.Commit: _NO_TX,
    commands.Tx.Rollback: _NO_TX,
}
