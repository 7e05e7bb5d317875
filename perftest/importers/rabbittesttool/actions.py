"""Converts the actions of queues: lists of fills, drains and purges, which the tool runs beside the load.

``orderedActions`` hold for each queue of a prefix, and run once or for ever. A *fill* publishes some messages to the
queue, with confirms and at most 1000 of them in flight. A *drain* consumes until no message has come for some seconds.
A *purge* deletes all messages. Each action may begin after a delay.

A list becomes a load of its own, with a publisher and a consumer for each queue, in one of two forms:

- *once*: publishers stop after their messages, and consumers begin when the fill is over. The number of messages is
  exact. This form is for the measured load, and for a list that fills and drains once.
- *in steps*: a background load with a step for each action, again and again up to the end of the run. A step is over
  by time, so a fill has the rate at which it ends with its number of messages.

Nothing purges a queue during a run, so a list ends before its first purge. Queues with publishers or consumers of their
own are left to these: messages of another load would make the figures of the first invalid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from perftest.importers.section import SourceSection, nearest
from perftest.importers.write import plain_number
from perftest.spec.condense import duration

FILL_RATE: Final = 10_000
"""Messages per second that all queues together are taken to take, and to give away, where the tool has no limit."""
STEPS_MAX: Final = 400
"""The most steps of a load; after them the load goes on as in its last step."""
_WINDOW: Final = 1000
_KINDS: Final = ("fill", "drain", "purge")
_MODES: Final = {"synchronized": "", "all-at-once": "", "staggered": "yes"}
_TIMES: Final = {"execute-once": "", "repeat-forever": "yes"}
_INSTEAD: Final = {
    "fill": "let consumers begin later, with consuming.start_delay, to have a backlog",
    "drain": "raise consumers, or sweep them",
    "purge": "start another run: every run begins with empty queues",
}
"""Advice for an action on queues with clients of their own."""


@dataclass(frozen=True, slots=True)
class TopologyAction:
    """A fill or a drain of each queue, ``delay_s`` after the end of the action before."""

    source: SourceSection
    kind: str
    delay_s: float
    count: int = 0
    size: int = 0
    rate: float = 0.0
    quiet_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of queues with one prefix, in their order."""

    source: SourceSection
    queues: int
    repeats: bool
    staggered: bool
    delay_s: float
    listed: list[TopologyAction]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the actions."""
        return [action.kind for action in self.listed]

    @property
    def is_one_fill(self) -> bool:
        """Whether the list only fills the queues, once."""
        return self.kinds == ["fill"] and not self.repeats

    @property
    def is_one_pass(self) -> bool:
        """Whether the list fills once, and drains at most once after that."""
        return not self.repeats and self.kinds in (["fill"], ["fill", "drain"])

    def fill_s(self, fill: TopologyAction) -> float:
        """Duration of a fill. Without a rate it counts as a fill of all queues together at FILL_RATE."""
        return fill.count / (fill.rate or FILL_RATE / self.queues)


def actions_of(source: SourceSection, queues: int) -> Actions | None:
    """Read the actions of a group with ``queues`` queues; None if there are none."""
    if not source.data:
        return None
    repeats = bool(source.choice("executeCount", default="execute-once", known=_TIMES))
    staggered, delay_s = bool(source.choice("executeMode", default="synchronized", known=_MODES)), _delay(source)
    read = [action for each in source.sections("orderedActions") if (action := _action(each)) is not None]
    source.finish()
    return Actions(source, queues, repeats, staggered, delay_s, read) if read else None


def _action(source: SourceSection) -> TopologyAction | None:
    kind = source.text("type").lower()
    delay_s = _delay(source)
    if kind == "fill":
        count, size = _needed(source, "messageCount"), source.body_size("messageSize", _needed(source, "messageSize"))
        found = TopologyAction(source, kind, delay_s, max(count, 1), size, source.number("publishRate"))
    elif kind in ("drain", "purge"):
        found = TopologyAction(
            source, kind, delay_s, quiet_s=_needed(source, "thresholdSeconds") if kind == "drain" else 0
        )
    else:
        near = nearest(kind, _KINDS)
        fix = f"did you mean {near!r}?" if near else f"write {', '.join(_KINDS)}"
        source.wrong("type", f"{kind!r} is no action of {', '.join(_KINDS)}", fix)
        return None
    source.finish()
    return found


def _needed(source: SourceSection, key: str) -> int:
    if not source.has(key):
        source.wrong(key, f"the action has no {key}", f"write {key}")
    return source.count(key)


def _delay(source: SourceSection) -> float:
    """Seconds to wait: a number, or a range from which the tool draws one."""
    text = source.text("startDelaySeconds").strip()
    if not text:
        return 0.0
    try:
        bounds = [float(part) for part in text.split("-")]
    except ValueError:
        bounds = []
    if len(bounds) not in (1, 2) or not all(0 <= bound < 1e9 for bound in bounds):
        source.wrong("startDelaySeconds", f"{text[:40]!r} is no time in seconds", "write one such as 5 or 5-10")
        return 0.0
    middle = sum(bounds) / len(bounds)
    if len(bounds) == 2:
        source.different("startDelaySeconds", f"the delay is {middle:g} s, not a random one of {text} s")
    return middle


def playable(found: Actions) -> Actions | None:
    """The actions before the first purge, of queues without another publisher; None if none of them fills the queues. A
    purge of fresh queues does nothing, unless it comes again."""
    listed: list[TopologyAction] = []
    for action in found.listed:
        if action.kind == "purge" and (listed or found.repeats):
            what = "nothing purges queues during a run: the list ends here, and does not begin again"
            fix = "write a drain in its place, or delete /api/queues/VHOST/QUEUE/contents by HTTP at that time"
            action.source.without("type", what, fix)
            return replace(found, repeats=False, listed=listed) if listed else None
        if action.kind == "drain" and "fill" not in [each.kind for each in listed]:
            action.source.without("type", "nothing was filled before, so there is nothing to drain", "put a fill first")
        elif action.kind != "purge":
            listed.append(action)
    return replace(found, listed=listed) if listed else None


def say_without(actions: Actions) -> None:
    """Note every action of queues that have publishers or consumers of their own."""
    for action in actions.listed:
        what = f"no {action.kind} beside the publishers and consumers of these queues: it would falsify their figures"
        action.source.without("type", what, _INSTEAD[action.kind])


# Once


def publishing_once(actions: Actions) -> tuple[dict[str, Any], dict[str, Any]]:
    """The load and the behaviour of the publishers that fill the queues."""
    fill, queues, delay_s = actions.listed[0], actions.queues, actions.delay_s
    if actions.staggered and queues > 1 and delay_s:
        what = f"all {queues} queues begin together, not {delay_s:g} s one after the other"
        actions.source.different("executeMode", what)
    load: dict[str, Any] = {"in_flight": _WINDOW, "size": fill.size, "persistent": True}
    if fill.rate:
        load["rate"] = plain_number(fill.rate)
    return load, {"messages": fill.count}


def consuming_once(actions: Actions) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The load and the behaviour of the consumers that drain the queues after the fill; None without a drain."""
    fill, *others = actions.listed
    drain = next((each for each in others if each.kind == "drain"), None)
    if drain is None:
        return None
    wait_s = float(round(actions.fill_s(fill) + drain.delay_s))
    if not fill.rate:
        what = f"consumers begin after {wait_s:g} s, as if all queues together were filled at {FILL_RATE:,} msg/s"
        drain.source.different("type", what, "set consuming.start_delay to the time that the fill takes")
    if drain.quiet_s != 1:
        what = f"consumers leave after a second without a message, not after {drain.quiet_s:g} s"
        drain.source.different("thresholdSeconds", what)
    start = {"start_delay": duration(wait_s)} if wait_s else {}
    return {"prefetch": _WINDOW, "ack_interval": 1}, {**start, "exit_when": "idle"}


