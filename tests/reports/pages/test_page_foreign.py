"""A run of another tool on the page: whose figures they are, and a dash where nothing is known."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from perftest.results.trust import Status
from reports.html.render import render
from reports.pages.page import page
from reports.store.schema import SERIES
from reports.store.tables import Tables

FACTS: dict[str, Any] = {
    "tool": "PerfTest",
    "files": [{"name": "a.csv"}],
    "unknown": ["when the run began"],
    "missing": [
        "worker_cpu_share",
        "worker_cpu_us_per_message",
        "redelivered",
        "loop_lag_ns",
        "confirmed",
        "confirmed_per_s",
        "intended",
    ],
    "stated": [{"series": "confirm", "figures": {"p99_ns": 12_500_000}, "quantiles": {}}],
    "of_intervals": [
        {"series": "e2e", "figure": "p99_ns", "intervals": 9}
        | {"least_ns": 1_000_000, "middle_ns": 2_000_000, "greatest_ns": 3_000_000}
    ],
}


@pytest.fixture
def tables(sample_tables: ModuleType) -> Tables:
    """A run of one step without ledger and without histograms."""
    made: Tables = sample_tables.tables(sample_tables.SWEEP)
    manifest = json.loads(made.runs.iloc[0]["manifest"]) | {"foreign": FACTS}
    latencies = [name for name in made.steps if name.startswith(tuple(f"{each}_" for each in SERIES))]
    kept = [name for name in latencies if not name.endswith("_series")]
    steps = made.steps.head(1).assign(**dict.fromkeys(kept, float("nan")))
    slots = [name for name in made.timeline if name.startswith(tuple(f"{each}_" for each in SERIES))]
    return replace(
        made,
        runs=made.runs.assign(manifest=json.dumps(manifest), swept="[]"),
        steps=steps,
        timeline=made.timeline[made.timeline["step"] == 1].assign(**dict.fromkeys(slots, float("nan"))),
        ledger=made.ledger.head(0),
        latency=made.latency.head(0),
        spectrum=made.spectrum.head(0),
        stages=made.stages.head(0),
    )


def test_the_page_says_whose_figures_they_are(tables: Tables) -> None:
    made = page(tables, generated="")
    (run,) = made.runs
    assert run.banners[0].title == "Measured by PerfTest" and "when the run began" in run.banners[0].text
    chips = {chip.name: chip.value for chip in run.chips}
    assert chips["Measured by"] == "PerfTest" and chips["Loop"] == "unknown" and "Ledger" not in chips
    said = " ".join(sentence.text for sentence in run.sentences)
    assert "PerfTest states a p99 of 12.5 ms" in said and "1.00 ms to 3.00 ms" in said and "kept no ledger" in said
    assert "confirmed" not in said, "a rate that is not known is not told as 0"
    assert run.stated is not None and len(run.stated.tables) == 2
    html = render(made)
    assert "As PerfTest states" in html and "cannot be merged" in html


def test_no_check_passes_for_want_of_knowledge(tables: Tables) -> None:
    (run,) = page(tables, generated="").runs
    found = {check.check: check.status for check in run.checks}
    assert {found[name] for name in ("ledger", "generator_cpu", "loop", "histograms")} == {Status.WARN}
    assert "clock" not in found and "host_clocks" not in found and "refusals" not in found
    assert Status.FAIL not in found.values()


def test_figures_that_the_tool_does_not_tell_are_dashes(tables: Tables) -> None:
    (run,) = page(tables, generated="").runs
    shown = dict(zip([column.name for column in run.steps.columns], run.steps.rows[0], strict=True))
    assert shown.get("worker_cpu_us_per_message") is None and shown["delivered_per_s"] is not None


def test_a_run_of_this_tool_is_shown_as_ever(sample_tables: ModuleType) -> None:
    (run,) = page(sample_tables.tables(sample_tables.SWEEP), generated="").runs
    assert run.stated is None and "Ledger" in {chip.name for chip in run.chips}
