"""A simulated run on the page: nobody may take its figures for measured ones."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType

from reports.html.render import render
from reports.pages.page import page

SIMULATED = {
    "calibration": {"id": "0123abcd", "cpu": "Some CPU", "date": "2026-01-02"},
    "drives": {"main": {"name": "hdd7200"}},
    "nodes": 9,
    "machines": "one for all",
    "seed": 5,
    "shortened": "the steps of the plan last 60 s, those simulated 7 s",
}


def test_every_figure_of_a_simulated_run_says_so(sample_tables: ModuleType) -> None:
    """A figure is cut out and passed on; its title goes with it."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    manifest = json.loads(tables.runs.iloc[0]["manifest"]) | {"simulated": SIMULATED}
    made = page(replace(tables, runs=tables.runs.assign(manifest=json.dumps(manifest))), generated="")
    run = made.runs[0]
    assert run.title.endswith("(simulated)") and run.steps.caption.endswith("(simulated)")
    assert run.charts and all(chart.title.endswith("(simulated)") for chart in run.charts)
    banner = run.banners[0]
    assert banner.title == "Simulated" and all(
        word in banner.text
        for word in ("0123abcd", "Some CPU", "hdd7200", "9 nodes", "seed 5", "The steps of the plan")
    )
    assert "No figure on this page was measured" in render(made)


def test_a_measured_run_says_nothing_of_it(sample_tables: ModuleType) -> None:
    """The word must mean something."""
    assert "simulated" not in render(page(sample_tables.tables(sample_tables.SWEEP), generated=""))
