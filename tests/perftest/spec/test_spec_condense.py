"""From plan to file and back: an importer, or a tool that stores what was run, loses nothing on the way."""

from __future__ import annotations

import math
import operator
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from perftest.spec import Isolation, Plan, QueueSpec, QueueType, Settings, Step
from perftest.spec.behaviour import (
    Allocation,
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
from perftest.spec.check import check
from perftest.spec.condense import duration, inexpressible, workload_of
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.plan import Group
from perftest.spec.sweep import in_order, label
from perftest.spec.units import IN_FLIGHT_UNLIMITED, parse_duration_s

counts = st.integers(0, 10**6)
some = st.integers(1, 1000)
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
times = st.one_of(st.just(0.0), st.integers(1, 7200).map(float), st.floats(0.001, 4000.0))
held = st.floats(0.1, 100)
rates = st.none() | st.floats(0, 1e6)
arguments = st.dictionaries(words, words | counts | st.booleans(), max_size=2)
loads = st.builds(
    Settings,
    in_flight=counts | st.just(IN_FLIGHT_UNLIMITED),
    prefetch=counts,
    ack_interval=counts,
    rate=rates,
    size_bytes=counts,
    ack_after_ms=counts,
    consumer_latency_us=counts,
    failing=st.floats(0, 1),
    publishers=counts,
    consumers=counts,
    persistent=st.booleans(),
    mandatory=st.booleans(),
)
queues = st.lists(
    st.builds(
        QueueSpec,
        name=words,
        type=st.sampled_from(QueueType),
        durable=st.booleans(),
        auto_delete=st.booleans(),
        predeclared=st.booleans(),
        bound=st.booleans(),
        arguments=arguments,
    ),
    min_size=1,
    max_size=2,
).map(tuple)
exchanges = st.builds(Exchange, name=words, type=words, durable=st.booleans(), predeclared=st.booleans())


def cycles(values: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[tuple[float, float], ...]]:
    return st.lists(st.tuples(values, held), max_size=2).map(tuple)


publishings = st.builds(
    Publishing,
    channels=some,
    arrivals=st.sampled_from(Arrivals),
    trace=words,
    catch_up=st.booleans(),
    messages=counts,
    transaction=counts,
    start_delay_s=times,
    routing_keys=st.sampled_from(RoutingKeys),
    routing_key=words,
    routing_key_cache=counts,
    properties=arguments,
    bodies=st.builds(Bodies, files=st.lists(words).map(tuple), content_type=words, json_count=counts, json_fields=some),
    rate_cycle=cycles(st.floats(0, 1e6)),
    size_cycle=cycles(some.map(float)),
)
consumings = st.builds(
    Consuming,
    channels=some,
    channel_prefetch=counts,
    transaction=counts,
    messages=counts,
    rate=rates,
    nack=st.booleans(),
    requeue=st.booleans(),
    polling=st.booleans(),
    polling_interval_ms=counts,
    start_delay_s=times,
    slow_start=st.booleans(),
    arguments=arguments,
    exit_when=st.sampled_from(ExitWhen),
    latency_cycle=cycles(some.map(float)),
)
connectings = st.builds(
    Connecting,
    allocation=st.sampled_from(Allocation),
    publisher_nodes=st.lists(some, max_size=2).map(tuple),
    consumer_nodes=st.lists(some, max_size=2).map(tuple),
    heartbeat_s=st.none() | counts,
    frame_max=st.none() | counts,
    recover=st.booleans(),
    recovery_s=st.none() | st.tuples(times, times),
    startup_timeout_s=times,
    servers_up=counts,
    shutdown_timeout_s=times,
    exclusive=st.booleans(),
    external=st.booleans(),
    send_buffer=counts,
    receive_buffer=counts,
    no_delay=st.booleans(),
    tls=st.builds(Tls, ca_file=words, system_authorities=st.booleans(), server_names=st.lists(words).map(tuple)),
)
backgrounds = st.lists(
    st.builds(
        Group.background,
        name=st.sampled_from(["bg", "bg_2"]),
        queues=queues,
        settings=loads,
        exchange=exchanges,
        publishing=publishings,
        consuming=consumings,
        start_s=times | times.map(operator.neg),
        stop_s=st.just(math.inf) | some.map(float),
        workers=counts,
    ),
    max_size=1,
).map(tuple)
groups = st.builds(
    Group,
    name=st.sampled_from(["orders", "audits"]),
    queues=queues,
    steps=loads.map(lambda load: (Step(number=1, label="", settings=load, duration_s=1.0, warmup_s=0.0),)),
    exchange=exchanges,
    publishing=publishings,
    consuming=consumings,
    workers=counts,
)
VALUES = {
    "rate": rates,
    "in_flight": counts | st.just(IN_FLIGHT_UNLIMITED),
    "size_bytes": counts,
    "ack_after_ms": counts,
    "consumer_latency_us": counts,
    "publishers": counts,
}
NAMES = {"size_bytes": "size", "ack_after_ms": "ack_after", "consumer_latency_us": "consumer_latency"}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans that a file can say, with and without a sweep."""
    load, swept = draw(loads), draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=2, unique=True))
    seconds, warmup, seed = draw(times), draw(times), draw(st.integers(0, 2**32 - 1))
    number = draw(st.integers(1, 4)) if swept else 1
    steps = []
    for index in range(number):
        point = {name: draw(VALUES[name]) for name in swept}
        words_of = " ".join(label(NAMES.get(name, name), value) for name, value in point.items())
        steps.append(Step(number=index + 1, label=words_of, settings=replace(load, **point), duration_s=seconds,
                          warmup_s=warmup))  # fmt: skip
    plan = Plan.of(
        name="a/name_1",
        title=draw(words.filter(bool)),
        uris=("amqp://h",),
        queues=draw(queues),
        steps=tuple(in_order(steps, draw(st.sampled_from(["given", "random"])), seed)),
        isolation=draw(st.sampled_from(Isolation)) if swept else Isolation.LIVE,
        swept=tuple(swept),
        interval_s=draw(times),
        drain_s=draw(times),
        confirm_timeout_s=draw(times),
        seed=seed,
        source=draw(words),
        exchange=draw(exchanges),
        publishing=draw(publishings),
        consuming=draw(consumings),
        connecting=draw(connectings),
        background=draw(backgrounds),
        workers=draw(counts),
        objectives=draw(st.lists(st.sampled_from(["loss==0", "e2e.p99<1s"]), max_size=2).map(tuple)),
    )
    own = draw(st.lists(groups, max_size=2))
    beside = [replace(each, steps=tuple(replace(step, settings=each.steps[0].settings) for step in plan.steps))
              for each in own]  # fmt: skip
    return replace(plan, groups=(plan.load, *beside, *plan.background))


@given(plans())
def test_a_plan_survives_its_file(plan: Plan) -> None:
    """plan -> YAML -> plan; nothing but the address comes from elsewhere."""
    text = yaml.safe_dump(workload_of(plan), sort_keys=False, allow_unicode=True)
    workload, _ = parse_workload(text, "mine.yaml")
    assert expand(workload, plan.uris) == plan


@given(times)
def test_a_duration_is_written_exactly(seconds: float) -> None:
    """A unit that loses a digit would make another experiment of it."""
    assert parse_duration_s(duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.0, 0.0), (300.0, "5m"), (90.0, "90s"), (3600.0, "1h"), (0.25, "250ms"), (0.0005, "500us"), (1.5, "1500ms")],
)
def test_a_duration_reads_well(seconds: float, written: object) -> None:
    assert duration(seconds) == written


def plan_of_one_step(**changes: object) -> Plan:
    """The plainest plan there is."""
    step = Step(number=1, label="", settings=Settings(), duration_s=60.0, warmup_s=0.0)
    plain = Plan.of(
        name="n", title="t", uris=(), queues=(QueueSpec(name="q"),), steps=(step,), isolation=Isolation.LIVE
    )
    return plain.changed(**changes)  # type: ignore[arg-type]


def test_a_plain_plan_is_a_short_file_in_the_order_of_the_documentation() -> None:
    """What nobody said is not there, but the load that everybody looks for is."""
    assert workload_of(plan_of_one_step()) == {
        "schema": 1,
        "name": "n",
        "title": "t",
        "queues": [{"name": "q", "type": "quorum"}],
        "load": {"in_flight": 1000, "prefetch": 1000, "ack_interval": 1, "size": 1000, "publishers": 1, "consumers": 1},
        "step": {"duration": "1m"},
    }
    assert list(workload_of(plan_of_one_step(seed=7))) == ["schema", "name", "title", "queues", "load", "step", "seed"]


ONE = plan_of_one_step().steps[0]
FIRST = plan_of_one_step().load


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"queues": ()}, "steps"),
        ({"steps": (replace(ONE, duration_s=math.inf),)}, "steps.duration_s"),
        ({"confirm_timeout_s": math.inf}, "confirm_timeout_s"),
        ({"delete_queues": False}, "delete_queues"),
        ({"declare_missing": True}, "declare_missing"),
        ({"connecting": Connecting(shutdown_timeout_s=-1.0)}, "connecting.shutdown_timeout_s"),
        ({"steps": (ONE, replace(ONE, duration_s=1.0)), "swept": ("rate",)}, "steps.duration_s"),
        ({"steps": (ONE, replace(ONE, settings=Settings(prefetch=1))), "swept": ("rate",)}, "steps.settings"),
        ({"swept": ("persistent",)}, "swept"),
        ({"steps": (ONE, ONE)}, "steps"),
        ({"isolation": Isolation.ISOLATED}, "steps"),
        ({"groups": (replace(FIRST, name="orders"),)}, "groups"),
        ({"groups": (FIRST, replace(FIRST, name=""))}, "groups"),
        ({"groups": (FIRST, replace(FIRST, name="late", start_s=1.0))}, "groups"),
        ({"groups": (FIRST, replace(FIRST, name="long", steps=(replace(ONE, duration_s=61.0),)))}, "groups"),
    ],
)
def test_what_a_file_cannot_say_is_named(changes: dict[str, object], place: str) -> None:
    """Rather than a file that means something else."""
    plan = plan_of_one_step(**changes)
    assert [found for found, _ in inexpressible(plan)] == [place]
    with pytest.raises(ValueError, match=place):
        workload_of(plan)


def test_an_order_that_no_seed_gives_is_no_file() -> None:
    steps = tuple(replace(ONE, number=number, settings=Settings(rate=number)) for number in (2, 1, 4, 3, 5))
    with pytest.raises(ValueError, match="order"):
        workload_of(plan_of_one_step(steps=steps, swept=("rate",)))


def test_consumers_of_several_channels_and_of_steps_are_counted_against_the_queues() -> None:
    """Every consumer of every channel reads a queue; a step may have too few of them."""
    text = "schema: 1\nname: n\ntitle: t\nqueues: [{name: a}, {name: b}]\nstep: {duration: 1m}\n"
    found = {}
    for words_of in (
        "consuming: {channels: 2}",
        "load: {consumers: 1}",
        "sweep: {setting: consumers, values: [1, 2]}",
        "sweep: {setting: consumers, values: [2, x]}",
    ):
        found[words_of] = [(each.path, each.rule) for each in check(*parse_workload(text + words_of, "f"))]
    starved = "1 consumer cannot read 2 queues: some would only fill up"
    assert list(found.values())[:3] == [[], [("load.consumers", starved)], [("sweep.values[0]", starved)]]
    assert [path for path, _ in list(found.values())[3]] == ["sweep.values[1]"]
