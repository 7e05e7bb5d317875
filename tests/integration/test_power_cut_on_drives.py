"""Nodes on block drives with a real ext4, and the power cut under load: what was confirmed is there afterwards.

A kill leaves the page cache as it was; only a power cut shows a sync that was forgotten. Needs root, FUSE and loop
devices, and is skipped with the reason elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infra import drives, local_cluster
from infra.drives import BlockDrive
from infra.local_cluster import Cluster

pytestmark = [
    pytest.mark.drives,
    pytest.mark.processes,
    pytest.mark.skipif(bool(drives.impossible()), reason=f"no FUSE drives here: {drives.impossible()}"),
]
NODES = 3
SIZE_MB = 512
SEED = 20
TIMEOUT_S = 60.0


@pytest.fixture
def node_drives(tmp_path: Path) -> Iterator[list[BlockDrive]]:
    """A drive for each node. All are taken apart at the end, also those made before one failed."""
    try:
        yield [drives.make(tmp_path / f"drive{number}", SIZE_MB) for number in range(1, NODES + 1)]
    finally:
        drives.clean(tmp_path)


def until(done: Callable[[], bool], what: str) -> None:
    never, deadline = threading.Event(), time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, f"{what} did not come within {TIMEOUT_S:g} s"
        never.wait(0.02)


def until_confirmed(account: Any, more: int) -> None:
    enough = len(account.confirmed) + more
    until(lambda: len(account.confirmed) >= enough, f"confirm number {enough}")


def cluster_on(node_drives: list[BlockDrive], directory: Path, base_port: int) -> Cluster:
    """A new cluster; each node has everything that it writes on its own drive."""
    directory.mkdir()
    for number, drive in enumerate(node_drives, start=1):
        (drive.files / "node").mkdir()
        (directory / f"node{number}").symlink_to(drive.files / "node")
    return local_cluster.start(directory, base_port=base_port, nodes=len(node_drives))


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_nothing_confirmed_is_lost_when_the_power_of_all_nodes_is_cut(
    tmp_path: Path, base_port: int, storm: ModuleType, node_drives: list[BlockDrive], keep: float
) -> None:
    directory = tmp_path / "cluster"
    cluster = cluster_on(node_drives, directory, base_port)
    try:
        with storm.Clients([node.amqp_port for node in cluster.nodes], SEED, consuming=False) as clients:
            account = clients.account
            for cut in range(2):
                until_confirmed(account, 300)
                for node in cluster.nodes:
                    local_cluster.kill(cluster, node.name)
                for drive in node_drives:
                    drives.cut_power(drive, keep=keep, seed=SEED + cut)
                cluster = local_cluster.start(directory, base_port=base_port)
            until_confirmed(account, 1)
            clients.stop_publishing()
            clients.start_consuming()  # only now: a message that was delivered before the cut would hide its loss
            until(lambda: not account.lost(), "all that was confirmed")
            assert not account.wrong, f"{len(account.wrong)} wrong deliveries, the first {account.wrong[:5]}"
    finally:
        local_cluster.stop(local_cluster.load(directory))
