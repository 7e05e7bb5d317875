"""The methods of exchanges and bindings, from octets to events: exchange.* and queue.bind, queue.unbind.

Arguments are kept as raw fields, because a headers exchange compares them with the headers of messages by type and
octets (:mod:`reference_broker.routing.records`): decoded and encoded again, a short integer would be a long integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pamqp import base, commands

from reference_broker.amqp.errors import HardError, MethodId, ReplyCode, SoftError
from reference_broker.amqp.events import BindingChange, ExchangeDeclare, ExchangeDelete, ExchangeEvent
from reference_broker.amqp.fields import last_table
from reference_broker.routing.records import Arguments, Destination, ExchangeType, in_order

_TYPES: Final = tuple(ExchangeType)


def event_of(method: base.Frame, payload: bytes, number: int, last_queue: str) -> ExchangeEvent:
    """The event of a method on channel ``number``; ``payload`` is the method's frame, ``last_queue`` the queue last
    declared on the channel. Raises HardError 503 for an unknown type of exchange, and SoftError 404 if there is no
    queue last declared."""
    return METHODS[type(method)](method, payload, number, last_queue)


def one_line(name: str) -> str:
    """A name to be declared, deleted or bound. As in RabbitMQ, ends of lines are left out; publish, consume, get and
    purge take the name as it is."""
    return name.replace("\r", "").replace("\n", "")


def _declare(method: commands.Exchange.Declare, payload: bytes, number: int, _last: str) -> ExchangeEvent:
    if not method.passive and method.exchange_type not in _TYPES:
        text = f"{'unknown' if method.exchange_type else 'invalid'} exchange type '{method.exchange_type}'"
        raise HardError(ReplyCode.COMMAND_INVALID, text, _id(method))
    return ExchangeDeclare(
        channel=number,
        exchange=one_line(method.exchange),
        type=method.exchange_type,
        passive=method.passive,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        nowait=method.nowait,
        arguments=dict(method.arguments or {}),
        fields=_fields(method, payload),
    )


def _delete(method: commands.Exchange.Delete, _payload: bytes, number: int, _last: str) -> ExchangeEvent:
    return ExchangeDelete(number, one_line(method.exchange), if_unused=method.if_unused, nowait=method.nowait)


def _exchange_binding(
    method: commands.Exchange.Bind | commands.Exchange.Unbind, payload: bytes, number: int, _last: str
) -> ExchangeEvent:
    return BindingChange(
        channel=number,
        adds=isinstance(method, commands.Exchange.Bind),
        source=one_line(method.source),
        destination=Destination(one_line(method.destination), is_exchange=True),
        routing_key=method.routing_key,
        fields=_fields(method, payload),
        nowait=method.nowait,
    )


def _queue_binding(
    method: commands.Queue.Bind | commands.Queue.Unbind, payload: bytes, number: int, last_queue: str
) -> ExchangeEvent:
    queue, key = one_line(method.queue) or last_queue, method.routing_key
    if not queue:
        raise SoftError(ReplyCode.NOT_FOUND, "no previously declared queue", _id(method))
    if not method.queue and not key:  # AMQP 0-9-1, 1.7.2.3: the name of the queue last declared is the key, too
        key = last_queue
    return BindingChange(
        channel=number,
        adds=isinstance(method, commands.Queue.Bind),
        source=one_line(method.exchange),
        destination=Destination(queue),
        routing_key=key,
        fields=_fields(method, payload),
        nowait=isinstance(method, commands.Queue.Bind) and method.nowait,
    )


def _fields(method: base.Frame, payload: bytes) -> Arguments:
    return in_order(last_table(payload, type(method)))


def _id(method: base.Frame) -> MethodId:
    return method.index >> 16, method.index & 0xFFFF


Reader = Callable[[Any, bytes, int, str], ExchangeEvent]  # called with the one method that it is listed for

METHODS: Final[dict[type[base.Frame], Reader]] = {
    commands.Exchange.Declare: _declare,
    commands.Exchange.Delete: _delete,
    commands.Exchange.Bind: _exchange_binding,
    commands.Exchange.Unbind: _exchange_binding,
    commands.Queue.Bind: _queue_binding,
    commands.Queue.Unbind: _queue_binding,
}
"""The reader of each method."""

ANSWERS: Final[dict[str, Callable[[], base.Frame]]] = {
    "exchange.declare": commands.Exchange.DeclareOk,
    "exchange.delete": commands.Exchange.DeleteOk,
    "exchange.bind": commands.Exchange.BindOk,
    "exchange.unbind": commands.Exchange.UnbindOk,
    "queue.bind": commands.Queue.BindOk,
    "queue.unbind": commands.Queue.UnbindOk,
}
"""The answer to each method, by the method's name."""
