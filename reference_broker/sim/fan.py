"""The fanout exchange of a world, and the messages that clients publish to it.

A message to the fan goes to every queue that is bound to it, and is confirmed once, when all of them have it. The
clients bind all queues whose messages stay where they are: durable ones, without limits and dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reference_broker.sim.queues import GRAVEYARD, QueuePlan

FAN: Final = "fan"
SHARE: Final = 0.5
"""The share of the worlds that have a fan."""


@dataclass(frozen=True, slots=True)
class FanPlan:
    """Where a message to the fan goes. ``must``: kept quorum queues that the publisher has bound. Other queues may be
    bound as well, by others, or no longer, as they come and go."""

    must: tuple[QueuePlan, ...]
    name: str = FAN


def may_be_bound(queue: QueuePlan) -> bool:
    """Whether the fan leads to a queue, once it is there."""
    return queue.is_durable and not (queue.is_exclusive or queue.may_bury or queue.name == GRAVEYARD)
