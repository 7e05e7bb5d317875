"""A store in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """One frame per table, with the columns of :data:`reports.store.schema.TABLES`, sorted by each table's order.

    A table without rows still has its columns and types.
    """

    runs: pd.DataFrame
    steps: pd.DataFrame
    latency: pd.DataFrame
    spectrum: pd.DataFrame
    stages: pd.DataFrame
    timeline: pd.DataFrame
    intervals: pd.DataFrame
    events: pd.DataFrame
    hosts: pd.DataFrame
    host_samples: pd.DataFrame
    host_steps: pd.DataFrame
    clocks: pd.DataFrame
    brokers: pd.DataFrame
    writes: pd.DataFrame
    links: pd.DataFrame
    ledger: pd.DataFrame
    quarantine: pd.DataFrame

    def of(self, run_id: str, group: str | None = None) -> Tables:
        """The rows of one run, or of one group of load in it, with fresh row numbers.

        A table that does not tell groups apart, such as the broker's samples, keeps all rows of the run.
        """
        frames = {}
        for field in fields(self):
            frame: pd.DataFrame = getattr(self, field.name)
            chosen = (frame["run_id"] == run_id).to_numpy()
            if group is not None and "group" in frame:
                chosen &= (frame["group"] == group).to_numpy()
            rows = chosen.nonzero()[0]
            together = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
            # Rows of a run lie together as a rule: a part of a frame costs less than a copy of some of its rows.
            own = frame.iloc[rows[0] : rows[-1] + 1] if together else frame.iloc[rows]
            frames[field.name] = own.reset_index(drop=True)
        return Tables(**frames)

    @property
    def loads(self) -> list[tuple[str, str]]:
        """Each run with each of its measured groups of load, in the order of the runs; a run without a step has the
        group ""."""
        known, beside = self._groups(), set(self.background_loads)
        found = []
        for run in map(str, self.runs["run_id"]):
            measured = [(run, group) for group in known.get(run, ()) if (run, group) not in beside]
            found += measured or [(run, "")]
        return found

    @property
    def background_loads(self) -> list[tuple[str, str]]:
        """Each run with each of its background loads that were recorded."""
        known, found = self._groups(), []
        for run, manifest in zip(self.runs["run_id"], self.runs["manifest"], strict=True):
            plan = json.loads(manifest or "{}").get("plan") or {}
            names = [str(load.get("name", "")) for load in plan.get("background") or ()]
            found += [(str(run), name) for name in names if name in known.get(str(run), ())]
        return found

    def _groups(self) -> dict[str, list[str]]:
        """The groups of load of each run, by the steps."""
        groups = self.steps.groupby("run_id", sort=False)["group"].unique()
        return {str(run): [str(group) for group in names] for run, names in groups.items()}
