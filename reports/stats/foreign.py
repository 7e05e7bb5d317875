"""Runs that another tool measured, in tables: what the tool did not tell is null, not 0. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from perftest.results.foreign import foreign_of, missing
from reports.store.tables import Tables


def foreign_facts(run: pd.Series[Any]) -> Mapping[str, Any] | None:
    """What the row of a run says of the tool that measured the run; None for a run of this tool."""
    return foreign_of(json.loads(run["manifest"] or "{}"))


def without_unknown(tables: Tables) -> Tables:
    """The tables with null in place of each figure that the tool of its run did not tell."""
    steps, timeline = tables.steps, tables.timeline
    for _, run in tables.runs.iterrows():
        facts = foreign_facts(run)
        if facts is not None:
            steps = _nulled(steps, str(run["run_id"]), missing(facts))
            timeline = _nulled(timeline, str(run["run_id"]), missing(facts))
    loops = [str(run["loop"]) if foreign_facts(run) is None else "unknown" for _, run in tables.runs.iterrows()]
    return replace(tables, runs=tables.runs.assign(loop=loops), steps=steps, timeline=timeline)


def _nulled(frame: pd.DataFrame, run_id: str, names: tuple[str, ...]) -> pd.DataFrame:
    of_run = frame["run_id"] == run_id
    return frame.assign(**{name: frame[name].where(~of_run) for name in names if name in frame})
