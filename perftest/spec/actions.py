"""The rules for actions of a timeline, and how an action is typed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from perftest.spec import link_actions
from perftest.spec.fields import field_of
from perftest.spec.timed_action import KILLED, LEADER, ON_DRIVES, ON_HOSTS, ON_LINKS, PAUSED, Do, TimedAction
from perftest.spec.units import UnitError, parse_count, parse_duration_s

_BELONGS: Final = {
    "drive": ON_DRIVES,
    "factor": {Do.SLOW},
    "profile": {Do.PROFILE},
    "peer": ON_LINKS,
    "one_way": ON_LINKS,
    "latency": {Do.LATENCY},
    "loss": {Do.LOSS},
    "bandwidth": {Do.BANDWIDTH},
}
"""Keys of some actions only."""

FACTORS: Final = (0.01, 1e6)
"""The least and the most by which a drive can be slowed."""
_TYPED: Final = "write TIME ACTION [NODE] [step N], such as '30s kill leader' or '35s restart killed'"


class Places(NamedTuple):
    """The places of actions: names of nodes, of the modelled drives that each node has, of profiles of drives, and of
    hosts; and why there are no drives and no hosts."""

    nodes: Collection[str]
    drives: Collection[str] = ()
    profiles: Collection[str] = ()
    no_drives: str = "this cluster has none"
    hosts: Collection[str] = ()
    no_hosts: str = "all of this run is on one machine"


def parse_action(text: str) -> TimedAction:
    """``30s kill leader``, ``30s kill``, ``30s kill node2 step 3`` or ``30s slow leader d1 4``, as an action. Raises
    :class:`UnitError`."""
    words = text.split()
    step = 0
    if len(words) > 2 and words[-2] == "step":
        step = parse_count(words[-1])
        if step < 1:
            raise UnitError(f"steps are counted from 1, and {text!r} names step {step}", _TYPED)
        words = words[:-2]
    if len(words) < 2:
        raise UnitError(f"{text!r} is not a time and an action", _TYPED)
    time, do, *rest = words
    if do not in {*Do}:
        raise UnitError(f"{do!r} is no action", f"use one of {', '.join(Do)}")
    return TimedAction(at_s=parse_duration_s(time), do=Do(do), step=step, **_details(text, Do(do), rest))


def _details(text: str, do: Do, words: Sequence[str]) -> dict[str, Any]:
    """The target of an action, and its value. Raises :class:`UnitError`."""
    if do in ON_LINKS:
        return link_actions.details(text, do, words)
    value = {Do.SLOW: "factor", Do.PROFILE: "profile"}.get(do)
    keys = [key for key in ("node", "drive" if do in ON_DRIVES else None, value) if key]
    if len(words) > len(keys) or (do in ON_DRIVES and len(words) < len(keys)):
        fix = f"write TIME {do} {' '.join(key.upper() for key in keys)}" if do in ON_DRIVES else _TYPED
        raise UnitError(f"{text!r} is not a time and an action", fix)
    details: dict[str, Any] = dict(zip(keys, words, strict=False))
    if "factor" in details:
        details["factor"] = _number(details["factor"])
    return details


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UnitError(f"{word!r} is no factor", "write a number: 4 makes a drive four times as slow") from None


class ActionFault(NamedTuple):
    """A broken rule of an action: its place in the list, the key to change, the rule and the fix."""

    place: int
    key: str
    rule: str
    fix: str


def faults(
    actions: Sequence[TimedAction], durations_s: Sequence[float], places: Places | None
) -> Iterator[ActionFault]:
    """The rules that a timeline breaks.

    :param durations_s: of the steps, by their numbers
    :param places: the local cluster's places; None: there is no cluster, or it is not known yet
    """
    for index, action in enumerate(actions):
        yield from _of_time(index, action, durations_s)
        yield from _of_keys(index, action)
        yield from _of_drive(index, action, places)
        yield from _of_hosts(index, action, places)
        yield from _of_node(index, action, places)
    yield from _of_order(actions, durations_s)


def _of_keys(index: int, action: TimedAction) -> Iterator[ActionFault]:
    """Keys that belong to other actions."""
    for key, belongs in _BELONGS.items():
        name = field_of(TimedAction, key)
        if action.do not in belongs and getattr(action, name) != TimedAction.__dataclass_fields__[name].default:
            yield ActionFault(index, key, f"{action.do} takes no {key}", f"leave out {key}")


def _of_node(index: int, action: TimedAction, places: Places | None) -> Iterator[ActionFault]:
    if action.do in (Do.TRANSFER_LEADER, Do.ADD_MEMBER) and action.node == LEADER:
        yield ActionFault(index, "node", f"{action.do} needs a node that does not lead", "name the node")
        return
    if places is None or (action.do in ON_HOSTS | ON_LINKS and not places.hosts):
        return
    of_host = action.do in ON_HOSTS | ON_LINKS
    names = places.hosts if of_host else places.nodes
    words = [LEADER] if places.nodes else []
    words += [] if of_host else [KILLED, PAUSED]
    words += [PAUSED] if action.do is Do.RESUME_HOST else []
    if action.node not in {*words, *names} and not (action.do is Do.RECONNECT and action.node == LEADER):
        what = "host" if of_host else "node"
        known = ", ".join([*words[:1], *sorted(names)])
        yield ActionFault(index, "node", f"there is no {what} {action.node!r}", f"use one of {known}")


def _of_hosts(index: int, action: TimedAction, places: Places | None) -> Iterator[ActionFault]:
    """Actions on hosts and their links need hosts."""
    if action.do in ON_LINKS:
        hosts = places.hosts if places is not None else None
        for found in link_actions.rules(action, hosts, places.no_hosts if places is not None else ""):
            yield ActionFault(index, *found)
    elif action.do in ON_HOSTS and places is not None and not places.hosts:
        fix = "run the workload over hosts (perftest remote run), or act on a node"
        yield ActionFault(index, "do", f"{action.do} is for a host, and {places.no_hosts}", fix)


def _of_drive(index: int, action: TimedAction, places: Places | None) -> Iterator[ActionFault]:
    """The drive of an action and what shall become of the drive."""
    do = action.do
    if do not in ON_DRIVES:
        return
    if action.node in (KILLED, PAUSED) and do not in (Do.FAIL, Do.HEAL):
        yield ActionFault(index, "node", f"{do} is for a node that runs", "name a node, or leader")
    if places is not None and not places.drives:
        fix = "give the cluster modelled drives (--layout), or act on a node: kill, pause, transfer-leader"
        yield ActionFault(index, "do", f"{do} is for a modelled drive, and {places.no_drives}", fix)
    elif not action.drive:
        yield ActionFault(index, "drive", f"{do} needs a drive", "name a modelled drive of the cluster's layout")
    elif places is not None and action.drive not in places.drives:
        known = ", ".join(places.drives)
        yield ActionFault(index, "drive", f"there is no modelled drive {action.drive!r}", f"use one of {known}")
    least, most = FACTORS
    if do is Do.SLOW and not least <= action.factor <= most:  # not a number is refused, too
        fix = f"use a number from {least:g} to {most:,.0f}"
        yield ActionFault(index, "factor", f"a drive cannot be {action.factor:g} times as slow", fix)
    if do is Do.PROFILE and (not action.profile or (places is not None and action.profile not in places.profiles)):
        known = ", ".join(places.profiles) if places is not None else "hdd7200, nvme, ..."
        yield ActionFault(index, "profile", f"there is no profile {action.profile!r}", f"use one of {known}")


def run_time_s(action: TimedAction, durations_s: Sequence[float]) -> float:
    """The time of an action since the measured load began; of an unknown step, infinity."""
    if not 0 <= action.step <= len(durations_s):
        return float("inf")
    return action.at_s + sum(durations_s[: max(action.step - 1, 0)])


def _of_time(index: int, action: TimedAction, durations_s: Sequence[float]) -> Iterator[ActionFault]:
    if action.step > len(durations_s):
        yield ActionFault(
            index, "step", f"there is no step {action.step}", f"use a number from 1 to {len(durations_s)}"
        )
        return
    end_s = durations_s[action.step - 1] if action.step else sum(durations_s)
    if action.at_s >= end_s:
        what = f"step {action.step}" if action.step else "the run"
        yield ActionFault(index, "at", f"{what} is over after {end_s:g} s", f"use less than {end_s:g}s")


def _of_order(actions: Sequence[TimedAction], durations_s: Sequence[float]) -> Iterator[ActionFault]:
    """Play the timeline: only what was killed can be restarted, and only what was paused can be resumed."""
    killed: list[str] = []
    paused: list[str] = []
    hosts: list[str] = []
    played = sorted(range(len(actions)), key=lambda index: run_time_s(actions[index], durations_s))
    for index in played:
        action = actions[index]
        if action.do in (Do.KILL, Do.FAIL, Do.KILL_HOST):
            yield from _unless_runs(index, action, killed, paused)
            killed.append(action.node)
        elif action.do is Do.PAUSE:
            yield from _unless_runs(index, action, killed, paused)
            paused.append(action.node)
        elif action.do in (Do.RESTART, Do.HEAL):
            yield from _undo(index, action, killed, KILLED, str(action.do))
        elif action.do is Do.RESUME:
            yield from _undo(index, action, paused, PAUSED, "resume")
        elif action.do is Do.PAUSE_HOST:
            hosts.append(action.node)
        elif action.do is Do.RESUME_HOST:
            yield from _undo(index, action, hosts, PAUSED, "resume")


def _unless_runs(index: int, action: TimedAction, killed: list[str], paused: list[str]) -> Iterator[ActionFault]:
    if action.node in (KILLED, PAUSED):
        yield ActionFault(index, "node", f"{action.do} is for a node that runs", "name a node, or leader")
    for nodes, word, back in ((killed, KILLED, "restart"), (paused, PAUSED, "resume")):
        if action.node in nodes and action.node != LEADER:
            yield ActionFault(
                index, "node", f"{action.node} is {word} already", f"{back} it before, or act on another node"
            )


def _undo(index: int, action: TimedAction, nodes: list[str], word: str, verb: str) -> Iterator[ActionFault]:
    """Take a node off the list of killed or paused nodes."""
    if action.node == word and nodes:
        nodes.pop()
    elif action.node in nodes and action.node != LEADER:
        nodes.remove(action.node)
    elif LEADER in nodes and action.node not in (LEADER, KILLED, PAUSED):
        nodes.remove(LEADER)  # the leader of that moment may have been this node
    else:
        fix = f"use {word} for the node that was {word} last, after an action that does so"
        yield ActionFault(index, "node", f"nothing to {verb}: {action.node} was not {word} before", fix)
