"""The page as a file: its structure, that it is complete in itself, and that no name can break out of its place."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reports.html import render as rendering
from reports.html.render import render
from reports.pages.model import Column, Kind
from reports.pages.page import page

VOID = {"meta", "link", "img", "br", "hr", "input"}
HOSTILE = (
    "</script><script>document.title='gotcha'</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "<!--<script>",
    "{{ 7*7 }} {% raw %}",
    "\u2028\u2029\u0007 & < > %{x} {unit}",
    "javascript:alert(1)",
)


class Outline(HTMLParser):
    """Elements, attributes and texts of a page, and whether every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.wrong: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        else:
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] or "" for _, attributes in self.elements if attribute in attributes]

    def island(self) -> Any:
        return json.loads(next(text for kind, text in self.scripts if kind == "application/json"))


@pytest.fixture(scope="module")
def sweep_html(sample_tables: ModuleType) -> str:
    return render(
        page(sample_tables.tables(sample_tables.SWEEP), generated="today", rebuild=["perftest", "report", "x"])
    )


@pytest.fixture(scope="module")
def sweep(sweep_html: str) -> Outline:
    return Outline(sweep_html)


def test_every_element_is_closed_and_named_once(sweep: Outline) -> None:
    """A browser repairs a broken page, each in its own way."""
    assert sweep.wrong == []
    assert sweep.open == []
    assert [name for name, times in Counter(sweep.values("id")).items() if times > 1] == []


