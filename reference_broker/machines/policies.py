"""Which policy holds for a queue, and what it makes of the queue's arguments. Pure.

As in RabbitMQ one policy holds at a time: of those whose pattern finds the queue's name, the one of the highest
priority (of equals, the first by name). Where the queue was declared with the same key, the lower of two limits counts,
and the declaration of anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from reference_broker.machines.metadata import ArgumentValue, Policy, QueueRecord


def in_force(policies: Iterable[Policy], name: str) -> Policy | None:
    """The policy that holds for the queue of that name."""
    fitting = [policy for policy in policies if re.search(policy.pattern, name)]
    return min(fitting, key=lambda policy: (-policy.priority, policy.name), default=None)


def with_policy(record: QueueRecord, policies: Iterable[Policy]) -> QueueRecord:
    """The record with the arguments that are in effect."""
    policy = in_force(policies, record.name)
    if policy is None:
        return record
    arguments = dict(record.arguments)
    for key, value in policy.definition:
        arguments[f"x-{key}"] = _merged(arguments.get(f"x-{key}"), value)
    return replace(record, arguments=tuple(sorted(arguments.items())))


def _merged(declared: ArgumentValue | None, value: ArgumentValue) -> ArgumentValue:
    if declared is None:
        return value
    if isinstance(declared, int) and isinstance(value, int) and declared >= 0:
        return min(declared, value)
    return declared
