"""Exchanges and bindings as values, as a client declares them and the metadata group replicates them.

Arguments and headers are fields of AMQP tables, and each value is the raw octets of its field, with the octet of its
type. Two values are equal if type and octets are equal: this is RabbitMQ's rule for a headers exchange, and nothing
has to be decoded for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

Arguments = tuple[tuple[bytes, bytes], ...]
"""Name and raw value of each field of a table."""

ALTERNATE: Final = b"alternate-exchange"
DEFAULT: Final = ""
"""The name of the default exchange."""
_LONG_STRING: Final = b"S"
_LONG_STRING_AT: Final = 5


class ExchangeType(StrEnum):
    """How an exchange compares messages with its bindings."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


class Destination(NamedTuple):
    """The target of a binding: a queue, or another exchange."""

    name: str
    is_exchange: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An exchange as it was declared. Clients cannot publish to an ``internal`` exchange. An ``auto_delete`` exchange
    goes with its last binding."""

    name: str
    type: ExchangeType
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = ()

    @property
    def alternate(self) -> str | None:
        """The exchange that gets what this exchange cannot route."""
        value = dict(reversed(self.arguments)).get(ALTERNATE)
        return (
            None if value is None or value[:1] != _LONG_STRING else value[_LONG_STRING_AT:].decode("utf-8", "replace")
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Binding:
    """A binding *is* its four parts: two bindings that differ in one of them are two bindings."""

    source: str
    destination: Destination
    key: str
    arguments: Arguments = ()


PREDECLARED: Final = {
    exchange.name: exchange
    for exchange in (
        Exchange(name=DEFAULT, type=ExchangeType.DIRECT),
        Exchange(name="amq.direct", type=ExchangeType.DIRECT),
        Exchange(name="amq.fanout", type=ExchangeType.FANOUT),
        Exchange(name="amq.topic", type=ExchangeType.TOPIC),
        Exchange(name="amq.headers", type=ExchangeType.HEADERS),
        Exchange(name="amq.match", type=ExchangeType.HEADERS),
    )
}
"""The exchanges that every virtual host has, and that cannot be deleted."""


def in_order(arguments: Iterable[tuple[bytes, bytes]]) -> Arguments:
    """The arguments in the order of their names: the order in which a client writes them means nothing."""
    return tuple(sorted(arguments, key=lambda field: field[0]))