def test_the_page_makes_no_request(sweep: Outline, sweep_html: str) -> None:
    """A report is sent around and opened in a train; and it must not tell anybody that it was."""
    assert sweep.all("link") == sweep.all("img") == sweep.all("iframe") == sweep.all("base") == []
    assert sweep.values("src") == []
    assert all(reference.startswith("#") for reference in sweep.values("href"))
    own = sweep_html.replace(rendering.plotly_script(), "")
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|import\(", own)


def test_every_link_has_a_target(sweep: Outline) -> None:
    """A dead link in the contents makes a reader doubt the rest."""
    assert {link[1:] for link in sweep.values("href")} <= set(sweep.values("id"))
    assert set(sweep.values("aria-controls")) <= set(sweep.values("id"))


def test_only_our_two_scripts_may_run(sweep: Outline) -> None:
    """The policy is the second wall behind the escaping."""
    policy = next(
        meta["content"] or "" for meta in sweep.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    scripts = [text for kind, text in sweep.scripts if kind is None]
    digests = {f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts}
    assert len(digests) == 2
    assert {part.rstrip(";") for part in policy.split() if part.startswith("'sha256-")} == digests
    assert not [name for _, attributes in sweep.elements for name in attributes if name.startswith("on")]


def test_the_reader_finds_the_answer_before_the_figures(sweep: Outline) -> None:
    """Result with its picture, trust, figures, steps, ledger, events, origin: in this order."""
    order = [
        "result",
        "knee",
        "trust",
        "figures",
        "e2e-spectrum",
        "confirm-spectrum",
        "timeline",
        "steps",
        "ledger",
        "events",
        "provenance",
    ]
    ids = [name for name in sweep.values("id") if name in order]
    assert ids == order
    assert len(sweep.all("h1")) == 1


def test_every_figure_has_its_words_its_table_and_its_buttons(sweep: Outline, sweep_html: str) -> None:
    """A figure that cannot be read, checked or taken along is decoration."""
    figures = sweep_html.split('<figure class="chart"')[1:]
    assert len(figures) == 5
    for figure in (part.split("</figure>")[0] for part in figures):
        assert "<h3>" in figure and "How to read" in figure
        assert 'class="finding"' in figure or 'data-figure="knee"' in figure, "whose finding is the answer beside it"
        assert [figure.count(f'data-do="{button}"') for button in ("table", "csv", "png")] == [1, 1, 1]
        assert "<table" in figure and 'role="img"' in figure and 'class="anchor"' in figure


def test_every_number_column_has_a_unit_or_counts(sweep: Outline) -> None:
    """4.63 of what?"""
    headings = sweep.all("th")
    named = [heading["data-name"] or "" for heading in headings if "data-name" in heading]
    assert len(named) > 40
    latencies = [heading for heading in headings if heading.get("class") == "latency"]
    assert latencies and all((heading["data-name"] or "").endswith("_ns") for heading in latencies)


def test_the_island_holds_every_figure(sweep: Outline) -> None:
    """The script finds its data by the figure's anchor."""
    island = sweep.island()
    assert set(island["figures"]) == set(sweep.values("data-figure"))
    assert set(island["palettes"]) == {"light", "dark"}


def test_the_page_stays_small_enough_to_mail(sweep_html: str) -> None:
    """Two megabytes, of which plotly.js is one and a half."""
    assert len(sweep_html.encode()) < 2_000_000


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_out_of_its_place(sample_tables: ModuleType, name: str) -> None:
    """Queue names, run names and error texts come from other people's machines."""
    sample = replace(
        sample_tables.VIOLATED,
        name=name,
        title=name,
        product=name,
        queue_types=name,
        events=((1.0, "error", name), (2.0, name, name)),
    )
    tables = sample_tables.tables(sample)
    tables.brokers["node"] = name
    tables.hosts["cpu"] = name
    tables.steps["label"] = name
    benign = Outline(render(page(sample_tables.tables(sample_tables.VIOLATED), generated="")))
    made = Outline(render(page(tables, generated=name, rebuild=[name], files={sample.run_id: [(name, 1)]})))
    assert made.wrong == made.open == []
    for tag in ("script", "img", "svg", "iframe", "style"):
        assert len(made.all(tag)) == len(benign.all(tag)), tag
    assert all(reference.startswith("#") for reference in made.values("href"))
    shown = " ".join(made.texts)
    assert name in shown
    made.island()


def test_names_in_figures_are_text(sample_tables: ModuleType) -> None:
    """Plotly reads a little HTML; a node's name must not."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    tables.brokers["node"] = "<b>node</b> %{y}"
    island = Outline(render(page(tables, generated=""))).island()
    names = {trace["name"] for trace in island["figures"]["timeline"]["data"]}
    assert "&lt;b&gt;node&lt;/b&gt; %(y)" in names


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "a&b"])
def test_the_island_is_json_and_cannot_end_its_element(text: str) -> None:
    """One unescaped tag and the rest of the data is page."""
    made = rendering.island({"name": text})
    assert not set(made) & set("<>&\u2028\u2029")
    assert json.loads(made) == {"name": text}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_island_refuses_what_is_no_json(value: float) -> None:
    """A browser refuses the whole island for one NaN; better to fail where the cause is."""
    with pytest.raises(ValueError, match="JSON"):
        rendering.island({"value": value})


@pytest.mark.parametrize(
    ("kind", "value", "shown", "raw"),
    [
        (Kind.LATENCY, 4_627_707, "4.63", "4627707"),
        (Kind.RATE, 16_100.04, "16,100", "16100.04"),
        (Kind.RATE, 2.5, "2.50", "2.5"),
        (Kind.RATE, 0.0, "0", "0"),
        (Kind.COUNT, 6_397_440, "6,397,440", "6397440"),
        (Kind.NUMBER, 9.0, "9.00", "9"),
        (Kind.LATENCY, None, "–", "None"),
    ],
)
def test_cells_show_a_rounded_number_and_keep_the_whole_one(
    kind: Kind, value: float | None, shown: str, raw: str
) -> None:
    """The table is for reading, the CSV for counting on."""
    column = Column(name="x_ns", title="x", kind=kind, unit="ms" if kind is Kind.LATENCY else "")
    assert rendering.cell(value, column) == shown
    assert rendering.raw(value) == raw


def test_plotly_is_the_bundle_that_was_reviewed() -> None:
    """A page runs this script: another file, or a file without its licence, must not come in unseen."""
    script = rendering.plotly_script()
    assert "plotly.js (cartesian - minified) v4.1.1" in script
    digest = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
    assert sha256(script.encode()).hexdigest() == digest
    assert "</script" not in script.lower() and "\r" not in script, "a page holds the script unchanged"
    licence = Path(rendering.__file__).parent / "plotly" / "LICENSE"
    assert licence.read_text().startswith("MIT License\n\nCopyright (c) 2016-2024 Plotly Technologies Inc.")


def test_the_page_of_two_runs_has_a_selector_and_unique_ids(sample_tables: ModuleType) -> None:
    """Otherwise the second run cannot be reached."""
    made = Outline(render(page(sample_tables.tables(sample_tables.SWEEP, sample_tables.VIOLATED), generated="")))
    assert [name for name, times in Counter(made.values("id")).items() if times > 1] == []
    assert {link[1:] for link in made.values("href")} <= set(made.values("id"))
    assert "run" in made.values("data-state")
    assert made.values("data-run") == ["r1-", "r2-"]


def test_percentiles_of_few_samples_carry_their_mark(sample_tables: ModuleType) -> None:
    """Beside a p99.9 of ten messages stands a sign that survives the choice of another unit."""
    few = replace(sample_tables.SWEEP, steps=tuple(replace(step, rate=30) for step in sample_tables.IN_FLIGHT))
    html = render(page(sample_tables.tables(few), generated=""))
    assert 'td.few::before { content: "~"; }' in html
    assert html.count('<td class="latency few" title="fewer than ten samples lie above this percentile"') == 6 * 3 + 2
    assert "latency few" not in render(page(sample_tables.tables(sample_tables.OPEN), generated=""))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("run `a < b` or `c`.", "run <code>a &lt; b</code> or <code>c</code>."),
        ("a `lone & <one>", "a `lone &amp; &lt;one&gt;"),
        ("98.3 % at 4 msg/s, `wait 5 s`, 3 stops", "98.3\u00a0% at 4\u00a0msg/s, <code>wait 5 s</code>, 3 stops"),
    ],
)
def test_commands_in_sentences_are_code(text: str, html: str) -> None:
    assert rendering.coded(text) == html
