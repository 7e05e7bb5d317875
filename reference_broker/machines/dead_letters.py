"""Messages that have left the queue and are not gone yet: dead letters on their way to a new home.

*At most once*, a dead message leaves the state as soon as the leader's node is told where its body lies; if the leader
dies at that moment it is lost. *At least once*, it stays here under an id of its own, which pins its entry in the log,
until ``DeadLetterSettled`` names that id. So the same letter may be routed twice (a new leader begins again), and is
never lost.

A million messages may die in one command. Of those that stay the leader hears of a window only, :data:`WINDOW` letters
with :data:`WINDOW_OCTETS` of bodies or one that is larger, and of more as these are settled: a target that is slow or
away must not fill the leader's memory with bodies (RabbitMQ's worker has a prefetch, too). Of those that do not stay it
hears of as many with each entry, and as long as some are left the queue's timer is due: no entry may keep the leader's
event loop from everything else. The others wait packed (:mod:`~reference_broker.machines.records`), and come here as
they are packed in the backlog.

Invariants: ids are given +1 and never again; every id below ``announced`` was told to some leader, and none above;
unless all are told, those told and not settled leave no room for the next in the window.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import numpy as np

from reference_broker.machines.backlog import counts_of
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.held_ranges import HeldRange, release
from reference_broker.machines.origins import Origin
from reference_broker.machines.records import Columns, Records
from reference_broker.types import IdRange

WINDOW: Final = 1024
"""Dead letters that may be on their way at a time, per queue; at most once, that an entry may send on their way."""
WINDOW_OCTETS: Final = 16 << 20
"""Their bodies, which the leader holds in memory. Of queues without a limit in octets each body counts as the mean of
its run."""

DeadLetterRecord = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""Reason, id of the first (0: at most once), count, start, step, and the origin."""

DEAD_LETTER: Final = Struct(">BQIIIQIqIQI")
DEAD_LETTER_COLUMNS: Final = np.dtype(
    [
        ("reason", "u1"),
        ("first_id", ">u8"),
        ("count", ">u4"),
        ("start", ">u4"),
        ("step", ">u4"),
        ("entry", ">u8"),
        ("offset", ">u4"),
        ("base", ">i8"),
        ("returns", ">u4"),
        ("expires", ">u8"),
        ("size", ">u4"),
    ]
)


class DeadRange(HeldRange):
    """Dead letters ``first_id``, +1, ...: a stretch of one run."""

    __slots__ = ("reason",)

    def __init__(
        self,
        first_id: int,
        count: int,
        start: int,
        step: int,
        origin: Origin,
        reason: DeadLetterReason = DeadLetterReason.REJECTED,
    ) -> None:
        super().__init__(first_id, count, start, step, origin)
        self.reason = reason

    def front(self, count: int) -> Self:
        """The first ``count`` messages as a range of their own."""
        return type(self)(self.first_id, count, self.start, self.step, self.origin, self.reason)


