"""From a checked workload to the plan the engine executes: no defaults left, no units left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perftest.spec import models
from perftest.spec.behaviour import Bodies, Connecting, Consuming, Cycle, Exchange, Publishing, Tls
from perftest.spec.models import Load, Queue, Workload
from perftest.spec.plan import Group, Isolation, Plan, QueueSpec, Settings, Step
from perftest.spec.sweep import field_of, in_order, label, points, settings_swept, swept_value
from perftest.spec.units import FIELD_OF_KEY, WORDS, format_duration, per_second


def settings_of(load_section: Load) -> Settings:
    """The settings all steps share."""
    return Settings(**_in_units(load_section.model_dump()))


def publishing_of(section: models.Publishing) -> Publishing:
    """How publishers behave."""
    plain = _in_units(section.model_dump())
    bodies = plain.pop("bodies")
    return Publishing(
        bodies=Bodies(files=tuple(bodies.pop("files")), **bodies),
        rate_cycle=_cycle(plain.pop("rate_cycle")),
        size_cycle=_cycle(plain.pop("size_cycle")),
        **plain,
    )


def consuming_of(section: models.Consuming) -> Consuming:
    """How consumers behave."""
    plain = _in_units(section.model_dump())
    latencies = tuple((float(round(latency * 1e6)), held) for latency, held in plain.pop("latency_cycle"))
    return Consuming(latency_cycle=latencies, **plain)


def connecting_of(workload: Workload) -> Connecting:
    """How connections are made, kept and ended."""
    plain = _in_units(workload.connecting.model_dump())
    tls, heartbeat_s = plain.pop("tls"), plain.pop("heartbeat_s")
    return Connecting(
        heartbeat_s=None if heartbeat_s is None else round(heartbeat_s),
        tls=Tls(server_names=tuple(tls.pop("server_names")), **tls),
        **plain,
    )


def _in_units(section: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a section by the fields of the plan, times in the units of these fields."""
    found = {}
    for key, value in section.items():
        field = FIELD_OF_KEY.get(key, key)
        units = per_second(field) or 1.0
        found[field] = value if units == 1.0 else round(value * units)
    return found


def expand(workload: Workload, uris: tuple[str, ...], *, quick: bool = False) -> Plan:
    """The plan of a workload without problems (:func:`perftest.spec.check.check`)."""
    sweep = workload.sweep
    timing = workload.quick if quick else workload.step
    load = Group(
        queues=tuple(_queue(queue) for queue in workload.queues),
        steps=steps_of(workload, quick=quick),
        exchange=Exchange(**workload.exchange.model_dump()),
        publishing=publishing_of(workload.publishing),
        consuming=consuming_of(workload.consuming),
    )
    return Plan(
        name=workload.name,
        title=workload.title,
        uris=uris,
        groups=(load, *(_background(each) for each in workload.background)),
        isolation=sweep.mode if sweep else Isolation.LIVE,
        swept=tuple(field_of(name) for name in settings_swept(sweep)),
        interval_s=workload.interval,
        drain_s=timing.drain,
        confirm_timeout_s=workload.confirm_timeout,
        seed=workload.seed,
        source=workload.source,
        connecting=connecting_of(workload),
        workers=workload.workers,
    )


def steps_of(workload: Workload, *, quick: bool = False) -> tuple[Step, ...]:
    """A step for each point of the sweep, in the order in which the steps run; without a sweep the only step. Steps are
    numbered in the order in which they were written."""
    timing = workload.quick if quick else workload.step
    base, sweep = settings_of(workload.load), workload.sweep
    if sweep is None:
        return (Step(number=1, label="", settings=base, duration_s=timing.duration, warmup_s=timing.warmup),)
    steps = []
    for number, point in enumerate(points(sweep), start=1):
        values = {name: swept_value(name, written.value) for name, written in point.items()}
        change: dict[str, Any] = {field_of(name): value for name, value in values.items()}
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


def _background(load: models.BackgroundLoad) -> Group:
    return Group.background(
        load.name,
        tuple(_queue(queue) for queue in load.queues),
        settings_of(load.load),
        exchange=Exchange(**load.exchange.model_dump()),
        publishing=publishing_of(load.publishing),
        consuming=consuming_of(load.consuming),
    )


def _queue(queue: Queue) -> QueueSpec:
    return QueueSpec(
        name=queue.name,
        type=queue.type,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        predeclared=queue.predeclared,
        bound=queue.bound,
        arguments=dict(queue.arguments),
    )


def _cycle(pairs: list[tuple[float, float]]) -> Cycle:
    return tuple((float(value), held) for value, held in pairs)
