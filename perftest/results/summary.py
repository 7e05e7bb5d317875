"""From intervals to a row per step and group of load: counts added, rates from counts and time, percentiles from merged
histograms.

The same code serves the writer (as the run goes), the reader (of a directory that was killed before its result was
written) and the screen, so all three say the same.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import LOCAL_HOST, Interval, Phase, Series
from perftest.results.schema import COUNTS, HARM, LEFT_OPEN

OPEN: Final = "open"
CLOSED: Final = "closed"
MIXED: Final = "mixed"
"""Loop of a run that has steps with an open loop and steps with a closed loop."""

COUNTERS: Final = (*COUNTS, "negative_latencies")
"""Counts of a row."""
_ADDED: Final = (*COUNTERS, *LEFT_OPEN, "worker_cpu_ns", *HARM)
"""Counts that are added up. Rows have the CPU per message instead, and the ledger has the harm that was done."""

PERCENTILES: Final = {
    "p50_ns": 50.0,
    "p75_ns": 75.0,
    "p95_ns": 95.0,
    "p99_ns": 99.0,
    "p999_ns": 99.9,
    "p9999_ns": 99.99,
}
"""Percentiles of a row, by their names."""

RATES: Final = ("intended", "published", "confirmed", "delivered")


Source = tuple[str, str]
"""A load host and a worker on it."""


@dataclass(slots=True)
class PhaseTotals:
    """Everything counted of one group of load in one phase of one step, over all workers."""

    start_ns: int = 0
    end_ns: int = 0
    intervals: int = 0
    processed: int | None = None
    """Deliveries that consumers were done with, where they take time for messages."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ADDED, 0))
    worker_length_ns: dict[Source, int] = field(default_factory=dict)
    worker_cpu_ns: dict[Source, int] = field(default_factory=dict)
    worker_wait_ns: dict[Source, int] = field(default_factory=dict)
    worker_steal_ns: dict[Source, int] = field(default_factory=dict)
    loop_lag_ns: int = 0
    gc_collections: int = 0
    gc_pause_ns: int = 0
    clock_bound_ns: int = 0
    latencies: dict[Series, Histogram] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """Messages published and delivered; 0 when nothing happened."""
        return self.counts["published"] + self.counts["delivered"]

    @property
    def length_ns(self) -> int:
        """Observed time of the phase: workers run side by side, so the worker that observed longest counts."""
        return max(self.worker_length_ns.values(), default=0)

    @property
    def cpu_share(self) -> float:
        """The busiest worker's share of one core, 0..1."""
        return self._greatest_share(self.worker_cpu_ns)

    @property
    def wait_share(self) -> float:
        """The share of the time for which the worker that waited longest was ready to run and got no core, 0..1."""
        return self._greatest_share(self.worker_wait_ns)

    @property
    def steal_ns(self) -> int:
        """CPU time that the host did not get, of all its cores. Each worker of the host reports the same time."""
        return max(self.worker_steal_ns.values(), default=0)

    def steal_share(self, cores: Mapping[str, int]) -> float:
        """The same as a part of the CPU time of the host that lost most, 0..1; ``cores`` by host, 1 if not known."""
        spent_ns = {of: spent / cores.get(of[0], 1) for of, spent in self.worker_steal_ns.items()}
        return min(self._greatest_share(spent_ns), 1.0)  # the system counts stolen time in ticks

    def cpu_shares(self) -> dict[str, list[float]]:
        """By load host, the share of one core that each of its workers used, 0..1."""
        found: dict[str, list[float]] = {}
        for source, length_ns in self.worker_length_ns.items():
            found.setdefault(source[0], []).append(self.worker_cpu_ns[source] / length_ns if length_ns else 0.0)
        return found

    def _greatest_share(self, spent_ns: Mapping[Source, float]) -> float:
        shares = (spent_ns[source] / length for source, length in self.worker_length_ns.items() if length)
        return max(shares, default=0.0)

    def per_s(self, counter: str) -> float:
        """The rate of a counter over the phase; 0 when nothing was observed."""
        return self.counts[counter] * 1e9 / self.length_ns if self.length_ns else 0.0

    def add(self, record: Interval) -> None:
        """Add one interval of one worker, counts only."""
        self.start_ns = min(self.start_ns, record.start_ns) if self.intervals else record.start_ns
        self.end_ns = max(self.end_ns, record.start_ns + record.length_ns)
        self.intervals += 1
        if record.processed is not None:
            self.processed = (self.processed or 0) + record.processed
        for name in _ADDED:
            self.counts[name] += getattr(record, name)
        for spent_ns, more_ns in (
            (self.worker_length_ns, record.length_ns),
            (self.worker_cpu_ns, record.worker_cpu_ns),
            (self.worker_wait_ns, record.worker_wait_ns),
            (self.worker_steal_ns, record.steal_ns),
        ):
            spent_ns[record.source] = spent_ns.get(record.source, 0) + more_ns
        self.loop_lag_ns = max(self.loop_lag_ns, record.loop_lag_ns)
        self.gc_collections += record.gc_collections
        self.gc_pause_ns = max(self.gc_pause_ns, record.gc_pause_ns)
        self.clock_bound_ns = max(self.clock_bound_ns, record.clock_bound_ns)

    def latency(self, series: Series) -> Histogram:
        """The histogram of a series; empty at first."""
        return self.latencies.setdefault(series, Histogram())


