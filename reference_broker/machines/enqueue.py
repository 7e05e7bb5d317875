"""How messages enter the queue, and how they are dealt to consumers.

The queue takes or refuses each sequence number of a channel once, and answers it each time it comes. A publisher that
missed the answer sends the messages again, under the same numbers. So the queue remembers the next number of each
channel, and which earlier numbers it refused: a confirm for a refused message would lose that message.

Ready messages go to consumers in the order of the service queue, as far as credit goes.

Invariants: a sequence number of a channel is enqueued at most once (I23); every number below the next number gets the
same answer each time; a refusal concerns the end of a run; after :func:`deal` nothing is ready, or no consumer in
service has credit (I18).
"""

from __future__ import annotations

from reference_broker.machines import expiry, keyed_rules, limits
from reference_broker.machines.commands import Enqueue
from reference_broker.machines.effects import Confirm, Reject
from reference_broker.machines.fifo_state import ChannelState, State
from reference_broker.machines.inspection import answer_ranges
from reference_broker.machines.messages.origins import NEVER, Origin
from reference_broker.machines.outbox import Outbox
from reference_broker.types import ChannelId, LogIndex


def enqueue(state: State, outbox: Outbox, command: Enqueue, index: LogIndex, run_offset: int) -> None:
    """Accept the new messages of the run. Known messages are answered again: the first answer may have been lost.

    A run that leaves a gap is dropped without an answer: its channel will send the run again, in order.
    """
    if not command.first_seq:
        _accept(state, outbox, command, index, run_offset, 0)
        return
    first_seq, channel_id = command.first_seq, command.channel
    channel = state.channels.get(channel_id)
    next_seq = channel.next_seq if channel else 1
    count = command.run.count
    if first_seq > next_seq:
        state.departures.never_entered(index, run_offset, 0, count)
        return
    if channel is None:
        if state.is_of_earlier_boot(channel_id):
            state.departures.never_entered(index, run_offset, 0, count)
            return
        channel = state.channels[channel_id] = ChannelState()
        outbox.monitor(channel_id.node)
    after = first_seq + count
    if first_seq < next_seq:
        state.departures.never_entered(index, run_offset, 0, min(next_seq - first_seq, count))
    if after > next_seq:
        channel.next_seq = after
        refused = _accept(state, outbox, command, index, run_offset, next_seq - first_seq)
        if refused:
            channel.refuse(after - refused, after - 1)
    if channel.refused:
        _answer(state, outbox, channel_id, channel, first_seq, after - 1)
    else:
        outbox.answer(channel_id, first_seq, after - 1, Confirm)


def _answer(state: State, outbox: Outbox, channel_id: ChannelId, channel: ChannelState, first: int, last: int) -> None:
    for refused, begin, end in answer_ranges(channel, first, last):
        outbox.answer(channel_id, begin, end, Reject if refused else Confirm)


def _accept(state: State, outbox: Outbox, command: Enqueue, index: LogIndex, run_offset: int, start: int) -> int:
    """Take the messages of the run from position ``start`` on. Returns the number of refused messages at the end."""
    count = command.run.count - start
    if state.is_plain and command.ttl_ms < 0:
        state.totals.enqueued += count
        state.ready.backlog.push((index, run_offset, start, count, NEVER, command.run.body_size))
        return 0
    if state.refusing:
        refused = count
        state.departures.never_entered(index, run_offset, start, count)
    else:
        expires = expiry.expiry_of(state, command.ttl_ms)
        if state.keyed is not None:
            keyed_rules.add(state.keyed, state, command, (index, run_offset), start, expires)
        else:
            for begin, length, size in limits.stretches_of_one_size(state, command.run, start):
                state.ready.backlog.push((index, run_offset, begin, length, expires, size))
        if expires != NEVER:
            state.expect_expiry()
        deal(state, outbox)
        refused = limits.refuse_tail(state, outbox, count)
    state.totals.enqueued += count - refused
    state.totals.refused += refused
    return refused


def deal(state: State, outbox: Outbox) -> None:
    """Deal ready messages, oldest first, until no message is left or no consumer has credit."""
    if state.keyed is not None:
        keyed_rules.deal(state.keyed, state, outbox)
        return
    ready, levels = state.ready, state.service.levels
    if state.is_expiring:
        expiry.expire_heads(state, outbox)
    while (ready.returned_count or ready.backlog.count) and levels:
        ready.take(_hand_out(state, outbox, *ready.head()))
        if state.is_expiring:
            expiry.expire_heads(state, outbox)


def _hand_out(state: State, outbox: Outbox, count: int, start: int, step: int, origin: Origin) -> int:
    """Give messages of one stretch to the next consumers. Returns the number that they took."""
    dealt, width, shares = state.service.deal(count)
    for consumer, turn, share in shares:
        first = start + turn * step
        stride = width * step
        first_id = consumer.hold(share, first, stride, origin)
        outbox.deliver(consumer.id, first_id, first, share, stride, origin)
        if consumer.auto_settle:
            state.totals.settled += share
            state.departures.stretch(share, first, stride, origin)
    return dealt
