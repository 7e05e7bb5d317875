"""The limits of a queue, ``max_length`` and ``max_length_bytes``, and what happens when it is full.

Limits count *ready* messages, not messages that consumers hold. The queue keeps its limits after each command, once it
has dealt as far as credit goes. So it never drops or refuses a message that a consumer could take at once.

``DROP_HEAD`` drops the oldest ready messages, returned messages first.

``REJECT_PUBLISH`` refuses the end of a run that does not fit, and then every publish
(:mod:`~reference_broker.machines.enqueue`) until the queue is down to four fifths of both limits. Otherwise the queue
would refuse and accept publishers by turns. A queue beside a store takes a publish as soon as there is room, as
RabbitMQ's classic queues do. With ``REJECT_PUBLISH_DLX`` the refused messages become dead letters. Dead letters that
wait for their confirms count too, because they cannot be dropped. In RabbitMQ the publisher's channel learns of a full
queue, so messages on their way still enter. Here the queue itself refuses them, and a publish never takes it above its
limits.

Invariant (I28): after a command the queue refuses publishes only if it is above four fifths of a limit; with
``DROP_HEAD`` it is within its limits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reference_broker.machines.burial import bury, bury_records
from reference_broker.machines.config import Overflow
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import State
from reference_broker.machines.messages.backlog import SIZE_MAX, counts_of
from reference_broker.machines.messages.origins import Origin
from reference_broker.machines.messages.records import Columns, leading
from reference_broker.machines.outbox import Outbox
from reference_broker.message_run import MessageRun

_NO_NUMBER: Final = 0
"""The number of a refused message, which never comes back and so needs no place in the order of messages."""


def enforce(state: State, outbox: Outbox) -> None:
    """Drop messages until the queue is within its limits, or decide whether it refuses publishes from now on."""
    if state.config.overflow is Overflow.DROP_HEAD:
        state.refusing = False
        _drop_head(state, outbox)
    elif state.refuses_until_well_below:
        refusing = state.refusing or _excess(state, 1) > 0
        state.refusing = refusing and not _is_well_below(state)


def refuse_tail(state: State, outbox: Outbox, count: int) -> int:
    """Take back the last of the ``count`` newest messages, as far as the queue is over its limits. Messages that were
    dealt stay dealt. Returns the number of messages taken back."""
    backlog = state.ready.backlog
    stretches: list[tuple[int, int, int, Origin]] = []
    refused = 0
    if not state.is_limited or state.config.overflow is Overflow.DROP_HEAD or not _excess(state, 1):
        return 0
    while refused < count and backlog.tail_count:
        index, offset, start, held, expires, size = backlog.peek_tail()
        excess = min(_excess(state, size), held, count - refused)
        if not excess:
            break
        origin = Origin(index, offset, _NO_NUMBER, 0, expires, size)
        stretches.append((excess, start + held - excess, 1, origin))
        backlog.take_tail(excess)
        refused += excess
    _let_go(state, outbox, stretches[::-1])
    state.refusing = state.refuses_until_well_below and (state.refusing or refused > 0)
    return refused


def _let_go(state: State, outbox: Outbox, stretches: list[tuple[int, int, int, Origin]]) -> None:
    """The refused messages leave, in order: for good, or as dead letters."""
    for stretch in stretches:
        if state.config.overflow is Overflow.REJECT_PUBLISH_DLX:
            bury(state, outbox, stretch, DeadLetterReason.MAXLEN)
        else:
            state.departures.stretch(*stretch)


def stretches_of_one_size(state: State, run: MessageRun, start: int) -> list[tuple[int, int, int]]:
    """The messages of a run from position ``start`` on, as stretches: position of the first, count, octets per body.

    If the queue limits octets, a ragged run is cut where the size of the body changes.
    """
    if run.ends is None or state.config.max_length_bytes < 0:
        return [(start, run.count - start, run.body_size)]
    sizes = np.minimum(run.body_sizes()[start:], SIZE_MAX)
    begins = np.concatenate(([0], np.flatnonzero(np.diff(sizes)) + 1))
    counts = np.diff(np.append(begins, len(sizes)))
    return list(zip((begins + start).tolist(), counts.tolist(), sizes[begins].tolist(), strict=True))


def _drop_head(state: State, outbox: Outbox) -> None:
    ready = state.ready
    while ready:
        count, start, step, origin = ready.head()
        dropped = min(_excess(state, origin.size), count)
        if not dropped:
            return
        if dropped == count and ready.is_before_a_block and _drop_records(state, outbox):
            continue
        ready.take(dropped)
        state.totals.dropped += dropped
        bury(state, outbox, (dropped, start, step, origin), DeadLetterReason.MAXLEN)


def _drop_records(state: State, outbox: Outbox) -> int:
    """Drop many records of the backlog at once. Returns the number of messages."""
    backlog = state.ready.backlog
    before = backlog.count
    for number, records in backlog.take_records(lambda records: _excess_records(state, records)):
        bury_records(state, outbox, number, records, DeadLetterReason.MAXLEN)
    dropped = before - backlog.count
    state.totals.dropped += dropped
    return dropped


def _excess_records(state: State, records: Columns) -> int:
    """Number of these records, from the head of the queue, that must go with all their messages."""
    config = state.config
    counts = counts_of(records)
    sizes = records["size"].astype(np.int64)
    gone = np.zeros(len(records), np.bool_)
    if config.max_length >= 0:
        gone |= np.cumsum(counts) <= state.ready.count - config.max_length
    if config.max_length_bytes >= 0:
        gone |= np.cumsum(counts * sizes) - sizes < state.ready.octets - config.max_length_bytes
    return leading(gone)


def _length(state: State) -> tuple[int, int]:
    """The messages and octets that count against the limits."""
    if state.config.overflow is Overflow.DROP_HEAD:
        return state.ready.count, state.ready.octets
    return state.ready.count + state.dead_letters.count, state.ready.octets + state.dead_letters.octets


def _excess(state: State, size: int) -> int:
    """Number of messages of this size that must go. All, if they have no octets and the queue has too many octets."""
    config = state.config
    count, octets = _length(state)
    excess = 0
    if config.max_length >= 0:
        excess = max(excess, count - config.max_length)
    if config.max_length_bytes >= 0 and octets > config.max_length_bytes:
        excess = max(excess, -((config.max_length_bytes - octets) // size) if size else count)
    return excess


def _is_well_below(state: State) -> bool:
    config = state.config
    count, octets = _length(state)
    return not (
        (config.max_length >= 0 and count > config.max_length * 4 // 5)
        or (config.max_length_bytes >= 0 and octets > config.max_length_bytes * 4 // 5)
    )
