"""Dead letters: messages that have left the queue and are on their way to another queue.

*At most once*: a letter leaves the state as soon as the leader's node knows where its body is. If the leader dies at
that moment, the letter is lost. *At least once*: a letter stays here under an id of its own, and its entry stays in the
log, until ``DeadLetterSettled`` names the id. A new leader routes all unsettled letters again. So a letter may be
routed twice, and is never lost.

A million messages may die in one command, so letters go to the leader in portions. At-least-once letters have a window:
at most :data:`WINDOW` letters with :data:`WINDOW_OCTETS` of bodies (or one larger letter) are in flight, so a slow
target does not fill the leader's memory with bodies (RabbitMQ's worker has a prefetch, too). At-most-once letters go in
the same number with each entry, so that no entry blocks the leader's event loop; the queue's timer stays due while some
wait. All other letters wait packed (:mod:`~reference_broker.machines.messages.records`), as in the backlog.

Invariants: ids go up by 1 and are never reused; every id below ``announced``, and no other, was announced to a leader;
if a letter waits, the letters in flight leave no room for it in the window.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import numpy as np

from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.messages.backlog import counts_of
from reference_broker.machines.messages.held_ranges import HeldRange, release
from reference_broker.machines.messages.origins import Origin
from reference_broker.machines.messages.records import Columns, Records
from reference_broker.types import IdRange

WINDOW: Final = 1024
"""The most at-least-once letters in flight per queue, and the most at-most-once letters that one entry sends."""
WINDOW_OCTETS: Final = 16 << 20
"""The most octets of bodies of letters in flight, which the leader holds in memory. In a queue without a limit in
octets, each body counts as the mean of its run."""

DeadLetterRecord = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""Reason, id of the first letter (0: at most once), count, start, step, and the origin."""

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
    """The dead letters of a queue."""

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
        """Announced at-least-once letters, until they are settled."""
        self.in_flight_count = 0
        self.in_flight_octets = 0
        self.waiting: Records[DeadLetterRecord] = Records(DEAD_LETTER, DEAD_LETTER_COLUMNS)
        """At-least-once letters that are not announced yet."""
        self.at_most_once: Records[DeadLetterRecord] = Records(DEAD_LETTER, DEAD_LETTER_COLUMNS)
        """At-most-once letters that are not announced yet."""
        self.next_id = 1
        self.announced = 1
        self.count = 0
        """At-least-once letters that are not settled."""
        self.octets = 0

    def keep(self, count: int, start: int, step: int, origin: Origin, reason: DeadLetterReason) -> None:
        """Keep messages as at-least-once letters, under the next ids."""
        self.waiting.append((reason, self.next_id, count, start, step, *origin))
        self.next_id += count
        self.count += count
        self.octets += count * origin.size

    def keep_many(self, letters: Columns) -> None:
        """Keep many letters, under the next ids."""
        counts = counts_of(letters)
        letters["first_id"] = self.next_id + np.cumsum(counts) - counts
        self.waiting.extend(letters)
        count = int(counts.sum())
        self.next_id += count
        self.count += count
        self.octets += int((counts * letters["size"]).sum())

    def settle(self, ranges: tuple[IdRange, ...]) -> list[DeadRange]:
        """Forget letters that their target has confirmed, and return them. Unknown ids are ignored."""
        settled: list[DeadRange] = []
        for first, last in ranges:
            released = release(self.in_flight, first, last)
            settled += released
            for letters in released:
                self.in_flight_count -= letters.count
                self.in_flight_octets -= letters.count * letters.origin.size
                self.count -= letters.count
                self.octets -= letters.count * letters.origin.size
        return settled

    def announce(self) -> list[DeadRange]:
        """Put waiting letters in flight, as far as the window allows. Returns these letters."""
        fresh = []
        while self.waiting and (room := _room(self.waiting, self.in_flight_count, self.in_flight_octets)) > 0:
            letters = _next(self.waiting, room)
            self.announced = letters.first_id + letters.count
            self._send(letters)
            fresh.append(letters)
        return fresh

    def take_at_most_once(self, count: int, octets: int) -> DeadRange | None:
        """Remove the next at-most-once letters that may go behind ``count`` letters of ``octets`` in one entry. None if
        no more may go. There must be at-most-once letters."""
        room = _room(self.at_most_once, count, octets)
        return _next(self.at_most_once, room) if room > 0 else None

    def _send(self, letters: DeadRange) -> None:
        self.in_flight.append(letters)
        self.in_flight_count += letters.count
        self.in_flight_octets += letters.count * letters.origin.size

    def load(self, letters: Columns) -> None:
        """Take over the letters of a snapshot. ``next_id`` and ``announced`` must be set."""
        once, announced = letters["first_id"] == 0, letters["first_id"] < self.announced
        self.at_most_once.extend(letters[once])
        for reason, first_id, count, start, step, *place in letters[announced & ~once].tolist():
            rest = DeadRange(first_id, count, start, step, Origin(*place), DeadLetterReason(reason))
            self._send(rest.cut(min(count, self.announced - first_id)))
            if rest.count:
                self.waiting.append((reason, rest.first_id, rest.count, rest.start, step, *place))
        self.waiting.extend(letters[~announced])
        counts = counts_of(letters[~once])
        self.count = int(counts.sum())
        self.octets = int((counts * letters[~once]["size"]).sum())

    def dump(self) -> bytes:
        """All letters, packed: by id, then the at-most-once letters."""
        pack = DEAD_LETTER.pack
        in_flight = [pack(r.reason, r.first_id, r.count, r.start, r.step, *r.origin) for r in self.in_flight]
        return b"".join((*in_flight, self.waiting.dump(), self.at_most_once.dump()))


def _room(letters: Records[DeadLetterRecord], count: int, octets: int) -> int:
    """Number of letters of the first range that may join ``count`` letters of ``octets``. At least one if ``count`` is
    0."""
    size = letters.first()[-1]
    room = WINDOW - count
    if size or octets > WINDOW_OCTETS:
        room = min(room, (WINDOW_OCTETS - octets) // max(size, 1))
    return room if count else max(room, 1)


def _next(letters: Records[DeadLetterRecord], room: int) -> DeadRange:
    """Remove and return the first letters, at most ``room`` of them."""
    reason, first_id, count, start, step, entry, offset, base, returns, expires, size = letters.first()
    place = Origin(entry, offset, base, returns, expires, size)
    taken = min(room, count)
    if taken < count:
        rest_id = first_id + taken if first_id else 0
        letters.replace_first((reason, rest_id, count - taken, start + taken * step, step, *place))
    else:
        letters.drop_first()
    return DeadRange(first_id, taken, start, step, place, DeadLetterReason(reason))
