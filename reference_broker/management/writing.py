"""The requests that change something. What concerns queues and exchanges is done by AMQP as the user who asks."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

from pamqp import base, commands

from reference_broker.access.records import Tag
from reference_broker.machines.cluster.policies import ALL, policy_key
from reference_broker.management import definitions, shapes
from reference_broker.management.cluster import ManagedCluster, OperationError
from reference_broker.management.errors import BAD_REQUEST, NOT_AUTHORISED, NOT_FOUND, ApiError
from reference_broker.management.parameters import LIMITS, OPERATOR_POLICY, VHOST_LIMITS, feature_flags
from reference_broker.management.session import method
from reference_broker.management.shapes import Row

ADMINISTRATOR, POLICYMAKER, EVERYBODY = Tag.ADMINISTRATOR, Tag.POLICYMAKER, Tag.MANAGEMENT
CREATED: Final = 201
NO_CONTENT: Final = 204
Outcome = tuple[int, Any]
"""The code of HTTP, and the body of the answer (None: none)."""
Writer = Callable[[ManagedCluster, Row, Row], Awaitable[Outcome]]
"""Does what a request asks: its path and query with ``user``, and its body. Raises :class:`ApiError`."""
_TYPE: Final = "message_type"
"""pamqp's name of the property type."""
_WHOLE_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_GET_MAX: Final = 10_000
LIMITS_OF_VHOSTS: Final = ("max-connections", "max-queues")
_USER_LIMITS: Final = ("max-connections", "max-channels")
_ACTIONS: Final = {"sync": "sync-queue", "cancel_sync": "cancel-sync-queue"}
"""The actions of a queue, and the operation that carries each out."""
_ENCODINGS: Final = ("auto", "base64")
_ACK_MODES: Final = (
    "ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false",
)  # fmt: skip


def field(body: Row, key: str, kind: type, default: Any = None) -> Any:
    """A field of a body. As in RabbitMQ, the texts that rabbitmqadmin sends for numbers and flags count as such, and
    an empty list as an object of PHP. Raises :class:`ApiError` 400 if the field is missing without a default, or of
    another kind."""
    value = _meant(body.get(key, default), kind)
    if value is None or not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "a text", bool: "true or false", int: "a whole number", dict: "an object", list: "a list"}
        raise ApiError(BAD_REQUEST, f"{key} {value!r}: must be {words[kind]}")
    return value


def number(body: Row, key: str, default: int | None = None) -> int:
    """A whole number where RabbitMQ takes no text for one. Raises :class:`ApiError` 400."""
    if isinstance(value := body.get(key, default), str):
        raise ApiError(BAD_REQUEST, f"{key} {value!r}: must be a whole number, not a text")
    return int(field(body, key, int, default))


def _meant(value: Any, kind: type) -> Any:
    if kind is bool and value in ("true", "false"):
        return value == "true"
    if kind is int and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return {} if kind is dict and value == [] else value


