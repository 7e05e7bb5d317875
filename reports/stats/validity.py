"""The trust list of a run: what speaks for its numbers and what against them, computed from its tables.

A check is pass, warn or fail with one sentence; a note says what a reader must know and carries no weight. FAIL means
that the figures do not show what they claim to show (messages were lost, the generator was the limit); WARN that they
need care. Every limit is a constant here, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pandas as pd

from perftest.results import trust
from reports.pipeline.schema import PERCENTILES, SAMPLES_ABOVE
from reports.pipeline.tables import Tables
from reports.stats import drift

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

RATE_DRIFT_WARN, RATE_DRIFT_FAIL = 0.10, 0.30
P50_DRIFT_WARN, P50_DRIFT_FAIL = 0.25, 1.0
"""Change of the second half over the first."""

ACCOUNTED_WARN, ACCOUNTED_FAIL = 0.001, 0.01
"""Difference between latency samples and deliveries, as a part of the deliveries."""

CLOCK_WARN, CLOCK_FAIL = 0.1, 1.0
"""Clock bound between hosts as a part of the lowest p50."""

COMPLETE: Final = 0.9
"""A step that was measured for less than this part of its plan is called short."""

DISTURBANCES: Final = {
    "connection_lost": "lost connections",
    "channel_closed": "channels closed by the broker",
    "blocked": "connections blocked by the broker",
    "consumer_cancelled": "cancelled consumers",
    "drain_timeout": "drain timeouts",
    "error": "errors",
}
"""Events that disturb a measurement, in words."""


class Status(StrEnum):
    """The weight of a check; NOTE carries none."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A row of the trust list; ``steps`` are the numbers of the steps it is about, empty when it is about the run."""

    check: str
    status: Status
    text: str
    steps: tuple[int, ...] = ()


def checks(tables: Tables) -> list[Check]:
    """The trust list of one run, in a fixed order.

    :param tables: the tables of exactly one run, see :meth:`reports.pipeline.tables.Tables.of`
    """
    found = (check(tables) for check in CHECKS)
    return [check for check in found if check is not None]


def overall(found: Iterable[Check]) -> Status:
    """The worst status of a trust list."""
    statuses = {check.status for check in found}
    return next((status for status in (Status.FAIL, Status.WARN) if status in statuses), Status.PASS)


def state(tables: Tables) -> Check:
    """Did the run come to its end?"""
    value, reason = str(_run(tables)["state"]), _run(tables)["ended_reason"]
    if value == "finished":
        return Check(check="finished", status=Status.PASS, text="The run came to its planned end.")
    if value == "running":
        text = "The run was killed or is still running: what is here is what had been written."
        return Check(check="finished", status=Status.FAIL, text=text)
    status = Status.WARN if value == "interrupted" else Status.FAIL
    because = f": {reason}" if isinstance(reason, str) and reason and reason != value else ""
    return Check(check="finished", status=status, text=f"The run was not finished but {value}{because}.")


def ledger(tables: Tables) -> Check:
    """What became of every message?"""
    if tables.ledger.empty:
        text = "There is no ledger: nothing can be said about lost, duplicated or reordered messages."
        return Check(check="ledger", status=Status.WARN, text=text)
    row = tables.ledger.iloc[0]
    if row["verdict"] == "violated":
        names = ("lost", "duplicated", "reordered", "unexpected", "damaged")
        counts = ", ".join(f"{int(row[name]):,} {name}" for name in names if row[name])
        return Check(check="ledger", status=Status.FAIL, text=f"Messages were not safe: {counts or 'see the ledger'}.")
    if row["verdict"] == "ok" and row["complete"]:
        text = f"Each of {int(row['confirmed']):,} confirmed messages was delivered, in order, undamaged."
        return Check(check="ledger", status=Status.PASS, text=text)
    left = int(row["undelivered"])
    text = f"The account is open: {left:,} confirmed messages had not been delivered when it was closed."
    return Check(check="ledger", status=Status.WARN, text=text)


def redeliveries(tables: Tables) -> Check:
    """Were deliveries repeated?"""
    steps = tables.steps[tables.steps["redelivered"] > 0]
    count, delivered = int(steps["redelivered"].sum()), int(tables.steps["delivered"].sum())
    if not count:
        return Check(check="redeliveries", status=Status.PASS, text="No message was redelivered while measured.")
    text = f"{count:,} of {delivered:,} deliveries were redeliveries: consumers or nodes went away."
    return Check(check="redeliveries", status=Status.WARN, text=text, steps=_numbers(steps))


