"""A page of every kind, for tests that demand the same of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from reports.pages.background import background_section
from reports.pages.model import Page
from reports.pages.page import page
from reports.pages.several.history import history_page
from reports.pages.several.published import published_page
from reports.stats.history import history, history_metric
from reports.stats.lead import with_lead
from reports.stats.published import LevelFigure
from tests.reports.pages.test_page_history import AFTER, BEFORE, tables_over_days
from tests.reports.published_workloads import tried, workload

Samples = tuple[ModuleType, ModuleType]
"""The modules ``sample_tables`` and ``sample_comparisons``."""

LAYOUT: Final[dict[str, Any]] = {
    "name": "one drive",
    "drives": [{"name": "d1", "kind": "modelled", "profile": "st1-1t"}],
    "roles": dict.fromkeys(("data", "segment", "wal", "classic"), "d1"),
    "io": "dedicated",
}


def _run(samples: Samples) -> Page:
    grid = replace(samples[0].GRID, with_stages=True, with_links=True)
    return page(samples[0].tables(grid), generated="")


def _background(samples: Samples) -> Page:
    tables = with_lead(samples[0].tables(samples[0].SWEEP))
    part = background_section(tables, tables, name="lazy", prefix="b1-")
    return Page(title="Background", generated="", parts=(("background", part),))


def _part(kind: str, made: Page) -> Page:
    return replace(made, parts=tuple(part for part in made.parts if part[0] == kind))


def _hosts(samples: Samples) -> Page:
    return _part("hosts", page(samples[0].tables(samples[0].SPREAD), generated=""))


def _layouts(samples: Samples) -> Page:
    placed = replace(samples[0].SWEEP, layout=LAYOUT, with_stages=True)
    return _part("layouts", page(samples[0].tables(placed), generated=""))


def _overview(samples: Samples) -> Page:
    classic = replace(samples[0].SWEEP, run_id="20261121-101503-in_flight-0002", queue_types="classic")
    return page(samples[0].tables(samples[0].SWEEP, classic), generated="")


def _comparison(samples: Samples) -> Page:
    made: Page = samples[1].page(samples[0])
    return made


def _history(samples: Samples) -> Page:
    found = history(tables_over_days(samples[0], BEFORE + AFTER), history_metric("p99"))
    return history_page(found, workload="flow_control/in_flight", generated="")


def _published() -> Page:
    level = LevelFigure(metric="rate", place="s=1", stated=19e3, measured={"ours": 41e3, "theirs": 12e3})
    several = workload(ours=tried((1, 4)), theirs=tried((4, 1)))
    return published_page([replace(several, levels=(level,))], generated="", notes=["Measured here."])


PAGES: Final[dict[str, Callable[[Samples], Page]]] = {
    "run": _run,
    "background": _background,
    "hosts": _hosts,
    "layouts": _layouts,
    "overview": _overview,
    "comparison": _comparison,
    "history": _history,
    "published": lambda _samples: _part("published", _published()),
    "published_part": lambda _samples: _part("published_part", _published()),
}
"""The page of each kind, from the samples."""
