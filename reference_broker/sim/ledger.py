"""The clients' ledger: which messages were published, confirmed, refused, delivered and settled.

The ledger sees only octets of clients, with one exception: it also learns which messages stand in committed entries, so
that it can check each confirm.
"""

from __future__ import annotations

import re
from typing import Final

from reference_broker.sim.invariants import ViolationError, check
from reference_broker.sim.queues import GRAVEYARD, QueuePlan

_NUMBER: Final = re.compile(rb"<(\d+) (\d+)>")


class ConsumerRecord:
    """The first deliveries of one subscription: the newest message number of each publisher."""

    __slots__ = ("name", "newest", "queue")

    def __init__(self, name: str, queue: QueuePlan) -> None:
        self.name = name
        self.queue = queue
        self.newest: dict[int, int] = {}


class Ledger:
    """All messages by number, over all queues."""

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.redelivered = 0
        self.refused = 0
        self.buried = 0
        """Messages that were published to another queue and delivered out of the graveyard."""
        self.is_unsure = False
        """A node could not find out in time whether a queue exists. Then the node refuses publishes to that queue."""
        self._publishers = 0
        self._home: dict[int, QueuePlan] = {}
        self._deliveries: dict[tuple[str, int], int] = {}
        self._confirmed: dict[int, QueuePlan] = {}
        self.confirmed = 0
        self._first: set[int] = set()
        self._settled: set[int] = set()
        self._committed: set[int] = set()

    def new_publisher(self) -> int:
        """A number for the next channel that publishes."""
        self._publishers += 1
        return self._publishers

    def body(self, publisher: int, padding: int, queue: QueuePlan) -> tuple[int, bytes]:
        """The next message: its number and its body."""
        self.published += 1
        self._home[self.published] = queue
        return self.published, b"<%d %d>" % (self.published, publisher) + b"." * padding

    def committed(self, payload: bytes) -> None:
        """An entry of a queue is committed, and so are the messages in it."""
        for number, _ in _NUMBER.findall(payload):
            self._committed.add(int(number))

    def confirms(self, queue: QueuePlan, number: int) -> None:
        """A publisher got a confirm for a message."""
        if queue.is_kept:
            check(number in self._committed, "I22", f"message {number} in {queue.name} is confirmed and not committed")
        self.confirmed += 1
        if queue.is_kept and not queue.has_limits:
            self._confirmed[number] = queue

    def refuses(self, queue: QueuePlan, number: int) -> None:
        """A publisher heard that a queue refused a message."""
        may = queue.may_refuse or self.is_unsure
        check(may, "I28", f"message {number} is refused by {queue.name}, which cannot be full")
        self.refused += 1

    def delivers(self, consumer: ConsumerRecord, body: bytes, redelivered: bool) -> int:
        """A consumer got a message. Returns the number of the message."""
        found = _NUMBER.match(body)
        if found is None:
            raise ViolationError("I16", f"{consumer.name} got octets that nobody published: {body[:40]!r}")
        number, publisher = int(found[1]), int(found[2])
        check(number in self._committed, "I4", f"{consumer.name} got message {number}, which is not committed")
        self.delivered += 1
        self._count(consumer, number)
        home = self._home[number]
        if home is not consumer.queue:
            here = consumer.queue.name == GRAVEYARD and home.may_bury
            check(here, "I16", f"{consumer.name} got message {number} of {home.name} from {consumer.queue.name}")
            self.buried += 1
            return number
        if redelivered:
            self.redelivered += 1
            return number
        check(number not in self._first, "I23", f"{consumer.name} got message {number} as if for the first time")
        self._first.add(number)
        newest = consumer.newest.get(publisher, 0)
        check(number > newest, "I21", f"{consumer.name} got message {number} of channel {publisher} after {newest}")
        consumer.newest[publisher] = number
        return number

    def _count(self, consumer: ConsumerRecord, number: int) -> None:
        """Count a delivery. A message may be delivered once more than it may return."""
        limit = consumer.queue.delivery_limit
        if limit is not None:
            key = consumer.queue.name, number
            count = self._deliveries[key] = self._deliveries.get(key, 0) + 1
            check(count <= limit + 1, "I24", f"{consumer.name} got message {number} as the {count}th, limit {limit}")

    def settles(self, number: int) -> None:
        """A client has settled a message."""
        self._settled.add(number)

    def check_nothing_lost(self) -> None:
        """Check, at the end, when all queues are empty, that no confirmed message was lost."""
        lost = sorted(self._confirmed.keys() - self._settled)
        where = {self._confirmed[number].name for number in lost}
        check(not lost, "I22", f"{len(lost)} confirmed messages lost in {sorted(where)}: {lost[:10]}")
