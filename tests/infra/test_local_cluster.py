"""Local clusters: what is started is stopped, and nothing else ever is.

A stand-in takes the node's place: a process that listens on its ports and answers its control port.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from infra import local_cluster, node_process
from infra.cluster import PORT_ROLES, STATE_FILE, save
from infra.local_cluster import ClusterError, Directories, NotAllStartedError, is_alive

STAND_IN = """
    import json, os, signal, socketserver, sys, threading, time
    from reference_broker.node.control_handshake import ControlHandshake
    config = json.load(open(sys.argv[2]))
    secret = open(config["secret_file"], "rb").read().strip()
    me = next(node for node in config["nodes"] if node["node"] == config["node"])
    mode = os.environ.get("STAND_IN", "")
    if mode == "dies":
        sys.exit("no room on this drive")
    if os.path.exists(os.path.join(os.path.dirname(config["data_dir"]), "refuse")):
        print("error: the log is damaged\\n  at   wal/00000001, offset 4096\\n  fix  restore it", flush=True)
        sys.exit(1)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if config["exit_with_stdin"]:
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
    else:
        assert sys.stdin.buffer.read() == b""

    class Control(socketserver.StreamRequestHandler):
        def handle(self):
            handshake = ControlHandshake(config["cluster"], config["name"], secret, bytes(32))
            self.wfile.write(handshake.answer(self.rfile.readline()[:-1]) + b"\\n")
            handshake.close(self.rfile.readline()[:-1])
            assert json.loads(self.rfile.readline()) in ({"op": "status"}, {"op": "summary"})
            answer = {"name": config["name"], "ready": True, "role": "leader", "metrics": {"cpu_ns": 5, "syncs": 1},
                      "data_dir": config["data_dir"], "pid": os.getpid(), "ppid": os.getppid()}
            self.wfile.write(json.dumps(answer).encode() + b"\\n")

    socketserver.TCPServer.allow_reuse_address = True
    socketserver.TCPServer(("127.0.0.1", me["control_port"]), Control).serve_forever()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node command replaced by the stand-in."""
    path = tmp_path / "stand_in.py"
    path.write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setattr(node_process, "NODE_COMMAND", (sys.executable, str(path)))
    return path


@pytest.fixture
def kept(tmp_path: Path, stand_in: Path, base_port: int) -> Iterator[local_cluster.Cluster]:
    """A kept cluster of three stand-ins, ended afterwards whatever the test did."""
    cluster = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    yield cluster
    local_cluster.stop(local_cluster.load(tmp_path / "cluster"))
    for child in local_cluster._KEPT:
        child.wait()
    local_cluster._KEPT.clear()


def test_a_kept_cluster_is_found_again_and_stopped(kept: local_cluster.Cluster, tmp_path: Path) -> None:
    """Another command, another process: all it has is the directory."""
    found = local_cluster.load(tmp_path / "cluster")
    assert found == kept
    rows = local_cluster.status(found)
    assert [(row["name"], row["state"], row["role"]) for row in rows] == [
        ("node1", "running", "leader"),
        ("node2", "running", "leader"),
        ("node3", "running", "leader"),
    ]
    assert [row["pid"] for row in rows] == [node.pid for node in kept.nodes]
    assert local_cluster.stop(found) == ["node1", "node2", "node3"]
    assert [row["state"] for row in local_cluster.status(found)] == ["down"] * 3
    assert local_cluster.stop(found) == []


def test_ports_follow_the_base(kept: local_cluster.Cluster, base_port: int) -> None:
    """The second node is where one expects it."""
    assert [node.amqp_port for node in kept.nodes] == [base_port, base_port + 1, base_port + 2]
    assert kept.uris[1] == f"amqp://guest:guest@127.0.0.1:{base_port + 1}/%2f"


def test_nodes_get_a_configuration_that_names_every_member(kept: local_cluster.Cluster) -> None:
    """A node that misses a peer would never form a quorum with it."""
    for node in kept.nodes:
        config = json.loads((Path(node.data_dir) / "node.json").read_text())
        assert (config["name"], config["node"], config["exit_with_stdin"]) == (node.name, node.node, False)
        assert [member["peer_port"] for member in config["nodes"]] == [other.peer_port for other in kept.nodes]
        assert config["cluster"] == kept.cluster and "loopback_users" not in config


def test_a_second_start_in_the_directory_is_refused(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """Two clusters over one set of files would destroy both."""
    with pytest.raises(ClusterError, match="already runs here") as caught:
        local_cluster.start(tmp_path / "cluster", base_port=base_port)
    assert "broker stop" in caught.value.fix


def test_a_port_in_use_is_named(kept: local_cluster.Cluster, tmp_path: Path, base_port: int) -> None:
    """All of them, and what to do."""
    ports = ", ".join(str(base_port + 200 + number) for number in range(3))
    with pytest.raises(ClusterError, match=f"ports {ports} are in use") as caught:
        local_cluster.start(tmp_path / "other", base_port=base_port)
    assert "--port" in caught.value.fix and not (tmp_path / "other" / "cluster.json").exists()
    with pytest.raises(ClusterError, match=f"port {base_port + 200} is in use"):
        local_cluster.start(tmp_path / "other", nodes=1, base_port=base_port)


def test_a_cluster_keeps_its_ports_and_its_number_of_nodes(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """Its clients know it by them; only whoever names other ports moves it."""
    local_cluster.stop(kept)
    again = local_cluster.start(tmp_path / "cluster")
    assert again.uris == kept.uris
    assert [[getattr(node, role) for role in PORT_ROLES] for node in again.nodes] == [
        [getattr(node, role) for role in PORT_ROLES] for node in kept.nodes
    ]
    local_cluster.stop(again)
    one = local_cluster.start(tmp_path / "one", nodes=1, base_port=base_port + 1)
    local_cluster.stop(one)
    one = local_cluster.start(tmp_path / "one")
    local_cluster.stop(one)
    assert [node.amqp_port for node in one.nodes] == [base_port + 1]
    one = local_cluster.start(tmp_path / "one", base_port=base_port + 2)
    local_cluster.stop(one)
    assert [node.amqp_port for node in one.nodes] == [base_port + 2]


def test_kept_ports_that_somebody_else_took_are_named_and_nothing_starts(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """A node on another port would be one that no client finds."""
    local_cluster.stop(kept)
    with socket.create_server(("127.0.0.1", base_port + 1)):
        with pytest.raises(ClusterError, match=f"port {base_port + 1} is in use") as caught:
            local_cluster.start(tmp_path / "cluster")
        assert caught.value.fix == "stop what listens there, or choose other ports with --port"
        with pytest.raises(ClusterError, match=f"port {base_port + 1} is in use") as caught:
            local_cluster.start_node(kept, "node2")
        assert "start all of it on other ports" in caught.value.fix
    assert [row["state"] for row in local_cluster.status(local_cluster.load(tmp_path / "cluster"))] == ["down"] * 3


def test_data_is_kept_over_a_restart_with_as_many_nodes(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """The same cluster id, or the nodes would refuse their own logs."""
    local_cluster.stop(kept)
    with pytest.raises(ClusterError, match="that of 3 nodes, not 1"):
        local_cluster.start(tmp_path / "cluster", nodes=1, base_port=base_port)
    again = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    assert again.cluster == kept.cluster and again.nodes[0].pid != kept.nodes[0].pid
    local_cluster.stop(again)


def test_the_secret_is_made_once_and_for_its_owner_only(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """Nodes that come back one by one must have what the others have; and nothing else may repeat it."""
    secret = tmp_path / "cluster" / "secret"
    text = secret.read_text()
    assert len(text.strip()) == 64 and secret.stat().st_mode & 0o777 == 0o600
    for node in kept.nodes:
        assert json.loads((Path(node.data_dir) / "node.json").read_text())["secret_file"] == str(secret)
    local_cluster.kill(kept, "node1")
    again = local_cluster.start_node(kept, "node1")
    assert secret.read_text() == text
    local_cluster.stop(again)
    assert not [path for path in (tmp_path / "cluster").rglob("*")
                if path.is_file() and path != secret and text.strip() in path.read_text()]  # fmt: skip


def test_a_cluster_without_a_secret_gets_one_when_it_starts_and_not_while_it_runs(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """It is of an earlier version, or somebody removed the file: one node with a new secret would be alone."""
    secret = tmp_path / "cluster" / "secret"
    secret.unlink()
    local_cluster.kill(kept, "node1")
    with pytest.raises(ClusterError, match="the secret that the other nodes know is gone") as caught:
        local_cluster.start_node(kept, "node1")
    assert "broker stop" in caught.value.fix and not secret.exists()
    local_cluster.stop(kept)
    again = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    assert secret.exists()
    local_cluster.stop(again)


def test_what_was_set_by_hand_and_a_replaced_nodes_first_life_are_kept(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """Limits that silently were the defaults again would be measured as somebody's settings; and a first life is for
    good: without it a node whose replacement was interrupted would be a blank one that nobody agreed to."""
    replaced = replace(kept.nodes[2], first_life=1002)
    local_cluster.stop(kept)
    save(replace(kept, nodes=(*kept.nodes[:2], replaced)))
    config = Path(kept.nodes[0].data_dir) / "node.json"
    by_hand = {"limits": {"wal_files_waiting": 2}, "sync": False, "users": {"other": "secret"}, "loopback_users": []}
    config.write_text(json.dumps(json.loads(config.read_text()) | by_hand | {"cluster": "of another"}))
    for start in (
        lambda: local_cluster.start(tmp_path / "cluster", base_port=base_port),
        lambda: local_cluster.start_node(local_cluster.load(tmp_path / "cluster"), "node1"),
    ):
        again = start()
        plain = json.loads(config.read_text())
        assert {key: plain[key] for key in by_hand} == by_hand and plain["cluster"] == kept.cluster
        assert [node.first_life for node in again.nodes] == [0, 0, 1002]
        local_cluster.kill(again, "node1")
    assert json.loads((Path(replaced.data_dir) / "node.json").read_text())["first_life"] == 1002


def test_a_node_json_that_cannot_be_read_is_named_and_not_overwritten(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """One comma too many must not cost what somebody wrote; nor the other nodes their start."""
    local_cluster.stop(kept)
    config = Path(kept.nodes[1].data_dir) / "node.json"
    config.write_text('{"limits": {"wal_files_waiting": 2,}}')
    with pytest.raises(NotAllStartedError, match=r"node\.json cannot be read: .*line 1 column") as caught:
        local_cluster.start(tmp_path / "cluster", base_port=base_port)
    assert caught.value.where == str(config) and "2,}}" in config.read_text()
    assert [row["state"] for row in local_cluster.status(caught.value.cluster)] == ["running", "down", "running"]


def test_a_reused_pid_is_never_signalled(tmp_path: Path) -> None:
    """After a reboot the pid in cluster.json may be anybody's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        start_time = node_process.start_time(other.pid)
        assert start_time is not None
        node = local_cluster.Node(
            node=1,
            name="node1",
            amqp_port=1,
            peer_port=1,
            control_port=1,
            data_dir="d",
            log_file="l",
            pid=other.pid,
            start_time=start_time - 1,
        )
        cluster = local_cluster.Cluster(cluster="c", directory=str(tmp_path), nodes=(node,))
        assert not is_alive(node) and is_alive(replace(node, start_time=start_time))
        assert local_cluster.stop(cluster) == [] and other.poll() is None
        assert other.stdin is not None
        other.stdin.close()


