"""The checks of the load: was the load as planned, and was the generator or its machine the limit?"""

from __future__ import annotations

from typing import Final

import pandas as pd

from perftest.results import trust
from perftest.results.trust import Check, Status
from reports.pipeline.tables import Tables
from reports.stats.check import at, beyond, divided, in_percent, in_time, numbers, run_of, sentence, status_of
from reports.stats.lead import lead, opened

SCHEDULE_LAG_WARN, SCHEDULE_LAG_FAIL = trust.SCHEDULE_LAG_WARN, 0.5
"""Lag p99 as a part of the step's p99 from the intended time. A broker that stalls makes windows full and sends late;
only where the generator had nothing left is a lag of more than half the tail its own doing."""

ACHIEVED_PASS: Final = trust.ACHIEVED_MIN
"""Published over intended: below, the load was another than the plan's; whose fault it was, other checks say."""

BACKLOG_PASS: Final = 0.98
"""Delivered over published: below, the queue grew, and end-to-end latency tells its length."""

GENERATOR_CPU: Final = "generator CPU"
"""The check that fails when a run measured its own load generator; its limits are those of the command."""

HOST_CPU_WARN: Final = 90.0

STEAL_WARN, STEAL_FAIL = 100 * trust.STEAL_WARN, 100 * trust.STEAL_FAIL
"""Percent: time the hypervisor took is in every latency."""


def schedule(tables: Tables) -> Check:
    """Open loop: did messages leave on time? Closed loop: say what a closed loop means."""
    if run_of(tables)["loop"] == "closed":
        return Check(check="schedule lag", status=Status.NOTE, text=sentence(trust.LOOPS["closed"]))
    scheduled = _scheduled(tables)
    ratios = divided(scheduled["lag_p99_ns"], scheduled["e2e_sched_p99_ns"])
    if ratios.empty:
        text = "The schedule lag was not recorded, so latency from the intended time cannot be judged."
        return Check(check="schedule lag", status=Status.WARN, text=text)
    late = {*beyond(tables.steps, ratios, SCHEDULE_LAG_FAIL)}
    own_doing = {*_client_limited(tables.steps), *_hindered(tables)} & late
    status = Status.FAIL if own_doing else status_of(float(ratios.max()), SCHEDULE_LAG_WARN, float("inf"))
    worst = at(tables.steps, ratios.argmax(), ratios)
    text = (
        f"Sends were at most {in_time(worst['lag_p99_ns'])} late at p99, {in_percent(ratios.max())} of the step's p99"
        f" from the intended time ({worst['label']}).{_unscheduled(tables)}"
    )
    return Check(check="schedule lag", status=status, text=text, steps=beyond(tables.steps, ratios, SCHEDULE_LAG_WARN))


def achieved(tables: Tables) -> Check | None:
    """Open loop: was the intended rate reached?"""
    if run_of(tables)["loop"] == "closed":
        return None
    scheduled = _scheduled(tables)
    ratios = divided(scheduled["published"], scheduled["intended"])
    if ratios.empty:
        return Check(check="intended rate", status=Status.WARN, text="Nothing was intended while measured.")
    lowest = float(ratios.min())
    status = Status.PASS if lowest >= ACHIEVED_PASS else Status.WARN
    label = at(tables.steps, ratios.argmin(), ratios)["label"]
    text = f"At least {in_percent(lowest)} of the intended messages were published in every step (least: {label})."
    text += _unscheduled(tables)
    if status is Status.WARN:
        text = f"Only {in_percent(lowest)} of the intended messages were published ({label})"
        text += ": broker or generator could not keep up."
    return Check(check="intended rate", status=status, text=text, steps=beyond(tables.steps, -ratios, -ACHIEVED_PASS))


def backlog(tables: Tables) -> Check | None:
    """Did consumers keep up?"""
    steps = tables.steps[tables.steps["delivered"] > 0]
    ratios = divided(steps["delivered"], steps["published"])
    if ratios.empty:
        return None
    lowest = float(ratios.min())
    if lowest >= BACKLOG_PASS:
        text = "Consumers kept up with publishers in every step: queues stayed short."
        return Check(check="backlog", status=Status.PASS, text=text)
    label = at(tables.steps, ratios.argmin(), ratios)["label"]
    text = (
        f"Queues grew: {in_percent(lowest)} of what was published was delivered ({label}), so end-to-end latency"
        " tells the length of the queue."
    )
    return Check(check="backlog", status=Status.WARN, text=text, steps=beyond(tables.steps, -ratios, -BACKLOG_PASS))


