"""What the clients know: which messages were published, confirmed, refused, delivered and settled.

The ledger sees octets only, but for one thing: which messages stand in committed entries, so that a confirm can be held
against it.
"""

from __future__ import annotations

import re
from typing import Final

from reference_broker.sim.invariants import ViolationError, check
from reference_broker.sim.queues import GRAVEYARD, QueuePlan

_NUMBER: Final = re.compile(rb"<(\d+) (\d+)>")


class Reader:
    """One subscription: the newest number it got first, by publisher."""

    __slots__ = ("name", "newest", "queue")

    def __init__(self, name: str, queue: QueuePlan) -> None:
        self.name = name
        self.queue = queue
        self.newest: dict[int, int] = {}


class Ledger:
    """Messages by number, over all queues."""

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.redelivered = 0
        self.refused = 0
        self.buried = 0
        """Messages that were delivered out of the graveyard, and published elsewhere."""
        self.is_unsure = False
        """A node could not find out in time whether a queue exists: then it refuses what is published to it."""
        self._publishers = 0
        self._home: dict[int, QueuePlan] = {}
        self._deliveries: dict[tuple[str, int], int] = {}
        self._confirmed: dict[int, QueuePlan] = {}
        self.confirmed = 0
        self._first: set[int] = set()
        self._settled: set[int] = set()
        self._committed: set[int] = set()

    def new_publisher(self) -> int:
        """A number for a channel that publishes."""
        self._publishers += 1
        return self._publishers

    def body(self, publisher: int, padding: int, queue: QueuePlan) -> tuple[int, bytes]:
        """The next message: its number and its body."""
        self.published += 1
        self._home[self.published] = queue
        return self.published, b"<%d %d>" % (self.published, publisher) + b"." * padding

    def committed(self, payload: bytes) -> None:
        """An entry of a queue is committed: so are the messages in it."""
        for number, _ in _NUMBER.findall(payload):
            self._committed.add(int(number))

    def confirms(self, queue: QueuePlan, number: int) -> None:
        """A publisher got a confirm for its message."""
        if queue.is_kept:
            check(number in self._committed, "I22", f"message {number} in {queue.name} is confirmed and not committed")
        self.confirmed += 1
        if queue.is_kept and not queue.has_limits:
            self._confirmed[number] = queue

    def refuses(self, queue: QueuePlan, number: int) -> None:
        """A publisher was told that its message is not taken."""
        may = queue.may_refuse or self.is_unsure
        check(may, "I28", f"message {number} is refused by {queue.name}, which cannot be full")
        self.refused += 1

    def delivers(self, reader: Reader, body: bytes, redelivered: bool) -> int:
        """A consumer got a message; returns its number."""
        found = _NUMBER.match(body)
        if found is None:
            raise ViolationError("I16", f"{reader.name} got octets that nobody published: {body[:40]!r}")
        number, publisher = int(found[1]), int(found[2])
        check(number in self._committed, "I4", f"{reader.name} got message {number}, which is not committed")
        self.delivered += 1
        self._count(reader, number)
        home = self._home[number]
        if home is not reader.queue:
            here = reader.queue.name == GRAVEYARD and home.may_bury
            check(here, "I16", f"{reader.name} got message {number} of {home.name} from {reader.queue.name}")
            self.buried += 1
            return number
        if redelivered:
            self.redelivered += 1
            return number
        check(number not in self._first, "I23", f"{reader.name} got message {number} as if for the first time")
        self._first.add(number)
        newest = reader.newest.get(publisher, 0)
        check(number > newest, "I21", f"{reader.name} got message {number} of channel {publisher} after {newest}")
        reader.newest[publisher] = number
        return number

    def _count(self, reader: Reader, number: int) -> None:
        """A message may be delivered once more than it may return."""
        limit = reader.queue.delivery_limit
        if limit is not None:
            key = reader.queue.name, number
            count = self._deliveries[key] = self._deliveries.get(key, 0) + 1
            check(count <= limit + 1, "I24", f"{reader.name} got message {number} as the {count}th, limit {limit}")

    def settles(self, number: int) -> None:
        """A consumer told the broker that it is done with a message."""
        self._settled.add(number)

    def check_nothing_lost(self) -> None:
        """At the end, when all queues are empty."""
        lost = sorted(self._confirmed.keys() - self._settled)
        where = {self._confirmed[number].name for number in lost}
        check(not lost, "I22", f"{len(lost)} confirmed messages lost in {sorted(where)}: {lost[:10]}")
