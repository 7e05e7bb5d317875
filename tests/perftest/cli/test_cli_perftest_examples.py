"""PerfTest's documented command lines, unchanged: each is the plan that was reviewed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest

from perftest.cli.run import run
from perftest.options.choices import Choices
from perftest.options.plan_of_options import plan_of
from perftest.spec.behaviour import Connecting, Consuming, Exchange, Publishing
from perftest.spec.cluster import ClusterSpec
from perftest.spec.plan import GROUP_PARTS, Group, Plan, QueueSpec, QueueType, Settings, Step

EXAMPLES = Path(__file__).parent / "data" / "perftest_examples.txt"
KEY = "00000000-0000-4000-8000-000000000000"
DEFAULTS: Mapping[type, Any] = {
    Settings: Settings(in_flight=0, prefetch=0, size_bytes=28, persistent=False),
    QueueSpec: QueueSpec(name="", type=QueueType.CLASSIC, durable=False, auto_delete=True),
    Exchange: Exchange(name="direct"),
    Publishing: Publishing(),
    Consuming: Consuming(),
    ClusterSpec: ClusterSpec(),
    Connecting: Connecting(allocation="random", recovery_s=(5.0, 5.0)),  # type: ignore[arg-type]
}
"""What holds beside a URI, and is left out of the file."""
HEAD = {"groups", "measured", "name", "title", "uris", "isolation", "queues", "steps"}


def cases() -> list[tuple[str, str]]:
    """Command line and plan."""
    blocks = EXAMPLES.read_text(encoding="utf-8").rstrip("\n").split("\n\n")[1:]
    return [(block.partition("\n")[0], block.partition("\n")[2]) for block in blocks]


def choices_of(line: str) -> Choices:
    """The options of a command line, as the command reads them."""
    with run.make_context("run", shlex.split(line)) as context:
        given = {key: text for key, text in context.params.items() if not key.startswith("show_")}
    return Choices(given)


def described(line: str, directory: Path) -> str:
    """The plan of a command line in few words, and what is said about it."""
    for name in ("content1.json", "content2.json"):
        directory.joinpath(name).write_text("{}")
    choices = choices_of(line if "amqp" in line else f"{line} -h amqp://broker")
    plan = plan_of(choices)
    if not plan.queues[0].name and plan.publishing.routing_key:
        assert len(plan.publishing.routing_key) == len(KEY)
        plan = plan.changed(publishing=replace(plan.publishing, routing_key=KEY))
    return "\n".join([*lines(plan), *(f"  note: {note}" for note in choices.notes)])


def lines(plan: Plan) -> Iterator[str]:
    """What is not as by default."""
    names = [queue.name for queue in plan.queues]
    shown = names if len(names) < 3 else [names[0], "...", names[-1]]
    yield f"  queues: {len(names)}: {' '.join(shown)} {deviations(replace(plan.queues[0], name=''))}".rstrip()
    (step,) = plan.steps
    yield f"  settings: {deviations(step.settings)}".rstrip()
    yield f"  time: {step.duration_s:g} s, {step.warmup_s:g} s of them warm-up"
    of_the_load = [each for each in fields(Group) if each.name in GROUP_PARTS]
    parts = {each.name: each for each in (*fields(Plan), *of_the_load)}
    for field in sorted(parts.values(), key=lambda each: each.name in ("connecting", "workers")):
        value = getattr(plan, field.name)
        if field.name in HEAD or value == field.default:
            continue
        words = deviations(value) if is_dataclass(value) else repr(value)
        if words:
            yield f"  {field.name}: {words}"


def deviations(value: Any) -> str:
    """The fields that differ from the defaults."""
    usual = DEFAULTS[type(value)]
    pairs = ((each.name, getattr(value, each.name), getattr(usual, each.name)) for each in fields(value))
    return " ".join(f"{name}={text(now)}" for name, now, before in pairs if now != before)


def text(value: Any) -> str:
    return str(value) if isinstance(value, str) else repr(value)


@pytest.mark.parametrize(("line", "plan"), cases(), ids=lambda part: part[:50])
def test_a_documented_line_is_the_plan_that_was_reviewed(
    line: str, plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing refused, nothing ignored in silence, and the meaning PerfTest gives it."""
    monkeypatch.chdir(tmp_path)
    if not os.environ.get("REWRITE"):
        assert described(line, tmp_path) == plan


def test_rewrite_of_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With REWRITE=1 the plans are what the code says now."""
    monkeypatch.chdir(tmp_path)
    assert len(cases()) >= 45
    if os.environ.get("REWRITE"):
        head = EXAMPLES.read_text(encoding="utf-8").split("\n\n")[0]
        blocks = [f"{line}\n{described(line, tmp_path)}" for line, _ in cases()]
        EXAMPLES.write_text("\n\n".join([head, *blocks]) + "\n", encoding="utf-8")


def test_a_plan_that_differs_from_the_file_would_be_seen() -> None:
    """The comparison shows every field."""
    plan = plan_of(choices_of("-h amqp://b -u q -x 3"))
    changed = plan.changed(steps=(Step(number=1, label="", settings=Settings(), duration_s=1, warmup_s=0),))
    assert list(lines(plan)) != list(lines(changed)) and not any("isolation" in line for line in lines(plan))


def test_the_lines_are_perftests_own() -> None:
    """None of our own options: they would prove nothing."""
    known = {flag for parameter in run.params if isinstance(parameter, click.Option) for flag in parameter.opts}
    assert not {"--slo", "--seed"} & {word for line, _ in cases() for word in line.split()} and "--slo" in known
