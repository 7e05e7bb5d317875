"""The rules of connecting: the URI, the time of the next try, and the wait before."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from perftest.amqp.errors import AmqpError
from perftest.spec.behaviour import Allocation
from perftest.spec.plan import Plan

FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 2.0


def backoff() -> Iterator[float]:
    """Seconds to wait before each further try. The first waits are short, because an election takes less than a second.
    No wait is long, because the generator should be back as soon as the broker."""
    delay = FIRST_DELAY_S
    while True:
        yield delay
        delay = min(delay * 2, LONGEST_DELAY_S)


def uri_order(count: int, first: int) -> Iterator[int]:
    """The indexes of the URIs to try, for ever, from ``first`` on."""
    index = first % count
    while True:
        yield index
        index = (index + 1) % count


def first_uri(plan: Plan, kind: str, number: int, near: Sequence[int] = ()) -> int:
    """The index of the first URI of connection ``number`` of its kind: a node that the plan names for the kind, else
    one of ``near``, or of all if ``near`` is empty. A random index is drawn from the plan's seed for each connection by
    itself, so it does not depend on the process that opens the connection."""
    named = {"publisher": plan.connecting.publisher_nodes, "consumer": plan.connecting.consumer_nodes}.get(kind, ())
    indexes = [node - 1 for node in named] or near or range(len(plan.uris))
    if plan.connecting.allocation is Allocation.RANDOM:
        return random.Random(f"{plan.seed} {kind} {number}").choice(indexes)
    return indexes[number % len(indexes)]


class RecoveryOffError(AmqpError):
    """A connection or channel was lost, and recovery is switched off."""


@dataclass(frozen=True, slots=True)
class LinkRecovery:
    """How a link recovers from a loss. Without ``on`` it does not.

    The link tries again for at most ``limit_s``. It waits a random time within ``interval_s`` after each failure;
    without an interval, a short, growing back-off. With an interval from the user, only the end of the run is a limit.
    """

    on: bool
    interval_s: tuple[float, float] | None
    limit_s: float
    seed: str

    @classmethod
    def of(cls, plan: Plan, name: str) -> LinkRecovery:
        """The recovery of the connection called ``name``."""
        connecting = plan.connecting
        limit_s = plan.confirm_timeout_s if connecting.recovery_s is None else math.inf
        return cls(connecting.recover, connecting.recovery_s, limit_s, f"{plan.seed} {name}")

    def delays(self, *, lost: bool) -> Iterator[float]:
        """Seconds to wait before each try. After a ``lost`` connection the back-off begins with no wait at all. An
        interval counts from the first try on, or a thousand clients would return together."""
        if self.interval_s is not None:
            chance = random.Random(self.seed)
            shortest, longest = self.interval_s
            return (chance.uniform(shortest, longest) for _ in itertools.count())
        return itertools.chain((0.0,), backoff()) if lost else backoff()

    def final(self, error: AmqpError) -> AmqpError:
        """The error that the run ends with because of ``error``."""
        if self.on or not error.temporary:
            return error
        return RecoveryOffError(f"{error}; recovery is switched off")
