"""Definitions: everything that was set up, as one JSON object. RabbitMQ's format, so either broker takes the other's.

The form of an import is checked here, and all that is wrong is told. What is there already stays: an import
(:mod:`reference_broker.management.importing`) adds and changes, and removes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

import reference_broker
from reference_broker.access import passwords
from reference_broker.access.names import can_be_name
from reference_broker.access.records import Vhost
from reference_broker.machines.cluster.metadata import MetadataMachine
from reference_broker.management import parameters, shapes
from reference_broker.management.parameters import OPERATOR_POLICY
from reference_broker.management.shapes import Row
from reference_broker.patterns import problem_with
from reference_broker.routing.records import Destination

PARTS: Final = (
    "vhosts", "users", "permissions", "topic_permissions", "parameters", "policies", "queues", "exchanges", "bindings",
)  # fmt: skip
"""The parts of definitions, in the order of an import."""
OF_A_VHOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")
"""The parts that belong to one virtual host."""
_TEXT: Final = "a text"
_NAME: Final = "a text of 1 to 255 octets"
_FLAG: Final = "true or false"
_OBJECT: Final = "an object"
_PATTERN: Final = "a regular expression"
_TAGS: Final = "words, as a list or with commas"
_HASH: Final = "a hash of rabbit_password_hashing_sha256"
_VHOST: Final = "a virtual host that exists or stands here"
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "vhosts": {"name": _NAME},
    "users": {"name": _NAME, "tags": _TAGS},
    "permissions": {"user": _NAME, "vhost": _VHOST, "configure": _PATTERN, "write": _PATTERN, "read": _PATTERN},
    "topic_permissions": {"user": _NAME, "vhost": _VHOST, "exchange": _TEXT, "write": _PATTERN, "read": _PATTERN},
    "parameters": {"component": _TEXT, "vhost": _VHOST, "name": _NAME, "value": _OBJECT},
    "policies": {"vhost": _VHOST, "name": _NAME, "pattern": _PATTERN, "definition": _OBJECT},
    "queues": {"name": _NAME, "vhost": _VHOST, "durable": _FLAG, "auto_delete": _FLAG, "arguments": _OBJECT},
    "exchanges": {
        "name": _NAME, "vhost": _VHOST, "type": _TEXT, "durable": _FLAG, "auto_delete": _FLAG, "arguments": _OBJECT,
    },
    "bindings": {
        "source": _NAME, "vhost": _VHOST, "destination": _NAME, "destination_type": "queue or exchange",
        "routing_key": _TEXT, "arguments": _OBJECT,
    },
}  # fmt: skip
"""The fields that each part needs."""


def export(machine: MetadataMachine) -> Row:
    """Everything that was set up, and belongs to no connection."""
    table = machine.access
    vhosts = [export_vhost(machine, name) for name in sorted(table.vhosts)]
    return {
        "rabbit_version": "3.10.0",
        "product_name": "reference_broker",
        "product_version": reference_broker.__version__,
        "users": [shapes.user(each) for _name, each in sorted(table.users.items())],
        "vhosts": [_vhost(each) for _name, each in sorted(table.vhosts.items())],
        "permissions": [asdict(each) for _key, each in sorted(table.permissions.items())],
        "topic_permissions": [asdict(each) for _key, each in sorted(table.topic_permissions.items())],
        "global_parameters": [],
        **{part: [row for of_vhost in vhosts for row in of_vhost[part]] for part in OF_A_VHOST},
    }


def export_vhost(machine: MetadataMachine, vhost: str) -> Row:
    """The parts that belong to one virtual host."""
    policies = [each for _key, each in sorted(machine.policies.items()) if each.vhost == vhost]
    queues = [each for each in machine.queues_in(vhost) if not each.exclusive]
    own = {Destination(each.short_name) for each in machine.queues_in(vhost) if each.exclusive}
    table = machine.routing(vhost)
    return {
        "parameters": parameters.of_vhost(machine, vhost),
        "policies": [shapes.policy(each) for each in policies if not each.operator],
        "queues": [
            {
                "name": each.short_name, "vhost": vhost, "durable": each.durable, "auto_delete": each.auto_delete,
                "arguments": shapes.declared_arguments(each),
            }
            for each in queues
        ],
        "exchanges": [shapes.exchange(vhost, each) for each in table.declared()],
        "bindings": [
            {key: value for key, value in shapes.binding(vhost, each).items() if key != "properties_key"}
            for each in table.bindings()
            if each.destination not in own
        ],
    }  # fmt: skip


def _vhost(found: Vhost) -> Row:
    return {"name": found.name, "description": found.description, "tags": list(found.tags)}


def place_of(part: str, row: Row) -> Row:
    """What the path of a request names, out of a row of definitions."""
    match part:
        case "bindings":
            kind = "q" if row["destination_type"] == "queue" else "e"
            return {"name": row["source"], "destination": row["destination"], "kind": kind}
        case "permissions" | "topic_permissions":
            return {"name": row["user"]}
        case "vhosts":
            return {"vhost": row["name"]}
        case _:
            return {"name": row["name"]}


def problems(given: object, vhosts: set[str]) -> list[str]:
    """Everything that is wrong with definitions, each as "part[number].key: value: rule"; ``vhosts`` exist already."""
    if not isinstance(given, dict):
        return ["the definitions are no JSON object"]
    found = []
    vhosts = vhosts | _names_of(given.get("vhosts"))
    for part in PARTS:
        rows = given.get(part, [])
        if not isinstance(rows, list):
            found.append(f"{part}: must be a list")
            continue
        for number, row in enumerate(rows):
            found += [f"{part}[{number}]{problem}" for problem in _wrong(row, _FIELDS[part], vhosts)]
            found += [f"{part}[{number}]{problem}" for problem in _MORE.get(part, _nothing)(row)]
    return found or [*_contradictions(given)]


def _wrong(row: object, fields: dict[str, str], vhosts: set[str]) -> Iterator[str]:
    if not isinstance(row, dict):
        yield ": must be an object"
        return
    for key, kind in fields.items():
        if key not in row and (key, kind) == ("arguments", _OBJECT):
            continue
        if key not in row:
            yield f".{key}: is missing: must be {kind}"
        elif not (_is_vhost(row[key], vhosts) if kind is _VHOST else _KINDS[kind](row[key])):
            yield f".{key}: {row[key]!r}: must be {kind}{_why(kind, row[key])}"


def _nothing(_row: Any) -> Iterator[str]:
    yield from ()


def _wrong_secret(row: Any) -> Iterator[str]:
    """What is wrong with the password of a user, or its hash, of which one must be there."""
    if isinstance(row, dict):
        fields = {"password": _TEXT} if "password" in row else {"password_hash": _HASH}
        yield from _wrong(row, fields, set())


def _wrong_policy(row: Any) -> Iterator[str]:
    """What is wrong with the expression of an operator's policy, which is the value of a parameter."""
    value = row.get("value") if isinstance(row, dict) and row.get("component") == OPERATOR_POLICY else None
    if isinstance(value, dict):
        yield from (f".value{problem}" for problem in _wrong(value, {"pattern": _PATTERN}, set()))


