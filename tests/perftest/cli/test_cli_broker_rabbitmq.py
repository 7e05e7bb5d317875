"""``--broker rabbitmq``: what RabbitMQ cannot have is told before anything starts, and the rest reaches RabbitMQ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import rabbitmq_cluster
from perftest.measuring.measured_rabbitmq import rabbitmq
from perftest.spec.cluster import ClusterSpec, Product
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.plan import Plan
from perftest.spec.problem import SpecError
from tests.perftest.cli.test_cli_asked_cluster import WORKLOAD

Call = Callable[..., tuple[int, str, str]]
LAYOUT = """\
title: two
drives:
  disk: {directory: DISK}
  fast: {directory: "FAST/{node}"}
roles: {data: disk, logs: disk, segment: disk, wal: fast}
"""
COMMANDS = [
    ("run", "-z", "1"),
    ("sweep", "--vary", "in_flight=1,2"),
    ("search", "--slo", "e2e.p99<1s"),
]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    file.write_text(LAYOUT.replace("DISK", str(tmp_path / "disk")).replace("FAST", str(tmp_path / "fast")))
    return file


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would have been started, in a RabbitMQ that is nobody's."""
    found: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def running(parent: Path, nodes: int, **given: Any) -> Iterator[Any]:
        found.append({"parent": parent, "nodes": nodes, **given})
        metrics = ("http://127.0.0.1:2/metrics",) if given["tells_figures"] else ()
        yield SimpleNamespace(uris=("amqp://127.0.0.1:1",), metrics=metrics)

    monkeypatch.setattr(rabbitmq_cluster, "running", running)
    monkeypatch.setattr(rabbitmq_cluster, "is_installed", lambda: True)
    return found


