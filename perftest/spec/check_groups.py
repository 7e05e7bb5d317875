"""Problems of the groups of load in a workload file: times, steps and settings of the loads beside the measured one."""

from __future__ import annotations

from collections.abc import Iterator

from perftest.spec.load import Document
from perftest.spec.models import BackgroundLoad, GroupLoad, Workload
from perftest.spec.plan import Plan
from perftest.spec.problem import Location, Problem
from perftest.spec.rules import Naming, broken_groups, broken_in
from perftest.spec.sweep import points, swept_value
from perftest.spec.units import UnitError, format_duration


def check_groups(workload: Workload, document: Document) -> Iterator[Problem]:
    """Problems of the times of groups."""
    end_s = workload.step.duration * (len(points(workload.sweep)) if workload.sweep else 1)
    for location, load in loads_of(workload):
        if isinstance(load, GroupLoad) and load.measured:
            yield from _measured(location, load, document)
        else:
            yield from _times(location, load, end_s, document)


def unreadable_steps(workload: Workload, document: Document) -> Iterator[Problem]:
    """Problems of the own steps of groups. With one of them there can be no plan."""
    for location, load in loads_of(workload):
        yield from _values(location, load, document)


def loads_of(workload: Workload) -> Iterator[tuple[Location, BackgroundLoad]]:
    """The loads beside the measured one, each with its place in the file."""
    for number, load in enumerate(workload.background):
        yield ("background", number), load
    for number, load in enumerate(workload.groups):
        yield ("groups", number), load


def group_problems(plan: Plan, workload: Workload, document: Document, name: Naming) -> Iterator[Problem]:
    """Rules that groups break by themselves, and rules between groups."""
    by_name = {group.name: group for group in plan.groups}
    places = {load.name: location for location, load in loads_of(workload)}
    for group, location in places.items():
        for found in broken_in(plan, by_name[group], name):
            key = name(found.field)
            within = ("queues",) if key == "queues" else tuple(key.split(".")) if "." in key else ("load", key)
            yield document.problem((*location, *within), found.rule, found.fix, found.value)
    for found in broken_groups(plan, name):
        guilty = next((each for group, each in places.items() if group == found.value), ("groups",))
        yield document.problem(guilty, found.rule, found.fix, found.value)


def _measured(location: Location, load: GroupLoad, document: Document) -> Iterator[Problem]:
    rule = "a measured group has the steps of the measured load, from the beginning to the end"
    for key in ("ahead", "start", "stop", "steps"):
        if getattr(load, key):
            yield document.problem((*location, key), rule, f"leave out {key}, or measured: true", getattr(load, key))


def _times(location: Location, load: BackgroundLoad, end_s: float, document: Document) -> Iterator[Problem]:
    if load.ahead and load.start:
        rule = "a load begins either ahead of the measured load or after it"
        yield document.problem((*location, "start"), rule, "keep ahead or start", load.start)
    if load.start >= end_s:
        rule = (
            f"the load begins after {format_duration(load.start)}, and the steps are over at {format_duration(end_s)}"
        )
        yield document.problem((*location, "start"), rule, "use an earlier time", load.start)
    elif load.stop is not None and not load.start < load.stop <= end_s:
        rule = f"the load ends at {format_duration(load.stop)}, which is not between its start and the end of all steps"
        fix = f"use more than {format_duration(load.start)} and at most {format_duration(end_s)}, or leave it out"
        yield document.problem((*location, "stop"), rule, fix, load.stop)


def _values(location: Location, load: BackgroundLoad, document: Document) -> Iterator[Problem]:
    for number, step in enumerate(load.steps):
        place = (*location, "steps", number)
        if step.duration <= 0:
            yield document.problem((*place, "duration"), "a step needs time", "use 1s or more", step.duration)
        for setting, value in step.set.items():
            try:
                swept_value(setting, value)
            except UnitError as error:
                rule = f"{setting}: {error.rule}"
                yield document.problem((*place, "set", setting), rule, error.fix, value)
