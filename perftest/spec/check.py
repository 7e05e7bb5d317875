"""All problems of a workload file, or of a plan that was built from flags, at once.

Rules between the values of a plan are in :mod:`perftest.spec.rules`. The rules here are about the parts that only a
file has (keys given twice, sweeps) and about times. Both name the place to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Final

from perftest.spec.actions import faults
from perftest.spec.behaviour import Connecting, Consuming, Publishing
from perftest.spec.check_groups import check_groups, group_problems, unreadable_steps
from perftest.spec.cluster import faults as faults_of
from perftest.spec.expand import expand
from perftest.spec.expected.findings import broken_figure, broken_finding
from perftest.spec.expected.slo import parse_objective
from perftest.spec.fields import field_of, key_of
from perftest.spec.layout import Layout, broken_relations
from perftest.spec.load import Document
from perftest.spec.models import SCHEMA_VERSION, Timing, Workload
from perftest.spec.plan import Plan, Settings
from perftest.spec.problem import Location, Problem
from perftest.spec.rules import (
    PREFETCH_MAX,
    SIZE_BYTES_MAX,
    SIZE_BYTES_MIN,
    Broken,
    Naming,
    broken,
    broken_settings,
    too_few_consumers,
)
from perftest.spec.rules import (
    place as own_name,
)
from perftest.spec.sweep import (
    points,
    settings_swept,
    shape_problems,
    swept_value,
    value_problems,
)
from perftest.spec.timed_action import TimedAction
from perftest.spec.units import UnitError, format_duration

__all__ = ["PREFETCH_MAX", "SIZE_BYTES_MAX", "SIZE_BYTES_MIN", "broken_settings", "check", "check_plan"]

INTERVAL_S_MIN: Final = 0.1
INTERVAL_S_MAX: Final = 60.0

_PLACES: Final = {"autoack": "ack_interval: 0", "queues.auto_delete": "auto_delete"}
"""Places of rules that are no fields of the plan, as a workload file has them."""
_KEYS: Final = {
    each.name: key_of(part, each.name)
    for part in (Settings, Publishing, Consuming, Connecting)
    for each in fields(part)
}


def check(workload: Workload, document: Document) -> list[Problem]:
    """All broken relations of a workload; empty when it can be run."""
    problems = [*_queues(workload, document), *_timing(workload, document), *_sweep(workload, document)]
    unreadable = [*unreadable_steps(workload, document)]
    times = [*check_groups(workload, document)]
    if problems or unreadable:  # steps cannot be expanded from values that cannot be read
        return [*problems, *unreadable, *times]
    plan = expand(workload, ())
    first = plan.only(plan.load)
    problems = [_placed(found, workload, document, plan) for found in broken(first, _key)]
    problems += _timeline(workload, document)
    problems += [
        document.problem(("cluster", each.key), each.rule, each.fix, each.value) for each in faults_of(workload.cluster)
    ]
    if isinstance(layout := workload.cluster.layout, dict):
        part = document.part(("cluster", "layout"))
        problems += [part.problem(*each) for each in broken_relations(Layout.model_validate(layout))]
    problems += _objectives(workload, document)
    return [*problems, *times, *group_problems(plan, workload, document, _key), *_findings(plan, document)]


def _objectives(workload: Workload, document: Document) -> Iterator[Problem]:
    for number, text in enumerate(workload.slo):
        try:
            parse_objective(text)
        except UnitError as error:
            yield document.problem(("slo", number), error.rule, error.fix, text)


def _findings(plan: Plan, document: Document) -> Iterator[Problem]:
    """Broken rules of findings and of stated figures. A sweep that was changed for this run need not have their
    steps."""
    labels = [step.label for step in sorted(plan.steps, key=lambda step: step.number)]
    known = not any(place[0] == "sweep" for place in document.overrides)
    for number, finding in enumerate(plan.findings):
        for place, rule, fix, value in broken_finding(finding, labels, known=known):
            yield document.problem(("findings", number, *place), rule, fix, value)
    for number, stated in enumerate(plan.published):
        for place, rule, fix, value in broken_figure(stated, labels, known=known):
            yield document.problem(("published", number, *place), rule, fix, value)


def check_plan(plan: Plan, place: Callable[[str], str], name: Naming = own_name) -> list[Problem]:
    """The same rules for a plan that was built from flags. ``place`` gives the flag of a value, ``name`` its name
    within a sentence."""
    problems = [
        Problem(path="", value=value, rule=rule, fix=fix, file=place(field))
        for field, rule, fix, value in broken(plan, name)
    ]
    for step in plan.steps:
        if not 0 <= step.warmup_s < step.duration_s:
            rule, fix = _warmup_rule(step.warmup_s, step.duration_s), "make it shorter than the duration"
            problems.append(Problem(path="", value=step.warmup_s, rule=rule, fix=fix, file=place("warmup_s")))
    for rule, fix in _interval_rules(plan.interval_s):
        problems.append(Problem(path="", value=plan.interval_s, rule=rule, fix=fix, file=place("interval_s")))
    return problems


def _key(field: str) -> str:
    """The name that a field of the plan has in a workload file."""
    section, dot, last = field.rpartition(".")
    return _PLACES.get(field) or section + dot + _KEYS.get(last, last)


def _placed(found: Broken, workload: Workload, document: Document, plan: Plan) -> Problem:
    """A broken rule, with the line of the key to change."""
    name = _key(found.field)
    location: Location = tuple(name.split("."))
    if name == "queues":
        index = next((number for number, queue in enumerate(plan.queues) if queue.name == found.value), 0)
        location = ("queues", index, "name")
    elif len(location) == 1:
        location = _guilty(found, name, workload, plan) or ("load", name)
    return document.problem(location, found.rule, found.fix, found.value)


def _guilty(found: Broken, name: str, workload: Workload, plan: Plan) -> Location | None:
    """The place of the swept value that breaks a rule: the rule has this value, or names it in its text."""
    swept = settings_swept(workload.sweep)
    pair = {"prefetch": "ack_interval", "ack_interval": "prefetch"}.get(name, "")
    blamed = name if name in swept else pair if pair in swept else None
    if blamed is None or workload.sweep is None:
        return None
    written = points(workload.sweep)
    by_number = {step.number: getattr(step.settings, field_of(Settings, blamed)) for step in plan.steps}
    values = [by_number[number] for number in range(1, len(written) + 1)]
    fitting = [
        at
        for at, value in enumerate(values)
        if (value == found.value if blamed == name else f"({value})" in found.rule)
    ]
    return written[fitting[0] if fitting else 0][blamed].location


def _queues(workload: Workload, document: Document) -> Iterator[Problem]:
    names: set[str] = set()
    for number, queue in enumerate(workload.queues):
        if queue.name in names:
            rule = f"two queues are named {queue.name!r}"
            yield document.problem(("queues", number, "name"), rule, "give each its own name", queue.name)
        names.add(queue.name)
        if queue.type.is_replicated and not queue.durable:
            rule = f"a {queue.type} queue is always durable"
            yield document.problem(("queues", number, "durable"), rule, "remove durable: false", False)
        if "x-queue-type" in queue.arguments:
            location = ("queues", number, "arguments", "x-queue-type")
            yield document.problem(location, "the queue type is given twice", "use type: and remove this argument")
    yield from _starved(workload, document)


def _starved(workload: Workload, document: Document) -> Iterator[Problem]:
    """Too few consumers for the queues, in the load or in a step that changes their number."""
    queues, channels = len(workload.queues), workload.consuming.channels
    for location, consumers in _numbers_of_consumers(workload):
        if (found := too_few_consumers(queues, consumers=consumers, channels=channels)) is not None:
            yield document.problem(location, found.rule, found.fix, consumers)


def _numbers_of_consumers(workload: Workload) -> Iterator[tuple[Location, int]]:
    """Each number of consuming connections in the file, with its place."""
    swept = False
    for point in points(workload.sweep) if workload.sweep else []:
        if "consumers" in point:
            swept = True
            with suppress(UnitError):  # _sweep tells of it
                yield point["consumers"].location, int(swept_value("consumers", point["consumers"].value) or 0)
    if not swept:
        yield ("load", "consumers"), workload.load.consumers


def _timing(workload: Workload, document: Document) -> Iterator[Problem]:
    for key in ("step", "quick"):
        timing: Timing = getattr(workload, key)
        if timing.duration <= 0:
            yield document.problem((key, "duration"), "a step needs time", "use 4s or more", timing.duration)
        elif timing.warmup >= timing.duration:
            fix = f"use less than {format_duration(timing.duration)}"
            yield document.problem((key, "warmup"), _warmup_rule(timing.warmup, timing.duration), fix, timing.warmup)
    for rule, fix in _interval_rules(workload.interval):
        yield document.problem(("interval",), rule, fix, workload.interval)
    assert workload.version == SCHEMA_VERSION


def _timeline(workload: Workload, document: Document) -> Iterator[Problem]:
    """Actions whose nodes are not known yet; :mod:`perftest.actions.cluster_actions` checks these before the run."""
    steps = len(points(workload.sweep)) if workload.sweep else 1
    for index, key, rule, fix in faults(workload.timeline, [workload.step.duration] * steps, None):
        value = getattr(workload.timeline[index], field_of(TimedAction, key))
        yield document.problem(("timeline", index, key), rule, fix, value)


def _interval_rules(interval_s: float) -> Iterator[tuple[str, str]]:
    """Shorter intervals would cost the generator more than the messages; longer intervals show too little."""
    if not INTERVAL_S_MIN <= interval_s <= INTERVAL_S_MAX:
        yield f"an interval of {format_duration(interval_s)} is out of range", "use 100ms to 1m"


def _warmup_rule(warmup_s: float, duration_s: float) -> str:
    warmup, duration = format_duration(warmup_s), format_duration(duration_s)
    return f"the warm-up ({warmup}) leaves nothing of the step ({duration}) to measure"


def _sweep(workload: Workload, document: Document) -> Iterator[Problem]:
    sweep = workload.sweep
    if sweep is None:
        return
    shape = [document.problem(location, rule, fix) for location, rule, fix in shape_problems(sweep)]
    yield from shape
    if shape:
        return
    for setting in settings_swept(sweep):
        if setting in document.data.get("load", ()) and ("sweep",) not in document.overrides:
            rule = f"{setting} is swept: this value would never be used"
            yield document.problem(("load", setting), rule, "remove it, or sweep another setting")
    for location, rule, fix, value in value_problems(sweep):
        yield document.problem(location, rule, fix, value)
