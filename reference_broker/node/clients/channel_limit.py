"""The prefetch of a whole channel (``basic.qos`` with ``global``): the most deliveries that may wait for their answer,
of all its consumers together.

A queue knows the limit of one consumer. So each consumer of such a channel gets the channel's limit as its own, also
when it changes. Deliveries to several consumers that together exceed the limit wait here. As in RabbitMQ, a consumer
without acknowledgement does not use up the limit, but waits while others do; gets neither use it up nor wait. A channel
without such a limit does not come here: the limit takes the channel's place where queues look for the channel, and
stands before the handlers of acknowledgements.

Invariant: something waits only while as many deliveries as the limit allows are unacknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from reference_broker.amqp.events import Cancel, Recovered, Settled
from reference_broker.message_run import RunSlice, without_first
from reference_broker.node.clients.authorization import Handler
from reference_broker.node.clients.consuming import Consuming
from reference_broker.node.clients.transactions import HandOut
from reference_broker.types import ConsumerId, GroupId, Outcome

NO_LIMIT: Final = 1 << 62
"""Limit of a channel that has taken its limit away."""
_FREE: Final = (Settled, Recovered, Cancel, HandOut)
"""Events after which a waiting delivery may be sent."""


class ChannelLimit:
    """Stands for the :class:`~reference_broker.node.clients.consuming.Consuming` of a channel where queues look for it,
    and holds deliveries above the limit back."""

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming
        self._leaving: set[str] = set()
        """Consumers that are being cancelled: until cancel-ok, they get deliveries on their way."""
        self._waiting: deque[tuple[GroupId, ConsumerId, int, list[RunSlice], int]] = deque()
        self._own: dict[str, int] = {}
        """The own prefetches, 0 for none, of the consumers that heed the limit."""
        self.most = NO_LIMIT
        self.takes, self.missed = consuming.takes, consuming.missed

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Deliver as many messages as the limit allows."""
        if consumer.tag not in self._own or consumer.tag in self._leaving:
            self._consuming.deliver(group, consumer, first_message_id, slices, delivery_count)
            return
        self._waiting.append((group, consumer, first_message_id, slices, delivery_count))
        self.let_go()

    def let_go(self) -> None:
        """Deliver from what waits, as much as there is room for."""
        while self._waiting and (room := self.most - self._unacknowledged) > 0:
            group, consumer, first, slices, delivery_count = self._waiting.popleft()
            known = self._consuming.consumers.get(consumer.tag)
            count = sum(each[2] for each in slices)
            if count > room and known is not None and not known.no_ack:
                rest = without_first(slices, room)
                self._waiting.appendleft((group, consumer, first + room, rest, delivery_count))
                slices = first_of(slices, room)
            self._consuming.deliver(group, consumer, first, slices, delivery_count)

    @property
    def _unacknowledged(self) -> int:
        consumers = self._consuming.consumers.items()
        return sum(consumer.held for tag, consumer in consumers if tag in self._own and not consumer.no_ack)

    def change(self, most: int) -> None:
        """The limit is another one, also for the consumers that are there."""
        consuming = self._consuming
        before, self.most = self.most, most
        for tag, consumer in consuming.consumers.items() if most != before else ():
            queue = consuming.context.used[consumer.group]
            if consumer.is_get or not queue.kind.takes_channel_limits:
                continue
            own = self._own.setdefault(tag, 0 if consumer.credit == self._default else consumer.credit)
            if not consumer.is_cancelled and tag not in self._leaving:
                consumer.credit = self._credit(own)
                queue.subscribe(consumer, consumer.priority, consuming.answers.aside(_ignore))
        self.let_go()

    @property
    def _default(self) -> int:
        return self._consuming.context.node.limits.credit_default

    def _credit(self, own: int) -> int:
        return min(own or self._default, self.most)

    def cancelling(self, tag: str) -> None:
        """The client cancels a consumer: what waits for it goes back to its queue."""
        self._leaving.add(tag)
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            _group, consumer, first, slices, _delivery_count = each
            if consumer.tag != tag:
                self._waiting.append(each)
            elif (known := self._consuming.consumers.get(tag)) is not None:
                last = first + sum(part[2] for part in slices) - 1
                known.next_message_id = last + 1
                known.held += last - first + 1
                self._consuming.settle(known, Outcome.RETURN, ((first, last),))

    def forget(self, tag: str) -> None:
        """The waiting messages of a consumer are not the consumer's any more."""
        self._waiting = deque(each for each in self._waiting if each[1].tag != tag)

    def consuming(self, tag: str, own: int) -> int:
        """A consumer begins, with a prefetch of its own or 0. Returns the prefetch for the queue."""
        self._leaving.discard(tag)
        self._own = {known: prefetch for known, prefetch in self._own.items() if known in self._consuming.consumers}
        self._own[tag] = own
        return self._credit(own)

    def around(self, handlers: Mapping[type, Handler]) -> Mapping[type, Handler]:
        """The handlers of events, after which something that waits may go."""
        return {kind: self._freeing(handler) if kind in _FREE else handler for kind, handler in handlers.items()}

    def _freeing(self, handler: Handler) -> Handler:
        def handle(channel: Any, event: Any) -> None:
            if isinstance(event, Cancel):
                self.cancelling(event.consumer_tag)
            handler(channel, event)
            self.let_go()

        return handle


def first_of(slices: list[RunSlice], count: int) -> list[RunSlice]:
    """The first ``count`` messages; there are more."""
    found: list[RunSlice] = []
    for run, start, length, step in slices:
        taken = min(length, count)
        found.append((run, start, taken, step))
        count -= taken
        if not count:
            break
    return found


def _ignore(_next_message_id: int) -> None:
    """The client waits for nothing."""