def refusals(tables: Tables) -> Check:
    """Did the broker refuse or return messages?"""
    steps = tables.steps[(tables.steps["nacked"] > 0) | (tables.steps["returned"] > 0)]
    nacked, returned = int(steps["nacked"].sum()), int(steps["returned"].sum())
    if not nacked and not returned:
        return Check(check="refusals", status=Status.PASS, text="No message was nacked or returned while measured.")
    text = f"{nacked:,} messages were nacked and {returned:,} returned: they are not in the confirmed rate."
    return Check(check="refusals", status=Status.WARN, text=text, steps=_numbers(steps))


def schedule(tables: Tables) -> Check:
    """Open loop: was the schedule kept, in time? Closed loop: say what that means."""
    if _run(tables)["loop"] != "open":
        text = "Closed loop: a slow broker slows the load down, so these latencies hold at the rate reached, not above."
        return Check(check="schedule lag", status=Status.NOTE, text=text)
    ratios = _ratios(tables.steps, "lag_p99_ns", "e2e_sched_p99_ns")
    if ratios.empty:
        text = "The schedule lag was not recorded, so latency from the intended time cannot be judged."
        return Check(check="schedule lag", status=Status.WARN, text=text)
    own_doing = {*_limited(tables), *_hindered(tables)} & {*_beyond(tables.steps, ratios, SCHEDULE_LAG_FAIL)}
    status = Status.FAIL if own_doing else _status(float(ratios.max()), SCHEDULE_LAG_WARN, float("inf"))
    worst = _at(tables.steps, ratios.argmax(), ratios)
    text = (
        f"Sends were at most {_time(worst['lag_p99_ns'])} late at p99, {_percent(ratios.max())} of the step's p99"
        f" from the intended time ({worst['label']})."
    )
    return Check(check="schedule lag", status=status, text=text, steps=_beyond(tables.steps, ratios, SCHEDULE_LAG_WARN))


def achieved(tables: Tables) -> Check | None:
    """Open loop: was the intended rate reached?"""
    if _run(tables)["loop"] != "open":
        return None
    ratios = _ratios(tables.steps, "published", "intended")
    if ratios.empty:
        return Check(check="intended rate", status=Status.WARN, text="Nothing was intended while measured.")
    lowest = float(ratios.min())
    status = Status.PASS if lowest >= ACHIEVED_PASS else Status.WARN
    label = _at(tables.steps, ratios.argmin(), ratios)["label"]
    text = f"At least {_percent(lowest)} of the intended messages were published in every step (least: {label})."
    if status is Status.WARN:
        text = f"Only {_percent(lowest)} of the intended messages were published ({label})"
        text += ": broker or generator could not keep up."
    return Check(check="intended rate", status=status, text=text, steps=_beyond(tables.steps, -ratios, -ACHIEVED_PASS))


def backlog(tables: Tables) -> Check | None:
    """Did consumers keep up?"""
    ratios = _ratios(tables.steps[tables.steps["delivered"] > 0], "delivered", "published")
    if ratios.empty:
        return None
    lowest = float(ratios.min())
    if lowest >= BACKLOG_PASS:
        text = "Consumers kept up with publishers in every step: queues stayed short."
        return Check(check="backlog", status=Status.PASS, text=text)
    label = _at(tables.steps, ratios.argmin(), ratios)["label"]
    text = (
        f"Queues grew: {_percent(lowest)} of what was published was delivered ({label}), so end-to-end latency"
        " tells the length of the queue."
    )
    return Check(check="backlog", status=Status.WARN, text=text, steps=_beyond(tables.steps, -ratios, -BACKLOG_PASS))


def generator(tables: Tables) -> Check:
    """Was the generator the limit?"""
    shares = tables.steps["worker_cpu_share"].dropna()
    if shares.empty:
        text = "The generator's CPU time is unknown: it may have been the limit."
        return Check(check=GENERATOR_CPU, status=Status.WARN, text=text)
    limited = _limited(tables)
    label = _at(tables.steps, shares.argmax(), shares)["label"]
    text = f"The busiest worker used {_percent(shares.max())} of a core ({label}): "
    if limited:
        what = text + "the generator, not the broker, set these rates."
        return Check(check=GENERATOR_CPU, status=Status.FAIL, text=what, steps=limited)
    if hindered := _hindered(tables):
        text += "it waited for a core and had no time left, so this machine was part of the limit."
        return Check(check=GENERATOR_CPU, status=Status.WARN, text=text, steps=hindered)
    if shares.max() <= trust.CPU_SHARE_WARN:
        return Check(check=GENERATOR_CPU, status=Status.PASS, text=text + "it was not the limit.")
    steps = _beyond(tables.steps, shares, trust.CPU_SHARE_WARN)
    text += "some of the latency is the generator's own."
    return Check(check=GENERATOR_CPU, status=Status.WARN, text=text, steps=steps)


