"""The tables of a run: every number that the page has."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from perftest.results import trust
from reports.pages import settings
from reports.pages.model import Cell, Column, Kind, Table
from reports.stats.lead import lead_series, opened
from reports.store.schema import LEDGER_COUNTS, PERCENTILES

EVENTS_MAX: Final = 500
"""Most events in the table; the run directory has all."""

MS: Final = "ms"
"""The latency unit every page starts with."""

LEDGER_WORDS: Final = {
    "unique": "delivered at least once",
    "undelivered": "still in the queues",
    "reordered": "out of order",
}
"""Counts of the ledger whose names in the store are not the words of the page."""


def latency_column(name: str, title: str) -> Column:
    """A column of nanoseconds, shown in the chosen unit."""
    return Column(name=name, title=title, kind=Kind.LATENCY, unit=MS)


def cells(frame: pd.DataFrame, columns: Sequence[Column]) -> tuple[tuple[Cell, ...], ...]:
    """The rows of ``frame`` for ``columns``, as plain Python values; missing values are None."""
    values = [[_cell(value, column.kind) for value in frame[column.name].tolist()] for column in columns]
    return tuple(zip(*values, strict=True))


def table_of(frame: pd.DataFrame, columns: Sequence[Column], *, caption: str, file: str) -> Table:
    """A table of these columns of ``frame``."""
    found = doubtful(frame, columns)
    return Table(caption=caption, file=file, columns=tuple(columns), rows=cells(frame, columns), doubtful=found)


def doubtful(frame: pd.DataFrame, columns: Sequence[Column]) -> frozenset[tuple[int, int]]:
    """The places of percentiles with too few samples above them, by the number of samples in the frame."""
    found = set()
    for at, column in enumerate(columns):
        match = _PERCENTILE.fullmatch(column.name)
        count = f"{match['series'] or ''}count" if match else ""
        if match and count in frame:
            found |= {(row, at) for row, samples in enumerate(frame[count]) if not supports(samples, match["name"])}
    return frozenset(found)


_PERCENTILE: Final = re.compile(r"(?P<series>.+_)?(?P<name>p\d+)_ns")


def supports(samples: float, name: str) -> bool:
    """Whether this number of samples supports the percentile of that name (``p999``); no sample needs no support."""
    return not samples > 0 or trust.supports(samples, PERCENTILES[name])


def steps_table(run: pd.Series[Any], steps: pd.DataFrame, remarks: Sequence[str]) -> Table:
    """Every step with its rates, percentiles and costs; columns without a value are left out.

    ``remarks`` has a text per step: the checks that speak against it.
    """
    names = settings.swept(run)
    steps = steps.assign(intended_per_s=steps["intended_per_s"].where(opened(steps)))  # nothing else was intended
    heading = settings.words_of(names) if names else "step"
    measured = [column for column in _step_columns(run) if column.name in steps and steps[column.name].notna().any()]
    last = [Column(name="remarks", title="checks against it")] if any(remarks) else []
    columns = (Column(name="label", title=heading), *measured, *last)
    frame = steps.assign(label=settings.short(steps, names), remarks=list(remarks))
    return table_of(frame, columns, caption=f"All steps of {run['run_id']}", file=f"{run['run_id']}-steps.csv")


def _step_columns(run: pd.Series[Any]) -> list[Column]:
    rated = run["loop"] != "closed"
    e2e, confirm = lead_series(run, "e2e"), lead_series(run, "confirm")
    rates = [*(["intended"] if rated else []), "published", "confirmed", "delivered"]
    return [
        *([Column(name="loop", title="loop")] if run["loop"] == "mixed" else []),
        *(Column(name=f"{name}_per_s", title=name, kind=Kind.RATE, unit="msg/s") for name in rates),
        *(latency_column(f"{e2e}_{p}_ns", f"end-to-end {word}") for p, word in _PERCENTILES),
        *(latency_column(f"{confirm}_{p}_ns", f"confirm {word}") for p, word in (_PERCENTILES[0], _PERCENTILES[2])),
        *([latency_column("e2e_p50_ns", "service p50"), latency_column("e2e_p99_ns", "service p99")] if rated else []),
        *([latency_column("lag_p99_ns", "schedule lag p99")] if rated else []),
        Column(name=f"{e2e}_count", title="end-to-end samples", kind=Kind.COUNT),
        Column(name="length_s", title="steady time", kind=Kind.NUMBER, unit="s"),
        Column(name="broker_cpu_us_per_message", title="broker CPU", kind=Kind.NUMBER, unit="µs/msg"),
        Column(name="worker_cpu_us_per_message", title="generator CPU", kind=Kind.NUMBER, unit="µs/msg"),
        Column(name="wal_syncs_per_s", title="WAL syncs", kind=Kind.RATE, unit="1/s"),
        Column(name="wal_bytes_per_message", title="WAL bytes", kind=Kind.RATE, unit="B/msg"),
    ]


_PERCENTILES: Final = (("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("p999", "p99.9"), ("max", "max"))


def ledger_table(run_id: str, ledger: pd.Series[Any]) -> Table:
    """The account of every message, with what each line means; examples of violations last."""
    rows: list[tuple[Cell, ...]] = [
        (LEDGER_WORDS.get(count.name, count.name), int(ledger[count.name]), count.doc)
        for count in LEDGER_COUNTS
        if pd.notna(ledger[count.name])
    ]
    rows += [
        (f"example: {item.get('what', '?')}", None, _example(item)) for item in json.loads(ledger["examples"] or "[]")
    ]
    return Table(
        caption=f"Ledger of {run_id}",
        file=f"{run_id}-ledger.csv",
        columns=(
            Column(name="account", title="account"),
            Column(name="messages", title="messages", kind=Kind.COUNT),
            Column(name="meaning", title="meaning"),
        ),
        rows=tuple(rows),
    )


def _example(item: dict[str, Any]) -> str:
    first, last = item.get("first"), item.get("last")
    messages = f"message {first}" if first == last else f"messages {first} to {last}"
    return f"publisher {item.get('publisher', '?')}, {messages}"


def events_table(run_id: str, events: pd.DataFrame) -> Table:
    """The events in order of time; at most :data:`EVENTS_MAX` rows, and the caption says so."""
    shown = events.head(EVENTS_MAX)
    columns = (
        Column(name="kind", title="event"),
        Column(name="t_s", title="at", kind=Kind.NUMBER, unit="s"),
        Column(name="step", title="step", kind=Kind.COUNT),
        Column(name="worker", title="worker"),
        Column(name="text", title="what happened"),
    )
    frame = shown.assign(kind=shown["kind"].str.replace("_", " "))
    cut = f" (the first {EVENTS_MAX} of {len(events):,})" if len(events) > EVENTS_MAX else ""
    return table_of(frame, columns, caption=f"{len(shown):,} events{cut}", file=f"{run_id}-events.csv")


def recoveries_table(run_id: str, events: pd.DataFrame) -> Table | None:
    """How the load recovered from each action on the broker; None if there was no action."""
    records = [json.loads(text) for text in events.loc[events["kind"] == "recovery", "event"]]
    if not records:
        return None
    columns = (
        Column(name="action", title="action"),
        Column(name="node", title="node"),
        Column(name="first_confirm_s", title="first confirm after", kind=Kind.NUMBER, unit="s"),
        Column(name="outage_s", title="outage", kind=Kind.NUMBER, unit="s"),
        Column(name="rate_before", title="confirmed before", kind=Kind.RATE, unit="msg/s"),
        Column(name="back_s", title="rate back after", kind=Kind.NUMBER, unit="s"),
        Column(name="redelivered", title="redelivered", kind=Kind.COUNT),
        Column(name="observed_s", title="time that counts", kind=Kind.NUMBER, unit="s"),
    )
    frame = pd.DataFrame.from_records(sorted(records, key=lambda record: int(record["acted_ns"])))
    return table_of(frame, columns, caption=f"Recovery from {len(frame)} actions", file=f"{run_id}-recovery.csv")


def files_table(run_id: str, files: Sequence[tuple[str, int]]) -> Table | None:
    """The raw files of the run directory with their sizes (octets); None when the directory is out of reach."""
    if not files:
        return None
    return Table(
        caption=f"{len(files)} raw files of {run_id}",
        file=f"{run_id}-files.csv",
        columns=(
            Column(name="file", title="file"),
            Column(name="size_bytes", title="size", kind=Kind.COUNT, unit="B"),
            Column(name="content", title="one record is"),
        ),
        rows=tuple((name, size, _FILES.get(name, "")) for name, size in files),
    )


_FILES: Final = {
    "manifest.json": "the run: provenance and the resolved plan",
    "intervals.csv": "one interval of one worker, PerfTest's columns first",
    "intervals.parquet": "the same, typed",
    "latency.hlog": "one HDR histogram of one series of one interval",
    "events.jsonl": "something that happened",
    "host.jsonl": "the state of the load host",
    "broker.jsonl": "the state of one broker node",
    "ledger.json": "what became of every message",
    "result.json": "a row per step",
}


def _cell(value: Any, kind: Kind) -> Cell:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return None if kind is not Kind.TEXT else ""
    if kind in (Kind.COUNT, Kind.LATENCY):
        return int(value)
    return value if isinstance(value, str | int | float) else str(value)
