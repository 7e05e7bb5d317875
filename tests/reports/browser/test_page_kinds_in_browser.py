"""Every kind of page in a real browser, from disk and without a network: the same demands on each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from reports.charts import theme
from reports.html.render import render, shared_files
from reports.pages import kinds
from tests.reports.browser.browsing import MARKS, Browser
from tests.reports.browser.devtools import Tab
from tests.reports.testing.page_kinds import PAGES, Samples

pytestmark = MARKS
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


@pytest.fixture(scope="module")
def samples(sample_tables: ModuleType, sample_comparisons: ModuleType) -> Samples:
    return sample_tables, sample_comparisons


def test_every_kind_is_looked_at() -> None:
    """Whoever registers a kind adds a page of it here."""
    assert PAGES.keys() == kinds.KINDS.keys()


@pytest.fixture(scope="module")
def html(samples: Samples) -> Callable[[str], str]:
    """The page of a kind, which is written once for all tests."""
    return cache(lambda kind: render(PAGES[kind](samples)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_a_page_draws_sorts_and_links_without_a_network(
    browser: Browser, html: Callable[[str], str], kind: str
) -> None:
    """In the dark theme, by keyboard, with a clean console."""
    answer = browser.ask(html(kind), LOOK, state="#theme=dark")
    assert answer["undrawn"] == [] and answer["figures"] > 0
    assert answer["requests"] == [] and answer["broken"] == [] and answer["without"] == 0
    assert answer["sorted"] == 1 and answer["focused"] and answer["reachable"] and answer["at"]
    dark = theme.PALETTES["dark"]["page"]
    assert answer["ground"] == "rgb({}, {}, {})".format(*(int(dark[at : at + 2], 16) for at in (1, 3, 5)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_a_page_fits_360_pixels(browser: Browser, html: Callable[[str], str], kind: str) -> None:
    """Nothing sticks out of the narrowest telephone."""
    scrolled, wide = browser.ask(html(kind), NARROW, size=(360, 6000))
    assert wide == [] and scrolled <= 360


FIRST: Final = """
  drawn();
  const seen = (selector) => [...document.querySelectorAll(selector)].filter((each) => {
    const box = each.getBoundingClientRect();
    return box.height > 0 && box.top < innerHeight;
  }).map((each) => each.textContent.trim());
  const isText = (node) => node.nodeType === 3 && node.textContent.trim();
  const holdsText = (each) => [...each.childNodes].some(isText);
  const isShown = (each) => each.tagName !== "CAPTION" && each.checkVisibility();
  const all = [...document.querySelectorAll(".title *, .opening *")];
  const texts = all.filter((each) => holdsText(each) && isShown(each));
  const stands = (each) => each.closest("svg") || getComputedStyle(each).display !== "inline";
  const boxes = texts.filter(stands).map((each) => [each.textContent.trim(), each.getBoundingClientRect()]);
  const beside = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1;
  const above = (a, b) => a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
  const over = [];
  for (const [at, [first, one]] of boxes.entries()) {
    for (const [second, two] of boxes.slice(at + 1)) {
      if (!beside(one, two) && !above(one, two)) over.push(`${first} | ${second}`);
    }
  }
  const hides = (each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX === "hidden";
  return {
    answers: seen(".opening .answer"),
    pictures: seen(".opening .main-svg").length,
    verdicts: seen(".chips .chip, .banner"),
    over,
    cut: texts.filter(hides).map((each) => each.textContent),
  };
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 900), (400, 800)])
@pytest.mark.parametrize("kind", PAGES)
def test_the_first_screen_has_answer_picture_and_verdict(
    browser: Browser, html: Callable[[str], str], kind: str, size: tuple[int, int]
) -> None:
    """In ten seconds: what was measured, what is the answer, may I believe it? No text lies on another or is cut."""
    found = browser.ask(html(kind), FIRST, size=size)
    assert len(found["answers"]) == 1 and found["answers"][0].endswith("."), found
    assert found["pictures"] > 0, found
    assert found["verdicts"] or kind in ("hosts", "layouts", "history"), "a part alone has no verdict of its own"
    assert found["over"] == [], found["over"]
    assert found["cut"] == [], found["cut"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_a_page_without_script_is_a_report(browser: Browser, html: Callable[[str], str], kind: str) -> None:
    """The tables of the figures are shown in the place of the figures, and nothing that needs a script."""
    text = re.sub(r"<script>.*?</script>", "", html(kind), flags=re.S)
    script = """
      const all = (selector) => [...document.querySelectorAll(selector)];
      const seen = (selector) => all(selector).filter((each) => each.checkVisibility()).length;
      return [seen("figure .data table") === document.querySelectorAll("figure.chart").length, seen(".plot"),
        seen("[data-do], .controls")];
    """
    assert browser.ask(text, script) == [True, 0, 0]


@pytest.mark.slow
def test_pages_of_a_set_load_the_files_beside_them(browser: Browser, samples: Samples, tmp_path: Path) -> None:
    """From disk, under their own policy."""
    (tmp_path / "shared").mkdir()
    for name, text in shared_files().items():
        (tmp_path / "shared" / name).write_text(text, encoding="utf-8")
    file = tmp_path / "page.html"
    file.write_text(render(PAGES["run"](samples), shared="shared"), encoding="utf-8")
    answer = browser.ask_file(file, LOOK)
    assert answer["undrawn"] == [] and answer["figures"] > 0 and answer["sorted"] == 1
    names = sorted(name.rsplit("/", 1)[1] for name in answer["requests"] if name.startswith("file:"))
    assert set(names) <= {"plotly.min.js", "report.css", "report.js"} and len(names) == len(answer["requests"])


CLOSED: Final = '[data-do="table"][aria-expanded="false"], details:not([open]) > summary'
"""What opens a table."""

SORTED: Final = """(() => {
  const table = document.querySelector("th[aria-sort]")?.closest("table");
  if (!table) return null;
  const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.hasAttribute("aria-sort"));
  const column = [...table.tBodies[0].rows].map((row) => row.cells[at]);
  const cells = column.filter((cell) => cell.dataset.v ?? cell.textContent);
  const values = cells.map((cell) => ("v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent));
  const ascending = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  return JSON.stringify(values) === JSON.stringify([...values].sort(ascending));
})()"""


@pytest.mark.slow
def test_keys_alone_sort_a_table_of_every_kind_and_links_lead_to_their_sections(
    browser: Browser, html: Callable[[str], str]
) -> None:
    """Real keys: Tab reaches the heading of a table, and Enter sorts by it. A link with an anchor and a theme opens at
    the anchor, in the theme."""

    async def look(tab: Tab, kind: str) -> None:
        file = browser.file(html(kind))
        await tab.open(file.as_uri())
        for _ in range(200):
            await tab.press("Tab")
            if await tab.ask("document.activeElement.matches('thead button')"):
                break
            if await tab.ask(f"document.activeElement.matches({CLOSED!r})"):
                await tab.press("Enter")
        await tab.press("Enter")
        assert await tab.ask(SORTED), kind
        sections = "[...document.querySelectorAll('main section[id], main h2[id]')]"
        anchors = await tab.ask(f"{sections}.map((each) => each.id)")
        await tab.open("about:blank")
        await tab.open(f"{file.as_uri()}#{anchors[-1]}&theme=dark")
        at = f"document.getElementById({anchors[-1]!r}).getBoundingClientRect().top"
        await tab.until(f"{at} >= -1 && {at} < innerHeight")
        assert await tab.ask("document.documentElement.dataset.theme") == "dark", kind

    for kind in PAGES:
        browser.run(lambda tab, kind=kind: look(tab, kind))
