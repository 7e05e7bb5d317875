"""The list of runs as values: its pages, its choices, and the charts by day."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reports.server.daily import LINES_MAX, daily_charts
from reports.server.filters import Filters
from reports.server.list_page import READING_MS, ROWS, RUNNING_MS, list_page
from reports.server.listed_run import ListedRun, ListedVerdict

DAY_NS = 86_400 * 10**9
FIRST = ListedRun(
    name="r0",
    workload="smoke",
    started_ns=20_000 * DAY_NS,
    state="finished",
    broker="RabbitMQ 4.0.5",
    queues=("quorum",),
    verdict=ListedVerdict.VALID,
    delivered_per_s=100.0,
    p99_ns=2e6,
)


def runs(count: int, **changes: Any) -> list[ListedRun]:
    return [replace(FIRST, name=f"r{number}", **changes) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "page", "shown", "pages", "said"),
    [
        (0, 1, 0, 1, "0 of 0 runs"),
        (1, 1, 1, 1, "1 of 1 run"),
        (ROWS, 1, ROWS, 1, f"{ROWS} of {ROWS} runs"),
        (ROWS + 1, 1, ROWS, 2, f"101 of 101 runs; 1 to {ROWS} are shown, the newest first"),
        (ROWS + 1, 2, 1, 2, "101 of 101 runs; 101 to 101 are shown, the newest first"),
        (ROWS + 1, 9_999, 1, 2, "101 of 101 runs; 101 to 101 are shown, the newest first"),
    ],
)
def test_a_page_has_a_part_of_the_list(count: int, page: int, shown: int, pages: int, said: str) -> None:
    made = list_page(runs(count), Filters(page=page))
    assert (len(made.rows), made.pages, made.summary) == (shown, pages, said)
    assert made.filters.page <= pages


@pytest.mark.parametrize(
    ("there", "filters", "unread", "said"),
    [
        ([], Filters(), 0, "No run has been recorded here yet."),
        ([], Filters(), 3, "The runs are being read."),
        (
            runs(1),
            Filters(q="x", broker="b", tags=("t",), verdict="unsafe", since="2026-11-01"),
            0,
            "No run has words “x”, broker b, tag t, verdict ledger violated, from 2026-11-01.",
        ),
        (runs(1), Filters(), 0, ""),
    ],
)
def test_an_empty_list_says_why(there: list[ListedRun], filters: Filters, unread: int, said: str) -> None:
    assert list_page(there, filters, unread=unread).empty == said


def test_a_list_that_will_change_says_so() -> None:
    assert list_page(runs(1), Filters()).again_ms is None
    assert list_page(runs(1), Filters(), unread=2).summary.endswith("2 runs still to be read")
    assert list_page(runs(1), Filters(), unread=2).again_ms == READING_MS
    assert list_page(runs(1, state="running"), Filters()).again_ms == RUNNING_MS


def test_filters_offer_what_there_is() -> None:
    other = replace(FIRST, workload="", broker="RabbitMQ 3.13", queues=("classic", "lazy"), layout="fast", tags=("b",))
    choices = list_page([FIRST, other, replace(FIRST, tags=("a",))], Filters(queue="lazy")).choices
    assert choices.names == ("smoke",)
    assert choices.brokers == ("RabbitMQ", "RabbitMQ 3.13", "RabbitMQ 4.0.5")
    assert (choices.queues, choices.layouts, choices.tags) == (("classic", "lazy", "quorum"), ("fast",), ("a", "b"))


def test_days_have_the_median_and_the_span_of_their_runs() -> None:
    second = [
        replace(FIRST, started_ns=20_001 * DAY_NS, p99_ns=ms * 1e6, delivered_per_s=ms * 10.0) for ms in (4, 9, 5)
    ]
    p99, rate = daily_charts([*second, FIRST]).charts
    assert p99.table.rows == (
        ("2024-10-04", "RabbitMQ 4.0.5", 1, 2e6, 2e6, 2e6),
        ("2024-10-05", "RabbitMQ 4.0.5", 3, 5e6, 4e6, 9e6),
    )
    assert [row[3:] for row in rate.table.rows] == [(100.0, 100.0, 100.0), (50.0, 40.0, 90.0)]
    _, line = p99.figure["data"]
    assert (line["x"], line["y"]) == (["2024-10-04", "2024-10-05"], [2.0, 5.0])


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"verdict": ListedVerdict.INVALID}, "1 run without figures to use is not drawn."),
        ({"verdict": ListedVerdict.UNSAFE}, "1 run without figures to use is not drawn."),
        ({"delivered_per_s": None}, "1 run without figures to use is not drawn."),
        ({"started_ns": 0}, "1 run without figures to use is not drawn."),
        ({"workload": "other"}, "1 run of other workloads is not drawn: choose a name above."),
        ({"verdict": ListedVerdict.UNJUDGED}, ""),
    ],
)
def test_what_is_not_drawn_is_said(changes: dict[str, Any], remark: str) -> None:
    found = daily_charts([FIRST, FIRST, replace(FIRST, **changes)])
    assert (found.workload, found.remark) == ("smoke", remark)
    assert found.charts[1].table.rows[0][2] == 2 + (not remark)


def test_lines_are_kinds_of_runs_and_only_the_most_frequent() -> None:
    many = [
        replace(FIRST, broker=f"b {number}", name=f"{number}-{again}")
        for number in range(LINES_MAX + 2)
        for again in range(9 - number)
    ]
    found = daily_charts(many)
    names = [line["name"] for line in found.charts[0].figure["data"] if line["mode"] != "lines"]
    assert names == [f"b {number}" for number in range(LINES_MAX)]
    assert found.remark == "2 more kinds of runs are not drawn: choose a broker, queue or layout."


def test_lines_differ_by_more_than_colour() -> None:
    kinds = [{}, {"broker": "other 1"}, {"layout": "fast"}, {"queues": ("classic",)}]
    data = daily_charts([replace(FIRST, **each) for each in kinds]).charts[0].figure["data"]
    lines = [line for line in data if line["mode"] != "lines"]
    assert len({(line["marker"]["symbol"], line["line"]["dash"], line["line"]["color"]) for line in lines}) == len(
        kinds
    )
    assert {line["name"] for line in lines} == {
        "RabbitMQ 4.0.5, quorum, no layout",
        "other 1, quorum, no layout",
        "RabbitMQ 4.0.5, quorum, fast",
        "RabbitMQ 4.0.5, classic, no layout",
    }


def test_without_runs_there_is_no_chart() -> None:
    assert daily_charts([]).charts == ()
    assert daily_charts([replace(FIRST, workload="")]).charts == ()
    assert daily_charts([replace(FIRST, verdict=ListedVerdict.INVALID)]).charts == ()


def test_names_of_runs_are_plain_text_in_figures() -> None:
    evil = replace(FIRST, broker="<b>x</b> %{x}")
    found = daily_charts([FIRST, evil]).charts[0].figure
    assert "<b>x</b>" not in str([line.get("name") for line in found["data"]])
