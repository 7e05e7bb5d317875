"""From a checked workload to the plan the engine executes: no defaults left, no units left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from perftest.spec.behaviour import Bodies, Connecting, Consuming, Cycle, Exchange, Publishing, Tls
from perftest.spec.models import Queue, Workload
from perftest.spec.plan import Isolation, Plan, QueueSpec, Settings, Step
from perftest.spec.units import UNLIMITED, format_duration, parse_count, parse_rate, parse_size_bytes

FIELD_OF_SETTING: Final = {
    "size": "size_bytes",
    "ack_after": "ack_after_ms",
    "consumer_latency": "consumer_latency_us",
}
"""Where a name in a workload file and the field of :class:`~perftest.spec.plan.Settings` differ."""


def settings_of(workload: Workload) -> Settings:
    """The settings all steps share."""
    load = workload.load.model_dump()
    return Settings(
        size_bytes=load.pop("size"),
        ack_after_ms=round(load.pop("ack_after") * 1e3),
        consumer_latency_us=round(load.pop("consumer_latency") * 1e6),
        **load,
    )


def publishing_of(workload: Workload) -> Publishing:
    """How publishers behave."""
    plain = workload.publishing.model_dump()
    bodies = plain.pop("bodies")
    return Publishing(
        start_delay_s=plain.pop("start_delay"),
        bodies=Bodies(files=tuple(bodies.pop("files")), **bodies),
        rate_cycle=_cycle(plain.pop("rate_cycle")),
        size_cycle=_cycle(plain.pop("size_cycle")),
        **plain,
    )


def consuming_of(workload: Workload) -> Consuming:
    """How consumers behave."""
    plain = workload.consuming.model_dump()
    return Consuming(
        start_delay_s=plain.pop("start_delay"),
        polling_interval_ms=round(plain.pop("polling_interval") * 1e3),
        latency_cycle=tuple((latency * 1e6, held) for latency, held in plain.pop("latency_cycle")),
        **plain,
    )


def connecting_of(workload: Workload) -> Connecting:
    """How connections are made, kept and ended."""
    plain = workload.connecting.model_dump()
    tls, heartbeat = plain.pop("tls"), plain.pop("heartbeat")
    return Connecting(
        heartbeat_s=None if heartbeat is None else round(heartbeat),
        recovery_s=plain.pop("recovery"),
        startup_timeout_s=plain.pop("startup_timeout"),
        shutdown_timeout_s=plain.pop("shutdown_timeout"),
        tls=Tls(server_names=tuple(tls.pop("server_names")), **tls),
        **plain,
    )


def swept_value(setting: str, value: object) -> int | float | None:
    """One value of a sweep in the setting's own unit. Raises :class:`~perftest.spec.units.UnitError`."""
    if setting == "size":
        return parse_size_bytes(value)
    return parse_rate(value) if setting == "rate" else parse_count(value)


def expand(workload: Workload, uris: tuple[str, ...], *, quick: bool = False) -> Plan:
    """The plan of a workload that :func:`perftest.spec.check.check` found in order."""
    sweep = workload.sweep
    timing = workload.quick if quick else workload.step
    return Plan(
        name=workload.name,
        title=workload.title,
        uris=uris,
        queues=tuple(_queue(queue) for queue in workload.queues),
        steps=steps_of(workload, quick=quick),
        isolation=sweep.mode if sweep else Isolation.LIVE,
        swept=(_field(sweep.setting),) if sweep else (),
        interval_s=workload.interval,
        drain_s=timing.drain,
        confirm_timeout_s=workload.confirm_timeout,
        seed=workload.seed,
        source=workload.source,
        exchange=Exchange(**workload.exchange.model_dump()),
        publishing=publishing_of(workload),
        consuming=consuming_of(workload),
        connecting=connecting_of(workload),
        workers=workload.workers,
    )


def steps_of(workload: Workload, *, quick: bool = False) -> tuple[Step, ...]:
    """A step for each value of the sweep, or the only one."""
    timing = workload.quick if quick else workload.step
    base = settings_of(workload)
    if workload.sweep is None:
        return (Step(number=1, label="", settings=base, duration_s=timing.duration, warmup_s=timing.warmup),)
    setting = workload.sweep.setting
    return tuple(
        Step(
            number=number,
            label=f"{setting}={UNLIMITED if value is None else format(value, '.15g')}",
            settings=_with(base, setting, value),
            duration_s=timing.duration,
            warmup_s=timing.warmup,
        )
        for number, value in enumerate((swept_value(setting, value) for value in workload.sweep.values), start=1)
    )


def describe(plan: Plan) -> list[dict[str, object]]:
    """A row for each step: what ``--dry-run`` prints."""
    return [
        {
            "step": step.number,
            "label": step.label,
            "in_flight": step.settings.in_flight,
            "prefetch": step.settings.prefetch,
            "ack_interval": step.settings.ack_interval,
            "rate": step.settings.rate,
            "size_bytes": step.settings.size_bytes,
            "duration": format_duration(step.duration_s),
            "warmup": format_duration(step.warmup_s),
        }
        for step in plan.steps
    ]


def total_s(plan: Plan) -> float:
    """Seconds of all steps; draining comes on top, at most ``drain_s`` (a step, when steps are isolated)."""
    return sum(step.duration_s for step in plan.steps)


def _field(setting: str) -> str:
    return FIELD_OF_SETTING.get(setting, setting)


def _with(base: Settings, setting: str, value: int | float | None) -> Settings:
    change: dict[str, Any] = {_field(setting): value}
    return replace(base, **change)


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
