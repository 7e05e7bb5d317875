"""The checks that need tables: is any figure missing, was the state steady, do the clocks of several hosts agree?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from perftest.results.trust import Check, Facts, Status, judged
from reports.stats import drift
from reports.stats.lead import lead, with_lead
from reports.store.tables import Tables

HOST_CPU_WARN: Final = 90.0
"""Percent: a load host with less to spare is a second generator at its limit."""

RATE_DRIFT_WARN, RATE_DRIFT_FAIL = 0.10, 0.30

P50_DRIFT_WARN, P50_DRIFT_FAIL = 0.25, 1.0
"""Change of the second half over the first."""

ACCOUNTED_WARN, ACCOUNTED_FAIL = 0.001, 0.01
"""Difference between latency samples and deliveries, as a part of the deliveries."""

CLOCK_WARN = 0.1
"""Clock bound between hosts as a part of the lowest p50. A greater bound makes no figure wrong: the check ``clock`` of
each step names the percentiles that are below it."""


def run_of(tables: Tables) -> pd.Series[Any]:
    """The row of the one run."""
    return tables.runs.iloc[0]


def table_checks(tables: Tables) -> list[Check]:
    """The checks of a whole run that only its tables can make."""
    return [_damaged_records(tables), _steady_state(tables), _host_clocks(tables)]


def step_table_checks(step: Facts) -> Iterator[Check]:
    """The checks of a step by columns that a row of ``result.json`` does not have, or cannot fail."""
    if (busy := step.get("host_cpu_percent")) is not None:
        full = (busy >= HOST_CPU_WARN, "whatever else ran there, the generator had to wait for it")
        yield judged("host_cpu", f"the busiest load host used {busy:.0f}% of its CPU", busy, warn=full)
    if (delivered := step["delivered"]) > 0 and step["settings"].get("publishers", 1):
        recorded = step["latency"].get("e2e", {}).get("count", 0) + step["negative_latencies"]
        part = abs(recorded - delivered) / delivered
        text, wrong = (
            f"latency samples and deliveries differ by {part:.2%}",
            "some are missing, or counted twice",
        )
        yield judged("histograms", text, part, fail=(part > ACCOUNTED_FAIL, wrong), warn=(part > ACCOUNTED_WARN, wrong))


def _damaged_records(tables: Tables) -> Check:
    lines = tables.quarantine
    if lines.empty:
        return Check("damaged_records", Status.PASS, "every record of the run could be read")
    files = ", ".join(f"{count} in {file}" for file, count in lines["file"].value_counts(sort=False).items())
    noun = "record was" if len(lines) == 1 else "records were"
    text = f"{len(lines):,} damaged {noun} set aside ({files}): what they held is missing"
    return Check("damaged_records", Status.WARN, text)


def _steady_state(tables: Tables) -> Check:
    leading = "e2e_lead_p50_ns"
    timeline = tables.timeline if leading in tables.timeline else with_lead(tables).timeline
    found, short = drift.drifts(timeline, p50=leading)
    if not found:
        text = f"no step has {drift.SLOTS_MIN} steady intervals: whether it was steady cannot be told"
        return Check("steady_state", Status.WARN, text)
    moved = {one.step: _drift_status(one) for one in found}
    worst = max(found, key=lambda one: (moved[one.step].weight, abs(one.rate - 1), abs((one.p50 or 1) - 1)))
    text = f"from first half to second, the rate of the least steady step changed by {worst.rate - 1:+.1%}"
    text += "" if worst.p50 is None else f" and its p50 by {worst.p50 - 1:+.1%}"
    text += f" ({worst.label})" + (f", too short to tell: {', '.join(short)}" if short else "")
    unsteady = tuple(step for step, status in moved.items() if status is not Status.PASS)
    return Check("steady_state", moved[worst.step], text, steps=unsteady)


def _drift_status(one: drift.Drift) -> Status:
    by_rate = _status(abs(one.rate - 1), RATE_DRIFT_WARN, RATE_DRIFT_FAIL)
    by_p50 = Status.PASS if one.p50 is None else _status(abs(one.p50 - 1), P50_DRIFT_WARN, P50_DRIFT_FAIL)
    return max(by_rate, by_p50, key=lambda status: status.weight)


def _host_clocks(tables: Tables) -> Check:
    """Can sends on one host be compared with deliveries on another?"""
    bound, lowest = int(run_of(tables)["clock_bound_ns"]), lead(tables.steps, "p50_ns").min()
    if not bound:
        return Check("host_clocks", Status.PASS, "one clock took every time: end-to-end latency has no clock error")
    part = bound / float(lowest) if pd.notna(lowest) and lowest > 0 else float("inf")
    text = f"the hosts' clocks agree within {bound / 1e6:.3g} ms, and the lowest p50 is {lowest / 1e6:.3g} ms"
    return Check("host_clocks", Status.WARN if part >= CLOCK_WARN else Status.PASS, text)


def _status(value: float, warn: float, fail: float) -> Status:
    """Higher is worse; a value at a limit has reached it."""
    return Status.FAIL if value >= fail else Status.WARN if value >= warn else Status.PASS