@every_command
def test_a_rabbitmq_that_is_not_installed_is_told_with_the_fix(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(rabbitmq_cluster, "is_installed", lambda: False)
    code, _out, err = call(*command, "--broker", "rabbitmq", "--out", str(tmp_path / "runs"))
    assert code == 1 and "RabbitMQ is not installed" in err and "apt-get install rabbitmq-server" in err


@every_command
@pytest.mark.parametrize(
    ("broker", "fix"),
    [
        (("--broker", "rabbitmq"), "sbin/rabbitmq-server and sbin/rabbitmqctl"),
        ((), "add --broker rabbitmq"),
        (("--broker", "reference"), "add --broker rabbitmq"),
        (("-h", "amqp://localhost"), "add --broker rabbitmq"),
    ],
    ids=["no home", "no broker", "another broker", "a broker that runs"],
)
def test_a_home_is_that_of_a_rabbitmq_to_start(
    call: Call, tmp_path: Path, command: tuple[str, ...], broker: tuple[str, ...], fix: str
) -> None:
    out = () if "-h" in broker else ("--out", str(tmp_path / "runs"))
    code, _out, err = call(*command, "--rabbitmq-home", str(tmp_path), *broker, *out)
    assert code in (1, 2) and fix in err and str(code) == ("1" if "rabbitmq" in broker else "2")


@every_command
def test_a_broker_that_runs_already_is_not_started(call: Call, command: tuple[str, ...]) -> None:
    code, _out, err = call(*command, "--broker", "rabbitmq", "-h", "amqp://localhost")
    assert code == 2 and "--broker is for a cluster that this command starts" in err


@every_command
def test_what_only_the_bundled_broker_can_have_is_refused_at_once(
    call: Call, tmp_path: Path, started: list[dict[str, Any]], command: tuple[str, ...]
) -> None:
    file = tmp_path / "modelled.yaml"
    file.write_text(
        "drives:\n  disk: {directory: /tmp/disk}\n  fast: {directory: /tmp}\n"
        "roles: {data: disk, logs: disk, segment: disk, wal: fast, classic: fast}\n"
    )
    code, _out, err = call(*command, "--broker", "rabbitmq", "--layout", str(file))
    assert code == 2 and started == []
    assert "RabbitMQ keeps classic queues with its other data" in err and "modelled.yaml:4: roles.classic" in err


@pytest.mark.parametrize(
    ("section", "option", "says"),
    [
        (
            "cluster: {broker: rabbitmq, settings: {wal_file_bytes: 16000000}}",
            (),
            "limits are those of reference nodes",
        ),
        ("cluster: {settings: {wal_file_bytes: 16000000}}", ("--broker", "rabbitmq"), "limits are those of reference"),
        ("cluster: {broker: rabit}", (), "broker"),
        ("cluster: {broker: rabbitmq, nodes: 7}", (), "a RabbitMQ of 7 nodes is not started on one machine"),
        ("cluster: {nodes: 9}", ("--broker", "rabbitmq"), "a RabbitMQ of 9 nodes is not started on one machine"),
        ("timeline: [{at: 1s, do: kill, node: leader}]", ("--broker", "rabbitmq"), "this run starts RabbitMQ"),
    ],
)
def test_what_contradicts_rabbitmq_is_told(
    call: Call, tmp_path: Path, started: list[dict[str, Any]], section: str, option: tuple[str, ...], says: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD + section + "\n")
    code, _out, err = call("sweep", str(file), *option, "--out", str(tmp_path / "runs"))
    assert code == 2 and says in err and started == []


def test_a_simulation_has_no_rabbitmq_unless_its_model_is_asked_for(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD + "cluster: {broker: rabbitmq}\n")
    code, _out, err = call("simulate", str(file), "--out", str(tmp_path / "runs"))
    assert code == 2 and "the workload is for RabbitMQ" in err and "use --broker rabbitmq-3.10" in err


def plan_with(cluster: str) -> Plan:
    return expand(parse_workload(WORKLOAD + cluster, "w.yaml")[0], ())


@pytest.mark.parametrize(("io", "threads"), [("", 10), ("io: {pool: 4}", 4)], ids=["default", "pool"])
def test_rabbitmq_gets_the_places_and_the_threads_of_the_layout(
    tmp_path: Path, layout: Path, started: list[dict[str, Any]], io: str, threads: int
) -> None:
    """A node of RabbitMQ has no stores with threads of their own, so the line of the layout must not claim any."""
    from perftest.measuring.placement import layout_of

    layout.write_text(layout.read_text() + io)
    plan = plan_with("cluster: {broker: rabbitmq, nodes: 1}\n")
    (tmp_path / "sbin").mkdir()
    for script in ("rabbitmq-server", "rabbitmqctl"):
        (tmp_path / "sbin" / script).touch()
    with rabbitmq(plan, None, tmp_path / "runs", layout_of(layout, 1, Product.RABBITMQ), tmp_path) as measured:
        assert measured.plan.uris == ("amqp://127.0.0.1:1",)
    (given,) = started
    assert given["nodes"] == 1 and given["io_threads"] == threads and given["home"] == tmp_path
    assert given["directories"] == {
        "data": tmp_path / "disk", "logs": tmp_path / "disk", "segment": tmp_path / "disk",
        "wal": tmp_path / "fast" / "{node}",
    }  # fmt: skip
    assert measured.facts["layout"].endswith(f"io pool:{threads}") and measured.facts["cluster"] == "local"


@pytest.mark.parametrize(
    ("judged", "asked"),
    [
        ("", ()),
        ("slo: [confirm.p99<1s]\n", ()),
        ("slo: [link_bodies<3]\n", ("http://127.0.0.1:2/metrics",)),
        ("findings: [{trend: level, metric: link_bodies, at_most: 3, says: two}]\n", ("http://127.0.0.1:2/metrics",)),
    ],
)
def test_rabbitmq_tells_its_figures_only_if_a_verdict_needs_them(
    tmp_path: Path, started: list[dict[str, Any]], judged: str, asked: tuple[str, ...]
) -> None:
    """Its answers cost CPU time that every other run would miss."""
    plan = plan_with(f"cluster: {{broker: rabbitmq}}\n{judged}")
    with rabbitmq(plan, None, tmp_path / "runs", None) as measured:
        assert measured.broker_metrics == asked


def test_a_timeline_beside_rabbitmq_acts_on_fuse_drives_only() -> None:
    """RabbitMQ would measure half a run and then refuse."""
    from infra.layout import PlacedDrive, PlacedLayout
    from perftest.actions.cluster_actions import refuse_actions

    layout = PlacedLayout(
        name="l", drives=(PlacedDrive(name="disk", profile="nvme", size_mb=64),), roles={"wal": "disk"}
    )
    start = "cluster: {broker: rabbitmq, nodes: 1}\ntimeline:\n"
    refuse_actions(plan_with(f"{start}  - {{at: 0s, do: fill, node: node1, drive: disk}}\n"), None, layout)
    for action, rule in (
        ("do: kill, node: node1", "kill is for a cluster of the bundled broker"),
        ("do: fail, node: node1, drive: disk", "fail is for a cluster of the bundled broker"),
        ("do: slow, drive: disk, factor: 2", "which node of a RabbitMQ is leader is not known here"),
        ("do: fill, node: node1, drive: other", "there is no modelled drive 'other'"),
        ("do: fill, node: node2, drive: disk", "there is no node 'node2'"),
    ):
        with pytest.raises(SpecError) as caught:
            refuse_actions(plan_with(f"{start}  - {{at: 0s, {action}}}\n"), None, layout)
        assert rule in str(caught.value), action


def test_other_plans_start_no_rabbitmq(tmp_path: Path, started: list[dict[str, Any]]) -> None:
    asks = plan_with("cluster: {broker: rabbitmq}\n")
    assert asks.cluster == ClusterSpec(broker=Product.RABBITMQ)
    for plan, kept in ((plan_with(""), None), (asks.changed(uris=("amqp://there",)), None), (asks, tmp_path)):
        with rabbitmq(plan, kept, tmp_path, None) as measured:
            assert measured.plan is plan and measured.facts == {} and measured.drives is None
    assert started == []
