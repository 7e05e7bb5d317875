"""Finely resolved progress of a worker, for the recovery from actions: noted at each beat, sent with each interval.

Nothing is counted twice: a note is the growth of the interval's counters since the last note. A plan without a timeline
has no notes.
"""

from __future__ import annotations

from perftest.engine.context import IntervalCounters
from perftest.metrics.recovery import Progress


class ProgressNotes:
    """The notes since the last :meth:`take`."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._notes: list[Progress] = []
        self._confirmed = self._redelivered = 0

    def note(self, now_ns: int, counters: IntervalCounters) -> None:
        """Note the confirms and redeliveries since the last note, if there are any."""
        confirmed, redelivered = counters.confirmed - self._confirmed, counters.redelivered - self._redelivered
        if self._wanted and (confirmed or redelivered):
            self._notes.append(Progress(now_ns, confirmed, redelivered))
            self._confirmed, self._redelivered = counters.confirmed, counters.redelivered

    def take(self, now_ns: int, counters: IntervalCounters) -> list[Progress]:
        """All notes of the interval that ends now; the counters begin anew after this. The last note is made at the
        end, also if nothing happened: a time without confirms is known, too."""
        if not self._wanted:
            return []
        self.note(now_ns, counters)
        self._notes.append(Progress(now_ns, 0, 0))
        taken, self._notes = self._notes, []
        self._confirmed = self._redelivered = 0
        return taken
