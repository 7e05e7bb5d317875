"""The queues of a world: their arguments, and what may happen to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

GRAVEYARD: Final = "graveyard"
"""The queue of all dead letters."""
FREE: Final = ("limited", "brief", "short", "loose", "fleeting", "local-brief", "local-short", "local-loose")
"""The queues for which policies are set: messages may leave them by themselves."""
MIRRORED: Final = "mirrored"
"""The queue with copies on other nodes, in worlds that have one."""
_PLAIN: Final = 0.4
_SIZE: Final = "x-quorum-initial-group-size"
_SIZED: Final = 0.2
_KEYED: Final = 0.3

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class QueuePlan:
    """``is_kept``: the queue is never purged or deleted. ``has_limits``: messages may leave the queue by themselves.

    Only classic queues (:mod:`reference_broker.sim.classic_queues`) lack durability, are exclusive or delete
    themselves."""

    name: str
    arguments: tuple[tuple[str, Any], ...]
    is_kept: bool
    has_limits: bool
    is_classic: bool = False
    is_durable: bool = True
    is_exclusive: bool = False
    is_auto_delete: bool = False

    @property
    def delivery_limit(self) -> int | None:
        """The delivery limit: how often a message may return."""
        limit: int | None = dict(self.arguments).get("x-delivery-limit")
        return limit

    @property
    def is_small(self) -> bool:
        """Whether the queue has too few members to go on without one of them."""
        return int(dict(self.arguments).get(_SIZE, 3)) < 3

    @property
    def is_mirrored(self) -> bool:
        """Whether the queue has copies on other nodes: its owner changes, and messages may come again."""
        return self.name == MIRRORED

    @property
    def max_priority(self) -> int:
        """The highest priority of the queue's messages; 0: the queue has no priorities."""
        return int(dict(self.arguments).get("x-max-priority", 0))

    @property
    def has_keys(self) -> bool:
        """Whether messages with the same key come one at a time."""
        arguments = dict(self.arguments)
        return arguments["x-queue-type"] == "keyed" or "x-key" in arguments

    @property
    def is_strict(self) -> bool:
        """Whether the queue has keys, and a message leaves only when a client has settled it: so each waits until all
        earlier messages of its key are settled. In a classic queue, settled messages may come back after a restart."""
        return self.has_keys and not (self.is_classic or self.may_bury or self.delivery_limit is not None)

    @property
    def is_single_active(self) -> bool:
        """Whether one consumer at a time is active."""
        return bool(dict(self.arguments).get("x-single-active-consumer"))

    @property
    def may_refuse(self) -> bool:
        """Whether the queue may refuse a publish, as declared or by a policy."""
        is_full_at = self.has_keys and "x-max-length" in dict(self.arguments)
        return self.has_limits or is_full_at or dict(self.arguments).get("x-overflow") == "reject-publish"

    @property
    def may_bury(self) -> bool:
        """Whether messages of the queue may turn up in the graveyard."""
        return self.has_limits or self.keeps_letters

    @property
    def keeps_letters(self) -> bool:
        """Whether a message that dies in the queue must turn up in the graveyard."""
        return dict(self.arguments).get("x-dead-letter-strategy") == "at-least-once"


def plan_queues(chance: Random) -> list[QueuePlan]:
    """One plain queue, and others by chance. Many worlds have plain queues only."""
    plans = [_plan("plain", {}, has_limits=False)]
    if chance.random() < 0.5:
        expires = {"x-expires": chance.choice((500, 3000))} if chance.random() < 0.2 else {}
        plans.append(_plan("fleeting", expires, is_kept=False))
    if chance.random() < 0.4:
        plans.append(_plan("limited", {"x-delivery-limit": chance.randint(0, 5)}))
    if chance.random() < 0.3:
        plans.append(_plan("second", {}, has_limits=False))
    if chance.random() > _PLAIN:
        rich = [make for make in _RICH if chance.random() < 0.4]
        plans += [make(chance) for make in rich or [chance.choice(_RICH)]]
    if chance.random() < _KEYED:
        plans += [make(chance) for make in chance.choice(((_keyed,), (_keyed, _careful_keys)))]
    if any("x-dead-letter-exchange" in dict(plan.arguments) for plan in plans):
        plans.append(_plan(GRAVEYARD, {}, has_limits=False))
    return [_sized(plan, chance) for plan in plans]