_MORE: Final[dict[str, Callable[[Any], Iterator[str]]]] = {"parameters": _wrong_policy, "users": _wrong_secret}


def _why(kind: str, value: Any) -> str:
    """What is wrong with an expression, for the end of a sentence."""
    return f": {problem_with(value)}" if kind is _PATTERN and isinstance(value, str) else ""


def _names_of(vhosts: Any) -> set[str]:
    rows = vhosts if isinstance(vhosts, list) else ()
    return {row["name"] for row in rows if isinstance(row, dict) and _is_name(row.get("name"))}


def _is_vhost(value: Any, vhosts: set[str]) -> bool:
    return isinstance(value, str) and value in vhosts


def _contradictions(given: Row) -> Iterator[str]:
    """Rows of one name that differ from each other."""
    for part in ("users", "vhosts", "queues", "exchanges", "policies"):
        seen: dict[tuple[str, str], Row] = {}
        for number, row in enumerate(given.get(part, [])):
            if seen.setdefault((row.get("vhost", ""), row["name"]), row) != row:
                yield f"{part}[{number}]: {row['name']!r} stands here twice, and differs"


def tags_of(value: Any) -> list[str]:
    """Tags as a list: older definitions have words with commas."""
    return [tag.strip() for tag in value.split(",") if tag.strip()] if isinstance(value, str) else list(value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode("utf-8", "replace")) <= 255 and can_be_name(value)


_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    _TEXT: lambda value: isinstance(value, str),
    _NAME: _is_name,
    _FLAG: lambda value: isinstance(value, bool),
    _OBJECT: lambda value: isinstance(value, dict) or value == [],
    _PATTERN: lambda value: isinstance(value, str) and not problem_with(value),
    _TAGS: lambda value: (
        isinstance(value, str) or (isinstance(value, list) and all(isinstance(tag, str) for tag in value))
    ),
    _HASH: lambda value: isinstance(value, str) and (not value or passwords.is_hash(value)),
    "queue or exchange": lambda value: value in ("queue", "exchange"),
}
