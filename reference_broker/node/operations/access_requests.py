"""Operators' requests about users, virtual hosts and permissions, through any node.

A change is answered when every node in reach has applied it: from then on, no node lets a deleted user in. A client
without an answer asks again, so a change that is done already succeeds. Passwords come in the request and leave as
salted hashes; they are in no log and in no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from reference_broker.access import passwords
from reference_broker.access.names import can_be_name
from reference_broker.access.records import DEFAULT_VHOST, NO_LIMIT, Permission, TopicPermission, User, Vhost
from reference_broker.access.table import AccessTable
from reference_broker.machines.cluster import access
from reference_broker.machines.cluster.access import AccessCommand
from reference_broker.node.links.peer_requests import Answer, Answered, Method, RequestError, choice, failure, not_there
from reference_broker.node.replication.everywhere import Everywhere
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.patterns import problem_with

_NAME_OCTETS_MAX: Final = 255
_LIMITS_OF_A_USER: Final = ("max_connections", "max_channels")
_LIMITS_OF_A_VHOST: Final = ("max_connections", "max_queues")


class AccessRequests:
    """The requests about users and permissions."""

    def __init__(self, metadata: MetadataHost, everywhere: Everywhere, random_bits: Callable[[int], int]) -> None:
        """``random_bits`` makes salts."""
        self._metadata = metadata
        self._everywhere = everywhere
        self._random_bits = random_bits
        self.methods: Mapping[str, Method] = {
            "users": self._users,
            "add-user": self._add_user,
            "delete-user": self._delete_user,
            "set-password": self._set_password,
            "authenticate": self._authenticate,
            "set-user-tags": self._set_tags,
            "set-user-limits": self._set_limits,
            "vhosts": self._vhosts,
            "add-vhost": self._add_vhost,
            "set-vhost": self._set_vhost,
            "delete-vhost": self._delete_vhost,
            "set-vhost-limits": self._set_vhost_limits,
            "permissions": self._permissions,
            "set-permissions": self._set_permissions,
            "clear-permissions": self._clear_permissions,
            "topic-permissions": self._topic_permissions,
            "set-topic-permissions": self._set_topic_permissions,
            "clear-topic-permissions": self._clear_topic_permissions,
        }

    @property
    def _table(self) -> AccessTable:
        return self._metadata.machine.access

    # Users

    def _users(self, _request: Answer, answered: Answered) -> None:
        answered({"users": [_shown(user) for _name, user in sorted(self._table.users.items())]})

    def _add_user(self, request: Answer, answered: Answered) -> None:
        name = _text(request, "name", most=_NAME_OCTETS_MAX)
        user = User(name=name, password_hash=self._hash(request), tags=_tags(request))
        if (known := self._table.users.get(name)) is not None:
            if known.tags != user.tags or not self._has_password(known, request):
                what = f"user {name!r} exists already, with another password or other tags"
                raise RequestError(what, "choose another name, or use set-password and set-user-tags")
            user = known
        self._change(access.PutUser, answered, user=user)

    def _has_password(self, user: User, request: Answer) -> bool:
        """Whether the request has the user's password, hashed or not."""
        if (stored := request.get("password_hash")) is not None:
            return bool(user.password_hash == stored)
        return self._table.is_password(user.name, _text(request, "password").encode())

    def _delete_user(self, request: Answer, answered: Answered) -> None:
        name = _text(request, "name", most=_NAME_OCTETS_MAX)
        told = "" if name in self._table.users else not_there("user", name, self._table.users)
        self._change(access.DeleteUser, answered, told, name=name)

    def _set_password(self, request: Answer, answered: Answered) -> None:
        user = replace(self._user(request), password_hash=self._hash(request))
        self._change(access.PutUser, answered, user=user)

    def _authenticate(self, request: Answer, answered: Answered) -> None:
        name, password = _text(request, "name", most=_NAME_OCTETS_MAX), _text(request, "password")
        if not self._table.is_password(name, password.encode()):
            raise RequestError(f"user {name!r}: there is no such user, or this is not its password", "see users")
        answered({"ok": True})

    def _set_tags(self, request: Answer, answered: Answered) -> None:
        self._change(access.PutUser, answered, user=replace(self._user(request), tags=_tags(request)))

    def _set_limits(self, request: Answer, answered: Answered) -> None:
        limits: dict[str, Any] = {key: _limit(request, key) for key in _LIMITS_OF_A_USER if key in request}
        self._change(access.PutUser, answered, user=replace(self._user(request), **limits))

    # Virtual hosts

    def _vhosts(self, _request: Answer, answered: Answered) -> None:
        machine = self._metadata.machine
        answered({
            "vhosts": [
                {**asdict(vhost), "queues": len(machine.queues_in(name))}
                for name, vhost in sorted(self._table.vhosts.items())
            ]
        })  # fmt: skip

    def _add_vhost(self, request: Answer, answered: Answered) -> None:
        name = _text(request, "name", most=_NAME_OCTETS_MAX)
        if not can_be_name(name):
            raise RequestError(f"virtual host {name!r} has a NUL in its name", "choose another name")
        vhost = Vhost(name=name, description=_description(request), tags=_tags(request))
        if (known := self._table.vhosts.get(name)) is not None:
            if (known.description, known.tags) != (vhost.description, vhost.tags):
                what = f"virtual host {name!r} exists already, with another description or other tags"
                raise RequestError(what, "choose another name")
            vhost = known
        self._change(access.PutVhost, answered, vhost=vhost)

    def _set_vhost(self, request: Answer, answered: Answered) -> None:
        vhost = self._table.vhosts[vhost_in(self._table, request, "name")]
        values: dict[str, Any] = {"description": _description(request)} if "description" in request else {}
        values |= {"tags": _tags(request)} if "tags" in request else {}
        self._change(access.PutVhost, answered, vhost=replace(vhost, **values))

    def _delete_vhost(self, request: Answer, answered: Answered) -> None:
        name = _text(request, "name", most=_NAME_OCTETS_MAX)
        told = "" if name in self._table.vhosts else not_there("virtual host", name, self._table.vhosts)
        self._change(access.DeleteVhost, answered, told, name=name)

    def _set_vhost_limits(self, request: Answer, answered: Answered) -> None:
        vhost = self._table.vhosts[vhost_in(self._table, request, "name")]
        limits: dict[str, Any] = {key: _limit(request, key) for key in _LIMITS_OF_A_VHOST if key in request}
        self._change(access.PutVhost, answered, vhost=replace(vhost, **limits))

    # Permissions

    def _permissions(self, _request: Answer, answered: Answered) -> None:
        answered({"permissions": [asdict(each) for _key, each in sorted(self._table.permissions.items())]})

    def _set_permissions(self, request: Answer, answered: Answered) -> None:
        patterns = {key: _pattern(request, key) for key in ("configure", "write", "read")}
        permission = Permission(user=self._user(request, "user").name, vhost=self._vhost(request), **patterns)
        self._change(access.PutPermission, answered, permission=permission)

    def _clear_permissions(self, request: Answer, answered: Answered) -> None:
        user, vhost = self._user(request, "user").name, self._vhost(request)
        self._change(access.DeletePermission, answered, user_name=user, vhost_name=vhost)

    def _topic_permissions(self, _request: Answer, answered: Answered) -> None:
        found = sorted(self._table.topic_permissions.items())
        answered({"topic_permissions": [asdict(each) for _key, each in found]})

    def _set_topic_permissions(self, request: Answer, answered: Answered) -> None:
        patterns = {key: _pattern(request, key) for key in ("write", "read")}
        user, vhost = self._user(request, "user").name, self._vhost(request)
        exchange = _text(request, "exchange", most=_NAME_OCTETS_MAX)
        permission = TopicPermission(user=user, vhost=vhost, exchange=exchange, **patterns)
        self._change(access.PutTopicPermission, answered, topic_permission=permission)

    def _clear_topic_permissions(self, request: Answer, answered: Answered) -> None:
        user, vhost = self._user(request, "user").name, self._vhost(request)
        exchange = _text(request, "exchange", most=_NAME_OCTETS_MAX) if request.get("exchange") is not None else None
        self._change(access.DeleteTopicPermissions, answered, user_name=user, vhost_name=vhost, exchange_name=exchange)

    # What all of them need

    def _change(self, command: Callable[..., AccessCommand], answered: Answered, told: str = "", **values: Any) -> None:
        """Propose a change, and answer when it holds everywhere. ``told`` says why there is nothing to change."""

        def committed(missing: str) -> None:
            if missing:
                answered(failure(f"{missing} does not exist any more", "somebody deleted it just now"))
            else:
                self._everywhere.then(lambda: answered({"ok": True} | ({"told": told} if told else {})))

        self._metadata.change_access(command, committed, **values)

    def _user(self, request: Answer, key: str = "name") -> User:
        name = _text(request, key, most=_NAME_OCTETS_MAX)
        if (user := self._table.users.get(name)) is None:
            raise RequestError(f"user {name!r} does not exist", choice(self._table.users, "add one with add-user"))
        return user

    def _vhost(self, request: Answer) -> str:
        return vhost_in(self._table, request)

    def _hash(self, request: Answer) -> str:
        """The stored value of the password in a request: as it came if it is hashed, or empty for none."""
        if (stored := request.get("password_hash")) is not None:
            if not isinstance(stored, str) or not (stored == passwords.NO_PASSWORD or passwords.is_hash(stored)):
                raise RequestError("the hash of the password is none", "give base64 of salt and SHA-256, or no hash")
            return stored
        password = _text(request, "password")
        return passwords.hashed(password.encode(), self._random_bits(8 * passwords.SALT_OCTETS).to_bytes(4, "big"))


