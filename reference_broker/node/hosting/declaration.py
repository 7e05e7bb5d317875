"""The check of a queue's declaration: a declare event in, a record or a refusal out. Pure.

Reply codes and texts of refusals are RabbitMQ's, because clients match on them. A test compares them with a real
RabbitMQ 3.10. The record keeps the arguments under their AMQP names with the declared values. A second declaration must
have the same values, and an error shows the difference in the client's words.

Stricter than RabbitMQ, on purpose: ``x-delivery-limit`` must be an integer (RabbitMQ takes any type and ignores it),
and ``x-overflow=reject-publish-dlx`` is refused for a quorum queue (RabbitMQ takes it and does not do it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from reference_broker.access import names
from reference_broker.access.records import NO_LIMIT
from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import Consume, FieldValue, QueueDeclare
from reference_broker.machines.cluster.metadata import DEFAULT_KIND, ArgumentValue, QueueRecord
from reference_broker.queues.arguments import WrongArgumentError, any_integer, type_name
from reference_broker.queues.port import Queue, QueueKind
from reference_broker.types import GroupId, NodeId

QUEUE_TYPE: Final = "x-queue-type"
_KIND_WITHOUT_ARGUMENT: Final = "classic"
"""The kind of a queue that is declared without ``x-queue-type``, as in RabbitMQ 3.10."""
Asker = tuple[NodeId, int, int]
"""The client that asks: its node, that node's boot id, and the number of the connection there."""
_RABBITMQ_TYPES: Final = ("classic", "quorum", "stream")


