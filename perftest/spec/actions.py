"""Actions on the broker in the middle of a run, and the rules for them: pure values, which the command carries out.

``at`` counts from the first step of the measured load, or from the step that ``step`` names. A node is a name, or a
word for a node that is known only at that moment: ``leader`` (of the first queue of the measured load), ``killed`` and
``paused`` (the node that was killed or paused last).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from perftest.spec.fields import Count, Longest, Seconds
from perftest.spec.units import UnitError, parse_count, parse_duration_s


class Do(StrEnum):
    """What an action does."""

    KILL = "kill"
    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"
    TRANSFER_LEADER = "transfer-leader"
    ADD_MEMBER = "add-member"
    REMOVE_MEMBER = "remove-member"
    SLOW = "slow"
    PROFILE = "profile"
    FILL = "fill"
    FREE = "free"
    FAIL = "fail"
    HEAL = "heal"


ON_DRIVES: Final = frozenset({Do.SLOW, Do.PROFILE, Do.FILL, Do.FREE, Do.FAIL, Do.HEAL})
"""Actions on a drive, which takes a drive that is modelled."""

LEADER, KILLED, PAUSED = "leader", "killed", "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAction:
    """An action of the timeline."""

    at_s: Annotated[Seconds, "time since the measured load began, or since the step began"]
    do: Do
    node: Annotated[str, Longest(100), "a node by name, or: leader, killed, paused"] = LEADER
    step: Annotated[Count, "number of the step that the time counts from; 0: of the run"] = 0


def parse_action(text: str) -> TimedAction:
    """``30s kill leader``, ``30s kill`` or ``30s kill node2 step 3``, as an action. Raises :class:`UnitError`."""
    fix = "write TIME ACTION [NODE] [step N], such as '30s kill leader' or '35s restart killed'"
    words = text.split()
    step = 0
    if len(words) > 2 and words[-2] == "step":
        step = parse_count(words[-1])
        if step < 1:
            raise UnitError(f"steps are counted from 1, and {text!r} names step {step}", fix)
        words = words[:-2]
    if not 2 <= len(words) <= 3:
        raise UnitError(f"{text!r} is not a time and an action", fix)
    if words[1] not in {*Do}:
        known = ", ".join(do for do in Do if do not in ON_DRIVES)
        raise UnitError(f"{words[1]!r} is no action", f"use one of {known}")
    node = words[2] if len(words) == 3 else LEADER
    return TimedAction(at_s=parse_duration_s(words[0]), do=Do(words[1]), node=node, step=step)


class Fault(NamedTuple):
    """A broken rule of an action: its place in the list, the key to change, the rule and the fix."""

    place: int
    key: str
    rule: str
    fix: str


def faults(
    actions: Sequence[TimedAction], durations_s: Sequence[float], nodes: Collection[str] | None
) -> Iterator[Fault]:
    """The rules that a timeline breaks.

    :param durations_s: of the steps, by their numbers
    :param nodes: the names of the nodes of the local cluster; None: there is none, or it is not known yet
    """
    for index, action in enumerate(actions):
        yield from _of_time(index, action, durations_s)
        if action.do in ON_DRIVES:
            fix = "leave it out, or act on a node: kill, pause, transfer-leader"
            yield Fault(index, "do", f"{action.do} is for a modelled drive, and no drive of this cluster is one", fix)
        elif action.do in (Do.TRANSFER_LEADER, Do.ADD_MEMBER) and action.node == LEADER:
            yield Fault(index, "node", f"{action.do} needs a node that does not lead", "name the node")
        elif nodes is not None and action.node not in (LEADER, KILLED, PAUSED, *nodes):
            known = ", ".join(sorted(nodes))
            yield Fault(index, "node", f"there is no node {action.node!r}", f"use leader, or one of {known}")
    yield from _of_order(actions, durations_s)


def run_time_s(action: TimedAction, durations_s: Sequence[float]) -> float:
    """The time of an action since the measured load began; of an unknown step, infinity."""
    if not 0 <= action.step <= len(durations_s):
        return float("inf")
    return action.at_s + sum(durations_s[: max(action.step - 1, 0)])


def _of_time(index: int, action: TimedAction, durations_s: Sequence[float]) -> Iterator[Fault]:
    if action.step > len(durations_s):
        yield Fault(index, "step", f"there is no step {action.step}", f"use a number from 1 to {len(durations_s)}")
        return
    end_s = durations_s[action.step - 1] if action.step else sum(durations_s)
    if action.at_s >= end_s:
        what = f"step {action.step}" if action.step else "the run"
        yield Fault(index, "at", f"{what} is over after {end_s:g} s", f"use less than {end_s:g}s")


def _of_order(actions: Sequence[TimedAction], durations_s: Sequence[float]) -> Iterator[Fault]:
    """Play the timeline: only what was killed can be restarted, and only what was paused can be resumed."""
    killed: list[str] = []
    paused: list[str] = []
    played = sorted(range(len(actions)), key=lambda index: run_time_s(actions[index], durations_s))
    for index in played:
        action = actions[index]
        if action.do is Do.KILL:
            yield from _unless_runs(index, action, killed, paused)
            killed.append(action.node)
        elif action.do is Do.PAUSE:
            yield from _unless_runs(index, action, killed, paused)
            paused.append(action.node)
        elif action.do is Do.RESTART:
            yield from _undo(index, action, killed, KILLED, "restart")
        elif action.do is Do.RESUME:
            yield from _undo(index, action, paused, PAUSED, "resume")


def _unless_runs(index: int, action: TimedAction, killed: list[str], paused: list[str]) -> Iterator[Fault]:
    if action.node in (KILLED, PAUSED):
        yield Fault(index, "node", f"{action.do} is for a node that runs", "name a node, or leader")
    for nodes, word, back in ((killed, KILLED, "restart"), (paused, PAUSED, "resume")):
        if action.node in nodes and action.node != LEADER:
            yield Fault(index, "node", f"{action.node} is {word} already", f"{back} it before, or act on another node")


def _undo(index: int, action: TimedAction, nodes: list[str], word: str, verb: str) -> Iterator[Fault]:
    """Take a node off the list of those that were killed or paused."""
    if action.node == word and nodes:
        nodes.pop()
    elif action.node in nodes and action.node != LEADER:
        nodes.remove(action.node)
    elif LEADER in nodes and action.node not in (LEADER, KILLED, PAUSED):
        nodes.remove(LEADER)  # the leader of that moment may have been this node
    else:
        fix = f"use {word} for the node that was {word} last, after an action that does so"
        yield Fault(index, "node", f"nothing to {verb}: {action.node} was not {word} before", fix)
