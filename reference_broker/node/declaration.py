"""What a queue may be declared as. Pure: a declare event in, a record or a refusal out.

The refusals are RabbitMQ's, reply code and sentence, because clients match on them; a test compares them with a real
RabbitMQ 3.10. The record keeps the arguments under their AMQP names with the values as declared: declaring again must
say the same, and the difference is told in the client's words.

Stricter than RabbitMQ, on purpose: ``x-delivery-limit`` must be an integer (RabbitMQ takes any type and ignores it),
and ``x-overflow=reject-publish-dlx`` is refused, which a quorum queue there takes and does not do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from reference_broker.amqp.events import Consume, FieldValue, QueueDeclare
from reference_broker.amqp.fields import TIME_MS_MAX
from reference_broker.machines.metadata import ArgumentValue, QueueRecord
from reference_broker.types import GroupId, NodeId

if TYPE_CHECKING:
    from reference_broker.node.groups import Queue

NOT_FOUND: Final = 404
ACCESS_REFUSED: Final = 403
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406

QUEUE_TYPE: Final = "x-queue-type"
_KNOWN_TYPES: Final = ("classic", "quorum", "stream")
_INT32: Final = range(-(2**31), 2**31)
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool", str: "longstr", bytes: "longstr", bytearray: "longstr", float: "double", dict: "table",
    list: "array", type(None): "void",
}  # fmt: skip


class DeclarationError(Exception):
    """A declaration of a queue or of a consumer is refused; the channel closes with ``code`` and ``text``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _WrongError(Exception):
    """An argument's value is wrong; the text is how RabbitMQ puts it."""


