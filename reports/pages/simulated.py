"""How a page marks a simulated run: at the top, and on every figure and table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perftest.results.trust import Status
from reports.pages.model import Anatomy, Banner, Chart, Run, Table

MARK = "simulated"


def marked(run: Run, simulated: Mapping[str, Any]) -> Run:
    """The run with the word on each of its titles, and a banner that says what was simulated; ``simulated`` is the part
    of the manifest, empty for a run that was measured."""
    if not simulated:
        return run
    return replace(
        run,
        title=f"{run.title} ({MARK})",
        banners=(_banner(simulated), *run.banners),
        charts=tuple(_chart(chart) for chart in run.charts),
        steps=_table(run.steps),
        anatomy=None if run.anatomy is None else _anatomy(run.anatomy),
    )


def _banner(simulated: Mapping[str, Any]) -> Banner:
    origin = simulated.get("calibration") or {}
    machine = ", ".join(str(origin[name]) for name in ("cpu", "date") if origin.get(name)) or "an unknown machine"
    drives = ", ".join(str(drive.get("name")) for drive in (simulated.get("drives") or {}).values())
    shortened = str(simulated.get("shortened") or "")
    text = (
        "No figure on this page was measured. Production nodes and the production generator ran at virtual time: "
        f"{simulated.get('nodes', '?')} nodes, machines: {simulated.get('machines', '?')}, drives: {drives or '?'}, "
        f"seed {simulated.get('seed', '?')}. CPU costs are of calibration {origin.get('id', '?')} ({machine})."
    )
    return Banner(status=Status.WARN, title="Simulated", text=f"{text} {_sentence(shortened)}".rstrip())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _chart(chart: Chart) -> Chart:
    return replace(chart, title=f"{chart.title} ({MARK})", table=_table(chart.table))


def _table(table: Table) -> Table:
    return replace(table, caption=f"{table.caption} ({MARK})")


def _anatomy(anatomy: Anatomy) -> Anatomy:
    return replace(anatomy, charts=tuple(_chart(chart) for chart in anatomy.charts), table=_table(anatomy.table))
