"""How a page shows a run that another tool measured: whose figures they are, and the unknown facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perftest.results.trust import Status
from reports.pages import words
from reports.pages.model import Banner, Chip, Column, Kind, Provenance, Run, Sentence, Stated, Table
from reports.pages.tables import latency_column

_SERIES: Final = {
    "e2e": "end to end, from the send",
    "confirm": "to the confirm, from the send",
    "lag": "behind the schedule",
}
_SHOWN: Final = {
    "min_ns": "least",
    "mean_ns": "mean",
    "p50_ns": "p50",
    "p75_ns": "p75",
    "p95_ns": "p95",
    "p99_ns": "p99",
    "p999_ns": "p99.9",
    "p9999_ns": "p99.99",
    "max_ns": "max",
}


def imported(section: Run, facts: Mapping[str, Any] | None, steps: pd.DataFrame) -> Run:
    """The run as the figures of another tool; ``facts`` is ``foreign`` of the manifest, None for a run of this tool."""
    if facts is None:
        return section
    tool = str(facts.get("tool") or "another tool")
    ledger = _begun(f"{tool} kept no ledger: whether messages were lost is not known.")
    return replace(
        section,
        chips=tuple(_chip(chip, tool) for chip in section.chips),
        banners=(_banner(tool, facts), *section.banners),
        sentences=(*_sentences(tool, facts, steps, section.prefix), Sentence(text=ledger)),
        ledger_text=ledger,
        provenance=_provenance(section.provenance),
        stated=_stated(section.run_id, tool, facts),
    )


def _chip(chip: Chip, tool: str) -> Chip:
    if chip.name == "Ledger":
        return Chip(name="Measured by", value=tool)
    return replace(chip, value="unknown") if chip.name == "Queue" else chip


def _banner(tool: str, facts: Mapping[str, Any]) -> Banner:
    files = ", ".join(str(each.get("name")) for each in facts.get("files") or ())
    text = f"The figures were imported from {files or 'its files'}. {_unknown(facts)}".strip()
    return Banner(status=Status.NOTE, title=f"Measured by {tool}", text=text)


def _unknown(facts: Mapping[str, Any]) -> str:
    said = "; ".join(str(each) for each in facts.get("unknown") or ())
    return f"Not known is: {said}." if said else ""


def _sentences(tool: str, facts: Mapping[str, Any], steps: pd.DataFrame, prefix: str) -> list[Sentence]:
    said = []
    for _, row in steps.iterrows():
        rates = [
            f"{words.rate(float(row[f'{name}_per_s']))} {name}"
            for name in ("published", "confirmed", "delivered")
            if pd.notna(row[f"{name}_per_s"])
        ]
        text = f"{', '.join(rates) or 'No rate is known'}, over {words.duration(float(row['length_s']))}."
        said.append(Sentence(text=text, anchor=f"{prefix}steps", see="table"))
        said += [Sentence(text=text) for name in ("e2e", "confirm") if (text := _of_histogram(row, name))]
    return said + [Sentence(text=text, anchor=f"{prefix}stated", see="table") for text in _stated_words(tool, facts)]


def _of_histogram(row: pd.Series[Any], name: str) -> str:
    if pd.isna(row[f"{name}_p99_ns"]):
        return ""
    p50, p99 = (words.latency(float(row[f"{name}_{each}_ns"])) for each in ("p50", "p99"))
    samples = words.plural(int(row[f"{name}_count"]), "sample")
    return f"Latency {_SERIES[name]}: p50 {p50}, p99 {p99}, from the histograms of {samples}."


def _stated_words(tool: str, facts: Mapping[str, Any]) -> list[str]:
    """The tool's statements about p99, in sentences."""
    said = []
    for each in facts.get("stated") or ():
        if "p99_ns" in each["figures"]:
            p99 = words.latency(float(each["figures"]["p99_ns"]))
            said.append(_begun(f"{tool} states a p99 of {p99} {_SERIES.get(each['series'], each['series'])}."))
    for each in facts.get("of_intervals") or ():
        if each["figure"] == "p99_ns":
            least, most = (words.latency(float(each[name])) for name in ("least_ns", "greatest_ns"))
            said.append(
                f"The p99 that {tool} states of single intervals is {least} to {most} "
                f"{_SERIES.get(each['series'], each['series'])}."
            )
    return said


def _stated(run_id: str, tool: str, facts: Mapping[str, Any]) -> Stated | None:
    tables = [
        _whole(run_id, tool, facts.get("stated") or ()),
        _intervals(run_id, tool, facts.get("of_intervals") or ()),
    ]
    found = tuple(table for table in tables if table.rows)
    if not found:
        return None
    text = (
        f"These are the figures of {tool}, as it states them. There is no histogram behind them, so they are in no "
        "other table or figure of this page, and cannot be merged with those of other runs."
    )
    return Stated(title=f"As {tool} states", text=text, tables=found)


def _whole(run_id: str, tool: str, stated: Sequence[Mapping[str, Any]]) -> Table:
    shown = [name for name in _SHOWN if any(name in each["figures"] for each in stated)]
    return Table(
        caption=f"Latencies of the whole run, as {tool} states them",
        file=f"{run_id}-stated.csv",
        columns=(Column(name="series", title="latency"), *(latency_column(name, _SHOWN[name]) for name in shown)),
        rows=tuple(
            (_SERIES.get(each["series"], each["series"]), *(each["figures"].get(name) for name in shown))
            for each in stated
        ),
    )


def _intervals(run_id: str, tool: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    bounds = ("least_ns", "middle_ns", "greatest_ns")
    return Table(
        caption=f"Latencies of single intervals, as {tool} states them: the least, the middle and the greatest of each",
        file=f"{run_id}-stated-intervals.csv",
        columns=(
            Column(name="series", title="latency"),
            Column(name="figure", title="figure"),
            Column(name="intervals", title="intervals", kind=Kind.COUNT),
            *(latency_column(name, name.removesuffix("_ns")) for name in bounds),
        ),
        rows=tuple(
            (
                _SERIES.get(each["series"], each["series"]),
                _SHOWN.get(each["figure"], each["figure"]),
                each["intervals"],
                *(each[name] for name in bounds),
            )
            for each in rows
        ),
    )


def _begun(text: str) -> str:
    """A sentence that may begin with the name of a tool."""
    return f"{text[0].upper()}{text[1:]}"


def _provenance(made: Provenance) -> Provenance:
    """The command of the run made the import, and not the measurement."""
    names = {"Reproduce this run": "Import this run again"}
    return replace(made, commands=tuple((names.get(name, name), line) for name, line in made.commands))
