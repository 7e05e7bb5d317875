"""The page of published findings: its figures are those of the verdicts, and every finding has a row a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.html.render import render
from reports.pages.kinds import articles
from reports.pages.model import PublishedPage, PublishedPart
from reports.pages.several.published import published_page
from reports.stats.published import LevelFigure, Tried, counted, sources_of
from tests.reports.published_workloads import PLAN, RISES, tried, workload

LEVEL = LevelFigure(metric="e2e.p95", place="s=1", stated=60e6, measured={"ours": 41e6})
WORKLOAD = replace(
    workload(ours=replace(tried((1, 4)), pages=("pages/run-1.html",)), theirs=Tried(why_not="it is not installed")),
    levels=(LEVEL,),
)


@pytest.fixture(scope="module")
def parts() -> tuple[PublishedPage, PublishedPart]:
    page = published_page([WORKLOAD], generated="now", notes=["Measured here."])
    (_, whole), (_, part) = page.parts
    assert isinstance(whole, PublishedPage) and isinstance(part, PublishedPart)
    return whole, part


def test_the_score_is_that_of_the_verdicts(parts: tuple[PublishedPage, PublishedPart]) -> None:
    whole, _part = parts
    (source,) = sources_of([WORKLOAD])
    for row, broker in zip(whole.headline.rows, ("ours", "theirs"), strict=True):
        assert row == ("Rates", broker, *counted(source.findings, broker).values())
    assert whole.sentences[0].text == "On ours, 1 of 1 decided findings hold; 1 of 2 are not decided."
    assert whole.sentences[-1].text == "Measured here."


def test_every_finding_has_a_row_and_a_lane_for_each_broker(parts: tuple[PublishedPage, PublishedPart]) -> None:
    _whole, part = parts
    assert [row[2] for row in part.table.rows] == ["ours", "theirs"] * len(PLAN["findings"])
    assert part.table.links == ("pages/run-1.html", "", "pages/run-1.html", "")
    (chart,) = part.ratios
    assert list(chart.figure["layout"]["yaxis"]["ticktext"]) == ["ours", "theirs"] * 2
    assert part.table.rows[1][3:] == ("not run", "it is not installed")
    (marks,) = (trace for trace in chart.figure["data"] if trace["name"] == "reproduced")
    assert marks["x"] == [4.0]


def test_a_chart_of_ratios_has_one_workload_and_room_on_a_sheet() -> None:
    """24 lanes at most, over two brokers."""
    many = {**PLAN, "name": "one/many", "findings": [{**RISES, "says": f"It rises, {at}."} for at in range(14)]}
    not_run = {"ours": Tried(why_not="no time"), "theirs": Tried(why_not="no time")}
    page = published_page([WORKLOAD, replace(WORKLOAD, name="one/many", plan=many, brokers=not_run)], generated="now")
    *_, (_, part) = page.parts
    assert isinstance(part, PublishedPart)
    told = " measured against claimed"
    assert [chart.title for chart in part.ratios] == [
        f"one/rates:{told}", f"one/many:{told}", f"one/many:{told}, continued",
    ]  # fmt: skip
    assert [len(chart.table.rows) for chart in part.ratios] == [4, 24, 4]
    assert len({chart.anchor for chart in part.ratios}) == 3


def test_stated_figures_stand_beside_measured_ones(parts: tuple[PublishedPage, PublishedPart]) -> None:
    (level,) = parts[1].levels
    assert [(trace["name"], trace["x"]) for trace in level.figure["data"]] == [("the source", [60.0]), ("ours", [41.0])]


def test_the_page_is_complete_and_links_the_source() -> None:
    page = published_page([WORKLOAD], generated="now")
    assert len(articles(page)) == 2
    html = render(page)
    assert '<a href="https://example.org/rates">Rates</a>' in html
    assert html.count("It rises with a backlog.") >= 2


def test_a_broker_without_a_verdict_is_no_score_of_none_out_of_none() -> None:
    page = published_page([replace(WORKLOAD, brokers={"ours": Tried(why_not="no time")})], generated="now")
    ((_, whole), *_) = page.parts
    assert isinstance(whole, PublishedPage)
    assert whole.sentences[0].text == "On ours, none of 2 findings is decided."