def new_record(event: QueueDeclare, name: str, nodes: list[NodeId], random_bits: Callable[[int], int]) -> QueueRecord:
    """The record of a queue that does not exist yet, with a group id of its own. Raises :class:`DeclarationError`."""
    if event.queue.startswith("amq."):
        raise DeclarationError(ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
    arguments = _arguments(event, name)
    _check_kind(event, name)
    return QueueRecord(name=name, group=new_group(random_bits), members=tuple(sorted(nodes)), arguments=arguments)


def new_group(random_bits: Callable[[int], int]) -> GroupId:
    """An id that no other queue has, nor an earlier one of the same name."""
    return GroupId(random_bits(63) | 1)


def consumer_priority(event: Consume) -> int:
    """The priority of a consumer. Raises :class:`DeclarationError` for what a quorum queue does not do: RabbitMQ 3.10
    ignores *exclusive* there, but a client that asks for it relies on it."""
    if event.exclusive:
        text = "exclusive consumers are not supported by quorum queues; use x-single-active-consumer"
        raise DeclarationError(PRECONDITION_FAILED, text)
    try:
        return _integer(event.arguments.get("x-priority", 0))
    except _WrongError as wrong:
        raise _invalid("x-priority", event.queue, f": {wrong}") from wrong


def check(event: QueueDeclare, queue: Queue | None) -> Queue:
    """The queue, if the declaration fits what exists. Raises :class:`DeclarationError`."""
    if queue is None:
        raise DeclarationError(NOT_FOUND, f"no queue '{event.queue}' in vhost '/'")
    if event.passive:
        return queue
    name = queue.record.name
    _check_flags_equal(event, name)
    existing: dict[str, FieldValue] = {**dict(queue.record.arguments), QUEUE_TYPE: "quorum"}
    for key in (*_RULES, QUEUE_TYPE):
        received, current = event.arguments.get(key), existing.get(key)
        if received != current or isinstance(received, bool) != isinstance(current, bool):
            raise _inequivalent(key, name, *_difference(received, current))
    return queue


def _check_flags_equal(event: QueueDeclare, name: str) -> None:
    if event.exclusive:
        why = (
            "It could be originally declared on another connection or the exclusive property value does not match "
            "that of the original declaration."
        )
        text = f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'. {why}"
        raise DeclarationError(RESOURCE_LOCKED, text)
    if not event.durable:
        raise _inequivalent("durable", name, "'false'", "'true'")
    if event.auto_delete:
        raise _inequivalent("auto_delete", name, "'true'", "'false'")


def _inequivalent(key: str, name: str, received: str, current: str) -> DeclarationError:
    text = f"inequivalent arg '{key}' for queue '{name}' in vhost '/': received {received} but current is {current}"
    return DeclarationError(PRECONDITION_FAILED, text)


def _difference(received: FieldValue, current: FieldValue) -> tuple[str, str]:
    """Both sides in RabbitMQ's words: with their types where one side has no value."""
    if received is None or current is None or type(received) is not type(current):
        return _described(received), _described(current)
    return f"'{_text(received)}'", f"'{_text(current)}'"


def _described(value: FieldValue) -> str:
    return "none" if value is None else f"the value '{_text(value)}' of type '{_type_name(value)}'"


def _text(value: FieldValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_kind(event: QueueDeclare, name: str) -> None:
    """What a quorum queue cannot be. RabbitMQ checks in this order."""
    kind = event.arguments.get(QUEUE_TYPE, "classic")
    if kind != "quorum":
        text = f"queue type '{kind}' is not available here; declare '{name}' with {QUEUE_TYPE}=quorum"
        raise DeclarationError(PRECONDITION_FAILED, text)
    for wrong, prop in (
        (event.auto_delete, "auto-delete"),
        (event.exclusive, "exclusive-owner"),
        (not event.durable, "non-durable"),
    ):
        if wrong:
            raise DeclarationError(PRECONDITION_FAILED, f"invalid property '{prop}' for queue '{name}' in vhost '/'")


def _arguments(event: QueueDeclare, name: str) -> tuple[tuple[str, ArgumentValue], ...]:
    """The arguments that a quorum queue knows, checked. What no kind of queue knows is ignored, as in RabbitMQ."""
    found: dict[str, ArgumentValue] = {}
    for key, value in event.arguments.items():
        if key in _FOREIGN:
            raise _invalid(key, name, " of queue type rabbit_quorum_queue")
        if (rule := _RULES.get(key)) is not None:
            try:
                found[key] = rule(value, event.arguments)
            except _WrongError as wrong:
                raise _wrong(key, name, value, str(wrong)) from wrong
    _check_queue_type(event.arguments.get(QUEUE_TYPE, "classic"), name)
    return tuple(sorted(found.items()))


def _check_queue_type(kind: FieldValue, name: str) -> None:
    if not isinstance(kind, str):
        raise _invalid(QUEUE_TYPE, name, f": {{unacceptable_type,{_type_name(kind)}}}")
    if kind not in _KNOWN_TYPES:
        raise _invalid(QUEUE_TYPE, name, f": \"unsupported queue type '{kind}'\"")


def _wrong(key: str, name: str, value: FieldValue, why: str) -> DeclarationError:
    if key == "x-dead-letter-exchange":
        text = f"invalid type '{_type_name(value)}' for arg '{key}' in queue '{name}' in vhost '/'"
        return DeclarationError(PRECONDITION_FAILED, text)
    return _invalid(key, name, f": {why}")


def _invalid(key: str, name: str, why: str) -> DeclarationError:
    return DeclarationError(PRECONDITION_FAILED, f"invalid arg '{key}' for queue '{name}' in vhost '/'{why}")


def _type_name(value: FieldValue) -> str:
    """The AMQP type of a decoded value, as RabbitMQ calls it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "signedint" if value in _INT32 else "long"
    return _TYPE_NAMES.get(type(value), type(value).__name__.lower())


def _integer(value: FieldValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _WrongError(f'"expected integer, got {_type_name(value)}"')
    return value


_Arguments = dict[str, FieldValue]
_Rule = Callable[[FieldValue, _Arguments], ArgumentValue]


def _any_integer(value: FieldValue, _all: _Arguments) -> int:
    return _integer(value)


def _milliseconds(value: FieldValue, everything: _Arguments) -> int:
    number = _not_negative(value, everything)
    if number > TIME_MS_MAX:
        raise _WrongError(f"{{value_too_large,{number}}}")
    return number


def _lifetime(value: FieldValue, everything: _Arguments) -> int:
    return _milliseconds(_positive(value, everything), everything)


def _not_negative(value: FieldValue, _all: _Arguments) -> int:
    number = _integer(value)
    if number < 0:
        raise _WrongError(f"{{value_negative,{number}}}")
    return number


def _positive(value: FieldValue, everything: _Arguments) -> int:
    number = _not_negative(value, everything)
    if not number:
        raise _WrongError("{value_zero,0}")
    return number


def _boolean(value: FieldValue, _all: _Arguments) -> bool:
    if not isinstance(value, bool):
        raise _WrongError(f"{{unacceptable_type,{_type_name(value)}}}")
    return value


def _string(value: FieldValue, _all: _Arguments) -> str:
    if not isinstance(value, str):
        raise _WrongError(f"{{unacceptable_type,{_type_name(value)}}}")
    return value


def _routing_key(value: FieldValue, everything: _Arguments) -> str:
    if "x-dead-letter-exchange" not in everything:
        raise _WrongError("routing_key_but_no_dlx_defined")
    return _string(value, everything)


def _one_of(error: str, *words: str) -> _Rule:
    def rule(value: FieldValue, everything: _Arguments) -> str:
        if (word := _string(value, everything)) not in words:
            raise _WrongError(error)
        return word

    return rule


_RULES: Final[dict[str, _Rule]] = {
    "x-expires": _lifetime,
    "x-message-ttl": _milliseconds,
    "x-dead-letter-exchange": _string,
    "x-dead-letter-routing-key": _routing_key,
    "x-dead-letter-strategy": _one_of("invalid_dlx_strategy", "at-most-once", "at-least-once"),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-overflow": _one_of("invalid_overflow", "drop-head", "reject-publish"),
    "x-delivery-limit": _any_integer,
    "x-single-active-consumer": _boolean,
    "x-queue-leader-locator": _one_of(
        "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"
    ),
    "x-quorum-initial-group-size": _positive,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
}
"""What each argument must be. The in-memory limits do nothing in RabbitMQ either since 3.10: bodies live in the log."""

_FOREIGN: Final = frozenset({"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"})
"""Arguments of other kinds of queues."""
