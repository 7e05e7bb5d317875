"""Pages stay small enough to open: figures and data have limits, many runs get an overview, sets share their script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from reports.charts import timeline
from reports.html.render import raw, render
from reports.pages import kinds
from reports.pages.model import Chart, Page, Table
from reports.pages.page import DETAILS_MAX, page
from tests.reports.testing.page_kinds import PAGES

SWEEP_MAX_BYTES = 2_700_000
"""Most octets of the page of a long sweep, of which plotly.js is one and a half million."""


class _Cells(HTMLParser):
    """The numbers of every table of a page, with the name of its CSV file, as the file would have them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str | None]]]] = []
        self._rows: list[list[str | None]] = []
        self._text = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        kind = (named.get("class") or "").split(" ")[0]
        if tag == "table":
            self._rows = []
            self.tables.append((str(named["data-file"]), self._rows))
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th") and named.get("scope") != "col":
            self._text = kind == "text"
            self._rows[-1].append("" if self._text else named.get("data-v"))

    def handle_endtag(self, tag: str) -> None:
        self._text = self._text and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._text:
            self._rows[-1][-1] = f"{self._rows[-1][-1]}{data}"


def _as_shown(table: Table) -> list[list[str | None]]:
    return [
        [None if cell is None else cell if isinstance(cell, str) else raw(cell) for cell in row] for row in table.rows
    ]


@pytest.mark.parametrize("kind", PAGES)
def test_every_number_on_a_page_of_any_kind_is_that_of_its_table(
    sample_tables: ModuleType, sample_comparisons: ModuleType, kind: str
) -> None:
    """Tables of steps, of verdicts and of figures alike; what a script changes later, it makes of the same numbers."""
    _has_all_tables(PAGES[kind]((sample_tables, sample_comparisons)))


@pytest.mark.parametrize("sample", ["SWEEP", "OPEN", "SINGLE", "VIOLATED", "TOGETHER"])
def test_every_number_on_the_page_of_a_run_is_that_of_its_table(sample_tables: ModuleType, sample: str) -> None:
    """A sweep, an open loop, a single step, a run that broke its promise."""
    _has_all_tables(page(sample_tables.tables(getattr(sample_tables, sample)), generated=""))


def _has_all_tables(made: Page) -> None:
    parser = _Cells()
    parser.feed(render(made))
    blocks = [block for article in kinds.articles(made) for section in article.sections for block in section.blocks]
    minutes = [block for block in blocks if isinstance(block, kinds.Minute)]
    shown = [*(block for block in blocks if isinstance(block, kinds.Data | Chart)), *(each.picture for each in minutes)]
    tables = [block.table for block in shown if block] + [each.headline for each in minutes if each.headline]
    assert any(table.rows for table in tables)
    for table in tables:
        assert (table.file, _as_shown(table)) in [(file, rows[1:]) for file, rows in parser.tables], table.file


def _long(sample_tables: ModuleType) -> object:
    """A sweep of 30 steps of a minute."""
    steps = tuple(
        sample_tables.Step(setting=4 * number, rate=3000.0 * number, p50_ns=1e6 + 2e5 * number)
        for number in range(1, 31)
    )
    return replace(sample_tables.SWEEP, steps=steps, step_s=63, with_stages=True)


def test_a_sweep_of_thirty_steps_is_small_enough_to_mail(sample_tables: ModuleType) -> None:
    """More is not mailed, and opens slowly."""
    text = render(page(sample_tables.tables(_long(sample_tables)), generated=""))
    assert len(text.encode()) <= SWEEP_MAX_BYTES
    found = re.search(r'id="report-data">(.*?)</script>', text, re.S)
    assert found is not None
    lanes = json.loads(found[1])["figures"]["timeline"]["data"]
    columns = [len(trace["x"]) / (2 if "fill" in trace else 1) for trace in lanes]  # a band goes there and back
    assert max(columns) <= timeline.COLUMNS_MAX * 1.1, "a group ends with its step"


def test_figures_beyond_the_limit_are_tables(sample_tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers stay, and so do the links to them."""
    monkeypatch.setattr(kinds, "FIGURES_MAX", 2)
    text = render(page(sample_tables.tables(sample_tables.SWEEP), generated=""))
    assert text.count('<figure class="chart"') == 2
    assert '<details class="fold" id="timeline">' in text
    monkeypatch.setattr(kinds, "DATA_MAX_BYTES", 10)
    assert '<figure class="chart"' not in render(page(sample_tables.tables(sample_tables.SWEEP), generated=""))


def test_many_runs_get_an_overview(sample_tables: ModuleType) -> None:
    """Forty whole pages in one open in no browser."""
    samples = [replace(sample_tables.SINGLE, run_id=f"run-{number}") for number in range(DETAILS_MAX + 1)]
    made = page(sample_tables.tables(*samples), generated="")
    assert [kind for kind, _ in made.parts] == ["overview"]
    assert len(made.known_runs) == DETAILS_MAX + 1 and not made.runs
    text = render(made)
    assert "--separate" in text and all(f"run-{number}" in text for number in range(DETAILS_MAX + 1))


def test_pages_of_a_set_share_script_and_style(sample_tables: ModuleType) -> None:
    """A page of a set holds its own numbers only."""
    made = page(sample_tables.tables(sample_tables.SWEEP), generated="", home=("report.html", "All & more"))
    text = render(made, shared="shared")
    assert len(text) < 600_000 and "plotly.js v" not in text
    assert '<script src="shared/plotly.min.js">' in text and '<a href="report.html">← All &amp; more</a>' in text


def test_separate_pages_are_linked_from_the_overview(sample_tables: ModuleType, tmp_path: Path) -> None:
    """Each run's cell in the table leads to its page."""
    pages = {sample_tables.SWEEP.run_id: "run-a.html", sample_tables.OPEN.run_id: "run-b.html"}
    made = page(sample_tables.tables(sample_tables.SWEEP, sample_tables.OPEN), generated="", pages=pages)
    text = render(made, shared="shared")
    assert f'<a href="run-b.html">{sample_tables.OPEN.run_id}</a>' in text
    assert 'data-run="' not in text.split("<script")[0]