class DeclarationError(Exception):
    """The declaration is refused on its channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def new_record(
    event: QueueDeclare,
    name: str,
    nodes: list[NodeId],
    random_bits: Callable[[int], int],
    kinds: Mapping[str, QueueKind],
    asker: Asker,
) -> QueueRecord:
    """The record of a queue that does not exist yet, of one of ``kinds``, with a group id of its own. ``name`` is its
    name in the cluster. Raises :class:`DeclarationError`."""
    if event.queue.startswith("amq."):
        raise DeclarationError(ReplyCode.ACCESS_REFUSED, f"queue name '{event.queue}' contains reserved prefix 'amq.*'")
    if not names.can_be_name(event.queue):
        raise DeclarationError(ReplyCode.PRECONDITION_FAILED, f"queue name '{event.queue}' contains a NUL")
    named = event.arguments.get(QUEUE_TYPE, _KIND_WITHOUT_ARGUMENT)
    kind = kinds.get(named) if isinstance(named, str) else None
    if kind is not None and not event.queue and not kind.takes_server_names:
        text = f"Cannot declare a server-named queue for type rabbit_{kind.name}_queue"
        raise DeclarationError(ReplyCode.PRECONDITION_FAILED, text)
    arguments = _arguments(event, name, kind or kinds[DEFAULT_KIND], kinds)
    if kind is None:
        instead = f"declare '{names.short(name)}' with {QUEUE_TYPE}={' or '.join(kinds)}"
        text = f"queue type '{named}' is not available here; {instead}"
        raise DeclarationError(ReplyCode.PRECONDITION_FAILED, text)
    _check_properties(event, name, kind)
    if kind.name == _KIND_WITHOUT_ARGUMENT and QUEUE_TYPE in event.arguments:
        arguments = (*arguments, (QUEUE_TYPE, kind.name))  # an error shows it
    _node, boot_id, connection = asker
    return QueueRecord(
        name=name,
        group=new_group(random_bits),
        members=tuple(sorted(nodes)),
        arguments=arguments,
        kind=kind.name,
        durable=event.durable,
        auto_delete=event.auto_delete,
        exclusive=connection if event.exclusive else 0,
        boot_id=boot_id if event.exclusive or not event.durable else 0,
    )


def check_limit(name: str, queues: int, limit: int) -> None:
    """Raises :class:`DeclarationError` if the virtual host has as many queues as its ``limit`` allows."""
    if limit != NO_LIMIT and queues >= limit:
        what = f"cannot declare queue '{names.short(name)}'"
        text = f"{what}: queue limit in vhost '{names.vhost_of(name)}' ({limit}) is reached"
        raise DeclarationError(ReplyCode.PRECONDITION_FAILED, text)


def new_group(random_bits: Callable[[int], int]) -> GroupId:
    """A random id: no other queue has it, nor an earlier queue of the same name."""
    return GroupId(random_bits(63) | 1)


def consumer_priority(event: Consume, queue: Queue) -> int:
    """The priority of a consumer. Raises :class:`DeclarationError` for arguments that the kind of queue does not
    support. RabbitMQ 3.10 ignores *exclusive* for a quorum queue, but a client that asks for it relies on it."""
    if event.exclusive and not queue.kind.takes_exclusive_consumers:
        text = f"exclusive consumers are not supported by {queue.kind.name} queues; use x-single-active-consumer"
        raise DeclarationError(ReplyCode.PRECONDITION_FAILED, text)
    try:
        return any_integer(event.arguments.get("x-priority", 0), event.arguments)
    except WrongArgumentError as wrong:
        raise _invalid("x-priority", queue.record.name, f": {wrong}") from wrong


def check_get(queue: Queue) -> None:
    """Raises :class:`DeclarationError` if the queue does not support basic.get."""
    if dict(queue.record.arguments).get("x-single-active-consumer") and not queue.kind.gets_beside_single_active:
        text = (
            f"cannot obtain access to locked {names.queue_in_vhost(queue.record.name)}. basic.get operations are not "
            f"supported by {queue.kind.name} queues with single active consumer"
        )
        raise DeclarationError(ReplyCode.RESOURCE_LOCKED, text)


def check(event: QueueDeclare, queue: Queue, asker: Asker) -> Queue:
    """The existing queue, if the declaration matches it. Raises :class:`DeclarationError`."""
    check_access(queue.record, asker)
    if event.passive:
        return queue
    what = names.queue_in_vhost(queue.record.name)
    _check_flags_equal(event, queue.record)
    existing: dict[str, FieldValue] = dict(queue.record.arguments)
    if queue.kind.name != _KIND_WITHOUT_ARGUMENT:
        existing[QUEUE_TYPE] = queue.kind.name
    for key in (*queue.kind.arguments, QUEUE_TYPE):
        received, current = event.arguments.get(key), existing.get(key)
        if key == QUEUE_TYPE and {received, current} <= {None, _KIND_WITHOUT_ARGUMENT}:
            continue
        if received != current or type(received) is not type(current):  # 10.0 is not 10, and true is not 1
            raise inequivalent(key, what, *difference(received, current))
    return queue


def check_access(record: QueueRecord, asker: Asker) -> None:
    """Raises :class:`DeclarationError` if the queue is another connection's own."""
    if record.exclusive and not record.is_of(*asker):
        raise _locked(record.name)


def _locked(name: str) -> DeclarationError:
    why = (
        "It could be originally declared on another connection or the exclusive property value does not match "
        "that of the original declaration."
    )
    text = f"cannot obtain exclusive access to locked {names.queue_in_vhost(name)}. {why}"
    return DeclarationError(ReplyCode.RESOURCE_LOCKED, text)


def _check_flags_equal(event: QueueDeclare, record: QueueRecord) -> None:
    if event.exclusive != bool(record.exclusive):
        raise _locked(record.name)
    for key, received, current in (
        ("durable", event.durable, record.durable),
        ("auto_delete", event.auto_delete, record.auto_delete),
    ):
        if received != current:
            what = names.queue_in_vhost(record.name)
            raise inequivalent(key, what, f"'{worded(received)}'", f"'{worded(current)}'")