def say_once(actions: Actions) -> None:
    """Note the parts of a list that the measured load leaves out: delays, rounds, and actions after the first drain."""
    first, *others = actions.listed
    if actions.delay_s + first.delay_s:
        first.source.different("startDelaySeconds", "the measured load begins at once")
    if actions.repeats:
        what = "the measured load runs the list once"
        actions.source.without("executeCount", what, "`perftest sweep FILE --repeats N`")
    done = next((at for at, each in enumerate(others, start=1) if each.kind == "drain"), 0)
    for at, action in enumerate(others, start=1):
        if at != done:
            what = "the measured load fills its queues once and drains them once"
            action.source.without("type", what, "run the workload again, or write groups: by hand")


# In steps


def load_in_steps(actions: Actions) -> dict[str, Any]:
    """The settings that the steps of a background load change."""
    load, _ = publishing_once(actions)
    del load["persistent"]
    return {**load, "prefetch": _WINDOW, "publishers": actions.queues, "consumers": 0}


def steps_of(actions: Actions, run_s: float) -> list[dict[str, Any]]:
    """The steps of a background load, for a run of this length."""
    _say_what_is_taken(actions)
    steps: list[dict[str, Any]] = []
    past_s = 0.0
    for settings, length_s in _rounds(actions):
        if past_s >= run_s:
            break
        past_s += length_s
        if steps and steps[-1]["set"] == settings:
            steps[-1]["duration"] += length_s
        elif len(steps) < STEPS_MAX:
            steps.append({"set": settings, "duration": length_s})
        else:
            what = f"the load stays as it is after {STEPS_MAX} actions and pauses, in {past_s - length_s:g} s"
            actions.source.different("executeCount", what, "write more steps by hand")
            break
    return [{**step, "duration": duration(round(step["duration"], 3))} for step in steps]


