"""The exchanges and bindings in the metadata machine: commands that change them, and the answer to each.

The machine keeps one :class:`~reference_broker.routing.table.RoutingTable` for each virtual host, by which every node
routes. Names in it are those within the virtual host. A command is checked when it is applied, against the state at
that place of the log: only there it is certain that the queue and the exchange of a new binding exist. The predeclared
exchanges are in every table and never in the log.

Values of arguments are raw octets, written as hexadecimal digits in JSON.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from reference_broker.access.names import can_be_name, qualified
from reference_broker.access.records import DEFAULT_VHOST
from reference_broker.routing.headers import wrong_match
from reference_broker.routing.records import Arguments, Binding, Destination, Exchange, ExchangeType
from reference_broker.routing.table import RoutingTable
from reference_broker.types import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareExchange:
    """Create ``exchange`` unless its name exists. ``node`` and ``correlation`` name the waiting call."""

    exchange: Exchange
    node: NodeId
    correlation: int
    vhost_name: str = DEFAULT_VHOST


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExchange:
    """Remove the exchange and its bindings; with ``if_unused`` only if it has no bindings."""

    name: str
    if_unused: bool
    node: NodeId
    correlation: int
    vhost_name: str = DEFAULT_VHOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Add the binding, if its source and its destination exist."""

    binding: Binding
    node: NodeId
    correlation: int
    vhost_name: str = DEFAULT_VHOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbind:
    """Remove the binding, if it is there."""

    binding: Binding
    node: NodeId
    correlation: int
    vhost_name: str = DEFAULT_VHOST


ExchangeCommand = DeclareExchange | DeleteExchange | Bind | Unbind
OPERATIONS: Final[dict[str, type[Any]]] = {
    "declare-exchange": DeclareExchange,
    "delete-exchange": DeleteExchange,
    "bind": Bind,
    "unbind": Unbind,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOutcome:
    """The outcome of a command. Without any of these it is success."""

    exchange: Exchange | None = None
    """After a declaration: the exchange of the name."""
    is_in_use: bool = False
    """The exchange has bindings, and stays."""
    missing: Destination | None = None
    """The missing end of the binding: its source, or else its destination."""
    wrong_match: bytes | None = None
    """The raw value of an ``x-match`` that a headers exchange does not know."""

    @property
    def is_refused(self) -> bool:
        """Whether nothing was done."""
        return self.is_in_use or self.missing is not None or self.wrong_match is not None


DONE: Final = ExchangeOutcome()


@dataclass(frozen=True, slots=True)
class ExchangeAnswer:
    """The node ``node`` only: the command with this correlation is done, with this outcome."""

    node: NodeId
    correlation: int
    outcome: ExchangeOutcome


def apply(table: RoutingTable, queues: Collection[str], command: ExchangeCommand) -> ExchangeOutcome:
    """Apply a command to the table of its virtual host; ``queues`` are the names in the cluster of the queues that
    exist."""
    match command:
        case DeclareExchange(exchange=exchange):
            return ExchangeOutcome(exchange=table.declare(exchange))
        case DeleteExchange(name=name):
            if command.if_unused and table.is_in_use(name):
                return ExchangeOutcome(is_in_use=True)
            table.delete(name)
        case Bind(binding=binding):
            refused = _refusal(table, queues, command.vhost_name, binding)
            if refused.is_refused:
                return refused
            table.bind(binding)
        case Unbind(binding=binding):
            table.unbind(binding)
    return DONE


def present_outcome(table: RoutingTable, queues: Collection[str], command: ExchangeCommand) -> ExchangeOutcome:
    """The outcome of a command that was applied where this node did not see it, as far as the state still tells."""
    match command:
        case DeclareExchange(exchange=exchange):
            return ExchangeOutcome(exchange=table.exchange(exchange.name))
        case DeleteExchange(name=name):
            return ExchangeOutcome(is_in_use=command.if_unused and table.is_in_use(name))
        case Bind(binding=binding):
            return _refusal(table, queues, command.vhost_name, binding)
        case Unbind():
            return DONE


def _refusal(table: RoutingTable, queues: Collection[str], vhost: str, binding: Binding) -> ExchangeOutcome:
    source, to = table.exchange(binding.source), binding.destination
    if source is None:
        return ExchangeOutcome(missing=Destination(binding.source, is_exchange=True))
    is_there = table.exchange(to.name) is not None if to.is_exchange else _is_queue(queues, vhost, to.name)
    if not is_there:
        return ExchangeOutcome(missing=to)
    if source.type is ExchangeType.HEADERS:
        return ExchangeOutcome(wrong_match=wrong_match(binding.arguments))
    return DONE


def _is_queue(queues: Collection[str], vhost: str, short_name: str) -> bool:
    return can_be_name(short_name) and qualified(vhost, short_name) in queues


def exchange_to_json(exchange: Exchange) -> dict[str, Any]:
    """An exchange as JSON."""
    return {
        "name": exchange.name,
        "type": str(exchange.type),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": _arguments_to_json(exchange.arguments),
    }


def exchange_from_json(raw: dict[str, Any]) -> Exchange:
    """Read back what :func:`exchange_to_json` wrote. Raises ValueError or KeyError for anything else."""
    return Exchange(
        name=raw["name"],
        type=ExchangeType(raw["type"]),
        durable=bool(raw["durable"]),
        auto_delete=bool(raw["auto_delete"]),
        internal=bool(raw["internal"]),
        arguments=_arguments_from_json(raw["arguments"]),
    )


def binding_to_json(binding: Binding) -> list[Any]:
    """A binding as JSON: source, destination, whether that is an exchange, key, arguments."""
    to = binding.destination
    return [binding.source, to.name, to.is_exchange, binding.key, _arguments_to_json(binding.arguments)]


def binding_from_json(raw: list[Any]) -> Binding:
    """Read back what :func:`binding_to_json` wrote. Raises ValueError or TypeError for anything else."""
    source, name, is_exchange, key, arguments = raw
    destination = Destination(str(name), bool(is_exchange))
    return Binding(source=str(source), destination=destination, key=str(key), arguments=_arguments_from_json(arguments))


def _arguments_to_json(arguments: Arguments) -> list[list[str]]:
    return [[name.decode(), value.hex()] for name, value in arguments]


def _arguments_from_json(raw: list[list[str]]) -> Arguments:
    return tuple((name.encode(), bytes.fromhex(value)) for name, value in raw)


def table_to_json(table: RoutingTable) -> dict[str, Any]:
    """The declarations in a virtual host, canonical."""
    return {
        "exchanges": [exchange_to_json(each) for each in table.declared()],
        "bindings": [binding_to_json(each) for each in table.bindings()],
    }


def table_from_json(raw: dict[str, Any]) -> RoutingTable:
    """Read back what :func:`table_to_json` wrote; a part that is missing is empty."""
    table = RoutingTable()
    for each in raw.get("exchanges", ()):
        table.declare(exchange_from_json(each))
    for each in raw.get("bindings", ()):
        table.bind(binding_from_json(each))
    return table
