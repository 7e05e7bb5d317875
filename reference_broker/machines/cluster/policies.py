"""Policies: settings for the queues and exchanges of a virtual host whose names match. Pure.

As in RabbitMQ, one policy holds for a queue or an exchange. Among the policies of its virtual host that apply to it and
match its name, this is the policy of the highest priority (of equals, the first by name). If the declaration sets the
same key, the lower of two limits holds; for other values the declaration holds. An operator's policy comes last, and
has limits only: the lower holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from reference_broker import patterns
from reference_broker.access.names import short, vhost_of
from reference_broker.access.records import DEFAULT_VHOST
from reference_broker.routing.records import ALTERNATE

SettingValue = str | int | bool | tuple[str, ...]
Settings = tuple[tuple[str, SettingValue], ...]
QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
ALL: Final = "all"
"""The things that a policy may apply to."""
_OF_EXCHANGES: Final = ALTERNATE.decode()
"""The one setting of a policy that applies to exchanges."""
_OF_CLASSIC: Final = ("overflow", "reject-publish-dlx")
"""A setting that RabbitMQ takes for every queue, and that classic queues alone follow."""
_CLASSIC: Final = "classic"
_FITS_KEPT: Final = 65536
"""The most cached answers to "does this policy's pattern match this queue's name?". Every list of queues asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings (``definition``) for the queues and exchanges of a virtual host whose short name ``pattern`` finds,
    unless a higher policy holds. It may apply to *queues* or *exchanges* only. An ``operator``'s policy holds beside
    those of users, and sets upper limits only."""

    name: str
    pattern: str
    definition: Settings
    priority: int = 0
    operator: bool = False
    vhost: str = DEFAULT_VHOST
    apply_to: str = ALL

    @property
    def key(self) -> PolicyKey:
        """Its name among all policies: an operator's and a user's may have the same name."""
        return policy_key(self.vhost, self.name, operator=self.operator)


PolicyKey = tuple[str, str, bool]


def policy_key(vhost: str, name: str, *, operator: bool) -> PolicyKey:
    """The name of a policy among all policies."""
    return vhost, name, operator


def policy_from_json(raw: dict[str, Any]) -> Policy:
    """A policy from parsed JSON."""
    definition = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in raw["definition"])
    return Policy(
        name=raw["name"],
        pattern=raw["pattern"],
        definition=definition,
        priority=int(raw["priority"]),
        operator=bool(raw.get("operator", False)),
        vhost=raw.get("vhost", DEFAULT_VHOST),
        apply_to=raw.get("apply_to", ALL),
    )


def in_force(policies: Iterable[Policy], name: str, *, operator: bool = False) -> Policy | None:
    """The policy of users, or of operators, that holds for the queue with this name in the cluster."""
    asked = _in_order(policies, vhost_of(name), operator=operator, of=QUEUES)
    short_name = short(name)
    return next((policy for policy in asked if _fits(policy.pattern, short_name)), None)


def in_force_for_exchange(policies: Iterable[Policy], vhost: str, name: str) -> Policy | None:
    """The policy of users that holds for the exchange. Operators' policies have no settings of exchanges."""
    asked = _in_order(policies, vhost, operator=False, of=EXCHANGES)
    return next((policy for policy in asked if _fits(policy.pattern, name)), None)


def _in_order(policies: Iterable[Policy], vhost: str, *, operator: bool, of: str) -> list[Policy]:
    """The policies of a virtual host for its queues or its exchanges, the first to hold first."""
    asked = [
        policy
        for policy in policies
        if policy.operator is operator and policy.vhost == vhost and policy.apply_to in (of, ALL)
    ]
    return sorted(asked, key=lambda policy: (-policy.priority, policy.name))


def alternates(policies: Iterable[Policy], vhost: str) -> Callable[[str], str | None] | None:
    """A function for the alternate exchange that a policy gives an exchange of the virtual host; None if no policy
    gives one."""
    asked = _in_order(policies, vhost, operator=False, of=EXCHANGES)
    if not any(_OF_EXCHANGES in dict(policy.definition) for policy in asked):
        return None

    def alternate(name: str) -> str | None:
        policy = next((policy for policy in asked if _fits(policy.pattern, name)), None)
        found = dict(policy.definition).get(_OF_EXCHANGES) if policy is not None else None
        return None if found is None else str(found)

    return alternate


_fits: Final = lru_cache(_FITS_KEPT)(patterns.finds)


def in_effect(name: str, kind: str, arguments: Settings, policies: Iterable[Policy]) -> Settings:
    """The arguments in effect of the queue of this name in the cluster, which was declared with ``arguments``."""
    several = list(policies)
    definition = [
        setting
        for operator in (False, True)
        if (policy := in_force(several, name, operator=operator)) is not None
        for setting in policy.definition
        if setting[0] != _OF_EXCHANGES and (setting != _OF_CLASSIC or kind == _CLASSIC)
    ]
    if not definition:
        return arguments
    found = dict(arguments)
    for key, value in definition:
        found[f"x-{key}"] = _merged_value(found.get(f"x-{key}"), value)
    return tuple(sorted(found.items()))


def _merged_value(declared: SettingValue | None, value: SettingValue) -> SettingValue:
    if declared is None:
        return value
    if isinstance(declared, int) and isinstance(value, int) and declared >= 0:
        return min(declared, value)
    return declared
