"""Queues, exchanges, bindings, users and the rest as RabbitMQ's HTTP API shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from pamqp import decode

from reference_broker.access import passwords
from reference_broker.access.records import NO_LIMIT, User, Vhost
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.policies import Policy
from reference_broker.routing.records import Arguments, Binding, Exchange
from reference_broker.types import NodeId

Row = dict[str, Any]
_NO_COUNTS: Final = dict.fromkeys(("ready", "unacked", "consumers", "ready_bytes", "enqueued", "settled"), 0)


def arguments(found: Arguments) -> Row:
    """The arguments of an exchange or a binding: raw fields as JSON."""
    return {name.decode("utf-8", "replace"): json_value(decode.embedded_value(value)[1]) for name, value in found}


def json_value(value: Any) -> Any:
    """A field value as JSON."""
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [json_value(each) for each in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


Nodes = Mapping[NodeId, tuple[str, bool]]
"""The name of each node, and whether it is up."""


def declared_arguments(record: QueueRecord) -> Row:
    """The arguments of a queue's declaration. A classic queue needs none for its kind."""
    kind = {} if record.kind == "classic" else {"x-queue-type": record.kind}
    return {**kind, **dict(record.arguments)}


Policies = tuple[Policy | None, Policy | None]
"""The policies in force of users and of operators."""


def queue(record: QueueRecord, counts: Row | None, policies: Policies, nodes: Nodes) -> Row:
    """A queue. ``counts`` are those of its leader, None if no leader answered."""
    known = counts or _NO_COUNTS
    home = nodes[record.leader][0] if record.leader in nodes else ""
    node = counts["node"] if counts is not None else home
    members = [nodes[each] for each in record.members if each in nodes]
    place = {
        "leader": node,
        "members": [name for name, _ in members],
        "online": [name for name, is_up in members if is_up],
    }
    return {
        "name": record.short_name,
        "vhost": record.vhost,
        "type": record.kind,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": bool(record.exclusive),
        "arguments": declared_arguments(record),
        "node": node,
        "state": "running" if counts is not None else "down",
        "messages": known["ready"] + known["unacked"],
        "messages_ready": known["ready"],
        "messages_unacknowledged": known["unacked"],
        "message_bytes_ready": known["ready_bytes"],
        "message_stats": {"publish": known["enqueued"], "ack": known["settled"]},
        "consumers": known["consumers"],
        "policy": policies[0].name if policies[0] else None,
        "operator_policy": policies[1].name if policies[1] else None,
        "effective_policy_definition": _effective(policies),
        **(place if record.kind != "classic" else {}),
        **_mirrors(record, policies, nodes),
        **_keys(known),
    }


def _mirrors(record: QueueRecord, policies: Policies, nodes: Nodes) -> Row:
    """The mirrors of a queue that has some, or should have some. RabbitMQ calls them slaves."""
    if not record.mirrors and "ha-mode" not in _effective(policies):
        return {}
    known = [mirror for mirror in record.mirrors if mirror.node in nodes]
    return {
        "slave_nodes": [nodes[mirror.node][0] for mirror in known],
        "synchronised_slave_nodes": [nodes[mirror.node][0] for mirror in known if mirror.is_synchronised],
    }


def _keys(counts: Row) -> Row:
    """How many keys a queue with keys has, and how many of these have a message out."""
    if counts.get("keys") is None:
        return {}
    return {"keys": counts["keys"], "keys_reserved": counts["reserved_keys"]}


def _effective(policies: Policies) -> Row:
    """Both definitions as one: of two limits the lower."""
    found: Row = {}
    for key, value in (setting for policy in policies if policy for setting in policy.definition):
        found[key] = min(found[key], value) if key in found else value
    return found


def exchange(vhost: str, found: Exchange, policy: Policy | None = None) -> Row:
    """An exchange, and the policy in force."""
    return {
        "name": found.name,
        "vhost": vhost,
        "type": str(found.type),
        "durable": found.durable,
        "auto_delete": found.auto_delete,
        "internal": found.internal,
        "arguments": arguments(found.arguments),
        **({"policy": policy.name} if policy is not None else {}),
    }


def binding(vhost: str, found: Binding) -> Row:
    """A binding. Its properties key names it in an address: the routing key, and a mark of the arguments."""
    return {
        "source": found.source,
        "vhost": vhost,
        "destination": found.destination.name,
        "destination_type": "exchange" if found.destination.is_exchange else "queue",
        "routing_key": found.key,
        "arguments": arguments(found.arguments),
        "properties_key": properties_key(found),
    }


def default_binding(record: QueueRecord) -> Row:
    """The binding that the default exchange has to every queue."""
    name = record.short_name
    return {
        "source": "", "vhost": record.vhost, "destination": name, "destination_type": "queue", "routing_key": name,
        "arguments": {}, "properties_key": quote(name, safe="") or "~",
    }  # fmt: skip


def properties_key(found: Binding) -> str:
    """The name of a binding among those of its source and destination."""
    key = quote(found.key, safe="")
    if found.arguments:
        return f"{key}~{sha256(repr(found.arguments).encode()).hexdigest()[:16]}"
    return key or "~"


def user(found: User) -> Row:
    """A user, with the hash of the password, as for RabbitMQ's administrators."""
    limits = {
        key: value
        for key, value in (("max-connections", found.max_connections), ("max-channels", found.max_channels))
        if value != NO_LIMIT
    }
    return {
        "name": found.name,
        "password_hash": found.password_hash,
        "hashing_algorithm": passwords.ALGORITHM,
        "tags": list(found.tags),
        "limits": limits,
    }


def vhost(found: Vhost, queues: list[Row], nodes: Nodes) -> Row:
    """A virtual host with its queues."""
    totals = {key: sum(row[key] for row in queues) for key in ("messages", "messages_ready", "messages_unacknowledged")}
    return {
        "name": found.name,
        "description": found.description,
        "tags": list(found.tags),
        "metadata": {"description": found.description, "tags": list(found.tags)},
        "tracing": False,
        "cluster_state": {name: "running" for name, is_up in nodes.values() if is_up},
        **totals,
    }


def vhost_limits(found: Vhost) -> Row:
    """The limits of a virtual host."""
    limits = {"max-connections": found.max_connections, "max-queues": found.max_queues}
    return {"vhost": found.name, "value": {key: value for key, value in limits.items() if value != NO_LIMIT}}


def policy(found: Policy) -> Row:
    """A policy."""
    return {
        "vhost": found.vhost, "name": found.name, "pattern": found.pattern, "apply-to": found.apply_to,
        "definition": dict(found.definition), "priority": found.priority,
    }  # fmt: skip
