"""Messages that are dead but not gone: dead letters that stay until their new home has confirmed them.

At most once, a dead message leaves the state and the leader's node is told where its body lies; if the leader dies at
that moment it is lost. At least once, it stays here under an id of its own, which pins its entry in the log, until
``DeadLetterSettled`` names that id. So the same letter may be routed twice (a new leader begins again), and is never
lost.

Of a million dead letters the leader hears of the first :data:`WINDOW` only, and of more as these are settled: a target
that is slow or away must not fill the leader's memory with bodies (RabbitMQ's worker has a prefetch, too).

Invariants: ids are given +1 and never again; every id below ``announced`` was told to some leader, and none above;
unless all are told, at least :data:`WINDOW` of those told are not settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from reference_broker.machines.commands import IdRange
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.held_ranges import HeldRange, release
from reference_broker.machines.origins import Origin

if TYPE_CHECKING:
    from reference_broker.machines.fifo_state import State
    from reference_broker.machines.outbox import Outbox

WINDOW: Final = 1024
"""Dead letters that may be on their way at a time, per queue."""


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

    def between(self, first_id: int, end_id: int) -> DeadRange:
        """Those of its letters with ids from ``first_id`` and below ``end_id``, as a range of their own."""
        begin = max(first_id, self.first_id)
        start = self.start + (begin - self.first_id) * self.step
        count = min(end_id, self.first_id + self.count) - begin
        return DeadRange(begin, count, start, self.step, self.origin, self.reason)


class DeadLetters:
    """The dead letters that wait to be confirmed."""

    __slots__ = ("announced", "count", "kept", "next_id", "octets")

    def __init__(self) -> None:
        self.kept: list[DeadRange] = []
        self.next_id = 1
        self.announced = 1
        self.count = 0
        self.octets = 0

    def keep(self, count: int, start: int, step: int, origin: Origin, reason: DeadLetterReason) -> None:
        """Give these messages the next ids."""
        self.load(DeadRange(self.next_id, count, start, step, origin, reason))
        self.next_id += count

    def load(self, letters: DeadRange) -> None:
        """Append a range that has its ids."""
        self.kept.append(letters)
        self.count += letters.count
        self.octets += letters.count * letters.origin.size

    def settle(self, ranges: tuple[IdRange, ...]) -> None:
        """These are confirmed elsewhere. Unknown ids are ignored."""
        for first, last in ranges:
            for letters in release(self.kept, first, min(last, self.announced - 1)):
                self.count -= letters.count
                self.octets -= letters.count * letters.origin.size

    def announce(self) -> list[DeadRange]:
        """Letters that fit into the window now and were never told of."""
        fresh, room = [], WINDOW
        for letters in self.kept:
            end = letters.first_id + min(room, letters.count)
            room -= end - letters.first_id
            if end > self.announced:
                fresh.append(letters.between(self.announced, end))
                self.announced = end
            if not room:
                break
        return fresh

    def open(self) -> list[DeadRange]:
        """Letters that were told of and are not settled: what a new leader must take over."""
        return [letters.between(0, self.announced) for letters in self.kept if letters.first_id < self.announced]


def bury(state: State, outbox: Outbox, stretch: tuple[int, int, int, Origin], reason: DeadLetterReason) -> None:
    """These messages have left the queue: dead-letter them, if the queue does so."""
    config = state.config
    if config.dead_letter is None:
        return
    count, start, step, origin = stretch
    state.totals.dead_lettered += count
    if not config.keeps_dead_letters:  # what a full queue drops is never kept, for it does not refuse publishers then
        outbox.dead_letter(0, count, start, step, origin, reason)
        return
    state.dead_letters.keep(count, start, step, origin, reason)
    tell(state, outbox)


def tell(state: State, outbox: Outbox) -> None:
    """Tell the leader of the letters that have come into the window."""
    for letters in state.dead_letters.announce():
        outbox.dead_letter(letters.first_id, letters.count, letters.start, letters.step, letters.origin, letters.reason)
