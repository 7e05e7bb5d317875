"""Who may come in: the questions that a connection asks while its client logs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Protocol


class Gate(Protocol):
    """The checks of one connection's log-in."""

    @property
    def certificate_user(self) -> str:
        """The user that the client's certificate names, which may log in with the mechanism EXTERNAL; empty if there is
        none."""

    def is_password(self, user: str, password: bytes) -> bool:
        """Whether the user may log in with this password, from where the client is."""

    def is_external(self, user: str) -> bool:
        """Whether the user of a certificate may log in without a password."""

    def why_not_open(self, user: str, vhost: str) -> str:
        """Why the user may not open the virtual host, in RabbitMQ's words; empty if the user may."""

    def why_no_channel(self, user: str) -> str:
        """Why the user may not open one more channel, in RabbitMQ's words; empty if the user may."""

    def may_impersonate(self, user: str) -> bool:
        """Whether messages of the user may carry another user id."""


@dataclass(frozen=True, slots=True)
class FixedUsers:
    """A gate for users that never change: each may do everything in every virtual host."""

    passwords: Mapping[str, str]
    vhosts: frozenset[str] = frozenset({"/"})
    certificate_user: str = ""

    def is_password(self, user: str, password: bytes) -> bool:
        """Whether the user has this password. The check takes the same time for a user that does not exist."""
        expected = self.passwords.get(user)
        is_equal = compare_digest((expected or "").encode(), password)
        return is_equal and expected is not None

    def is_external(self, user: str) -> bool:
        """Whether the user exists."""
        return user in self.passwords

    def why_not_open(self, user: str, vhost: str) -> str:
        """Empty for a virtual host that exists."""
        return "" if vhost in self.vhosts else f"vhost {vhost} not found"

    def why_no_channel(self, user: str) -> str:
        """There is no limit."""
        return ""

    def may_impersonate(self, user: str) -> bool:
        """Nobody may."""
        return False


GUEST: FixedUsers = FixedUsers({"guest": "guest"})
"""The user of a new RabbitMQ."""