def test_a_node_that_ignores_sigterm_is_killed(
    tmp_path: Path, stand_in: Path, base_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop means stopped."""
    monkeypatch.setenv("STAND_IN", "stubborn")
    cluster = local_cluster.start(tmp_path / "c", nodes=1, base_port=base_port)
    child = local_cluster._KEPT[-1]
    assert local_cluster.stop(cluster, grace_s=0.2) == ["node1"]
    assert not is_alive(cluster.nodes[0])
    assert child.wait() == -signal.SIGKILL


def test_a_node_that_dies_while_starting_tells_its_last_words(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a time-out after twenty seconds, and nothing left running."""
    monkeypatch.setenv("STAND_IN", "dies")
    with (
        pytest.raises(ClusterError, match="ended while it started: no room on this drive") as caught,
        local_cluster.temporary(tmp_path),
    ):
        pass
    assert caught.value.where.endswith("node.log")
    assert not list(tmp_path.glob(".broker-*"))


def test_a_first_start_that_fails_leaves_its_logs_and_what_was_there(
    tmp_path: Path, stand_in: Path, base_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start is that of another cluster, whose nodes would refuse the data of these."""
    monkeypatch.setenv("STAND_IN", "dies")
    theirs = tmp_path / "c" / "node1" / "data" / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    with pytest.raises(ClusterError, match="no room on this drive"):
        local_cluster.start(tmp_path / "c", base_port=base_port)
    left = {path.relative_to(tmp_path / "c") for path in (tmp_path / "c").rglob("*") if path.is_file()}
    logs = {Path(f"node{number}/node.log") for number in (1, 2, 3)}
    assert left == {*logs, Path("secret"), Path("node1/node.json"), Path("node1/data/theirs")}


def test_a_temporary_cluster_leaves_nothing(tmp_path: Path, stand_in: Path) -> None:
    """Neither processes nor files, also when the run fails."""
    with pytest.raises(RuntimeError), local_cluster.temporary(tmp_path) as cluster:
        assert all(is_alive(node) for node in cluster.nodes)
        ports = [port for node in cluster.nodes for port in (node.amqp_port, node.peer_port, node.control_port)]
        assert len(set(ports)) == 9 and Path(cluster.directory).parent == tmp_path
        raise RuntimeError
    assert not any(is_alive(node) for node in cluster.nodes)
    assert list(tmp_path.iterdir()) == [stand_in]


def test_a_temporary_cluster_dies_with_its_parent(tmp_path: Path, stand_in: Path) -> None:
    """kill -9 of the command must not leave three brokers behind that spoil the next measurement."""
    script = f"""
import sys
from pathlib import Path
from infra import local_cluster, node_process
from infra.cluster import STATE_FILE, save
local_cluster.NODE_COMMAND = (sys.executable, {str(stand_in)!r})
with local_cluster.temporary(Path({str(tmp_path)!r})) as cluster:
    print(*(node.pid for node in cluster.nodes), flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        nodes = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(nodes) == 3
        parent.kill()
        parent.wait()
        assert parent.stdin is not None
        parent.stdin.close()
    _, alive = psutil.wait_procs(nodes, timeout=20)
    (orphan,) = tmp_path.glob(".broker-*")
    with local_cluster.temporary(tmp_path):
        assert not orphan.exists()
    # As orphans they may stay zombies of a process that does not reap: ended is ended.
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_nodes_are_out_of_reach_of_ctrl_c(kept: local_cluster.Cluster) -> None:
    """The terminal's Ctrl-C goes to a process group: theirs must be another."""
    assert os.getpgrp() not in {os.getpgid(node.pid) for node in kept.nodes}


def test_samples_hold_cpu_and_metrics(kept: local_cluster.Cluster) -> None:
    """Records of broker.jsonl as the run directory's page draws them."""
    records = local_cluster.sample(kept, 7)
    assert [record["node"] for record in records] == ["node1", "node2", "node3"]
    assert records[0]["cpu_ns"] == 5 and records[0]["metrics"] == {"syncs": 1} and records[0]["t_ns"] == 7
    assert records[0]["rss_bytes"] > 0


def test_a_silent_node_is_said_to_be_silent(kept: local_cluster.Cluster) -> None:
    """A process that runs and does not answer is neither running nor down."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        deaf = replace(kept.nodes[0], control_port=taken.getsockname()[1])
        (row,) = local_cluster.status(replace(kept, nodes=(deaf,)))
    assert row["state"] == "silent" and local_cluster.sample(replace(kept, nodes=(deaf,)), 1) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', '{"version": 9, "nodes": []}'])
def test_a_damaged_state_file_is_an_error_for_people(tmp_path: Path, text: str) -> None:
    """Nothing is signalled on the word of a file that cannot be read."""
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(ClusterError) as caught:
        local_cluster.load(tmp_path)
    assert caught.value.fix


def test_a_killed_node_comes_back_with_its_place(kept: local_cluster.Cluster, tmp_path: Path) -> None:
    """The same files and ports, a new process; the others are not touched."""
    local_cluster.kill(kept, "node2")
    assert [row["state"] for row in local_cluster.status(kept)] == ["running", "down", "running"]
    again = local_cluster.start_node(local_cluster.load(tmp_path / "cluster"), "2")
    assert again == local_cluster.load(tmp_path / "cluster")
    assert [node.pid == old.pid for node, old in zip(again.nodes, kept.nodes, strict=True)] == [True, False, True]
    assert replace(again.nodes[1], pid=0, start_time=0) == replace(kept.nodes[1], pid=0, start_time=0)
    local_cluster.stop(again)


def test_a_paused_node_is_said_to_be_paused_and_can_be_stopped(kept: local_cluster.Cluster) -> None:
    """Without SIGCONT first it would never hear of SIGTERM."""
    local_cluster.pause(kept, "node1")
    local_cluster.pause(kept, "node3")
    assert [row["state"] for row in local_cluster.status(kept)] == ["paused", "running", "paused"]
    local_cluster.resume(kept, "node1")
    assert [row["state"] for row in local_cluster.status(kept)] == ["running", "running", "paused"]
    assert local_cluster.stop(kept, grace_s=20) == ["node1", "node2", "node3"]
    assert not any(is_alive(node) for node in kept.nodes)


def test_each_role_has_a_directory_for_each_node(tmp_path: Path, stand_in: Path, base_port: int) -> None:
    """And they are kept: a WAL on another drive must be found again."""
    asked = Directories(wal_dir=str(tmp_path / "w"), segment_dir=str(tmp_path / "s"), logs_dir=str(tmp_path / "l"),
                        classic_dir=str(tmp_path / "q"))  # fmt: skip
    for directories in (asked, None):
        cluster = local_cluster.start(tmp_path / "c", nodes=1, base_port=base_port, directories=directories)
        config = json.loads((tmp_path / "c" / "node1" / "node.json").read_text())
        assert [config[f"{role}_dir"] for role in ("wal", "segment", "logs", "classic", "data")] == [
            str(tmp_path / path) for path in ("w/node1", "s/node1", "l/node1", "q/node1", "c/node1/data")
        ]
        assert (
            config["nodes"][0]["metrics_port"] == base_port + 300 and (tmp_path / "l" / "node1" / "node.log").exists()
        )
        local_cluster.stop(cluster)
    with pytest.raises(ClusterError, match=r"started with --wal-dir .*/w, not with /elsewhere"):
        local_cluster.start(tmp_path / "c", nodes=1, base_port=base_port, directories=Directories(wal_dir="/elsewhere"))


def test_a_majority_goes_on_without_a_node_that_cannot_start(
    kept: local_cluster.Cluster, tmp_path: Path, base_port: int
) -> None:
    """One damaged directory must not keep the data of the others out of reach; the command says which and why."""
    local_cluster.stop(kept)
    (Path(kept.nodes[1].data_dir) / "refuse").touch()
    with pytest.raises(NotAllStartedError, match="node2 ended while it started: the log is damaged") as caught:
        local_cluster.start(tmp_path / "cluster", base_port=base_port)
    error = caught.value
    assert (error.where, error.fix) == ("wal/00000001, offset 4096", "restore it")
    assert [row["state"] for row in local_cluster.status(error.cluster)] == ["running", "down", "running"]
    assert error.cluster == local_cluster.load(tmp_path / "cluster")
    with pytest.raises(ClusterError, match="the log is damaged"):
        local_cluster.start_node(error.cluster, "node2")
    local_cluster.stop(error.cluster)
