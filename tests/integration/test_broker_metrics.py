"""A broker's own figures over HTTP, from a real RabbitMQ and from the bundled broker, in the directory of a run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra import local_cluster, rabbitmq_cluster
from infra.local_cluster import Cluster
from infra.ports import free_ports
from infra.rabbitmq_cluster import RabbitMQ
from perftest.measuring.broker_metrics import BrokerMetrics
from tests.perftest.telemetry.test_telemetry_dashboards import asked

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Watched:
    """A node of RabbitMQ with both plugins."""

    broker: RabbitMQ
    metrics: str
    management: str


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if not rabbitmq_cluster.is_installed():
        pytest.skip("rabbitmq-server is not installed (apt-get install rabbitmq-server)")
    (management,) = free_ports(1)
    configuration = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management}\n"
    plugins, directory = ("rabbitmq_management",), tmp_path_factory.mktemp("rabbitmq-watched")
    with rabbitmq_cluster.running(directory, 1, configuration, plugins, tells_figures=True) as broker:
        found = Watched(broker, broker.metrics[0], f"http://guest:guest@127.0.0.1:{management}")
        asyncio.run(first_answer(found.management, "pid"))  # the API is there before the figures of the node are
        yield found


def measured(out: Path, *words: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run of three seconds."""
    command = [sys.executable, "-m", "perftest", "run", *words, "-u", "q", "-qq", "-e", "amq.default"]
    command += ["-c", "100", "-q", "100", "-r", "200", "-z", "3", "--warmup", "0", "--ui", "none", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    (path,) = out.iterdir()
    return path, done


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.joinpath("broker.jsonl").read_text().splitlines()]


@pytest.mark.rabbitmq
def test_rabbitmqs_metrics_for_prometheus_stand_beside_a_run(rabbit: Watched, tmp_path: Path) -> None:
    path, done = measured(tmp_path / "runs", "-h", rabbit.broker.uris[0], "--broker-metrics", rabbit.metrics)
    assert done.returncode == 0, done.stderr
    found = records(path)
    last = found[-1]
    assert last["node"].startswith("perftest") and last["cpu_kind"] == "user"
    process = psutil.Process(rabbit.broker.pids[0])
    assert found[0]["cpu_ns"] <= last["cpu_ns"] <= (process.cpu_times().user + 1) * 1e9
    assert last["rss_bytes"] > 10e6 and last["metrics"]["disk_free_bytes"] > 0
    assert any(record["metrics"]["connections"] >= 1 for record in found)
    manifest = json.loads(path.joinpath("manifest.json").read_text())
    assert manifest["broker"]["metrics"] == [rabbit.metrics] and manifest["broker"]["cpu_kind"] == "user"
    result = json.loads(path.joinpath("result.json").read_text())
    assert "broker_cpu" in [check["check"] for check in result["trust"]]


@pytest.mark.rabbitmq
def test_rabbitmqs_management_api_stands_beside_a_run(rabbit: Watched, tmp_path: Path) -> None:
    path, done = measured(tmp_path / "runs", "-h", rabbit.broker.uris[0], "--broker-metrics", rabbit.management)
    assert done.returncode == 0, done.stderr
    last = records(path)[-1]
    assert last["pid"] == rabbit.broker.pids[0] and last["rss_bytes"] > 10e6
    assert "messages" in last["metrics"] and "cpu_ns" not in last
    kept = "".join(file.read_text() for file in path.iterdir() if file.suffix in (".json", ".jsonl"))
    assert "guest:guest" not in kept + done.stdout + done.stderr


@pytest.mark.rabbitmq
def test_an_address_where_nobody_listens_ends_no_run(rabbit: Watched, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}/metrics"
    path, done = measured(tmp_path / "runs", "-h", rabbit.broker.uris[0], "--broker-metrics", address)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in path.joinpath("events.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in events].count("metrics_lost") == 1
    assert "1 loss of the broker's own figures" in done.stdout


@pytest.mark.rabbitmq
def test_a_finding_about_the_nodes_traffic_is_judged_of_a_rabbitmq_that_was_started(tmp_path: Path) -> None:
    """A leader sends each message to two followers; its own clients cost nothing."""
    command = [sys.executable, "-m", "perftest", "sweep", "locality/quorum_leader", "--broker", "rabbitmq", "--quick"]
    command += ["--no-report", "--ui", "none", "--yes", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*/result.json")
    (row,) = json.loads(path.read_text())["steps"]
    assert 1.9 <= row["link_bodies"] <= 2.3


async def first_answer(url: str, key: str = "node") -> list[dict[str, Any]]:
    """The first records with that key. A node opens its metrics port when it is ready for the rest."""
    metrics = BrokerMetrics([url], lambda event: None)
    async with asyncio.timeout(60):
        while not (records := await metrics.sample(1)) or key not in records[0]:
            pass
    return records


def test_the_bundled_brokers_metrics_tell_the_same_as_its_control_port(tmp_path: Path, base_port: int) -> None:
    cluster = local_cluster.start(tmp_path / "cluster", nodes=1, base_port=base_port)
    try:
        (node,) = cluster.nodes
        (over_http,) = asyncio.run(first_answer(f"http://127.0.0.1:{node.metrics_port}"))
        (direct,) = local_cluster.sample(cluster, 1)
    finally:
        local_cluster.stop(cluster)
    assert over_http["node"] == direct["node"] and 0 < over_http["cpu_ns"] <= direct["cpu_ns"]
    shared = set(over_http["metrics"]) & set(direct["metrics"])
    assert {"wal_syncs", "wal_bytes", "wal_writes", "wal_entries", "sync_ns_total"} <= shared
    assert over_http["metrics"]["connections"] == 0


def test_the_dashboard_of_the_broker_asks_for_what_nodes_serve(cluster: Cluster) -> None:
    """A renamed metric leaves an empty panel, which nobody sees until it is needed."""
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.nodes[0].metrics_port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        served = {family.name.removesuffix("_info") for family in families}
    assert asked("broker") <= served
