"""What to run: workload files, their rules, and the plan they come down to.

``load_workload`` reads a file (all problems at once), ``check`` its relations, ``expand`` gives the
:class:`~perftest.spec.plan.Plan` that :mod:`perftest.engine` executes. ``plan_for`` does all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step
from perftest.spec.problem import Problem, SpecError

__all__ = [
    "Isolation",
    "Plan",
    "Problem",
    "QueueSpec",
    "QueueType",
    "Settings",
    "SpecError",
    "Step",
    "plan_for",
]


def plan_for(path: Path, uris: tuple[str, ...], overrides: Sequence[str] = (), *, quick: bool = False) -> Plan:
    """The plan of a workload file. Raises :class:`SpecError` with every problem of the file and the overrides."""
    # The models and YAML cost 0.1 s to import: the engine's worker, which needs only the plan, does without.
    from perftest.spec.check import check
    from perftest.spec.expand import expand
    from perftest.spec.load import load_workload

    workload, document = load_workload(path, overrides)
    problems = check(workload, document)
    if problems:
        raise SpecError(problems)
    return expand(workload, uris, quick=quick)