def generator(tables: Tables) -> Check:
    """Was the generator the limit?"""
    shares = tables.steps["worker_cpu_share"].dropna()
    if shares.empty:
        text = "The generator's CPU time is unknown: it may have been the limit."
        return Check(check=GENERATOR_CPU, status=Status.WARN, text=text)
    own = _client_limited(tables.steps)
    label = at(tables.steps, shares.argmax(), shares)["label"]
    text = f"The busiest worker used {in_percent(shares.max())} of a core ({label}): "
    if own:
        what = text + "the generator, not the broker, set these rates."
        return Check(check=GENERATOR_CPU, status=Status.FAIL, text=what, steps=own)
    if hindered := _hindered(tables):
        text += "it waited for a core and had no time left, so this machine was part of the limit."
        return Check(check=GENERATOR_CPU, status=Status.WARN, text=text, steps=hindered)
    if shares.max() <= trust.CPU_SHARE_WARN:
        return Check(check=GENERATOR_CPU, status=Status.PASS, text=text + "it was not the limit.")
    steps = beyond(tables.steps, shares, trust.CPU_SHARE_WARN)
    text += "some of the latency is the generator's own."
    return Check(check=GENERATOR_CPU, status=Status.WARN, text=text, steps=steps)


def limited(steps: pd.DataFrame) -> tuple[int, ...]:
    """Steps that measured the load generator or its machine instead of the broker."""
    stolen = numbers(steps[steps["host_steal_percent"].fillna(0.0) >= STEAL_FAIL])
    return tuple(sorted({*_client_limited(steps), *stolen}))


def _client_limited(steps: pd.DataFrame) -> tuple[int, ...]:
    """Steps that measured their own load generator."""
    columns = (steps[name].fillna(0.0) for name in ("step", "worker_cpu_share"))
    return tuple(
        int(step)
        for step, share, achieved in zip(*columns, _kept(steps), strict=True)
        if trust.is_client_limited(float(share), achieved)
    )


def _hindered(tables: Tables) -> tuple[int, ...]:
    """Steps in which a worker had work to do all the time and did not get a core for all of it."""
    columns = (tables.steps[name].fillna(0.0) for name in ("step", "worker_cpu_share", "worker_wait_share"))
    return tuple(
        int(step) for step, cpu, wait in zip(*columns, strict=True) if trust.is_hindered(float(cpu), float(wait))
    )


def _kept(steps: pd.DataFrame) -> list[float | None]:
    """Published over intended for each step; None in a closed loop."""
    return [
        (published / intended if intended else 0.0) if is_open else None
        for published, intended, is_open in zip(steps["published"], steps["intended"], opened(steps), strict=True)
    ]


def _scheduled(tables: Tables) -> pd.DataFrame:
    """The steps that were an open loop."""
    return tables.steps[opened(tables.steps)]


def _unscheduled(tables: Tables) -> str:
    """A sentence that names the steps without a schedule; empty if every step has one."""
    labels = tables.steps.loc[~opened(tables.steps), "label"]
    return f" Without a schedule, a closed loop: {', '.join(labels)}." if len(labels) else ""


def load_host(tables: Tables) -> Check | None:
    """Did the load host have CPU time to spare?"""
    steps = tables.steps
    busy, steal = steps["host_cpu_percent"].dropna(), steps["host_steal_percent"].dropna()
    if busy.empty:
        return None
    stolen = float(steal.max()) if len(steal) else 0.0
    status = status_of(stolen, STEAL_WARN, STEAL_FAIL)
    if status is Status.PASS and busy.max() >= HOST_CPU_WARN:
        status = Status.WARN
    text = f"The busiest load host used {busy.max():.0f} % of its CPU; the hypervisor took up to {stolen:.1f} %."
    affected = steps[(steps["host_cpu_percent"] >= HOST_CPU_WARN) | (steps["host_steal_percent"] >= STEAL_WARN)]
    return Check(check="load host", status=status, text=text, steps=numbers(affected))


def event_loop(tables: Tables) -> Check:
    """Did the generator's own pauses reach the percentiles?"""
    ratios = divided(tables.steps["loop_lag_ns"], lead(tables.steps, "p99_ns"))
    if ratios.empty:
        text = "No step has both a latency and a loop lag, so the generator's own pauses cannot be judged."
        return Check(check="loop lag", status=Status.WARN, text=text)
    worst = at(tables.steps, ratios.argmax(), ratios)
    status = Status.PASS if ratios.max() <= 1.0 else Status.WARN
    meaning = "below the p99 of its step" if status is Status.PASS else "above the p99 of its step: the tail is shared"
    text = (
        f"The generator's event loop paused for at most {in_time(worst['loop_lag_ns'])}, {meaning} ({worst['label']})"
    )
    collections, pause_ns = int(tables.steps["gc_collections"].sum()), float(tables.steps["gc_pause_ns"].max())
    text += f"; its longest of {collections:,} garbage collections took {in_time(pause_ns)}." if collections else "."
    return Check(check="loop lag", status=status, text=text, steps=beyond(tables.steps, ratios, 1.0))
