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
from reports.compute.plan import NS, RunPlan
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
    """The begin of the first slot of each step and phase: that of the first interval."""
    first = records.group_by(["step", "phase"], use_threads=False).aggregate([("start_ns", "min")]).to_pylist()
    return {(row["step"], row["phase"]): row["start_ns_min"] // MS_NS * MS_NS for row in first}


def earliest(parts: Iterable[Origins]) -> dict[tuple[int, str], int]:
    """The origins of a run of which each part has its own."""
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


def totals(intervals: pa.Table, keys: Sequence[str], cores: Mapping[str, int | None]) -> list[Row]:
    """Counts, measured time and extremes per key over all workers, in the order of the keys.

    The worker that measured longest gives the measured time, because a worker that died early must not shorten it.
    """
    if not len(intervals):
        return []
    ends_ns = pc.add(intervals.column("start_ns"), intervals.column("length_ns"))
    timed = intervals.append_column("end_ns", ends_ns)
    per_worker = _aggregated(
        timed.sort_by("start_ns"),
        tuple(dict.fromkeys((*keys, "host", "worker"))),
        {
            **{name: (name, "sum") for name in (*_ADDED, "length_ns", "worker_wait_ns", "steal_ns")},
            **{name: (name, "max") for name in (*_HIGHEST, "end_ns")},
            "start_ns": ("start_ns", "min"),
            "intervals": ("start_ns", "count"),
            "unconfirmed_max": ("unconfirmed", "max"),
            "unconfirmed": ("unconfirmed", "last"),
        },
    )
    whole = _aggregated(
        _with_shares(per_worker, cores),
        keys,
        {
            **{name: (name, "sum") for name in (*_ADDED, "intervals", "unconfirmed")},
            **{name: (name, "max") for name in (*_HIGHEST, "end_ns", "unconfirmed_max", "length_ns", *_SHARES)},
            "start_ns": ("start_ns", "min"),
            "workers": ("start_ns", "count"),
        },
    )
    rows: list[Row] = whole.sort_by([(key, "ascending") for key in keys]).to_pylist()
    return [row | {"length_s": row["length_ns"] / NS} for row in rows]


_SHARES: Final = ("worker_cpu_share", "worker_wait_share", "steal_share")


def _with_shares(per_worker: pa.Table, cores: Mapping[str, int | None]) -> pa.Table:
    """Parts of its measured time that a worker used, waited, and lost to the hypervisor: of one core, and of steal of
    all cores of its host (one, where nobody knows how many)."""
    length_ns, cpu_ns, wait_ns, steal_ns = (
        per_worker.column(name).to_numpy().astype(np.float64)
        for name in ("length_ns", "worker_cpu_ns", "worker_wait_ns", "steal_ns")
    )
    of_host = np.array([_cores(cores, host) for host in per_worker.column("host").to_pylist()], np.float64)
    shares = (cpu_ns / length_ns, wait_ns / length_ns, steal_ns / of_host / length_ns)
    for name, share in zip(_SHARES, shares, strict=True):
        per_worker = per_worker.append_column(name, pa.array(share, pa.float64()))
    return per_worker


def _cores(cores: Mapping[str, int | None], host: str) -> int:
    known = cores.get(host)
    return known if known is not None and known > 0 else 1


def _aggregated(table: pa.Table, keys: Sequence[str], wanted: Mapping[str, tuple[str, str]]) -> pa.Table:
    """The table grouped by ``keys``; ``wanted`` says of which column and by what each new column is made. One thread,
    so that "last" is the last row."""
    grouped = table.group_by(list(keys), use_threads=False).aggregate(sorted(set(wanted.values())))
    columns = {key: grouped.column(key) for key in keys}
    columns |= {name: grouped.column(f"{of}_{function}") for name, (of, function) in wanted.items()}
    return pa.table(columns)


# --- figures of a row of totals --------------------------------------------------------------------------------------


def rates(row: Row, names: Sequence[str] = RATED) -> dict[str, float]:
    """Messages per second of the measured time."""
    return {f"{name}_per_s": row[name] / row["length_s"] if row["length_s"] > 0 else 0.0 for name in names}


def messages_of(row: Row) -> int:
    """What costs are told per: delivered messages, or published messages if none was delivered."""
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
