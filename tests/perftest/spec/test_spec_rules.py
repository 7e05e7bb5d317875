"""Every rule between the values of a plan, broken by the least change and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perftest.engine.accounting import stamp
from perftest.spec import plan_for, rules
from perftest.spec.behaviour import (
    Arrivals,
    Bodies,
    Connecting,
    Consuming,
    Exchange,
    ExitWhen,
    Publishing,
    RoutingKeys,
    Tls,
)
from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step
from perftest.spec.rules import broken

SETTINGS = Settings()
PLAN = Plan.of(
    name="p",
    title="p",
    uris=("amqp://h",),
    queues=(QueueSpec(name="q"),),
    steps=(Step(number=1, label="", settings=SETTINGS, duration_s=10, warmup_s=1),),
    isolation=Isolation.LIVE,
)
CLASSIC = QueueSpec(name="q", type=QueueType.CLASSIC, durable=False)


def settings(**changes: Any) -> dict[str, Any]:
    """The change of a plan that changes its settings."""
    return {"steps": (replace(PLAN.steps[0], settings=replace(SETTINGS, **changes)),)}


def publishing(**changes: Any) -> dict[str, Any]:
    return {"publishing": Publishing(**changes)}


def consuming(**changes: Any) -> dict[str, Any]:
    return {"consuming": Consuming(**changes)}


def connecting(**changes: Any) -> dict[str, Any]:
    return {"connecting": Connecting(**changes)}


TWO_STEPS = {"steps": (PLAN.steps[0], replace(PLAN.steps[0], number=2))}
ISOLATED = {"isolation": Isolation.ISOLATED}

CASES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({}, []),
    (publishing(messages=9), []),
    (TWO_STEPS | publishing(messages=9), [("publishing.messages", "steps that share their clients")]),
    (TWO_STEPS | consuming(messages=9), [("consuming.messages", "steps that share their clients")]),
    (TWO_STEPS | consuming(exit_when=ExitWhen.IDLE), [("consuming.exit_when", "steps that share their clients")]),
    (TWO_STEPS | ISOLATED | publishing(messages=9) | consuming(messages=9), []),
    (settings(prefetch=70_000), [("prefetch", "above 65535")]),
    (settings(prefetch=5, ack_interval=6), [("ack_interval", "wait forever")]),
    (settings(prefetch=0, ack_interval=6), []),
    (settings(publishers=0), []),
    (settings(consumers=0), []),
    (settings(publishers=0, consumers=0), [("publishers", "nothing would be measured")]),
    (settings(rate=0.0), []),
    (settings(rate=float("inf")), [("rate", "means nothing")]),
    (settings(size_bytes=27), [("size_bytes", "no room for the 28")]),
    (settings(size_bytes=1 << 28), [("size_bytes", "above the 128 MiB")]),
    (settings(size_bytes=12) | publishing(bodies=Bodies(json_count=1)), []),
    (publishing(transaction=5), [("publishing.transaction", "transactions and confirms")]),
    (settings(in_flight=0) | publishing(transaction=5), []),
    (publishing(channels=2048), [("publishing.channels", "1 to 2047")]),
    (consuming(channels=0), [("consuming.channels", "1 to 2047")]),
    (settings(publishers=40) | publishing(channels=2000), [("publishing.channels", "65536")]),
    (settings(ack_interval=0) | consuming(nack=True), [("consuming.nack", "nothing is acknowledged")]),
    (settings(ack_interval=0, failing=0.1), [("failing", "nothing is acknowledged")]),
    (settings(ack_interval=5, failing=0.1), [("failing", "cannot reject one of them")]),
    (settings(failing=1.0), [("failing", "no message ever leaves its queue")]),
    (settings(failing=1.0) | consuming(requeue=False), []),
    (settings(failing=0.1) | consuming(nack=True), [("failing", "all deliveries are rejected")]),
    (settings(ack_interval=0, ack_after_ms=5), [("ack_after_ms", "nothing is acknowledged")]),
    (settings(ack_interval=0) | consuming(transaction=5), [("consuming.transaction", "nothing is acknowledged")]),
    (settings(prefetch=5) | consuming(transaction=6), [("consuming.transaction", "wait forever")]),
    (
        settings(ack_interval=9) | consuming(channel_prefetch=5) | {"queues": (CLASSIC,)},
        [("ack_interval", "wait forever")],
    ),
    (consuming(channel_prefetch=5), [("consuming.channel_prefetch", "quorum queues do not support")]),
    ({"workers": 65}, [("workers", "65 is not a number of processes up to 64")]),
    ({"workers": -1}, [("workers", "-1 is not")]),
    (
        consuming(channel_prefetch=70_000) | {"queues": (CLASSIC,)},
        [("consuming.channel_prefetch", "above 65535")],
    ),
    (consuming(rate=0.0), [("consuming.rate", "takes nothing")]),
    (settings(rate=5.0) | publishing(rate_cycle=((5.0, 1.0),)), [("rate", "two rates at once")]),
    (publishing(rate_cycle=((0.0, 1.0), (5.0, 1.0))), []),
    (publishing(rate_cycle=((5.0, 0.0),)), [("publishing.rate_cycle", "hold for some time")]),
    (publishing(size_cycle=((5.0, 1.0),)), [("publishing.size_cycle", "no room for the 28")]),
    (publishing(arrivals=Arrivals.POISSON), [("publishing.arrivals", "need a rate")]),
    (settings(rate=5.0) | publishing(arrivals=Arrivals.POISSON), []),
    (publishing(arrivals=Arrivals.TRACE, trace="/none"), [("publishing.trace", "cannot be read: /none")]),
    (publishing(arrivals=Arrivals.TRACE), [("publishing.trace", "cannot be read: no path")]),
    (publishing(arrivals=Arrivals.TRACE, trace=__file__), [("publishing.trace", "is not a time such as 0.5")]),
    (
        settings(consumer_latency_us=5) | consuming(latency_cycle=((5.0, 1.0),)),
        [("consumer_latency_us", "two processing times")],
    ),
    (settings(publishers=0) | publishing(messages=5), [("publishing.messages", "no publishers")]),
    (settings(consumers=0) | consuming(messages=5), [("consuming.messages", "no consumers")]),
    (settings(consumers=0) | consuming(exit_when=ExitWhen.IDLE), [("consuming.exit_when", "no consumers")]),
    (publishing(bodies=Bodies(files=("/none",))), [("publishing.bodies.files", "cannot be read")]),
    (
        publishing(bodies=Bodies(files=(__file__,), json_count=1)),
        [("publishing.bodies.files", "two kinds of bodies")],
    ),
    (
        publishing(bodies=Bodies(files=(__file__,)), size_cycle=((50.0, 1.0),)),
        [("publishing.size_cycle", "files have the size")],
    ),
    (publishing(bodies=Bodies(json_count=1, json_fields=0)), [("publishing.bodies.json_fields", "needs fields")]),
    (publishing(properties={"priority": 256}), [("publishing.properties", "0 to 255")]),
    (publishing(properties={"timestamp": "2007-12-03T10:15:30+01:00", "expiration": 5, "header": True}), []),
    (publishing(properties={"timestamp": "yesterday"}), [("publishing.properties", "with its zone")]),
    (publishing(properties={"expiration": "soon"}), [("publishing.properties", "milliseconds")]),
    (publishing(properties={"perftest": 1}), [("publishing.properties", "carries the time stamps")]),
    (publishing(properties={"deliveryMode": 1}), [("publishing.properties", "transient")]),
    ({"queues": (QueueSpec(name="q"), QueueSpec(name="q"))}, [("queues", "two queues are named 'q'")]),
    ({"queues": (QueueSpec(name="q" * 256),)}, [("queues", "255 octets")]),
    (
        {"queues": (QueueSpec(name=""),), "exchange": Exchange(name="direct")},
        [("queues", "cannot be named by the server")],
    ),
    ({"queues": (QueueSpec(name="q", durable=False),)}, [("queues", "always durable")]),
    ({"queues": (QueueSpec(name="q", auto_delete=True),)}, [("queues", "auto-delete")]),
    (connecting(exclusive=True), [("queues", "exclusive")]),
    ({"queues": (replace(CLASSIC, name=""),)}, [("exchange.name", "only the server knows")]),
    ({"queues": (replace(CLASSIC, name=""),), "exchange": Exchange(name="e")}, []),
    (publishing(routing_keys=RoutingKeys.RANDOM), [("publishing.routing_keys", "random key")]),
    (publishing(routing_keys=RoutingKeys.FIXED, routing_key="x"), [("publishing.routing_key", "name of a queue")]),
    (publishing(routing_keys=RoutingKeys.FIXED, routing_key="q"), []),
    (publishing(routing_keys=RoutingKeys.RANDOM) | {"exchange": Exchange(name="e")}, []),
    (connecting(servers_up=2), []),  # nobody waits for servers
    (connecting(servers_up=2, startup_timeout_s=5.0), [("connecting.servers_up", "2 brokers cannot answer at 1")]),
    (connecting(frame_max=4095), [("connecting.frame_max", "below the 4096")]),
    (connecting(recovery_s=(5.0, 1.0)), [("connecting.recovery_s", "before it begins")]),
    (connecting(external=True), [("connecting.external", "certificate"), ("connecting.tls", "amqps://")]),
    (connecting(tls=Tls(key_file=__file__)), [("connecting.tls.key_file", "needs its certificate")]),
    (
        connecting(tls=Tls(ca_file="/none")) | {"uris": ("amqps://h",)},
        [("connecting.tls.ca_file", "cannot be read")],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), CASES, ids=lambda case: str(case)[:70])
def test_a_rule_is_broken_by_its_change_alone(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Place and sentence of each, and that nothing else is complained about."""
    found = list(broken(PLAN.changed(**changes)))
    assert [each.field for each in found] == [field for field, _ in expected]
    assert all(words in each.rule for each, (_, words) in zip(found, expected, strict=True))
    assert all(each.fix for each in found)


