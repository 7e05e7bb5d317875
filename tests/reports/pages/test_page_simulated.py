"""A simulated run on the page: nobody may take its figures for measured ones."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType

import pytest

from reports.html.render import render
from reports.pages.model import Layouts, Overview
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


LAYOUT = {
    "name": "one drive",
    "drives": [{"name": "d1", "kind": "modelled", "profile": "st1-1t"}],
    "roles": dict.fromkeys(("data", "segment", "wal", "classic"), "d1"),
    "io": "dedicated",
}


@pytest.mark.parametrize(
    ("simulated", "mark"),
    [
        (("run-alone", "run-lazy"), "(simulated)"),
        (("run-lazy",), "(some runs simulated)"),
        ((), ""),
    ],
    ids=["all", "some", "none"],
)
def test_figures_over_several_runs_say_whether_all_were_simulated(
    sample_tables: ModuleType, simulated: tuple[str, ...], mark: str
) -> None:
    """A comparison of layouts is where simulated figures are looked at most, and where they stand beside others."""
    steps = sample_tables.IN_FLIGHT[2:4]
    samples = [
        sample_tables.Sample(
            run_id=f"run-{beside or 'alone'}", layout=LAYOUT, beside=beside, steps=steps, with_stages=True
        )
        for beside in ("", "lazy")
    ]
    tables = sample_tables.tables(*samples)
    manifests = [
        json.dumps(json.loads(run["manifest"]) | ({"simulated": SIMULATED} if run["run_id"] in simulated else {}))
        for _, run in tables.runs.iterrows()
    ]
    parts = dict(page(replace(tables, runs=tables.runs.assign(manifest=manifests)), generated="").parts[:2])
    overview, layouts = parts["overview"], parts["layouts"]
    assert isinstance(overview, Overview) and isinstance(layouts, Layouts)
    over_several = [*layouts.cells, *layouts.spectra, *layouts.per_message, *layouts.interference, *overview.charts]
    titles = [text for chart in over_several for text in (chart.title, chart.table.caption)]
    titles += [overview.table.caption]
    assert layouts.cells and layouts.spectra and layouts.per_message and layouts.interference
    assert all(text.endswith(mark) if mark else "simulated" not in text for text in titles)
    assert all(("simulated" in chart.title) == (len(simulated) == 2) for chart in layouts.over_time)


def test_a_measured_run_says_nothing_of_it(sample_tables: ModuleType) -> None:
    """The word must mean something."""
    assert "simulated" not in render(page(sample_tables.tables(sample_tables.SWEEP), generated=""))
