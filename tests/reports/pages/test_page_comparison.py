"""The page of a comparison: the verdicts that were given, in words, with the figures of both sides."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from reports.charts import timeline
from reports.pages.model import Comparison, Kind
from reports.pages.page import page
from reports.pages.several import comparison


@pytest.fixture
def part(sample_tables: ModuleType, sample_comparisons: ModuleType) -> Comparison:
    """The comparison of three repetitions with three."""
    ((_, model),) = sample_comparisons.page(sample_tables).parts
    assert isinstance(model, Comparison)
    return model


def test_regressed_metrics_come_first_in_words_with_a_mark(part: Comparison) -> None:
    """And nothing is left out."""
    assert part.verdicts is not None
    at = [column.name for column in part.verdicts.columns].index("verdict")
    assert [row[at] for row in part.verdicts.rows] == [
        "✕ regressed",
        "✕ regressed",
        "? inconclusive",
        "? inconclusive",
        "✓ improved",
        "· within noise",
        "· no change detected",
    ]
    changes = [column.name for column in part.verdicts.columns if column.kind is Kind.CHANGE]
    assert changes == ["medians", "change", "low", "high"]
    assert part.verdicts.rows[0][5:9] == pytest.approx((54.3, 54.0, 46.0, 63.0), abs=0.05)
    assert part.verdicts.rows[3][7:9] == (None, None), "an unknown bound is not a number"


def test_the_counts_of_the_verdicts_add_up(part: Comparison) -> None:
    """Every figure is counted once, in the sentence and beside the title."""
    assert part.sentences[1].text == (
        "7 figures: 2 regressed, 2 inconclusive, 1 improved, 1 within noise, 1 no change detected."
    )
    assert sum(int(chip.value.split()[-1]) for chip in part.chips if chip.value[-1].isdigit()) == 7


def test_the_head_names_both_brokers_and_the_worst_ledger(part: Comparison) -> None:
    assert "(reference_broker 0.1.0) · candidate: 3 runs of runs/candidate" in part.subtitle
    assert [(chip.name, chip.value.partition(",")[0]) for chip in part.chips[:2]] == [
        ("Ledger", "nothing lost"),
        ("Trust", "6 of 6 runs valid"),
    ]


def test_the_change_of_medians_is_shown_only_beside_a_different_shift(
    sample_tables: ModuleType, sample_comparisons: ModuleType
) -> None:
    """Two columns with the same figures would look like a mistake."""
    rows = sample_comparisons.judged(sample_tables).rows
    same = [replace(row, candidate=row.base * (1 + row.value)) for row in rows]
    assert "medians" not in [column.name for column in comparison._verdicts(same).columns]


def test_a_reason_that_holds_for_every_row_is_no_column(
    sample_tables: ModuleType, sample_comparisons: ModuleType
) -> None:
    """One run against one is inconclusive throughout, and the result says why."""
    judged = sample_comparisons.judged(sample_tables)
    rows = [replace(row, doubt="too few repetitions") for row in judged.rows]
    for doubts, last in ((rows, "verdict"), ([*rows[:-1], replace(rows[-1], doubt="")], "doubt")):
        table = comparison._verdicts(doubts)
        assert table.columns[-1].name == last
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_spectra_begin_with_the_step_that_regressed(part: Comparison) -> None:
    """The ratio in the figure is that of the two columns beside it."""
    assert "in_flight=1000" in part.spectra[0].title
    for _, base, candidate, ratio in part.spectra[0].table.rows:
        assert isinstance(base, int) and isinstance(candidate, int)
        assert ratio == pytest.approx(candidate / base, rel=1e-3)


def test_steps_of_both_sides_begin_at_the_same_moment(part: Comparison) -> None:
    """Otherwise a longer first step would shift all that follow."""
    rows: list[tuple[Any, ...]] = list(part.over_time[0].table.rows)
    starts = {side: {} for side in ("baseline", "candidate")}  # type: dict[str, dict[str, float]]
    for side, step, _, t_s, *_ in rows:
        starts[side].setdefault(step, t_s)
    assert starts["baseline"] == starts["candidate"]
    assert len(rows) <= timeline.COLUMNS_MAX


def test_both_sides_are_on_one_heat_map_at_the_same_moments(part: Comparison) -> None:
    """A tail that grew is seen against the baseline right above, at the time when it grew."""
    chart = part.over_time[1]
    rows = [dict(zip([column.name for column in chart.table.columns], row, strict=True)) for row in chart.table.rows]
    assert rows and all(row["baseline_p99_ns"] and row["candidate_p99_ns"] for row in rows)
    (trace,) = chart.figure["data"]
    assert chart.figure["layout"]["yaxis"]["ticktext"][-3:] == ["p99 baseline", "max candidate", "max baseline"]
    assert trace["x"] == [round(float(row["t_s"]), 3) for row in rows]  # type: ignore[arg-type]
    assert trace["customdata"][-3] == [round(float(row["baseline_p99_ns"]) / 1e6, 3) for row in rows]  # type: ignore[arg-type]
    assert "of the intervals the candidate's p99 is over 5 % above" in chart.finding


def test_what_changed_inside_the_broker_is_named(part: Comparison) -> None:
    """The stage, the step, and both means."""
    (chart,) = part.inside
    assert "replicate at in_flight=1000" in chart.finding
    assert all(row[4] == row[3] - row[2] for row in chart.table.rows)  # type: ignore[operator]


def test_sides_that_are_unlike_get_a_banner_and_no_verdict(
    sample_tables: ModuleType, sample_comparisons: ModuleType
) -> None:
    """Figures side by side would be taken for a comparison."""
    ((_, part),) = sample_comparisons.page(sample_tables, refused=True).parts
    assert part.banners[0].title == "Not comparable" and "--allow host" in part.banners[0].text
    assert part.verdicts is None and not part.spectra and not part.forest
    assert part.differences.rows[0][:2] == ("host", "hosts[0].cores")


def test_runs_that_the_store_lacks_leave_the_verdicts(
    sample_tables: ModuleType, sample_comparisons: ModuleType
) -> None:
    """A damaged run must not take the whole page along."""
    found = replace(sample_comparisons.judged(sample_tables), candidate=("gone",))
    tables = sample_tables.tables(*sample_comparisons.samples(sample_tables)[0])
    part = comparison.comparison_part(found, tables, names=("a", "b"))
    assert part.verdicts is not None and not part.spectra


def test_a_grid_shows_each_setting_and_both_together(sample_tables: ModuleType) -> None:
    """One figure for one setting at a time, and a cell for each pair, as in the table of steps."""
    (run,) = page(sample_tables.tables(sample_tables.GRID), generated="").runs
    charts = {chart.anchor: chart for chart in run.factors}
    assert {"factors", "rate-surface", "p99-surface"} <= charts.keys()
    drawn = charts["rate-surface"].figure["data"][0]["text"]
    assert sorted(value for row in drawn for value in row) == sorted(step.rate for step in sample_tables.GRID.steps)
    assert charts["rate-surface"].finding.startswith("Highest: 205,000 msg/s at in-flight limit 1000")


@pytest.mark.parametrize("sample", ["SINGLE", "TOGETHER"])
def test_what_no_setting_did_alone_has_no_figure(sample_tables: ModuleType, sample: str) -> None:
    """Settings that change together, or none, leave nothing to put side by side."""
    (run,) = page(sample_tables.tables(getattr(sample_tables, sample)), generated="").runs
    assert not [chart for chart in run.factors if "settling" not in chart.anchor]
