"""What FUSE drives can be made to do while a cluster runs, by `perftest broker drive` and by a timeline."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from infra import control, drives, local_cluster, rabbitmq_cluster
from infra.cleaning import clean
from infra.cluster import Cluster, ClusterError
from infra.fuse_drives import FuseDrives
from infra.layout import PlacedDrive, PlacedLayout
from infra.mounts import mounts_below
from infra.node_process import wait
from perftest.exits import Exit
from tests.integration.testing.pika_clients import connect

pytestmark = [
    pytest.mark.drives,
    pytest.mark.processes,
    pytest.mark.skipif(bool(drives.impossible()), reason=f"no FUSE drives here: {drives.impossible()}"),
]
LAYOUT = PlacedLayout(
    name="one",
    drives=(PlacedDrive(name="disk", profile="nvme", size_mb=512),),
    roles=dict.fromkeys(("data", "logs", "segment", "wal"), "disk"),
)
WORKLOAD = """\
schema: 1
name: w
title: drives that change
queues: [{name: q, type: quorum}]
load: {in_flight: 20}
step: {duration: 3s}
cluster:
  broker: BROKER
  nodes: 1
  layout:
    title: one
    drives: {disk: {fuse: {profile: nvme, size: 600MB}}}
    roles: {data: disk, logs: disk, segment: disk, wal: disk}
timeline:
"""
CHANGES = """\
  - {at: 500ms, do: slow, node: node1, drive: disk, factor: 4}
  - {at: 1s, do: fill, node: node1, drive: disk}
  - {at: 1500ms, do: free, node: node1, drive: disk}
  - {at: 2s, do: profile, node: node1, drive: disk, profile: io1-200g}
