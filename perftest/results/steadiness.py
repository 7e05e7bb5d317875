"""Whether a step was steady: its first half against its second. Pure.

The intervals of one step are not independent of each other, so a test of significance would be wrong. A drift is a
size, and its limit is chosen. The p50 of a half is the median of the p50 of its slots; that serves to compare the
halves, and is never a result.

A step that was not steady is warned of and does not fail. Its figures are the measured ones; but a shorter or longer
step would have given others. Plans with actions or changing rates cannot be steady.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import median
from typing import Any, Final

from perftest.metrics.histogram import Histogram, SparseCounts
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.summary import OPEN, loads_of, step_loop
from perftest.results.trust import Check, Status

SLOTS_MIN: Final = 4
"""Smallest number of slots of a step that is judged. With fewer slots a half is one slot, and the scatter of the slots
looks like drift."""
RATE_DRIFT_WARN, P50_DRIFT_WARN = 0.10, 0.25
"""Changes of the second half over the first half that are warned of."""
_MS_NS: Final = 1_000_000
"""Nanoseconds of a millisecond: the histograms of a log have times in whole milliseconds."""
_KEPT: Final = (50.0, 95.0, 99.0)
"""Percentiles that are kept of each slot."""
_OPEN_SLOTS: Final = 4
"""Number of slots of a step whose histograms are kept: workers report an interval at about the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadySlot:
    """All workers' intervals of the same time. Percentiles are of the latency to lead with, None without samples."""

    length_s: float
    delivered_per_s: float
    published_per_s: float = 0.0
    p50_ns: float | None
    p95_ns: float | None = None
    p99_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The steady time of a step of one group of load, slot by slot."""

    step: int
    label: str
    slots: Sequence[SteadySlot]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How one step changed: factors of second half over first; ``p50`` is None without latencies in a half."""

    step: int
    label: str
    rate: float
    p50: float | None

    @property
    def part(self) -> float:
        """The greater of both changes, each as a part of its limit: the step is not steady from 1 on."""
        of_p50 = 0.0 if self.p50 is None else abs(self.p50 - 1) / P50_DRIFT_WARN
        return max(abs(self.rate - 1) / RATE_DRIFT_WARN, of_p50)


def drift_of(timeline: Timeline) -> Drift | None:
    """The drift of a step; None if there are fewer than :data:`SLOTS_MIN` slots, or if nothing came in the first
    half."""
    half = len(timeline.slots) // 2
    first, second = timeline.slots[:half], timeline.slots[-half:]
    if len(timeline.slots) < SLOTS_MIN or not (before := _rate(first)) > 0:
        return None
    return Drift(step=timeline.step, label=timeline.label, rate=_rate(second) / before, p50=_ratio(first, second))


def steady_state(timelines: Iterable[Timeline]) -> Check:
    """The check of the step that was the least steady."""
    known = list(timelines)
    found = [drift for each in known if (drift := drift_of(each)) is not None]
    short = [each.label for each in known if len(each.slots) < SLOTS_MIN]
    if not found:
        text = f"no step has {SLOTS_MIN} steady intervals: whether it was steady cannot be told"
        return Check("steady_state", Status.WARN, text)
    worst = max(found, key=lambda one: one.part)
    text = f"from first half to second, the rate of the least steady step changed by {worst.rate - 1:+.1%}"
    text += "" if worst.p50 is None else f" and its p50 by {worst.p50 - 1:+.1%}"
    text += f" ({worst.label})" + (f", too short to tell: {', '.join(short)}" if short else "")
    unsteady = tuple(one.step for one in found if one.part >= 1)
    return Check("steady_state", Status.WARN if unsteady else Status.PASS, text, steps=unsteady)


def _rate(slots: Sequence[SteadySlot]) -> float:
    """Delivered messages per second of measured time: slots need not be of equal length."""
    time_s = sum(slot.length_s for slot in slots)
    return sum(slot.delivered_per_s * slot.length_s for slot in slots) / time_s if time_s > 0 else 0.0


def _ratio(first: Sequence[SteadySlot], second: Sequence[SteadySlot]) -> float | None:
    before, after = ([slot.p50_ns for slot in half if slot.p50_ns is not None] for half in (first, second))
    if not before or not after or median(before) <= 0:
        return None
    return float(median(after) / median(before))


# As a run goes


class _Slot:
    """A slot that still gets intervals."""

    __slots__ = ("delivered", "latencies", "lengths_ns", "published")

    def __init__(self) -> None:
        self.delivered = self.published = 0
        self.lengths_ns: dict[tuple[str, str], int] = {}
        self.latencies: list[SparseCounts] = []

    def told(self) -> Sequence[float]:
        """Length in seconds, messages delivered and published, and :data:`_KEPT` in nanoseconds (NaN without
        samples)."""
        merged = Histogram()
        for counts in self.latencies:
            merged.add_sparse(counts)
        kept_ns = merged.capped_percentiles_ns(_KEPT) if merged.total else (nan,) * len(_KEPT)
        return max(self.lengths_ns.values(), default=0) / 1e9, self.delivered, self.published, *kept_ns


