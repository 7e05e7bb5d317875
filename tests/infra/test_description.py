"""A cluster over several hosts: its description, and what a host makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from infra.cluster import Cluster, ClusterError, node_config
from infra.cluster_file import DESCRIPTION_FILE, load, save
from infra.description import NodePlace, adopt, describe, usual_ports, write


def place(name: str, address: str, **more: object) -> NodePlace:
    known: dict[str, object] = {"name": name, "address": address, "ports": usual_ports(6000)}
    return NodePlace(**{**known, **more})  # type: ignore[arg-type]


def three(**more: object) -> Cluster:
    return describe("c", [place(name, f"10.0.0.{n}", **more) for n, name in enumerate("abc", start=1)])


def test_each_node_has_its_address_and_its_directories(tmp_path: Path) -> None:
    """Relative paths lie in the cluster's directory on the host, drives lie where they are mounted."""
    described = three(directories={"wal_dir": "/mnt/nvme", "logs_dir": "logs"}, addresses={"bind": "0.0.0.0"})
    adopted = adopt(described, tmp_path, "b")
    config = node_config(adopted, adopted.node("b"), exit_with_stdin=False)
    assert config["nodes"][1] == {
        "node": 2, "name": "b", "host": "10.0.0.2", "bind": "0.0.0.0",
        "amqp_port": 6000, "peer_port": 6100, "control_port": 6200, "metrics_port": 6300,
    }  # fmt: skip
    assert config["wal_dir"] == "/mnt/nvme/b" and config["data_dir"] == str(tmp_path / "b" / "data")
    assert adopted.node("b").log_file == str(tmp_path / "logs" / "b" / "node.log")
    assert config["secret_file"] == str(tmp_path / "secret")
    assert [node.is_here for node in adopted.nodes] == [False, True, False]
    assert adopted.uris[2] == "amqp://guest:guest@10.0.0.3:6000/%2f"


def test_an_address_of_ipv6_stands_in_brackets_in_a_uri() -> None:
    assert describe("c", [place("a", "fd00::1")]).uris == ("amqp://guest:guest@[fd00::1]:6000/%2f",)


def test_the_process_that_runs_stays_known_when_the_description_comes_again(tmp_path: Path) -> None:
    adopted = adopt(three(), tmp_path, "b")
    running = tuple(
        replace(node, pid=7, start_time=9, first_life=1001) if node.is_here else node for node in adopted.nodes
    )
    save(replace(adopted, nodes=running))
    again = adopt(three(), tmp_path, "b").node("b")
    assert (again.pid, again.start_time, again.first_life) == (7, 9, 1001)


@pytest.mark.parametrize(
    ("name", "identity", "what"), [("a", "c", "belongs to b, not to a"), ("b", "other", "belongs to another cluster")]
)
def test_the_directory_of_another_node_or_cluster_is_left_alone(
    tmp_path: Path, name: str, identity: str, what: str
) -> None:
    save(adopt(three(), tmp_path, "b"))
    with pytest.raises(ClusterError, match=what):
        adopt(replace(three(), cluster=identity), tmp_path, name)


def test_all_problems_are_told_at_once() -> None:
    places = [place("a b", "0.0.0.0"), place("n", "h"), place("n", "h"), place("m", "h", ports=(1, 2))]
    with pytest.raises(ClusterError) as caught:
        describe("c", places)
    assert caught.value.code == 2
    for said in (
        "4 nodes",
        "name 'a b'",
        "address '0.0.0.0'",
        "n: name n: n has it, too",
        "n: h, port 6000",
        "2 ports",
    ):
        assert said in caught.value.where


def test_what_is_written_is_read_where_it_lies(tmp_path: Path) -> None:
    """It is copied from one directory to others."""
    one, other = tmp_path / "one", tmp_path / "other"
    written = write(three(), one)
    assert load(one) == written and (one / "secret").stat().st_mode & 0o777 == 0o600
    other.mkdir()
    (other / DESCRIPTION_FILE).write_bytes((one / DESCRIPTION_FILE).read_bytes())
    assert load(other) == replace(written, directory=str(other))
    assert written.secret().decode() not in (one / DESCRIPTION_FILE).read_text()
    assert not any(node["pid"] for node in json.loads((one / DESCRIPTION_FILE).read_text())["nodes"])


def test_a_cluster_is_not_described_over_another(tmp_path: Path) -> None:
    write(three(), tmp_path)
    with pytest.raises(ClusterError, match="there is a cluster already"):
        write(three(), tmp_path)
