"""The timeline of a run: a list of moments, computed from the plan, that the coordinator plays.

A moment is an action and its time: a step, and the seconds since this step began. Background load that begins before
the first step has a time below 0. The clock of a step stands still while clients connect, change their settings or
drain. Actions of the same time happen in the order of the list.

A new kind of action (kill a node, change the profile of a drive) is a class of its own, a handler for the coordinator,
and moments that :func:`with_more` adds to the timeline of a plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from perftest.spec.plan import Group, Plan, Step, at_run_time


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens at a moment of a run. It is left out once the load is over."""


@dataclass(frozen=True, slots=True)
class BeginBackground(Action):
    """The clients of a group that is not measured connect and publish."""

    group: Group


@dataclass(frozen=True, slots=True)
class BeginBackgroundStep(Action):
    """The clients of a group that is not measured go by the settings of step ``index`` of the group."""

    group: Group
    index: int


@dataclass(frozen=True, slots=True)
class BeginStep(Action):
    """Step ``index`` of all measured groups begins: with fresh clients, or with other settings while messages flow."""

    index: int


@dataclass(frozen=True, slots=True)
class EndWarmup(Action):
    """From now on intervals of step ``index`` are in the figures."""

    index: int


@dataclass(frozen=True, slots=True)
class EndStep(Action):
    """Step ``index`` is over; if it never began, nothing happens."""

    index: int


@dataclass(frozen=True, slots=True)
class Drain(Action):
    """The clients of all measured groups stop publishing, drain and leave; if they have left before, nothing
    happens."""


@dataclass(frozen=True, slots=True)
class EndBackground(Action):
    """The clients of a group that is not measured stop publishing, drain and leave; if they have left before, nothing
    happens."""

    group: Group


class Moment(NamedTuple):
    """An action and its time: ``at_s`` seconds after step ``step`` (an index) began."""

    step: int
    at_s: float
    action: Action


def timeline(plan: Plan, *, isolated: bool) -> tuple[Moment, ...]:
    """The moments of a plan. With ``isolated`` steps each step drains before the next one begins."""
    moments = []
    for index, step in enumerate(plan.steps):
        moments.append(Moment(index, 0.0, BeginStep(index)))
        if step.warmup_s:
            moments.append(Moment(index, step.warmup_s, EndWarmup(index)))
        moments.append(Moment(index, step.duration_s, EndStep(index)))
        if isolated or step is plan.steps[-1]:
            moments.append(Moment(index, step.duration_s, Drain()))
    beside = [moment for group in plan.background for moment in _of_background(plan.steps, group)]
    first = [moment for moment in beside if moment.step == 0 and moment.at_s <= 0]
    last = len(plan.steps) - 1
    ends = (Moment(last, math.inf, EndBackground(group)) for group in plan.background)
    return (*_in_time([*first, *moments, *(each for each in beside if each not in first)]), *ends)


def _of_background(steps: tuple[Step, ...], group: Group) -> Iterator[Moment]:
    """When a group that is not measured begins, goes on to its next step, and ends before the run does. What would
    come after the last step of the measured load, as in a run that is shorter than its file says, never does."""
    at_s, end_s = group.start_s, sum(step.duration_s for step in steps)
    if at_s >= end_s:
        return
    yield Moment(*at_run_time(steps, at_s), BeginBackground(group))
    for index, step in enumerate(group.steps[:-1], start=1):
        at_s += step.duration_s
        if at_s < min(group.stop_s, end_s):
            yield Moment(*at_run_time(steps, at_s), BeginBackgroundStep(group, index))
    if group.stop_s < end_s:
        yield Moment(*at_run_time(steps, group.stop_s), EndBackground(group))


def with_more(moments: Iterable[Moment], more: Iterable[Moment]) -> tuple[Moment, ...]:
    """The moments of both, in the order of their times; at the same time ``more`` come last."""
    return _in_time([*moments, *more])


def _in_time(moments: Iterable[Moment]) -> tuple[Moment, ...]:
    return tuple(sorted(moments, key=lambda moment: (moment.step, moment.at_s)))