async def put_queue(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Declare a queue."""
    is_new = cluster.machine.queue(at["vhost"], at["name"]) is None
    async with cluster.session(at) as session:
        await session.call(declared_queue(at, body), commands.Queue.DeclareOk)
    return (CREATED if is_new else NO_CONTENT), None


def declared_queue(at: Row, body: Row) -> base.Frame:
    """The declaration of a queue. Raises :class:`ApiError`."""
    return method(
        commands.Queue.Declare, queue=at["name"], durable=field(body, "durable", bool, False),
        auto_delete=field(body, "auto_delete", bool, False), arguments=field(body, "arguments", dict, {}),
    )  # fmt: skip


async def _delete_queue(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    _check_queue(cluster, at)
    is_unused, is_empty = at.get("if-unused") == "true", at.get("if-empty") == "true"
    async with cluster.session(at) as session:
        asked = method(commands.Queue.Delete, queue=at["name"], if_unused=is_unused, if_empty=is_empty)
        await session.call(asked, commands.Queue.DeleteOk)
    return NO_CONTENT, None


async def _purge(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    async with cluster.session(at) as session:
        await session.call(method(commands.Queue.Purge, queue=at["name"]), commands.Queue.PurgeOk)
    return NO_CONTENT, None


async def _act(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Fill a queue's mirrors, or stop filling them."""
    action = field(body, "action", str)
    if action not in _ACTIONS:
        raise ApiError(BAD_REQUEST, f"give an action of {', '.join(_ACTIONS)}")
    _check_queue(cluster, at)
    try:
        await cluster.change(_ACTIONS[action], queue=at["name"], vhost=at["vhost"])
    except OperationError as error:
        raise ApiError(BAD_REQUEST, str(error)) from error
    return NO_CONTENT, None


async def _get(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Take messages off a queue, or look at them. The message that is returned last is the first again."""
    count, mode = field(body, "count", int), field(body, "ackmode", str)
    encoding, truncate = field(body, "encoding", str, "auto"), field(body, "truncate", int, 1 << 62)
    if mode not in _ACK_MODES or not 0 <= count <= _GET_MAX:
        raise ApiError(BAD_REQUEST, f"give a count from 0 to {_GET_MAX} and an ackmode of {', '.join(_ACK_MODES)}")
    if encoding not in _ENCODINGS:
        raise ApiError(BAD_REQUEST, f"encoding {encoding!r}: must be {' or '.join(_ENCODINGS)}")
    found: list[Row] = []
    last_tag = 0
    async with cluster.session(at) as session:
        while len(found) < count and (got := await session.get(at["name"], no_ack=False)) is not None:
            answer, properties, payload = got
            last_tag = answer.delivery_tag
            found.append(_message(answer, properties, payload[:truncate], len(payload), encoding))
        if last_tag and mode == "ack_requeue_false":
            session.send(commands.Basic.Ack(last_tag, True))
        elif last_tag:
            session.send(commands.Basic.Nack(last_tag, True, mode.endswith("requeue_true")))
        await session.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    return 200, found


def _message(answer: Any, properties: Any, payload: bytes, octets: int, encoding: str) -> Row:
    text, used = base64.b64encode(payload).decode(), "base64"
    if encoding != "base64":
        with contextlib.suppress(UnicodeDecodeError):
            text, used = payload.decode(), "string"
    named = (("type" if name == _TYPE else name, getattr(properties, name)) for name in properties.attributes())
    return {
        "payload": text,
        "payload_bytes": octets,
        "payload_encoding": used,
        "exchange": answer.exchange,
        "routing_key": answer.routing_key,
        "redelivered": answer.redelivered,
        "message_count": answer.message_count,
        "properties": {name: shapes.json_value(value) for name, value in named if value not in (None, "", {})},
    }


async def put_exchange(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Declare an exchange."""
    is_new = cluster.machine.routing(at["vhost"]).exchange(at["name"]) is None
    async with cluster.session(at) as session:
        await session.call(declared_exchange(at, body), commands.Exchange.DeclareOk)
    return (CREATED if is_new else NO_CONTENT), None


def declared_exchange(at: Row, body: Row) -> base.Frame:
    """The declaration of an exchange. Raises :class:`ApiError`."""
    return method(
        commands.Exchange.Declare, exchange=at["name"], exchange_type=field(body, "type", str, "direct"),
        durable=field(body, "durable", bool, False), auto_delete=field(body, "auto_delete", bool, False),
        internal=field(body, "internal", bool, False), arguments=field(body, "arguments", dict, {}),
    )  # fmt: skip


async def _delete_exchange(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    _check_exchange(cluster, at)
    asked = method(commands.Exchange.Delete, exchange=at["name"], if_unused=at.get("if-unused") == "true")
    async with cluster.session(at) as session:
        await session.call(asked, commands.Exchange.DeleteOk)
    return NO_CONTENT, None


async def _publish(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    exchange = "" if at["name"] == "amq.default" else at["name"]
    if cluster.machine.routing(at["vhost"]).exchange(exchange) is None:
        raise ApiError(BAD_REQUEST, f"no exchange {exchange!r} in vhost {at['vhost']!r}")
    payload = _payload(field(body, "payload", str), field(body, "payload_encoding", str, "string"))
    try:
        given = {_TYPE if key == "type" else key: value for key, value in field(body, "properties", dict, {}).items()}
        properties = commands.Basic.Properties(**given)
        properties.validate()
        properties.marshal()
    except (TypeError, ValueError, AttributeError) as error:
        raise ApiError(BAD_REQUEST, f"properties: {error}") from error
    async with cluster.session(at) as session:
        routed = await session.publish(exchange, field(body, "routing_key", str), properties, payload)
    return 200, {"routed": routed}


def _payload(text: str, encoding: str) -> bytes:
    if encoding == "string":
        return text.encode("utf-8", "replace")
    try:
        if encoding == "base64":
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(BAD_REQUEST, f"payload is no base64: {error}") from error
    raise ApiError(BAD_REQUEST, f"payload_encoding {encoding!r}: must be string or base64")


async def bind(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Add a binding."""
    async with cluster.session(at) as session:
        answer = commands.Queue.BindOk if at["kind"] == "q" else commands.Exchange.BindOk
        await session.call(binding(at, body), answer)
    return CREATED, None


def binding(at: Row, body: Row, *, adds: bool = True) -> base.Frame:
    """The method that adds or removes a binding. Raises :class:`ApiError`."""
    key, arguments = field(body, "routing_key", str, ""), field(body, "arguments", dict, {})
    if at["kind"] == "q":
        kind: type[base.Frame] = commands.Queue.Bind if adds else commands.Queue.Unbind
        return method(kind, queue=at["destination"], exchange=at["name"], routing_key=key, arguments=arguments)
    kind = commands.Exchange.Bind if adds else commands.Exchange.Unbind
    return method(kind, destination=at["destination"], source=at["name"], routing_key=key, arguments=arguments)


async def _unbind(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    is_exchange = at["kind"] == "e"
    for found in cluster.machine.routing(at["vhost"]).bindings():
        to = found.destination
        if (found.source, to.name, to.is_exchange) == (at["name"], at["destination"], is_exchange) and (
            at["key"] in (shapes.properties_key(found), unquote(shapes.properties_key(found)))
        ):
            row = {"routing_key": found.key, "arguments": shapes.arguments(found.arguments)}
            async with cluster.session(at) as session:
                answer = commands.Exchange.UnbindOk if is_exchange else commands.Queue.UnbindOk
                await session.call(binding(at, row, adds=False), answer)
            return NO_CONTENT, None
    raise ApiError(NOT_FOUND, "Not Found")


async def _put_vhost(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """A virtual host. Who makes one may do everything in it, as in RabbitMQ."""
    if field(body, "tracing", bool, False):
        raise ApiError(BAD_REQUEST, "there is no tracer here that could copy messages: leave tracing out")
    outcome = await set_vhost(cluster, at["name"], body)
    if outcome[0] == CREATED and at["user"] in cluster.machine.access.users:
        everything = dict.fromkeys(("configure", "write", "read"), ".*")
        await cluster.change("set-permissions", user=at["user"], vhost=at["name"], **everything)
    return outcome


async def set_vhost(cluster: ManagedCluster, name: str, body: Row) -> Outcome:
    """Add a virtual host, or change what describes it."""
    values: Row = {"description": field(body, "description", str)} if "description" in body else {}
    if "tags" in body:
        values["tags"] = definitions.tags_of(field(body, "tags", str if isinstance(body["tags"], str) else list))
    is_new = name not in cluster.machine.access.vhosts
    if is_new or values:
        await cluster.change("add-vhost" if is_new else "set-vhost", name=name, **values)
    return (CREATED if is_new else NO_CONTENT), None


async def _delete_vhost(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    if at["name"] not in cluster.machine.access.vhosts:
        raise ApiError(NOT_FOUND, "Not Found")
    await cluster.change("delete-vhost", name=at["name"])
    return NO_CONTENT, None


async def _put_vhost_limit(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    await cluster.change("set-vhost-limits", name=at["vhost"], **{_vhost_limit(at): number(body, "value")})
    return NO_CONTENT, None


async def _delete_vhost_limit(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    if at["limit"] in LIMITS_OF_VHOSTS:
        await cluster.change("set-vhost-limits", name=at["vhost"], **{_vhost_limit(at): -1})
    return NO_CONTENT, None


def _vhost_limit(at: Row) -> str:
    if at["limit"] not in LIMITS_OF_VHOSTS:
        raise ApiError(BAD_REQUEST, f"{at['limit']!r} is no limit of a virtual host: use max-connections or max-queues")
    return str(at["limit"]).replace("-", "_")


async def put_user(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Add a user, or change password and tags."""
    is_new = at["name"] not in cluster.machine.access.users
    tags = definitions.tags_of(field(body, "tags", str if isinstance(body.get("tags"), str) else list))
    secret = {key: body[key] for key in ("password", "password_hash") if key in body} or {"password_hash": ""}
    if is_new:
        await cluster.change("add-user", name=at["name"], tags=tags, **secret)
        return CREATED, None
    await cluster.change("set-password", name=at["name"], **secret)
    await cluster.change("set-user-tags", name=at["name"], tags=tags)
    return NO_CONTENT, None


async def _delete_user(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    _check_user(cluster, at["name"])
    await cluster.change("delete-user", name=at["name"])
    return NO_CONTENT, None


async def _grant(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    if at["of"] not in cluster.machine.access.vhosts:
        raise ApiError(BAD_REQUEST, "vhost_or_user_not_found")
    return await put_permission(cluster, at | {"vhost": at["of"]}, body)


async def put_permission(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Set what a user may do in a virtual host."""
    is_new = (at["name"], at["vhost"]) not in cluster.machine.access.permissions
    patterns = {key: field(body, key, str) for key in ("configure", "write", "read")}
    await cluster.change("set-permissions", user=at["name"], vhost=at["vhost"], **patterns)
    return (CREATED if is_new else NO_CONTENT), None


async def _delete_permission(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    if (at["name"], at["vhost"]) not in cluster.machine.access.permissions:
        raise ApiError(NOT_FOUND, "Not Found")
    await cluster.change("clear-permissions", user=at["name"], vhost=at["vhost"])
    return NO_CONTENT, None


async def put_topic_permission(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Set the routing keys that a user may use."""
    values = {key: field(body, key, str) for key in ("exchange", "write", "read")}
    is_new = (at["name"], at["vhost"], values["exchange"]) not in cluster.machine.access.topic_permissions
    await cluster.change("set-topic-permissions", user=at["name"], vhost=at["vhost"], **values)
    return (CREATED if is_new else NO_CONTENT), None


async def _delete_topic_permissions(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    _check_user(cluster, at["name"])
    await cluster.change("clear-topic-permissions", user=at["name"], vhost=at["vhost"])
    return NO_CONTENT, None


async def _put_user_limit(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    await cluster.change("set-user-limits", name=at["name"], **{_limit(at): number(body, "value")})
    return NO_CONTENT, None


async def _delete_user_limit(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    _check_user(cluster, at["name"])
    if at["limit"] in _USER_LIMITS:
        await cluster.change("set-user-limits", name=at["name"], **{_limit(at): -1})
    return NO_CONTENT, None


def _limit(at: Row) -> str:
    if at["limit"] not in _USER_LIMITS:
        raise ApiError(BAD_REQUEST, f"{at['limit']!r} is no limit of a user: use max-connections or max-channels")
    return str(at["limit"]).replace("-", "_")


def putting_policy(*, operator: bool) -> Writer:
    """What sets a policy, an ``operator``'s or a user's."""

    async def write(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
        is_new = policy_key(at["vhost"], at["name"], operator=operator) not in cluster.machine.policies
        op = "set-operator-policy" if operator else "set-policy"
        named = {"name": at["name"], "vhost": at["vhost"]}
        await cluster.change(op, **named, **policy_of(body))
        return (CREATED if is_new else NO_CONTENT), None

    return write


def policy_of(body: Row) -> Row:
    """What a policy says, as a request of operators has it. Raises :class:`ApiError`."""
    return {
        "pattern": field(body, "pattern", str), "definition": field(body, "definition", dict),
        "priority": number(body, "priority", 0), "apply_to": field(body, "apply-to", str, ALL),
    }  # fmt: skip


def _deleting_policy(*, operator: bool) -> Writer:
    async def write(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
        if policy_key(at["vhost"], at["name"], operator=operator) not in cluster.machine.policies:
            raise ApiError(NOT_FOUND, "Not Found")
        op = "clear-operator-policy" if operator else "clear-policy"
        await cluster.change(op, name=at["name"], vhost=at["vhost"])
        return NO_CONTENT, None

    return write


put_policy = putting_policy(operator=False)


async def _put_parameter(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """A parameter that has something behind it."""
    component, value = at["component"], field(body, "value", dict)
    if component == OPERATOR_POLICY:
        return await putting_policy(operator=True)(cluster, at, value)
    if component == VHOST_LIMITS and at["name"] == LIMITS:
        return await put_limits(cluster, at, value)
    if component == "policy":
        raise ApiError(BAD_REQUEST, "policies may not be set using this method")
    raise ApiError(BAD_REQUEST, f"component {component} not found: there are {OPERATOR_POLICY} and {VHOST_LIMITS} here")


async def put_limits(cluster: ManagedCluster, at: Row, value: Row) -> Outcome:
    """These limits of a virtual host, and no others."""
    is_new = not shapes.vhost_limits(cluster.machine.access.vhosts[at["vhost"]])["value"]
    limits = {_vhost_limit({"limit": limit}): number(value, limit) for limit in value}
    nothing = {_vhost_limit({"limit": limit}): -1 for limit in LIMITS_OF_VHOSTS}
    await cluster.change("set-vhost-limits", name=at["vhost"], **{**nothing, **limits})
    return (CREATED if is_new else NO_CONTENT), None


async def _delete_parameter(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    if at["component"] == OPERATOR_POLICY:
        return await _deleting_policy(operator=True)(cluster, at, body)
    there = shapes.vhost_limits(cluster.machine.access.vhosts[at["vhost"]])["value"]
    if (at["component"], at["name"]) != (VHOST_LIMITS, LIMITS) or not there:
        raise ApiError(NOT_FOUND, "Not Found")
    await put_limits(cluster, at, {})
    return NO_CONTENT, None


async def _put_global_parameter(_cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    if "value" not in body:
        raise ApiError(BAD_REQUEST, "value is missing")
    raise ApiError(BAD_REQUEST, f"{at['name']!r} cannot be set: nothing here would read it")


async def _delete_global_parameter(_cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    raise ApiError(NOT_FOUND, f"there is no global parameter {at['name']!r} that could be deleted")


async def _put_cluster_name(cluster: ManagedCluster, _at: Row, body: Row) -> Outcome:
    name = cluster.shard.config.cluster
    if field(body, "name", str) != name:
        raise ApiError(BAD_REQUEST, f"the cluster's name {name!r} is its identity here, by which its nodes know it")
    return NO_CONTENT, None


async def _enable_feature(_cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    if all(flag["name"] != at["name"] for flag in feature_flags()):
        raise ApiError(BAD_REQUEST, "unsupported")
    return NO_CONTENT, None


async def _delete_users(cluster: ManagedCluster, _at: Row, body: Row) -> Outcome:
    """Several users, or none: a name that is wrong has nobody deleted."""
    names = field(body, "users", list)
    if missing := [name for name in names if not isinstance(name, str) or name not in cluster.machine.access.users]:
        raise ApiError(BAD_REQUEST, f"no_such_user: {missing[0]!r}")
    for name in dict.fromkeys(names):
        await cluster.change("delete-user", name=name)
    return NO_CONTENT, None


async def _start_vhost(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    """A virtual host runs on every node that does."""
    if (at["name"], True) not in cluster.nodes.values():
        raise ApiError(BAD_REQUEST, f"no node {at['name']!r} runs in this cluster")
    return NO_CONTENT, None


async def _rebalance(cluster: ManagedCluster, _at: Row, _body: Row) -> Outcome:
    await cluster.change("rebalance")
    return NO_CONTENT, None


async def _delete_connections(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    """All connections of a user: of others only an administrator's request."""
    if not (at["administers"] or at["user"] == at["name"]):
        raise ApiError(NOT_AUTHORISED, "User not authorised to delete the connections of others")
    for row in await cluster.connections():
        if row["user"] == at["name"]:
            await cluster.close_connection(row["name"], at.get("reason", "closed via the management API"))
    return NO_CONTENT, None


async def _delete_connection(cluster: ManagedCluster, at: Row, _body: Row) -> Outcome:
    if not await cluster.close_connection(at["name"], at.get("reason", "closed via the management API")):
        raise ApiError(NOT_FOUND, "Not Found")
    return NO_CONTENT, None


def _check_queue(cluster: ManagedCluster, at: Row) -> None:
    if cluster.machine.queue(at["vhost"], at["name"]) is None:
        raise ApiError(NOT_FOUND, f"no queue {at['name']!r}")


def _check_exchange(cluster: ManagedCluster, at: Row) -> None:
    if cluster.machine.routing(at["vhost"]).exchange(at["name"]) is None:
        raise ApiError(NOT_FOUND, f"no exchange {at['name']!r}")


def _check_user(cluster: ManagedCluster, name: str) -> None:
    if name not in cluster.machine.access.users:
        raise ApiError(NOT_FOUND, f"no user {name!r}")


WRITERS: Final[dict[tuple[str, str], tuple[Tag, Writer]]] = {
    ("PUT", "queues/{vhost}/{name}"): (EVERYBODY, put_queue),
    ("DELETE", "queues/{vhost}/{name}"): (EVERYBODY, _delete_queue),
    ("DELETE", "queues/{vhost}/{name}/contents"): (EVERYBODY, _purge),
    ("POST", "queues/{vhost}/{name}/get"): (EVERYBODY, _get),
    ("POST", "queues/{vhost}/{name}/actions"): (EVERYBODY, _act),
    ("PUT", "exchanges/{vhost}/{name}"): (EVERYBODY, put_exchange),
    ("DELETE", "exchanges/{vhost}/{name}"): (EVERYBODY, _delete_exchange),
    ("POST", "exchanges/{vhost}/{name}/publish"): (EVERYBODY, _publish),
    ("POST", "bindings/{vhost}/e/{name}/{kind:[qe]}/{destination}"): (EVERYBODY, bind),
    ("DELETE", "bindings/{vhost}/e/{name}/{kind:[qe]}/{destination}/{key}"): (EVERYBODY, _unbind),
    ("PUT", "vhosts/{name}"): (ADMINISTRATOR, _put_vhost),
    ("DELETE", "vhosts/{name}"): (ADMINISTRATOR, _delete_vhost),
    ("PUT", "vhost-limits/{vhost}/{limit}"): (ADMINISTRATOR, _put_vhost_limit),
    ("DELETE", "vhost-limits/{vhost}/{limit}"): (ADMINISTRATOR, _delete_vhost_limit),
    ("PUT", "users/{name}"): (ADMINISTRATOR, put_user),
    ("DELETE", "users/{name}"): (ADMINISTRATOR, _delete_user),
    ("PUT", "permissions/{of}/{name}"): (ADMINISTRATOR, _grant),
    ("DELETE", "permissions/{vhost}/{name}"): (ADMINISTRATOR, _delete_permission),
    ("PUT", "topic-permissions/{vhost}/{name}"): (ADMINISTRATOR, put_topic_permission),
    ("DELETE", "topic-permissions/{vhost}/{name}"): (ADMINISTRATOR, _delete_topic_permissions),
    ("PUT", "user-limits/{name}/{limit}"): (ADMINISTRATOR, _put_user_limit),
    ("DELETE", "user-limits/{name}/{limit}"): (ADMINISTRATOR, _delete_user_limit),
    ("PUT", "policies/{vhost}/{name}"): (POLICYMAKER, put_policy),
    ("DELETE", "policies/{vhost}/{name}"): (POLICYMAKER, _deleting_policy(operator=False)),
    ("PUT", "operator-policies/{vhost}/{name}"): (ADMINISTRATOR, putting_policy(operator=True)),
    ("DELETE", "operator-policies/{vhost}/{name}"): (ADMINISTRATOR, _deleting_policy(operator=True)),
    ("PUT", "parameters/{component}/{vhost}/{name}"): (ADMINISTRATOR, _put_parameter),
    ("DELETE", "parameters/{component}/{vhost}/{name}"): (ADMINISTRATOR, _delete_parameter),
    ("PUT", "global-parameters/{name}"): (ADMINISTRATOR, _put_global_parameter),
    ("DELETE", "global-parameters/{name}"): (ADMINISTRATOR, _delete_global_parameter),
    ("PUT", "cluster-name"): (ADMINISTRATOR, _put_cluster_name),
    ("PUT", "feature-flags/{name}/enable"): (ADMINISTRATOR, _enable_feature),
    ("POST", "users/bulk-delete"): (ADMINISTRATOR, _delete_users),
    ("POST", "vhosts/{vhost}/start/{name}"): (ADMINISTRATOR, _start_vhost),
    ("POST", "rebalance/queues"): (ADMINISTRATOR, _rebalance),
    ("DELETE", "connections/username/{name}"): (EVERYBODY, _delete_connections),
    ("DELETE", "connections/{name}"): (ADMINISTRATOR, _delete_connection),
}
"""By method and path below ``/api/``: the tag that a user needs, and what does it."""
