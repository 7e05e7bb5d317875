"""A real node on modelled drives: its drive fills up, fails and changes while clients are connected."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from infra import control, local_cluster
from infra.local_cluster import Cluster, ClusterError
from tests.integration.testing.pika_clients import connect

pytestmark = [pytest.mark.slow, pytest.mark.processes]

ROLES = ["wal", "segment", "data", "classic"]
PATIENCE_S = 60.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)
KINDS: dict[str, dict[str, Any]] = {
    "quorum": {"x-queue-type": "quorum"},
    "classic": {"x-queue-type": "classic"},
    "lazy": {"x-queue-type": "classic", "x-queue-mode": "lazy"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, base_port: int) -> Iterator[Cluster]:
    """One node, whose only drive is modelled. A parameter is its limits."""
    home = tmp_path / "node1"
    home.mkdir()
    drives = [{"name": "d1", "profile": "nvme", "roles": ROLES}]
    (home / "node.json").write_text(json.dumps({"drives": drives, "limits": getattr(request, "param", {})}))
    running = local_cluster.start(tmp_path, nodes=1, base_port=base_port)
    try:
        yield running
    finally:
        local_cluster.stop(running)


def drive(cluster: Cluster) -> dict[str, Any]:
    (found,) = control.summary(cluster)[0]["drives"]
    return dict(found)


def await_(said: Callable[[], bool], connection: pika.BlockingConnection) -> None:
    """Let pika work until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not said():
        assert time.monotonic() < deadline
        connection.process_data_events(time_limit=0.05)


@every_kind
def test_a_full_drive_stops_publishers_and_not_consumers(cluster: Cluster, kind: str) -> None:
    """And publishing goes on by itself once there is room."""
    publisher, consumer = (connect(cluster.nodes[0]) for _ in range(2))
    blocked: list[str] = []
    publisher.add_on_connection_blocked_callback(lambda _c, _m: blocked.append("blocked"))
    publisher.add_on_connection_unblocked_callback(lambda _c, _m: blocked.append("unblocked"))
    channel = publisher.channel()
    channel.queue_declare("q", durable=True, arguments=KINDS[kind])
    for index in range(5):
        channel.basic_publish("", "q", b"%d" % index, PERSISTENT)
    assert control.act_on_drive(cluster, "node1", "d1", "fill")["full"]
    channel.basic_publish("", "q", b"5", PERSISTENT)
    await_(lambda: blocked == ["blocked"], publisher)
    taken = consumer.channel()
    for index in range(5):
        method, _, body = next(taken.consume("q"))
        assert body == b"%d" % index
        taken.basic_ack(method.delivery_tag)
    assert blocked == ["blocked"]
    assert not control.act_on_drive(cluster, "node1", "d1", "free")["full"]
    await_(lambda: blocked == ["blocked", "unblocked"], publisher)
    assert next(taken.consume("q"))[2] == b"5"
    publisher.close()
    consumer.close()


def test_a_node_tells_what_its_drives_did(cluster: Cluster) -> None:
    """On the control port, for machines, and in the records of a run."""
    before = drive(cluster)
    connection = connect(cluster.nodes[0])
    channel = connection.channel()
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for _ in range(20):
        channel.basic_publish("", "q", b"x" * 1000)
    after = drive(cluster)
    assert after["purposes"]["wal"]["syncs"] >= before["purposes"]["wal"]["syncs"] + 20
    assert after["purposes"]["wal"]["write_octets"] >= before["purposes"]["wal"]["write_octets"] + 20_000
    assert after["service_ns_p50"] >= 900_000, "a flush of this drive takes 1 ms"
    (record,) = control.sample(cluster, 1)
    assert record["drives"][0]["name"] == "d1"
    metrics = control.ask(cluster, cluster.nodes[0], {"op": "metrics"})["metrics"]
    values = {
        (sample["name"], *sample["labels"].values()): sample["value"] for each in metrics for sample in each["samples"]
    }
    assert values["reference_broker_modelled_drive_syncs_total", "d1", "wal"] >= 20
    assert values["reference_broker_modelled_drive_service_seconds", "d1", "0.50"] >= 0.0009
    assert control.summary(cluster)[0]["durability"].startswith("none: the drive of the WAL is modelled")
    connection.close()


@every_kind
def test_a_node_whose_drive_fails_stops_and_starts_again(cluster: Cluster, kind: str) -> None:
    """A failed sync is final. What was confirmed before is there after the start."""
    connection = connect(cluster.nodes[0])
    channel = connection.channel()
    channel.queue_declare("q", durable=True, arguments=KINDS[kind])
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"kept", PERSISTENT)
    assert control.act_on_drive(cluster, "node1", "d1", "fail")["failing"]
    with pytest.raises(pika.exceptions.AMQPError):
        channel.basic_publish("", "q", b"refused", PERSISTENT)
    deadline = time.monotonic() + PATIENCE_S
    while local_cluster.is_alive(cluster.nodes[0]):
        assert time.monotonic() < deadline
    assert "Input/output error" in Path(cluster.nodes[0].log_file).read_text()
    with pytest.raises(ClusterError, match="node1 is down"):
        control.act_on_drive(cluster, "node1", "d1", "heal")
    again = local_cluster.start_node(cluster, "node1")
    try:
        connection = connect(again.nodes[0])
        assert next(connection.channel().consume("q"))[2] == b"kept"
        connection.close()
    finally:
        local_cluster.stop(again)


def test_a_drive_that_is_not_there_is_named(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="no modelled drive 'd2'") as refused:
        control.act_on_drive(cluster, "node1", "d2", "fill")
    assert refused.value.fix == "use one of d1"


def waiting_octets(cluster: Cluster) -> float:
    """What classic queues have handed to their writers and the writers have not finished."""
    metrics = control.ask(cluster, cluster.nodes[0], {"op": "metrics"})["metrics"]
    values = {sample["name"]: sample["value"] for each in metrics for sample in each["samples"]}
    handed, done = (values[f"reference_broker_classic_{name}_bytes_total"] for name in ("handed", "done"))
    return float(handed - done)


@pytest.mark.parametrize("cluster", [{"publish_bytes_max": 1 << 20}], indirect=True)
def test_a_publisher_that_is_faster_than_a_slow_drive_does_not_fill_the_memory(cluster: Cluster) -> None:
    """The confirms of a lazy queue wait for the drive, and a connection may have only so many octets unconfirmed."""
    size, count = 64 << 10, 160
    control.act_on_drive(cluster, "node1", "d1", "slow", factor=100)
    with connect(cluster.nodes[0]) as connection:
        connection.channel().queue_declare("q", durable=True, arguments=KINDS["lazy"])

        def publish() -> None:
            with connect(cluster.nodes[0]) as mine:
                channel = mine.channel()
                for _ in range(count):
                    channel.basic_publish("", "q", bytes(size), PERSISTENT)

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        most, deadline = 0.0, time.monotonic() + PATIENCE_S
        while publisher.is_alive():
            assert time.monotonic() < deadline, "the publisher is not let on"
            most = max(most, waiting_octets(cluster))
        control.act_on_drive(cluster, "node1", "d1", "slow", factor=1)
        channel = connection.channel()
        taken = [next(channel.consume("q", auto_ack=True))[2] for _ in range(count)]
    assert set(taken) == {bytes(size)}
    assert size < most <= (1 << 20) + 4 * size, most
