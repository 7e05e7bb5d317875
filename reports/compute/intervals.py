"""Intervals of a run: their slots, and totals of counts over steps, slots and hosts.

Slots are counted from the first interval of their step and phase, alike for all groups of load, so that the timelines
of groups lie on one axis. This holds for histograms, too, because a series whose first values come late has no
histogram of the first interval. If slots were counted from the start of the run, the intervals of a worker could
straddle a boundary, and would fall into one slot and the next in turns. The middle of an interval decides its slot: a
histogram cannot be split, and the intervals of different workers start a little apart. Logs have times in whole
milliseconds, so slots go by whole milliseconds. All hosts record the coordinator's time.

Sums are sums of whole numbers, so the order of lines changes no figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perftest.results import schema as files
from reports.compute.run_plan import NS, RunPlan
from reports.store import schema
from reports.store.columns import Row

MS_NS: Final = 1_000_000
STEP: Final = ("step", "group")
SLOT: Final = ("step", "group", "phase", "slot")
COUNTS: Final = tuple(column.name for column in schema.COUNTS)
LEFT_OPEN: Final = files.LEFT_OPEN
RATED: Final = ("intended", "published", "confirmed", "delivered")

Origins = Mapping[tuple[int, str], int]
"""The begin of the first slot of each step and phase, in Unix nanoseconds."""
Whole = npt.NDArray[np.int64]


# --- slots -----------------------------------------------------------------------------------------------------------


def origins(records: pa.Table) -> dict[tuple[int, str], int]:
    """The begin of the first slot of each step and phase: the first interval's."""
    found: dict[tuple[int, str], int] = {}
    columns = (records.column(name).to_pylist() for name in ("step", "phase", "start_ns"))
    for step, phase, start_ns in zip(*columns, strict=True):
        found[step, phase] = min(found.get((step, phase), start_ns), start_ns)
    return {key: start_ns // MS_NS * MS_NS for key, start_ns in found.items()}


def earliest(parts: Iterable[Origins]) -> dict[tuple[int, str], int]:
    """The origins of a run whose parts each have their own."""
    found: dict[tuple[int, str], int] = {}
    for part in parts:
        for key, origin_ns in part.items():
            found[key] = min(found.get(key, origin_ns), origin_ns)
    return found


def slots(records: pa.Table, begins: Origins, interval_ns: int) -> Whole:
    """The slot of each interval or histogram, by ``step``, ``phase``, ``start_ns`` and ``length_ns``."""
    start_ns, length_ns = (records.column(name).to_numpy() for name in ("start_ns", "length_ns"))
    from_ns = start_ns - start_ns % MS_NS
    keys = zip(records.column("step").to_pylist(), records.column("phase").to_pylist(), strict=True)
    # A histogram of a step and phase without an interval is in its own first slot.
    known = [begins.get(key) for key in keys]
    origin_ns = np.array([own if at is None else at for at, own in zip(known, from_ns.tolist(), strict=True)], np.int64)
    middle_ns = from_ns - origin_ns + (length_ns - length_ns % MS_NS) // 2
    found: Whole = middle_ns // interval_ns
    return found


def with_slots(records: pa.Table, begins: Origins, interval_ns: int) -> pa.Table:
    """The records with a column ``slot``."""
    return records.append_column("slot", pa.array(slots(records, begins, interval_ns), pa.int64()))


def steady(records: pa.Table) -> pa.Table:
    """Steady intervals only: warm-up and drain count for no figure."""
    return records.filter(pc.equal(records.column("phase"), "steady"))


# --- totals ----------------------------------------------------------------------------------------------------------

_ADDED: Final = (*COUNTS, *LEFT_OPEN, "worker_cpu_ns", "gc_collections")
_HIGHEST: Final = ("loop_lag_ns", "gc_pause_ns", "clock_bound_ns")
_TIMES: Final = ("length_ns", "worker_wait_ns", "steal_ns")
_SHARES: Final = ("worker_cpu_share", "worker_wait_share", "steal_share")
Numbers = npt.NDArray[Any]
Figures = Mapping[str, Numbers]
"""Columns of numbers: a value per row, or per group of rows."""


def totals(intervals: pa.Table, keys: Sequence[str], cores: Mapping[str, int | None]) -> list[Row]:
    """Counts, measured time and extremes per key over all workers, in the order of the keys.

    The worker that measured longest gives the measured time, because a worker that died early must not shorten it.
    """
    if not len(intervals):
        return []
    of_worker = tuple(dict.fromkeys((*keys, "host", "worker")))
    places = list(zip(*(intervals.column(name).to_pylist() for name in of_worker), strict=True))
    names = (*_ADDED, *_HIGHEST, *_TIMES, "start_ns", "unconfirmed")
    recorded = {name: intervals.column(name).to_numpy() for name in names}
    workers = _Groups(places, recorded["start_ns"])
    per_worker = _of_workers(workers, recorded)
    hosts = [place[of_worker.index("host")] for place in workers.keys]
    per_worker |= _shares(per_worker, np.array([_cores(cores, host) for host in hosts], np.float64))
    wholes = _Groups([place[: len(keys)] for place in workers.keys], per_worker["start_ns"])
    columns = _of_wholes(wholes, per_worker)
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = [
        dict(zip((*keys, *columns), (*key, *each), strict=True)) for key, each in zip(wholes.keys, values, strict=True)
    ]
    return [row | {"length_s": row["length_ns"] / NS} for row in rows]


class _Groups:
    """Rows with equal keys beside each other, in the order of ``within``. Figures come in the order of ``keys``."""

    def __init__(self, keys: Sequence[tuple[Any, ...]], within: Whole) -> None:
        numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
        number = np.fromiter((numbers[key] for key in keys), np.intp, len(keys))
        self.keys = list(numbers)
        self._order = np.lexsort((within, number))
        self._begins = np.searchsorted(number[self._order], np.arange(len(numbers)))

    def sums(self, columns: Figures, names: Sequence[str]) -> dict[str, Numbers]:
        """The sum of each of these columns."""
        return self._reduced(np.add, columns, names)

    def highest(self, columns: Figures, names: Sequence[str]) -> dict[str, Numbers]:
        """The greatest value of each of these columns."""
        return self._reduced(np.maximum, columns, names)

    def first(self, column: Numbers) -> Numbers:
        """The value in the first row."""
        found: Numbers = column[self._order[self._begins]]
        return found

    def last(self, column: Numbers) -> Numbers:
        """The value in the last row."""
        found: Numbers = column[self._order[np.append(self._begins[1:], len(self._order)) - 1]]
        return found

    @property
    def sizes(self) -> Numbers:
        """The number of rows."""
        return np.diff(self._begins, append=len(self._order))

    def _reduced(self, how: np.ufunc, columns: Figures, names: Sequence[str]) -> dict[str, Numbers]:
        whole = np.stack([columns[name] for name in names])[:, self._order]
        return dict(zip(names, how.reduceat(whole, self._begins, axis=1), strict=True))


def _of_workers(workers: _Groups, recorded: Figures) -> dict[str, Numbers]:
    """The figures of each worker."""
    ends = {"end_ns": recorded["start_ns"] + recorded["length_ns"]}
    return {
        **workers.sums(recorded, (*_ADDED, *_TIMES)),
        **workers.highest({**recorded, **ends}, (*_HIGHEST, "end_ns")),
        "unconfirmed_max": workers.highest(recorded, ["unconfirmed"])["unconfirmed"],
        "unconfirmed": workers.last(recorded["unconfirmed"]),
        "start_ns": workers.first(recorded["start_ns"]),
        "intervals": workers.sizes,
    }


def _of_wholes(wholes: _Groups, per_worker: Figures) -> dict[str, Numbers]:
    """The figures of all workers together."""
    return {
        **wholes.sums(per_worker, (*_ADDED, "intervals", "unconfirmed")),
        **wholes.highest(per_worker, (*_HIGHEST, "end_ns", "unconfirmed_max", "length_ns")),
        **wholes.highest(per_worker, _SHARES),
        "start_ns": wholes.first(per_worker["start_ns"]),
        "workers": wholes.sizes,
    }


def _shares(per_worker: Figures, of_host: npt.NDArray[np.float64]) -> dict[str, Numbers]:
    """Parts of its measured time that a worker used, waited, and lost to the hypervisor: of one core, and of steal of
    all cores of its host (one, if their number is unknown)."""
    length_ns, cpu_ns, wait_ns, steal_ns = (
        per_worker[name].astype(np.float64) for name in ("length_ns", "worker_cpu_ns", "worker_wait_ns", "steal_ns")
    )
    stolen = np.minimum(steal_ns / of_host / length_ns, 1.0)  # the system counts stolen time in ticks
    shares = (cpu_ns / length_ns, wait_ns / length_ns, stolen)
    return dict(zip(_SHARES, shares, strict=True))


def _cores(cores: Mapping[str, int | None], host: str) -> int:
    known = cores.get(host)
    return known if known is not None and known > 0 else 1


# --- figures of a row of totals --------------------------------------------------------------------------------------


def rates(row: Row, names: Sequence[str] = RATED) -> dict[str, float]:
    """Messages per second of the measured time."""
    return {f"{name}_per_s": row[name] / row["length_s"] if row["length_s"] > 0 else 0.0 for name in names}


def messages_of(row: Row) -> int:
    """The messages that costs are divided by: delivered messages, or published messages if none was delivered."""
    return int(row["delivered"] if row["delivered"] > 0 else row["published"])


def key_of(row: Row, names: Sequence[str]) -> Any:
    """The values of these columns."""
    return tuple(row[name] for name in names)


# --- tables ----------------------------------------------------------------------------------------------------------


def interval_table(run_id: str, intervals: pa.Table, plan: RunPlan) -> pa.Table:
    """The table ``intervals``."""
    since_ns = intervals.column("start_ns").to_numpy() - plan.started_ns
    known = {"run_id": pa.array([run_id] * len(intervals), pa.string()), "t_s": pa.array(since_ns / NS, pa.float64())}
    columns = [known.get(name) or intervals.column(name) for name in schema.INTERVALS.names]
    return pa.table(columns, schema=schema.INTERVALS.arrow)


def timeline_rows(intervals: pa.Table, latencies: Mapping[Any, Row], plan: RunPlan) -> list[Row]:
    """The rows of ``timeline``: a row per slot, rates from counts, percentiles from merged histograms.

    :param latencies: the columns of the latencies of each slot
    """
    return [
        row
        | rates(row, (*RATED, "acked"))
        | {"label": plan.label(row["step"], row["group"]), "t_s": plan.since_start(row["start_ns"])}
        | latencies.get(key_of(row, SLOT), {})
        for row in totals(intervals, SLOT, plan.cores)
    ]
