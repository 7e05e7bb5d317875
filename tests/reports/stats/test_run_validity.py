"""The trust list: a healthy run passes, and each thing that spoils a measurement is found and weighed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from perftest.results.trust import Check, Status
from reports.stats import validity
from reports.store.tables import Tables

PASS, WARN, FAIL, NOTE = Status


def found(tables: Tables, name: str) -> Check:
    (check,) = [check for check in validity.checks(tables) if check.check == name]
    return check


def worst(checks: list[Check]) -> Status:
    """A run may be believed as far as its gravest check; notes carry no weight."""
    return max({check.status for check in checks} - {NOTE}, key=(PASS, WARN, FAIL).index)


def with_run(tables: Tables, **values: Any) -> Tables:
    return replace(tables, runs=tables.runs.assign(**values))


def with_step(tables: Tables, row: int, **values: Any) -> Tables:
    steps = tables.steps.copy()
    for name, value in values.items():
        steps[name] = steps[name].astype(object)
        steps.loc[row, name] = value
        steps[name] = steps[name].infer_objects()
    return replace(tables, steps=steps)


def with_ledger(tables: Tables, **values: Any) -> Tables:
    return replace(tables, ledger=tables.ledger.assign(**values))


def drifting(tables: Tables, column: str, factor: float, step: int = 3) -> Tables:
    timeline = tables.timeline.copy()
    later = (timeline["step"] == step) & (timeline["slot"] >= 3) & (timeline["phase"] == "steady")
    timeline.loc[later, column] *= factor
    return replace(tables, timeline=timeline)


def opened(tables: Tables) -> Tables:
    return replace(with_run(tables, loop="open"), steps=tables.steps.assign(e2e_series="e2e_sched"))


def test_a_healthy_run_has_nothing_against_it(tables: Tables) -> None:
    """A list that always warns is a list that nobody reads."""
    checks = validity.checks(tables)
    assert {check.status for check in checks} == {PASS, NOTE}
    assert worst(checks) is PASS
    assert all(check.text.endswith(".") and not check.text[0].islower() for check in checks)


def test_a_background_load_is_named(tables: Tables) -> None:
    """The figures were taken beside it, and the reader was not there."""
    assert not [check for check in validity.checks(tables) if check.check == "background"]
    plan = {"plan": {"background": [{"name": "noisy"}, {"name": "slow"}]}}
    check = found(with_run(tables, manifest=json.dumps(plan)), "background")
    assert check.status is NOTE and check.text.endswith(": noisy, slow.")


CASES: dict[str, tuple[Callable[[Tables], Tables], str, Status, tuple[int, ...], str]] = {
    "killed": (lambda t: with_run(t, state="running"), "finished", FAIL, (), "killed"),
    "interrupted": (
        lambda t: with_run(t, state="interrupted", ended_reason="Ctrl-C"), "finished", WARN, (), "interrupted: Ctrl-C"
    ),
    "lost": (lambda t: with_ledger(t, verdict="violated", lost=3), "ledger", FAIL, (), "3 lost"),
    "not drained": (lambda t: with_ledger(t, verdict="unknown", undelivered=7), "ledger", WARN, (), "7 confirmed"),
    "no ledger": (lambda t: replace(t, ledger=t.ledger.iloc[:0]), "ledger", FAIL, (), "no ledger"),
    "redelivered": (lambda t: with_step(t, 1, redelivered=5), "redeliveries", WARN, (2,), "5 of"),
    "nacked": (lambda t: with_step(t, 0, nacked=2), "refusals", WARN, (1,), "2 messages were refused"),
    "late by a tenth": (lambda t: opened(with_step(t, 2, lag_p99_ns=1e6)), "schedule_lag", WARN, (3,), "1.00 ms"),
    "windows full": (lambda t: opened(with_step(t, 2, lag_p99_ns=4e6)), "schedule_lag", WARN, (3,), "in_flight=16"),
    "late by most": (
        lambda t: opened(with_step(t, 2, lag_p99_ns=4e6, worker_cpu_share=0.97)),
        "schedule_lag", FAIL, (3,), "in_flight=16",
    ),
    "in time": (lambda t: opened(t), "schedule_lag", PASS, (), "0.05 ms"),
    "rate missed a little": (
        lambda t: opened(with_step(t, 3, published=90_000)), "intended_rate", WARN, (4,), "97.8%"
    ),
    "rate missed": (lambda t: opened(with_step(t, 3, published=50_000)), "intended_rate", WARN, (4,), "in_flight=64"),
    "rate kept": (lambda t: opened(t), "intended_rate", PASS, (), "100.0%"),
    "backlog": (lambda t: with_step(t, 4, delivered=50_000), "backlog", WARN, (5,), "53.2%"),
    "busy worker": (lambda t: with_step(t, 4, worker_cpu_share=0.9), "generator_cpu", WARN, (5,), "90%"),
    "worker at the limit": (lambda t: with_step(t, 4, worker_cpu_share=0.97), "generator_cpu", FAIL, (5,), "97%"),
    "no core left": (
        lambda t: with_step(t, 4, worker_cpu_share=0.7, worker_wait_share=0.28),
        "generator_wait", WARN, (5,), "waited for a core",
    ),
    "collections": (
        lambda t: with_step(t, 0, gc_collections=4, gc_pause_ns=300_000),
        "loop_lag", PASS, (), "longest of 4 garbage collections took 0.3 ms",
    ),
    "busy host": (lambda t: with_step(t, 4, host_cpu_percent=99.0), "host_cpu", WARN, (5,), "99%"),
    "stolen time": (lambda t: with_step(t, 4, steal_share=0.29), "steal", FAIL, (5,), "29.0%"),
    "long pause": (lambda t: with_step(t, 0, loop_lag_ns=8_000_000), "loop_lag", WARN, (1,), "8.0 ms"),
    "few samples": (lambda t: with_step(t, 0, e2e_count=400), "samples", WARN, (1,), "too few for p99"),
    "no samples": (
        lambda t: replace(t, steps=t.steps.assign(e2e_count=float("nan"), confirm_count=float("nan"))),
        "samples", FAIL, (1, 2, 3, 4, 5), "No latency",
    ),
    "samples missing": (lambda t: with_step(t, 1, e2e_count=19_900), "histograms", WARN, (2,), "0.50%"),
    "samples doubled": (lambda t: with_step(t, 1, e2e_count=40_000), "histograms", FAIL, (2,), "100.00%"),
    "rate drifts": (lambda t: drifting(t, "delivered_per_s", 0.8), "steady_state", WARN, (3,), "-20.0%"),
    "rate falls": (lambda t: drifting(t, "delivered_per_s", 0.5), "steady_state", WARN, (3,), "in_flight=16"),
    "latency grows": (lambda t: drifting(t, "e2e_p50_ns", 3.0), "steady_state", WARN, (3,), "+200.0%"),
    "too short": (
        lambda t: replace(t, timeline=t.timeline[t.timeline["slot"] < 2]), "steady_state", WARN, (), "cannot be told"
    ),
    "step missing": (lambda t: with_run(t, steps_planned=6), "complete", WARN, (), "5 of 6"),
    "step short": (lambda t: with_step(t, 4, length_s=3.0), "complete", WARN, (5,), "in_flight=256 for a shorter"),
    "clock back": (lambda t: with_step(t, 0, negative_latencies=1), "clock", FAIL, (1,), "before they were sent"),
    "clock loose": (lambda t: with_run(t, clock_bound_ns=500_000), "host_clocks", WARN, (), "0.5 ms"),
    "clock useless": (lambda t: with_run(t, clock_bound_ns=5_000_000), "host_clocks", WARN, (), "5 ms"),
    "one machine": (lambda t: with_run(t, one_machine=True), "loopback", NOTE, (), "shared one machine"),
    "unknown durability": (lambda t: with_run(t, durability=""), "durability", WARN, (), "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_flaw_is_found_and_weighed(tables: Tables, name: str) -> None:
    """A flaw that is not found makes a wrong number look right."""
    spoil, check, status, steps, words = CASES[name]
    result = found(spoil(tables), check)
    assert (result.status, result.steps) == (status, steps), result.text
    assert words in result.text


def test_only_the_flaw_is_held_against_the_run(tables: Tables) -> None:
    """A failing check names its cause; others must not fail along with it."""
    spoiled = validity.checks(with_step(tables, 4, worker_cpu_share=0.97))
    assert [check.check for check in spoiled if check.status in (WARN, FAIL)] == ["generator_cpu"]
    assert worst(spoiled) is FAIL


def test_damaged_records_and_disturbances_are_counted(tables: Tables, row_of: Callable[..., pd.DataFrame]) -> None:
    """What is missing from the figures, and what happened while they were taken."""
    damaged = replace(tables, quarantine=row_of("quarantine", file="latency.hlog", raw="Tag="))
    assert "1 in latency.hlog" in found(damaged, "damaged_records").text
    cut = replace(tables, quarantine=row_of("quarantine", file="ledger.json", reason="is missing"))
    assert "ot as the run left it: ledger.json is missing" in found(cut, "damaged_records").text
    lost = replace(tables, events=row_of("events", event='{"kind": "connection_lost", "step": 2}'))
    check = found(lost, "disturbances")
    assert (check.status, check.steps) == (WARN, (2,)) and "1 connection lost" in check.text


def test_an_open_loop_is_judged_by_the_intended_time(tables: Tables) -> None:
    """The service time of a late schedule looks fine: coordinated omission."""
    slow = drifting(opened(tables), "e2e_sched_p50_ns", 3.0)
    assert found(slow, "steady_state").status is WARN
    assert found(drifting(tables, "e2e_sched_p50_ns", 3.0), "steady_state").status is PASS


def test_a_step_without_a_schedule_is_judged_as_a_closed_loop(tables: Tables) -> None:
    """A sweep over rates with an unlimited step: nothing was intended there, and its latency counts from the send."""
    mixed = with_step(with_run(opened(tables), loop="mixed"), 4, e2e_series="e2e", lag_p99_ns=None, intended=10**9)
    assert found(mixed, "intended_rate").status is PASS
    assert "only steps with a schedule" in found(mixed, "loop").text
    assert found(with_step(mixed, 4, e2e_series="e2e_sched"), "intended_rate").status is WARN
    assert found(drifting(mixed, "e2e_sched_p50_ns", 3.0, step=5), "steady_state").status is PASS
    assert found(drifting(mixed, "e2e_p50_ns", 3.0, step=5), "steady_state").status is WARN
    busy = with_step(mixed, 4, worker_cpu_share=0.9)
    assert found(busy, "generator_cpu").status is WARN, "no schedule was missed"


def test_a_run_without_a_steady_step_is_judged_all_the_same(tables: Tables) -> None:
    """A run that was stopped in its first warm-up still gets a page, and the page says what it is worth."""
    empty = replace(tables, steps=tables.steps.iloc[:0], timeline=tables.timeline.iloc[:0])
    statuses = {check.check: check.status for check in validity.checks(empty)}
    assert statuses["complete"] is FAIL and not {"samples", "histograms"} & statuses.keys()
    assert worst(validity.checks(opened(empty))) is FAIL
