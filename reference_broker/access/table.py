"""The users, virtual hosts and permissions of a cluster, and the questions that a node asks about them.

As in RabbitMQ, a user without a permission record in a virtual host cannot open it. A routing key is free if the user
has no topic permission for the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from reference_broker import patterns
from reference_broker.access import passwords
from reference_broker.access.records import DEFAULT_VHOST, Access, Permission, Tag, TopicPermission, User, Vhost

GUEST: Final = User(
    name="guest", password_hash=passwords.hashed(b"guest", b"\x67\x75\x65\x73"), tags=(str(Tag.ADMINISTRATOR),)
)
"""The user of a new cluster. The salt is fixed, because every node starts with the same state."""
GUESTS_PERMISSION: Final = Permission(user="guest", vhost=DEFAULT_VHOST, configure=".*", write=".*", read=".*")
_EVERYTHING: Final = (".*", ".*", ".*")
_NO_NAME: Final = "^$"
"""An expression that matches no name: the meaning of an empty one."""
_DEFAULT_EXCHANGE: Final = "amq.default"
"""The name by which permissions call the default exchange."""


class AccessTable:
    """Users, virtual hosts and permissions by their names."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.vhosts: dict[str, Vhost] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        """By user and virtual host."""
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        """By user, virtual host and exchange."""

    @classmethod
    def of_a_new_cluster(cls) -> AccessTable:
        """The virtual host ``/``, and guest, who may do everything there."""
        table = cls()
        table.put_vhost(Vhost(name=DEFAULT_VHOST))
        table.put_user(GUEST)
        table.put_permission(GUESTS_PERMISSION)
        return table

    # Changes. None of them fails: the proposer and the applier of a change check whether it makes sense.

    def put_user(self, user: User) -> None:
        """Add or replace a user. The user's permissions stay."""
        self.users[user.name] = user

    def delete_user(self, name: str) -> None:
        """Remove a user with all permissions."""
        self.users.pop(name, None)
        self._forget(lambda key: key[0] == name)

    def put_vhost(self, vhost: Vhost) -> None:
        """Add or replace a virtual host."""
        self.vhosts[vhost.name] = vhost

    def delete_vhost(self, name: str) -> None:
        """Remove a virtual host with all permissions in it."""
        self.vhosts.pop(name, None)
        self._forget(lambda key: key[1] == name)

    def put_permission(self, permission: Permission) -> None:
        """Add or replace a permission."""
        self.permissions[permission.user, permission.vhost] = permission

    def delete_permission(self, user: str, vhost: str) -> None:
        """Remove a permission: the user cannot open the virtual host any more."""
        self.permissions.pop((user, vhost), None)

    def put_topic_permission(self, permission: TopicPermission) -> None:
        """Add or replace a topic permission."""
        self.topic_permissions[permission.user, permission.vhost, permission.exchange] = permission

    def delete_topic_permissions(self, user: str, vhost: str, exchange: str | None) -> None:
        """Remove the topic permission for an exchange, or for all exchanges of the virtual host."""
        for key in [*self._topic_keys(user, vhost)]:
            if exchange in (None, key[2]):
                del self.topic_permissions[key]

    # Questions

    def is_password(self, user: str, password: bytes) -> bool:
        """Whether the user exists and has this password. An empty password is nobody's, as in RabbitMQ."""
        known = self.users.get(user)
        return passwords.matches(known.password_hash if known else None, password) and bool(password)

    def may_open(self, user: str, vhost: str) -> bool:
        """Whether the user may open the virtual host."""
        return (user, vhost) in self.permissions and user in self.users

    def may_do_everything(self, user: str, vhost: str) -> bool:
        """Whether no question about this user in this virtual host needs to be asked."""
        permission = self.permissions.get((user, vhost))
        return (
            permission is not None
            and (permission.configure, permission.write, permission.read) == _EVERYTHING
            and next(self._topic_keys(user, vhost), None) is None
        )

    def may(self, user: str, vhost: str, access: Access, name: str) -> bool:
        """Whether the user may use the queue or exchange of this name in this way."""
        permission = self.permissions.get((user, vhost))
        if permission is None:
            return False
        pattern: str = getattr(permission, access)
        return patterns.finds(pattern or _NO_NAME, name or _DEFAULT_EXCHANGE)

    def may_use_key(self, user: str, vhost: str, access: Access, exchange: str, key: str) -> bool:
        """Whether the user may publish (write) or bind (read) with the routing key at a topic exchange."""
        permission = self.topic_permissions.get((user, vhost, exchange or _DEFAULT_EXCHANGE))
        if permission is None:
            return True
        pattern = permission.write if access is Access.WRITE else permission.read
        return patterns.finds(_filled(pattern, user, vhost), key)

    def _topic_keys(self, user: str, vhost: str) -> Iterator[tuple[str, str, str]]:
        return (key for key in self.topic_permissions if key[:2] == (user, vhost))

    def _forget(self, concerns: Callable[[tuple[str, ...]], bool]) -> None:
        self.permissions = {key: each for key, each in self.permissions.items() if not concerns(key)}
        self.topic_permissions = {key: each for key, each in self.topic_permissions.items() if not concerns(key)}


@lru_cache(1024)
def _filled(pattern: str, user: str, vhost: str) -> str:
    """The expression of a topic permission, with names in place of its variables."""
    for variable, name in (("{username}", user), ("{vhost}", vhost)):
        pattern = pattern.replace(variable, patterns.literal(name))
    return pattern or _NO_NAME
