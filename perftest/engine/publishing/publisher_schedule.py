"""When one publisher begins and at which rate it publishes: its schedule, its cycles, and the events that tell of them.

Publishers that all began at once would publish at once for ever, a load that no group of real clients makes. So
publishers with arrivals at equal distances are spread evenly over one period of their rate, unless each publisher
begins after a random time. Poisson arrivals need no spreading: they are independent as they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from perftest.engine.context import Context
from perftest.engine.publishing import material
from perftest.engine.schedule.arrivals import ArrivalTimes as ArrivalPositions
from perftest.engine.schedule.cycle import CycleTimer, CycleTimes
from perftest.engine.schedule.intended_times import SECOND_NS
from perftest.engine.schedule.schedule import Schedule
from perftest.metrics.figures import plain_number
from perftest.spec.behaviour import Arrivals, Publishing
from perftest.spec.plan import Settings

TOLD_MAX: Final = 64
"""Number of publishers whose phases the event names; the rule gives the phases of the others."""


class PublisherSchedule:
    """The schedule of publisher number ``number``, in :attr:`schedule`.

    The cycles of all publishers begin together, and one rule spreads all publishers. So publisher 0 writes the events
    for all.
    """

    def __init__(self, context: Context, *, number: int) -> None:
        self._context = context
        self._publishing = context.plan.publishing
        self._number = number
        self._timers: list[CycleTimer] = []
        self._start_ns = 0
        self.schedule = Schedule(self._arrivals, catch_up=self._publishing.catch_up)

    def begin(self, settings: Settings, at_ns: int, on_begin: Callable[[], None]) -> None:
        """Call ``on_begin`` when the publisher should begin: now, or after a random delay.

        ``at_ns`` is the common begin of all publishers; 0 is now.
        """
        context, seed = self._context, self._context.plan.seed
        now_ns = at_ns or context.clock()
        context.began_ns = context.began_ns or now_ns
        if self._number == 0:
            self._tell_phases(settings)
        wait_ns = delay_ns(self._publishing, seed=seed, publisher=self._number)
        self._start_ns = now_ns + wait_ns
        if wait_ns:
            context.wakeups.at(self._start_ns, on_begin)
        else:
            on_begin()

    def start(self, settings: Settings, on_size: Callable[[int], None]) -> None:
        """Start the schedule and the cycles. ``on_size`` gets the size of bodies, now and at each change."""
        publishing, began_ns = self._publishing, self._context.began_ns
        rates = CycleTimes(publishing.rate_cycle, start_ns=began_ns) if publishing.rate_cycle else None
        self.schedule = Schedule(self._arrivals, rates=rates, catch_up=publishing.catch_up)
        self.schedule.start(rate=self._rate(settings), now_ns=self._start_ns, phase_ns=self._phase_ns(settings))
        if publishing.size_cycle:

            def on_change(size: float, change: int) -> None:
                on_size(int(size))
                self._tell_size(int(size), change)

            self._on_each_change(CycleTimes(publishing.size_cycle, start_ns=began_ns), on_change)
        if rates is not None and self._number == 0:
            self._on_each_change(rates, self._tell_rate)

    def change(self, settings: Settings) -> None:
        """Go on by other settings from now on."""
        rate, phase_ns = self._rate(settings), self._phase_ns(settings)
        self.schedule.change(rate=rate, now_ns=self._context.clock(), phase_ns=phase_ns)

    def stop(self) -> None:
        """End the schedule and the cycles now."""
        self.schedule.stop(self._context.clock())
        for timer in self._timers:
            timer.stop()

    def _on_each_change(self, times: CycleTimes, on_change: Callable[[float, int], None]) -> None:
        context = self._context
        self._timers.append(CycleTimer(times, on_change, clock=context.clock, timers=context.wakeups))

    def _arrivals(self) -> ArrivalPositions:
        return material.arrivals(self._publishing, seed=self._context.plan.seed, publisher=self._number)

    def _rate(self, settings: Settings) -> float | None:
        """Messages per second; None in a closed loop."""
        return settings.rate if settings.rate is not None else material.own_rate(self._publishing)

    def _first_rate(self, settings: Settings) -> float | None:
        cycle = self._publishing.rate_cycle
        return cycle[0][0] if cycle else self._rate(settings)

    def _phase_ns(self, settings: Settings) -> int:
        publishers, rate = self._publishers(settings), self._first_rate(settings)
        return phase_ns(self._publishing, publisher=self._number, publishers=publishers, rate=rate)

    def _publishers(self, settings: Settings) -> int:
        return max(settings.publishers * self._publishing.channels, 1)

    def _tell_phases(self, settings: Settings) -> None:
        seed, publishers = self._context.plan.seed, self._publishers(settings)
        found = phases(self._publishing, seed=seed, publishers=publishers, rate=self._first_rate(settings))
        if found is not None:
            self._context.emit("publisher_phases", str(found.pop("text")), **found)

    def _tell_size(self, size: int, change: int) -> None:
        if self._number == 0 and change:
            self._context.emit("setting_changed", f"bodies of {size} octets from now on", size_bytes=size)

    def _tell_rate(self, rate: float, change: int) -> None:
        if change:
            self._context.emit(
                "setting_changed", f"{plain_number(rate)} messages per second of each publisher", rate=rate
            )


def delay_ns(publishing: Publishing, *, seed: int, publisher: int) -> int:
    """Delay of a publisher's begin after the run's: a random time, the same for the same seed."""
    if not publishing.start_delay_s:
        return 0
    return round(random.Random(f"{seed} {publisher} delay").uniform(0, publishing.start_delay_s * SECOND_NS))


def phase_ns(publishing: Publishing, *, publisher: int, publishers: int, rate: float | None) -> int:
    """The place in its period at which the schedule of a publisher begins. ``rate`` is the rate of each publisher."""
    if not rate or publishing.start_delay_s or publishing.arrivals is Arrivals.POISSON:
        return 0
    return round(SECOND_NS / rate * (publisher % publishers) / publishers)


def phases(publishing: Publishing, *, seed: int, publishers: int, rate: float | None) -> dict[str, object] | None:
    """The event that says how publishers are spread; None where nothing is spread."""
    numbers = range(min(publishers, TOLD_MAX))
    if publishing.start_delay_s:
        delays = [delay_ns(publishing, seed=seed, publisher=number) for number in numbers]
        text = f"each publisher begins a random time later, at most {publishing.start_delay_s:g} s"
        within_s = publishing.start_delay_s
        return {"rule": "random", "text": text, "within_s": within_s, "seed": seed, "offsets_ns": delays}
    if rate is None:
        return None
    if publishing.arrivals is Arrivals.POISSON:
        return {"rule": "independent", "text": f"Poisson arrivals of seed {seed}", "seed": seed}
    if not rate:
        return None
    offsets = [phase_ns(publishing, publisher=number, publishers=publishers, rate=rate) for number in numbers]
    period_ns = round(SECOND_NS / rate)
    spread = f"{publishers} publishers spread evenly over" if publishers > 1 else "one publisher with"
    text = f"{spread} a period of {period_ns / 1e6:g} ms"
    return {"rule": "even", "text": text, "period_ns": period_ns, "offsets_ns": offsets}