def _limited(tables: Tables) -> tuple[int, ...]:
    """Steps that measured their own load generator."""
    columns = (tables.steps[name].fillna(0.0) for name in ("step", "worker_cpu_share"))
    return tuple(
        int(step)
        for step, share, achieved in zip(*columns, _kept(tables), strict=True)
        if trust.is_client_limited(float(share), achieved)
    )


def _hindered(tables: Tables) -> tuple[int, ...]:
    """Steps in which a worker had work to do all the time and could not do it for want of a core."""
    columns = (tables.steps[name].fillna(0.0) for name in ("step", "worker_cpu_share", "worker_wait_share"))
    return tuple(
        int(step) for step, cpu, wait in zip(*columns, strict=True) if trust.is_hindered(float(cpu), float(wait))
    )


def _kept(tables: Tables) -> list[float | None]:
    """Published over intended for each step; None in a closed loop."""
    if _run(tables)["loop"] != "open":
        return [None] * len(tables.steps)
    steps = tables.steps
    return [
        published / intended if intended else 0.0
        for published, intended in zip(steps["published"], steps["intended"], strict=True)
    ]


def load_host(tables: Tables) -> Check | None:
    """Had the load host time to spare?"""
    steps = tables.steps
    busy, steal = steps["host_cpu_percent"].dropna(), steps["host_steal_percent"].dropna()
    if busy.empty:
        return None
    stolen = float(steal.max()) if len(steal) else 0.0
    status = _status(stolen, STEAL_WARN, STEAL_FAIL)
    if status is Status.PASS and busy.max() >= HOST_CPU_WARN:
        status = Status.WARN
    text = f"The busiest load host used {busy.max():.0f} % of its CPU; the hypervisor took up to {stolen:.1f} %."
    affected = steps[(steps["host_cpu_percent"] >= HOST_CPU_WARN) | (steps["host_steal_percent"] >= STEAL_WARN)]
    return Check(check="load host", status=status, text=text, steps=_numbers(affected))


def event_loop(tables: Tables) -> Check:
    """Did the generator's own pauses reach the percentiles?"""
    ratios = _lead_ratio(tables, "loop_lag_ns", "p99_ns")
    if ratios.empty:
        text = "No step has both a latency and a loop lag, so the generator's own pauses cannot be judged."
        return Check(check="loop lag", status=Status.WARN, text=text)
    worst = _at(tables.steps, ratios.argmax(), ratios)
    status = Status.PASS if ratios.max() <= 1.0 else Status.WARN
    meaning = "below the p99 of its step" if status is Status.PASS else "above the p99 of its step: the tail is shared"
    text = f"The generator's event loop paused for at most {_time(worst['loop_lag_ns'])}, {meaning} ({worst['label']})"
    collections, longest = int(tables.steps["gc_collections"].sum()), float(tables.steps["gc_pause_ns"].max())
    text += f"; its longest of {collections:,} garbage collections took {_time(longest)}." if collections else "."
    return Check(check="loop lag", status=status, text=text, steps=_beyond(tables.steps, ratios, 1.0))


def samples(tables: Tables) -> Check:
    """Are there enough samples behind the percentiles?"""
    counts = _lead(tables, "count").fillna(0)
    if counts.empty or counts.max() == 0:
        return Check(check="samples", status=Status.FAIL, text="No latency was recorded in steady time.")
    fewest = int(counts.min())
    supported = [name for name, value in PERCENTILES.items() if fewest * (100 - value) / 100 >= SAMPLES_ABOVE - 1e-6]
    label = _at(tables.steps, counts.argmin(), counts)["label"]
    highest = f"p{PERCENTILES[supported[-1]]:g}" if supported else "no percentile"
    text = f"Every step has at least {fewest:,} samples ({label}), which support {highest} and below."
    needed = SAMPLES_ABOVE * 100
    status = Status.PASS if fewest >= needed else Status.WARN
    return Check(check="samples", status=status, text=text, steps=_numbers(tables.steps[counts < needed]))


