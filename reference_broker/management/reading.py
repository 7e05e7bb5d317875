"""The requests that change nothing: each gives rows, or one object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

import reference_broker
from reference_broker.access.records import Tag
from reference_broker.management import health, parameters, shapes
from reference_broker.management.cluster import ManagedCluster
from reference_broker.management.definitions import export, export_vhost
from reference_broker.management.errors import NOT_AUTHORISED, NOT_FOUND, ApiError
from reference_broker.management.shapes import Row
from reference_broker.node.operations.policy_check import without_effect

EVERYBODY, POLICYMAKER, MONITORING, ADMINISTRATOR = (
    Tag.MANAGEMENT, Tag.POLICYMAKER, Tag.MONITORING, Tag.ADMINISTRATOR,
)  # fmt: skip
_CONTEXT: Final = "Metrics, management API and status page"
Reader = Callable[[ManagedCluster, Row], Awaitable[Any]]
"""Answers a request, whose parameters are the names in its path and ``user``. Raises :class:`ApiError`."""


def one(rows: Iterable[Row], **wanted: str) -> Row:
    """The row with these values. Raises :class:`ApiError` 404."""
    found = next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)
    if found is None:
        raise ApiError(NOT_FOUND, "Not Found")
    return found


def check_vhost(cluster: ManagedCluster, at: Row) -> None:
    """Raises :class:`ApiError` for a virtual host in the path: 404 if it does not exist, 401 if it is not for the
    user."""
    name = at.get("vhost")
    if name is None:
        return
    if name not in cluster.machine.access.vhosts:
        raise ApiError(NOT_FOUND, f"vhost {name!r} not found")
    if not (at["administers"] or cluster.machine.access.may_open(at["user"], name)):
        raise ApiError(NOT_AUTHORISED, "User not authorised to access virtual host")


def _sees(cluster: ManagedCluster, at: Row, vhost: str) -> bool:
    """Whether lists show the user what is in a virtual host."""
    return at["monitors"] or cluster.machine.access.may_open(at["user"], vhost)


def _visible(cluster: ManagedCluster, at: Row, rows: Iterable[Row]) -> list[Row]:
    """The rows of the virtual host in the path, or of all that the user may see."""
    if "vhost" in at:
        return [row for row in rows if _vhost_of(row) == at["vhost"]]
    return [row for row in rows if _sees(cluster, at, _vhost_of(row))]


def _vhost_of(row: Row) -> str:
    return str(row["vhost"] if "vhost" in row else row["queue"]["vhost"])


async def overview(cluster: ManagedCluster, at: Row) -> Row:
    """The cluster at a glance."""
    queues, connections = await _queues(cluster, at), await _connection_rows(cluster, at)
    nodes = await cluster.node_rows()
    listeners = [row for node in nodes for row in node.get("listeners", ())]
    totals = {key: sum(row[key] for row in queues) for key in ("messages", "messages_ready", "messages_unacknowledged")}
    counters = [node.get("message_stats", {}) for node in nodes]
    told = {key: sum(each.get(key, 0) for each in counters) for key in ("deliver", "redeliver")}
    told |= {key: sum(row["message_stats"][key] for row in queues) for key in ("publish", "ack")}
    return {
        "cluster_name": cluster.shard.config.cluster,
        "node": cluster.shard.config.name,
        "product_name": "reference_broker",
        "product_version": reference_broker.__version__,
        "management_version": reference_broker.__version__,
        "rabbitmq_version": "3.10.0",
        "object_totals": {
            "connections": len(connections),
            "channels": sum(row["channels"] for row in connections),
            "exchanges": len(await _exchanges(cluster, at)),
            "queues": len(queues),
            "consumers": sum(row["consumers"] for row in queues),
        },
        "queue_totals": totals,
        "message_stats": cluster.rates.beside(told, "overview", at["user"]),
        "exchange_types": [{"name": name, "enabled": True} for name in ("direct", "fanout", "headers", "topic")],
        "listeners": listeners,
        "contexts": [
            {"node": row["node"], "description": _CONTEXT, "path": "/", "ip": row["ip_address"], "port": row["port"]}
            for row in listeners
            if row["protocol"] == "http"
        ],
        "alarms": cluster.shard.alarms.reason,
        "findings": [{"node": node["name"], **each} for node in nodes for each in node.get("findings", ())],
    }


async def whoami(cluster: ManagedCluster, at: Row) -> Row:
    """The user who asks."""
    known = cluster.machine.access.users.get(at["user"])
    tags = list(known.tags) if known else [str(Tag.ADMINISTRATOR)]
    return {"name": at["user"], "tags": tags}


async def _queue_bindings(cluster: ManagedCluster, at: Row) -> list[Row]:
    one(await _queues(cluster, at), name=at["name"])
    return await _bound(cluster, at, destination_type="queue", destination=at["name"])


async def _bindings_from(cluster: ManagedCluster, at: Row) -> list[Row]:
    one(await _exchanges(cluster, at), name=_exchange(at))
    return await _bound(cluster, at, source=_exchange(at))


async def _bindings_to(cluster: ManagedCluster, at: Row) -> list[Row]:
    one(await _exchanges(cluster, at), name=_exchange(at))
    return await _bound(cluster, at, destination_type="exchange", destination=_exchange(at))


async def _bindings_between(cluster: ManagedCluster, at: Row) -> list[Row]:
    kind = "queue" if at["kind"] == "q" else "exchange"
    return await _bound(cluster, at, destination_type=kind, destination=at["destination"], source=_exchange(at))


async def _binding(cluster: ManagedCluster, at: Row) -> Row:
    """One binding by its properties key, with or without its percents."""
    rows = await _bindings_between(cluster, at)
    return next((row for row in rows if row["properties_key"] == at["key"]), None) or one(
        rows, properties_key=quote(at["key"], safe="~")
    )


async def _bound(cluster: ManagedCluster, at: Row, **wanted: str) -> list[Row]:
    """The bindings with these values."""
    return [row for row in await _bindings(cluster, at) if all(row[key] == value for key, value in wanted.items())]


def _exchange(at: Row) -> str:
    """The default exchange has the name amq.default in paths."""
    name = str(at["name"])
    return "" if name == "amq.default" else name


async def _users(cluster: ManagedCluster, _at: Row) -> list[Row]:
    return [shapes.user(each) for _name, each in sorted(cluster.machine.access.users.items())]


async def _users_without_permissions(cluster: ManagedCluster, at: Row) -> list[Row]:
    known = {user for user, _vhost in cluster.machine.access.permissions}
    return [row for row in await _users(cluster, at) if row["name"] not in known]


async def _user_limits(cluster: ManagedCluster, at: Row) -> list[Row]:
    return [{"user": row["name"], "value": row["limits"]} for row in await _users(cluster, at) if row["limits"]]


async def _parameters(cluster: ManagedCluster, at: Row) -> list[Row]:
    vhosts = sorted(cluster.machine.access.vhosts)
    return _visible(cluster, at, [row for name in vhosts for row in parameters.of_vhost(cluster.machine, name)])


async def _global_parameters(cluster: ManagedCluster, _at: Row) -> list[Row]:
    return parameters.of_cluster(cluster)


async def _feature_flags(_cluster: ManagedCluster, _at: Row) -> list[Row]:
    return parameters.feature_flags()


async def _vhosts(cluster: ManagedCluster, at: Row) -> list[Row]:
    queues: dict[str, list[Row]] = {}
    for row in await cluster.queues():
        queues.setdefault(row["vhost"], []).append(row)
    return [
        shapes.vhost(each, queues.get(name, []), cluster.nodes)
        for name, each in sorted(cluster.machine.access.vhosts.items())
        if _sees(cluster, at, name)
    ]


async def _vhost(cluster: ManagedCluster, at: Row) -> Row:
    found = one(await _vhosts(cluster, at | {"monitors": True}), name=at["name"])
    check_vhost(cluster, at | {"vhost": at["name"]})
    return found


async def _vhost_limits(cluster: ManagedCluster, at: Row) -> list[Row]:
    rows = [shapes.vhost_limits(each) for _name, each in sorted(cluster.machine.access.vhosts.items())]
    return [row for row in _visible(cluster, at, rows) if row["value"]]


async def _permissions(cluster: ManagedCluster, _at: Row) -> list[Row]:
    return [asdict(each) for _key, each in sorted(cluster.machine.access.permissions.items())]


async def _topic_permissions(cluster: ManagedCluster, _at: Row) -> list[Row]:
    return [asdict(each) for _key, each in sorted(cluster.machine.access.topic_permissions.items())]


def _policies_of(*, operator: bool) -> Reader:
    async def read(cluster: ManagedCluster, at: Row) -> list[Row]:
        policies = [each for _key, each in sorted(cluster.machine.policies.items()) if each.operator is operator]
        idle = [without_effect(dict(each.definition)) for each in policies]
        rows = [
            shapes.policy(each) | ({"without_effect": why} if why else {})
            for each, why in zip(policies, idle, strict=True)
        ]
        return _visible(cluster, at, rows)

    return read


def _rows(kind: str) -> Reader:
    """The rows of all nodes; only those of its own for a user who may not see those of others."""

    async def read(cluster: ManagedCluster, at: Row) -> list[Row]:
        return _own(cluster, at, await cluster.rows(kind))

    return read


def _own(cluster: ManagedCluster, at: Row, rows: list[Row]) -> list[Row]:
    return [row for row in _visible(cluster, at, rows) if at["monitors"] or row.get("user") in (None, at["user"])]


async def _queues(cluster: ManagedCluster, at: Row) -> list[Row]:
    return _visible(cluster, at, await cluster.queues())


async def _nodes(cluster: ManagedCluster, _at: Row) -> list[Row]:
    return await cluster.node_rows()


async def _exchanges(cluster: ManagedCluster, at: Row) -> list[Row]:
    return _visible(cluster, at, cluster.exchanges())


async def _bindings(cluster: ManagedCluster, at: Row) -> list[Row]:
    return _visible(cluster, at, cluster.bindings())


def _one_of(read: Reader, **keys: str) -> Reader:
    """One row of a list: ``keys`` are its names of what the path names."""

    async def found(cluster: ManagedCluster, at: Row) -> Row:
        names = at | ({"name": _exchange(at)} if read is _exchanges else {})
        return one(await read(cluster, at), **{key: names[value] for key, value in keys.items()})

    return found


def _those_of(read: Reader, **keys: str) -> Reader:
    """The rows of a list that belong to what the path names."""

    async def found(cluster: ManagedCluster, at: Row) -> list[Row]:
        return [row for row in await read(cluster, at) if all(row[key] == at[value] for key, value in keys.items())]

    return found


def _of_user(read: Reader) -> Reader:
    """The rows of a list that belong to a user who exists."""

    async def found(cluster: ManagedCluster, at: Row) -> list[Row]:
        one(await _users(cluster, at), name=at["name"])
        return [row for row in await read(cluster, at) if row["user"] == at["name"]]

    return found


async def _topic_permissions_in(cluster: ManagedCluster, at: Row) -> list[Row]:
    found: list[Row] = await _those_of(_topic_permissions, user="name", vhost="vhost")(cluster, at)
    if not found:
        raise ApiError(NOT_FOUND, "Not Found")
    return found


async def _channels_of(cluster: ManagedCluster, at: Row) -> list[Row]:
    one(await _connection_rows(cluster, at), name=at["name"])
    return [row for row in await _channel_rows(cluster, at) if row["connection_details"]["name"] == at["name"]]


async def _definitions(cluster: ManagedCluster, at: Row) -> Row:
    if "vhost" not in at:
        return export(cluster.machine)
    parts = export_vhost(cluster.machine, at["vhost"])
    return {part: [{key: row[key] for key in row if key != "vhost"} for row in rows] for part, rows in parts.items()}


async def _extensions(_cluster: ManagedCluster, _at: Row) -> list[Row]:
    return []


async def _cluster_name(cluster: ManagedCluster, _at: Row) -> Row:
    return {"name": cluster.shard.config.cluster}


async def _connection_rows(cluster: ManagedCluster, at: Row) -> list[Row]:
    return _own(cluster, at, await cluster.connections())


_channel_rows, _consumer_rows = _rows("channels"), _rows("consumers")
_policies, _operator_policies = _policies_of(operator=False), _policies_of(operator=True)
READERS: Final[dict[str, tuple[Tag, Reader]]] = {
    "overview": (EVERYBODY, overview),
    "cluster-name": (EVERYBODY, _cluster_name),
    "extensions": (EVERYBODY, _extensions),
    "whoami": (EVERYBODY, whoami),
    "nodes": (MONITORING, _nodes),
    "nodes/{name}": (MONITORING, _one_of(_nodes, name="name")),
    "connections": (EVERYBODY, _connection_rows),
    "connections/username/{name}": (EVERYBODY, _those_of(_connection_rows, user="name")),
    "connections/{name}": (EVERYBODY, _one_of(_connection_rows, name="name")),
    "connections/{name}/channels": (EVERYBODY, _channels_of),
    "channels": (EVERYBODY, _channel_rows),
    "channels/{name}": (EVERYBODY, _one_of(_channel_rows, name="name")),
    "consumers": (EVERYBODY, _consumer_rows),
    "consumers/{vhost}": (EVERYBODY, _consumer_rows),
    "exchanges": (EVERYBODY, _exchanges),
    "exchanges/{vhost}": (EVERYBODY, _exchanges),
    "exchanges/{vhost}/{name}": (EVERYBODY, _one_of(_exchanges, name="name")),
    "exchanges/{vhost}/{name}/bindings/source": (EVERYBODY, _bindings_from),
    "exchanges/{vhost}/{name}/bindings/destination": (EVERYBODY, _bindings_to),
    "queues": (EVERYBODY, _queues),
    "queues/{vhost}": (EVERYBODY, _queues),
    "queues/{vhost}/{name}": (EVERYBODY, _one_of(_queues, name="name")),
    "queues/{vhost}/{name}/bindings": (EVERYBODY, _queue_bindings),
    "bindings": (EVERYBODY, _bindings),
    "bindings/{vhost}": (EVERYBODY, _bindings),
    "bindings/{vhost}/e/{name}/{kind:[qe]}/{destination}": (EVERYBODY, _bindings_between),
    "bindings/{vhost}/e/{name}/{kind:[qe]}/{destination}/{key}": (EVERYBODY, _binding),
    "vhosts": (EVERYBODY, _vhosts),
    "vhosts/{name}": (EVERYBODY, _vhost),
    "vhosts/{vhost}/connections": (EVERYBODY, _connection_rows),
    "vhosts/{vhost}/channels": (EVERYBODY, _channel_rows),
    "vhosts/{vhost}/permissions": (ADMINISTRATOR, _those_of(_permissions, vhost="vhost")),
    "vhosts/{vhost}/topic-permissions": (ADMINISTRATOR, _those_of(_topic_permissions, vhost="vhost")),
    "vhost-limits": (EVERYBODY, _vhost_limits),
    "vhost-limits/{vhost}": (EVERYBODY, _vhost_limits),
    "users": (ADMINISTRATOR, _users),
    "users/without-permissions": (ADMINISTRATOR, _users_without_permissions),
    "users/{name}": (ADMINISTRATOR, _one_of(_users, name="name")),
    "users/{name}/permissions": (ADMINISTRATOR, _of_user(_permissions)),
    "users/{name}/topic-permissions": (ADMINISTRATOR, _of_user(_topic_permissions)),
    "user-limits": (EVERYBODY, _user_limits),
    "user-limits/{name}": (EVERYBODY, _of_user(_user_limits)),
    "permissions": (ADMINISTRATOR, _permissions),
    "permissions/{vhost}/{name}": (ADMINISTRATOR, _one_of(_permissions, user="name", vhost="vhost")),
    "topic-permissions": (ADMINISTRATOR, _topic_permissions),
    "topic-permissions/{vhost}/{name}": (ADMINISTRATOR, _topic_permissions_in),
    "policies": (EVERYBODY, _policies),
    "policies/{vhost}": (EVERYBODY, _policies),
    "policies/{vhost}/{name}": (EVERYBODY, _one_of(_policies, name="name")),
    "operator-policies": (EVERYBODY, _operator_policies),
    "operator-policies/{vhost}": (EVERYBODY, _operator_policies),
    "operator-policies/{vhost}/{name}": (EVERYBODY, _one_of(_operator_policies, name="name")),
    "definitions": (ADMINISTRATOR, _definitions),
    "definitions/{vhost}": (ADMINISTRATOR, _definitions),
    "parameters": (POLICYMAKER, _parameters),
    "parameters/{component}": (POLICYMAKER, _those_of(_parameters, component="component")),
    "parameters/{component}/{vhost}": (POLICYMAKER, _those_of(_parameters, component="component")),
    "parameters/{component}/{vhost}/{name}": (POLICYMAKER, _one_of(_parameters, component="component", name="name")),
    "global-parameters": (POLICYMAKER, _global_parameters),
    "global-parameters/{name}": (POLICYMAKER, _one_of(_global_parameters, name="name")),
    "feature-flags": (ADMINISTRATOR, _feature_flags),
    "aliveness-test/{vhost}": (EVERYBODY, health.aliveness),
    "healthchecks/node": (EVERYBODY, health.node),
    "healthchecks/node/{name}": (EVERYBODY, health.node_of_name),
    "health/checks/alarms": (EVERYBODY, health.alarms),
    "health/checks/local-alarms": (EVERYBODY, health.local_alarms),
    "health/checks/virtual-hosts": (EVERYBODY, health.virtual_hosts),
    "health/checks/node-is-quorum-critical": (EVERYBODY, health.is_quorum_critical),
    "health/checks/node-is-mirror-sync-critical": (EVERYBODY, health.is_mirror_sync_critical),
    "health/checks/port-listener/{port}": (EVERYBODY, health.port_listener),
    "health/checks/protocol-listener/{protocol}": (EVERYBODY, health.protocol_listener),
    "health/checks/certificate-expiration/{within}/{unit}": (EVERYBODY, health.certificate_expiration),
}
"""By path below ``/api/``: the tag that a user needs, and what answers."""
