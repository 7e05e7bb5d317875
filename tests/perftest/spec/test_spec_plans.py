"""Plans: what is measured is what was written, and two runs of the same workload are known to be the same."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads
from perftest.engine.accounting import stamp
from perftest.spec import Isolation, Plan, QueueSpec, QueueType, Settings, SpecError, Step, plan_for
from perftest.spec.actions import faults
from perftest.spec.behaviour import Arrivals, Bodies, Connecting, Consuming, Exchange, ExitWhen, Publishing, Tls
from perftest.spec.check import SIZE_BYTES_MIN, broken_settings
from perftest.spec.codec import plan_digest, plan_from_json, plan_to_json
from perftest.spec.expand import total_s
from perftest.spec.plan import Group
from perftest.spec.rules import broken

WORKLOAD = """\
schema: 1
name: mine
title: mine
queues: [{name: q, type: classic, durable: false, arguments: {x-max-length: 10}}]
load: {prefetch: 7, persistent: false, rate: 2k}
sweep: {setting: size, values: [100, 1kB], mode: isolated}
step: {duration: 2m, warmup: 10s, drain: 3s}
quick: {duration: 2s, warmup: 500ms}
"""

counts = st.integers(min_value=0, max_value=10**6)
settings_strategy = st.builds(
    Settings,
    in_flight=counts,
    prefetch=counts,
    ack_interval=counts,
    rate=st.none() | st.floats(min_value=0.1, max_value=1e6),
    size_bytes=counts,
    persistent=st.booleans(),
)
cycles = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0.1, 60)), max_size=3).map(tuple)
plans = st.builds(
    Plan.of,
    name=st.text(max_size=10),
    title=st.text(max_size=10),
    uris=st.lists(st.just("amqp://h"), max_size=2).map(tuple),
    queues=st.lists(
        st.builds(QueueSpec, name=st.text(max_size=5), arguments=st.dictionaries(st.text(max_size=5), counts)),
        max_size=2,
    ).map(tuple),
    steps=st.lists(
        st.builds(
            Step,
            number=counts,
            label=st.text(max_size=5),
            settings=settings_strategy,
            duration_s=st.just(math.inf) | st.floats(min_value=0, max_value=1e6),
            warmup_s=st.floats(min_value=0, max_value=10),
        ),
        max_size=3,
    ).map(tuple),
    isolation=st.sampled_from(Isolation),
    exchange=st.builds(Exchange, name=st.text(max_size=5)),
    publishing=st.builds(
        Publishing,
        arrivals=st.sampled_from(Arrivals),
        properties=st.dictionaries(st.text(max_size=5), counts | st.booleans() | st.text(max_size=5)),
        bodies=st.builds(Bodies, files=st.lists(st.text(max_size=5), max_size=2).map(tuple)),
        rate_cycle=cycles,
    ),
    consuming=st.builds(Consuming, rate=st.none() | st.floats(1, 9), exit_when=st.sampled_from(ExitWhen)),
    connecting=st.builds(
        Connecting,
        heartbeat_s=st.none() | counts,
        recovery_s=st.none() | st.tuples(st.floats(0, 9), st.floats(0, 9)),
        tls=st.builds(Tls, server_names=st.lists(st.text(max_size=5), max_size=2).map(tuple)),
    ),
    background=st.lists(
        st.builds(
            Group.background,
            name=st.text(max_size=5),
            queues=st.just((QueueSpec(name="b"),)),
            settings=settings_strategy,
        ),
        max_size=2,
    ).map(tuple),
)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(WORKLOAD)
    return path


def test_everything_written_arrives_in_the_plan(workload: Path) -> None:
    """A key that is read and then dropped measures a default instead."""
    plan = plan_for(workload, ("amqp://h",))
    assert plan.queues == (QueueSpec(name="q", type=QueueType.CLASSIC, durable=False, arguments={"x-max-length": 10}),)
    assert [step.settings.size_bytes for step in plan.steps] == [100, 1000]
    assert [step.label for step in plan.steps] == ["size=100", "size=1000"]
    assert plan.steps[0].settings == Settings(prefetch=7, size_bytes=100, persistent=False, rate=2000.0)
    assert (plan.isolation, plan.swept, plan.drain_s) == (Isolation.ISOLATED, ("size_bytes",), 3.0)
    assert (total_s(plan), plan.steps[0].warmup_s) == (240, 10)


def test_quick_changes_time_only(workload: Path) -> None:
    """A quick run must be the same experiment, shorter."""
    full, quick = plan_for(workload, ()), plan_for(workload, (), quick=True)
    assert [step.settings for step in quick.steps] == [step.settings for step in full.steps]
    assert total_s(quick) == 4 and quick.steps[0].warmup_s == 0.5


BESIDE = """
background:
- {name: late, queues: [{name: a}], load: {rate: 1}, start: 150s, stop: 3m}
- {name: early, queues: [{name: b}], load: {rate: 1}, ahead: 30s, steps: [{set: {rate: 2}, duration: 1m},
   {set: {rate: 3}, duration: 1m}]}
