"""Who gets what: ready messages go to consumers in the order of the service queue, as far as credit goes.

Invariant (I18): afterwards nothing is ready, or no consumer in service has credit.
"""

from __future__ import annotations

from reference_broker.machines import expiry
from reference_broker.machines.fifo_state import State
from reference_broker.machines.origins import Origin
from reference_broker.machines.outbox import Outbox


def deal(state: State, outbox: Outbox) -> None:
    """Deal ready messages, oldest first, until none is left or nobody wants any."""
    ready, service = state.ready, state.service
    if state.is_expiring:
        expiry.expire_heads(state, outbox)
    while (ready.returned_count or ready.backlog.count) and service:
        ready.take(_hand_out(state, outbox, *ready.head()))
        if state.is_expiring:
            expiry.expire_heads(state, outbox)


def _hand_out(state: State, outbox: Outbox, count: int, start: int, step: int, origin: Origin) -> int:
    """Give messages of one stretch to the consumers whose turn it is; returns how many were taken."""
    dealt, width, shares = state.service.deal(count)
    for consumer, turn, share in shares:
        first = start + turn * step
        stride = width * step
        first_id = consumer.hold(share, first, stride, origin)
        outbox.deliver(consumer.id, first_id, first, share, stride, origin)
        if consumer.auto_settle:
            state.totals.settled += share
    return dealt