class DeadLetters:
    """The dead letters of a queue, ``told`` and not."""

    __slots__ = (
        "announced",
        "at_most_once",
        "count",
        "in_flight",
        "in_flight_count",
        "in_flight_octets",
        "next_id",
        "octets",
        "waiting",
    )

    def __init__(self) -> None:
        self.in_flight: list[DeadRange] = []
        """At least once: those that a leader was told of, until they are confirmed."""
        self.in_flight_count = 0
        self.in_flight_octets = 0
        self.waiting: Records[DeadLetterRecord] = Records(DEAD_LETTER, DEAD_LETTER_COLUMNS)
        """At least once: those that no leader was told of."""
        self.at_most_once: Records[DeadLetterRecord] = Records(DEAD_LETTER, DEAD_LETTER_COLUMNS)
        """At most once: those that no leader was told of."""
        self.next_id = 1
        self.announced = 1
        self.count = 0
        """Letters that wait to be confirmed."""
        self.octets = 0

    def keep(self, count: int, start: int, step: int, origin: Origin, reason: DeadLetterReason) -> None:
        """Give these messages the next ids."""
        self.waiting.append((reason, self.next_id, count, start, step, *origin))
        self.next_id += count
        self.count += count
        self.octets += count * origin.size

    def keep_many(self, letters: Columns) -> None:
        """Give these the next ids."""
        counts = counts_of(letters)
        letters["first_id"] = self.next_id + np.cumsum(counts) - counts
        self.waiting.extend(letters)
        count = int(counts.sum())
        self.next_id += count
        self.count += count
        self.octets += int((counts * letters["size"]).sum())

    def settle(self, ranges: tuple[IdRange, ...]) -> None:
        """These are confirmed elsewhere. Unknown ids are ignored."""
        for first, last in ranges:
            for letters in release(self.in_flight, first, last):
                self.in_flight_count -= letters.count
                self.in_flight_octets -= letters.count * letters.origin.size
                self.count -= letters.count
                self.octets -= letters.count * letters.origin.size

    def announce(self) -> list[DeadRange]:
        """Letters that fit into the window now and were never told of."""
        fresh = []
        while self.waiting and (room := _room(self.waiting, self.in_flight_count, self.in_flight_octets)) > 0:
            letters = _next(self.waiting, room)
            self.announced = letters.first_id + letters.count
            self._send(letters)
            fresh.append(letters)
        return fresh

    def take_at_most_once(self, count: int, octets: int) -> DeadRange | None:
        """Take off the next letters that are sent at most once, as many as may go behind ``count`` letters of
        ``octets`` in one entry. None if no more may go. Not to be asked if there are none."""
        room = _room(self.at_most_once, count, octets)
        return _next(self.at_most_once, room) if room > 0 else None

    def _send(self, letters: DeadRange) -> None:
        self.in_flight.append(letters)
        self.in_flight_count += letters.count
        self.in_flight_octets += letters.count * letters.origin.size

    def load(self, letters: Columns) -> None:
        """Take over what a snapshot has, whose next numbers are known."""
        once, told = letters["first_id"] == 0, letters["first_id"] < self.announced
        self.at_most_once.extend(letters[once])
        for reason, first_id, count, start, step, *place in letters[told & ~once].tolist():
            one = DeadRange(first_id, count, start, step, Origin(*place), DeadLetterReason(reason))
            front = one.cut(min(one.count, self.announced - one.first_id))
            self._send(front)
            if one.count:
                self.waiting.append((one.reason, one.first_id, one.count, one.start, one.step, *one.origin))
        self.waiting.extend(letters[~told])
        counts = counts_of(letters[~once])
        self.count = int(counts.sum())
        self.octets = int((counts * letters[~once]["size"]).sum())

    def dump(self) -> bytes:
        """All of them, packed, by id; those without one at the end."""
        pack = DEAD_LETTER.pack
        told = (pack(one.reason, one.first_id, one.count, one.start, one.step, *one.origin) for one in self.in_flight)
        return b"".join((*told, self.waiting.dump(), self.at_most_once.dump()))


def _room(letters: Records[DeadLetterRecord], count: int, octets: int) -> int:
    """How many of the first range may join ``count`` letters of so many octets: one in any case, if there is none."""
    size = letters.first()[-1]
    room = WINDOW - count
    if size or octets > WINDOW_OCTETS:
        room = min(room, (WINDOW_OCTETS - octets) // max(size, 1))
    return room if count else max(room, 1)


def _next(letters: Records[DeadLetterRecord], room: int) -> DeadRange:
    """Take the first letters off, at most ``room`` of them."""
    reason, first_id, count, start, step, entry, offset, base, returns, expires, size = letters.first()
    place = Origin(entry, offset, base, returns, expires, size)
    taken = min(room, count)
    if taken < count:
        rest_id = first_id + taken if first_id else 0
        letters.replace_first((reason, rest_id, count - taken, start + taken * step, step, *place))
    else:
        letters.drop_first()
    return DeadRange(first_id, taken, start, step, place, DeadLetterReason(reason))