"""


def test_quick_keeps_the_place_of_each_background_load_in_the_run(tmp_path: Path) -> None:
    """A load that begins beyond the shorter run would not begin, and its file would still name it."""
    path = tmp_path / "beside.yaml"
    path.write_text(WORKLOAD + BESIDE, encoding="utf-8")
    full, quick = plan_for(path, ()), plan_for(path, (), quick=True)
    late, early = full.background
    assert [late.start_s, late.stop_s, early.start_s, early.steps[0].duration_s] == [150, 180, -30, 60]
    late, early = quick.background
    assert [late.start_s, late.stop_s, early.start_s, early.steps[0].duration_s] == [2.5, 3, -0.5, 1]
    assert early.stop_s == early.steps[1].duration_s == math.inf


ACTIONS = """
timeline:
- {at: 150s, do: kill}
- {at: 210s, do: restart, node: killed}
- {at: 30s, step: 2, do: transfer-leader, node: node2}
"""


def test_quick_keeps_the_place_of_each_action_in_the_run(tmp_path: Path) -> None:
    """An action of the full run would lie beyond the end of the short one, and be refused or never happen."""
    path = tmp_path / "actions.yaml"
    path.write_text(WORKLOAD + ACTIONS, encoding="utf-8")
    full, quick = plan_for(path, ()), plan_for(path, (), quick=True)
    assert [action.at_s for action in full.timeline] == [150, 210, 30]
    assert [action.at_s for action in quick.timeline] == [2.5, 3.5, 0.5]
    for plan in (full, quick):
        assert not list(faults(plan.timeline, [step.duration_s for step in plan.steps], None))
    assert [replace(action, at_s=0.0) for action in quick.timeline] == [
        replace(action, at_s=0.0) for action in full.timeline
    ]


def test_overrides_reach_the_plan(workload: Path) -> None:
    """--set is how an experiment is varied without editing it."""
    plan = plan_for(
        workload, (), ["load.prefetch=9", "sweep.values=[1kB]", "queues[0].type=quorum", "queues[0].durable=true"]
    )
    assert [step.settings.prefetch for step in plan.steps] == [9]
    assert plan.queues[0].type is QueueType.QUORUM


def test_relations_are_refused_with_all_problems(workload: Path) -> None:
    """plan_for never gives a plan that would hang."""
    with pytest.raises(SpecError) as caught:
        plan_for(workload, (), ["load.ack_interval=8", "load.publishers=0", "load.consumers=0"])
    assert {problem.path for problem in caught.value.problems} == {"load.ack_interval", "load.publishers"}


def test_a_missing_file_is_an_error_for_people(tmp_path: Path) -> None:
    """No traceback for a wrong path."""
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        plan_for(tmp_path / "no.yaml", ())


@given(plans)
def test_a_plan_survives_json(plan: Plan) -> None:
    """Workers get their plan as JSON: one that comes out differently measures something else."""
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan), allow_nan=False))) == plan


def test_the_digest_is_of_the_experiment_not_of_the_target(workload: Path) -> None:
    """The same workload against two clusters must be comparable, another workload must not."""
    plan = plan_for(workload, ("amqp://one",))
    assert plan_digest(plan) == plan_digest(replace(plan, uris=("amqp://two",), objectives=("loss==0",)))
    assert plan_digest(plan) != plan_digest(replace(plan, drain_s=plan.drain_s + 1))
    assert len(plan_digest(plan)) == 64


def several_groups() -> Plan:
    step = Step(number=1, label="", settings=Settings(), duration_s=60.0, warmup_s=0.0)
    groups = [Group(name=name, queues=(QueueSpec(name=name),), steps=(step,)) for name in ("orders", "audits")]
    noise = Group.background("noise", (QueueSpec(name="n"),), Settings(rate=7.0))
    return Plan(name="n", title="t", uris=(), groups=(*groups, noise), isolation=Isolation.LIVE)


def test_a_plan_of_several_groups_survives_json_and_shows_the_first_where_the_only_one_stands() -> None:
    """Whoever reads the plans of today reads those of tomorrow."""
    plan = several_groups()
    plain = json.loads(json.dumps(plan_to_json(plan), allow_nan=False))
    assert plan_from_json(plain) == plan
    assert plain["queues"][0]["name"] == "orders" and plain["background"][0]["settings"]["rate"] == 7.0
    assert [group["name"] for group in plain["groups"]] == ["orders", "audits"]


def test_a_background_load_with_times_and_steps_survives_json() -> None:
    """Workers of the load get its plan as JSON."""
    plan = several_groups()
    *measured, noise = plan.groups
    steps = tuple(
        replace(noise.steps[0], number=number, duration_s=length_s) for number, length_s in ((1, 5.0), (2, math.inf))
    )
    changed = replace(plan, groups=(*measured, replace(noise, start_s=-3.0, stop_s=9.0, workers=2, steps=steps)))
    plain = json.loads(json.dumps(plan_to_json(changed), allow_nan=False))
    assert plan_from_json(plain) == changed
    assert len({plan_digest(each) for each in (plan, changed)}) == 2


def test_the_digest_is_of_all_groups() -> None:
    plan = several_groups()
    orders, audits, noise = plan.groups
    others = [
        replace(plan, groups=(orders, noise)),
        replace(plan, groups=(orders, audits)),
        replace(plan, groups=(audits, orders, noise)),
        replace(plan, groups=(orders, replace(audits, publishing=Publishing(channels=2)), noise)),
    ]
    assert len({plan_digest(each) for each in (plan, *others)}) == 5


def test_groups_that_are_measured_side_by_side_have_the_same_steps() -> None:
    plan = several_groups()
    assert not list(broken(plan))
    orders, audits, noise = plan.groups
    longer = replace(audits, steps=(replace(audits.steps[0], duration_s=61.0),))
    (found,) = broken(replace(plan, groups=(orders, longer, noise)))
    assert (found.field, found.value) == ("groups", "orders, audits")
    (found,) = broken(replace(plan, groups=(orders, replace(audits, name="orders"), noise)))
    assert (found.field, found.value) == ("groups", "orders")


def test_the_digest_never_changes_silently() -> None:
    """Old run directories stay comparable: a change of this value is a change of the plan's meaning."""
    plan = Plan.of(name="n", title="t", uris=(), queues=(), steps=(), isolation=Isolation.LIVE)
    assert plan_digest(plan) == "c06c87c8729a3f8b0eecd6338a9c286365c7802889f39ca3fb44805a85c0c91e"