"""
FAILS = "  - {at: 500ms, do: fail, node: node1, drive: disk}\n  - {at: 1s, do: heal, node: killed, drive: disk}\n"


@pytest.fixture
def cluster(tmp_path: Path, base_port: int) -> Iterator[Cluster]:
    """One node that keeps running, on a FUSE drive."""
    directory = tmp_path / "cluster"
    try:
        yield local_cluster.start(directory, nodes=1, base_port=base_port, layout=LAYOUT)
    finally:
        if (directory / "cluster.json").exists():
            local_cluster.stop(local_cluster.load(directory))
        assert wait(lambda: not clean(tmp_path, kept=True), 60)
        assert mounts_below(tmp_path) == []


def status(cluster: Cluster) -> dict[str, Any]:
    (found,) = control.fuse_drives(cluster).told("node1")
    return found


def test_a_drive_is_slowed_filled_and_made_what_it_was(cluster: Cluster) -> None:
    assert control.modelled_drives(cluster) == ["disk"]
    for do, details, profile, full in (
        ("slow", {"factor": 4.0}, "nvme, 4 times slower", False),
        ("fill", {}, "nvme, 4 times slower", True),
        ("profile", {"profile": "st1-1t"}, "st1-1t", True),
        ("slow", {"factor": 2.0}, "st1-1t, 2 times slower", True),
        ("slow", {"factor": 1.0}, "st1-1t", True),
        ("free", {}, "st1-1t", False),
        ("fill", {}, "st1-1t", True),
        ("restore", {}, "nvme", False),
    ):
        told = control.act_on_drive(cluster, "1", "disk", do, keeps=True, **details)
        assert (told["profile"], told["full"]) == (profile, full), do
    for do, details, wrong in (
        ("slow", {"factor": float("nan")}, "times as slow"),
        ("profile", {"profile": "floppy"}, "no profile 'floppy'"),
    ):
        with pytest.raises(ClusterError, match=wrong):
            control.act_on_drive(cluster, "node1", "disk", do, **details)
    assert local_cluster.is_alive(cluster.nodes[0])


def test_a_drive_that_failed_is_mended_by_the_next_start(cluster: Cluster) -> None:
    """A file system that has seen a failed write is read-only until it is mounted again."""
    directory = Path(cluster.directory)
    control.act_on_drive(cluster, "node1", "disk", "slow", factor=3.0)
    local_cluster.kill(cluster, "node1")
    assert control.act_on_drive(cluster, "node1", "disk", "fail")["failing"]
    subprocess.run(["sync", "-f", str(directory / "drives" / "node1-disk" / "files")], check=False)
    cluster = local_cluster.start_node(cluster, "node1")
    assert not status(cluster)["failing"] and status(cluster)["profile"] == "nvme"
    local_cluster.kill(cluster, "node1")
    assert control.act_on_drive(cluster, "node1", "disk", "fail")["failing"]
    assert not control.act_on_drive(cluster, "node1", "disk", "heal")["failing"]


def test_a_node_that_a_failed_flush_ended_starts_again_on_the_mended_drive(cluster: Cluster) -> None:
    """The whole way: what was confirmed is there, and nobody is told to give the drive up."""
    with connect(cluster.uris[0]) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"kept")
    drive = drives.BlockDrive(Path(cluster.directory) / "drives" / "node1-disk")
    drives.ask(drive, op="fault", fault="flush_errors", value=1000)
    with (
        contextlib.suppress(pika.exceptions.AMQPError),
        connect(cluster.uris[0]) as connection,
    ):
        connection.channel().basic_publish("", "q", b"x" * 1000)
        connection.channel().queue_declare("other", durable=True, arguments={"x-queue-type": "quorum"})
    assert wait(lambda: not local_cluster.is_alive(cluster.nodes[0]), 60)
    assert not drives.takes_writes(drive)  # a new file needs the journal, which then fails, too
    control.fuse_drives(cluster).act("node1", "disk", "heal")
    assert not drives.takes_writes(drive)
    cluster = local_cluster.start_node(local_cluster.load(Path(cluster.directory)), "node1", until_ready=True)
    with connect(cluster.uris[0]) as connection:
        assert connection.channel().basic_get("q", auto_ack=True)[2] == b"kept"


def test_drives_of_other_names_are_told() -> None:
    with pytest.raises(ClusterError, match="node1 has no FUSE drive 'd9'"):
        FuseDrives(["node1"], {"d1": "/nowhere/{node}-d1"}).act("node1", "d9", "fill")


@pytest.mark.parametrize(
    ("broker", "timeline"),
    [
        pytest.param("reference", CHANGES, id="bundled"),
        pytest.param("reference", FAILS, id="bundled-fails"),
        pytest.param(
            "rabbitmq",
            CHANGES,
            id="rabbitmq",
            marks=[
                pytest.mark.rabbitmq,
                pytest.mark.skipif(not rabbitmq_cluster.is_installed(), reason="RabbitMQ is not installed"),
            ],
        ),
    ],
)
def test_a_timeline_acts_on_fuse_drives(tmp_path: Path, broker: str, timeline: str) -> None:
    """The drives go at the end, so what was changed is seen in the events and in the records of the run."""
    file, runs = tmp_path / "w.yaml", tmp_path / "runs"
    file.write_text(WORKLOAD.replace("BROKER", broker) + timeline)
    command = [sys.executable, "-m", "perftest.cli", "sweep", str(file), "--out", str(runs), "--no-report"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (Exit.OK, Exit.UNTRUSTED), done.stdout + done.stderr
    (run,) = [each for each in runs.iterdir() if not each.name.startswith(".")]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event for event in events if event["kind"] == "action_failed"] == []
    acted = [event["action"] for event in events if event["kind"] == "action"]
    wanted = ["slow", "fill", "free", "profile", "restore"] if timeline is CHANGES else ["fail", "heal"]
    assert acted == wanted
    if timeline is CHANGES:
        (drive,) = json.loads((run / "manifest.json").read_text())["broker"]["drives"]
        assert drive["profiles"][0] == "nvme"
    assert [each.name for each in runs.iterdir()] == [run.name]
    assert mounts_below(tmp_path) == []
