"""The trust list of a run, for its page: as the run recorded it, or made of tables by the same functions
(:mod:`perftest.results.trust_list`) if the run was killed or is one of an earlier version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perftest.results.foreign import foreign_of
from perftest.results.integrity import Damages
from perftest.results.modelled_drives import in_words
from perftest.results.noise import noise_of
from perftest.results.run_checks import Disturbances, background_names
from perftest.results.steadiness import SteadySlot, Timeline
from perftest.results.summary import CLOSED, OPEN, PERCENTILES, backlog_of
from perftest.results.trust import Check, Status, is_limited, step_checks
from perftest.results.trust_list import Course, recorded_list, trust_list
from reports.stats.bottleneck import bottlenecks
from reports.stats.lead import with_lead
from reports.store.schema import SERIES, damages_of
from reports.store.tables import Tables


def checks(tables: Tables) -> list[Check]:
    """The trust list of one run, worst first. A check of steps stands there once, for all of them.

    :param tables: the tables of exactly one run, see :meth:`reports.store.tables.Tables.of`
    """
    recorded = recorded_list(_manifest(tables), _damages(tables))
    found = derived_checks(tables) if recorded is None else recorded
    return [replace(check, text=sentence(check.text)) for check in found]


def derived_checks(tables: Tables) -> list[Check]:
    """The list by the tables alone, in clauses. Of a run with several groups of load, the tables of one of them tell of
    this group only."""
    steps = [step for step in steps_of(tables.steps) if step["length_ns"] > 0]
    foreign = foreign_of(_manifest(tables))
    ledger = None if tables.ledger.empty else _known(tables.ledger.iloc[0])
    limits = [] if foreign is not None else bottlenecks(tables)
    course = Course(timelines=_timelines(tables, steps), bottlenecks=limits, damages=_damages(tables))
    return trust_list(_run_facts(tables), steps, ledger, _disturbances(tables), course, foreign)


def limited(steps: pd.DataFrame) -> tuple[int, ...]:
    """The numbers of the steps that measured the load generator or its machine instead of the broker."""
    return tuple(
        step["step"] for step in steps_of(steps) if is_limited([check.to_json() for check in step_checks(step)])
    )


def fell_behind(steps: pd.DataFrame) -> tuple[int, ...]:
    """The numbers of the steps in which less was published than the schedule asked for, or less delivered than
    published: by the checks *intended rate* and *backlog*, or because nothing was delivered."""
    behind = ("intended_rate", "backlog")
    return tuple(
        step["step"]
        for step in steps_of(steps)
        if not step.get("delivered_per_s")
        or any(check.check in behind and check.status is Status.WARN for check in step_checks(step))
    )


def steps_of(steps: pd.DataFrame) -> list[dict[str, Any]]:
    """The facts of each step: its row as in ``result.json``, and its other columns. What is null is absent."""
    columns = [steps[name].tolist() for name in steps.columns]  # `to_dict` takes ten times as long for wide tables
    return [_step_facts(_known(dict(zip(steps.columns, row, strict=True)))) for row in zip(*columns, strict=True)]


def with_noise(tables: Tables, steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The facts of the steps of one run, with the ``noise`` within each, as in ``result.json``."""
    return [step | {"noise": noise_of(each.slots)} for step, each in zip(steps, _timelines(tables, steps), strict=True)]


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
        "backlog": backlog_of(row),
        "latency": {name: {each: row.get(f"{name}_{each}", 0) for each in _SUMMARY} for name in recorded},
    }


def _run_facts(tables: Tables) -> dict[str, Any]:
    wanted_s = dict(zip(tables.steps["step"], tables.steps["duration_s"] - tables.steps["warmup_s"], strict=True))
    broker = _manifest(tables).get("broker") or {}
    of_broker = {"cpu_kind": broker.get("cpu_kind"), "drives": broker.get("drives") or ()}
    hosts, plan = _manifest(tables).get("hosts") or (), _manifest(tables).get("plan") or {}
    of_plan = {"wanted_s": wanted_s, "background": background_names(plan)}
    return _known(_run_of(tables)) | of_plan | {"hosts": hosts} | of_broker


def _run_of(tables: Tables) -> pd.Series[Any]:
    """The row of the one run."""
    return tables.runs.iloc[0]


def _manifest(tables: Tables) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(_run_of(tables)["manifest"] or "{}")
    return manifest


def _disturbances(tables: Tables) -> Disturbances:
    found = Disturbances()
    for event in tables.events["event"]:
        found.event(json.loads(event))
    return found


def _damages(tables: Tables) -> Damages:
    return damages_of(tables.quarantine.to_dict("records"))


def _timelines(tables: Tables, steps: Sequence[Mapping[str, Any]]) -> list[Timeline]:
    """The steady time of these steps."""
    timeline = tables.timeline if _SLOT[-1] in tables.timeline else with_lead(tables).timeline
    steady = timeline[timeline["phase"] == "steady"].sort_values("slot")
    of_steps = {key: slots[[*_SLOT]].astype(float) for key, slots in steady.groupby(["step", "group"])}
    return [
        Timeline(
            step=int(step["step"]),
            label=str(step["label"]),
            slots=[_slot(*row) for row in of_steps.get((step["step"], step["group"]), _NO_SLOTS).to_numpy()],
        )
        for step in steps
    ]


def _slot(length_s: float, delivered_per_s: float, published_per_s: float, *kept_ns: float) -> SteadySlot:
    p50_ns, p95_ns, p99_ns = (None if pd.isna(each) else each for each in kept_ns)
    rates = {"delivered_per_s": delivered_per_s, "published_per_s": published_per_s}
    return SteadySlot(length_s=length_s, **rates, p50_ns=p50_ns, p95_ns=p95_ns, p99_ns=p99_ns)


_LATENCIES: Final = ("e2e_lead_p50_ns", "e2e_lead_p95_ns", "e2e_lead_p99_ns")
_SLOT: Final = ("length_s", "delivered_per_s", "published_per_s", *_LATENCIES)
_NO_SLOTS: Final = pd.DataFrame(columns=[*_SLOT], dtype=float)
