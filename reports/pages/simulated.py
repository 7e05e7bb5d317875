"""How a page marks a simulated run: at the top, and on every figure and table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perftest.results.trust import Status
from reports.pages.model import Anatomy, Banner, Chart, Layouts, Overview, Run, Table, Traffic

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
        charts=_charts(run.charts, MARK),
        factors=_charts(run.factors, MARK),
        steps=_table(run.steps, MARK),
        anatomy=None if run.anatomy is None else _anatomy(run.anatomy),
        traffic=None if run.traffic is None else _traffic(run.traffic),
    )


def marked_overview(overview: Overview, simulated: Collection[bool]) -> Overview:
    """The part with the word on each of its titles; ``simulated`` says so of each run of the part."""
    mark = _mark_of(simulated)
    if not mark:
        return overview
    return replace(
        overview,
        charts=_charts(overview.charts, mark),
        headline=_table(overview.headline, mark),
        table=_table(overview.table, mark),
    )


def marked_layouts(layouts: Layouts, simulated: Collection[bool]) -> Layouts:
    """:func:`marked_overview` for the part about layouts. A chart of one run is marked if all runs were simulated; its
    title has the id of the run in any case."""
    mark = _mark_of(simulated)
    if not mark:
        return layouts
    return replace(
        layouts,
        headline=_table(layouts.headline, mark),
        cells=_charts(layouts.cells, mark),
        spectra=_charts(layouts.spectra, mark),
        over_time=_charts(layouts.over_time, mark) if all(simulated) else layouts.over_time,
        per_message=_charts(layouts.per_message, mark),
        interference=_charts(layouts.interference, mark),
    )


def _mark_of(simulated: Collection[bool]) -> str:
    """The word for charts over several runs; empty if all were measured."""
    return MARK if simulated and all(simulated) else f"some runs {MARK}" if any(simulated) else ""


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


def _charts(charts: Sequence[Chart], mark: str) -> tuple[Chart, ...]:
    return tuple(replace(chart, title=f"{chart.title} ({mark})", table=_table(chart.table, mark)) for chart in charts)


def _table(table: Table, mark: str) -> Table:
    return replace(table, caption=f"{table.caption} ({mark})")


def _traffic(traffic: Traffic) -> Traffic:
    (chart,) = _charts((traffic.chart,), MARK)
    return replace(traffic, chart=chart, purposes=_table(traffic.purposes, MARK), matrix=_table(traffic.matrix, MARK))


def _anatomy(anatomy: Anatomy) -> Anatomy:
    return replace(anatomy, charts=_charts(anatomy.charts, MARK), table=_table(anatomy.table, MARK))
