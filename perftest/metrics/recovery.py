"""How the measured load recovers from an action on the broker: pure arithmetic over finely resolved progress.

Theory of operation. While a plan has a timeline, each worker notes about every 20 ms how many messages were confirmed
and redelivered since its last note (:data:`Progress`). The intervals of the run, which are 1 s long, could not show a
pause of 300 ms. The notes of all workers, sorted by time, are the progress of the load. :func:`recovery` compares the
progress before an action with the progress after the action.

The time before an action is at most :data:`BEFORE_NS` long and lies in the same step. The time after an action ends
with the next action, with the step, or after :data:`AFTER_NS`. A pause without confirms is an outage if it is longer
than :data:`OUTAGE_NS` and more than twice as long as every pause before the action: a slow load has pauses anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from perftest.metrics.interval import Phase

SECOND_NS: Final = 1_000_000_000
BEFORE_NS: Final = 5 * SECOND_NS
"""Longest time before an action whose rate counts as the rate before the action."""
KNOWN_NS: Final = SECOND_NS // 2
"""Time before an action below which the rate before the action is unknown."""
AFTER_NS: Final = 300 * SECOND_NS
"""Time after which a load that has not recovered counts as not recovered."""
WINDOW_NS: Final = SECOND_NS
"""The rate is back when this time, at most, brings the wanted part of the rate before."""
BACK: Final = 0.9
OUTAGE_NS: Final = SECOND_NS // 10
_LATE_NS: Final = 60 * SECOND_NS
"""Notes of different workers about the same moment come within the longest interval of a plan."""


class Progress(NamedTuple):
    """Messages that were confirmed and redelivered between the last note of a worker and ``t_ns``."""

    t_ns: int
    confirmed: int
    redelivered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recovery after an action; times in seconds since the action. None: it did not happen, or cannot be told.

    ``first_confirm_s`` is the first confirm, after an outage the first confirm that ends the outage. ``back_s`` is when
    the rate of confirms reached 90 % of ``rate_before``, on average over
    :data:`WINDOW_NS`. ``outage_s`` is the time
    without a confirm, 0 if there was no outage. ``observed_s`` is the time that all this is about.
    """

    first_confirm_s: float | None
    back_s: float | None
    rate_before: float | None
    outage_s: float | None
    redelivered: int
    observed_s: float

    def in_words(self) -> str:
        """The recovery as the rest of a sentence."""
        if self.first_confirm_s is None:
            words = [f"no message was confirmed in the {self.observed_s:.1f} s after it"]
        else:
            words = [f"first confirm after {self.first_confirm_s:.2f} s"]
        if self.outage_s:
            words.append(f"no confirm for {self.outage_s:.2f} s")
        if self.rate_before is None:
            words.append("the rate before is unknown")
        elif self.back_s is not None:
            words.append(f"{BACK:.0%} of {self.rate_before:,.0f} confirms per second after {self.back_s:.2f} s")
        else:
            rate = f"{BACK:.0%} of {self.rate_before:,.0f} confirms per second"
            words.append(f"not back at {rate} within {self.observed_s:.2f} s")
        return ", ".join([*words, f"{self.redelivered:,} redelivered"])


def recovery(notes: Sequence[Progress], *, at_ns: int, until_ns: int) -> Recovery:
    """The recovery from an action at ``at_ns``. ``notes`` are sorted by time, of one step, and end where they end; the
    time that counts ends at ``until_ns``."""
    confirms = [note for note in notes if note.confirmed]
    times = [note.t_ns for note in confirms]
    totals = [0, *accumulate(note.confirmed for note in confirms)]
    first, cut, end = (bisect_left(times, moment) for moment in (at_ns - BEFORE_NS, at_ns, until_ns))
    begin_ns = max(notes[0].t_ns if notes else at_ns, at_ns - BEFORE_NS)
    before_s = (at_ns - begin_ns) / SECOND_NS
    known = totals[cut] > totals[first] and at_ns - begin_ns >= KNOWN_NS
    rate = (totals[cut] - totals[first]) / before_s if known else None
    after = times[cut:end]
    pause = _longest_pause([*times[max(cut - 1, 0) : cut], *after], until_ns)
    usual_ns = max((later - earlier for earlier, later in pairwise([begin_ns, *times[first:cut]])), default=0)
    outage = pause if rate is not None and pause[1] - pause[0] > max(OUTAGE_NS, 2 * usual_ns) else None
    alive_ns = outage[1] if outage is not None else at_ns
    resumed = next((moment for moment in after if moment >= alive_ns), None)
    back_ns = None
    if rate is not None and resumed is not None:
        starts = [max(alive_ns, at_ns), *(moment for moment in after if moment >= alive_ns)]
        back_ns = next((start for start in starts if _is_back(times, totals, start, until_ns, rate)), None)
    return Recovery(
        first_confirm_s=_since(at_ns, resumed),
        back_s=_since(at_ns, back_ns),
        rate_before=rate,
        outage_s=None if rate is None else (outage[1] - max(outage[0], at_ns)) / SECOND_NS if outage else 0.0,
        redelivered=sum(note.redelivered for note in notes if at_ns <= note.t_ns < until_ns),
        observed_s=(until_ns - at_ns) / SECOND_NS,
    )


