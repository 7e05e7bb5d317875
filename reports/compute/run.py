"""All tables of one run.

::

    octets -> records of lines --> damaged lines -> quarantine
                |
                +-> intervals  --> slots -> totals -----------------> timeline, steps, host_steps
                |       +-> origins -+                                   |
                |                    v                                   |
                +-> histograms ----> slots -> merged (slot, step, run) --+-> latency, spectrum, stages
                +-> samples of brokers and hosts -> differences -> means over steady time -> steps, links

A small run takes one call: :func:`run_tables`. A large run is read in parts, each by another worker: :func:`slotted`
and :func:`reports.compute.histograms.merge_part` make the parts small, and :func:`tables_of` makes the same tables of
the parts, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from perftest.results import schema as files
from reports.compute import brokers, histograms, hosts, intervals, manifests, parsing, steps
from reports.compute.run_files import LINES, RunFiles, RunHead, open_run
from reports.compute.run_plan import RunPlan, plan_of
from reports.errors import EmptyRunError
from reports.store import schema
from reports.store.columns import Row, TableSpec, table_of_rows

NO_INTERVAL: Final = "every interval is damaged"
_PLACE: Final = ("file", "offset", "problem", "raw")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """The usable records of the lines of one run, in the order of the lines, and the damage."""

    of_file: Mapping[str, pa.Table]
    """By file; of latency.hlog see ``slotted``."""
    slotted: pa.Table
    """Histograms with their places (:data:`reports.compute.histograms.SLOTTED`)."""
    damaged: Sequence[Row]
    """Rows of ``quarantine`` without the run."""


def run_tables(run: RunFiles) -> dict[str, pa.Table]:
    """Every table of a run, by its name.

    :raises NotARunError: no manifest, or a damaged one
    :raises NewerRunError: a version that is not known here
    :raises EmptyRunError: no interval, or none that can be used
    """
    head = open_run(run)
    parsed = {name: parsed_lines(head, name, run.contents.get(name, b"")) for name in LINES}
    good = {name: usable(records) for name, records in parsed.items()}
    begins = intervals.origins(good[files.INTERVALS_CSV])
    recorded = slotted(good[files.LATENCY_HLOG], begins, manifests.interval_ns(head))
    damage = [row for records in parsed.values() for row in damaged(records)]
    return tables_of(head, RunRecords(of_file=good, slotted=recorded, damaged=damage))


def parsed_lines(head: RunHead, file: str, content: bytes) -> pa.Table:
    """The records of all lines of a file, damaged ones included."""
    batches = parsing.parse(file, parsing.lines_of(content), head.columns)
    return pa.Table.from_batches(batches, parsing.PARSED[file])


def usable(records: pa.Table) -> pa.Table:
    """The records of lines that are not damaged."""
    problems = records.column("problem")
    good = records if problems.null_count == len(records) else records.filter(pc.is_null(problems))
    return good.drop_columns(["file", "problem"])


def damaged(records: pa.Table) -> list[Row]:
    """The lines that cannot be used, as rows of ``quarantine`` without the run."""
    problems = records.column("problem")
    if problems.null_count == len(records):
        return []
    bad = records.filter(pc.is_valid(problems)).select(_PLACE)
    rows: list[Row] = bad.rename_columns(["file", "offset", "reason", "raw"]).to_pylist()
    return rows


def slotted(recorded: pa.Table, begins: intervals.Origins, interval_ns: int) -> pa.Table:
    """Histograms of lines with their places."""
    placed = intervals.with_slots(recorded, begins, interval_ns)
    return placed.select(histograms.SLOTTED.names).cast(histograms.SLOTTED)


def tables_of(head: RunHead, records: RunRecords) -> dict[str, pa.Table]:
    """Every table of a run, of its records.

    :raises EmptyRunError: there is no usable interval
    """
    plan, recorded = plan_of(head), records.of_file[files.INTERVALS_CSV]
    if not len(recorded):
        raise EmptyRunError(
            f"the run {head.run_id}: {NO_INTERVAL}",
            f"{head.source}/{files.INTERVALS_CSV}",
            "copy the directory again from the host that made the run",
        )
    begins = intervals.origins(recorded)
    timed = intervals.with_slots(recorded, begins, plan.interval_ns)
    merged = histograms.merge_run(records.slotted, plan.is_spread)
    damage = [*records.damaged, *map(_damaged_payload, merged.damaged)]
    rows = (
        _rows_of_load(timed, merged, records.of_file, plan)
        | _rows_of_histograms(merged, plan)
        | _rows_of_manifest(head, _last_ns(recorded))
        | {"quarantine": [*manifests.quarantine_rows(head), *damage]}
    )
    made = {name: _table(schema_of, head.run_id, rows.get(name, ())) for name, schema_of in _BY_NAME.items()}
    made["intervals"] = _sorted(schema.INTERVALS, intervals.interval_table(head.run_id, timed, plan))
    return made


def _rows_of_load(
    timed: pa.Table, merged: histograms.Merged, of_file: Mapping[str, pa.Table], plan: RunPlan
) -> dict[str, Sequence[Row]]:
    """Intervals, samples and what follows from both."""
    events, clocks = (_timed(of_file[name], plan) for name in (files.EVENTS, files.CLOCKS))
    samples = hosts.sample_rows(of_file[files.HOST].to_pylist(), plan)
    nodes = brokers.broker_rows(of_file[files.BROKER].to_pylist(), plan)
    steady = intervals.steady(timed)
    totals = intervals.totals(steady, intervals.STEP, plan.cores)
    use = brokers.use_of_brokers(nodes, totals)
    for key, sent in brokers.sent_of_nodes(nodes, totals).items():
        use[key] = use.get(key, {}) | sent
    for key, cpu_percent in hosts.use_of_load_hosts(samples, totals, plan).items():
        use[key] = {**use.get(key, {}), "host_cpu_percent": cpu_percent}
    latencies = histograms.by_series(
        ((step, group), series, of_step) for (step, group, series), of_step in merged.step_figures.items()
    )
    rows: dict[str, Sequence[Row]] = {
        "timeline": intervals.timeline_rows(timed, merged.slots, plan),
        "steps": steps.step_rows(timed, totals, latencies, use, plan),
        "events": events,
        "host_samples": samples,
        "brokers": nodes,
        "writes": brokers.write_rows(nodes),
        "links": brokers.link_rows(nodes, totals),
    }
    if plan.is_spread:
        of_each = hosts.use_of_each_host(samples, totals)
        by_host = intervals.totals(steady, hosts.HOST_STEP, plan.cores)
        of_host = histograms.by_series(
            ((step, group, host), series, histograms.figures(each))
            for (step, group, host, series), each in merged.hosts.items()
        )
        rows["host_steps"] = hosts.host_step_rows(by_host, of_host, of_each, plan)
        rows["clocks"] = clocks
    return rows


def _rows_of_histograms(merged: histograms.Merged, plan: RunPlan) -> dict[str, Sequence[Row]]:
    return {
        "latency": histograms.latency_rows(merged),
        "spectrum": histograms.spectrum_rows(merged, plan),
        "stages": histograms.stage_rows(merged, plan),
    }


def _rows_of_manifest(head: RunHead, last_ns: int) -> dict[str, Sequence[Row]]:
    return {
        "runs": [manifests.run_row(head, last_ns)],
        "hosts": manifests.host_rows(head),
        "ledger": manifests.ledger_rows(head),
    }


def _last_ns(recorded: pa.Table) -> int:
    """Unix time at which the last interval ended."""
    return int(pc.max(pc.add(recorded.column("start_ns"), recorded.column("length_ns"))).as_py())


def _timed(records: pa.Table, plan: RunPlan) -> list[Row]:
    return [row | {"t_s": plan.since_start(row["t_ns"])} for row in records.to_pylist()]


def _damaged_payload(damage: histograms.HistogramDamage) -> Row:
    return {"file": files.LATENCY_HLOG, **damage._asdict()}


_BY_NAME: Final = {table.name: table for table in schema.TABLES if table is not schema.INTERVALS}


def _table(table: TableSpec, run_id: str, rows: Sequence[Row]) -> pa.Table:
    """The rows as a table, sorted as readers get them."""
    if not rows:
        return table.empty
    # Sorting rows costs a tenth of sorting a small Arrow table, and few rows are out of order.
    ordered = sorted(({**row, "run_id": run_id} for row in rows), key=itemgetter(*table.order))
    return table_of_rows(ordered, table.arrow)


def _sorted(table: TableSpec, whole: pa.Table) -> pa.Table:
    """Sorted by the order of the table; rows that are equal in that stay in the order of their lines."""
    return whole.take(pc.sort_indices(whole, sort_keys=[(name, "ascending") for name in table.order]))
