"""Users, virtual hosts and permissions as values, as an operator sets them and the metadata group replicates them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_VHOST: Final = "/"
NO_LIMIT: Final = -1
IMPERSONATOR: Final = "impersonator"
"""The tag of a user whose messages may carry any user id."""


class Tag(StrEnum):
    """A user's rights over HTTP, from nothing to everything. RabbitMQ's names."""

    MANAGEMENT = "management"
    POLICYMAKER = "policymaker"
    MONITORING = "monitoring"
    ADMINISTRATOR = "administrator"


class Access(StrEnum):
    """The three kinds of permission on a queue or an exchange."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user. ``password_hash`` is a value of :mod:`~reference_broker.access.passwords`; empty: the user cannot log in
    with a password. Limits are -1 if there is none. Tags other than those of :class:`Tag` and :data:`IMPERSONATOR` mean
    nothing to the broker."""

    name: str
    password_hash: str = ""
    tags: tuple[str, ...] = ()
    max_connections: int = NO_LIMIT
    max_channels: int = NO_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Vhost:
    """A virtual host. Limits are -1 if there is none."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    max_connections: int = NO_LIMIT
    max_queues: int = NO_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A user's rights in a virtual host: three regular expressions that are searched for in the names of queues and
    exchanges. The empty expression finds no name."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPermission:
    """Which routing keys a user may publish (``write``) and bind (``read``) with, at one topic exchange. ``{username}``
    and ``{vhost}`` in the expressions stand for the user's and the virtual host's name."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str
