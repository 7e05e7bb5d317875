"""One channel: its subscriptions, its delivery tags, its confirms, and what each method does to them.

Theory of operation
-------------------
A channel is *open*, or *closing* after a channel-level exception. Everything that the client still sends on a closing
channel is dropped until channel.close-ok comes. An open channel puts together at most one content at a time; until that
content is complete, only its header frame and its body frames may come.

``HANDLERS`` is the table of the methods that a client may send on a channel; those of exchanges and bindings are in
:mod:`~reference_broker.amqp.exchange_methods`. All other methods belong to the server and are refused with
503. A handler answers a method by itself if the answer needs no broker; otherwise the handler appends an event, and the
broker answers through one of the ``*_ok`` methods. Until then the channel is *held*: nothing more of the channel is
read. A method with ``nowait`` gets no answer, neither from the broker nor from here.

Invariants: delivery tags grow by one per delivery and are never used twice; a consumer tag is in ``subscriptions`` from
basic.consume until its cancellation is answered (with ``nowait``: is read); publish sequence numbers are given out in
the order of the wire.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from pamqp import base, commands

from reference_broker.amqp import exchange_methods
from reference_broker.amqp.confirms import ConfirmTracker
from reference_broker.amqp.content import PartialContent
from reference_broker.amqp.errors import BASIC_PUBLISH, HardError, MethodId, ReplyCode, SoftError
from reference_broker.amqp.events import (
    Cancel,
    Consume,
    Get,
    GlobalQos,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    Recovered,
    TxCommit,
    TxRollback,
    TxSelect,
)
from reference_broker.amqp.frames import QueueDeclareOk, short_string
from reference_broker.amqp.state import ConnectionState
from reference_broker.amqp.transactions import CommitTracker, TransactionalUnacked
from reference_broker.amqp.unacked import Unacked, by_consumer
from reference_broker.types import Outcome


@dataclass(slots=True)
class Subscription:
    """A consumer of the client's on this channel."""

    tag: str
    no_ack: bool
    nowait: bool
    cancelling: bool = False
    """The client has sent basic.cancel and waits for the answer."""
    template: object = None
    """The data that :mod:`~reference_broker.amqp.deliveries` keeps from one run of deliveries to the next."""


