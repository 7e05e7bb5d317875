"""A step is judged once: the terminal, from its row of result.json, and the page, from its row of a table, agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from perftest.results.summary import PERCENTILES
from perftest.results.trust import STEP_CHECKS, step_checks
from reports.stats import validity
from reports.store import schema
from reports.store.tables import Tables


def row(settings: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A row of ``result.json``: 10 s at 9,400 messages a second, nothing against it."""
    plain = dict.fromkeys(("intended", "published", "confirmed", "delivered", "acked"), 94_000)
    plain |= dict.fromkeys(("nacked", "returned", "redelivered", "negative_latencies"), 0)
    found = {
        "step": 5,
        "label": "in_flight=256",
        "length_ns": 10**10,
        "loop": "closed",
        "settings": {"in_flight": 256, "rate": None, "publishers": 1, "consumers": 1, **(settings or {})},
        "worker_cpu_share": 0.2,
        "worker_wait_share": 0.0,
        "host_cpu_percent": 40.0,
        "steal_share": 0.0,
        "loop_lag_ns": 500_000,
        "gc_collections": 0,
        "gc_pause_ns": 0,
        "latency": latency(),
        **plain,
    }
    return found | changes


def latency(**changes: tuple[int, int]) -> dict[str, dict[str, int]]:
    """``latency(e2e=(count, p99_ns))``."""
    found = {"e2e": (94_000, 50_000_000), "confirm": (94_000, 40_000_000)} | changes
    return {name: {"count": count, "p99_ns": p99_ns} for name, (count, p99_ns) in found.items()}


def columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same step as the pipeline has it in its table."""
    known = {name: row[name] for name in schema.STEPS.names if name in row}
    known |= {"settings": json.dumps(row["settings"]), "length_s": row["length_ns"] / 1e9}
    known["e2e_series"] = "e2e_sched" if row["loop"] == "open" else "e2e"
    for series in schema.SERIES:
        for figure in ("count", *PERCENTILES):
            known[f"{series}_{figure}"] = row["latency"].get(series, {}).get(figure, float("nan"))
    return known


SPREAD = {
    name: {**dict.fromkeys(PERCENTILES, 80_000), "count": 94_000, "p50_ns": 60_000} for name in ("e2e", "confirm")
}
"""Latencies of which only the median is below 70 µs."""
OPEN = dict.fromkeys(("below_bound", "below_zero", "beyond_bound"), 0)
RATED = {"settings": {"rate": 9400.0}, "loop": "open"}
SCHEDULED = RATED | {"latency": latency(e2e_sched=(94_000, 50_000_000), lag=(94_000, 26_000_000))}
STEPS = {
    "sound": row(),
    "at its limit": row(worker_cpu_share=0.97),
    "busy": row(worker_cpu_share=0.9),
    "CPU unknown": row(worker_cpu_share=None),
    "busy and late": row(**RATED, published=90_000, worker_cpu_share=0.9),
    "no core left": row(worker_cpu_share=0.7, worker_wait_share=0.28),
    "paused": row(loop_lag_ns=50_000_001),
    "collected": row(gc_collections=1204, gc_pause_ns=60_000_000),
    "stolen from": row(steal_share=0.01),
    "robbed": row(steal_share=0.25),
    "clocks": row(negative_latencies=3),
    "two clocks": row(latency=SPREAD, clock_bound_ns=50_000, **OPEN),
    "two clocks, far apart": row(latency=SPREAD, clock_bound_ns=70_000, **OPEN | {"below_bound": 9, "below_zero": 4}),
    "two clocks, one wrong": row(latency=SPREAD, clock_bound_ns=50_000, **OPEN | {"beyond_bound": 2}),
    "missed": row(**RATED, published=90_000),
    "paced": row(**SCHEDULED),
    "late by itself": row(**SCHEDULED, worker_cpu_share=0.96),
    "idle": row({"rate": 0.0}, latency={}, intended=0, published=0, confirmed=0, delivered=0),
    "few samples": row(latency=latency(e2e=(999, 50_000_000))),
    "no samples": row(latency={}),
    "only publishing": row({"consumers": 0}, latency={"confirm": {"count": 94_000, "p99_ns": 10**6}}, delivered=0),
    "only consuming": row({"publishers": 0}, latency={}, published=0, confirmed=0),
    "nobody answers": row({"consumers": 0, "in_flight": 0}, latency={}, confirmed=0, delivered=0),
    "unconfirmed": row(confirmed=0),
    "without confirms": row({"in_flight": 0}, confirmed=0),
    "refused": row(nacked=2008, returned=7),
    "all returned": row(latency={}, returned=94_000, delivered=0),
    "redelivered": row(redelivered=5),
    "behind": row(delivered=92_119),
    "kept up": row(delivered=92_120),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_judged_alike_in_the_terminal_and_on_the_page(tables: Tables, name: str) -> None:
    """One name, one limit, one sentence: whoever reads both must not wonder which is right."""
    step = STEPS[name]
    in_table = tables.steps.iloc[4].to_dict() | columns(step)
    timeline = tables.timeline[tables.timeline["step"] == step["step"]]
    one = replace(tables, steps=pd.DataFrame([in_table]), timeline=timeline)
    on_page = {check.check: (check.status, check.text) for check in validity.checks(one)}
    in_terminal = {check.check: (check.status, validity.sentence(check.text)) for check in step_checks(step)}
    assert {check: on_page.get(check) for check in in_terminal} == in_terminal
    silent = {judge.__name__.removeprefix("_") for judge in STEP_CHECKS} - in_terminal.keys()
    assert not silent & on_page.keys()


def test_of_several_steps_the_worst_speaks(tables: Tables) -> None:
    """The gravest status counts; among equals the step that is furthest beyond the limit; all of them are named."""
    shares = {1: 0.86, 2: 0.94, 3: 0.9}
    steps = tables.steps.assign(worker_cpu_share=tables.steps["step"].map(shares).fillna(0.2))
    (check,) = [check for check in validity.checks(replace(tables, steps=steps)) if check.check == "generator_cpu"]
    assert (str(check.status), check.steps) == ("warn", (1, 2, 3))
    assert "94%" in check.text and check.text.endswith("(in_flight=4; also in_flight=1 and 1 more).")


@pytest.mark.parametrize("name", ["only publishing", "only consuming"])
def test_a_run_of_one_side_alone_fails_nothing(tables: Tables, name: str) -> None:
    """It has no end-to-end latency to lose."""
    steps = pd.DataFrame([tables.steps.iloc[4].to_dict() | columns(STEPS[name])])
    one = replace(tables, steps=steps, timeline=tables.timeline[tables.timeline["step"] == 5])
    failed = [check.check for check in validity.checks(one) if str(check.status) == "fail"]
    assert failed == []
