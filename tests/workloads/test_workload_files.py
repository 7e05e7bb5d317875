"""The bundled experiments are the published ones."""

from __future__ import annotations

import json
import re

import pytest

import workloads
from perftest.spec import Isolation, Plan, plan_for
from perftest.spec.models import json_schema


def swept(plan: Plan) -> list[object]:
    return [getattr(step.settings, plan.swept[0]) for step in plan.steps]


def test_in_flight_is_the_published_benchmark() -> None:
    """Trends can be compared with the published ones only if the experiment is the same."""
    plan = plan_for(workloads.path_of("flow_control/in_flight"), ())
    assert swept(plan) == [1, 5, 20, 200, 1000, 10_000]
    assert plan.isolation is Isolation.LIVE
    assert {(s.settings.prefetch, s.settings.ack_interval, s.settings.size_bytes) for s in plan.steps} == {
        (1000, 1, 1000)
    }
    assert {(s.duration_s, s.warmup_s) for s in plan.steps} == {(300, 10)}


def test_prefetch_is_isolated_as_published() -> None:
    """A prefetch of 1 fills the queue; the next value must not start with that backlog."""
    plan = plan_for(workloads.path_of("flow_control/prefetch"), ())
    assert swept(plan) == [1, 10, 100, 1000, 10_000]
    assert plan.isolation is Isolation.ISOLATED
    assert {s.settings.in_flight for s in plan.steps} == {1000}


def test_ack_interval_is_the_published_benchmark() -> None:
    """The sweet spot lies at 5 to 10 % of the prefetch: both ends must be in the sweep."""
    plan = plan_for(workloads.path_of("flow_control/ack_interval"), ())
    assert swept(plan) == [1, 10, 50, 100, 250, 500]
    assert {(s.settings.in_flight, s.settings.prefetch) for s in plan.steps} == {(1000, 1000)}


@pytest.mark.parametrize("name", workloads.names())
def test_the_name_in_the_file_is_its_place(name: str) -> None:
    """A report that names a workload must lead back to its file."""
    assert plan_for(workloads.path_of(name), ()).name == name


@pytest.mark.parametrize("name", workloads.names())
def test_every_workload_is_in_the_table(name: str) -> None:
    """The table of the README is how people find an experiment."""
    readme = (workloads.DIRECTORY / "README.md").read_text()
    plan = plan_for(workloads.path_of(name), ())
    row = next(line for line in readme.splitlines() if f"`{name}`" in line)
    assert ", ".join(str(value) for value in swept(plan)) in row
    assert re.search(rf"\b{plan.isolation}\b", row)


def test_the_schema_file_is_current() -> None:
    """Editors complete and check with it: an old one would refuse right files."""
    text = (workloads.DIRECTORY / "schema.json").read_text()
    assert json.loads(text) == json_schema(), "write it again from perftest.spec.models.json_schema()"
