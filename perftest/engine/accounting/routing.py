"""How many queues a message goes to, and whether it stays there: what the ledger has to expect of a plan."""

from __future__ import annotations

from typing import Final

from perftest.spec.behaviour import Exchange, ExitWhen, Publishing, RoutingKeys
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
    not delivered is lost. Queues that others declared, or that live and die with a connection, say nothing; nor does an
    exchange that may have routed a message nowhere, nor a message that was acknowledged when it was sent, as what was
    on a connection when it was lost. Queues that delete themselves say it if :func:`keeps_its_consumers`, as long as no
    consumer was lost."""
    queues = plan.queues
    if plan.connecting.exclusive or any(queue.predeclared or not queue.bound for queue in queues):
        return False
    if is_fleeting(plan) and not keeps_its_consumers(plan):
        return False
    if any(not step.settings.ack_interval for step in plan.steps):
        return False
    if any(_DROPPING & queue.arguments.keys() for queue in queues) or "expiration" in plan.publishing.properties:
        return False
    keys, exchange = plan.publishing.routing_keys, plan.exchange
    if not exchange.name:
        return keys is RoutingKeys.QUEUE
    return exchange.type in _EACH or (exchange.type in _BY_KEY and keys is not RoutingKeys.RANDOM)


def is_transient(plan: Plan) -> bool:
    """Whether a broker that restarts may have forgotten what it confirmed, as it was told to."""
    return any(not queue.durable for queue in plan.queues) or any(not step.settings.persistent for step in plan.steps)


def is_fleeting(plan: Plan) -> bool:
    """Whether a queue goes when its last consumer leaves."""
    return any(queue.auto_delete or not queue.name for queue in plan.queues)


def keeps_its_consumers(plan: Plan) -> bool:
    """Whether each queue has a consumer from the first step's beginning to the end, unless one is lost; and whether
    those that the server names are of the kind that goes by itself, so that it can be held."""
    consuming = plan.consuming
    if consuming.messages or consuming.exit_when is not ExitWhen.NEVER or not plan.delete_queues:
        return False
    if any(not queue.name and (consuming.polling or not queue.auto_delete) for queue in plan.queues):
        return False
    fewest = min((step.settings.consumers for step in plan.steps), default=0)
    most = max((step.settings.consumers for step in plan.steps), default=0)
    own = any(not queue.name for queue in plan.queues)
    return fewest * consuming.channels >= len(plan.queues) and (fewest == most or not own)
