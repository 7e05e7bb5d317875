"""The state of a run right now: the model behind the screen and the lines.

Pure: records in, numbers out. A view asks the board, and computes only its own layout. Of a run with several groups of
load the board has the measured group that reported first, and a :class:`LoadRow` for each other group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perftest.metrics.figures import plain_number
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.summary import RATES, PhaseTotals, Tally
from perftest.results.trust import supports
from perftest.screen.host_lines import HostBoard, HostRow
from perftest.screen.interval_merger import MergedInterval
from perftest.screen.node_lines import NodeBoard, NodeRow
from perftest.screen.rate_history import RateHistory
from perftest.spec.plan import Group, Plan, Step, is_open_loop
from perftest.spec.units import format_duration, in_words

EVENTS_KEPT: Final = 20
RECENT_S: Final = 5.0
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_QUIET: Final = frozenset({"setting_changed", "steady", "run_started", "publisher_phases"})
"""Events that the step line already tells."""
_STATES: Final = {"background_started": "", "background_ended": "ended"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """One row of the latency table: nanoseconds, over the phase so far. The row is empty when ``count`` is 0.

    ``p99_history`` has a value for each of the last 60 seconds.
    """

    name: str
    count: int = 0
    percentiles_ns: Sequence[int] = (0,) * len(PERCENTILES)
    max_ns: int = 0
    p99_history: tuple[float, ...] = ()

    def values(self) -> list[tuple[int, bool]]:
        """The :data:`PERCENTILES` and the maximum, and whether there are enough samples for each."""
        shown = zip(PERCENTILES, self.percentiles_ns, strict=True)
        return [*((value, supports(self.count, percentile)) for percentile, value in shown), (self.max_ns, True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """One row of the table of rates (messages per second): over the last interval, 5 s, the phase so far, and 60 s."""

    name: str
    now: float
    recent: float
    so_far: float
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """A group of load beside the board's own: rates of the last interval (messages per second), and the end-to-end
    latency of its phase so far. ``state`` is empty while the load runs."""

    name: str
    measured: bool
    state: str = ""
    published: float = 0.0
    confirmed: float = 0.0
    delivered: float = 0.0
    latency: LatencyRow


class Board:
    """The state of a run as a person wants to see it."""

    def __init__(self, plan: Plan, tally: Tally, started_ns: int, target: str, path: str) -> None:
        self.plan = plan
        self.target = target
        self.path = path
        self.events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self.stopping = False
        self._nodes = NodeBoard()
        self._hosts = HostBoard([host.name for host in plan.hosts], plan.interval_s)
        self._history = RateHistory()
        self._tally = tally
        self._started_ns = started_ns
        self._group: str | None = None
        self._last: dict[tuple[str, str], Interval] = {}
        self._beside: dict[str, dict[tuple[str, str], Interval]] = {}
        self._states = {group.name: "not begun" for group in plan.background}
        self._step = plan.steps[0]
        self._step_started_ns = started_ns

    def interval(self, record: Interval) -> None:
        """Take a record. The tally must have the record already."""
        if self.plan.hosts:
            self._hosts.interval(record)
        if self._group is None and record.measured:
            self._group = record.group
        if record.group != self._group:
            known = self._beside.get(record.group, {})
            known = {name: last for name, last in known.items() if last.step == record.step}
            self._beside[record.group] = known | {record.source: record}
            return
        self._last = {name: last for name, last in self._last.items() if last.step == record.step}
        self._last[record.source] = record
        self._enter(record.step, record.start_ns)

    def merged(self, merged: MergedInterval) -> None:
        """Take an interval of all workers of a group."""
        if merged.record.group == self._group:
            self._history.add(merged)

    def event(self, record: Mapping[str, object]) -> None:
        """Take an event. Events that say nothing new are not listed."""
        self._hosts.event(record)
        kind = str(record.get("kind"))
        step = record.get("step")
        t_ns = record.get("t_ns")
        if kind in _STATES:
            self._states[str(record.get("group"))] = _STATES[kind]
        if kind == "step_started" and isinstance(step, int) and isinstance(t_ns, int):
            self._last = {}
            self._enter(step, t_ns)
        elif kind not in _QUIET:
            self.events.append(self.sentence(record))

    def sample(self, record: Mapping[str, Any]) -> None:
        """Take a record of a broker node."""
        self._nodes.sample(record)

    def host_sample(self, record: Mapping[str, Any]) -> None:
        """Take a record of a host."""
        self._hosts.sample(record)

    @property
    def step(self) -> Step:
        """The step that is going on."""
        return self._step

    @property
    def last_step(self) -> int:
        """The number of the plan's last step. A sweep that goes on after an interruption has only some of its steps."""
        return max(step.number for step in self.plan.steps)

    def place(self, record: Interval) -> tuple[Step, int]:
        """The step of an interval, and the number of the last of these steps, which are the run's or a background
        load's own."""
        group = next((group for group in self.plan.background if group.name == record.group), None)
        if group is None or not group.has_own_steps:
            return self._step, self.last_step
        return next(step for step in group.steps if step.number == record.step), len(group.steps)

    @property
    def phase(self) -> Phase:
        """The phase of the last interval; WARMUP before the first."""
        last = next(iter(self._last.values()), None)
        return last.phase if last is not None else Phase.WARMUP

    def now(self, counter: str) -> float:
        """A rate over the last interval, all workers together."""
        return _rate([record for record in self._last.values() if record.length_ns], counter)

    def so_far(self, counter: str) -> float:
        """A rate over the current phase of the step."""
        return self._totals.per_s(counter)

    def count(self, counter: str) -> int:
        """A count over the current phase of the step."""
        return self._totals.counts[counter]

    def in_flight(self) -> int:
        """Messages of all workers without a confirm at the end of the last interval."""
        return sum(record.unconfirmed for record in self._last.values())

    def rates(self) -> list[RateRow]:
        """Intended, published, confirmed, delivered."""
        return [
            RateRow(
                name=name,
                now=self.now(name),
                recent=self._history.rate(name, RECENT_S),
                so_far=self.so_far(name),
                history=tuple(self._history.rates(name)),
            )
            for name in RATES
        ]

    def latencies(self) -> list[LatencyRow]:
        """The latencies to show: confirm, end to end, and schedule lag where there is a schedule, else ack."""
        rated = is_open_loop(self._step.settings, self.plan.publishing)
        rows = [("confirm", Series.CONFIRM), ("end to end", Series.E2E)]
        rows.append(("lag", Series.LAG) if rated else ("ack", Series.ACK))
        return [self._latency(name, series) for name, series in rows]

    def loads_beside(self) -> list[LoadRow]:
        """The other groups of load, in the order of the plan."""
        shown = self._group if self._group is not None else self.plan.load.name
        return [self._load_row(group) for group in self.plan.groups if group.name != shown]

    def _load_row(self, group: Group) -> LoadRow:
        state = self._states.get(group.name, "")
        last = [record for record in self._beside.get(group.name, {}).values() if record.length_ns]
        merged = self._tally.current.get(group.name, PhaseTotals()).latencies.get(Series.E2E)
        return LoadRow(
            name=group.name,
            measured=group.measured,
            state=state,
            latency=_latency_row("end to end", merged),
            **{} if state else {name: _rate(last, name) for name in ("published", "confirmed", "delivered")},
        )

    def elapsed_s(self, now_ns: int) -> float:
        """Seconds since the run started."""
        return max(now_ns - self._started_ns, 0) / 1e9

    def step_elapsed_s(self, now_ns: int) -> float:
        """Seconds since the step started, at most its duration."""
        return min(max(now_ns - self._step_started_ns, 0) / 1e9, self._step.duration_s)

    def nodes(self) -> list[NodeRow]:
        """The broker's nodes; empty for a broker that does not tell its state."""
        return self._nodes.rows()

    def hosts(self) -> list[HostRow]:
        """The load hosts, hosts with problems first; empty for a run from this machine."""
        return self._hosts.rows()

    def sentence(self, record: Mapping[str, object]) -> str:
        """An event in words, with the time since the start."""
        t_ns = record.get("t_ns")
        moment = clock(self.elapsed_s(t_ns)) if isinstance(t_ns, int) else "--:--"
        kind = str(record.get("kind", "")).replace("_", " ")
        words = record.get("text") or " ".join(filter(None, (kind, str(record.get("label") or ""))))
        return f"{moment} {words}"

    def describe_step(self) -> str:
        """``step 3/6  in_flight 20  prefetch 1000  ack interval 1``."""
        settings = self._step.settings
        parts = [
            f"step {self._step.number}/{self.last_step}",
            f"in-flight {in_words('in_flight', settings.in_flight).replace('_', ' ')}",
            f"prefetch {in_words('prefetch', settings.prefetch)}",
            f"ack interval {in_words('ack_interval', settings.ack_interval)}",
            f"{settings.size_bytes} B",
        ]
        parts += [f"{plain_number(settings.rate)} msg/s each"] if settings.rate is not None else []
        return "  ".join([*parts, format_duration(self._step.duration_s)])

    @property
    def _totals(self) -> PhaseTotals:
        """The totals of the current phase. Before the first interval of a step they are empty."""
        group = self._group or ""
        totals = self._tally.current.get(group) if self._tally.step_of(group) == self._step.number else None
        return totals or PhaseTotals()

    def _enter(self, step: int, t_ns: int) -> None:
        if step != self._step.number:
            self._step = next((item for item in self.plan.steps if item.number == step), self._step)
            self._step_started_ns = t_ns

    def _latency(self, name: str, series: Series) -> LatencyRow:
        return _latency_row(name, self._totals.latencies.get(series), tuple(self._history.p99_ns(series)))


def _latency_row(name: str, merged: Histogram | None, history: tuple[float, ...] = ()) -> LatencyRow:
    if merged is None:
        return LatencyRow(name=name)
    return LatencyRow(
        name=name,
        count=merged.total,
        percentiles_ns=merged.capped_percentiles_ns(PERCENTILES),
        max_ns=merged.max_ns,
        p99_history=history,
    )


def _rate(records: Sequence[Interval], counter: str) -> float:
    """A rate of all workers together over their last intervals."""
    return sum((float(getattr(record, counter)) * 1e9 / record.length_ns for record in records), 0.0)


def clock(seconds: float) -> str:
    """``01:42``, with hours when there are any."""
    whole = int(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def milliseconds(value_ns: int) -> str:
    """Three significant digits: ``0.48``, ``7.92``, ``44.1``, ``1203``."""
    value = value_ns / 1e6
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
