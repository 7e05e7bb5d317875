"""Users, virtual hosts and permissions in the metadata machine: the commands that change them, and their JSON.

A change is checked when it is applied, against the state that the log has made by then: a permission needs its user and
its virtual host. Passwords never come here, only their salted hashes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from reference_broker.access.records import Permission, TopicPermission, User, Vhost
from reference_broker.access.table import AccessTable
from reference_broker.types import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class PutUser:
    """Add or replace a user. ``node`` and ``correlation`` name the waiting call, as in all commands."""

    user: User
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUser:
    """Remove a user, with all permissions."""

    name: str
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutVhost:
    """Add or replace a virtual host."""

    vhost: Vhost
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteVhost:
    """Remove a virtual host with everything in it: queues, exchanges, bindings, policies and permissions."""

    name: str
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutPermission:
    """Add or replace a permission."""

    permission: Permission
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePermission:
    """Remove the permission of a user in a virtual host."""

    user_name: str
    vhost_name: str
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTopicPermission:
    """Add or replace a topic permission."""

    topic_permission: TopicPermission
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicPermissions:
    """Remove the topic permission of a user for an exchange, or (None) for all exchanges of the virtual host."""

    user_name: str
    vhost_name: str
    exchange_name: str | None
    node: NodeId
    correlation: int


AccessCommand = (
    PutUser
    | DeleteUser
    | PutVhost
    | DeleteVhost
    | PutPermission
    | DeletePermission
    | PutTopicPermission
    | DeleteTopicPermissions
)
OPERATIONS: Final[dict[str, type[Any]]] = {
    "put-user": PutUser,
    "delete-user": DeleteUser,
    "put-vhost": PutVhost,
    "delete-vhost": DeleteVhost,
    "put-permission": PutPermission,
    "delete-permission": DeletePermission,
    "put-topic-permission": PutTopicPermission,
    "delete-topic-permissions": DeleteTopicPermissions,
}


@dataclass(frozen=True, slots=True)
class AccessAnswer:
    """The node ``node`` only: the command with this correlation is done, unless ``missing`` names what does not exist,
    such as ``user 'u'``."""

    node: NodeId
    correlation: int
    missing: str


def apply(table: AccessTable, command: AccessCommand) -> str:
    """Apply a command to the table. Returns what is missing, such as ``user 'u'``; empty if the command was done."""
    missing = present_lack(table, command)
    if missing:
        return missing
    match command:
        case PutUser(user=user):
            table.put_user(user)
        case DeleteUser(name=name):
            table.delete_user(name)
        case PutVhost(vhost=vhost):
            table.put_vhost(vhost)
        case DeleteVhost(name=name):
            table.delete_vhost(name)
        case PutPermission(permission=permission):
            table.put_permission(permission)
        case DeletePermission(user_name=user_name, vhost_name=vhost_name):
            table.delete_permission(user_name, vhost_name)
        case PutTopicPermission(topic_permission=topic):
            table.put_topic_permission(topic)
        case DeleteTopicPermissions(user_name=user_name, vhost_name=vhost_name, exchange_name=exchange):
            table.delete_topic_permissions(user_name, vhost_name, exchange)
    return ""


def present_lack(table: AccessTable, command: AccessCommand) -> str:
    """What is missing for the command now: the user or the virtual host of a permission."""
    match command:
        case PutPermission(permission=permission):
            user, vhost = permission.user, permission.vhost
        case PutTopicPermission(topic_permission=topic):
            user, vhost = topic.user, topic.vhost
        case _:
            return ""
    if user not in table.users:
        return f"user {user!r}"
    return "" if vhost in table.vhosts else f"virtual host {vhost!r}"


def to_json(table: AccessTable) -> dict[str, Any]:
    """The table as JSON, canonical."""
    return {
        "users": [asdict(table.users[name]) for name in sorted(table.users)],
        "vhosts": [asdict(table.vhosts[name]) for name in sorted(table.vhosts)],
        "permissions": [asdict(each) for _key, each in sorted(table.permissions.items())],
        "topic_permissions": [asdict(each) for _key, each in sorted(table.topic_permissions.items())],
    }


def from_json(raw: dict[str, Any] | None) -> AccessTable:
    """Read back what :func:`to_json` wrote; None, of an older version, is the table of a new cluster."""
    if raw is None:
        return AccessTable.of_a_new_cluster()
    table = AccessTable()
    for each in raw["users"]:
        table.put_user(user_from_json(each))
    for each in raw["vhosts"]:
        table.put_vhost(vhost_from_json(each))
    for each in raw["permissions"]:
        table.put_permission(Permission(**each))
    for each in raw["topic_permissions"]:
        table.put_topic_permission(TopicPermission(**each))
    return table


def user_from_json(raw: dict[str, Any]) -> User:
    """A user from JSON."""
    return User(**{**raw, "tags": tuple(raw["tags"])})


def vhost_from_json(raw: dict[str, Any]) -> Vhost:
    """A virtual host from JSON."""
    return Vhost(**{**raw, "tags": tuple(raw["tags"])})


FROM_JSON: Final = {
    "user": user_from_json,
    "vhost": vhost_from_json,
    "permission": lambda raw: Permission(**raw),
    "topic_permission": lambda raw: TopicPermission(**raw),
}
"""The reader of each field of a command."""