class Tally:
    """The totals of every group of load: in the steady phase of each step, and in the phase that is going on."""

    def __init__(self) -> None:
        self.steady: dict[tuple[int, str], PhaseTotals] = {}
        """By step and group."""
        self.current: dict[str, PhaseTotals] = {}
        """By group."""
        self._places: dict[str, tuple[int, Phase]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there was no interval, not even of a warm-up."""
        return not self.current

    def step_of(self, group: str) -> int | None:
        """The step of a group that is going on; None before its first interval."""
        return self._places[group][0] if group in self._places else None

    def add(self, record: Interval) -> None:
        """Add an interval with its histograms."""
        totals = self.totals(record)
        totals.add(record)
        for series, counts in record.latencies.items():
            totals.latency(series).add_sparse(counts)

    def totals(self, record: Interval) -> PhaseTotals:
        """The totals that a record belongs to. The totals of past warm-ups and drains are let go."""
        place = (record.step, record.phase)
        if self._places.get(record.group) != place:
            self._places[record.group] = place
            steady = record.phase is Phase.STEADY
            totals = self.steady.get((record.step, record.group)) if steady else None
            totals = self.current[record.group] = totals or PhaseTotals()
            if steady:
                self.steady[record.step, record.group] = totals
        return self.current[record.group]


class _Growth:
    """A cumulative figure of each broker node as it grew: Unix times and figures, 16 octets a sample."""

    def __init__(self) -> None:
        self._samples: dict[str, tuple[array[int], array[int]]] = {}

    def add(self, place: str, t_ns: int, figure: int) -> None:
        """Take a sample. ``place``: the node and its process, because a process counts from 0."""
        times, figures = self._samples.setdefault(place, (array("q"), array("q")))
        times.append(t_ns)
        figures.append(figure)

    def nodes(self) -> set[str]:
        """The nodes that were ever observed."""
        return {_node_of(place) for place in self._samples}

    def between(self, start_ns: int, end_ns: int) -> Iterator[tuple[str, float]]:
        """Each node that was observed over two instants, and the growth of its figure between them."""
        for place, (times, figures) in self._samples.items():
            overlap = min(end_ns, times[-1]) - max(start_ns, times[0])
            if len(times) < 2 or overlap < 0.8 * (end_ns - start_ns):
                continue  # too little of it was seen to speak for the whole
            relative = np.asarray(times, dtype=np.int64) - start_ns
            at = np.interp([0.0, float(end_ns - start_ns)], relative.astype(float), np.asarray(figures, dtype=float))
            yield _node_of(place), float(at[1] - at[0])


def _node_of(place: str) -> str:
    return place.rpartition("/")[0]


class BrokerUse:
    """The use of each broker node: CPU time, octets sent to other nodes, segment files, and time of modelled drives."""

    def __init__(self) -> None:
        self._cpu = _Growth()
        self._sent = _Growth()
        self._segments = _Growth()
        self._drives = _Growth()

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> BrokerUse:
        """From the records of ``broker.jsonl``."""
        made = cls()
        for record in records:
            made.add(record)
        return made

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record. A node that was restarted (its pid changed) counts as another."""
        t_ns, links = record.get("t_ns"), record.get("links")
        place = f"{record.get('node')}/{record.get('pid')}"
        if isinstance(record.get("cpu_ns"), int) and isinstance(t_ns, int):
            self._cpu.add(place, t_ns, record["cpu_ns"])
        if isinstance(links, Mapping) and isinstance(t_ns, int):
            self._sent.add(place, t_ns, sum(octets for purposes in links.values() for octets in purposes.values()))
        if isinstance(t_ns, int):
            self._add_drives(place, t_ns, record)

    def _add_drives(self, place: str, t_ns: int, record: Mapping[str, Any]) -> None:
        written = (record.get("metrics") or {}).get("segments_written")
        if isinstance(written, int):
            self._segments.add(place, t_ns, written)
        for drive in record.get("drives") or ():
            if "segments_written" in drive:
                self._segments.add(f"{place}/{drive['name']}", t_ns, drive["segments_written"])
            if "busy_ns" in drive:
                self._drives.add(f"{place}/{drive['name']}", t_ns, drive["busy_ns"])

    def used_ns(self, start_ns: int, end_ns: int) -> int | None:
        """CPU time of all nodes between two instants, or None when no node was observed over them."""
        used = [spent_ns for _, spent_ns in self._cpu.between(start_ns, end_ns)]
        return round(sum(used)) if used else None

    def shares(self, start_ns: int, end_ns: int) -> dict[str, float]:
        """Cores that each node used between two instants, of the nodes that were observed over them."""
        length_ns = max(end_ns - start_ns, 1)
        return {node: spent_ns / length_ns for node, spent_ns in self._cpu.between(start_ns, end_ns)}

    def sent_bytes(self, start_ns: int, end_ns: int) -> float | None:
        """Octets that all nodes sent to each other between two instants. None if that is not known of every node: a sum
        without the octets of a node that was down would look like less traffic."""
        sent = [*self._sent.between(start_ns, end_ns)]
        known = {node for node, _octets in sent}
        return sum(octets for _node, octets in sent) if known and known == self._cpu.nodes() else None

    def segments_written(self, start_ns: int, end_ns: int) -> int | None:
        """Segment files that all nodes wrote between two instants, or None when no node told."""
        written = [files for _, files in self._segments.between(start_ns, end_ns)]
        return math.ceil(sum(written)) if written else None

    def drive_busy(self, start_ns: int, end_ns: int) -> float | None:
        """The part of the time between two instants in which the busiest modelled drive had something to do; None
        without any."""
        busy = [spent_ns for _, spent_ns in self._drives.between(start_ns, end_ns)]
        return max(busy) / max(end_ns - start_ns, 1) if busy else None


def loads_of(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The measured groups of load of a plan (as in a manifest) by name; a plan of one group is itself the load ""."""
    groups = plan.get("groups")
    return (
        {str(group.get("name", "")): group for group in groups if group.get("measured", True)} if groups else {"": plan}
    )


def background_loads_of(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The background loads of a plan (as in a manifest) by name, each with its steps: its own if it has several, else
    the measured load's with the settings of the background load."""
    found: dict[str, Mapping[str, Any]] = {}
    for load in plan.get("background") or ():
        beside = [{**step, "settings": load.get("settings") or {}} for step in plan.get("steps") or ()]
        found[str(load.get("name", ""))] = {**load, "steps": load.get("steps") or beside}
    return found


def step_loop(step: Mapping[str, Any], load: Mapping[str, Any]) -> str:
    """``open`` or ``closed``, for a step of a load of the plan (as in a manifest). The same rule as
    :func:`perftest.spec.plan.is_open_loop`: there is a rate, a cycle of rates, or a trace."""
    parts = (load.get("publishing"), step.get("settings"))
    publishing, settings = (part if isinstance(part, Mapping) else {} for part in parts)
    rated = settings.get("rate") is not None
    return OPEN if rated or publishing.get("rate_cycle") or publishing.get("arrivals") == "trace" else CLOSED


def run_loop(plan: Mapping[str, Any]) -> str:
    """``open`` or ``closed`` if all steps of the plan are, else ``mixed``; a plan without steps is closed."""
    found = {step_loop(step, load) for load in loads_of(plan).values() for step in load.get("steps") or ()}
    return MIXED if len(found) > 1 else next(iter(found), CLOSED)


def rows_of(manifest: Mapping[str, Any], tally: Tally, broker: BrokerUse) -> list[dict[str, Any]]:
    """A row for each step and group of load that was observed, without its trust list: ``steps`` of ``result.json``.

    A step that was interrupted within its first interval, before any message, has no row. If the broker served a
    background load or several groups, its CPU time is for all of them together, and no figure of a single group.
    """
    plan, loads = manifest["plan"], loads_of(manifest["plan"])
    known = BrokerUse() if plan.get("background") or len(loads) > 1 else broker
    interval_ns = float(plan["interval_s"]) * 1e9
    at_once = zip(*(load["steps"] for load in loads.values()), strict=True)
    planned = [(step, group) for steps in at_once for step, group in zip(steps, loads, strict=True)]
    return [
        step_row(step, totals, known, cores_of(manifest), loop=step_loop(step, loads[group]), group=group)
        | _happened(totals, broker)
        for step, group in planned
        if (totals := _seen(tally, step, group, interval_ns)) is not None
    ]


def with_recoveries(rows: Sequence[dict[str, Any]], recoveries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with ``recovery_ns`` and ``gap_ns``: the longest times of all ``recovery`` events of their steps, until
    the rate was back and without a confirm. If nothing was confirmed before an action, its first confirm counts for the
    rate. A step without an action has neither. A time is None if it is unknown of all actions, and the first also if
    the rate was not back after the last action."""
    found = []
    for row in rows:
        own = [each for each in recoveries if _step_of(rows, each["acted_ns"]) == row["step"]]
        back = [each["first_confirm_s" if each["rate_before"] is None else "back_s"] for each in own]
        gaps = [each["outage_s"] for each in own if each["outage_s"] is not None]
        times = {
            "recovery_ns": _longest_ns(back) if back and back[-1] is not None else None,
            "gap_ns": _longest_ns(gaps),
        }
        found.append(row | (times if own else {}))
    return found


def _step_of(rows: Sequence[Mapping[str, Any]], at_ns: int) -> int:
    """The number of the step at a moment. The time before the first row is of the first."""
    begun = [row for row in rows if row["start_ns"] <= at_ns]
    return int(max(begun, key=lambda row: row["start_ns"])["step"] if begun else rows[0]["step"])


def _longest_ns(times_s: Iterable[float | None]) -> int | None:
    known = [time_s for time_s in times_s if time_s is not None]
    return round(max(known) * 1e9) if known else None


def background_rows_of(manifest: Mapping[str, Any], tally: Tally) -> list[dict[str, Any]]:
    """A row for each background load and step: ``background`` of ``result.json``. A load without steps of its own has a
    row for each step of the measured load."""
    plan = manifest["plan"]
    interval_ns = float(plan["interval_s"]) * 1e9
    return [
        step_row(step, totals, BrokerUse(), cores_of(manifest), loop=step_loop(step, load), group=group)
        for group, load in background_loads_of(plan).items()
        for step in load["steps"]
        if (totals := _seen(tally, step, group, interval_ns)) is not None
    ]


def _seen(tally: Tally, step: Mapping[str, Any], group: str, interval_ns: float) -> PhaseTotals | None:
    """The totals of a step, if it was observed for long enough to tell anything."""
    totals = tally.steady.get((step["number"], group))
    if totals is None or not totals.length_ns:
        return None
    return totals if totals.length_ns >= interval_ns / 2 or totals.messages else None


def cores_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """The number of cores of each load host; 1 if unknown."""
    return {str(host.get("name", LOCAL_HOST)): int(host.get("cores") or 1) for host in manifest.get("hosts") or ()}


def step_row(
    step: Mapping[str, Any],
    totals: PhaseTotals,
    broker: BrokerUse,
    cores: Mapping[str, int],
    *,
    loop: str = CLOSED,
    group: str = "",
) -> dict[str, Any]:
    """The row of ``result.json`` for one group of load in one step of the plan (as in the manifest), without its trust
    list. The label of a row names its group, so that labels tell rows apart everywhere.

    :param cores: of each load host
    :param loop: ``open`` or ``closed``
    """
    counts = totals.counts
    messages = counts["delivered"] or counts["published"]
    return {
        "step": step["number"],
        "group": group,
        "label": ": ".join(filter(None, (group, step["label"]))),
        "settings": step["settings"],
        "loop": loop,
        "start_ns": totals.start_ns,
        "length_ns": totals.length_ns,
        **{name: counts[name] for name in COUNTERS},
        **{f"{name}_per_s": round(totals.per_s(name), 3) for name in RATES},
        **_processed(totals),
        "latency": {str(series): latency_figures(histogram) for series, histogram in totals.latencies.items()},
        "worker_cpu_share": round(totals.cpu_share, 4),
        "worker_cpu_us_per_message": _us_per(counts["worker_cpu_ns"], messages),
        "broker_cpu_us_per_message": _us_per(broker.used_ns(totals.start_ns, totals.end_ns), messages),
        "link_bodies": _bodies(broker.sent_bytes(totals.start_ns, totals.end_ns), counts["published_bytes"]),
        "worker_wait_share": round(totals.wait_share, 4),
        "loop_lag_ns": totals.loop_lag_ns,
        "gc_collections": totals.gc_collections,
        "gc_pause_ns": totals.gc_pause_ns,
        "steal_ns": totals.steal_ns,
        "steal_share": round(totals.steal_share(cores), 4),
        **_left_open(totals),
    }


def _processed(totals: PhaseTotals) -> dict[str, int | float]:
    """The number of messages that consumers processed; empty if they process every message as it comes."""
    if totals.processed is None:
        return {}
    per_s = totals.processed * 1e9 / totals.length_ns if totals.length_ns else 0.0
    return {"processed": totals.processed, "processed_per_s": round(per_s, 3)}


def _happened(totals: PhaseTotals, broker: BrokerUse) -> dict[str, int | float | None]:
    """What findings need to have happened (:data:`perftest.metrics.names.EVIDENCE`)."""
    busy = broker.drive_busy(totals.start_ns, totals.end_ns)
    return {
        "backlog": backlog_of(totals.counts),
        "segments_written": broker.segments_written(totals.start_ns, totals.end_ns),
        "drive_busy": None if busy is None else round(busy, 4),
    }


def backlog_of(counts: Mapping[str, int]) -> int:
    """Messages by which publishers outran consumers."""
    return max(counts["published"] - counts["delivered"], 0)


def happened_in(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the broker's nodes told of each row: ``happened`` of the manifest, for readers of its tables."""
    told = ("segments_written", "drive_busy")
    return [
        {name: row[name] for name in ("step", "group", *told)}
        for row in rows
        if any(row.get(name) is not None for name in told)
    ]


def _left_open(totals: PhaseTotals) -> dict[str, int]:
    """The uncertainty between the clocks of several hosts; empty if one clock took every time."""
    if not totals.clock_bound_ns:
        return {}
    return {"clock_bound_ns": totals.clock_bound_ns, **{name: totals.counts[name] for name in LEFT_OPEN}}


def latency_figures(histogram: Histogram) -> dict[str, int | float]:
    """One entry of the ``latency`` of a row."""
    found = histogram.figures(PERCENTILES)
    return found | {"mean_ns": round(found["mean_ns"], 1)}


def _us_per(used_ns: int | None, messages: int) -> float | None:
    return round(used_ns / 1000 / messages, 3) if used_ns is not None and messages else None


def _bodies(sent_bytes: float | None, published_bytes: int) -> float | None:
    return round(sent_bytes / published_bytes, 4) if sent_bytes is not None and published_bytes else None
