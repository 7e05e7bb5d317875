"""Grids, lists and orders: which steps a sweep comes down to."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perftest.spec import Plan, plan_for

WORKLOAD = """\
schema: 1
name: mine
title: mine
queues: [{name: q}]
step: {duration: 10s, warmup: 1s}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(WORKLOAD)
    return path


def plan(workload: Path, *overrides: str) -> Plan:
    return plan_for(workload, ("amqp://h",), overrides)


def test_a_grid_is_every_combination_the_first_setting_slowest(workload: Path) -> None:
    """As one would read a table."""
    found = plan(workload, "sweep={grid: {in_flight: [1, 10], size: [100, 1kB], rate: [unlimited]}}")
    assert [step.label for step in found.steps] == [
        "in_flight=1 size=100 rate=unlimited",
        "in_flight=1 size=1000 rate=unlimited",
        "in_flight=10 size=100 rate=unlimited",
        "in_flight=10 size=1000 rate=unlimited",
    ]
    assert found.swept == ("in_flight", "size_bytes", "rate")
    assert [(step.settings.in_flight, step.settings.size_bytes) for step in found.steps] == [
        (1, 100), (1, 1000), (10, 100), (10, 1000),
    ]  # fmt: skip


def test_a_list_moves_settings_together(workload: Path) -> None:
    """Every setting that a step can change, in its own unit."""
    both = "{publishers: 1, consumers: 2, ack_after: 50ms, consumer_latency: 2ms}"
    found = plan(
        workload, f"sweep={{steps: [{both}, {{publishers: 3, consumers: 4, ack_after: 0, consumer_latency: 0}}]}}"
    )
    first, second = (step.settings for step in found.steps)
    assert (first.publishers, first.consumers, first.ack_after_ms, first.consumer_latency_us) == (1, 2, 50, 2000)
    assert (second.publishers, second.consumers, second.ack_after_ms, second.consumer_latency_us) == (3, 4, 0, 0)
    assert found.steps[0].label == "publishers=1 consumers=2 ack_after=50ms consumer_latency=2ms"
    assert found.swept == ("publishers", "consumers", "ack_after_ms", "consumer_latency_us")


def test_a_random_order_keeps_the_numbers_and_follows_the_seed(workload: Path) -> None:
    """A report sorts by number; a drift of the machine must not look like a trend of the setting."""
    values = "sweep={setting: in_flight, values: [1, 2, 3, 4, 5, 6, 7, 8], order: random}"
    one, again, other = (plan(workload, values, f"seed={seed}") for seed in (1, 1, 2))
    numbers = [[step.number for step in found.steps] for found in (one, again, other)]
    assert numbers[0] == numbers[1] != numbers[2]
    assert numbers[0] != sorted(numbers[0]) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(step.settings.in_flight == step.number for step in one.steps)


def test_a_background_load_is_no_part_of_the_measured_one(workload: Path) -> None:
    """Its queues, its settings, its behaviour."""
    load = "{name: bg, queues: [{name: b, type: classic}], load: {rate: 10, publishers: 3}, publishing: {channels: 2}}"
    (found,) = plan(workload, f"background=[{load}]").background
    settings = found.steps[0].settings
    assert (found.name, found.queues[0].name, settings.rate, settings.publishers) == ("bg", "b", 10.0, 3)
    assert found.publishing.channels == 2


def test_groups_beside_the_load_are_measured_or_not(workload: Path) -> None:
    """A measured group has the steps of the load and its own settings; background load has times and steps."""
    audits = "{name: audits, measured: true, queues: [{name: a}], load: {rate: 5}}"
    steps = "[{set: {rate: 10}, duration: 20s}, {set: {rate: 20, size: 2kB}, duration: 30s}]"
    noise = (
        f"{{name: noise, queues: [{{name: n}}], load: {{rate: 1}}, ahead: 30s, stop: 9s, steps: {steps}, workers: 2}}"
    )
    found = plan(workload, f"groups=[{noise}, {audits}]")
    assert [(group.name, group.measured) for group in found.groups] == [("", True), ("audits", True), ("noise", False)]
    load, beside, quiet = found.groups
    assert [(step.number, step.duration_s) for step in beside.steps] == [
        (step.number, step.duration_s) for step in load.steps
    ]
    assert {step.settings.rate for step in beside.steps} == {5.0}
    assert (quiet.start_s, quiet.stop_s, quiet.workers) == (-30.0, 9.0, 2)
    assert [(step.label, step.duration_s) for step in quiet.steps] == [
        ("rate=10", 20.0),
        ("rate=20 size=2000", math.inf),
    ]
    assert [(step.settings.rate, step.settings.size_bytes) for step in quiet.steps] == [(10.0, 1000), (20.0, 2000)]
