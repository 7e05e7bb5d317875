"""The checks of the figures: are there enough samples, is any missing, was the state steady, do the clocks agree?"""

from __future__ import annotations

from typing import Final

import pandas as pd

from perftest.results.trust import SAMPLES_ABOVE, Check, Status, supports
from reports.pipeline.schema import PERCENTILES
from reports.pipeline.tables import Tables
from reports.stats import drift
from reports.stats.check import at, beyond, in_change, in_percent, in_time, numbers, run_of, status_of
from reports.stats.lead import lead, with_lead

RATE_DRIFT_WARN, RATE_DRIFT_FAIL = 0.10, 0.30

P50_DRIFT_WARN, P50_DRIFT_FAIL = 0.25, 1.0
"""Change of the second half over the first."""

ACCOUNTED_WARN, ACCOUNTED_FAIL = 0.001, 0.01
"""Difference between latency samples and deliveries, as a part of the deliveries."""

CLOCK_WARN, CLOCK_FAIL = 0.1, 1.0
"""Clock bound between hosts as a part of the lowest p50."""

COMPLETE: Final = 0.9
"""A step that was measured for less than this part of its plan is called short."""


def samples(tables: Tables) -> Check:
    """Are there enough samples behind the percentiles?"""
    counts = lead(tables.steps, "count").fillna(0)
    if counts.empty or counts.max() == 0:
        return Check(check="samples", status=Status.FAIL, text="No latency was recorded in steady time.")
    fewest = int(counts.min())
    supported = [name for name, percentile in PERCENTILES.items() if supports(fewest, percentile)]
    label = at(tables.steps, counts.argmin(), counts)["label"]
    highest = f"p{PERCENTILES[supported[-1]]:g}" if supported else "no percentile"
    text = f"Every step has at least {fewest:,} samples ({label}), which support {highest} and below."
    needed = SAMPLES_ABOVE * 100
    status = Status.PASS if fewest >= needed else Status.WARN
    return Check(check="samples", status=status, text=text, steps=numbers(tables.steps[counts < needed]))


def accounted(tables: Tables) -> Check:
    """Does every delivery have a latency?"""
    steps = tables.steps[tables.steps["delivered"] > 0]
    recorded = steps["e2e_count"].fillna(0) + steps["negative_latencies"]
    missing = ((recorded - steps["delivered"]).abs() / steps["delivered"]).dropna()
    if missing.empty:
        return Check(check="histograms", status=Status.FAIL, text="Nothing was delivered in steady time.")
    status = status_of(float(missing.max()), ACCOUNTED_WARN, ACCOUNTED_FAIL, inclusive=False)
    label = at(tables.steps, missing.argmax(), missing)["label"]
    text = f"Latency samples and deliveries differ by at most {in_percent(missing.max())} ({label})."
    return Check(check="histograms", status=status, text=text, steps=beyond(tables.steps, missing, ACCOUNTED_WARN))


def steady(tables: Tables) -> Check:
    """Were the steps steady?"""
    found, short = drift.drifts(with_lead(tables).timeline, p50="e2e_lead_p50_ns")
    if not found:
        text = f"No step has {drift.SLOTS_MIN} steady intervals: whether it was steady cannot be told."
        return Check(check="steady state", status=Status.WARN, text=text)
    moved = {one.step: _drift_status(one) for one in found}
    status = next((s for s in (Status.FAIL, Status.WARN) if s in moved.values()), Status.PASS)
    worst = max(found, key=lambda one: (moved[one.step].weight, abs(one.rate - 1), abs((one.p50 or 1) - 1)))
    p50 = "" if worst.p50 is None else f" and its p50 by {in_change(worst.p50)}"
    text = f"From first half to second, the rate of the least steady step changed by {in_change(worst.rate)}{p50}"
    text += f" ({worst.label})." + (f" Too short to tell: {', '.join(short)}." if short else "")
    unsteady = tuple(step for step, one in moved.items() if one is not Status.PASS)
    return Check(check="steady state", status=status, text=text, steps=unsteady)


def _drift_status(one: drift.Drift) -> Status:
    by_rate = status_of(abs(one.rate - 1), RATE_DRIFT_WARN, RATE_DRIFT_FAIL)
    by_p50 = Status.PASS if one.p50 is None else status_of(abs(one.p50 - 1), P50_DRIFT_WARN, P50_DRIFT_FAIL)
    return max(by_rate, by_p50, key=lambda status: status.weight)


def completeness(tables: Tables) -> Check:
    """Was every planned step measured, for as long as planned?"""
    steps, planned = tables.steps, int(run_of(tables)["steps_planned"])
    measured = steps[steps["length_s"] > 0]
    wanted = steps["duration_s"] - steps["warmup_s"]
    short = steps[(steps["length_s"] < COMPLETE * wanted) & (wanted < float("inf"))]
    if len(measured) >= planned and short.empty:
        return Check(check="steps", status=Status.PASS, text="Every planned step was measured for its whole length.")
    parts = [f"{len(measured)} of {planned} planned steps were measured"]
    if len(short):
        parts.append(f"{', '.join(short['label'])} shorter than planned")
    return Check(check="steps", status=Status.WARN, text=f"{'; '.join(parts)}.", steps=numbers(short))


def clocks(tables: Tables) -> Check:
    """Can sends on one host be compared with deliveries on another?"""
    negative = int(tables.steps["negative_latencies"].sum())
    bound, lowest = int(run_of(tables)["clock_bound_ns"]), lead(tables.steps, "p50_ns").min()
    if negative:
        text = f"{negative:,} deliveries came before their send: the clocks disagree by more than the latency."
        return Check(check="clocks", status=Status.FAIL, text=text)
    if not bound:
        text = "One clock took every time: end-to-end latency has no clock error."
        return Check(check="clocks", status=Status.PASS, text=text)
    part = bound / float(lowest) if pd.notna(lowest) and lowest > 0 else float("inf")
    text = f"The hosts' clocks agree within {in_time(bound)}; the lowest p50 is {in_time(lowest)}."
    return Check(check="clocks", status=status_of(part, CLOCK_WARN, CLOCK_FAIL), text=text)
