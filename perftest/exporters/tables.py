"""A run as a flat table for spreadsheets and data frames: a row for each step, or for each interval.

The name of a column is the path of its value in ``result.json``, such as ``settings.in_flight`` or
``latency.e2e.p99_ns``; the name's last part tells the unit.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from perftest.exporters.slots import COUNTED, ExportedSlot
from perftest.results.reader import Run
from perftest.results.summary import latency_figures

Rows = list[dict[str, Any]]
_RUN: Final = ("id", "started_ns", "state")
_RATES: Final = ("published", "confirmed", "delivered")


def step_rows(run: Run) -> Rows:
    """A row for each step and group of load, with the values of ``result.json`` without its checks."""
    head = _head(run)
    return [head | dict(_flat({k: v for k, v in row.items() if k != "trust"})) for row in _steps(run)]


def interval_rows(run: Run, slots: Iterable[ExportedSlot]) -> Rows:
    """A row for each interval of a load, over all workers."""
    head = _head(run)
    labels = {(row["step"], row["group"]): row["label"] for row in _steps(run)}
    return [head | dict(_flat(_interval(slot, labels.get((slot.step, slot.group), "")))) for slot in slots]


def as_csv(rows: Rows) -> str:
    """The rows as CSV with a line of names. A value that a row does not have is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(run: Run, rows: Sequence[Mapping[str, Any]]) -> str:
    """The run as one object: what it was, its rows, its checks and its ledger."""
    result = run.result or {}
    whole = {
        "run": {name.removeprefix("run."): value for name, value in _head(run).items()},
        "command": run.manifest.get("command"),
        "broker": run.manifest.get("broker"),
        "rows": rows,
        "valid": result.get("valid"),
        "trust": result.get("trust"),
        "ledger": run.ledger,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def columns_of(rows: Rows) -> list[str]:
    """The names of all columns, in the order in which rows first have them."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _head(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    head = {f"run.{name}": manifest.get(name) for name in _RUN}
    broker = manifest.get("broker") or {}
    head |= {"run.workload": manifest["plan"].get("name"), "run.valid": (run.result or {}).get("valid")}
    return head | {"run.broker": broker.get("product"), "run.broker_version": broker.get("version")}


def _steps(run: Run) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (run.result or {}).get("steps", ())
    return found


def _interval(slot: ExportedSlot, label: str) -> dict[str, Any]:
    place = {"step": slot.step, "group": slot.group, "label": label, "phase": str(slot.phase)}
    return {
        **place,
        "start_ns": slot.start_ns,
        "length_ns": slot.length_ns,
        **{name: slot.counts[name] for name in COUNTED},
        **{f"{name}_per_s": round(slot.per_s(name), 3) for name in _RATES},
        "latency": {str(series): latency_figures(histogram) for series, histogram in sorted(slot.latencies.items())},
    }


def _flat(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