def test_a_new_option_leaves_the_digests_of_others_as_they_are() -> None:
    """Else no run from before it could be compared with one from after it."""
    plan = Plan.of(name="n", title="t", uris=(), queues=(), steps=(), isolation=Isolation.LIVE)
    assert plan_digest(plan.changed(publishing=Publishing(channels=1))) == plan_digest(plan)
    assert plan_digest(plan.changed(publishing=Publishing(channels=2))) != plan_digest(plan)


@pytest.mark.parametrize("plain", [{"nothing": 1}, {"publishing": {"chanels": 1}}, {"publishing": 7}])
def test_what_is_not_a_plan_is_refused(plain: dict[str, object]) -> None:
    """A worker of another version must not run half of what it was told."""
    with pytest.raises(TypeError):
        plan_from_json(plain)


def test_the_smallest_body_has_room_for_the_stamp() -> None:
    """The rule and the engine must agree, or a run dies after it was accepted."""
    assert SIZE_BYTES_MIN == stamp.SIZE
    assert not list(broken_settings(Settings(size_bytes=stamp.SIZE)))


def test_bundled_workloads_expand() -> None:
    """Every published experiment can be run, in full and quickly."""
    for name in workloads.names():
        for quick in (False, True):
            assert plan_for(workloads.path_of(name), (), quick=quick).steps


def test_a_worker_does_without_pydantic() -> None:
    """Sections of a workload file are parts of the plan. A worker that imported their checks would start later."""
    code = "import sys, perftest.engine.workers.worker; assert not {'pydantic', 'pydantic_core'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
