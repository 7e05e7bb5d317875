"""The page of a store: a part for each run, and an overview when there are several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from perftest.results.trust import Status
from reports.pages import answer
from reports.pages.background import background_section
from reports.pages.hosts import hosts_section
from reports.pages.invalid import invalid_runs
from reports.pages.model import (
    Background,
    Banner,
    Chip,
    Hosts,
    Link,
    Page,
    Run,
    Sentence,
)
from reports.pages.reproduction import verdicts
from reports.pages.run import run_section
from reports.pages.several.apart import rounds_of
from reports.pages.several.layouts import layouts_section
from reports.pages.several.overview import LoadSide, overview_section
from reports.stats.foreign import without_unknown
from reports.stats.lead import with_lead
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
    sides = [LoadSide(each) for each in rounds_of([_named(tables.of(*load), load[1]) for load in tables.loads])]
    loads = [load for side in sides for load in side.rounds.loads]
    names = [name for side in sides for name in side.rounds.round_names()]
    many = len(loads) > 1 or bool(pages)
    detailed = len(loads) <= DETAILS_MAX and not pages
    sections = [
        run_section(
            load,
            answer.curve(load.runs.iloc[0], load.steps),
            name=name,
            prefix=f"r{number}-" if many else "",
            rebuild=rebuild,
            files=known.get(_run_id(load), ()),
            drawn=detailed,
        )
        for number, (load, name) in enumerate(zip(loads, names, strict=True), 1)
    ]
    title = _title(sections)
    beside, spread = _background(tables), _hosts(tables)
    sections = [
        _with_hosts(_with_notes(section, beside.get(_run_id(load), ())), spread.get(_run_id(load)))
        for section, load in zip(sections, loads, strict=True)
    ]
    judged = verdicts(loads)
    sections = sections if many else [replace(section, verdicts=judged) for section in sections]
    placed = layouts_section(loads, judged)
    notes = () if detailed or pages else (_NO_DETAILS,)
    overview = overview_section(sides, sections, judged, title=title, notes=notes)
    if pages:
        links = tuple(pages[_run_id(load)] for load in loads)
        overview = replace(overview, table=replace(overview.table, links=links))
    several: list[tuple[str, object]] = [("overview", overview)] if many else []
    if placed is not None:
        several.insert(0, ("layouts", replace(placed, chips=overview.chips)))
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
            *several,
            *(details if detailed else ()),
        ),
        banners=(*(invalid_runs(sections) if many else ()), *_left_out(left_out or {})),
        verdicts=judged,
    )


def _left_out(reasons: Mapping[str, str]) -> list[Banner]:
    """A banner for each run directory that could not be reported."""
    return [
        Banner(status=Status.WARN, title="A run was left out", text=f"{path}: {reason}.")
        for path, reason in reasons.items()
    ]


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
    chip = Chip(name="Hosts", value=part.subtitle)
    notes, chips = (*section.notes, note), (*section.chips, chip)
    first, *others = section.sentences
    return replace(section, notes=notes, chips=chips, sentences=(first, part.even, *others))


def _run_id(load: Tables) -> str:
    """The id of the run of a load, without the group that :func:`_named` adds."""
    run = load.runs.iloc[0]
    group = str(load.steps["group"].iloc[0]) if len(load.steps) else ""
    return str(run["run_id"]).removesuffix(f"-{group}") if group else str(run["run_id"])


def _named(load: Tables, group: str) -> Tables:
    """The tables of one group of load, in which the name of the run tells the group, too."""
    return replace(load, runs=load.runs.assign(run_id=load.runs["run_id"] + f"-{group}")) if group else load


def _title(sections: Sequence[Run]) -> str:
    titles = list(dict.fromkeys(section.title for section in sections))
    return titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"
