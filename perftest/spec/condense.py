"""From a plan back to a workload file, as a person would write it: the inverse of :mod:`perftest.spec.expand`.

Most values with their default are left out; the settings of the load that every reader looks for are always there.
A plan can say more than a file: :func:`inexpressible` names such values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from perftest.spec.behaviour import Connecting
from perftest.spec.fields import Quantity, by_key, field_of, key_of, quantity_of
from perftest.spec.models import SCHEMA_VERSION
from perftest.spec.plan import Group, Isolation, Plan, QueueSpec, Settings, Step
from perftest.spec.sweep import in_order
from perftest.spec.units import WORDS, UnitError, parse_duration_s

ALWAYS: Final = ("in_flight", "prefetch", "ack_interval", "size", "publishers", "consumers")
"""Keys of the load that are always written."""

_WITH_SETTINGS: Final = ("load", "background", "groups", "sweep", "values", "steps", "set")
"""Keys of a workload file with settings below them."""

_NAMELESS: Final = frozenset({"persistent", "mandatory"})
"""Settings that no sweep can change."""


def inexpressible(plan: Plan) -> Iterator[tuple[str, str]]:
    """Values of a plan that no workload file can have: the place of each, and the reason."""
    if not plan.queues or not plan.steps:
        yield "steps", "a workload has at least one queue and one step"
        return
    if plan.load.name or not all(group.name for group in plan.groups[1:]):
        yield "groups", "the first load of a workload has no name, and all others have one"
    if any(not _is_beside(group, plan.steps) for group in plan.measured[1:]):
        yield "groups", "a measured group has the steps of the first, and the same settings in all of them"
    if not math.isfinite(plan.steps[0].duration_s):
        yield "steps.duration_s", "a step of a workload ends"
    if not math.isfinite(plan.confirm_timeout_s):
        yield "confirm_timeout_s", "a confirm is not waited for without end"
    if plan.connecting.shutdown_timeout_s < 0:
        yield "connecting.shutdown_timeout_s", "0 says that nothing is closed in good order"
    if plan.declare_missing:
        yield "declare_missing", "what is predeclared has to be there"
    if not plan.delete_queues:
        yield "delete_queues", "a workload's queues are deleted after it"
    if len({(step.duration_s, step.warmup_s) for step in plan.steps}) > 1:
        yield "steps.duration_s", "all steps of a workload last equally long"
    if len({_rest(step.settings, plan.swept) for step in plan.steps}) > 1:
        yield "steps.settings", "settings differ between steps that are not among those swept"
    if _NAMELESS & {*plan.swept}:
        yield "swept", "these cannot be swept by a workload"
    if not plan.swept and (len(plan.steps) > 1 or plan.isolation is not Isolation.LIVE):
        yield "steps", "a workload without a sweep has one step"


def _is_beside(group: Group, steps: tuple[Step, ...]) -> bool:
    """Whether a file can spell a measured group as the steps of the first group with settings of its own."""
    own = group.steps[0].settings if group.steps else Settings()
    as_written = (tuple(replace(step, settings=own) for step in steps), 0.0, math.inf)
    return (group.steps, group.start_s, group.stop_s) == as_written


def workload_of(plan: Plan) -> dict[str, Any]:
    """The content of a workload file that expands to this plan, without the addresses.

    Raises ValueError for a plan with an :func:`inexpressible` value.
    """
    for place, reason in inexpressible(plan):
        raise ValueError(f"{place}: {reason}")
    step = plan.steps[0]
    swept = {key_of(Settings, field) for field in plan.swept}
    found: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "name": plan.name,
        "title": plan.title,
        "source": plan.source,
        "source_title": plan.source_title,
        "queues": [_queue(queue) for queue in plan.queues],
        "load": _load(step.settings, swept),
        "exchange": _deviations(plan.exchange),
        "publishing": _deviations(plan.publishing),
        "consuming": _deviations(plan.consuming),
        "connecting": _connecting(plan.connecting),
        "background": [_background(each) for each in plan.background],
        "groups": [{**_background(each), "measured": True} for each in plan.measured[1:]],
        "cluster": _deviations(plan.cluster),
        "timeline": [_deviations(each) | {"do": each.do.value} for each in plan.timeline],
        "sweep": _sweep(plan),
        "published": [_deviations(each) for each in plan.published],
        "findings": [{"trend": each.trend.value} | _deviations(each) for each in plan.findings],
        "slo": list(plan.objectives),
        "step": _timing(step, plan.drain_s),
        "interval": duration(plan.interval_s) if plan.interval_s != 1.0 else None,
        "confirm_timeout": duration(plan.confirm_timeout_s) if plan.confirm_timeout_s != 30.0 else None,
        "workers": plan.workers or None,
        "seed": plan.seed if plan.seed != 1 else None,
    }
    return {key: value for key, value in found.items() if value not in ("", None, {}, [])}


def spelled(content: Any, key: str = "") -> Any:
    """The content of a workload file made of numbers, such as another tool's workload, with words for the settings that
    have words. ``key`` is the key of a value within the content."""
    if isinstance(content, list):
        return [spelled(each, key) for each in content]
    if not isinstance(content, Mapping):
        return WORDS[key].get(content, content) if key in WORDS and isinstance(content, int) else content
    keys = {name: content.get("setting", "") if name == "values" else name for name in content}
    return {
        name: spelled(each, keys[name]) if name in _WITH_SETTINGS or not isinstance(each, dict | list) else each
        for name, each in content.items()
    }


def duration(seconds: float) -> str | float:
    """``5m``, ``90s``, ``250ms``: the reading that is short and exact; otherwise the number of seconds."""
    for unit, factor in (("h", 1 / 3600), ("m", 1 / 60), ("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        amount = seconds * factor
        if amount >= 1 and amount == round(amount) and _exactly(f"{round(amount)}{unit}", seconds):
            return f"{round(amount)}{unit}"
    return seconds


def _exactly(text: str, seconds: float) -> bool:
    try:
        return parse_duration_s(text) == seconds
    except UnitError:
        return False


def _rest(settings: Settings, swept: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(settings, field.name) for field in fields(settings) if field.name not in swept)


def written(setting: str, value: Any) -> Any:
    """The value of a field of :class:`~perftest.spec.plan.Settings`, as a file has it."""
    quantity = quantity_of(Settings, field_of(Settings, setting))
    return value if quantity is None else _shown(quantity, value)


def _shown(quantity: Quantity, value: Any) -> Any:
    """A quantity as a file has it: a word, a time with its unit, or a number, without its point if it is whole."""
    if value in quantity.words:
        return quantity.words[value]
    if quantity.per_second:
        return duration(value / quantity.per_second) if value else 0
    return int(value) if value == int(value) else value


def _load(settings: Settings, swept: set[str]) -> dict[str, Any]:
    found, usual = by_key(settings, _shown), by_key(Settings(), _shown)
    return {key: value for key, value in found.items() if key not in swept and (key in ALWAYS or value != usual[key])}


def _deviations(part: Any) -> dict[str, Any]:
    """The fields of a part of the plan whose values differ from their defaults."""
    return by_key(part, _shown, all_fields=False)


def _queue(queue: QueueSpec) -> dict[str, Any]:
    return {"name": queue.name, "type": queue.type.value} | _deviations(queue)


def _connecting(connecting: Connecting) -> dict[str, Any]:
    found = _deviations(connecting)
    if "recovery" in found:
        found["recovery"] = found.pop("recovery")  # stands behind the other keys
    return found


def _background(load: Group) -> dict[str, Any]:
    found = {
        "name": load.name,
        "queues": [_queue(queue) for queue in load.queues],
        "load": _load(load.steps[0].settings, set()),
        "exchange": _deviations(load.exchange),
        "publishing": _deviations(load.publishing),
        "consuming": _deviations(load.consuming),
        "ahead": duration(-load.start_s) if load.start_s < 0 else None,
        "start": duration(load.start_s) if load.start_s > 0 else None,
        "stop": duration(load.stop_s) if math.isfinite(load.stop_s) else None,
        "steps": [_own_step(step, load.steps[0].settings) for step in load.steps] if load.has_own_steps else [],
        "workers": load.workers,
    }
    return {key: value for key, value in found.items() if value}


def _own_step(step: Step, load: Settings) -> dict[str, Any]:
    """A step of a background load, as what differs from the first. The last one has no end of its own."""
    names = [each.name for each in fields(Settings) if getattr(step.settings, each.name) != getattr(load, each.name)]
    length_s = step.duration_s if math.isfinite(step.duration_s) else 1.0
    return {"set": _point(step.settings, tuple(names)), "duration": duration(length_s)}


def _sweep(plan: Plan) -> dict[str, Any]:
    """One setting by its values, several settings by steps: the plan does not tell what the grid was."""
    if not plan.swept:
        return {}
    steps = sorted(plan.steps, key=lambda step: step.number)
    points = [_point(step.settings, plan.swept) for step in steps]
    found: dict[str, Any] = {"steps": points}
    if len(plan.swept) == 1:
        (setting,) = points[0]
        found = {"setting": setting, "values": [point[setting] for point in points]}
    found["mode"] = plan.isolation.value
    if steps != list(plan.steps):
        if in_order(steps, "random", plan.seed) != list(plan.steps):
            raise ValueError("steps: neither in the order of their numbers nor in that of the seed")
        found["order"] = "random"
    return found


def _point(settings: Settings, swept: tuple[str, ...]) -> dict[str, Any]:
    keys = {key_of(Settings, field): getattr(settings, field) for field in swept}
    return {key: written(key, value) for key, value in keys.items()}


def _timing(step: Step, drain_s: float) -> dict[str, Any]:
    found = {"duration": duration(step.duration_s)}
    if step.warmup_s:
        found["warmup"] = duration(step.warmup_s)
    if drain_s != 10.0:
        found["drain"] = duration(drain_s)
    return found