def _rounds(actions: Actions) -> Iterator[tuple[dict[str, Any], float]]:
    """The settings of each step and its length, in as many rounds as the reader takes."""
    if actions.delay_s:
        yield {"consumers": 0, "rate": 0}, actions.delay_s
    while True:
        for action in actions.listed:
            if action.delay_s:
                yield {"consumers": 0, "rate": 0}, action.delay_s
            yield _step(actions, action)
        if not actions.repeats:
            yield {"consumers": 0, "rate": 0}, 1.0
            return


def _step(actions: Actions, action: TopologyAction) -> tuple[dict[str, Any], float]:
    if action.kind == "drain":
        return {"consumers": actions.queues, "rate": 0}, drain_s(actions, action)
    length_s = fill_step_s(actions, action)
    sizes = {each.size for each in actions.listed if each.kind == "fill"}
    size = {"size": action.size} if len(sizes) > 1 else {}
    return {"consumers": 0, "rate": plain_number(round(action.count / length_s, 3)), **size}, length_s


def fill_step_s(actions: Actions, fill: TopologyAction) -> float:
    """The length of the step of a fill. Without a rate these are whole seconds."""
    length_s = actions.fill_s(fill)
    return max(round(length_s, 3) if fill.rate else math.ceil(length_s), 1.0)


def drain_s(actions: Actions, drain: TopologyAction) -> float:
    """The length of the step of a drain, in whole seconds: its quiet time, after all messages at FILL_RATE."""
    count = sum(each.count for each in actions.listed[: actions.listed.index(drain)])
    return max(math.ceil(count * actions.queues / FILL_RATE + drain.quiet_s), 1.0)


def _say_what_is_taken(actions: Actions) -> None:
    """Note the times that the source does not tell."""
    for action in actions.listed:
        if action.kind == "drain":
            what = f"a drain takes {drain_s(actions, action):g} s: thresholdSeconds, after all messages"
            action.source.different("type", f"{what} at {FILL_RATE:,} msg/s", "change the duration of its steps")
        elif not action.rate:
            what = f"a fill takes {fill_step_s(actions, action):g} s, for all queues together at {FILL_RATE:,} msg/s"
            action.source.different("type", what, "write a publishRate, or change the steps")
