"""Where the time went, on the page: bars that add up, percentiles that nobody adds."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from reports.html.render import render
from reports.pages.model import Anatomy
from reports.pages.page import page


def _anatomy(sample_tables: ModuleType, sample: Any) -> Anatomy:
    found = page(sample_tables.tables(sample), generated="").runs[0].anatomy
    assert found is not None
    return found


def _told(sample_tables: ModuleType, **more: Any) -> Any:
    return replace(sample_tables.SWEEP, with_stages=True, **more)


def test_a_broker_that_does_not_tell_gets_no_section(sample_tables: ModuleType) -> None:
    """RabbitMQ keeps no such histograms; an empty section would look like a failure."""
    made = page(sample_tables.tables(sample_tables.SWEEP), generated="")
    assert made.runs[0].anatomy is None
    assert "Where the time went" not in render(made)


def test_each_bar_adds_up_to_the_mean_latency(sample_tables: ModuleType) -> None:
    """A bar that does not is a claim about time that was never measured."""
    sample = _told(sample_tables)
    steps = sample_tables.tables(sample).steps
    for chart, series in zip(_anatomy(sample_tables, sample).charts, ("e2e", "confirm"), strict=True):
        sums: dict[Any, list[float]] = {}
        for setting, _stage, mean_ns, percent in chart.table.rows:
            held = sums.setdefault(setting, [0.0, 0.0])
            held[0] += float(mean_ns or 0)
            held[1] += float(percent or 0)
        wholes = [whole for whole, _percent in sums.values()]
        assert wholes == pytest.approx(steps[f"{series}_mean_ns"].tolist(), rel=1e-5)
        assert [percent for _whole, percent in sums.values()] == pytest.approx([100] * len(steps))


def test_the_slowest_stage_is_named(sample_tables: ModuleType) -> None:
    """Who reads one sentence should know where to look."""
    texts = [sentence.text for sentence in _anatomy(sample_tables, _told(sample_tables)).sentences]
    assert texts[0].startswith("At the knee, in-flight limit 200: of ")
    assert "go into replicate (from the own sync until a majority has synced and this node knows)." in texts[0]
    assert texts[1].startswith("That is the slowest stage at p99 too: ")
    assert not [text for text in texts if "Not every delivery" in text]


def test_messages_that_were_not_followed_are_confessed(sample_tables: ModuleType) -> None:
    """Shares of some of the messages must not pass for shares of all."""
    texts = [sentence.text for sentence in _anatomy(sample_tables, _told(sample_tables, followed=0.5)).sentences]
    assert "as few as 50.0 % in one step" in texts[-1]


def test_the_table_has_every_stage_and_marks_one(sample_tables: ModuleType) -> None:
    """The percentiles stand there in the order of the way, the whole chain last."""
    table = _anatomy(sample_tables, _told(sample_tables)).table
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    first = [row for row in rows if row["setting"] == rows[0]["setting"] and row["chain"] == "delivery"]
    assert [row["title"] for row in first] == ["read", "propose", "fsync", "replicate", "deliver", "total"]
    assert [row["title"] for row in first if row["slowest"]] == ["replicate"]
    assert all(row["meaning"] for row in rows)


def test_the_page_shows_it(sample_tables: ModuleType) -> None:
    """Figures of this section are drawn like all others: their data must be in the page."""
    text = render(page(sample_tables.tables(_told(sample_tables)), generated=""))
    assert 'href="#anatomy"' in text
    assert '"e2e-stages":' in text and '"confirm-stages":' in text
