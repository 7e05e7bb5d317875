"""The number of queues that a message goes to, and whether it stays there: the ledger's expectations of a plan."""

from __future__ import annotations

from typing import Final

from perftest.spec.behaviour import Exchange, ExitWhen, Publishing, RoutingKeys
from perftest.spec.plan import Plan

_EACH: Final = frozenset({"fanout", "headers"})
"""Exchange types that pass a message to every queue that is bound without arguments."""

_BY_KEY: Final = frozenset({"direct", "topic"})
_BY_HASH: Final = "x-consistent-hash"
"""The exchange type of RabbitMQ's plugin that passes each message to one of the bound queues, whatever its key."""


def queues_of_each(plan: Plan) -> tuple[int, ...] | None:
    """The queues (indexes in the plan) that each message is copied to, besides the own queues of consumers; None if
    each message goes to one queue."""
    own = any(not queue.name for queue in plan.queues)
    bound = tuple(index for index, queue in enumerate(plan.queues) if queue.name and queue.bound)
    copied = bool(plan.exchange.name) and _is_copied(plan.exchange, plan.publishing, own=own)
    return bound if copied and (own or len(bound) > 1) else None


def copies_of(plan: Plan, consumers: int) -> int:
    """Number of deliveries of each message of a plan with one group of load; ``consumers`` are connections."""
    channels = consumers * plan.consuming.channels
    if not channels:
        return 0
    queues = queues_of_each(plan)
    own = any(not queue.name for queue in plan.queues)
    return 1 if queues is None else len(queues) + (channels if own else 0)


def _is_copied(exchange: Exchange, publishing: Publishing, *, own: bool) -> bool:
    """Whether queues bound to the exchange get the same messages. Queues that the server names are all bound with the
    same key. No two bindings fit one random key."""
    if exchange.type in _EACH:
        return True
    shared = (RoutingKeys.FIXED, RoutingKeys.QUEUE) if own else (RoutingKeys.FIXED,)
    return exchange.type in _BY_KEY and publishing.routing_keys in shared


_DROPPING: Final = frozenset(
    {"x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-delivery-limit", "x-max-tries"}
)


def keeps_messages(plan: Plan) -> bool:
    """Whether a confirmed message leaves its queue by delivery only. Then an undelivered message is lost if its queue
    is empty.

    This cannot be said of queues that others declared or that live and die with a connection, of an exchange that may
    route a message nowhere, and of automatic acknowledgement, which loses the messages on a connection that is lost. It
    can be said of queues that delete themselves if the plan :func:`keeps_its_consumers` and no consumer was lost.
    """
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
    return exchange.type in {*_EACH, _BY_HASH} or (exchange.type in _BY_KEY and keys is not RoutingKeys.RANDOM)


def is_transient(plan: Plan) -> bool:
    """Whether a broker that restarts may forget confirmed messages, because the plan allows that."""
    return any(not queue.durable for queue in plan.queues) or any(not step.settings.persistent for step in plan.steps)


def is_fleeting(plan: Plan) -> bool:
    """Whether a queue is deleted when its last consumer leaves."""
    return any(queue.auto_delete or not queue.name for queue in plan.queues)


def keeps_its_consumers(plan: Plan) -> bool:
    """Whether each queue has a consumer from the beginning of the first step to the end, unless a consumer is lost, and
    whether every queue that the server names deletes itself, so that a further consumer can keep it."""
    consuming = plan.consuming
    if consuming.messages or consuming.exit_when is not ExitWhen.NEVER or not plan.delete_queues:
        return False
    if any(not queue.name and (consuming.polling or not queue.auto_delete) for queue in plan.queues):
        return False
    fewest = min((step.settings.consumers for step in plan.steps), default=0)
    most = max((step.settings.consumers for step in plan.steps), default=0)
    own = any(not queue.name for queue in plan.queues)
    return fewest * consuming.channels >= len(plan.queues) and (fewest == most or not own)
