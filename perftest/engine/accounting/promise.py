"""The order that queues promise, as far as a plan can tell: of the queue, of each key, of a channel, or none.

- *queue*: one consumer at a time has the queue. Whatever channel a message comes on, no message comes for the first
  time after a later message of its publisher, flagged as redelivered or not.
- *key*: a keyed queue hands out one message of a key at a time, over all its consumers. A message of a key may be
  repeated until the next message of this key comes, and never afterwards: a redelivery must not overtake, either.
- *channel*: several consumers compete. On each channel first deliveries that are not redeliveries are in order (AMQP
  0-9-1, 4.7); between channels there is no order.
- *none*: each message has a key of its own, or messages of a key are given to several consumers before they are done.

A publisher numbers its messages, and takes its random keys in turn, so the number of a message tells its key.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from perftest.spec.behaviour import RoutingKeys
from perftest.spec.plan import Plan, QueueSpec, QueueType


class Order(StrEnum):
    """What is in order."""

    QUEUE = "queue"
    KEY = "key"
    CHANNEL = "channel"
    NONE = "none"


class Promise(NamedTuple):
    """An order. For keys, message ``n`` of each publisher has the key ``n`` modulo ``keys``."""

    order: Order
    keys: int = 0

    @property
    def spans_channels(self) -> bool:
        """Whether deliveries of one queue on different channels are in order."""
        return self.order in (Order.QUEUE, Order.KEY)


OF_CHANNELS: Final = Promise(Order.CHANNEL)
_NOTHING: Final = Promise(Order.NONE)
_KEY: Final = "x-key"
_NO_KEY: Final = "header:x-group-key"
_HEADER: Final = "header:"
_SINGLE: Final = "x-single-active-consumer"


def promise_of(plan: Plan) -> Promise:
    """The promise of the queues of a plan with one group of load. Queues with different promises promise together what
    competing consumers are promised, or nothing if one of them is keyed."""
    found = {_of_queue(plan, index, queue) for index, queue in enumerate(plan.queues)}
    if len(found) == 1:
        return found.pop()
    return OF_CHANNELS if found <= {OF_CHANNELS, Promise(Order.QUEUE)} else _NOTHING


def is_contended(plan: Plan) -> bool:
    """Whether any queue of a plan has several consumers at once in any step."""
    return any(_consumers_of(plan, index) > 1 for index in range(len(plan.queues)))


def _of_queue(plan: Plan, index: int, queue: QueueSpec) -> Promise:
    if queue.predeclared:  # its kind and its consumers are the business of others
        return OF_CHANNELS
    alone = not queue.name or _consumers_of(plan, index) <= 1
    if queue.type is QueueType.KEYED or _KEY in queue.arguments:
        return _of_keyed(plan, queue, alone=alone)
    # A queue that deletes itself has a second consumer at times, which keeps it and gives its messages back.
    one_at_a_time = (alone or queue.arguments.get(_SINGLE) is True) and not queue.auto_delete
    return Promise(Order.QUEUE) if one_at_a_time else OF_CHANNELS


def _of_keyed(plan: Plan, queue: QueueSpec, *, alone: bool) -> Promise:
    keys = _keys_of_publisher(plan, str(queue.arguments.get(_KEY, _NO_KEY)))
    settled_at_once = any(not step.settings.ack_interval for step in plan.steps)
    return _NOTHING if not keys or (settled_at_once and not alone) else Promise(Order.KEY, keys)


def _keys_of_publisher(plan: Plan, source: str) -> int:
    """Number of keys that each publisher takes in turn; 0: each message has a key of its own."""
    publishing = plan.publishing
    if source.startswith(_HEADER):
        return int(source.removeprefix(_HEADER) in publishing.properties)
    return publishing.routing_key_cache if publishing.routing_keys is RoutingKeys.RANDOM else 1


def _consumers_of(plan: Plan, index: int) -> int:
    """The most consumers that a queue has at once in any step."""
    most = max((step.settings.consumers for step in plan.steps), default=0) * plan.consuming.channels
    return len(range(index, most, len(plan.queues)))
