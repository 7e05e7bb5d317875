"""The classic queues of a world. Each lives on one node: the node of the client that declares it first, or any node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from reference_broker.sim.queues import GRAVEYARD, MIRRORED, QueuePlan, keyed_arguments

_SHARE: Final = 0.5
"""The share of the worlds that have classic queues."""
_MIRRORED_SHARE: Final = 0.15
"""The share of the worlds that have a classic queue with copies."""
_KEPT: Final = 0.7
"""The share of these in which nobody purges or deletes the queue, so that nothing may be lost."""
_LAZY: Final = 0.4
_BALANCED: Final = 0.5
_LETTERS: Final = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": GRAVEYARD}
OWN_SHARE: Final = 0.3
"""The share of the connections with an exclusive queue, in worlds with classic queues."""


def plan_classic_queues(chance: Random, others: Sequence[QueuePlan]) -> list[QueuePlan]:
    """The classic queues of a world, besides ``others``: none, or some."""
    plans = _plain_plans(chance, others)
    apart = Random(chance.getstate()[1][0])  # so that the other worlds stay as they were
    if apart.random() < _MIRRORED_SHARE:
        plans.append(_plan(apart, MIRRORED, is_kept=apart.random() < _KEPT))
    return plans


def _plain_plans(chance: Random, others: Sequence[QueuePlan]) -> list[QueuePlan]:
    if chance.random() > _SHARE:
        return []
    made = [make for make in _MAKES if chance.random() < 0.3] or [chance.choice(_MAKES)]
    plans = [make(chance) for make in made]
    has_graveyard = any(plan.name == GRAVEYARD for plan in others)
    if not has_graveyard and any("x-dead-letter-exchange" in dict(plan.arguments) for plan in plans):
        plans.append(_plan(chance, GRAVEYARD))
    return plans


def own_queue(chance: Random, owner: str) -> QueuePlan:
    """The plan of an exclusive queue, which ends with the connection that declares it."""
    return _plan(chance, f"own-{owner}", is_kept=False, is_durable=chance.random() < 0.3, is_exclusive=True)


def _plan(
    chance: Random, name: str, arguments: dict[str, Any] | None = None, *, is_kept: bool = True,
    has_limits: bool = False, is_durable: bool = True, is_exclusive: bool = False, is_auto_delete: bool = False,
) -> QueuePlan:  # fmt: skip
    said: dict[str, Any] = {"x-queue-type": "classic", **(arguments or {})}
    if chance.random() < _LAZY:
        said["x-queue-mode"] = "lazy"
    if chance.random() < _BALANCED:
        said["x-queue-leader-locator"] = "balanced"
    return QueuePlan(
        name, tuple(sorted(said.items())), is_kept, has_limits, is_classic=True, is_durable=is_durable,
        is_exclusive=is_exclusive, is_auto_delete=is_auto_delete,
    )  # fmt: skip


def _durable(chance: Random) -> QueuePlan:
    return _plan(chance, "local")


def _second(chance: Random) -> QueuePlan:
    return _plan(chance, "local-second")


def _passing(chance: Random) -> QueuePlan:
    """A queue that ends with the process of its node."""
    return _plan(chance, "local-passing", is_kept=False, is_durable=False)


def _cleared(chance: Random) -> QueuePlan:
    """A queue that clients purge and delete."""
    expires = {"x-expires": chance.choice((500, 3000))} if chance.random() < 0.2 else {}
    return _plan(chance, "local-fleeting", expires, is_kept=False)


def _leaving(chance: Random) -> QueuePlan:
    """A queue that goes with its last consumer."""
    return _plan(chance, "local-leaving", is_kept=False, is_durable=chance.random() < 0.5, is_auto_delete=True)


def _brief(chance: Random) -> QueuePlan:
    return _plan(chance, "local-brief", {"x-message-ttl": chance.choice((0, 5, 50, 1000))}, has_limits=True)


def _short(chance: Random) -> QueuePlan:
    limit = {"x-max-length": chance.choice((0, 1, 5, 50))}
    octets = {"x-max-length-bytes": chance.choice((0, 50, 2000))}
    return _plan(chance, "local-short", limit if chance.random() < 0.7 else octets, has_limits=True)


def _strict(chance: Random) -> QueuePlan:
    return _plan(chance, "local-strict", {"x-max-length": chance.choice((1, 5, 50)), "x-overflow": "reject-publish"})


def _ranked(chance: Random) -> QueuePlan:
    return _plan(chance, "local-ranked", {"x-max-priority": chance.choice((1, 3, 10))})


def _single(chance: Random) -> QueuePlan:
    return _plan(chance, "local-single", {"x-single-active-consumer": True})


def _keyed(chance: Random) -> QueuePlan:
    """A queue that keeps the order of each key."""
    return _plan(chance, "local-keyed", {"x-key": "header:x-group-key", **keyed_arguments(chance)})


def _loose(chance: Random) -> QueuePlan:
    """A queue that sends dead letters."""
    deadly = (("x-message-ttl", (5, 500)), ("x-max-length", (1, 20)))
    chosen: dict[str, Any] = {key: chance.choice(values) for key, values in deadly if chance.random() < 0.5}
    return _plan(chance, "local-loose", chosen | _LETTERS, has_limits=True)


_MAKES: Final[tuple[Callable[[Random], QueuePlan], ...]] = (
    _durable, _second, _passing, _cleared, _leaving, _brief, _short, _strict, _ranked, _single, _loose,
    _keyed,
)  # fmt: skip
