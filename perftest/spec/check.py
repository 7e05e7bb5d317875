"""Rules between keys: all broken ones at once.

A rule looks at finished values and names the place to change, so the same rules serve a workload file, ``--set`` and
the flags of ``perftest run``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from perftest.spec.expand import FIELD_OF_SETTING, steps_of, swept_value
from perftest.spec.load import Document, Location
from perftest.spec.models import SCHEMA_VERSION, Timing, Workload
from perftest.spec.plan import Plan, QueueSpec, QueueType, Settings
from perftest.spec.problem import Problem
from perftest.spec.units import UnitError, format_duration

SIZE_BYTES_MIN: Final = 28
"""The stamp every body begins with (``perftest.engine.stamp.SIZE``); a test holds the two together."""
SIZE_BYTES_MAX: Final = 128 * 1024 * 1024
"""RabbitMQ's default ``max_message_size``: beyond it a publish closes the channel."""
PREFETCH_MAX: Final = 65_535
"""``basic.qos`` carries a 16-bit count."""
STEPS_MAX: Final = 1000
INTERVAL_S_MIN: Final = 0.1
INTERVAL_S_MAX: Final = 60.0

Broken = tuple[str, str, str, object]
"""Field of Settings, rule, fix, value."""


def check(workload: Workload, document: Document) -> list[Problem]:
    """All broken relations of a workload; empty when it can be run."""
    problems = [*_queues(workload, document), *_timing(workload, document), *_sweep(workload, document)]
    if problems:  # steps cannot be expanded from values that cannot be read
        return problems
    return list(_settings(workload, document))


def check_plan(plan: Plan, place: Callable[[str], str]) -> list[Problem]:
    """The same rules for a plan that was built from flags; ``place`` names the flag of a field."""
    problems = [
        Problem(path="", value=value, rule=rule, fix=fix, file=place(field))
        for step in plan.steps
        for field, rule, fix, value in broken_settings(step.settings)
    ]
    for step in plan.steps:
        if not 0 <= step.warmup_s < step.duration_s:
            rule, fix = _warmup_rule(step.warmup_s, step.duration_s), "make it shorter than the duration"
            problems.append(Problem(path="", value=step.warmup_s, rule=rule, fix=fix, file=place("warmup_s")))
    for rule, fix in _interval_rules(plan.interval_s):
        problems.append(Problem(path="", value=plan.interval_s, rule=rule, fix=fix, file=place("interval_s")))
    for rule, fix, value in _queue_rules(plan.queues):
        problems.append(Problem(path="", value=value, rule=rule, fix=fix, file=place("queues")))
    return problems


def broken_settings(settings: Settings) -> Iterator[Broken]:
    """Each rule that one point of the space breaks."""
    prefetch, interval = settings.prefetch, settings.ack_interval
    if prefetch > PREFETCH_MAX:
        yield "prefetch", f"prefetch {prefetch} is above {PREFETCH_MAX}", "lower it, or 0 for no limit", prefetch
    if 0 < prefetch < interval:
        rule = f"ack_interval ({interval}) is larger than prefetch ({prefetch}): the consumer would wait forever"
        yield "ack_interval", rule, f"lower ack_interval to {prefetch} or raise prefetch to {interval}", interval
    if settings.publishers < 1:
        yield "publishers", "no publishers: nothing would be measured", "use 1 or more", settings.publishers
    if settings.rate is not None and not 0 < settings.rate < math.inf:
        yield "rate", f"a rate of {settings.rate:g} publishes nothing", "use 1 or more, or unlimited", settings.rate
    size = settings.size_bytes
    if size < SIZE_BYTES_MIN:
        rule = f"a body of {size} bytes has no room for the {SIZE_BYTES_MIN} bytes of time stamps"
        yield "size_bytes", rule, f"use {SIZE_BYTES_MIN} or more", size
    if size > SIZE_BYTES_MAX:
        yield "size_bytes", f"a body of {size} bytes is above the 128 MiB brokers accept", "use a smaller size", size