def vhost_in(table: AccessTable, request: Answer, key: str = "vhost") -> str:
    """The virtual host that a request names, ``/`` if it names none. Raises :class:`RequestError` if there is none of
    that name."""
    name = request.get(key, DEFAULT_VHOST)
    if not isinstance(name, str) or name not in table.vhosts:
        raise RequestError(f"virtual host {name!r} does not exist", choice(table.vhosts, "add one with add-vhost"))
    return name


def _description(request: Answer) -> str:
    value = request.get("description", "")
    if not isinstance(value, str):
        raise RequestError(f"description {value!r} is no text", "give a text, or leave it out")
    return value


def _shown(user: User) -> Answer:
    """A user as operators see it: whether there is a password, and not which."""
    return {
        "name": user.name,
        "tags": list(user.tags),
        "has_password": user.password_hash != passwords.NO_PASSWORD,
        "max_connections": user.max_connections,
        "max_channels": user.max_channels,
    }


def _text(request: Answer, key: str, *, most: int | None = None) -> str:
    value = request.get(key)
    octets = value.encode("utf-8", "replace") if isinstance(value, str) else b""
    if not isinstance(value, str) or not 0 < len(octets) <= (most or len(octets)) or octets.decode() != value:
        shown = "" if key == "password" else f" {value!r}"
        size = f"of 1 to {most} octets" if most else "that is not empty"
        raise RequestError(f"{key}{shown} is missing or cannot be used", f"give a text {size}")
    return value


def _pattern(request: Answer, key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise RequestError(f"{key} {value!r} is no text", "give a regular expression; the empty one finds no name")
    if problem := problem_with(value):
        raise RequestError(
            f"{key} {value!r} is no regular expression: {problem}", "use one that finds names, such as .*"
        )
    return value


def _tags(request: Answer) -> tuple[str, ...]:
    value = request.get("tags", [])
    if not isinstance(value, list) or not all(isinstance(tag, str) and tag for tag in value):
        raise RequestError(f"tags {value!r} are no list of words", 'give them as ["administrator"], or [] for none')
    return tuple(value)


def _limit(request: Answer, key: str) -> int:
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < NO_LIMIT:
        raise RequestError(f"{key} {value!r} is no limit", "give a whole number, or -1 for no limit")
    return value
