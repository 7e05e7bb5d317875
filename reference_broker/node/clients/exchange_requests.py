"""A channel's requests about exchanges and bindings: checked, proposed to the metadata group, answered.

Reply codes and texts of refusals are RabbitMQ's, because clients match on them. Whether a queue or an exchange of a
binding exists is decided where the metadata is replicated (:mod:`reference_broker.machines.cluster.exchanges`); here
are only the refusals that a node can decide by itself.
"""

from __future__ import annotations

from typing import Final

from pamqp import decode

from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import BindingChange, ExchangeDeclare, ExchangeDelete, ExchangeEvent
from reference_broker.machines.cluster.exchanges import ExchangeOutcome
from reference_broker.node.clients.queue_access import QueueAccess
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.declaration import DeclarationError
from reference_broker.node.hosting.virtual_hosts import VirtualHost
from reference_broker.queues.arguments import type_name
from reference_broker.routing.records import (
    ALTERNATE,
    DEFAULT,
    PREDECLARED,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
)

_RESERVED: Final = "amq."
_ALTERNATE: Final = ALTERNATE.decode()


def declare(access: QueueAccess, event: ExchangeDeclare) -> None:
    """exchange.declare."""
    existing = access.context.vhost.exchanges.table.exchange(event.exchange)
    try:
        _check_not_default(event.exchange)
        if not event.passive:
            if existing is None:
                _check_new(event, access.context.vhost.exchange_called(event.exchange))
            _declare_new(access, event)
            return
        if existing is None:
            if access.answers.repeats_when_current(event):
                return
            raise DeclarationError(ReplyCode.NOT_FOUND, f"no {access.context.vhost.exchange_called(event.exchange)}")
    except DeclarationError as refused:
        access.answers.refuse(refused.code, refused.text, event.method)
        return
    _done(access, event)


def check(event: ExchangeDeclare, what: str, existing: Exchange | None) -> None:
    """Raises :class:`DeclarationError` if the exchange cannot be declared like this, beside the ``existing`` one of its
    name, if there is one. ``what`` is the exchange in RabbitMQ's words."""
    _check_not_default(event.exchange)
    if existing is None:
        _check_new(event, what)
    else:
        _check_equal(event, what, _wanted(event), existing)


def _wanted(event: ExchangeDeclare) -> Exchange:
    return Exchange(
        name=event.exchange,
        type=ExchangeType(event.type),
        durable=event.durable,
        auto_delete=event.auto_delete,
        internal=event.internal,
        arguments=event.fields,
    )


def _declare_new(access: QueueAccess, event: ExchangeDeclare) -> None:
    wanted = _wanted(event)

    def answered(existing: Exchange) -> None:
        try:
            _check_equal(event, access.context.vhost.exchange_called(event.exchange), wanted, existing)
        except DeclarationError as refused:
            access.answers.refuse(refused.code, refused.text, event.method)
        else:
            _done(access, event)

    access.context.vhost.exchanges.declare(wanted, access.answers.until(answered))


def delete(access: QueueAccess, event: ExchangeDelete) -> None:
    """exchange.delete. The deletion of an exchange that does not exist succeeds, as in RabbitMQ."""
    try:
        _check_not_default(event.exchange)
        if event.exchange.startswith(_RESERVED):
            text = f"deletion of system {access.context.vhost.exchange_called(event.exchange)} not allowed"
            raise DeclarationError(ReplyCode.ACCESS_REFUSED, text)
    except DeclarationError as refused:
        access.answers.refuse(refused.code, refused.text, event.method)
        return

    def answered(outcome: ExchangeOutcome) -> None:
        if outcome.is_in_use:
            text = f"{access.context.vhost.exchange_called(event.exchange)} in use"
            access.answers.refuse(ReplyCode.PRECONDITION_FAILED, text, event.method)
        else:
            _done(access, event)

    access.context.vhost.exchanges.delete(event.exchange, access.answers.until(answered), if_unused=event.if_unused)


def change_binding(access: QueueAccess, event: BindingChange) -> None:
    """exchange.bind, exchange.unbind, queue.bind, queue.unbind."""
    to = event.destination
    try:
        _check_not_default(event.source)
        if to.is_exchange:
            _check_not_default(to.name)
        elif (queue := access.context.vhost.queues.get(to.name)) is not None and access.refuses(queue, event.method):
            return
    except DeclarationError as refused:
        access.answers.refuse(refused.code, refused.text, event.method)
        return
    binding = Binding(source=event.source, destination=to, key=event.routing_key, arguments=event.fields)

    def answered(outcome: ExchangeOutcome) -> None:
        if outcome.missing is not None:
            access.answers.refuse(
                ReplyCode.NOT_FOUND, f"no {_called(access.context.vhost, outcome.missing)}", event.method
            )
        elif outcome.wrong_match is not None:
            access.answers.refuse(ReplyCode.PRECONDITION_FAILED, _wrong_match(outcome.wrong_match), event.method)
        else:
            _done(access, event)

    exchanges = access.context.vhost.exchanges
    (exchanges.bind if event.adds else exchanges.unbind)(binding, access.answers.until(answered))


def _done(access: QueueAccess, event: ExchangeEvent) -> None:
    """Answer the client, unless it wants no answer."""
    if not event.nowait:
        access.context.core.exchange_ok(access.context.number, event.method)


def _check_not_default(name: str) -> None:
    if name == DEFAULT:
        raise DeclarationError(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")


def _check_new(event: ExchangeDeclare, what: str) -> None:
    name = event.exchange
    if name.startswith(_RESERVED) and name not in PREDECLARED:
        text = f"exchange name '{name}' contains reserved prefix 'amq.*'"
        raise DeclarationError(ReplyCode.ACCESS_REFUSED, text)
    alternate = event.arguments.get(_ALTERNATE)
    if alternate is not None and not isinstance(alternate, str):
        text = f"invalid type '{type_name(alternate)}' for arg '{_ALTERNATE}' in {what}"
        raise DeclarationError(ReplyCode.PRECONDITION_FAILED, text)


def _check_equal(event: ExchangeDeclare, what: str, wanted: Exchange, existing: Exchange) -> None:
    """Raises :class:`DeclarationError` 406 if the exchange differs from the declaration. RabbitMQ checks in this
    order."""
    for key, received, current in (
        ("type", str(wanted.type), str(existing.type)),
        ("durable", wanted.durable, existing.durable),
        ("auto_delete", wanted.auto_delete, existing.auto_delete),
        ("internal", wanted.internal, existing.internal),
    ):
        if received != current:
            raise declaration.inequivalent(key, what, *declaration.difference(received, current))
    alternate = event.arguments.get(_ALTERNATE)
    if alternate != existing.alternate:
        texts = declaration.difference(alternate, existing.alternate)
        raise declaration.inequivalent(_ALTERNATE, what, *texts)


def _wrong_match(value: bytes) -> str:
    expected = "expected all, any, all-with-x, or any-with-x"
    if value[:1] == b"S":
        return f'Invalid x-match field value <<"{value[5:].decode("utf-8", "replace")}">>; {expected}'
    _size, found = decode.embedded_value(value)
    return f"Invalid x-match field type {type_name(found)} (value {declaration.worded(found)}); expected longstr"


def _called(vhost: VirtualHost, to: Destination) -> str:
    return vhost.exchange_called(to.name) if to.is_exchange else vhost.queue_called(to.name)
