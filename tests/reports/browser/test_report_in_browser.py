"""The report in a real browser, under its own content security policy."""

from __future__ import annotations

from types import ModuleType
from typing import Final

import pytest

from reports.charts import theme
from reports.html.render import render
from reports.pages.page import page
from tests.reports.browser.browsing import MARKS, Browser

pytestmark = MARKS

DRAWN: Final = """
  drawn();
  return [...document.querySelectorAll("figure.chart")].map((each) => each.querySelector(".main-svg") !== null);
"""


@pytest.fixture(scope="module")
def html(sample_tables: ModuleType) -> str:
    return render(page(sample_tables.tables(sample_tables.SWEEP), generated="", rebuild=["perftest", "report", "x"]))


def test_every_figure_is_drawn_and_nothing_is_refused(browser: Browser, html: str) -> None:
    """The policy, the data and plotly.js must agree; a reader sees an empty box otherwise."""
    assert browser.ask(html, DRAWN) == [True] * 5


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["SINGLE", "OPEN", "VIOLATED", "SPREAD"])
def test_other_kinds_of_runs_are_drawn_too(browser: Browser, sample_tables: ModuleType, sample: str) -> None:
    """A plain run, an open loop, a broken promise, several hosts."""
    figures = browser.ask(render(page(sample_tables.tables(getattr(sample_tables, sample)), generated="")), DRAWN)
    assert figures and all(figures)


def test_tables_sort_by_a_click_and_say_so(browser: Browser, html: str) -> None:
    """Also to a screen reader; a second click turns the order."""
    script = """
      const table = document.querySelector("#steps").parentElement.querySelector("table");
      const column = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
      const headings = [...table.tHead.rows[0].cells];
      const p99 = headings.find((cell) => cell.dataset.name === "e2e_p99_ns");
      const said = [];
      for (const heading of [p99, p99, headings[0]]) {
        heading.querySelector("button").click();
        said.push([column(), headings.map((cell) => cell.getAttribute("aria-sort")).filter(Boolean)]);
      }
      return said;
    """
    ordered = ["1", "5", "20", "200", "1000", "10000"]
    assert browser.ask(html, script) == [
        [ordered, ["ascending"]],
        [ordered[::-1], ["descending"]],
        [ordered, ["ascending"]],
    ]


