"""The facts in a run's manifest that its figures need: its start, its interval, its planned steps, its hosts' cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.compute import manifests
from reports.compute.run_files import RunHead
from reports.store.columns import Row

NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The facts in one run's manifest that its figures need."""

    started_ns: int
    interval_ns: int
    has_background: bool
    is_spread: bool
    """Whether the run took place on several hosts."""
    steps: Mapping[tuple[int, str], Row]
    """The planned steps, by number and group of load."""
    cores: Mapping[str, int | None]
    """The cores of each host that the manifest names; None where they are not known."""
    made_load: Mapping[str, bool]

    def since_start(self, t_ns: int) -> float:
        """Seconds since the run started."""
        return (t_ns - self.started_ns) / NS

    def label(self, step: int, group: str) -> str:
        """The step in words. A step that no plan knows gets its number as its label."""
        planned = self.steps.get((step, group))
        return planned["label"] if planned else f"step {step}"

    def label_of_any_group(self, step: int) -> str:
        """The label that the first group of load gives the step."""
        labels = (row["label"] for (number, _), row in self.steps.items() if number == step)
        return next(labels, f"step {step}")


def plan_of(run: RunHead) -> RunPlan:
    """The plan in the manifest."""
    steps: dict[tuple[int, str], Row] = {}
    for row in manifests.planned_rows(run):
        steps.setdefault((row["step"], row["group"]), row)
    return RunPlan(
        started_ns=run.started_ns,
        interval_ns=manifests.interval_ns(run),
        has_background=manifests.has_background(run),
        is_spread=manifests.is_spread(run),
        steps=steps,
        cores={row["host"]: row["cores"] for row in manifests.host_rows(run)},
        made_load=manifests.hosts_with_load(run),
    )
