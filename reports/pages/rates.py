"""The answer of a run whose messages had a schedule: whether the rates that were asked for were kept.

A schedule fixes the rate, so a highest rate or a knee would only repeat the plan.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from reports.pages import settings, words
from reports.pages.model import Column, Kind, Sentence, Table
from reports.pages.tables import latency_column, supports, table_of
from reports.stats.lead import opened
from reports.stats.validity import fell_behind, limited

ROWS_MAX: Final = 12
"""Most rows of the first table."""
_P99: Final = "e2e_sched_p99_ns"


def is_scheduled(steps: pd.DataFrame) -> bool:
    """Whether every step had a schedule with a rate."""
    return len(steps) > 0 and bool(opened(steps).all()) and bool((steps["intended_per_s"].fillna(0) > 0).all())


def rate_sentences(steps: pd.DataFrame, *, prefix: str) -> list[Sentence]:
    """Up to which rate the load kept up, where the load fell behind, and the latency at both ends."""
    rows = steps.sort_values(["intended_per_s", "step"], kind="stable")
    behind = rows[rows["step"].isin(fell_behind(rows))]
    first = float("inf") if behind.empty else float(behind["intended_per_s"].min())
    kept = rows[(rows["intended_per_s"] < first) & ~rows["step"].isin(behind["step"])]
    said = [_kept_up(kept, behind)]
    if len(kept) > 1:
        said.append(_latencies(kept))
    own = behind[behind["step"].isin(limited(rows))]
    if len(own):
        said.append(f"At {_asked(own.iloc[0])} the load generator or its machine was the limit, not the broker.")
    said.append("Each latency counts from the time at which the message should have left.")
    return [Sentence(text=text, anchor=f"{prefix}steps", see="table") for text in said]


def _kept_up(kept: pd.DataFrame, behind: pd.DataFrame) -> str:
    if behind.empty:
        what = "every rate asked, up to " if len(kept) > 1 else "the rate asked, "
        return f"The broker kept up with {what}{_asked(kept.iloc[-1])}; p99 end to end is {_p99(kept.iloc[-1])} there."
    lowest = behind.iloc[0]
    fell = f"at {_asked(lowest)} only {words.rate(float(lowest['delivered_per_s']))} were delivered"
    if kept.empty:
        return f"The broker did not keep up with the lowest rate asked: {fell}."
    return f"The broker kept up to {_asked(kept.iloc[-1])}, at p99 {_p99(kept.iloc[-1])}, and fell behind then: {fell}."


def _latencies(kept: pd.DataFrame) -> str:
    low, high = kept.iloc[0], kept.iloc[-1]
    return f"The p99 end to end goes from {_p99(low)} at {_asked(low)} to {_p99(high)} at {_asked(high)}."


def _asked(step: pd.Series[Any]) -> str:
    return words.rate(float(step["intended_per_s"]))


def _p99(step: pd.Series[Any]) -> str:
    if pd.isna(step[_P99]):
        return "not known"
    samples = int(step["e2e_sched_count"])
    few = "" if supports(samples, "p99") else f" (of only {words.plural(samples, 'sample')})"
    return f"{words.latency(float(step[_P99]))}{few}"


def rates_table(run: pd.Series[Any], steps: pd.DataFrame) -> Table:
    """The rates asked for, the rates delivered, and whether both agree."""
    names = settings.swept(run)
    rows = settings.in_order(steps, names)
    behind = rows["step"].isin(fell_behind(rows))
    frame = rows.assign(setting=settings.short(rows, names), kept=behind.map({True: "no", False: "yes"}))
    columns = (
        Column(name="setting", title=settings.words_of(names) if names else "step"),
        Column(name="intended_per_s", title="asked", kind=Kind.RATE, unit="msg/s"),
        Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
        Column(name="kept", title="kept up"),
        *(latency_column(f"e2e_sched_{name}_ns", word) for name, word in _PERCENTILES),
    )
    file = f"{run['run_id']}-result.csv"
    return table_of(frame.head(ROWS_MAX), columns, caption="The rates asked for, and what became of them", file=file)


_PERCENTILES: Final = (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))
