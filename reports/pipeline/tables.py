"""A store in memory."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """One frame per table, with the columns of :data:`reports.pipeline.schema.TABLES`, sorted by each table's order.

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
    brokers: pd.DataFrame
    ledger: pd.DataFrame
    quarantine: pd.DataFrame

    def of(self, run_id: str) -> Tables:
        """The rows of one run, with fresh row numbers."""
        frames = {}
        for field in fields(self):
            frame: pd.DataFrame = getattr(self, field.name)
            frames[field.name] = frame[frame["run_id"] == run_id].reset_index(drop=True)
        return Tables(**frames)