def young_queue(number: int) -> QueuePlan:
    """The plan of a queue that a client declares when others have long been at work."""
    return _plan(f"young{number}", {}, has_limits=False)


def _sized(plan: QueuePlan, chance: Random) -> QueuePlan:
    """The plan, by chance with fewer or more members than usual."""
    if chance.random() > _SIZED:
        return plan
    return replace(plan, arguments=(*plan.arguments, (_SIZE, chance.choice((1, 2, 2, 4, 5)))))


def _plan(
    name: str, arguments: Arguments, *, is_kept: bool = True, has_limits: bool = True, kind: str = "quorum"
) -> QueuePlan:
    return QueuePlan(name, (("x-queue-type", kind), *sorted(arguments.items())), is_kept, has_limits)


def _brief(chance: Random) -> QueuePlan:
    return _plan("brief", {"x-message-ttl": chance.choice((0, 5, 50, 1000))})


def _short(chance: Random) -> QueuePlan:
    limit = {"x-max-length": chance.choice((0, 1, 5, 50))}
    return _plan("short", limit if chance.random() < 0.7 else {"x-max-length-bytes": chance.choice((0, 50, 2000))})


def _strict(chance: Random) -> QueuePlan:
    limit = {"x-max-length": chance.choice((0, 1, 5, 50)), "x-overflow": "reject-publish"}
    return _plan("strict", limit, has_limits=False)


def _single(chance: Random) -> QueuePlan:
    return _plan("single", {"x-single-active-consumer": True}, has_limits=False)


def _loose(chance: Random) -> QueuePlan:
    """A queue that sends dead letters at most once, for any reason."""
    deadly = (("x-message-ttl", (5, 500)), ("x-max-length", (1, 20)), ("x-delivery-limit", (0, 2)))
    chosen = {key: chance.choice(values) for key, values in deadly if chance.random() < 0.5}
    return _plan("loose", chosen | _letters_to("at-most-once"))


def _careful(chance: Random) -> QueuePlan:
    """A queue that sends dead letters at least once: none may be lost."""
    deadly = (("x-message-ttl", (5, 5, 100)), ("x-delivery-limit", (0, 2)), ("x-max-length", (5, 50)))
    chosen: Arguments = {key: chance.choice(values) for key, values in deadly if chance.random() < 0.6}
    chosen["x-overflow"] = "reject-publish"
    return _plan("careful", chosen | _letters_to("at-least-once"), has_limits=False)


def _keyed(chance: Random) -> QueuePlan:
    return _plan("keyed", keyed_arguments(chance), has_limits=False, kind="keyed")


def _careful_keys(chance: Random) -> QueuePlan:
    """A queue with keys whose messages die: none may be lost, and none may hold up its key."""
    deadly = (("x-message-ttl", (5, 100)), ("x-delivery-limit", (0, 2)), ("x-max-length", (5, 50)))
    chosen: Arguments = {key: chance.choice(values) for key, values in deadly if chance.random() < 0.6}
    chosen |= keyed_arguments(chance) | _letters_to("at-least-once")
    return _plan("careful-keys", chosen, has_limits=False, kind="keyed")


def keyed_arguments(chance: Random) -> Arguments:
    """How long a message waits after a return, and how long a consumer may hold one: mostly as it likes."""
    arguments: Arguments = {}
    if chance.random() < 0.4:
        arguments["x-retry-delay"] = chance.choice((1, 50, 500))
    if chance.random() < 0.4:
        arguments["x-reserve-timeout"] = chance.choice((2000, 10_000))
    return arguments


def _letters_to(strategy: str) -> Arguments:
    return {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": GRAVEYARD,
        "x-dead-letter-strategy": strategy,
    }


_RICH: Final[tuple[Callable[[Random], QueuePlan], ...]] = (_brief, _short, _strict, _single, _loose, _careful)


FAN: Final = "fan"
"""Fanout exchange of a world. A message to the fan goes to every queue that is bound to it, and is confirmed once, when
all of them have it. The clients bind all queues whose messages stay where they are: durable ones, without limits and
dead letters."""
FAN_SHARE: Final = 0.5
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
