"""The latency to lead with: from the intended time in a step that had a schedule, else from the send.

Each step decides by itself, because a sweep over rates may have a step without a rate. :func:`with_lead` adds the
columns ``e2e_lead_*`` and ``confirm_lead_*``, which hold the leading latency of each step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pandas as pd

from reports.store.tables import Tables

_KINDS: Final = ("e2e", "confirm")


def opened(steps: pd.DataFrame) -> pd.Series[Any]:
    """Whether each step was an open loop."""
    return steps["e2e_series"] == "e2e_sched"


def lead_series(run: pd.Series[Any], kind: str) -> str:
    """The prefix of the columns of the leading series; ``kind`` is e2e or confirm.

    The columns of a mixed run exist after :func:`with_lead`.
    """
    return {"open": f"{kind}_sched", "mixed": f"{kind}_lead"}.get(str(run["loop"]), kind)


def lead(steps: pd.DataFrame, figure: str) -> pd.Series[Any]:
    """An end-to-end figure of the series to lead with, one value per step."""
    return _chosen(steps, opened(steps), "e2e", figure)


def with_lead(tables: Tables) -> Tables:
    """The tables with the columns of the series to lead with, in ``steps`` and ``timeline``, and the ``loop`` of each
    step, open or closed."""
    steps = tables.steps.assign(loop=opened(tables.steps).map({True: "open", False: "closed"}))
    names = ["run_id", "step", "group"]
    keys = steps[names].assign(is_open=opened(steps))
    of_slots = tables.timeline[names].merge(keys, how="left", on=names)["is_open"]
    of_slots.index = tables.timeline.index
    return replace(
        tables,
        steps=_added(steps, opened(steps)),
        timeline=_added(tables.timeline, of_slots.fillna(False).astype(bool)),
    )


def _added(frame: pd.DataFrame, is_open: pd.Series[Any]) -> pd.DataFrame:
    figures = {
        (kind, column.removeprefix(f"{kind}_sched_"))
        for kind in _KINDS
        for column in frame.columns
        if column.startswith(f"{kind}_sched_")
    }
    added = {f"{kind}_lead_{figure}": _chosen(frame, is_open, kind, figure) for kind, figure in sorted(figures)}
    return frame.assign(**added)


def _chosen(frame: pd.DataFrame, is_open: pd.Series[Any], kind: str, figure: str) -> pd.Series[Any]:
    return frame[f"{kind}_sched_{figure}"].where(is_open, frame[f"{kind}_{figure}"])
