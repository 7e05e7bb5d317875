"""From a checked workload, whose sections are parts of a plan, to the plan: a sweep becomes steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from perftest.spec.expected.findings import label_of, resolved
from perftest.spec.expected.trends import Finding, StatedFigure
from perftest.spec.fields import field_of
from perftest.spec.models import BackgroundLoad, Workload
from perftest.spec.plan import Group, Isolation, Plan, Settings, Step
from perftest.spec.sweep import in_order, label, points, settings_swept, swept_value
from perftest.spec.units import WORDS, format_duration


def expand(workload: Workload, uris: tuple[str, ...], *, quick: bool = False) -> Plan:
    """The plan of a workload without problems (:func:`perftest.spec.check.check`).

    ``quick`` takes the short steps, and shortens the times of background loads and actions in the same ratio: each load
    begins, changes and ends at the same place of the run, and each action happens there.
    """
    sweep = workload.sweep
    timing = workload.quick if quick else workload.step
    scale = timing.duration / workload.step.duration if quick else 1.0
    load = Group(
        queues=tuple(workload.queues),
        steps=steps_of(workload, quick=quick),
        exchange=workload.exchange,
        publishing=workload.publishing,
        consuming=workload.consuming,
    )
    return Plan(
        name=workload.name,
        title=workload.title,
        uris=uris,
        groups=(load, *_beside(workload, load.steps, scale)),
        isolation=sweep.mode if sweep else Isolation.LIVE,
        swept=tuple(field_of(Settings, name) for name in settings_swept(sweep)),
        interval_s=workload.interval,
        drain_s=timing.drain,
        confirm_timeout_s=workload.confirm_timeout,
        seed=workload.seed,
        source=workload.source,
        source_title=workload.source_title,
        connecting=workload.connecting,
        workers=workload.workers,
        findings=_findings(workload),
        published=_published(workload),
        objectives=tuple(workload.slo),
        timeline=tuple(replace(action, at_s=action.at_s * scale) for action in workload.timeline),
        cluster=workload.cluster,
    )


def _findings(workload: Workload) -> tuple[Finding, ...]:
    """The findings with the labels of their steps."""
    return tuple(resolved(each, settings_swept(workload.sweep), _labels(workload)) for each in workload.findings)


def _published(workload: Workload) -> tuple[StatedFigure, ...]:
    """The figures of the source with the labels of their steps."""
    swept, labels = settings_swept(workload.sweep), _labels(workload)
    return tuple(
        replace(each, steps=tuple(label_of(step, swept, labels) for step in each.steps)) for each in workload.published
    )


def _labels(workload: Workload) -> list[str]:
    return [step.label for step in sorted(steps_of(workload), key=lambda step: step.number)]


def steps_of(workload: Workload, *, quick: bool = False) -> tuple[Step, ...]:
    """A step for each point of the sweep, in the order in which the steps run; without a sweep the only step. Steps are
    numbered in the order of the file."""
    timing = workload.quick if quick else workload.step
    base, sweep = workload.load, workload.sweep
    if sweep is None:
        return (Step(number=1, label="", settings=base, duration_s=timing.duration, warmup_s=timing.warmup),)
    steps = []
    for number, point in enumerate(points(sweep), start=1):
        values = {name: swept_value(name, written.value) for name, written in point.items()}
        change: dict[str, Any] = {field_of(Settings, name): value for name, value in values.items()}
        steps.append(
            Step(
                number=number,
                label=" ".join(label(name, value) for name, value in values.items()),
                settings=replace(base, **change),
                duration_s=timing.duration,
                warmup_s=timing.warmup,
            )
        )
    return tuple(in_order(steps, sweep.order, workload.seed))


def describe(plan: Plan) -> list[dict[str, object]]:
    """A row for each step, as ``--dry-run`` prints it."""
    return [
        {
            "step": step.number,
            "label": step.label,
            "publishers": step.settings.publishers,
            "consumers": step.settings.consumers,
            **{name: _shown(name, getattr(step.settings, name)) for name in WORDS},
            "rate": step.settings.rate,
            "size_bytes": step.settings.size_bytes,
            "duration": format_duration(step.duration_s),
            "warmup": format_duration(step.warmup_s),
        }
        for step in plan.steps
    ]


def _shown(setting: str, value: int) -> int | str:
    """A value of a setting: its word, if it has one."""
    return WORDS[setting].get(value, value)


def total_s(plan: Plan) -> float:
    """Seconds of all steps. Draining comes on top: at most ``drain_s``, once per run or once per isolated step."""
    return sum(step.duration_s for step in plan.steps)


def _beside(workload: Workload, measured: tuple[Step, ...], scale: float) -> Iterator[Group]:
    """The groups beside the load of the file, measured groups first. The times of background loads are multiplied by
    ``scale``."""
    for group in workload.groups:
        if group.measured:
            yield _group(group, tuple(replace(step, settings=group.load) for step in measured), measured=True)
    backgrounds = [*workload.background, *(group for group in workload.groups if not group.measured)]
    for background in backgrounds:
        yield _scaled(_group(background, own_steps(background), measured=False), scale)


def _scaled(group: Group, scale: float) -> Group:
    steps = tuple(replace(step, duration_s=step.duration_s * scale) for step in group.steps)
    return replace(group, steps=steps, start_s=group.start_s * scale, stop_s=group.stop_s * scale)


def own_steps(load: BackgroundLoad) -> tuple[Step, ...]:
    """The steps of a background load; without any, one that goes on until the end. The last one always does."""
    steps = [
        Step(number=number, label=_labelled(each.set), settings=_changed(load.load, each.set), duration_s=each.duration,
             warmup_s=0.0)
        for number, each in enumerate(load.steps, start=1)
    ]  # fmt: skip
    if len(steps) == 1:
        return (replace(steps[0], label=load.name, duration_s=math.inf),)
    steps = steps or [Step(number=1, label=load.name, settings=load.load, duration_s=math.inf, warmup_s=0.0)]
    return (*steps[:-1], replace(steps[-1], duration_s=math.inf))


def _labelled(point: Mapping[Any, Any]) -> str:
    return " ".join(label(name, swept_value(name, value)) for name, value in point.items())


def _changed(settings: Settings, point: Mapping[Any, Any]) -> Settings:
    change: dict[str, Any] = {field_of(Settings, name): swept_value(name, value) for name, value in point.items()}
    return replace(settings, **change)


def _group(load: BackgroundLoad, steps: tuple[Step, ...], *, measured: bool) -> Group:
    return Group(
        name=load.name,
        measured=measured,
        queues=tuple(load.queues),
        steps=steps,
        exchange=load.exchange,
        publishing=load.publishing,
        consuming=load.consuming,
        start_s=load.start - load.ahead,
        stop_s=math.inf if load.stop is None else load.stop,
        workers=load.workers,
    )
