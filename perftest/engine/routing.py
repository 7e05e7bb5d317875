"""How many queues a message goes to, and whether it stays there: what the ledger has to expect of a plan."""

from __future__ import annotations

from typing import Final

from perftest.spec.behaviour import Exchange, Publishing, RoutingKeys
from perftest.spec.plan import Plan

_EACH: Final = frozenset({"fanout", "headers"})
"""Exchange types that pass a message to every queue, as bindings without arguments make them do."""

_BY_KEY: Final = frozenset({"direct", "topic"})


def queues_of_each(plan: Plan) -> tuple[int, ...] | None:
    """The queues (indexes in the plan) that each message is copied to, besides those of consumers of their own; None
    if each message goes to a single queue, whichever it is."""
    own = any(not queue.name for queue in plan.queues)
    bound = tuple(index for index, queue in enumerate(plan.queues) if queue.name and queue.bound)
    copied = bool(plan.exchange.name) and _is_copied(plan.exchange, plan.publishing, own=own)
    return bound if copied and (own or len(bound) > 1) else None


def _is_copied(exchange: Exchange, publishing: Publishing, *, own: bool) -> bool:
    """Whether queues bound to the exchange get the same messages. Without names they share the key, too; a random key
    meets no two bindings."""
    if exchange.type in _EACH:
        return True
    shared = (RoutingKeys.FIXED, RoutingKeys.QUEUE) if own else (RoutingKeys.FIXED,)
    return exchange.type in _BY_KEY and publishing.routing_keys in shared


_DROPPING: Final = frozenset({"x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-delivery-limit"})


def keeps_messages(plan: Plan) -> bool:
    """Whether a message that was confirmed can leave its queue by delivery only: then an empty queue says that what was
    not delivered is lost. Queues that others declared, or that end with their consumers, say nothing; nor does an
    exchange that may have routed a message nowhere, nor a message that was acknowledged when it was sent, as what was
    on a connection when it was lost."""
    queues = plan.queues
    fleeting = (queue.predeclared or queue.auto_delete or not queue.name or not queue.bound for queue in queues)
    if plan.connecting.exclusive or any(fleeting):
        return False
    if any(not step.settings.ack_interval for step in plan.steps):
        return False
    if any(_DROPPING & queue.arguments.keys() for queue in queues) or "expiration" in plan.publishing.properties:
        return False
    by_name = plan.publishing.routing_keys is RoutingKeys.QUEUE
    return by_name and (not plan.exchange.name or plan.exchange.type in _BY_KEY | _EACH)