class _Slots:
    """The slots of one step and group of load: closed ones as six numbers each, and open ones."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.figures = array("d")
        self.open: dict[int, _Slot] = {}

    def slot(self, number: int) -> _Slot:
        """The slot of this number. Counts for a slot after its end go to the first open slot."""
        if number not in self.open and self.numbers and number <= self.numbers[-1]:
            number = min(self.open, default=number)
        return self.open.setdefault(number, _Slot())

    def close(self, keep: int) -> None:
        """Close all slots but the last few."""
        for number in sorted(self.open)[: max(len(self.open) - keep, 0)]:
            self.numbers.append(number)
            self.figures.extend(self.open.pop(number).told())

    def slots(self) -> list[SteadySlot]:
        """All slots, in order."""
        width = 3 + len(_KEPT)
        open_slots = [self.open[number].told() for number in sorted(self.open)]
        closed = zip(*(self.figures[at::width] for at in range(width)), strict=True)
        return [_steady_slot(*told) for told in (*closed, *open_slots) if told[0] > 0]


def _steady_slot(length_s: float, delivered: float, published: float, *kept_ns: float) -> SteadySlot:
    p50_ns, p95_ns, p99_ns = (None if isnan(each) else each for each in kept_ns)
    rates = {"delivered_per_s": delivered / length_s, "published_per_s": published / length_s}
    return SteadySlot(length_s=length_s, **rates, p50_ns=p50_ns, p95_ns=p95_ns, p99_ns=p99_ns)


class SteadySlots:
    """Follows the steady time of every measured step through its intervals, as they come. It keeps six numbers of a
    slot, and the histograms of the last slots only.

    The middle of an interval decides its slot, counted from the first interval of its step.
    """

    def __init__(self, plan: Mapping[str, Any], *, complete: bool = False) -> None:
        """``plan`` is a manifest's. If ``complete``, all histograms are kept, for latencies in any order."""
        self._interval_ns = max(float(plan.get("interval_s") or 1.0) * 1e9, 1.0)
        self._complete = complete
        self._lead = {
            (step.get("number"), group): Series.E2E_SCHED if step_loop(step, load) == OPEN else Series.E2E
            for group, load in loads_of(plan).items()
            for step in load.get("steps") or ()
        }
        self._origins: dict[int, int] = {}
        self._steps: dict[tuple[int, str], _Slots] = {}

    def add(self, record: Interval) -> None:
        """An interval of one worker, with its latencies where it has them."""
        if record.phase is not Phase.STEADY or (record.step, record.group) not in self._lead:
            return
        slot = self._slot(record.step, record.group, record.start_ns, record.length_ns)
        slot.delivered += record.delivered
        slot.published += record.published
        slot.lengths_ns[record.source] = slot.lengths_ns.get(record.source, 0) + record.length_ns
        counts = record.latencies.get(self._lead[record.step, record.group])
        if counts is not None:
            slot.latencies.append(counts)

    def wants(self, step: int, group: str, series: str) -> bool:
        """Whether :meth:`latency` takes this series."""
        return self._lead.get((step, group)) == series

    def latency(self, step: int, group: str, start_ns: int, length_ns: int, latencies: Histogram) -> None:
        """The latencies of an interval that :meth:`add` got without them."""
        self._slot(step, group, start_ns, length_ns).latencies.append(latencies.sparse())

    def timelines(self, rows: Iterable[Mapping[str, Any]]) -> list[Timeline]:
        """The timelines of these rows of ``result.json``, in their order."""
        known = ((row, self._steps.get((row["step"], row.get("group", "")))) for row in rows)
        return [
            Timeline(
                step=int(row["step"]),
                label=str(row["label"] or f"step {row['step']}"),
                slots=[] if found is None else found.slots(),
            )
            for row, found in known
        ]

    def _slot(self, step: int, group: str, start_ns: int, length_ns: int) -> _Slot:
        from_ns = start_ns - start_ns % _MS_NS
        origin_ns = self._origins.setdefault(step, from_ns)
        slots = self._steps.get((step, group)) or self._begun(step, group)
        found = slots.slot(int((from_ns - origin_ns + length_ns / 2) // self._interval_ns))
        if not self._complete:
            slots.close(keep=_OPEN_SLOTS)
        return found

    def _begun(self, step: int, group: str) -> _Slots:
        """The slots of a step that begins, which ends the step before it."""
        for (_, of), before in self._steps.items():
            if of == group and not self._complete:
                before.close(keep=0)
        return self._steps.setdefault((step, group), _Slots())
