"""Runs that another tool measured, in tables: a figure that the tool did not tell is null, not 0. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from perftest.results.foreign import foreign_of, missing
from reports.store.tables import Tables


def foreign_facts(run: pd.Series[Any]) -> Mapping[str, Any] | None:
    """The facts in a run's row about the tool that measured the run; None for a run of this tool."""
    return _foreign(run["manifest"])


def _foreign(manifest: str) -> Mapping[str, Any] | None:
    """A manifest's facts about another tool. Few manifests have any, so most need not be parsed."""
    return foreign_of(json.loads(manifest)) if '"foreign"' in (manifest or "") else None


def without_unknown(tables: Tables) -> Tables:
    """The tables with null in place of each figure that the tool of its run did not tell."""
    steps, timeline, runs = tables.steps, tables.timeline, tables.runs
    found = [_foreign(manifest) for manifest in runs["manifest"]]
    for run_id, facts in zip(map(str, runs["run_id"]), found, strict=True):
        if facts is not None:
            steps = _nulled(steps, run_id, missing(facts))
            timeline = _nulled(timeline, run_id, missing(facts))
    loops = [str(loop) if facts is None else "unknown" for loop, facts in zip(runs["loop"], found, strict=True)]
    return replace(tables, runs=tables.runs.assign(loop=loops), steps=steps, timeline=timeline)


def _nulled(frame: pd.DataFrame, run_id: str, names: tuple[str, ...]) -> pd.DataFrame:
    of_run = frame["run_id"] == run_id
    return frame.assign(**{name: frame[name].where(~of_run) for name in names if name in frame})