@dataclass(slots=True)
class Route:
    """The target of a basic.publish method frame. Routes are kept by the octets of the frame, so each is decoded
    once."""

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
        "_state",
        "closes_late",
        "closing",
        "confirms",
        "content",
        "content_route",
        "held",
        "last_queue",
        "next_delivery_tag",
        "number",
        "prefetch",
        "subscriptions",
        "takes_runs",
        "unacked",
    )

    def __init__(self, number: int, state: ConnectionState) -> None:
        self.number = number
        self._state = state
        self.closing = False
        self.closes_late = False
        """The broker says when the client's channel.close may be answered."""
        self.held: deque[tuple[bytes, int]] | None = None
        """While the broker owes an answer: the frames that came since then (:mod:`~reference_broker.amqp.unread`)."""
        self.subscriptions: dict[str, Subscription] = {}
        self.unacked = Unacked()
        self.next_delivery_tag = 1
        self.confirms: ConfirmTracker | None = None
        self.prefetch = 0
        self.last_queue = ""
        self.content: PartialContent | None = None
        """The content that is being put together, and in ``content_route`` its route."""
        self.content_route: Route | None = None
        self.takes_runs = True
        """Whether whole messages and acknowledgements may be read many at a time: the channel is open and not held, and
        no content is being put together."""
        self._awaiting: Counter[str] = Counter()
        self._former = count(1)

    # -- methods ---------------------------------------------------------------------------------------------------

    def handle(self, method: base.Frame, payload: bytes) -> None:
        """Carry out a client's method; ``payload`` is its frame. Raises SoftError and HardError."""
        kind = type(method)
        handler = HANDLERS.get(kind)
        if handler is not None:
            handler(self, method)
        elif kind in exchange_methods.METHODS:
            self._change_routes(method, payload)
        else:
            raise HardError(ReplyCode.COMMAND_INVALID, f"{method.name} is not for a client to send", _id(method))

    def route(self, method: commands.Basic.Publish) -> Route:
        """The route of a basic.publish. Raises HardError 540 for the flag *immediate*."""
        if method.immediate:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, "immediate=true", BASIC_PUBLISH)
        octets = short_string(method.exchange) + short_string(method.routing_key)
        return Route(self, method.exchange, method.routing_key, bool(method.mandatory), octets)

    def _flow(self, method: commands.Channel.Flow) -> None:
        if not method.active:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, "active=false", _id(method))
        self._state.send(self.number, commands.Channel.FlowOk(True))

    def _ignore(self, method: base.Frame) -> None:
        """Do nothing: the client answers a method of the broker's, and nothing depends on the answer."""

    def _queue_declare(self, method: commands.Queue.Declare) -> None:
        queue = exchange_methods.one_line(method.queue)
        if queue.startswith("amq.") and not method.passive:
            text = f"queue name '{queue}' contains reserved prefix 'amq.*'"
            raise SoftError(ReplyCode.ACCESS_REFUSED, text, _id(method))
        queue = self._queue_name(queue, method) if method.passive else queue
        self.last_queue = queue or self.last_queue
        self._awaiting["declare"] += not method.nowait
        self._state.events.append(
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
        queue = self._queue_name(exchange_methods.one_line(method.queue), method)
        self._awaiting["delete"] += not method.nowait
        self._state.events.append(
            QueueDelete(self.number, queue, if_unused=method.if_unused, if_empty=method.if_empty, nowait=method.nowait)
        )

    def _queue_purge(self, method: commands.Queue.Purge) -> None:
        queue = self._queue_name(method.queue, method)
        self._awaiting["purge"] += not method.nowait
        self._state.events.append(QueuePurge(self.number, queue, method.nowait))

    def _change_routes(self, method: base.Frame, payload: bytes) -> None:
        event = exchange_methods.event_of(method, payload, self.number, self.last_queue)
        self._awaiting[event.method] += not event.nowait
        self._state.events.append(event)

    def _queue_name(self, name: str, method: base.Frame) -> str:
        """The queue that a method means: an empty name stands for the queue last declared on this channel."""
        if name or self.last_queue:
            return name or self.last_queue
        raise SoftError(ReplyCode.NOT_FOUND, "no previously declared queue", _id(method))

    def _qos(self, method: commands.Basic.Qos) -> None:
        if method.prefetch_size:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})", _id(method))
        if method.global_:
            self._state.events.append(GlobalQos(self.number, method.prefetch_count))
        else:
            self.prefetch = method.prefetch_count
        self._state.send(self.number, commands.Basic.QosOk())

    def _consume(self, method: commands.Basic.Consume) -> None:
        queue = self._queue_name(method.queue, method)
        if method.consumer_tag in self.subscriptions:
            text = f"attempt to reuse consumer tag '{method.consumer_tag}'"
            raise HardError(ReplyCode.NOT_ALLOWED, text, _id(method))
        tag = method.consumer_tag or self._state.new_tag()
        self.subscriptions[tag] = Subscription(tag, method.no_ack, method.nowait)
        self._state.events.append(
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

    def _cancel(self, method: commands.Basic.Cancel) -> None:
        subscription = self.subscriptions.get(method.consumer_tag or "")
        if subscription is not None and not subscription.cancelling:
            if method.nowait:  # for the client the subscription is over already
                del self.subscriptions[subscription.tag]
            subscription.cancelling = True
            self._state.events.append(Cancel(self.number, subscription.tag, method.nowait))
        elif not method.nowait:  # to cancel an unknown consumer tag succeeds, as in RabbitMQ
            self._state.send(self.number, commands.Basic.CancelOk(method.consumer_tag))

    def _get(self, method: commands.Basic.Get) -> None:
        queue = self._queue_name(method.queue, method)
        self._state.events.append(Get(self.number, queue, get_tag(queue), method.no_ack))

    def _recover(self, method: commands.Basic.Recover | commands.Basic.RecoverAsync) -> None:
        """Return every unacknowledged message to its queue, also the messages of cancelled consumers."""
        if not method.requeue:
            raise HardError(ReplyCode.NOT_IMPLEMENTED, "requeue=false", _id(method))
        for tag, ranges in by_consumer(self.unacked.recover()).items():
            self._state.events.append(Recovered(self.number, tag, Outcome.RETURN, ranges))
        if isinstance(method, commands.Basic.Recover):
            self._state.send(self.number, commands.Basic.RecoverOk())

    def _confirm_select(self, method: commands.Confirm.Select) -> None:
        if isinstance(self.confirms, CommitTracker):
            raise SoftError(ReplyCode.PRECONDITION_FAILED, "cannot switch from tx to confirm mode", _id(method))
        if self.confirms is None:
            self.confirms = ConfirmTracker()
        if not method.nowait:
            self._state.send(self.number, commands.Confirm.SelectOk())

    def _tx_select(self, method: commands.Tx.Select) -> None:
        if isinstance(self.confirms, CommitTracker):
            self._state.send(self.number, commands.Tx.SelectOk())
        elif self.confirms is not None:
            raise SoftError(ReplyCode.PRECONDITION_FAILED, "cannot switch from confirm to tx mode", _id(method))
        else:
            self._state.events.append(TxSelect(self.number))

    def _tx_end(self, method: commands.Tx.Commit | commands.Tx.Rollback) -> None:
        if not isinstance(self.confirms, CommitTracker):
            raise SoftError(ReplyCode.PRECONDITION_FAILED, "channel is not transactional", _id(method))
        is_commit = isinstance(method, commands.Tx.Commit)
        self._state.events.append(TxCommit(self.number) if is_commit else TxRollback(self.number))

    def begin_content(self, route: Route) -> None:
        """basic.publish came; the content header must come next."""
        self.content, self.content_route = PartialContent(self.number, self._state), route
        self.takes_runs = False

    def end_content(self) -> None:
        """The content is complete."""
        self.content = self.content_route = None
        self.takes_runs = True

    def end(self) -> None:
        """The channel is closed, or is closing."""
        self.content = self.content_route = None
        self.takes_runs = False
        self.subscriptions.clear()

    # -- the broker's answers --------------------------------------------------------------------------------------

    def _answer(self, what: str, method: base.Frame) -> None:
        """Answer a method of the kind ``what``. If no such method waits, say nothing: the client wanted no answer, or
        the method came on a former channel of this number."""
        if self._awaiting[what] > 0:
            self._awaiting[what] -= 1
            self._state.send(self.number, method)

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

    def exchange_ok(self, method: str) -> None:
        """Answer the oldest method of this name: exchange.declare, exchange.delete, or a change of a binding."""
        self._answer(method, exchange_methods.ANSWERS[method]())

    def tx_selected(self, tracker: CommitTracker) -> None:
        """Answer tx.select: from now on the channel is in tx mode."""
        self.confirms, self.unacked = tracker, TransactionalUnacked(self.unacked)
        self._state.send(self.number, commands.Tx.SelectOk())

    def tx_ended(self, *, committed: bool) -> None:
        """Answer tx.commit or tx.rollback."""
        assert isinstance(self.unacked, TransactionalUnacked), "only a channel in tx mode has transactions"
        if committed:
            self.unacked.commit()
        else:
            self.unacked.rollback()
        self._state.send(self.number, commands.Tx.CommitOk() if committed else commands.Tx.RollbackOk())

    def consume_ok(self, tag: str) -> None:
        """Answer basic.consume: the queue knows the consumer."""
        subscription = self.subscriptions.get(tag)
        if subscription is not None and not subscription.nowait:
            self._state.send(self.number, commands.Basic.ConsumeOk(tag))

    def cancel_ok(self, tag: str) -> None:
        """Answer basic.cancel. Messages that the consumer holds stay unacknowledged."""
        subscription = self.subscriptions.get(tag)
        if subscription is not None and subscription.cancelling:
            del self.subscriptions[tag]
            self._state.send(self.number, commands.Basic.CancelOk(tag))

    def set_apart(self, tag: str) -> str:
        """Give the messages that were delivered under a tag a name of their own. They are settled under that name from
        now on. The name is longer than any consumer tag can be."""
        name = f"former {next(self._former)} ".ljust(256) + tag
        self.unacked.rename(tag, name)
        return name

    def cancelled_by_broker(self, tag: str) -> None:
        """End a subscription, for example because its queue was deleted."""
        subscription = self.subscriptions.get(tag)
        if subscription is None:
            return
        del self.subscriptions[tag]
        if subscription.cancelling:
            self._state.send(self.number, commands.Basic.CancelOk(tag))
        elif "consumer_cancel_notify" in self._state.capabilities:
            self._state.send(self.number, commands.Basic.Cancel(tag, True))


def get_tag(queue: str) -> str:
    """The name that stands for a consumer tag if a message was fetched with basic.get. The name is longer than any
    consumer tag can be."""
    return "get ".ljust(256) + queue


def _id(method: base.Frame) -> MethodId:
    return method.index >> 16, method.index & 0xFFFF


Handler = Callable[[Channel, Any], None]  # each handler is called with the one method that it is listed for

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
    commands.Tx.Select: Channel._tx_select,
    commands.Tx.Commit: Channel._tx_end,
    commands.Tx.Rollback: Channel._tx_end,
}
"""The methods that a client may send on an open channel. The channel table handles channel.open, channel.close and
basic.publish; the fast path handles the three methods that settle."""