def accounted(tables: Tables) -> Check:
    """Has every delivery its latency?"""
    steps = tables.steps[tables.steps["delivered"] > 0]
    recorded = steps["e2e_count"].fillna(0) + steps["negative_latencies"]
    missing = ((recorded - steps["delivered"]).abs() / steps["delivered"]).dropna()
    if missing.empty:
        return Check(check="histograms", status=Status.FAIL, text="Nothing was delivered in steady time.")
    status = _status(float(missing.max()), ACCOUNTED_WARN, ACCOUNTED_FAIL, inclusive=False)
    label = _at(tables.steps, missing.argmax(), missing)["label"]
    text = f"Latency samples and deliveries differ by at most {_percent(missing.max())} ({label})."
    return Check(check="histograms", status=status, text=text, steps=_beyond(tables.steps, missing, ACCOUNTED_WARN))


def damage(tables: Tables) -> Check:
    """Were records set aside?"""
    lines = tables.quarantine
    if lines.empty:
        return Check(check="damaged records", status=Status.PASS, text="Every record of the run could be read.")
    files = ", ".join(f"{count} in {file}" for file, count in lines["file"].value_counts(sort=False).items())
    noun = "record was" if len(lines) == 1 else "records were"
    text = f"{len(lines):,} damaged {noun} set aside ({files}): what they held is missing."
    return Check(check="damaged records", status=Status.WARN, text=text)


def steady(tables: Tables) -> Check:
    """Were the steps steady?"""
    found, short = drift.drifts(tables.timeline, p50=f"{_lead_series(tables)}_p50_ns")
    if not found:
        text = f"No step has {drift.SLOTS_MIN} steady intervals: whether it was steady cannot be told."
        return Check(check="steady state", status=Status.WARN, text=text)
    moved = {one.step: _drift_status(one) for one in found}
    status = next((s for s in (Status.FAIL, Status.WARN) if s in moved.values()), Status.PASS)
    worst = max(found, key=lambda one: (_weight(moved[one.step]), abs(one.rate - 1), abs((one.p50 or 1) - 1)))
    p50 = "" if worst.p50 is None else f" and its p50 by {_change(worst.p50)}"
    text = f"From first half to second, the rate of the least steady step changed by {_change(worst.rate)}{p50}"
    text += f" ({worst.label})." + (f" Too short to tell: {', '.join(short)}." if short else "")
    unsteady = tuple(step for step, one in moved.items() if one is not Status.PASS)
    return Check(check="steady state", status=status, text=text, steps=unsteady)


def completeness(tables: Tables) -> Check:
    """Was every planned step measured, for as long as planned?"""
    steps, planned = tables.steps, int(_run(tables)["steps_planned"])
    measured = steps[steps["length_s"] > 0]
    wanted = steps["duration_s"] - steps["warmup_s"]
    short = steps[(steps["length_s"] < COMPLETE * wanted) & (wanted < float("inf"))]
    if len(measured) >= planned and short.empty:
        return Check(check="steps", status=Status.PASS, text="Every planned step was measured for its whole length.")
    parts = [f"{len(measured)} of {planned} planned steps were measured"]
    if len(short):
        parts.append(f"{', '.join(short['label'])} shorter than planned")
    return Check(check="steps", status=Status.WARN, text=f"{'; '.join(parts)}.", steps=_numbers(short))


def disturbances(tables: Tables) -> Check:
    """Did something happen to the connections?"""
    kinds = tables.events["kind"].value_counts()
    found = [f"{words}: {int(kinds[kind])}" for kind, words in DISTURBANCES.items() if kind in kinds]
    if not found:
        return Check(check="connections", status=Status.PASS, text="No connection was lost or blocked.")
    where = tables.events[tables.events["kind"].isin(list(DISTURBANCES))]["step"].dropna()
    numbers = tuple(sorted({int(step) for step in where}))
    return Check(
        check="connections", status=Status.WARN, text=f"The run was disturbed; {', '.join(found)}.", steps=numbers
    )


def clocks(tables: Tables) -> Check:
    """Can sends on one host be compared with deliveries on another?"""
    negative = int(tables.steps["negative_latencies"].sum())
    bound, lowest = int(_run(tables)["clock_bound_ns"]), _lead(tables, "p50_ns").min()
    if negative:
        text = f"{negative:,} deliveries came before their send: the clocks disagree by more than the latency."
        return Check(check="clocks", status=Status.FAIL, text=text)
    if not bound:
        text = "One clock took every time: end-to-end latency has no clock error."
        return Check(check="clocks", status=Status.PASS, text=text)
    part = bound / float(lowest) if pd.notna(lowest) and lowest > 0 else float("inf")
    text = f"The hosts' clocks agree within {_time(bound)}; the lowest p50 is {_time(lowest)}."
    return Check(check="clocks", status=_status(part, CLOCK_WARN, CLOCK_FAIL), text=text)


