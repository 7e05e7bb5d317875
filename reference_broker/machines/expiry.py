"""Expiry: of messages whose time to live is over, and of a queue that nobody uses.

The time is the log's: the node that makes a batch stamps it with its clock, and the latest stamp of any entry is the
present time. So all members expire the same messages at the same entry. If a new leader's clock is behind its
predecessor's, messages live longer, but time does not go back.

A message expires at the time of its enqueue plus the shorter of its own time to live and the queue's. As in RabbitMQ,
only the head is checked: a message behind a longer-lived message expires when it reaches the head. A time to live of 0
becomes 1 ms: such a message is delivered by the command that enqueued it, or expires. Beside a store, where several
commands come in one millisecond, it expires at once.

Without a command the log's time stands still. So the leader sets a timer for the next due time and then proposes a
``Tick``. Unannounced at-most-once dead letters are due at once.

A queue expires when it was unused for its expiry time under one leader. Time without a leader or under an earlier
leader does not count: consumers that lost their node could not come back in between. (RabbitMQ: "leases of durable
queues restart when the server restarts".) So members differ in when a queue expires. This is safe, because the expiry
changes no state: the leader is asked to delete the queue.

Invariant: after a command, the head of the queue is younger than its time to live at the time of the log.
"""

from __future__ import annotations

from typing import Final

from reference_broker.machines.burial import bury, bury_records
from reference_broker.machines.consumers import IN_SERVICE
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import State
from reference_broker.machines.messages.origins import NEVER
from reference_broker.machines.messages.records import leading
from reference_broker.machines.outbox import Outbox

DELETE_RETRY_MS: Final = 1000
"""The time after which the leader is told again to delete its queue."""


def expiry_of(state: State, ttl_ms: int) -> int:
    """The time at which a message enqueued now expires; ``ttl_ms`` is its own time to live (-1: none)."""
    queue_ttl_ms = state.config.message_ttl_ms
    if queue_ttl_ms >= 0:
        ttl_ms = queue_ttl_ms if ttl_ms < 0 else min(ttl_ms, queue_ttl_ms)
    if ttl_ms < 0:
        return NEVER
    return min(state.now_ms + max(ttl_ms, 1), NEVER - 1)


def expire_at_once(state: State, outbox: Outbox, ttl_ms: int) -> None:
    """A run with this time to live was enqueued and dealt. What is left of a run without any time goes, so that no get
    finds messages of it within the same millisecond."""
    if 0 in (ttl_ms, state.config.message_ttl_ms) and state.keyed is None:
        expire_heads(state, outbox, within_ms=1)


def expire_heads(state: State, outbox: Outbox, within_ms: int = 0) -> None:
    """Drop messages off the head until one has more time left than ``within_ms``."""
    ready, until_ms = state.ready, state.now_ms + within_ms
    while ready:
        stretch = ready.head()
        if stretch[3].expires > until_ms:
            return
        if ready.is_before_a_block and _expire_records(state, outbox, until_ms):
            continue
        ready.take(stretch[0])
        state.totals.expired += stretch[0]
        bury(state, outbox, stretch, DeadLetterReason.EXPIRED)


def _expire_records(state: State, outbox: Outbox, until_ms: int) -> int:
    """Expire many records of the backlog at once. Returns the number of messages."""
    backlog = state.ready.backlog
    before = backlog.count
    for number, records in backlog.take_records(lambda records: leading(records["expires"] <= until_ms)):
        bury_records(state, outbox, number, records, DeadLetterReason.EXPIRED)
    expired = before - backlog.count
    state.totals.expired += expired
    return expired


def due_ms(state: State) -> int | None:
    """The time at which something expires next; None: never."""
    due = NEVER
    if state.keyed is not None:
        due = state.keyed.due_ms(is_wanted=bool(state.service.levels))
    elif state.is_expiring and state.ready:
        due = state.ready.head()[3].expires
    if state.dead_letters.at_most_once:
        due = min(due, state.now_ms)
    return None if (due := min(due, _expiry_of_queue(state))) == NEVER else due


def tick(state: State, outbox: Outbox) -> None:
    """The leader's timer has gone off: report an expired queue, and set the timer again."""
    due = due_ms(state)
    if state.now_ms >= _expiry_of_queue(state):
        outbox.queue_expired(state.config.expires_ms)
        due = min(due if due is not None and due > state.now_ms else NEVER, state.now_ms + DELETE_RETRY_MS)
    if due is not None:
        outbox.timer(due)


def _expiry_of_queue(state: State) -> int:
    """The time at which the queue expires. A consumer prevents that, unless its node is out of reach (as in
    RabbitMQ). A leader counts from its own beginning at the earliest: before, nobody could use the queue."""
    expires_ms = state.config.expires_ms
    if expires_ms < 0 or any(consumer.status in IN_SERVICE for consumer in state.all_consumers()):
        return NEVER
    return max(state.last_used_ms, state.led_since_ms) + expires_ms
