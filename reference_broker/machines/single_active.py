"""One consumer at a time: who is active, who waits, and when they change.

The ways are those of RabbitMQ 4.0. Of the consumers in service the one with the highest priority becomes active,
among equals the one that came first; the others wait. It stays active until it is cancelled, its channel ends, its
node is out of reach, or somebody of *higher* priority comes. The latter takes over at once if the active one holds
nothing; else the active one is *quiescing*: it gets no more, and the other becomes active once everything is settled
or returned. One who lost its turn waits by priority and arrival again.

What a consumer holds when it is cancelled stays with it, while the next one becomes active. Who needs strict order
over that, too, settles before cancelling, or uses a prefetch of 1.

A queue without this setting has no WAITING or QUIESCING consumers, and never comes here.

Invariant (I19): at most one consumer is UP or QUIESCING, and if any is in service, one is.
"""

from __future__ import annotations

from reference_broker.machines.consumers import Consumer, Status
from reference_broker.machines.fifo_state import State


def elect(state: State) -> None:
    """Make the one active who should be. To be called after anything that changes who is in service, or a priority."""
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
    """The setting was taken back: everybody is served."""
    for consumer in state.consumers():
        if consumer.status in (Status.WAITING, Status.QUIESCING):
            _put(state, consumer, Status.UP)


def _first(consumers: list[Consumer], status: Status) -> Consumer | None:
    """The one of this status whose turn it is."""
    candidates = [consumer for consumer in consumers if consumer.status is status]
    return min(candidates, key=lambda consumer: (-consumer.priority, consumer.arrival), default=None)


def _put(state: State, consumer: Consumer, status: Status) -> None:
    consumer.status = status
    if status is Status.UP:
        state.service.add(consumer)
    else:
        state.service.remove(consumer)
