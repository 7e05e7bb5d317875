"""What happens when in a run: a list of moments, computed from the plan, that the coordinator plays.

A moment is an action and its time: a step, and the seconds since this step began. The clock of a step stands still
while clients connect, change their settings or drain. Actions of the same time happen in the order of the list.

A new kind of action (kill a node, change the profile of a drive) is a class of its own, a handler for the coordinator,
and moments that :func:`with_more` adds to the timeline of a plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from perftest.spec.plan import Group, Plan


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens at a moment of a run. It is left out once the load is over."""


@dataclass(frozen=True, slots=True)
class BeginBackground(Action):
    """The clients of a group that is not measured connect and publish."""

    group: Group


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
    """The clients of a group that is not measured stop publishing, drain and leave."""

    group: Group


class Moment(NamedTuple):
    """An action and its time: ``at_s`` seconds after step ``step`` (an index) began."""

    step: int
    at_s: float
    action: Action


def timeline(plan: Plan, *, isolated: bool) -> tuple[Moment, ...]:
    """The moments of a plan. With ``isolated`` steps each step drains before the next one begins."""
    moments = [Moment(0, 0.0, BeginBackground(group)) for group in plan.background]
    for index, step in enumerate(plan.steps):
        moments.append(Moment(index, 0.0, BeginStep(index)))
        if step.warmup_s:
            moments.append(Moment(index, step.warmup_s, EndWarmup(index)))
        moments.append(Moment(index, step.duration_s, EndStep(index)))
        if isolated or step is plan.steps[-1]:
            moments.append(Moment(index, step.duration_s, Drain()))
    last = len(plan.steps) - 1
    return (*moments, *(Moment(last, math.inf, EndBackground(group)) for group in plan.background))


def with_more(moments: Iterable[Moment], more: Iterable[Moment]) -> tuple[Moment, ...]:
    """The moments of both, in the order of their times; at the same time ``more`` come last."""
    return tuple(sorted((*moments, *more), key=lambda moment: (moment.step, moment.at_s)))
