"""The schedule of one publisher through a run: it begins, changes, takes turns, ends; and what it asked for in total.

Without a rate there is no schedule: as much as the window allows is sent, and what is sent is what was intended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perftest.engine.schedule.cycles import Turns
from perftest.engine.schedule.pacing import NEVER_NS, SECOND_NS, Nanoseconds, Places, Schedule

LATE_NS: Final = 2_000_000
"""A publisher that does not catch up drops a message when it is later than this and than the mean distance between two:
less would drop what the timers of an operating system make late."""


class Tempo:
    """See the module. ``places`` makes the places of a fresh schedule; ``turns`` are the rates of a cycle, which then
    is all that decides; with ``catch_up`` False what is overdue is dropped."""

    def __init__(self, places: Callable[[], Places], *, turns: Turns | None = None, catch_up: bool = True) -> None:
        self._new_places = places
        self._turns = turns
        self._turn = 0
        self._catch_up = catch_up
        self._schedule: Schedule | None = None
        self._counted = 0
        self._intended = 0
        self._dropped = 0

    @property
    def running(self) -> bool:
        """Whether there is a schedule."""
        return self._schedule is not None

    @property
    def rate(self) -> float:
        """Messages per second now; 0 when idle or without a schedule."""
        return self._schedule.rate if self._schedule is not None else 0.0

    def start(self, *, rate: float | None, now_ns: int, phase_ns: int = 0) -> None:
        """Begin ``phase_ns`` after ``now_ns``; without a rate (and no cycle) there is no schedule."""
        if self._turns is not None:
            self._turn = self._turns.number(now_ns)
            rate = self._turns.value(self._turn)
        if rate is None:
            return
        self._schedule = Schedule(rate=rate, start_ns=now_ns + phase_ns, places=self._new_places())
        self._counted = 0
        if self._turns is not None:
            self._bend(self._turn + 1)

    def change(self, *, rate: float | None, now_ns: int, phase_ns: int = 0) -> None:
        """Go on at ``rate`` from now on, or without a schedule; one that only begins does so after ``phase_ns``. A
        cycle is not disturbed."""
        if self._turns is not None:
            return
        if rate is None:
            self.stop(now_ns)
        elif self._schedule is None:
            self.start(rate=rate, now_ns=now_ns, phase_ns=phase_ns)
        else:
            self._schedule.change(rate=rate, now_ns=now_ns)

    def stop(self, now_ns: int) -> None:
        """End the schedule: nothing is intended after ``now_ns``."""
        self._count(now_ns)
        self._schedule = None

    def finish(self) -> None:
        """End the schedule after the last message that was taken."""
        if self._schedule is not None:
            self._intended += self._schedule.taken - self._counted
            self._schedule = None

    def due(self, now_ns: int) -> int:
        """How many messages may leave now, as far as there is a schedule; what is too late is dropped before."""
        assert self._schedule is not None
        if self._turns is not None:
            self._announce(now_ns)
        due = self._schedule.due(now_ns)
        if due and not self._catch_up:
            due -= self._drop_overdue(self._schedule, now_ns)
        return due

    def take(self, count: int) -> Nanoseconds | None:
        """The intended times of the next ``count`` messages, which leave now; None without a schedule."""
        if self._schedule is None:
            self._intended += count
            return None
        return self._schedule.take(count)

    def next_ns(self) -> int:
        """When to look again; in the past when a message is overdue, far in the future when there is none."""
        if self._schedule is None:
            return NEVER_NS
        next_ns = self._schedule.next_ns()
        return next_ns if self._turns is None else min(next_ns, self._turns.at_ns(self._turn + 1))

    def intended_since_cut(self, now_ns: int) -> int:
        """Messages the schedule asked for from the last call up to ``now_ns``; without a schedule those that were
        taken."""
        self._count(now_ns)
        intended, self._intended = self._intended, 0
        return intended

    def dropped_since_cut(self) -> int:
        """Messages that were intended and dropped because it was too late for them, since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _count(self, now_ns: int) -> None:
        if self._schedule is not None:
            if self._turns is not None:
                self._announce(now_ns)
            planned = self._schedule.planned(now_ns)
            self._intended += planned - self._counted
            self._counted = planned

    def _announce(self, now_ns: int) -> None:
        """Bend the line for the next turn, before it comes."""
        assert self._turns is not None
        while self._turns.at_ns(self._turn + 1) <= now_ns:
            self._turn += 1
            self._bend(self._turn + 1)

    def _bend(self, turn: int) -> None:
        assert self._turns is not None and self._schedule is not None
        self._schedule.change(rate=self._turns.value(turn), now_ns=self._turns.at_ns(turn))

    def _drop_overdue(self, schedule: Schedule, now_ns: int) -> int:
        patience_ns = max(LATE_NS, round(SECOND_NS / schedule.rate) if schedule.rate else 0)
        overdue = schedule.due(now_ns - patience_ns)
        schedule.skip(overdue)
        self._dropped += overdue
        return overdue