def test_all_are_told_at_once_and_steps_in_common_once() -> None:
    """One round of corrections, not one per rule and step."""
    step = replace(PLAN.steps[0], settings=replace(SETTINGS, prefetch=5, ack_interval=6, size_bytes=1))
    found = list(broken(PLAN.changed(steps=(step, step), queues=(QueueSpec(name="q", durable=False),))))
    assert [each.field for each in found] == ["ack_interval", "size_bytes", "queues"]


def test_values_are_called_what_the_user_wrote() -> None:
    """A key in a file, a flag on the command line."""
    names: Callable[[str], str] = {"ack_interval": "-A", "prefetch": "-q"}.get  # type: ignore[assignment]
    (found,) = broken(PLAN.changed(**settings(prefetch=5, ack_interval=6)), names)
    assert found.rule.startswith("-A (6) is larger than -q (5)") and found.fix == "lower -A to 5 or raise -q to 6"


def test_limits_are_those_of_the_engine() -> None:
    """A plan that passes here must not be refused there."""
    assert rules.PUBLISHERS_MAX == stamp.PUBLISHERS_MAX and rules.SIZE_BYTES_MIN == stamp.SIZE


WHOLE = """\
schema: 1
name: whole
title: every section
queues: [{name: q, type: classic, durable: false, auto_delete: true, bound: false}]
load: {in_flight: no_confirms, rate: 0, ack_after: 20ms, ack_interval: 5}
exchange: {name: e, type: topic}
publishing:
  channels: 3
  messages: 2k
  transaction: 5
  start_delay: 2s
  routing_keys: fixed
  routing_key: k
  properties: {priority: 5, header: true}
  size_cycle: [[1kB, 1m], [2kB, 10s]]
consuming:
  channels: 2
  rate: 40
  polling_interval: 50ms
  exit_when: idle
  latency_cycle: [[1ms, 1m], [1s, 30s]]
connecting:
  heartbeat: 30s
  frame_max: 128KiB
  recovery: [1s, 5s]
  allocation: random
  tls: {server_names: [a, b]}
step: {duration: 5m}
confirm_timeout: 1m
workers: 2
"""