def repetitions(tables: Tables) -> Check:
    """Say what one run can and cannot tell."""
    text = "One repetition: differences of a few percent between steps or runs may be chance."
    return Check(check="repetitions", status=Status.NOTE, text=text)


def machine(tables: Tables) -> Check | None:
    """Say when everything shared a machine."""
    if not _run(tables)["one_machine"]:
        return None
    text = "Generator and brokers shared one machine: they competed for its CPU and disk, and no network was crossed."
    return Check(check="one machine", status=Status.NOTE, text=text)


def durability(tables: Tables) -> Check:
    """Say what a confirm meant."""
    said = str(_run(tables)["durability"])
    if not said:
        text = "What a confirm meant for the safety of a message is unknown."
        return Check(check="durability", status=Status.WARN, text=text)
    return Check(check="durability", status=Status.NOTE, text=f"What a confirm meant: {said}.")


CHECKS: Final[tuple[Callable[[Tables], Check | None], ...]] = (
    state,
    ledger,
    redeliveries,
    refusals,
    schedule,
    achieved,
    backlog,
    generator,
    load_host,
    event_loop,
    samples,
    accounted,
    damage,
    steady,
    completeness,
    disturbances,
    clocks,
    repetitions,
    machine,
    durability,
)
"""Every check, in the order of the list."""


def _run(tables: Tables) -> pd.Series[Any]:
    return tables.runs.iloc[0]


def _lead_series(tables: Tables) -> str:
    return "e2e_sched" if _run(tables)["loop"] == "open" else "e2e"


def _lead(tables: Tables, figure: str) -> pd.Series[Any]:
    """A figure of the series to lead with, one value per step."""
    return tables.steps[f"{_lead_series(tables)}_{figure}"]


def _lead_ratio(tables: Tables, above: str, figure: str) -> pd.Series[Any]:
    return _quotients(tables.steps[above], _lead(tables, figure))


def _ratios(steps: pd.DataFrame, above: str, below: str) -> pd.Series[Any]:
    """The quotient per step, where there is one."""
    return _quotients(steps[above], steps[below])


def _quotients(above: pd.Series[Any], below: pd.Series[Any]) -> pd.Series[Any]:
    usable = above.notna() & below.notna() & (below > 0)
    return above[usable] / below[usable]


def _beyond(steps: pd.DataFrame, values: pd.Series[Any], limit: float) -> tuple[int, ...]:
    """The steps whose value is beyond a limit."""
    return _numbers(steps.loc[values[values > limit].index])


def _at(steps: pd.DataFrame, position: Any, values: pd.Series[Any]) -> pd.Series[Any]:
    """The step of the value at a position of ``values``, which has some of the steps' rows."""
    return steps.loc[values.index].iloc[int(position)]


def _numbers(steps: pd.DataFrame) -> tuple[int, ...]:
    return tuple(int(step) for step in steps["step"])


def _status(value: float, warn: float, fail: float, *, inclusive: bool = True) -> Status:
    """Higher is worse; a value at a limit has reached it, unless the limit is what is still allowed."""
    if value > fail or (inclusive and value == fail):
        return Status.FAIL
    return Status.WARN if value > warn or (inclusive and value == warn) else Status.PASS


def _weight(status: Status) -> int:
    return (Status.PASS, Status.WARN, Status.FAIL).index(status)


def _drift_status(one: drift.Drift) -> Status:
    by_rate = _status(abs(one.rate - 1), RATE_DRIFT_WARN, RATE_DRIFT_FAIL)
    by_p50 = Status.PASS if one.p50 is None else _status(abs(one.p50 - 1), P50_DRIFT_WARN, P50_DRIFT_FAIL)
    return max(by_rate, by_p50, key=_weight)


def _time(value_ns: float) -> str:
    """Nanoseconds in the unit a reader would use, with three figures."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value_ns >= size:
            return f"{value_ns / size:.3g} {unit}"
    return f"{value_ns:.0f} ns"


def _percent(part: float) -> str:
    return f"{100 * part:.3g} %"


def _change(factor: float) -> str:
    return f"{100 * (factor - 1):+.1f} %"
