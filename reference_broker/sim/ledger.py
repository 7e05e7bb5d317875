"""What the clients know: which messages were published, confirmed, delivered and settled. I19 to I26.

The ledger sees octets only, but for one thing: which messages stand in committed entries, so that a confirm can be held
against it.
"""

from __future__ import annotations

import re
from typing import Final

from reference_broker.sim.invariants import ViolationError, check
from reference_broker.sim.queues import QueuePlan

_NUMBER: Final = re.compile(rb"<(\d+) (\d+)>")


class Reader:
    """One subscription: the newest number it got first, by publisher."""

    __slots__ = ("name", "newest")

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest: dict[int, int] = {}


class Ledger:
    """Messages by number, over all queues."""

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.redelivered = 0
        self._publishers = 0
        self._confirmed: dict[int, QueuePlan] = {}
        self.confirmed = 0
        self._first: set[int] = set()
        self._settled: set[int] = set()
        self._committed: set[int] = set()

    def new_publisher(self) -> int:
        """A number for a channel that publishes."""
        self._publishers += 1
        return self._publishers

    def body(self, publisher: int, padding: int) -> tuple[int, bytes]:
        """The next message: its number and its body."""
        self.published += 1
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

    def delivers(self, reader: Reader, body: bytes, redelivered: bool) -> int:
        """A consumer got a message; returns its number."""
        found = _NUMBER.match(body)
        if found is None:
            raise ViolationError("I16", f"{reader.name} got octets that nobody published: {body[:40]!r}")
        number, publisher = int(found[1]), int(found[2])
        check(number in self._committed, "I4", f"{reader.name} got message {number}, which is not committed")
        self.delivered += 1
        if redelivered:
            self.redelivered += 1
            return number
        check(number not in self._first, "I23", f"{reader.name} got message {number} as if for the first time")
        self._first.add(number)
        newest = reader.newest.get(publisher, 0)
        check(number > newest, "I21", f"{reader.name} got message {number} of channel {publisher} after {newest}")
        reader.newest[publisher] = number
        return number

    def settles(self, number: int) -> None:
        """A consumer told the broker that it is done with a message."""
        self._settled.add(number)

    def check_nothing_lost(self) -> None:
        """At the end, when all queues are empty."""
        lost = sorted(self._confirmed.keys() - self._settled)
        where = {self._confirmed[number].name for number in lost}
        check(not lost, "I26", f"{len(lost)} confirmed messages lost in {sorted(where)}: {lost[:10]}")
