"""The rules of a keyed queue: how labelled messages enter, how they are dealt, and how long a consumer may hold one.

:class:`~reference_broker.machines.keyed.KeyedReady` says which message is next. Consumers, credit, limits, times to
live and dead letters are as in a queue without keys. The time to live of a message begins when its delay is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, repeat

from reference_broker.machines import expiry
from reference_broker.machines.commands import NO_LABEL, Enqueue, Label
from reference_broker.machines.consumers import Consumer
from reference_broker.machines.delivery_limit import take_back
from reference_broker.machines.fifo_state import State
from reference_broker.machines.keyed import KeyedReady, Waiting
from reference_broker.machines.limits import stretches_of_one_size
from reference_broker.machines.messages.origins import NEVER, Origin
from reference_broker.machines.outbox import Outbox
from reference_broker.machines.settlement import credited


def add(keyed: KeyedReady, state: State, command: Enqueue, place: tuple[int, int], start: int, expires: int) -> None:
    """Take the messages of a run from position ``start`` on. ``place`` is that of the run, ``expires`` the time at
    which a message without a delay expires."""
    keyed.begin_run()
    base, labels = keyed.next_number - start, _labels(command, start)
    for begin, count, size in stretches_of_one_size(state, command.run, start):
        origins: dict[int, Origin] = {}
        for position in range(begin, begin + count):
            label = next(labels)
            delay_ms = label.delay_ms
            origin = origins.get(delay_ms)
            if origin is None:
                late = expires if expires == NEVER else expires + delay_ms
                origin = origins[delay_ms] = Origin(*place, base, 0, late, size)
            keyed.add(label.key, Waiting(position, origin, state.now_ms + delay_ms, label.retry_ms))


def _labels(command: Enqueue, start: int) -> Iterator[Label]:
    """The labels of the messages from position ``start`` on. A message that came unlabelled has no key."""
    each = chain.from_iterable(repeat(label, count) for count, label in command.labels)
    return islice(chain(each, repeat(NO_LABEL)), start, None)


def deal(keyed: KeyedReady, state: State, outbox: Outbox) -> None:
    """Deal messages until none can be dealt or no consumer has credit."""
    if state.is_expiring:
        expiry.expire_heads(state, outbox)
    while keyed and state.service.levels:
        _count, start, _step, origin = keyed.head()
        ((consumer, _turn, _share),) = state.service.deal(1)[2]
        message_id = consumer.hold(1, start, 1, origin)
        outbox.deliver(consumer.id, message_id, start, 1, 1, origin)
        if consumer.auto_settle:
            state.totals.settled += 1
            state.departures.stretch(1, start, 1, origin)
        dealt(keyed, state, consumer, message_id, is_settled=consumer.auto_settle)
        if state.is_expiring:
            expiry.expire_heads(state, outbox)


def is_behind(state: State) -> bool:
    """Whether a message could be dealt, and was not. After an entry without a command of its own, because all of them
    had been applied before, the time of a head may have come."""
    return state.keyed is not None and bool(state.keyed) and bool(state.service.levels)


def dealt(keyed: KeyedReady, state: State, consumer: Consumer, message_id: int, *, is_settled: bool) -> None:
    """The head went to a consumer: for good, or until the consumer says what became of it."""
    if is_settled:
        keyed.take()
        return
    config = state.config.keyed
    reserve_ms = config.reserve_ms if config is not None else -1
    keyed.reserve(consumer.id, message_id, state.now_ms + reserve_ms if reserve_ms >= 0 else NEVER)


def take_back_overdue(keyed: KeyedReady, state: State, outbox: Outbox) -> None:
    """Take messages back that consumers held for too long. If a consumer settles one later, nothing changes, because it
    does not hold the id."""
    while (late := keyed.overdue()) is not None:
        consumer = state.consumer(late.consumer)
        assert consumer is not None, f"message {late.number} is out, and {late.consumer} is gone"
        consumer.lost_messages = True
        take_back(state, outbox, consumer.release(late.message_id, late.message_id))
        credited(state, consumer)
