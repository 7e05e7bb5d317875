"""Which settings a queue has in the end: those of its declaration, of a user's policy and of an operator's."""

from __future__ import annotations

from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import (
    ClearPolicy,
    MetadataMachine,
    QueueRecord,
    SetPolicy,
    encode,
    with_policy,
)
from reference_broker.machines.cluster.policies import Policy, in_force
from reference_broker.types import GroupId, NodeId

ASKER: dict[str, Any] = {"node": NodeId(1), "correlation": 7}


def policy(pattern: str = "q", *, name: str = "p", operator: bool = False, priority: int = 0, **limits: int) -> Policy:
    definition = tuple((key.replace("_", "-"), value) for key, value in limits.items())
    return Policy(name=name, pattern=pattern, definition=definition, priority=priority, operator=operator)


def effective(declared: dict[str, Any], *policies: Policy) -> dict[str, Any]:
    record = QueueRecord(name="q", group=GroupId(5), members=(NodeId(1),), arguments=tuple(sorted(declared.items())))
    return dict(with_policy(record, policies).arguments)


@pytest.mark.parametrize(
    ("declared", "users", "operators", "expected"),
    [
        (None, None, None, {}), (None, 5, None, {"x-max-length": 5}), (None, None, 5, {"x-max-length": 5}),
        (None, 7, 5, {"x-max-length": 5}), (None, 5, 7, {"x-max-length": 5}), (3, 5, 7, {"x-max-length": 3}),
        (9, 8, 7, {"x-max-length": 7}), (9, None, 7, {"x-max-length": 7}), (0, 8, 7, {"x-max-length": 0}),
    ],
)  # fmt: skip
def test_the_lowest_limit_holds(
    declared: int | None, users: int | None, operators: int | None, expected: dict[str, int]
) -> None:
    own = {} if declared is None else {"x-max-length": declared}
    of_users = [] if users is None else [policy(max_length=users)]
    of_operators = [] if operators is None else [policy(operator=True, max_length=operators)]
    assert effective(own, *of_users, *of_operators) == expected


def test_one_policy_of_users_and_one_of_operators_hold() -> None:
    policies = [
        policy(name="a", priority=1, max_length=9), policy(name="b", priority=2, message_ttl=4),
        policy(name="a", operator=True, priority=1, expires=5), policy(name="b", operator=True, max_length=1),
    ]  # fmt: skip
    assert effective({}, *policies) == {"x-message-ttl": 4, "x-expires": 5}
    assert in_force(policies, "q") == policies[1] and in_force(policies, "q", operator=True) == policies[2]


def test_policies_of_one_name_do_not_meet() -> None:
    """And come back from a snapshot as they were."""
    machine = MetadataMachine()
    both = [policy(max_length=9), policy(operator=True, max_length=5)]
    machine.apply(encode([SetPolicy(policy=each, **ASKER) for each in both]))
    assert sorted(machine.policies.values(), key=lambda each: each.operator) == both
    restored = MetadataMachine.restore(machine.snapshot())
    assert restored.policies == machine.policies
    restored.apply(encode([ClearPolicy(name="p", operator=True, **ASKER)]))
    assert [*restored.policies.values()] == both[:1]
