"""Consumers' decisions about their held messages: settle, return, discard.

A consumer that gives up messages has credit again and goes back into the service queue. A cancelled consumer is
forgotten when it holds no messages. A returned message goes back to its place in message order, unless it is above the
delivery limit (:mod:`~reference_broker.machines.delivery_limit`).

Invariant: ids that are not held change nothing (I27).
"""

from __future__ import annotations

from reference_broker.machines import single_active
from reference_broker.machines.burial import bury
from reference_broker.machines.commands import Discard, Return, Settle
from reference_broker.machines.consumers import Consumer, Status
from reference_broker.machines.delivery_limit import take_back
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import State
from reference_broker.machines.outbox import Outbox


def settle(state: State, command: Settle) -> Consumer | None:
    """Settle messages. Returns the consumer, None if it is unknown."""
    consumer = state.consumer(command.consumer)
    if consumer is None:
        return None
    before = consumer.unacked
    keyed = state.keyed
    for first, last in command.ranges:
        released = consumer.release(first, last)
        state.departures.held(released)
        if keyed is not None:
            keyed.commit(released)
    state.totals.settled += before - consumer.unacked
    credited(state, consumer)
    return consumer


def discard(state: State, outbox: Outbox, command: Discard) -> None:
    """Bury messages. The dead letters keep the order in which the client named the ids."""
    consumer = state.consumer(command.consumer)
    if consumer is None:
        return
    for first, last in command.ranges:
        for held in consumer.release(first, last):
            state.totals.discarded += held.count
            bury(state, outbox, (held.count, held.start, held.step, held.origin), DeadLetterReason.REJECTED)
            if state.keyed is not None:
                state.keyed.commit((held,))
    credited(state, consumer)


def give_back(state: State, outbox: Outbox, command: Return) -> None:
    """Return messages to the queue."""
    consumer = state.consumer(command.consumer)
    if consumer is None:
        return
    for first, last in command.ranges:
        take_back(state, outbox, consumer.release(first, last))
    credited(state, consumer)


def credited(state: State, consumer: Consumer) -> None:
    """The consumer may hold fewer messages: serve it again, or forget it if it was cancelled and holds none.

    A consumer that lost messages stays until its channel ends: subscribed anew, it would give out ids that its client
    may still settle for the lost messages.
    """
    if consumer.status is Status.CANCELLED and not consumer.unacked and not consumer.lost_messages:
        _forget(state, consumer)
    elif consumer.status is Status.QUIESCING and not consumer.unacked:
        single_active.elect(state)
    else:
        state.service.add(consumer)


def _forget(state: State, consumer: Consumer) -> None:
    channel = state.channels[consumer.id.channel]
    del channel.consumers[consumer.id.tag]
    channel.first_id = max(channel.first_id, consumer.next_id)
    if channel.next_seq == 1 and not channel.consumers and not channel.first_id:
        del state.channels[consumer.id.channel]
        state.suspected.discard(consumer.id.channel)
