"""Rules for the arguments of a queue's declaration, with RabbitMQ's errors for wrong values. Pure.

A kind of queue lists its arguments with a rule for each (:class:`~reference_broker.queues.port.QueueKind`). The error
texts are RabbitMQ's, because clients match on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from reference_broker.machines.cluster.metadata import ArgumentValue
from reference_broker.types import TTL_MS_MAX

Arguments = Mapping[str, object]
"""All arguments of a declaration, as pamqp decodes them."""

ArgumentRule = Callable[[object, Arguments], ArgumentValue]
"""Takes a value and all arguments; returns the value, or raises :class:`WrongArgumentError`."""

ROUTING_KEY: Final = "routing-key"
HEADER_PREFIX: Final = "header:"
"""The sources of the keys of a queue: ``x-key`` is the first, or the second and the name of a header."""

PRIORITY_MAX: Final = 255
"""The highest priority of a message that a queue may have."""

_SHORT_STRING_OCTETS: Final = 255
_INT32: Final = range(-(2**31), 2**31)
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool", str: "longstr", bytes: "longstr", bytearray: "longstr", float: "double", dict: "table",
    list: "array", type(None): "void",
}  # fmt: skip


class WrongArgumentError(Exception):
    """An argument's value is wrong. The text is RabbitMQ's."""


def type_name(value: object) -> str:
    """The AMQP type of a decoded value, as RabbitMQ calls it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "signedint" if value in _INT32 else "long"
    return _TYPE_NAMES.get(type(value), type(value).__name__.lower())


def integer(value: object) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongArgumentError(f'"expected integer, got {type_name(value)}"')
    return value


def any_integer(value: object, _arguments: Arguments) -> int:
    """Any whole number."""
    return integer(value)


def milliseconds(value: object, arguments: Arguments) -> int:
    """A time from 0 on, up to ten years."""
    number = not_negative(value, arguments)
    if number > TTL_MS_MAX:
        raise WrongArgumentError(f"{{value_too_large,{number}}}")
    return number


def lifetime(value: object, arguments: Arguments) -> int:
    """A time above 0, up to ten years."""
    return milliseconds(positive(value, arguments), arguments)


def not_negative(value: object, _arguments: Arguments) -> int:
    """A whole number from 0 on."""
    number = integer(value)
    if number < 0:
        raise WrongArgumentError(f"{{value_negative,{number}}}")
    return number


def positive(value: object, arguments: Arguments) -> int:
    """A whole number from 1 on."""
    number = not_negative(value, arguments)
    if not number:
        raise WrongArgumentError("{value_zero,0}")
    return number


def priority(value: object, arguments: Arguments) -> int:
    """A priority of messages, 0 to 255."""
    number = not_negative(value, arguments)
    if number > PRIORITY_MAX:
        raise WrongArgumentError(f"{{max_value_exceeded,{number}}}")
    return number


def queue_mode(value: object, arguments: Arguments) -> str:
    """Whether a classic queue is lazy."""
    if (mode := string(value, arguments)) not in ("default", "lazy"):
        raise WrongArgumentError(f"\"unsupported queue mode '{mode}'\"")
    return mode


def queue_version(value: object, arguments: Arguments) -> int:
    """The version of a classic queue, 1 or 2."""
    number = not_negative(value, arguments)
    if number not in (1, 2):
        raise WrongArgumentError(f"\"unsupported queue version '{number}'\"")
    return number


def boolean(value: object, _arguments: Arguments) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise WrongArgumentError(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def string(value: object, _arguments: Arguments) -> str:
    """Text."""
    if not isinstance(value, str):
        raise WrongArgumentError(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def routing_key(value: object, arguments: Arguments) -> str:
    """Text; allowed only together with a dead letter exchange."""
    if "x-dead-letter-exchange" not in arguments:
        raise WrongArgumentError("routing_key_but_no_dlx_defined")
    return string(value, arguments)


def key_source(value: object, arguments: Arguments) -> str:
    """The source of a message's key: ``header:NAME`` or ``routing-key``. A queue with keys has no priorities, and
    refuses publishes when full, because anything else would break the order."""
    source = string(value, arguments)
    name = source.removeprefix(HEADER_PREFIX)
    if source != ROUTING_KEY and (name == source or not 0 < len(name.encode()) <= _SHORT_STRING_OCTETS):
        raise WrongArgumentError(f"\"unsupported key '{source}': use header:NAME or routing-key\"")
    if "x-max-priority" in arguments:
        raise WrongArgumentError('"a queue with keys has no priorities"')
    if arguments.get("x-overflow", "reject-publish") != "reject-publish":
        raise WrongArgumentError('"a queue with keys can only overflow by reject-publish"')
    return source


def with_key(rule: ArgumentRule) -> ArgumentRule:
    """The rule, for an argument that needs keys."""

    def checked(value: object, arguments: Arguments) -> ArgumentValue:
        if "x-key" not in arguments:
            raise WrongArgumentError('"only a queue with x-key has keys"')
        return rule(value, arguments)

    return checked


def max_tries(value: object, arguments: Arguments) -> int:
    """The most deliveries of a message. A delivery limit says the same, one less."""
    if "x-delivery-limit" in arguments:
        raise WrongArgumentError('"x-delivery-limit says the same"')
    return positive(value, arguments)


def one_of(error: str, *words: str) -> ArgumentRule:
    """A rule for one of some words. ``error`` is RabbitMQ's name for any other value."""

    def rule(value: object, arguments: Arguments) -> str:
        if (word := string(value, arguments)) not in words:
            raise WrongArgumentError(error)
        return word

    return rule
