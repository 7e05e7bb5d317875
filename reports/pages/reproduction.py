"""The findings of the source with their verdicts, as the page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any, Final

import pandas as pd

from reports.charts import claims
from reports.pages.figures import broker_of, manifest_of
from reports.pages.model import Chart, Column, Sentence, Table, Verdicts
from reports.pages.tables import table_of
from reports.stats.reproduction import Reproduction, judge_runs
from reports.stats.validity import steps_of, with_noise
from reports.store.tables import Tables

_COLUMNS: Final = tuple(
    Column(name=name, title=title)
    for name, title in (
        ("says", "what the source found"),
        ("verdict", "verdict"),
        ("trend", "trend"),
        ("metric", "metric"),
        ("figures", "measured"),
        ("place", "where the source says so"),
    )
)


def verdicts(loads: Sequence[Tables]) -> tuple[Verdicts, ...]:
    """The verdicts on the findings of each plan, for each broker by itself: runs of one plan on one layout and one
    broker are repetitions of each other."""
    plans: dict[tuple[str, str], list[Tables]] = {}
    for load in loads:
        run = load.runs.iloc[0]
        plans.setdefault((str(run["plan_digest"]) or str(run["run_id"]), broker_of(run)), []).append(load)
    several = {plan for plan, count in Counter(plan for plan, _broker in plans).items() if count > 1}
    found = (_of_plan(each, plans, names_broker=each[0] in several) for each in plans)
    return tuple(each for each in found if each is not None)


def named(verdicts: Verdicts, *, among: Sequence[Verdicts]) -> Sentence:
    """The sentence about the findings of a workload, which is named if the page has several."""
    sentence = verdicts.sentence
    return replace(sentence, text=f"{verdicts.name}. {sentence.text}") if len(among) > 1 else sentence


_PlanOnBroker = tuple[str, str]
"""The digest of a plan, and a broker."""


def _of_plan(
    each: _PlanOnBroker, plans: Mapping[_PlanOnBroker, Sequence[Tables]], *, names_broker: bool
) -> Verdicts | None:
    """The verdicts over the runs of one plan on one broker, beside the other plans of the broker."""
    run = plans[each][0].runs.iloc[0]
    plan = manifest_of(run).get("plan") or {}
    findings = plan.get("findings") or ()
    if not findings:
        return None
    compared = {name for finding in findings for name in finding.get("workloads") or ()}
    others = (load for other, loads in plans.items() if other != each and other[1] == each[1] for load in loads)
    beside = (_told(load) for load in others if load.runs.iloc[0]["name"] in compared)
    judged = judge_runs(plan, map(_told, plans[each]), beside)
    if judged is None:
        return None
    title = plan.get("source_title")
    address = f"[{title}]({run['source']})" if title else run["source"]
    source = f" The source is {address}." if address else ""
    name = f"{run['name']} on {each[1]}" if names_broker else str(run["name"])
    return Verdicts(
        name=name,
        verdict=str(judged.outcome),
        sentence=Sentence(text=judged.sentence + source),
        chart=_chart(judged, name),
        table=_table(judged, name),
        lines=tuple(judged.lines()),
        record=judged.to_json(),
    )


def _chart(judged: Reproduction, name: str) -> Chart:
    """Each finding by the claim that decides it."""
    deciding = [(each, each.claims[0] if each.claims else None) for each in judged.findings]
    rows = [
        {
            "says": each.finding.says,
            "verdict": str(each.outcome),
            "ratio": claim.ratio if claim else nan,
            "low": claim.low if claim else nan,
            "high": claim.high if claim else nan,
            "least": claim.claim.least if claim else 0.0,
            "most": claim.claim.most if claim else inf,
        }
        for each, claim in deciding
    ]
    return Chart(
        anchor=f"findings-{_slug(name)}",
        title="Measured against claimed",
        unit="times",
        how_to_read="Each row is a finding of the source. The thick line is the range that the finding claims for the "
        "ratio of two measured figures; the mark is the measured ratio with its interval. A finding holds if the whole "
        "interval lies on the thick line. Of several ratios, the row shows the one that decides; the table has all.",
        finding="",
        figure=claims.figure(pd.DataFrame(rows)),
        table=_table(judged, name),
    )


def _told(load: Tables) -> tuple[Mapping[str, Any], Sequence[dict[str, Any]]]:
    """The manifest of a run, and its rows with the labels of its plan. Tables have words for a step that the plan
    leaves unnamed."""
    manifest = manifest_of(load.runs.iloc[0])
    labels = {step["number"]: step["label"] for step in manifest["plan"].get("steps") or ()}
    told = {(each["step"], each["group"]): each for each in manifest.get("happened") or ()}
    rows = [
        row | {"label": labels.get(row["step"], row["label"])} | told.get((row["step"], row["group"]), {})
        for row in steps_of(load.steps)
    ]
    return manifest, with_noise(load, rows)


def _slug(name: str) -> str:
    return name.replace("/", "-").replace(" ", "-")


def _table(judged: Reproduction, name: str) -> Table:
    rows: list[dict[str, Any]] = [
        {
            "says": each.finding.says,
            "verdict": str(each.outcome),
            "trend": str(each.finding.trend).replace("_", " "),
            "metric": each.finding.metric,
            "figures": each.figures,
            "place": each.finding.place,
        }
        for each in judged.findings
    ]
    file = f"{_slug(name)}-findings.csv"
    return table_of(pd.DataFrame(rows), _COLUMNS, caption=f"Findings of the source of {name}", file=file)
