"""The page of a store: a part for each run, and an overview when there are several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perftest.results.trust import Status
from reports.charts import knee, theme
from reports.pages import answer, settings, words
from reports.pages.background import background_section
from reports.pages.figures import is_simulated, knee_paths
from reports.pages.hosts import hosts_section
from reports.pages.model import (
    Background,
    Banner,
    Chart,
    Column,
    Hosts,
    Kind,
    Link,
    Overview,
    Page,
    Run,
    Sentence,
    Table,
    Verdicts,
)
from reports.pages.reproduction import verdicts
from reports.pages.run import run_section
from reports.pages.several.layouts import layouts_section
from reports.pages.simulated import marked_overview
from reports.pages.sweep import shared_charts
from reports.pages.tables import latency_column, table_of
from reports.stats.foreign import without_unknown
from reports.stats.lead import lead_series, with_lead
from reports.store.tables import Tables

DETAILS_MAX: Final = 8
"""Most runs (or groups of load) whose details stand on one page; a page of more runs is an overview."""

_NO_DETAILS: Final = (
    f"This page is an overview, because it has more than {DETAILS_MAX} runs. For a page of each run beside it, make "
    "the report again with --separate."
)


def page(
    tables: Tables,
    *,
    generated: str,
    rebuild: Sequence[str] = (),
    files: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    left_out: Mapping[str, str] | None = None,
    pages: Mapping[str, str] | None = None,
    home: Link | None = None,
) -> Page:
    """The page of all runs in ``tables``.

    ``generated`` is the line at the foot; ``rebuild`` the command that makes the page again; ``files`` the raw files
    (name, octets) by run id, of the runs whose directories can be reached; ``left_out`` the run directories that could
    not be reported, and why. With ``pages``, the pages by run id, or with more than :data:`DETAILS_MAX` runs, the
    page is an overview without the details of each. ``home`` is the page that leads to this one.
    """
    known, tables = files or {}, with_lead(without_unknown(tables))
    ids = tables.loads
    loads = [_named(tables.of(run_id, group), group) for run_id, group in ids]
    curves = [answer.curve(load.runs.iloc[0], load.steps) for load in loads]
    many = len(loads) > 1 or bool(pages)
    detailed = len(loads) <= DETAILS_MAX and not pages
    sections = [
        run_section(
            load,
            curve,
            prefix=f"r{number}-" if many else "",
            rebuild=rebuild,
            files=known.get(run_id, ()),
            drawn=detailed,
        )
        for number, (load, curve, (run_id, _)) in enumerate(zip(loads, curves, ids, strict=True), 1)
    ]
    title = _title(sections)
    beside = _background(tables)
    sections = [
        _with_notes(section, beside.get(run_id, ())) for section, (run_id, _) in zip(sections, ids, strict=True)
    ]
    spread = _hosts(tables)
    sections = [_with_hosts(section, spread.get(run_id)) for section, (run_id, _) in zip(sections, ids, strict=True)]
    judged = verdicts(loads)
    sections = sections if many else [replace(section, verdicts=judged) for section in sections]
    placed = layouts_section(loads, judged)
    overview = _side_by_side(loads, curves, sections, judged, title=title, noted=not detailed and not pages)
    if pages:
        links = tuple(pages[run_id] for run_id, _ in ids)
        overview = replace(overview, table=replace(overview.table, links=links))
    details: list[tuple[str, object]] = [
        *(("run", section) for section in sections),
        *(("hosts", part) for part in spread.values()),
        *(("background", section) for of_run in beside.values() for section in of_run),
    ]
    return Page(
        title=title,
        generated=generated,
        home=home,
        parts=(
            *([("overview", overview)] if many else []),
            *([] if placed is None else [("layouts", placed)]),
            *(details if detailed else ()),
        ),
        banners=tuple(
            Banner(status=Status.WARN, title="A run was left out", text=f"{path}: {reason}.")
            for path, reason in (left_out or {}).items()
        ),
        verdicts=judged,
    )


def _side_by_side(
    loads: Sequence[Tables],
    curves: Sequence[answer.Curve | None],
    sections: Sequence[Run],
    judged: tuple[Verdicts, ...],
    *,
    title: str,
    noted: bool,
) -> Overview:
    """The overview of the runs, each with its knee curve; ``noted`` if it has to say why it lacks their details."""
    overview = Overview(
        title=title,
        subtitle=f"{words.plural(len(sections), 'run')} side by side",
        runs=tuple(sections),
        table=_overview(loads),
        charts=tuple(_shared(loads, curves)),
        verdicts=judged,
        notes=(Sentence(text=_NO_DETAILS),) if noted else (),
    )
    return marked_overview(overview, [is_simulated(load.runs.iloc[0]) for load in loads])


def _background(tables: Tables) -> dict[str, list[Background]]:
    """A part for each background load, by the id of its run."""
    found: dict[str, list[Background]] = {}
    measured = dict(reversed(tables.loads))
    for number, (run_id, group) in enumerate(tables.background_loads, 1):
        own, other = tables.of(run_id, group), tables.of(run_id, measured[run_id])
        found.setdefault(run_id, []).append(background_section(own, other, name=group, prefix=f"b{number}-"))
    return found


def _with_notes(section: Run, beside: Sequence[Background]) -> Run:
    """A run that says, before its figures, where the background loads are that ran beside it."""
    notes = [
        Sentence(text=f"{each.title} ran beside this load.", anchor=f"{each.prefix}background", see="its part")
        for each in beside
    ]
    return replace(section, notes=(*section.notes, *notes))


def _hosts(tables: Tables) -> dict[str, Hosts]:
    """A part for each run on several hosts, by its id."""
    found = {}
    of_runs = tables.hosts["run_id"].value_counts()
    for number, run_id in enumerate(map(str, tables.runs["run_id"]), 1):
        part = hosts_section(tables.of(run_id), prefix=f"h{number}-") if of_runs.get(run_id, 0) > 1 else None
        if part is not None:
            found[run_id] = part
    return found


def _with_hosts(section: Run, part: Hosts | None) -> Run:
    """A run that names the page on which its hosts are told apart."""
    if part is None:
        return section
    note = Sentence(
        text=f"This load ran on several hosts ({part.subtitle}).", anchor=f"{part.prefix}hosts", see="each of them"
    )
    return replace(section, notes=(*section.notes, note))


def _named(load: Tables, group: str) -> Tables:
    """The tables of one group of load, in which the name of the run tells the group, too."""
    return replace(load, runs=load.runs.assign(run_id=load.runs["run_id"] + f"-{group}")) if group else load


def _title(sections: Sequence[Run]) -> str:
    titles = list(dict.fromkeys(section.title for section in sections))
    return titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"


def _shared(loads: Sequence[Tables], curves: Sequence[answer.Curve | None]) -> list[Chart]:
    """The knee curves of all sweeps on one pair of axes, and what each setting does in each of them."""
    swept = [(load, found) for load, found in zip(loads, curves, strict=True) if found is not None]
    if len(swept) < 2:
        return []
    sweeps = [(load.runs.iloc[0], found) for load, found in swept]
    paths = _paths(sweeps)
    return [
        Chart(
            anchor="all-knee",
            title="End-to-end p99 against delivered rate, all runs",
            unit="ms",
            latency=True,
            how_to_read="Each line is a run, or a line through the grid of a run; each point is a step, labelled by "
            "its setting. Points further to the right and further down are better. The colour tells the queue type, "
            "the dash tells runs of one type apart, and rings mark the knees.",
            finding=_best(sweeps),
            figure=knee.figure(paths, quantity="end-to-end p99"),
            table=_points_table(paths),
        ),
        *shared_charts(swept),
    ]


def _paths(sweeps: Sequence[tuple[pd.Series[Any], answer.Curve]]) -> list[knee.Path]:
    """The lines of every run: colour and marker by queue type, dash by its turn among the runs of that type."""
    seen: dict[str, int] = {}
    paths: list[knee.Path] = []
    for run, found in sweeps:
        queue = str(run["queue_types"]).split(",")[0]
        turn = seen[queue] = seen.get(queue, -1) + 1
        paths += [
            replace(path, name=", ".join(filter(None, (str(run["run_id"]), path.name))))
            for path in knee_paths(
                run,
                found.sweep,
                colour=theme.queue_token(queue),
                marker=theme.QUEUE_MARKERS.get(queue, "circle"),
                dash=theme.DASHES[turn % len(theme.DASHES)],
            )
        ]
    return paths


def _best(sweeps: Sequence[tuple[pd.Series[Any], answer.Curve]]) -> str:
    run, found = max(sweeps, key=lambda sweep: sweep[1].sweep.rate_at(sweep[1].sweep.peak))
    return (
        f"The highest delivered rate measured is that of {run['run_id']}, with {found.names[found.sweep.peak]}. "
        "Whether the runs differ by more than chance is not known from one of each: perftest compare tells it, over "
        "repetitions."
    )


def _points_table(paths: Sequence[knee.Path]) -> Table:
    columns = (
        Column(name="run", title="run"),
        Column(name="setting", title="setting"),
        Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
        latency_column("latency_ns", "end-to-end p99"),
    )
    frame = pd.concat([path.points.assign(run=path.name, setting=path.points["settings"]) for path in paths])
    return table_of(frame, columns, caption="Delivered rate and p99 of all runs", file="knee.csv")


def _overview(loads: Sequence[Tables]) -> Table:
    """One row per run: the run, and its highest delivered rate."""
    columns = (
        Column(name="run", title="run"),
        Column(name="queue_types", title="queue"),
        Column(name="broker", title="broker"),
        Column(name="loop", title="loop"),
        Column(name="peak_per_s", title="peak delivered", kind=Kind.RATE, unit="msg/s"),
        Column(name="at", title="at"),
        latency_column("p99_ns", "p99 there"),
        Column(name="state", title="state"),
    )
    frame = pd.DataFrame([_overview_row(load.runs.iloc[0], load.steps) for load in loads])
    return table_of(frame, columns, caption="The runs", file="runs.csv")


def _overview_row(run: pd.Series[Any], steps: pd.DataFrame) -> dict[str, Any]:
    row = {name: run[name] for name in ("queue_types", "loop", "state")}
    row |= {"run": run["run_id"], "broker": f"{run['product']} {run['broker_version']}".strip()}
    if steps.empty:
        return row | {"peak_per_s": None, "at": "", "p99_ns": None}
    at = int(steps["delivered_per_s"].argmax())
    best = steps.iloc[at]
    name = settings.long(steps, settings.swept(run))[at]
    return row | {
        "peak_per_s": best["delivered_per_s"],
        "at": name,
        "p99_ns": best[f"{lead_series(run, 'e2e')}_p99_ns"],
    }
