"""The trust list of a run on its page: the checks of the terminal, which judge steps and run by the same functions, and
the checks that need tables (:mod:`reports.stats.table_checks`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perftest.results.foreign import foreign_checks, foreign_of
from perftest.results.modelled_drives import in_words
from perftest.results.run_checks import Disturbances, run_checks
from perftest.results.summary import CLOSED, OPEN, PERCENTILES
from perftest.results.trust import Check, Facts, Status, is_limited, step_checks
from reports.stats.bottleneck import bottleneck_checks
from reports.stats.table_checks import run_of, step_table_checks, table_checks
from reports.store.schema import SERIES
from reports.store.tables import Tables

_ONE_RUN: Final = (
    "one repetition: how much a figure varies from run to run is not known, so a difference between steps or runs may"
    " be chance"
)


def checks(tables: Tables) -> list[Check]:
    """The trust list of one run, in a fixed order. A check of steps stands there once: with the gravest status of all
    steps, in the words of the worst step, and with the numbers of the steps in which it did not pass.

    :param tables: the tables of exactly one run, see :meth:`reports.store.tables.Tables.of`
    """
    steps = [step for step in steps_of(tables.steps) if step["length_ns"] > 0]
    foreign = foreign_of(_manifest(tables))
    if foreign is not None:
        known = [*foreign_checks(foreign, steps), *table_checks(tables)[:2], *_notes(tables)]
        return [replace(check, text=sentence(check.text)) for check in known]
    ledger = None if tables.ledger.empty else _known(tables.ledger.iloc[0])
    found = [*run_checks(_run_facts(tables), steps, ledger, _disturbances(tables)), *_of_steps(steps)]
    found += [*table_checks(tables), *bottleneck_checks(tables), *_notes(tables)]
    return [replace(check, text=sentence(check.text)) for check in found]


def limited(steps: pd.DataFrame) -> tuple[int, ...]:
    """The numbers of the steps that measured the load generator or its machine instead of the broker."""
    return tuple(
        step["step"] for step in steps_of(steps) if is_limited([check.to_json() for check in step_checks(step)])
    )


def steps_of(steps: pd.DataFrame) -> list[dict[str, Any]]:
    """The facts of each step: its row as in ``result.json``, and its other columns. What is null is absent."""
    columns = [steps[name].tolist() for name in steps.columns]  # `to_dict` takes ten times as long for wide tables
    return [_step_facts(_known(dict(zip(steps.columns, row, strict=True)))) for row in zip(*columns, strict=True)]


def modelled_drives(tables: Tables) -> str:
    """The profiles of the broker's modelled drives, in words; empty if its drives were real, or not known."""
    return in_words((_manifest(tables).get("broker") or {}).get("drives") or ())


def sentence(text: str) -> str:
    """A clause as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def _known(row: Mapping[Any, Any] | pd.Series[Any]) -> dict[str, Any]:
    return {str(name): value for name, value in row.items() if pd.notna(value)}


_SUMMARY: Final = ("count", "mean_ns", "max_ns", *PERCENTILES)


def _step_facts(row: dict[str, Any]) -> dict[str, Any]:
    recorded = [series for series in SERIES if row.get(f"{series}_count")]
    return row | {
        "settings": json.loads(row["settings"] or "{}"),
        "loop": OPEN if row["e2e_series"] == "e2e_sched" else CLOSED,
        "length_ns": row["length_s"] * 1e9,
        "latency": {name: {each: row.get(f"{name}_{each}", 0) for each in _SUMMARY} for name in recorded},
    }


def _run_facts(tables: Tables) -> dict[str, Any]:
    wanted_s = dict(zip(tables.steps["step"], tables.steps["duration_s"] - tables.steps["warmup_s"], strict=True))
    broker = _manifest(tables).get("broker") or {}
    of_broker = {"cpu_kind": broker.get("cpu_kind"), "drives": broker.get("drives") or ()}
    hosts = _manifest(tables).get("hosts") or ()
    return _known(run_of(tables)) | {"wanted_s": wanted_s, "hosts": hosts} | of_broker


def _manifest(tables: Tables) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(run_of(tables)["manifest"] or "{}")
    return manifest


def _disturbances(tables: Tables) -> Disturbances:
    found = Disturbances()
    for event in tables.events["event"]:
        found.event(json.loads(event))
    return found


def _of_steps(steps: list[dict[str, Any]]) -> Iterator[Check]:
    """Each check of the steps once, for all of them."""
    by_name: dict[str, list[tuple[Facts, Check]]] = {}
    for step in steps:
        for check in [*step_checks(step), *step_table_checks(step)]:
            by_name.setdefault(check.check, []).append((step, check))
    for found in by_name.values():
        worst_step, worst = max(found, key=lambda each: (each[1].status.weight, each[1].degree))
        where = f" ({worst_step['label']})" if len(steps) > 1 else ""
        against = tuple(int(step["step"]) for step, check in found if check.status is not Status.PASS)
        yield replace(worst, text=f"{worst.text}{where}", steps=against)


def _notes(tables: Tables) -> Iterator[Check]:
    """What a reader must be told who was not there when the run was made."""
    yield Check("repetitions", Status.NOTE, _ONE_RUN)
    beside = _manifest(tables).get("plan", {}).get("background") or []
    if beside:
        names = ", ".join(str(load.get("name", "")) for load in beside)
        text = f"beside the measured load, and in no figure but those of broker and hosts, ran another: {names}"
        yield Check("background", Status.NOTE, text)
    said = str(run_of(tables)["durability"])
    status, meaning = (Status.NOTE, f": {said}") if said else (Status.WARN, " for the safety of a message is unknown")
    yield Check("durability", status, f"what a confirm meant{meaning}")