def _settings(workload: Workload, document: Document) -> Iterator[Problem]:
    swept = workload.sweep.setting if workload.sweep else None
    told: set[tuple[str, str]] = set()
    for step in steps_of(workload):
        for field, rule, fix, value in broken_settings(step.settings):
            key = next((name for name, of in FIELD_OF_SETTING.items() if of == field), field)
            location = _blame(swept, key, step.number - 1)
            if (rule, str(location)) not in told:
                told.add((rule, str(location)))
                yield document.problem(location, rule, fix, value)


def _blame(swept: str | None, key: str, index: int) -> Location:
    """The value of the sweep when the swept setting takes part in the rule, else the shared one."""
    if swept == key or (swept == "prefetch" and key == "ack_interval"):
        return ("sweep", "values", index)
    return ("load", key)


def _queues(workload: Workload, document: Document) -> Iterator[Problem]:
    names: set[str] = set()
    for number, queue in enumerate(workload.queues):
        if queue.name in names:
            rule = f"two queues are named {queue.name!r}"
            yield document.problem(("queues", number, "name"), rule, "give each its own name", queue.name)
        names.add(queue.name)
        if queue.type is QueueType.QUORUM and not queue.durable:
            rule = "a quorum queue is always durable"
            yield document.problem(("queues", number, "durable"), rule, "remove durable: false", False)
        if "x-queue-type" in queue.arguments:
            location = ("queues", number, "arguments", "x-queue-type")
            yield document.problem(location, "the queue type is given twice", "use type: and remove this argument")
    consumers = workload.load.consumers
    if 0 < consumers < len(workload.queues):
        plural = "s" if consumers > 1 else ""
        rule = f"{consumers} consumer{plural} cannot read {len(workload.queues)} queues: some would only fill up"
        yield document.problem(("load", "consumers"), rule, f"use {len(workload.queues)} or more, or 0", consumers)


def _queue_rules(queues: Sequence[QueueSpec]) -> Iterator[tuple[str, str, object]]:
    names = [queue.name for queue in queues]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two queues are named {name!r}", "give each its own name", name
    for queue in queues:
        if len(queue.name.encode()) > 255 or not queue.name:
            yield "a queue name has 1 to 255 octets", "use another name", queue.name


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


def _interval_rules(interval_s: float) -> Iterator[tuple[str, str]]:
    """Shorter ones would cost the generator more than the messages; longer ones show nothing."""
    if not INTERVAL_S_MIN <= interval_s <= INTERVAL_S_MAX:
        yield f"an interval of {format_duration(interval_s)} is out of range", "use 100ms to 1m"


def _warmup_rule(warmup_s: float, duration_s: float) -> str:
    warmup, duration = format_duration(warmup_s), format_duration(duration_s)
    return f"the warm-up ({warmup}) leaves nothing of the step ({duration}) to measure"


def _sweep(workload: Workload, document: Document) -> Iterator[Problem]:
    sweep = workload.sweep
    if sweep is None:
        return
    if sweep.setting in workload.load.model_fields_set:
        rule = f"{sweep.setting} is swept: this value would never be used"
        yield document.problem(("load", sweep.setting), rule, "remove it, or sweep another setting")
    if len(sweep.values) > STEPS_MAX:
        yield document.problem(("sweep", "values"), f"more than {STEPS_MAX} steps", "use fewer values")
    seen: set[object] = set()
    for index, value in enumerate(sweep.values):
        location = ("sweep", "values", index)
        try:
            number = swept_value(sweep.setting, value)
        except UnitError as error:
            yield document.problem(location, f"{sweep.setting}: {error.rule}", error.fix, value)
            continue
        if number in seen:
            yield document.problem(location, f"{value!r} is swept twice", "remove one of them", value)
        seen.add(number)
