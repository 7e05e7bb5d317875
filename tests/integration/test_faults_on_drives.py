"""Nodes on block drives that lie, fail, rot, crawl and run full, with a real ext4 between node and drive.

A fault in memory shows that a store heeds an error; here the error must find its way through page cache, journal and
file system first. Needs root, FUSE and loop devices, and is skipped with the reason elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest

from infra import cleaning, drives, filling, local_cluster
from infra.drives import BlockDrive
from infra.local_cluster import Cluster, ClusterError, Node
from infra.node_process import wait
from infra.register import Register
from tests.integration.testing.pika_clients import connect

pytestmark = [
    pytest.mark.drives,
    pytest.mark.processes,
    pytest.mark.skipif(bool(drives.impossible()), reason=f"no FUSE drives here: {drives.impossible()}"),
]
SIZE_MB = 512
PATIENCE_S = 60.0
BODIES = [b"%04d" % number + b"x" * 1000 for number in range(60)]
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[BlockDrive]:
    """The drive of a node. The processes on it are ended before."""
    try:
        yield drives.make(tmp_path / "drive1", SIZE_MB)
    finally:
        if (tmp_path / "c" / "cluster.json").exists():
            local_cluster.stop(local_cluster.load(tmp_path / "c"))
        drives.clean(tmp_path)
        assert cleaning.clean(tmp_path, kept=True) == []


def one_node(directory: Path, drive: BlockDrive, base_port: int, *, sync: bool = True) -> Cluster:
    """A cluster of one node with everything on the drive."""
    directory.mkdir()
    home = drive.files / "node"
    home.mkdir()
    (directory / "node1").symlink_to(home)
    (home / "node.json").write_text(json.dumps({"sync": sync}))
    return local_cluster.start(directory, base_port=base_port, nodes=1)


def publish(node: Node, bodies: list[bytes]) -> None:
    """Each confirmed before the next."""
    with connect(node) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def there(node: Node) -> list[bytes]:
    """What the queue holds, taken away."""
    taken: list[bytes] = []
    with connect(node) as connection:
        channel = connection.channel()
        try:
            while (answer := channel.basic_get("q", auto_ack=True))[0] is not None:
                taken.append(answer[2])
        except pika.exceptions.ChannelClosedByBroker:  # not even the queue is there
            pass
    return taken


def last_words(node: Node) -> str:
    """The error with which the node ended."""
    assert wait(lambda: not local_cluster.is_alive(node), PATIENCE_S), "the node goes on"
    return "\n".join(Path(node.log_file).read_text(errors="replace").splitlines()[-3:])


@pytest.mark.parametrize("sync", [True, False], ids=["syncs", "does not sync"])
def test_a_node_that_does_not_sync_loses_what_it_confirmed(
    tmp_path: Path, base_port: int, drive: BlockDrive, sync: bool
) -> None:
    """The planted bug: if nothing was lost without syncs, then the power cut would show nothing with them."""
    cluster = one_node(tmp_path / "c", drive, base_port, sync=sync)
    publish(cluster.nodes[0], BODIES)
    local_cluster.kill(cluster, "node1")
    drives.cut_power(drive, keep=0.0, seed=1)
    cluster = local_cluster.start(tmp_path / "c")
    assert (there(cluster.nodes[0]) == BODIES) is sync


@pytest.mark.parametrize("fault", ["write_errors", "flush_errors"])
def test_a_drive_that_fails_ends_its_node(tmp_path: Path, base_port: int, drive: BlockDrive, fault: str) -> None:
    """What the node cannot sync it never confirms; and it does not try again, because the kernel has dropped the data.
    After the drive is mended, everything that was confirmed is there."""
    cluster = one_node(tmp_path / "c", drive, base_port)
    node = cluster.nodes[0]
    publish(node, BODIES[:30])
    drives.ask(drive, op="fault", fault=fault, value=1_000_000)
    with pytest.raises(pika.exceptions.AMQPError):
        publish(node, BODIES[30:31])
    said = last_words(node)
    assert "error: the log cannot be written: Input/output error" in said, said
    drives.cut_power(drive, keep=1.0, seed=1)  # mended, and mounted again
    cluster = local_cluster.start(tmp_path / "c")
    found = there(cluster.nodes[0])
    assert found[:30] == BODIES[:30] and found[30:] in ([], BODIES[30:31])


def test_a_drive_that_rots_gives_no_wrong_message(tmp_path: Path, base_port: int, drive: BlockDrive) -> None:
    """Every read comes with one bit turned. The node may refuse to start; it may not serve what it did not store."""
    bodies = [body * 100 for body in BODIES]  # so that most reads of the log hit a message
    cluster = one_node(tmp_path / "c", drive, base_port)
    publish(cluster.nodes[0], bodies)
    local_cluster.kill(cluster, "node1")
    drives.cut_power(drive, keep=1.0, seed=1)  # the page cache is empty: what the node reads comes from the drive
    drives.ask(drive, op="fault", fault="rotten_reads", value=1_000_000)
    with pytest.raises(ClusterError) as caught:
        local_cluster.start(tmp_path / "c")
    by_file_system = "Bad message" in caught.value.what  # a checksum of ext4 itself failed first
    assert by_file_system or ("damaged log" in caught.value.what and "--replace" in caught.value.fix)
    drives.cut_power(drive, keep=1.0, seed=2)
    cluster = local_cluster.start(tmp_path / "c")
    assert there(cluster.nodes[0]) == bodies


def test_a_slow_drive_delays_every_confirm(tmp_path: Path, base_port: int, drive: BlockDrive) -> None:
    """A confirm that came sooner than the flush would be a confirm of nothing."""
    cluster = one_node(tmp_path / "c", drive, base_port)
    publish(cluster.nodes[0], BODIES[:1])
    before = drives.ask(drive, op="status")["counts"]["flushes"]
    drives.ask(drive, op="fault", fault="slow_ns", value=20_000_000)
    publish(cluster.nodes[0], BODIES[1:21])
    status = drives.ask(drive, op="status")
    assert status["counts"]["flushes"] - before >= 20, "one flush for each message that was confirmed alone"
    drives.ask(drive, op="fault", fault="slow_ns", value=0)
    assert there(cluster.nodes[0]) == BODIES[:21]


def test_a_full_drive_stops_publishers_until_it_is_freed(tmp_path: Path, base_port: int, drive: BlockDrive) -> None:
    """Consumers go on, and nothing that was confirmed is lost."""
    cluster = one_node(tmp_path / "c", drive, base_port)
    node, register = cluster.nodes[0], Register(tmp_path)
    publish(node, BODIES[:40])
    filling.fill(drive.files, register)
    heard: list[str] = []
    with connect(node) as connection:
        connection.add_on_connection_blocked_callback(lambda _, method: heard.append(method.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: heard.append("on"))
        channel = connection.channel()

        def publishes_until(count: int) -> bool:
            channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
            connection.process_data_events(0.05)
            return len(heard) >= count

        assert wait(lambda: publishes_until(1), PATIENCE_S), "publishers were never blocked"
        assert filling.free(drive.files, register)
        assert wait(lambda: publishes_until(2), PATIENCE_S), "publishers were never let go"
    assert heard == ["low on disk", "on"]
    found = there(node)
    assert found[:40] == BODIES[:40] and set(found[40:]) <= {b"x"}
