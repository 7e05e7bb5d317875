"""When a publisher begins, at which rate and phase it publishes, and the turns of its cycles; what is told of it."""

from __future__ import annotations

from collections.abc import Callable

from perftest.engine.context import Context
from perftest.engine.publishing import material
from perftest.engine.schedule import phases
from perftest.engine.schedule.cycles import Turns
from perftest.engine.schedule.pacing import Places
from perftest.engine.schedule.tempo import Tempo
from perftest.engine.schedule.turning import TurnTimer
from perftest.spec.plan import Settings


class Timetable:
    """That of publisher number ``number``; :attr:`tempo` is its schedule now. Publisher 0 speaks for all: their cycles
    begin together, and one rule spreads them."""

    def __init__(self, context: Context, *, number: int) -> None:
        self._context = context
        self._publishing = context.plan.publishing
        self._number = number
        self._timers: list[TurnTimer] = []
        self._start_ns = 0
        self.tempo = Tempo(self._places, catch_up=self._publishing.catch_up)

    def begin(self, settings: Settings, at_ns: int, flow: Callable[[], None]) -> None:
        """Call ``flow`` when it is this publisher's time, now or after a random delay; see :meth:`Publisher.begin
        <perftest.engine.publishing.publisher.Publisher.begin>`."""
        context, seed = self._context, self._context.plan.seed
        now_ns = at_ns or context.clock()
        context.began_ns = context.began_ns or now_ns
        if self._number == 0:
            self._tell_phases(settings)
        delay_ns = phases.delay_ns(self._publishing, seed=seed, publisher=self._number)
        self._start_ns = now_ns + delay_ns
        if delay_ns:
            context.wakeups.at(self._start_ns, flow)
        else:
            flow()

    def start(self, settings: Settings, on_size: Callable[[int], None]) -> None:
        """Start the schedule, and the cycles: ``on_size`` is told the size of bodies now and at each turn."""
        publishing, began_ns = self._publishing, self._context.began_ns
        rates = Turns(publishing.rate_cycle, start_ns=began_ns) if publishing.rate_cycle else None
        self.tempo = Tempo(self._places, turns=rates, catch_up=publishing.catch_up)
        self.tempo.start(rate=self._rate(settings), now_ns=self._start_ns, phase_ns=self._phase_ns(settings))
        if publishing.size_cycle:
            sizes = Turns(publishing.size_cycle, start_ns=began_ns)

            def turn(size: float, change: int) -> None:
                on_size(int(size))
                self._tell_size(int(size), change)

            self._timers.append(TurnTimer(self._context, sizes, turn))
        if rates is not None and self._number == 0:
            self._timers.append(TurnTimer(self._context, rates, self._tell_rate))

    def change(self, settings: Settings) -> None:
        """Go on by other settings from now on."""
        rate, phase_ns = self._rate(settings), self._phase_ns(settings)
        self.tempo.change(rate=rate, now_ns=self._context.clock(), phase_ns=phase_ns)

    def stop(self) -> None:
        """Nothing is intended after now, and no cycle turns any more."""
        self.tempo.stop(self._context.clock())
        for timer in self._timers:
            timer.stop()

    def _places(self) -> Places:
        return material.places(self._publishing, seed=self._context.plan.seed, publisher=self._number)

    def _rate(self, settings: Settings) -> float | None:
        """Messages per second; None in a closed loop."""
        return settings.rate if settings.rate is not None else material.own_rate(self._publishing)

    def _first_rate(self, settings: Settings) -> float | None:
        cycle = self._publishing.rate_cycle
        return cycle[0][0] if cycle else self._rate(settings)

    def _phase_ns(self, settings: Settings) -> int:
        publishers, rate = self._publishers(settings), self._first_rate(settings)
        return phases.phase_ns(self._publishing, publisher=self._number, publishers=publishers, rate=rate)

    def _publishers(self, settings: Settings) -> int:
        return max(settings.publishers * self._publishing.channels, 1)

    def _tell_phases(self, settings: Settings) -> None:
        seed, publishers = self._context.plan.seed, self._publishers(settings)
        found = phases.record(self._publishing, seed=seed, publishers=publishers, rate=self._first_rate(settings))
        if found is not None:
            self._context.emit("publisher_phases", str(found.pop("text")), **found)

    def _tell_size(self, size: int, change: int) -> None:
        if self._number == 0 and change:
            self._context.emit("setting_changed", f"bodies of {size} octets from now on", size_bytes=size)

    def _tell_rate(self, rate: float, change: int) -> None:
        if change:
            self._context.emit("setting_changed", f"{rate:g} messages per second of each publisher", rate=rate)
