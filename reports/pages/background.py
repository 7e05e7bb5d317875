"""A background load as the page shows it: apart from the run, because it is in no figure of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from reports.pages import answer, settings, words
from reports.pages.figures import spectrum_chart, timeline_chart
from reports.pages.model import Background, Chart, Chip, Column, Kind, Sentence, Table
from reports.pages.tables import latency_column, ledger_table, table_of
from reports.pages.trust_words import ledger_chip
from reports.stats.lead import opened
from reports.store.tables import Tables

ROWS_MAX: Final = 12
"""Most rows of the first table."""


def background_section(beside: Tables, measured: Tables, *, name: str, prefix: str) -> Background:
    """Everything about one background load: ``beside`` has its rows, ``measured`` the measured load's."""
    run = _run(beside, name)
    steps = _steps(beside.steps, measured.steps, settings.swept(measured.runs.iloc[0]))
    ledger = beside.ledger.iloc[0] if len(beside.ledger) else None
    table = _table(run, steps)
    verdict = "" if ledger is None else str(ledger["verdict"])
    return Background(
        prefix=prefix,
        title=f"Background load {name}",
        subtitle=f"{run['run_id']} · in no figure of the measured load",
        sentences=tuple(_sentences(steps, name, ledger, prefix)),
        headline=_headline(table),
        charts=tuple(_charts(run, beside, steps, prefix)),
        steps=table,
        ledger=None if ledger is None else ledger_table(str(run["run_id"]), ledger),
        ledger_text=answer.ledger_sentence(ledger),
        chips=(
            Chip(name="Load", value="background"),
            ledger_chip([verdict]),
        ),
    )


def _run(beside: Tables, name: str) -> pd.Series[Any]:
    """The row of the run as the figures take it: named as the load, with the loop of the load, and nothing swept."""
    loops = ["open" if is_open else "closed" for is_open in opened(beside.steps)]
    loop = loops[0] if len({*loops}) == 1 else "mixed"
    run: pd.Series[Any] = beside.runs.iloc[0].copy()
    run["run_id"], run["swept"], run["loop"] = f"{run['run_id']}-{name}", "[]", loop
    return run


def _steps(beside: pd.DataFrame, measured: pd.DataFrame, swept: tuple[str, ...]) -> pd.DataFrame:
    """The rows in the order of their numbers, labelled by the measured load's steps meanwhile."""
    names = dict(zip(measured["step"], settings.long(measured, swept), strict=True))
    own = [text.partition(": ")[2] or text for text in map(str, beside["label"])]
    has_own = _has_own_steps(beside)
    labels = own if has_own else [names.get(step, label) for step, label in zip(beside["step"], own, strict=True)]
    return beside.assign(label=labels).sort_values("step", kind="stable").reset_index(drop=True)


def _has_own_steps(beside: pd.DataFrame) -> bool:
    """Whether the settings of the load differ between its rows."""
    return len({json.dumps(json.loads(text or "{}"), sort_keys=True) for text in beside["settings"]}) > 1


def _sentences(steps: pd.DataFrame, name: str, ledger: pd.Series[Any] | None, prefix: str) -> list[Sentence]:
    """The load's delivered rate, how far the steps moved it, its p99, and what became of its messages."""
    said = [] if steps.empty else [_rates(steps, name), *_tails(steps)]
    return [
        *(Sentence(text=text, anchor=f"{prefix}beside", see="table") for text in said),
        Sentence(text="These messages are in no figure of the measured load."),
        Sentence(text=answer.ledger_sentence(ledger), anchor=f"{prefix}beside", see="ledger"),
    ]


def _rates(steps: pd.DataFrame, name: str) -> str:
    rates = steps["delivered_per_s"]
    low, high = float(rates.min()), float(rates.max())
    if words.rate(low) == words.rate(high):
        return f"{name} delivered {words.rate(high)}{' beside every step' if len(steps) > 1 else ''}."
    at_low, at_high = steps["label"].iloc[int(rates.argmin())], steps["label"].iloc[int(rates.argmax())]
    return f"{name} delivered from {words.rate(low)} ({at_low}) to {words.rate(high)} ({at_high})."


def _tails(steps: pd.DataFrame) -> list[str]:
    """The lowest and the highest p99 from end to end."""
    known = _chosen(steps, "e2e", "p99").dropna()
    if known.empty:
        return []
    low, high = words.latency(float(known.min())), words.latency(float(known.max()))
    return [f"Its p99 end to end was {low}." if low == high else f"Its p99 end to end was from {low} to {high}."]


def _chosen(steps: pd.DataFrame, kind: str, figure: str) -> pd.Series[Any]:
    """A latency from the intended time, where there was a schedule."""
    return steps[f"{kind}_sched_{figure}_ns"].where(opened(steps), steps[f"{kind}_{figure}_ns"])


def _headline(table: Table) -> Table:
    """The first rows of the table, with the rate and the tails alone."""
    names = ("label", "delivered_per_s", "e2e_p50_ns", "e2e_p99_ns", "confirm_p99_ns")
    at = [number for number, column in enumerate(table.columns) if column.name in names]
    rows = tuple(tuple(row[number] for number in at) for row in table.rows[:ROWS_MAX])
    columns = tuple(table.columns[number] for number in at)
    return replace(table, columns=columns, rows=rows, doubtful=frozenset(), file=f"first-{table.file}")


def _charts(run: pd.Series[Any], beside: Tables, steps: pd.DataFrame, prefix: str) -> list[Chart]:
    nodes = beside.brokers.iloc[:0]
    charts = [
        spectrum_chart(run, steps, beside.spectrum, kind="e2e", prefix=prefix),
        timeline_chart(run, steps, beside.timeline, beside.events, nodes, prefix=prefix),
        spectrum_chart(run, steps, beside.spectrum, kind="confirm", prefix=prefix),
    ]
    return [chart for chart in charts if chart is not None]


def _table(run: pd.Series[Any], steps: pd.DataFrame) -> Table:
    rates = ("published", "confirmed", "delivered")
    frame = steps.assign(length=steps["length_s"])
    for kind in ("e2e", "confirm"):
        for figure in ("p50", "p99", "max"):
            frame = frame.assign(**{f"{kind}_{figure}_ns": _chosen(steps, kind, figure)})
    columns = (
        Column(name="label", title="beside"),
        *(Column(name=f"{rate}_per_s", title=rate, kind=Kind.RATE, unit="msg/s") for rate in rates),
        *(
            latency_column(f"{kind}_{figure}_ns", f"{word} {figure}")
            for kind, word in (("e2e", "end-to-end"), ("confirm", "confirm"))
            for figure in ("p50", "p99", "max")
        ),
        Column(name="redelivered", title="redelivered", kind=Kind.COUNT),
        Column(name="length", title="measured", kind=Kind.NUMBER, unit="s"),
    )
    return table_of(frame, columns, caption="The background load by step", file=f"{run['run_id']}-steps.csv")
