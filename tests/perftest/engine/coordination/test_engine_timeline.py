"""The timeline of a plan: what happens when, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from perftest.engine.coordination.timeline import Action, BeginStep, Moment, timeline, with_more
from perftest.spec.plan import Group, Isolation, Plan, QueueSpec, Settings, Step

QUEUES = (QueueSpec(name="q"),)
NOISE = Group.background("noise", QUEUES, Settings())


def steps(*warmups: float) -> tuple[Step, ...]:
    return tuple(
        Step(number=at + 1, label="", settings=Settings(), duration_s=60.0, warmup_s=warmup_s)
        for at, warmup_s in enumerate(warmups)
    )


OWN_STEPS = tuple(replace(step, duration_s=40.0) for step in steps(0.0, 0.0, 0.0))


def plan(*warmups: float, background: tuple[Group, ...] = ()) -> Plan:
    made: dict[str, Any] = {"queues": QUEUES, "steps": steps(*warmups), "background": background}
    return Plan.of(name="t", title="t", uris=(), isolation=Isolation.LIVE, **made)


def drawn(moments: tuple[Moment, ...]) -> list[str]:
    """``step at_s action``, one line each."""
    return [f"{step} {at_s:g} {type(action).__name__}" for step, at_s, action in moments]


@pytest.mark.parametrize(
    ("made", "isolated", "expected"),
    [
        (plan(0.0), False, ["0 0 BeginStep", "0 60 EndStep", "0 60 Drain"]),
        (
            plan(10.0, 10.0),
            False,
            ["0 0 BeginStep", "0 10 EndWarmup", "0 60 EndStep",
             "1 0 BeginStep", "1 10 EndWarmup", "1 60 EndStep", "1 60 Drain"],
        ),
        (
            plan(0.0, 0.0),
            True,
            ["0 0 BeginStep", "0 60 EndStep", "0 60 Drain", "1 0 BeginStep", "1 60 EndStep", "1 60 Drain"],
        ),
        (
            plan(0.0, background=(NOISE, NOISE)),
            False,
            ["0 0 BeginBackground", "0 0 BeginBackground", "0 0 BeginStep", "0 60 EndStep", "0 60 Drain",
             "0 inf EndBackground", "0 inf EndBackground"],
        ),
        (
            plan(0.0, 0.0, background=(replace(NOISE, start_s=-30.0, stop_s=90.0),)),
            False,
            ["0 -30 BeginBackground", "0 0 BeginStep", "0 60 EndStep", "1 0 BeginStep", "1 30 EndBackground",
             "1 60 EndStep", "1 60 Drain", "1 inf EndBackground"],
        ),
        (
            plan(0.0, 0.0, background=(replace(NOISE, start_s=10.0, steps=OWN_STEPS),)),
            False,
            ["0 0 BeginStep", "0 10 BeginBackground", "0 50 BeginBackgroundStep", "0 60 EndStep",
             "1 0 BeginStep", "1 30 BeginBackgroundStep", "1 60 EndStep", "1 60 Drain", "1 inf EndBackground"],
        ),
        (
            plan(0.0, background=(replace(NOISE, start_s=60.0), replace(NOISE, stop_s=60.0, steps=OWN_STEPS))),
            False,
            ["0 0 BeginBackground", "0 0 BeginStep", "0 40 BeginBackgroundStep", "0 60 EndStep", "0 60 Drain",
             "0 inf EndBackground", "0 inf EndBackground"],
        ),
    ],
    ids=["one step", "live steps", "isolated steps", "background", "background ahead",
         "background with own steps", "background beyond the end"],
)  # fmt: skip
def test_the_timeline_of_a_plan(made: Plan, isolated: bool, expected: list[str]) -> None:
    assert drawn(timeline(made, isolated=isolated)) == expected


def test_a_step_without_end_still_has_one() -> None:
    """It ends when the user stops it, or when all clients have stopped by themselves."""
    endless = Step(number=1, label="", settings=Settings(), duration_s=math.inf, warmup_s=0.0)
    assert drawn(timeline(plan(0.0).changed(steps=(endless,)), isolated=False))[1:] == ["0 inf EndStep", "0 inf Drain"]


@dataclass(frozen=True, slots=True)
class KillNode(Action):
    """A kind of action that production does not have."""

    node: str


def test_further_actions_stand_at_their_time_and_after_those_of_the_plan() -> None:
    more = [Moment(1, 30.0, KillNode("b")), Moment(0, 60.0, KillNode("a"))]
    found = with_more(timeline(plan(0.0, 0.0), isolated=False), more)
    assert drawn(found) == [
        *("0 0 BeginStep", "0 60 EndStep", "0 60 KillNode"),
        *("1 0 BeginStep", "1 30 KillNode", "1 60 EndStep", "1 60 Drain"),
    ]
    assert found[0].action == BeginStep(0)
