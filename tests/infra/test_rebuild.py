"""A register that is gone is made anew from what the nodes keep of themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infra.cluster import Cluster, ClusterError, Directories, node_config, plan
from infra.cluster_file import COPY_FILE, STATE_FILE, load, save
from infra.description import NodePlace, adopt, describe, usual_ports, write
from infra.node_process import MARK, mark, start_time
from infra.rebuild import rebuild

ON_DRIVES = Directories(wal_dir="/mnt/{node}/wal", segment_dir="/mnt/s", classic_dir="/mnt/q", logs_dir="/var/l")
MODELLED = Directories(
    data_dir="/mnt/data", io="thread", drives=[{"name": "fast", "roles": ["classic"]}], instance_octets_per_second=9
)


def started(directory: Path, directories: Directories, lives: tuple[int, ...] = (0, 0, 0)) -> Cluster:
    """A cluster with the files that its start writes."""
    rows = [[6000 + node, 6100 + node, 6200 + node, 6300 + node] for node in range(3)]
    cluster = plan(directory, "local-1", rows, directories)
    nodes = tuple(replace(node, first_life=life) for node, life in zip(cluster.nodes, lives, strict=True))
    cluster = replace(cluster, nodes=nodes)
    for node in cluster.nodes:
        Path(node.data_dir).mkdir(parents=True)
        config = node_config(cluster, node, exit_with_stdin=False) | {"limits": {"wal_files_waiting": 2}}
        (Path(node.data_dir) / "node.json").write_text(json.dumps(config))
    save(cluster)
    return cluster


def lose(directory: Path) -> None:
    for file in (STATE_FILE, COPY_FILE):
        (directory / file).unlink()


@pytest.mark.parametrize("directories", [Directories(), ON_DRIVES, MODELLED], ids=["usual", "drives", "modelled"])
def test_a_lost_register_is_as_before(tmp_path: Path, directories: Directories) -> None:
    """Identity, ports, directories, and which nodes were replaced."""
    before = started(tmp_path, directories, (0, 1002, 0))
    lose(tmp_path)
    made = rebuild(tmp_path, {})
    assert made.cluster == before == load(tmp_path) and made.source == "node1, node2, node3" and not made.notes
    assert rebuild(tmp_path, {}).source == STATE_FILE  # the second time, the work is done


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["gone", "empty"])
@pytest.mark.parametrize("directories", [Directories(), ON_DRIVES], ids=["usual", "drives"])
def test_a_node_without_its_own_file_has_its_directories_where_the_others_have_theirs(
    tmp_path: Path, directories: Directories, damage: Callable[[Path], object]
) -> None:
    before = started(tmp_path, directories)
    lose(tmp_path)
    damage(tmp_path / "node2" / "node.json")
    made = rebuild(tmp_path, {})
    assert made.cluster == before and made.source == "node1, node3"


def test_one_file_is_enough_with_what_somebody_says(tmp_path: Path) -> None:
    """From one path nobody can tell which part is the node's name."""
    before = started(tmp_path, ON_DRIVES)
    lose(tmp_path)
    for name in ("node1", "node3"):
        (tmp_path / name / "node.json").unlink()
    assert rebuild(tmp_path, {"wal_dir": "/mnt/{node}/wal"}).cluster == before


def test_a_damaged_file_is_written_anew_from_its_copy_and_stays_beside_it(tmp_path: Path) -> None:
    before = started(tmp_path, Directories())
    (tmp_path / STATE_FILE).write_text("{")
    made = rebuild(tmp_path, {})
    assert (made.source, made.cluster) == ("its copy", before)
    assert load(tmp_path) == before and (tmp_path / "cluster.json.damaged").read_text() == "{"


def contradict(directory: Path, key: str, value: object, name: str = "node2") -> None:
    path = directory / name / "node.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cluster", "local-2", "nodes of 2 clusters lie here: .*node2 of local-2"),
        ("wal_dir", "/elsewhere/node2", "unlike places: .*/elsewhere"),
        ("wal_dir", "/elsewhere", "unlike places|would become"),
    ],
)
def test_files_that_do_not_belong_together_make_no_register(tmp_path: Path, key: str, value: str, said: str) -> None:
    """A register that is half right would send a node to an empty directory."""
    started(tmp_path, Directories())
    lose(tmp_path)
    contradict(tmp_path, key, value)
    with pytest.raises(ClusterError, match=said):
        rebuild(tmp_path, {})
    assert not (tmp_path / STATE_FILE).exists()


def test_a_copy_of_a_nodes_directory_is_no_node(tmp_path: Path) -> None:
    before = started(tmp_path, Directories())
    lose(tmp_path)
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "node.json").write_text((tmp_path / "node1" / "node.json").read_text())
    made = rebuild(tmp_path, {})
    assert made.cluster == before and "backup" in made.notes[0]


def test_the_newest_file_knows_the_ports(tmp_path: Path) -> None:
    """A node that could not start when the cluster moved to other ports has the former ones."""
    before = started(tmp_path, Directories())
    lose(tmp_path)
    members = json.loads((tmp_path / "node2" / "node.json").read_text())["nodes"]
    contradict(tmp_path, "nodes", [{**member, "amqp_port": member["amqp_port"] + 50} for member in members])
    later = time.time() + 10
    os.utime(tmp_path / "node2" / "node.json", (later, later))
    assert [node.amqp_port for node in rebuild(tmp_path, {}).cluster.nodes] == [
        node.amqp_port + 50 for node in before.nodes
    ]


def test_nodes_that_run_are_found(tmp_path: Path) -> None:
    """Without a register nobody could stop them."""
    before = started(tmp_path, Directories())
    lose(tmp_path)
    environment = os.environ | {MARK: f"{mark(before)}:node2"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as running:
        node = rebuild(tmp_path, {}).cluster.node("node2")
        assert (node.pid, node.start_time) == (running.pid, start_time(running.pid))
        running.communicate(b"\n")


def test_the_node_of_one_host_is_found_with_the_description(tmp_path: Path) -> None:
    places = [
        NodePlace(name=name, address=f"10.0.0.{n}", ports=usual_ports(6000)) for n, name in enumerate("abc", start=1)
    ]
    described = write(describe("c", places), tmp_path)
    adopted = adopt(described, tmp_path, "b")
    nodes = tuple(replace(node, first_life=1002) if node.is_here else node for node in adopted.nodes)
    adopted = replace(adopted, nodes=nodes)
    Path(adopted.node("b").data_dir).mkdir()
    config = node_config(adopted, adopted.node("b"), exit_with_stdin=False)
    (Path(adopted.node("b").data_dir) / "node.json").write_text(json.dumps(config))
    (tmp_path / STATE_FILE).write_text("")
    assert rebuild(tmp_path, {}).cluster == adopted == load(tmp_path)


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no node\.json can be read here"):
        rebuild(tmp_path / "c", {})
    assert list(tmp_path.iterdir()) == []