def test_the_unit_switch_reaches_tables_headings_figures_and_the_address(browser: Browser, html: str) -> None:
    """One number left in milliseconds under the word seconds would be a wrong result."""
    script = """
      drawn();
      const cells = () => [...document.querySelectorAll("td.latency")].map((cell) => cell.textContent);
      const knee = document.querySelector("#knee .plot");
      const before = cells(), drawnBefore = knee.data[1].y[0];
      const choose = (unit) => {
        const control = document.querySelector('[data-state="unit"]');
        control.value = unit;
        control.dispatchEvent(new Event("change", { bubbles: true }));
      };
      choose("s");
      const seconds = [document.querySelector("#steps").parentElement.querySelector("td.latency").textContent,
        [...new Set([...document.querySelectorAll("[data-unit]")].map((span) => span.textContent))],
        knee.layout.yaxis.title.text, drawnBefore / knee.data[1].y[0], location.hash];
      choose("ms");
      return { seconds, same: JSON.stringify(before) === JSON.stringify(cells()), hash: location.hash };
    """
    answer = browser.ask(html, script)
    first, units, title, factor, state = answer["seconds"]
    assert (first, units, title, state) == ("0.00082", ["s"], "end-to-end p99 (s, log scale)", "#unit=s")
    assert factor == pytest.approx(1000)
    assert answer["same"], "the script must write numbers as the page was made with"
    assert answer["hash"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("look", theme.THEMES)
def test_the_address_restores_theme_and_unit(browser: Browser, html: str, look: str) -> None:
    """A link shows its receiver what the sender saw."""
    script = """
      drawn();
      return [getComputedStyle(document.body).backgroundColor, document.querySelector("#knee .plot").data[1].line.color,
        document.querySelector("[data-unit]").textContent,
        [...document.querySelectorAll("[data-state]")].map((control) => control.value)];
    """
    ground, line, unit, controls = browser.ask(html, script, state=f"#steps&theme={look}&unit=s")
    page_colour = theme.PALETTES[look]["page"]
    assert ground == "rgb({}, {}, {})".format(*(int(page_colour[at : at + 2], 16) for at in (1, 3, 5)))
    assert line == theme.PALETTES[look]["quorum"]
    assert (unit, controls) == ("s", ["s", look])


@pytest.mark.slow
def test_a_nonsense_address_does_no_harm(browser: Browser, html: str) -> None:
    """Mail programs cut and decorate links."""
    script = "drawn(); return document.querySelectorAll('.plot .main-svg').length > 3;"
    assert browser.ask(html, script, state="#nothing&theme=pink&unit=parsec&run=7&%22%5B=x&=&") is True


@pytest.mark.slow
def test_the_script_colours_as_the_palette_says(browser: Browser, html: str) -> None:
    """The scale is worked out twice, here and in Python; both must agree."""
    script = """
      drawn();
      return document.querySelector("#e2e-spectrum .plot").data.map((trace) => trace.line.color.toUpperCase());
    """
    colours = list(dict.fromkeys(browser.ask(html, script, state="#theme=light")))
    assert colours == [theme.colour(theme.scale_token(position, 6), "light") for position in range(6)]


@pytest.mark.slow
def test_csv_has_full_precision_and_escaped_texts(browser: Browser, sample_tables: ModuleType) -> None:
    """The download is what gets computed on."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    tables.events["text"] = '=SUM(1), "quoted"'
    script = """
      const kept = [];
      URL.createObjectURL = (blob) => { kept.push(blob); return "#"; };
      HTMLAnchorElement.prototype.click = function () { kept.push(this.download); };
      for (const at of ["#knee", "#events"]) {
        const place = document.querySelector(at);
        (place.matches("figure") ? place : place.parentElement).querySelector('[data-do="csv"]').click();
      }
      return [await kept[0].text(), kept[1], (await kept[2].text()).split("\\r\\n")[1]];
    """
    text, name, event = browser.ask(render(page(tables, generated="")), script)
    lines = text.split("\r\n")
    assert lines[0] == "setting,delivered_per_s,latency_ns"
    assert lines[1].startswith("1,1180,16478") and lines[-1] == ""
    assert name == f"{sample_tables.SWEEP.run_id}-knee.csv"
    assert event.endswith(',"\'=SUM(1), ""quoted"""')


@pytest.mark.slow
def test_pictures_are_made_under_the_policy(browser: Browser, html: str) -> None:
    """The policy must not forbid what the button promises."""
    script = """
      drawn();
      const saved = new Promise((done) => {
        HTMLAnchorElement.prototype.click = function () { done([this.download, this.href.slice(0, 5)]); };
      });
      document.querySelector('#timeline [data-do="png"]').click();
      return saved;
    """
    name, kind = browser.ask(html, script)
    assert name.endswith("-timeline.png")
    assert kind in ("blob:", "data:")


@pytest.mark.slow
def test_the_table_of_a_figure_opens_and_closes(browser: Browser, html: str) -> None:
    """And says so to a screen reader."""
    script = """
      const figure = document.querySelector("#knee"), button = figure.querySelector('[data-do="table"]');
      const seen = () => [figure.querySelector(".data").checkVisibility(), button.getAttribute("aria-expanded")];
      const states = [seen()];
      for (let turn = 0; turn < 2; turn += 1) { button.click(); states.push(seen()); }
      return states;
    """
    assert browser.ask(html, script) == [[False, "false"], [True, "true"], [False, "false"]]


@pytest.mark.slow
def test_the_run_selector_shows_one_run(browser: Browser, sample_tables: ModuleType) -> None:
    """Twenty hosts' runs on one page need a way to look at one."""
    two = render(page(sample_tables.tables(sample_tables.SWEEP, sample_tables.VIOLATED), generated=""))
    script = 'return [...document.querySelectorAll("[data-run]")].map((run) => run.checkVisibility());'
    assert browser.ask(two, script, state="#run=r2-") == [False, True]
    assert browser.ask(two, script) == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768])
def test_nothing_sticks_out_on_a_narrow_screen(browser: Browser, html: str, width: int) -> None:
    """A page that must be pushed sideways is not read on a telephone."""
    script = """
      drawn();
      const wide = [...document.querySelectorAll("main *")].filter((element) =>
        element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".scroll, pre, svg"));
      return [innerWidth, document.documentElement.scrollWidth, wide.map((element) => element.outerHTML.slice(0, 80))];
    """
    inner, scrolled, wide = browser.ask(html, script, size=(width, 6000))
    assert (inner, wide) == (width, [])
    assert scrolled <= width
