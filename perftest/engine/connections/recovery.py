"""Where to connect to, when to try again, and how long to wait before."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from perftest.amqp.errors import AmqpError
from perftest.spec.behaviour import Allocation
from perftest.spec.plan import Plan

FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 2.0


def backoff() -> Iterator[float]:
    """Seconds to wait before each further try: short at first, because an election takes less than a second, and never
    long, because the generator should be back when the broker is."""
    delay = FIRST_DELAY_S
    while True:
        yield delay
        delay = min(delay * 2, LONGEST_DELAY_S)


def uri_order(count: int, first: int) -> Iterator[int]:
    """Indexes of the URIs to try, for ever, from ``first`` on."""
    index = first % count
    while True:
        yield index
        index = (index + 1) % count


def first_uri(plan: Plan, kind: str, number: int) -> int:
    """The index of the URI that connection ``number`` of its kind begins with. The random ones are drawn from the
    plan's seed, for each connection by itself: they are the same in whatever process it is opened."""
    if plan.connecting.allocation is Allocation.RANDOM:
        return random.Random(f"{plan.seed} {kind} {number}").randrange(len(plan.uris))
    return number % len(plan.uris)


class RecoveryOffError(AmqpError):
    """A connection or channel was lost that would have been made again if recovery were not off."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a link does about a loss: nothing if not ``on``; else try again for at most ``limit_s``, at a random time
    between the two of ``interval_s`` after each failure, or, without, with a short, growing back-off.

    Whoever gives an interval says how patient to be: then there is no limit but the end of the run.
    """

    on: bool
    interval_s: tuple[float, float] | None
    limit_s: float
    seed: str

    @classmethod
    def of(cls, plan: Plan, name: str) -> Recovery:
        """The recovery of the connection called ``name``."""
        connecting = plan.connecting
        limit_s = plan.confirm_timeout_s if connecting.recovery_s is None else math.inf
        return cls(connecting.recover, connecting.recovery_s, limit_s, f"{plan.seed} {name}")

    def delays(self, *, lost: bool) -> Iterator[float]:
        """Seconds to wait before each try. When a connection was just ``lost``, the back-off tries again at once; an
        interval is kept from the first try on, or a thousand clients would return together."""
        if self.interval_s is not None:
            chance = random.Random(self.seed)
            shortest, longest = self.interval_s
            return (chance.uniform(shortest, longest) for _ in itertools.count())
        return itertools.chain((0.0,), backoff()) if lost else backoff()

    def final(self, error: AmqpError) -> AmqpError:
        """What the run ends with because of ``error``."""
        if self.on or not error.temporary:
            return error
        return RecoveryOffError(f"{error}; recovery is switched off")
