"""A sweep starts a RabbitMQ on a layout of drives, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra import drives, rabbitmq_cluster
from infra.mounts import mounts_below
from perftest.exits import Exit

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.drives,
    pytest.mark.processes,
    pytest.mark.skipif(not rabbitmq_cluster.is_installed(), reason="RabbitMQ is not installed"),
]
WORKLOAD = """\
schema: 1
name: w
title: one queue on a RabbitMQ
queues: [{name: q}]
load: {in_flight: 20}
step: {duration: 2s, warmup: 500ms}
cluster:
  broker: rabbitmq
  nodes: 1
  layout:
    title: apart
    drives: {disk: DISK, fast: FAST}
    roles: {data: disk, logs: disk, segment: disk, wal: fast}
    io: {pool: 6}
"""
PLAIN = ("{directory: 'HERE/disk'}", "{directory: 'HERE/{node}-fast'}")
FUSE = ("{fuse: {profile: nvme, size: 600MB}}",) * 2
MODELLED = ("{profile: nvme}", "{figures: {latency: 20us, octets_per_second: 2GB, channels: 8, flush: 1ms}}")
"""Drives that only nodes of the bundled broker model: a RabbitMQ gets their FUSE twins."""
NO_FUSE = drives.impossible()
needs_fuse = pytest.mark.skipif(bool(NO_FUSE), reason=f"no FUSE drives: {NO_FUSE}")


@pytest.mark.parametrize(
    ("disk", "fast"),
    [
        pytest.param(*PLAIN, id="directories"),
        pytest.param(*FUSE, id="fuse", marks=needs_fuse),
        pytest.param(*MODELLED, id="modelled", marks=needs_fuse),
    ],
)
def test_a_workload_is_measured_on_a_rabbitmq_with_its_layout(tmp_path: Path, disk: str, fast: str) -> None:
    file, runs = tmp_path / "w.yaml", tmp_path / "runs"
    file.write_text(WORKLOAD.replace("DISK", disk).replace("FAST", fast).replace("HERE", str(tmp_path)))
    command = [sys.executable, "-m", "perftest.cli", "sweep", str(file), "--out", str(runs), "--no-report"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (Exit.OK, Exit.UNTRUSTED), done.stderr  # a busy machine is late for a modelled drive
    (run,) = [each for each in runs.iterdir() if not each.name.startswith(".")]
    broker = json.loads((run / "manifest.json").read_text())["broker"]
    assert broker["product"] == "RabbitMQ"
    assert broker["layout"].startswith("apart: disk (") and broker["layout"].endswith(") wal; io pool:6")
    modelled = {(drive["node"], drive["name"]): drive for drive in broker.get("drives", ())}
    assert set(modelled) == ({("node1", "disk"), ("node1", "fast")} if "directory" not in disk else set())
    for (_node, name), drive in modelled.items():
        assert drive["profiles"] == ["own" if "figures" in fast and name == "fast" else "nvme"]
        assert drive["kind"] == "fuse"
    checks = [check["check"] for check in json.loads((run / "result.json").read_text())["trust"]]
    assert ("modelled_drives" in checks) == bool(modelled)
    assert not modelled or modelled["node1", "fast"]["operations"] > 0 < modelled["node1", "fast"]["late_ns_max"]
    assert json.loads((run / "ledger.json").read_text())["verdict"] == "ok"
    assert [each.name for each in runs.iterdir()] == [run.name], "something of the RabbitMQ is left"
    for place in (tmp_path / "disk", tmp_path / "node1-fast"):
        assert not place.exists() or list(place.iterdir()) == []
    assert mounts_below(tmp_path) == []
