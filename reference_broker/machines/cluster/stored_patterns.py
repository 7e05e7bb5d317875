"""Stored patterns that cannot be used: an earlier version, or a node of one, let them in. They find nothing, so an
operator must be told. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reference_broker.access.records import Permission, TopicPermission
from reference_broker.access.table import AccessTable
from reference_broker.patterns import problem_with


@dataclass(frozen=True, slots=True)
class UnusablePattern:
    """Every node: this pattern finds nothing. ``where`` names the policy or permission that has it."""

    where: str
    pattern: str
    problem: str


def unusable(where: str, patterns: Iterable[str]) -> list[UnusablePattern]:
    """Those of the patterns that cannot be used."""
    return [UnusablePattern(where, each, problem) for each in patterns if (problem := problem_with(each))]


def unusable_in(permission: Permission | TopicPermission) -> list[UnusablePattern]:
    """The patterns of a permission that cannot be used."""
    where = f"of user {permission.user!r} in virtual host {permission.vhost!r}"
    if isinstance(permission, Permission):
        return unusable(f"permission {where}", (permission.configure, permission.write, permission.read))
    return unusable(f"topic permission {where} for {permission.exchange!r}", (permission.write, permission.read))


def unusable_among(table: AccessTable) -> list[UnusablePattern]:
    """The patterns of all permissions that cannot be used."""
    permissions: tuple[Permission | TopicPermission, ...]
    permissions = (*table.permissions.values(), *table.topic_permissions.values())
    return [found for each in permissions for found in unusable_in(each)]
