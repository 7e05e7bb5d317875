"""The end of one node's WAL is gone while another node is behind: nothing that was confirmed is lost, and it is said.

If two of three nodes lost their logs, nobody leads before an operator decides which copy is the truth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra import local_cluster, readiness
from infra.local_cluster import Cluster, ClusterError, Node
from infra.node_process import wait
from tests.integration.test_bad_directories import BODIES, consume, newest_wal, publish

pytestmark = [pytest.mark.slow, pytest.mark.processes]
LEARNS_S = 30.0


def cut(path: Path) -> None:
    """A third of what was written is left."""
    os.truncate(path, len(path.read_bytes().rstrip(b"\0")) // 3)


def delete(path: Path) -> None:
    path.unlink()


def zero_the_last_page(path: Path) -> None:
    """The size stays."""
    written = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.seek(written - written % 4096 if written % 4096 else written - 4096)
        file.write(bytes(4096))


def flip_the_last_octet(path: Path) -> None:
    octets = path.read_bytes().rstrip(b"\0")
    with path.open("r+b") as file:
        file.seek(len(octets) - 1)
        file.write(bytes([octets[-1] ^ 1]))


@contextmanager
def one_is_behind(directory: Path, base_port: int) -> Iterator[Cluster]:
    """Three nodes that stand still. Node 3 has the first messages only; nodes 1 and 2 have all."""
    cluster = local_cluster.start(directory, base_port=base_port)
    try:
        publish(cluster.nodes[0], BODIES[:20])
        local_cluster.kill(cluster, "node3")
        publish(cluster.nodes[0], BODIES[20:])
        local_cluster.stop(cluster)
        yield local_cluster.load(directory)
    finally:
        local_cluster.stop(local_cluster.load(directory))


def findings(cluster: Cluster, name: str) -> list[str]:
    """What a node says that its start found."""
    [said] = [said for said in local_cluster.summary(cluster) if said["name"] == name]
    return [finding["what"] for finding in said["findings"]]


@pytest.mark.parametrize("damage", [cut, delete, zero_the_last_page, flip_the_last_octet])
def test_a_node_without_the_end_of_its_log_does_not_vote(
    tmp_path: Path, base_port: int, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The damaged node and the node that is behind are up first: together they would elect one of them, and overwrite
    what node 1 has."""
    monkeypatch.setattr(readiness, "PATIENCE_S", 3.0)
    with one_is_behind(tmp_path / "c", base_port) as cluster:
        damage(newest_wal(cluster.node("node2")))
        cluster = local_cluster.start_node(cluster, "node2")
        assert "was synced" in " ".join(findings(cluster, "node2"))
        with pytest.raises(ClusterError, match="node2 may have forgotten synced entries") as stuck:
            local_cluster.start_node(cluster, "node3")
        assert "broker recover" in stuck.value.fix
        local_cluster.stop(local_cluster.load(tmp_path / "c"))
        cluster = local_cluster.start(tmp_path / "c")
        assert "since an earlier start lost their end" in findings(cluster, "node2")[0]
        assert consume(cluster.nodes[2], len(BODIES)) == BODIES
        assert wait(lambda: not any(said["forgetful"] for said in local_cluster.summary(cluster)), LEARNS_S)
        local_cluster.kill(cluster, "node1")
        publish(cluster.nodes[1], BODIES)
        assert consume(cluster.nodes[1], len(BODIES)) == BODIES, "it is a full member again"


def recover(cluster: Cluster, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perftest", "broker", "recover", "--from", name, "--dir", cluster.directory]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def last_entries(node: Node) -> dict[str, int]:
    """The last index of each log of a node that does not run."""
    command = [sys.executable, "-m", "reference_broker.node.last_resort", "--config", f"{node.data_dir}/node.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: last["index"] for name, last in json.loads(done.stdout)["logs"].items()}


def test_an_operator_declares_the_copy_that_is_left_the_truth(tmp_path: Path, base_port: int) -> None:
    """Two of three lost their WAL. Whoever decides sees before what is given up, and nothing changes before a yes."""
    with one_is_behind(tmp_path / "c", base_port) as cluster:
        has = {node.name: last_entries(node)["q"] for node in cluster.nodes}
        assert has["node1"] == has["node2"] > has["node3"]
        for name in ("node2", "node3"):
            newest_wal(cluster.node(name)).unlink()
        asked = recover(cluster, "node1")
        assert asked.returncode == 1 and "no other node has an entry that node1 has not" in asked.stderr
        other = recover(cluster, "node3")
        assert f"given up: {has['node1']} entries of q, which node1 has and node3 has not" in other.stderr
        assert last_entries(cluster.node("node1"))["q"] == has["node1"], "nothing has changed"
        done = recover(cluster, "node1", "--yes")
        assert done.returncode == 0, done.stderr
        assert "an operator declared this copy the truth" in Path(cluster.node("node1").log_file).read_text()
        cluster = local_cluster.load(tmp_path / "c")
        assert consume(cluster.nodes[2], len(BODIES)) == BODIES
        assert recover(cluster, "node1", "--yes").returncode == 1, "not while the nodes run"
