"""What is too old: messages whose time to live is over, and a queue that nobody uses.

Time is that of the log: each batch is stamped by the clock of who made it, and a member goes on with the latest stamp
it has seen. So all members expire the same messages at the same entry, and a leader whose clock is behind its
predecessor's makes messages live longer, never time go back.

A message expires at the time of its enqueue plus the shorter of its own time to live and the queue's. Only the head
is looked at: a message behind one that lives longer expires when it gets there (as in RabbitMQ). Time to live 0
becomes 1 ms: delivered at once or not at all, and a message that is delivered in the very command that brought it
lives.

Since nothing may come that would carry the time, the leader sets a timer for the next thing that is due and then
proposes a ``Tick``. Dead letters that the leader was not told of yet are due at once.

Invariant: after a command, the head of the queue is younger than its time to live at the time of the log.
"""

from __future__ import annotations

from typing import Final

from reference_broker.machines.burial import bury, bury_records
from reference_broker.machines.consumers import IN_SERVICE
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import State
from reference_broker.machines.origins import NEVER
from reference_broker.machines.outbox import Outbox
from reference_broker.machines.records import leading

DELETE_RETRY_MS: Final = 1000
"""How long until the leader is told again that its queue should be gone."""


def expiry_of(state: State, ttl_ms: int) -> int:
    """When a message that is enqueued now, with this time to live of its own (-1: none), expires."""
    queue_ttl_ms = state.config.message_ttl_ms
    if queue_ttl_ms >= 0:
        ttl_ms = queue_ttl_ms if ttl_ms < 0 else min(ttl_ms, queue_ttl_ms)
    if ttl_ms < 0:
        return NEVER
    return min(state.now_ms + max(ttl_ms, 1), NEVER - 1)


def expire_heads(state: State, outbox: Outbox) -> None:
    """Drop messages off the head until one has time left."""
    ready = state.ready
    while ready:
        stretch = ready.head()
        if stretch[3].expires > state.now_ms:
            return
        if ready.is_before_a_block and _expire_records(state, outbox):
            continue
        ready.take(stretch[0])
        state.totals.expired += stretch[0]
        bury(state, outbox, stretch, DeadLetterReason.EXPIRED)


def _expire_records(state: State, outbox: Outbox) -> int:
    """The same for many records at once. Returns how many messages that were."""
    backlog = state.ready.backlog
    before = backlog.count
    for number, records in backlog.take_records(lambda records: leading(records["expires"] <= state.now_ms)):
        bury_records(state, outbox, number, records, DeadLetterReason.EXPIRED)
    expired = before - backlog.count
    state.totals.expired += expired
    return expired


def due_ms(state: State) -> int | None:
    """When something is to be looked at again if nothing happens before; None: never."""
    due = NEVER
    if state.is_expiring and state.ready:
        due = state.ready.head()[3].expires
    if state.dead_letters.at_most_once:
        due = min(due, state.now_ms)
    if _may_expire(state):
        due = min(due, state.last_used_ms + state.config.expires_ms)
    return None if due == NEVER else due


def tick(state: State, outbox: Outbox) -> None:
    """The leader's timer has gone off: say what has come of it, and set it anew."""
    due = due_ms(state)
    if _may_expire(state) and state.now_ms >= state.last_used_ms + state.config.expires_ms:
        outbox.queue_expired()
        due = min(due if due is not None and due > state.now_ms else NEVER, state.now_ms + DELETE_RETRY_MS)
    if due is not None:
        outbox.timer(due)


def _may_expire(state: State) -> bool:
    """Consumers keep a queue alive, but for those out of reach, as in RabbitMQ."""
    return state.config.expires_ms >= 0 and not any(consumer.status in IN_SERVICE for consumer in state.all_consumers())
