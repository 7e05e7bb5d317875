"""The queues of a world: what they are declared with, and what may happen to them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class QueuePlan:
    """``is_kept``: never purged or deleted. ``has_limits``: messages may leave by themselves."""

    name: str
    arguments: tuple[tuple[str, Any], ...]
    is_kept: bool
    has_limits: bool


def plan_queues(chance: Random) -> list[QueuePlan]:
    """One plain queue, and some others by chance."""
    quorum = (("x-queue-type", "quorum"),)
    plans = [QueuePlan("plain", quorum, True, False)]
    if chance.random() < 0.5:
        plans.append(QueuePlan("fleeting", quorum, False, False))
    if chance.random() < 0.4:
        limit = ("x-delivery-limit", chance.randint(0, 5))
        plans.append(QueuePlan("limited", (*quorum, limit), True, True))
    if chance.random() < 0.3:
        plans.append(QueuePlan("second", quorum, True, False))
    return plans