def test_every_section_of_a_workload_reaches_the_plan(tmp_path: Path) -> None:
    """Units are those of the plan: milliseconds, microseconds, octets."""
    path = tmp_path / "whole.yaml"
    path.write_text(WHOLE)
    plan = plan_for(path, ())
    got = plan.steps[0].settings
    assert (got.rate, got.ack_after_ms) == (0.0, 20)
    assert plan.queues == (replace(CLASSIC, auto_delete=True, bound=False),)
    assert plan.exchange == Exchange(name="e", type="topic")
    assert plan.publishing == Publishing(
        channels=3,
        messages=2000,
        transaction=5,
        start_delay_s=2.0,
        routing_keys=RoutingKeys.FIXED,
        routing_key="k",
        properties={"priority": 5, "header": True},
        size_cycle=((1000.0, 60.0), (2000.0, 10.0)),
    )
    assert plan.consuming == Consuming(
        channels=2,
        rate=40.0,
        polling_interval_ms=50,
        exit_when=ExitWhen.IDLE,
        latency_cycle=((1000.0, 60.0), (1e6, 30.0)),
    )
    assert plan.connecting.heartbeat_s == 30 and plan.connecting.frame_max == 131_072
    assert plan.connecting.recovery_s == (1.0, 5.0) and plan.connecting.tls.server_names == ("a", "b")
    assert (plan.confirm_timeout_s, plan.workers) == (60.0, 2)