def inequivalent(key: str, what: str, received: str, current: str) -> DeclarationError:
    """The refusal of a declaration that differs from what exists, such as ``queue 'q' in vhost '/'``."""
    text = f"inequivalent arg '{key}' for {what}: received {received} but current is {current}"
    return DeclarationError(ReplyCode.PRECONDITION_FAILED, text)


def difference(received: FieldValue, current: FieldValue) -> tuple[str, str]:
    """Both values in RabbitMQ's words: with types, if a value is missing or the types differ and are no numbers."""
    are_numbers = {type(received), type(current)} <= {int, float}
    if received is None or current is None or not (are_numbers or type(received) is type(current)):
        return _described(received), _described(current)
    return f"'{worded(received)}'", f"'{worded(current)}'"


def _described(value: FieldValue) -> str:
    return "none" if value is None else f"the value '{worded(value)}' of type '{type_name(value)}'"


def worded(value: FieldValue) -> str:
    """The value in RabbitMQ's words."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_properties(event: QueueDeclare, name: str, kind: QueueKind) -> None:
    """Refuse properties that the kind of queue cannot have. RabbitMQ checks in this order."""
    for wrong, prop in (
        (event.auto_delete, "auto-delete"),
        (event.exclusive, "exclusive-owner"),
        (not event.durable, "non-durable"),
    ):
        if wrong and prop in kind.refused_properties:
            text = f"invalid property '{prop}' for {names.queue_in_vhost(name)}"
            raise DeclarationError(ReplyCode.PRECONDITION_FAILED, text)


def _arguments(
    event: QueueDeclare, name: str, kind: QueueKind, kinds: Mapping[str, QueueKind]
) -> tuple[tuple[str, ArgumentValue], ...]:
    """The checked arguments of the kind of queue. Arguments that no kind knows are ignored, as in RabbitMQ."""
    found: dict[str, ArgumentValue] = {}
    for key, value in event.arguments.items():
        if key in kind.foreign_arguments:
            raise _invalid(key, name, f" of queue type rabbit_{kind.name}_queue")
        if (rule := kind.arguments.get(key)) is not None:
            try:
                found[key] = rule(value, event.arguments)
            except WrongArgumentError as wrong:
                raise _wrong(key, name, value, str(wrong)) from wrong
    _check_queue_type(event.arguments.get(QUEUE_TYPE, "classic"), name, kinds)
    return tuple(sorted(found.items()))


def _check_queue_type(kind: FieldValue, name: str, kinds: Mapping[str, QueueKind]) -> None:
    if not isinstance(kind, str):
        raise _invalid(QUEUE_TYPE, name, f": {{unacceptable_type,{type_name(kind)}}}")
    if kind not in kinds and kind not in _RABBITMQ_TYPES:
        raise _invalid(QUEUE_TYPE, name, f": \"unsupported queue type '{kind}'\"")


def _wrong(key: str, name: str, value: FieldValue, why: str) -> DeclarationError:
    if key == "x-dead-letter-exchange":
        text = f"invalid type '{type_name(value)}' for arg '{key}' in {names.queue_in_vhost(name)}"
        return DeclarationError(ReplyCode.PRECONDITION_FAILED, text)
    return _invalid(key, name, f": {why}")


def _invalid(key: str, name: str, why: str) -> DeclarationError:
    text = f"invalid arg '{key}' for {names.queue_in_vhost(name)}{why}"
    return DeclarationError(ReplyCode.PRECONDITION_FAILED, text)


def home_down(record: QueueRecord, home: str) -> str:
    """RabbitMQ's words for a queue whose node is down: a queue that is not durable is no more."""
    if record.ends_with_its_node:
        return f"no {names.queue_in_vhost(record.name)}"
    return f"home node '{home}' of durable {names.queue_in_vhost(record.name)} is down or inaccessible"


def may_end(record: QueueRecord) -> bool:
    """Whether the broker may delete the queue when it is unused."""
    return record.auto_delete or "x-expires" in dict(record.arguments)
