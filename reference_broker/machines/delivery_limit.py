"""The delivery limit: a message that was returned too often is dead (RabbitMQ: a poison message).

Invariant: a delivery count never decreases, and above the limit the message is never ready again (I24).
"""

from __future__ import annotations

from reference_broker.machines.burial import bury
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import State
from reference_broker.machines.messages.held_ranges import HeldRange
from reference_broker.machines.outbox import Outbox


def take_back(state: State, outbox: Outbox, released: list[HeldRange]) -> None:
    """Put released messages back to their places; bury messages above the delivery limit."""
    limit = state.config.delivery_limit
    for held in released:
        origin = held.origin.returned()
        if 0 <= limit < origin.delivery_count:
            state.totals.delivery_limited += held.count
            bury(state, outbox, (held.count, held.start, held.step, origin), DeadLetterReason.DELIVERY_LIMIT)
            if state.keyed is not None:
                state.keyed.commit((held,))
        else:
            state.ready.put_back(held, origin)
