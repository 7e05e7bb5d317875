"""Every kind of page in a real browser, from disk and without a network: the same demands on each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from reports.charts import theme
from reports.html.render import render, shared_files
from reports.pages import kinds
from reports.pages.background import background_section
from reports.pages.history import history_page
from reports.pages.model import Page
from reports.pages.page import page
from reports.stats.history import history, metric_named
from reports.stats.lead import with_lead
from tests.reports.browser.browsing import MARKS, Browser
from tests.reports.pages.test_page_history import AFTER, BEFORE, tables_over_days

pytestmark = MARKS
Samples = tuple[ModuleType, ModuleType]

LAYOUT: Final[dict[str, Any]] = {
    "name": "one drive",
    "drives": [{"name": "d1", "kind": "modelled", "profile": "st1-1t"}],
    "roles": dict.fromkeys(("data", "segment", "wal", "classic"), "d1"),
    "io": "dedicated",
}


def _run(samples: Samples) -> Page:
    grid = replace(samples[0].GRID, with_stages=True)
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
    found = history(tables_over_days(samples[0], BEFORE + AFTER), metric_named("p99"))
    return history_page(found, workload="flow_control/in_flight", generated="")


PAGES: Final[dict[str, Callable[[Samples], Page]]] = {
    "run": _run,
    "background": _background,
    "hosts": _hosts,
    "layouts": _layouts,
    "overview": _overview,
    "comparison": _comparison,
    "history": _history,
}

LOOK: Final = """
  drawn();
  const figures = [...document.querySelectorAll("figure.chart")];
  document.querySelector('[data-do="table"]').click();
  const table = [...document.querySelectorAll("table[data-sortable]")].find((each) => each.checkVisibility());
  const button = table.querySelector("thead button");
  button.focus();
  const focused = document.activeElement === button;
  button.click();
  const link = document.querySelector("nav.contents a");
  if (link) link.click();
  return {
    undrawn: figures.filter((figure) => !figure.querySelector(".main-svg")).map((figure) => figure.id),
    figures: figures.length,
    without: figures.filter((figure) => !figure.querySelector(".how") || !figure.querySelector("table")).length,
    requests: performance.getEntriesByType("resource").map((entry) => entry.name),
    sorted: table.querySelectorAll("th[aria-sort]").length,
    focused,
    reachable: [...document.querySelectorAll(".scroll")].every((box) => box.tabIndex === 0),
    broken: [...document.querySelectorAll('a[href^="#"]')].map((each) => each.getAttribute("href").slice(1))
      .filter((at) => !document.getElementById(at)),
    at: link ? location.hash.slice(1).split("&")[0] === link.getAttribute("href").slice(1) : true,
    ground: getComputedStyle(document.body).backgroundColor,
  };
"""

NARROW: Final = """
  drawn();
  const wide = [...document.querySelectorAll("main *")].filter((element) =>
    element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".scroll, pre, svg"));
  return [document.documentElement.scrollWidth, wide.map((element) => element.outerHTML.slice(0, 80))];
"""


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@pytest.fixture(scope="module")
def samples(sample_tables: ModuleType, sample_comparisons: ModuleType) -> Samples:
    return sample_tables, sample_comparisons


def test_every_kind_is_looked_at() -> None:
    """Whoever registers a kind adds a page of it here."""
    assert PAGES.keys() == kinds.KINDS.keys()


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_draws_sorts_and_links_without_a_network(browser: Browser, samples: Samples, kind: str) -> None:
    """In the dark theme, by keyboard, with a clean console."""
    answer = browser.ask(render(PAGES[kind](samples)), LOOK, state="#theme=dark")
    assert answer["undrawn"] == [] and answer["figures"] > 0
    assert answer["requests"] == [] and answer["broken"] == [] and answer["without"] == 0
    assert answer["sorted"] == 1 and answer["focused"] and answer["reachable"] and answer["at"]
    dark = theme.PALETTES["dark"]["page"]
    assert answer["ground"] == "rgb({}, {}, {})".format(*(int(dark[at : at + 2], 16) for at in (1, 3, 5)))


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_fits_360_pixels(browser: Browser, samples: Samples, kind: str) -> None:
    """Nothing sticks out of the narrowest telephone."""
    scrolled, wide = browser.ask_in_frame(render(PAGES[kind](samples)), NARROW, width=360)
    assert wide == [] and scrolled <= 360


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_without_script_is_a_report(browser: Browser, samples: Samples, kind: str) -> None:
    """The tables of the figures are shown in the place of the figures, and nothing that needs a script."""
    text = re.sub(r"<script>.*?</script>", "", render(PAGES[kind](samples)), flags=re.S)
    script = """
      const all = (selector) => [...document.querySelectorAll(selector)];
      const seen = (selector) => all(selector).filter((each) => each.checkVisibility()).length;
      return [seen("figure .data table") === document.querySelectorAll("figure.chart").length, seen(".plot"),
        seen("[data-do], .controls")];
    """
    assert browser.ask(text, script.replace("drawn();", "")) == [True, 0, 0]


def test_pages_of_a_set_load_the_files_beside_them(browser: Browser, samples: Samples, tmp_path: Path) -> None:
    """From disk, under their own policy."""
    (tmp_path / "shared").mkdir()
    for name, text in shared_files().items():
        (tmp_path / "shared" / name).write_text(text, encoding="utf-8")
    answer = browser.ask(render(_run(samples), shared="shared"), LOOK)
    assert answer["undrawn"] == [] and answer["figures"] > 0 and answer["sorted"] == 1
    names = sorted(name.rsplit("/", 1)[1] for name in answer["requests"] if name.startswith("file:"))
    assert set(names) <= {"plotly.min.js", "report.css", "report.js"} and len(names) == len(answer["requests"])