def _longest_pause(times: Sequence[int], until_ns: int) -> tuple[int, int]:
    """Beginning and end of the longest time without a confirm; a time that no confirm ends, ends at ``until_ns``."""
    return max(pairwise([*times, until_ns]), key=lambda pause: pause[1] - pause[0], default=(until_ns, until_ns))


def _is_back(times: Sequence[int], totals: Sequence[int], start_ns: int, until_ns: int, rate: float) -> bool:
    """Whether the time from ``start_ns`` on brings the wanted part of the rate. A shorter window than usual counts only
    if the time that is known ends there."""
    end_ns = min(start_ns + WINDOW_NS, until_ns)
    confirmed = totals[bisect_left(times, end_ns)] - totals[bisect_left(times, start_ns)]
    return 2 * (end_ns - start_ns) >= WINDOW_NS and confirmed * SECOND_NS >= BACK * rate * (end_ns - start_ns)


def _since(at_ns: int, moment_ns: int | None) -> float | None:
    return None if moment_ns is None else max(moment_ns - at_ns, 0) / SECOND_NS


@dataclass(frozen=True, slots=True)
class _Noted:
    """An action whose recovery is not known yet, and its record."""

    at_ns: int
    facts: dict[str, Any]


class Recoveries:
    """Turns the notes of workers and the moments of actions into recoveries, as the run goes on.

    An action is over when its step is, or after :data:`AFTER_NS`. Only the notes that an action may still need are
    kept.
    """

    def __init__(self) -> None:
        self._notes: list[Progress] = []
        self._step = 0
        self._open: list[_Noted] = []

    def acted(self, at_ns: int, facts: dict[str, Any]) -> None:
        """An action began. ``facts`` are handed back with its recovery."""
        self._open.append(_Noted(at_ns, facts))

    def withdraw(self, facts: Mapping[str, Any]) -> None:
        """The action with these ``facts`` failed, so that there is nothing to recover from."""
        self._open = [noted for noted in self._open if noted.facts is not facts]

    def add(self, step: int, phase: Phase, notes: Iterable[Sequence[int]]) -> list[tuple[dict[str, Any], Recovery]]:
        """Take the notes of a worker about an interval; the recoveries that are known now."""
        if phase is Phase.DRAIN or step != self._step:
            found = self.end()
            self._step, self._notes = step, []
            if phase is Phase.DRAIN:
                return found
        else:
            found = []
        self._notes += [Progress(*note) for note in notes]
        newest_ns = max((note.t_ns for note in self._notes), default=0)
        found += self._close(newest_ns - AFTER_NS - _LATE_NS)
        self._forget(newest_ns)
        return found

    def end(self) -> list[tuple[dict[str, Any], Recovery]]:
        """The recoveries from all actions of the step that ends here."""
        newest_ns = max((note.t_ns for note in self._notes), default=0)
        return self._close(newest_ns)

    def _close(self, last_ns: int) -> list[tuple[dict[str, Any], Recovery]]:
        """The recoveries from the actions until ``last_ns``."""
        over = [noted for noted in self._open if noted.at_ns <= last_ns]
        if not over:
            return []
        self._notes.sort()
        newest_ns = self._notes[-1].t_ns + 1
        moments = sorted(noted.at_ns for noted in self._open)
        found = []
        for noted in sorted(over, key=lambda noted: noted.at_ns):
            later = next((moment for moment in moments if moment > noted.at_ns), newest_ns)
            until_ns = min(later, newest_ns, noted.at_ns + AFTER_NS)
            found.append((noted.facts, recovery(self._notes, at_ns=noted.at_ns, until_ns=until_ns)))
        self._open = [noted for noted in self._open if noted.at_ns > last_ns]
        return found

    def _forget(self, newest_ns: int) -> None:
        needed_ns = min([newest_ns - _LATE_NS, *(noted.at_ns for noted in self._open)]) - BEFORE_NS
        if self._notes and self._notes[0].t_ns < needed_ns - _LATE_NS:
            self._notes = [note for note in self._notes if note.t_ns >= needed_ns]
