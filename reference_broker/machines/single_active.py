"""The single active consumer: which consumer is active, and when another takes over.

The rules are those of RabbitMQ 4.0. Of the consumers in service, the consumer with the highest priority becomes active;
among equals, the first to arrive. The others wait. A consumer stays active until it is cancelled, its channel ends, its
node is out of reach, or a consumer of *higher* priority comes. If the active consumer holds no messages, the new
consumer takes over at once. Otherwise the active consumer is *quiescing*: it gets no more messages, and the new
consumer becomes active when all messages are settled or returned. A replaced consumer waits again, by priority and
arrival.

A cancelled consumer keeps its messages while the next consumer becomes active. A client that needs strict order even
then settles before it cancels, or uses a prefetch of 1.

A queue without this setting has no WAITING or QUIESCING consumers.

Invariant (I19): at most one consumer is UP or QUIESCING, and if any is in service, one is.
"""

from __future__ import annotations

from reference_broker.machines.consumers import Consumer, Status
from reference_broker.machines.fifo_state import State


def elect(state: State) -> None:
    """Activate the right consumer. Call after each change of the consumers in service or of a priority."""
    if not state.config.single_active:
        _release_all(state)
        return
    consumers = list(state.all_consumers())
    active = _first(consumers, Status.QUIESCING) or _first(consumers, Status.UP)
    for other in consumers:
        if other.status is Status.UP and other is not active:
            _put(state, other, Status.WAITING)
    challenger = _first(consumers, Status.WAITING)
    if active is None:
        active = challenger
    elif challenger is not None and challenger.priority > active.priority:
        if active.unacked:
            _put(state, active, Status.QUIESCING)
            return
        _put(state, active, Status.WAITING)
        active = challenger
    if active is not None:
        _put(state, active, Status.UP)


def _release_all(state: State) -> None:
    """Serve all consumers: the queue no longer has a single active consumer."""
    for consumer in state.consumers():
        if consumer.status in (Status.WAITING, Status.QUIESCING):
            _put(state, consumer, Status.UP)


def _first(consumers: list[Consumer], status: Status) -> Consumer | None:
    """The first consumer of this status, by priority and arrival."""
    candidates = [consumer for consumer in consumers if consumer.status is status]
    return min(candidates, key=lambda consumer: (-consumer.priority, consumer.arrival), default=None)


def _put(state: State, consumer: Consumer, status: Status) -> None:
    consumer.status = status
    if status is Status.UP:
        state.service.add(consumer)
    else:
        state.service.remove(consumer)
