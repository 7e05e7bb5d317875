"""What the cluster would say to definitions, told before anything is done. Pure.

Rows are checked by what they will be checked by when they are done: queues and exchanges by the code that answers their
declarations, with the octets that the declaration would have. Each row sees what the rows before it bring.

Some of what a RabbitMQ exports has nothing here that could take it. That is *left out*, or taken without an effect, and
the answer says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import error
from typing import Any, Final

from pamqp import base, frame

from reference_broker.access.names import qualified
from reference_broker.access.records import NO_LIMIT
from reference_broker.amqp import exchange_methods
from reference_broker.amqp.errors import ProtocolError
from reference_broker.amqp.events import BindingChange, ExchangeDeclare, QueueDeclare
from reference_broker.amqp.fields import decode_method
from reference_broker.machines.cluster.metadata import MetadataMachine, QueueRecord
from reference_broker.management import writing
from reference_broker.management.definitions import PARTS, place_of
from reference_broker.management.errors import ApiError
from reference_broker.management.parameters import OPERATOR_POLICY, VHOST_LIMITS
from reference_broker.management.shapes import Row
from reference_broker.node.clients import exchange_requests
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.declaration import DeclarationError
from reference_broker.node.links.peer_requests import RequestError
from reference_broker.node.operations.policy_check import read_policy, without_effect
from reference_broker.queues.port import QueueKind
from reference_broker.routing.headers import wrong_match
from reference_broker.routing.records import PREDECLARED, Binding, ExchangeType
from reference_broker.types import NOBODY

_RESERVED: Final = "amq."
_GLOBAL: Final = ("cluster_name", "internal_cluster_id")
_FRAME_HEAD: Final = 7
_FRAME_END: Final = 1
_ASKER: Final = (NOBODY, 0, 0)
_OF_A_USER: Final = ("max-connections", "max-channels")


@dataclass(frozen=True, slots=True)
class _Existing:
    """As much of a queue as a declaration is compared with."""

    record: QueueRecord
    kind: QueueKind


@dataclass(slots=True)
class Trial:
    """The cluster as it will be when the rows so far are done."""

    machine: MetadataMachine
    kinds: Mapping[str, QueueKind]
    left_out: Mapping[str, str]
    """The rows that are not done, each with the reason."""
    users: set[str] = field(default_factory=set)
    queues: set[tuple[str, str]] = field(default_factory=set)
    exchanges: dict[tuple[str, str], str] = field(default_factory=dict)
    """The type of each new exchange, by virtual host and name."""
    limits: dict[str, int] = field(default_factory=dict)
    """The most queues of each virtual host whose limits are among the rows."""
    new: Counter[str] = field(default_factory=Counter)
    """New queues of each virtual host."""

    def problems(self, given: Row) -> Iterator[str]:
        """For each row what is wrong with it, empty if nothing is: whoever goes through them may pause after each."""
        for part in PARTS:
            check = _CHECKS[part]
            for number, row in enumerate(given.get(part, [])):
                name = f"{part}[{number}]"
                problem = None if name in self.left_out else _problem(check, self, row)
                yield "" if problem is None else f"{name}: {problem}"

    def type_of(self, vhost: str, name: str) -> str | None:
        """The type of an exchange."""
        known = self.machine.routing(vhost).exchange(name)
        return self.exchanges.get((vhost, name)) if known is None else str(known.type)


def _problem(check: _Check, trial: Trial, row: Row) -> str | None:
    try:
        return check(trial, row)
    except (ApiError, DeclarationError, RequestError, ProtocolError) as refused:
        return str(refused)
    except (ValueError, TypeError, OverflowError, RecursionError, error) as wrong:
        return f"AMQP has no such value: {wrong}"


_Check = Callable[[Trial, Row], str | None]


def _vhost(_trial: Trial, _row: Row) -> None:
    """Its form is all that counts."""


def _user(trial: Trial, row: Row) -> str | None:
    trial.users.add(row["name"])
    return _wrong_limits(row.get("limits") or {}, _OF_A_USER)


def _wrong_limits(limits: Any, known: tuple[str, ...]) -> str | None:
    if not isinstance(limits, dict):
        return f"limits {limits!r}: must be an object"
    for key, value in limits.items():
        if key not in known:
            return f"{key!r} is no such limit: use {' or '.join(known)}"
        if writing.number(limits, key) < NO_LIMIT:
            return f"{key} {value!r} is no limit: give a whole number, or -1 for no limit"
    return None


def _permission(trial: Trial, row: Row) -> str | None:
    name = row["user"]
    return None if name in trial.users or name in trial.machine.access.users else f"there is no user {name!r}"


def _parameter(trial: Trial, row: Row) -> str | None:
    if row["component"] == OPERATOR_POLICY:
        return _checked_policy(row["name"], row["value"], operator=True)
    limits = row["value"] or {}
    if (problem := _wrong_limits(limits, writing.LIMITS_OF_VHOSTS)) is None and "max-queues" in limits:
        trial.limits[row["vhost"]] = limits["max-queues"]
    return problem


def _policy(_trial: Trial, row: Row) -> str | None:
    return _checked_policy(row["name"], row, operator=False)


def _checked_policy(name: str, row: Row, *, operator: bool) -> str | None:
    read_policy({"name": name, **writing.policy_of(row)}, operator=operator)
    return None


def _queue(trial: Trial, row: Row) -> str | None:
    vhost, name = row["vhost"], row["name"]
    method, _payload = _as_received(writing.declared_queue(row, row))
    event = QueueDeclare(1, name, False, method.durable, False, method.auto_delete, False, dict(method.arguments or {}))
    record = trial.machine.queue(vhost, name)
    if record is not None:
        declaration.check(event, _Existing(record, trial.kinds[record.kind]), _ASKER)  # type: ignore[arg-type]
    elif (vhost, name) not in trial.queues:
        declaration.new_record(event, qualified(vhost, name), [], lambda _bits: 1, trial.kinds, _ASKER)
        trial.queues.add((vhost, name))
        trial.new[vhost] += 1
        _check_limit(trial, vhost, name)
    return None


def _check_limit(trial: Trial, vhost: str, name: str) -> None:
    known = trial.machine.access.vhosts.get(vhost)
    limit = trial.limits.get(vhost, known.max_queues if known else NO_LIMIT)
    if limit != NO_LIMIT:
        there = len(trial.machine.queues_in(vhost)) + trial.new[vhost] - 1
        declaration.check_limit(qualified(vhost, name), there, limit)


def _exchange(trial: Trial, row: Row) -> str | None:
    vhost, name = row["vhost"], row["name"]
    method, payload = _as_received(writing.declared_exchange(row, row))
    event = exchange_methods.event_of(method, payload, 1, "")
    assert isinstance(event, ExchangeDeclare)
    existing = trial.machine.routing(vhost).exchange(name)
    exchange_requests.check(event, f"exchange '{name}' in vhost '{vhost}'", existing)
    trial.exchanges.setdefault((vhost, name), event.type)
    return None


def _binding(trial: Trial, row: Row) -> str | None:
    vhost, source = row["vhost"], row["source"]
    if (kind := trial.type_of(vhost, source)) is None:
        return f"there is no exchange {source!r} in vhost {vhost!r}"
    if row["destination_type"] == "exchange" and trial.type_of(vhost, row["destination"]) is None:
        return f"there is no exchange {row['destination']!r} in vhost {vhost!r}"
    if kind == ExchangeType.HEADERS and wrong_match(binding_of(row).arguments) is not None:
        return f"x-match {row['arguments'].get('x-match')!r}: must be all, any, all-with-x or any-with-x"
    return None


def binding_of(row: Row) -> Binding:
    """The binding of a row, as the broker would make it."""
    method, payload = _as_received(writing.binding(place_of("bindings", row), row))
    event = exchange_methods.event_of(method, payload, 1, "")
    assert isinstance(event, BindingChange)
    return Binding(source=event.source, destination=event.destination, key=event.routing_key, arguments=event.fields)


def _as_received(asked: base.Frame) -> tuple[Any, bytes]:
    """A method as the broker would read it, and its octets."""
    payload = frame.marshal(asked, 1)[_FRAME_HEAD:-_FRAME_END]
    return decode_method(payload), payload


_CHECKS: Final[dict[str, _Check]] = {
    "vhosts": _vhost,
    "users": _user,
    "permissions": _permission,
    "topic_permissions": _permission,
    "parameters": _parameter,
    "policies": _policy,
    "exchanges": _exchange,
    "queues": _queue,
    "bindings": _binding,
}


# What is left out


def left_out(given: Row, machine: MetadataMachine) -> dict[str, str]:
    """The rows of definitions that are not done, each with the reason."""
    found = {}
    for number, row in enumerate(given.get("parameters", [])):
        if row["component"] not in (OPERATOR_POLICY, VHOST_LIMITS):
            found[f"parameters[{number}]"] = f"nothing here does what the component {row['component']!r} does"
    for part in ("queues", "exchanges"):
        for number, row in enumerate(given.get(part, [])):
            if row["name"].startswith(_RESERVED) and row["name"] not in PREDECLARED:
                found[f"{part}[{number}]"] = f"nobody can declare {row['name']!r}: such names are the broker's"
    there = {
        (row["vhost"], row["name"])
        for number, row in enumerate(given.get("queues", []))
        if f"queues[{number}]" not in found
    }
    for number, row in enumerate(given.get("bindings", [])):
        if (why := _unbound(row, there, machine)) is not None:
            found[f"bindings[{number}]"] = why
    return found


def _unbound(row: Row, queues: set[tuple[str, str]], machine: MetadataMachine) -> str | None:
    """Why a binding is left out: a RabbitMQ exports those of exclusive queues, and not these queues."""
    vhost, name, source = row["vhost"], row["destination"], row["source"]
    if row["destination_type"] == "queue" and (vhost, name) not in queues and machine.queue(vhost, name) is None:
        return f"there is no queue {name!r} in vhost {vhost!r}, here or among the definitions"
    names = (source, name) if row["destination_type"] == "exchange" else (source,)
    if any(each.startswith(_RESERVED) and each not in PREDECLARED for each in names):
        return "nobody can declare its exchange: such names are the broker's"
    return None


def notes(given: Row, gone: Mapping[str, str]) -> list[Row]:
    """What of definitions is left out or has no effect, and why."""
    found = [{"row": row, "why": why} for row, why in gone.items()]
    for number, row in enumerate(given.get("policies", [])):
        found += _idle(f"policies[{number}]", row["definition"])
    for number, row in enumerate(given.get("parameters", [])):
        if row["component"] == OPERATOR_POLICY:
            found += _idle(f"parameters[{number}]", (row["value"] or {}).get("definition") or {})
    for number, row in enumerate(given.get("global_parameters", [])):
        if not isinstance(row, dict) or row.get("name") not in _GLOBAL:
            found.append({"row": f"global_parameters[{number}]", "why": "nothing here would read it"})
    return found


def _idle(row: str, definition: Any) -> list[Row]:
    idle = without_effect(definition if isinstance(definition, dict) else {})
    return [{"row": row, "key": key, "why": why} for key, why in idle.items()]
