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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra import cleaning, cluster_file, local_cluster, node_process
from infra.cluster import PORT_ROLES
from infra.cluster_file import COPY_FILE, STATE_FILE, save
from infra.local_cluster import ClusterError, Directories, NotAllStartedError, is_alive

STAND_IN = """
    import json, os, signal, socketserver, sys, threading, time
    from reference_broker.node.endpoints.control_handshake import ControlHandshake
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
    config.write_text(json.dumps(json.loads(config.read_text()) | by_hand | {"name": "of another"}))
    for start in (
        lambda: local_cluster.start(tmp_path / "cluster", base_port=base_port),
        lambda: local_cluster.start_node(local_cluster.load(tmp_path / "cluster"), "node1"),
    ):
        again = start()
        plain = json.loads(config.read_text())
        assert {key: plain[key] for key in by_hand} == by_hand and plain["name"] == "node1"
        assert [node.first_life for node in again.nodes] == [0, 0, 1002]
        local_cluster.kill(again, "node1")
    third = Path(replaced.data_dir) / "node.json"
    assert json.loads(third.read_text())["first_life"] == 1002
    local_cluster.stop(local_cluster.load(tmp_path / "cluster"))
    save(kept)  # as if the register had been lost, and described anew
    local_cluster.stop(local_cluster.start(tmp_path / "cluster"))
    assert json.loads(third.read_text())["first_life"] == 1002


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
    assert left == {*logs, Path("secret"), Path("node1/data/theirs")}


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


# Commands beside each other, and commands that die


def test_nodes_that_are_started_beside_each_other_are_all_known(kept: local_cluster.Cluster, tmp_path: Path) -> None:
    """Each command read the file before the others changed it."""
    local_cluster.stop(kept)
    with ThreadPoolExecutor() as commands:
        started = [commands.submit(local_cluster.start_node, kept, node.name) for node in kept.nodes]
        pids = [each.result().node(node.name).pid for each, node in zip(started, kept.nodes, strict=True)]
    assert [node.pid for node in cluster_file.kept(tmp_path / "cluster").nodes] == pids
    assert local_cluster.stop(local_cluster.load(tmp_path / "cluster")) == ["node1", "node2", "node3"]


def test_a_node_is_started_once_however_many_commands_start_it(kept: local_cluster.Cluster, tmp_path: Path) -> None:
    """Two processes over the files of one node would destroy them."""
    local_cluster.kill(kept, "node2")
    with ThreadPoolExecutor() as commands:
        ends = [commands.submit(local_cluster.start_node, kept, "node2").exception for _ in range(4)]
        errors = [str(error) for end in ends if (error := end()) is not None]
    assert len(errors) == 3 and all("node2 already runs" in error for error in errors), errors


def killed_start(stand_in: Path, directory: Path, base_port: int) -> None:
    """A start that is killed after it has started its nodes, and before it has written them down."""
    script = f"""
import os, signal, sys
from pathlib import Path
from infra import local_cluster, node_process
node_process.NODE_COMMAND = (sys.executable, {str(stand_in)!r})
local_cluster._kept = lambda launched: os.kill(os.getpid(), signal.SIGKILL)
local_cluster.start(Path({str(directory)!r}), base_port={base_port})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("is_new", [True, False], ids=["first start", "with data"])
def test_nodes_of_a_start_that_was_killed_are_found_named_and_stopped(
    tmp_path: Path, stand_in: Path, base_port: int, is_new: bool
) -> None:
    """Nobody wrote them down, and they hold ports and files."""
    directory = tmp_path / "cluster"
    if not is_new:
        local_cluster.stop(local_cluster.start(directory, base_port=base_port))
    killed_start(stand_in, directory, base_port)
    found = local_cluster.load(directory)
    assert [row["state"] for row in local_cluster.status(found)] == ["running"] * 3
    with pytest.raises(ClusterError, match=rf"already runs here: node1 \(pid {found.nodes[0].pid}\), node2 "):
        local_cluster.start(directory)
    with pytest.raises(ClusterError, match="node1 already runs"):
        local_cluster.start_node(found, "node1")
    assert local_cluster.kill(found, "node3").pid == found.nodes[2].pid
    assert local_cluster.stop(local_cluster.load(directory)) == ["node1", "node2"]
    assert not (directory / ".undo").exists()
    local_cluster.stop(local_cluster.start(directory))


def test_whoever_writes_the_register_writes_down_what_a_killed_start_left(
    tmp_path: Path, stand_in: Path, base_port: int
) -> None:
    """From then on the nodes are somebody's: no cleaning ends them."""
    directory = tmp_path / "cluster"
    killed_start(stand_in, directory, base_port)
    local_cluster.kill(local_cluster.load(directory), "node2")
    started = local_cluster.start_node(local_cluster.load(directory), "node2")
    assert cluster_file.kept(directory) == started and all(is_alive(node) for node in started.nodes)
    assert cleaning.clean(tmp_path) == []
    assert local_cluster.stop(started) == ["node1", "node2", "node3"]


def interrupted(_launched: object, **_how: object) -> dict[str, ClusterError]:
    raise KeyboardInterrupt


def test_an_interrupted_first_start_leaves_only_logs(
    tmp_path: Path, stand_in: Path, base_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for its nodes."""
    monkeypatch.setattr(local_cluster, "_await_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local_cluster.start(tmp_path / "cluster", base_port=base_port)
    assert not list(node_process.marked(str(tmp_path / "cluster")))
    left = {path.name for path in (tmp_path / "cluster").rglob("*") if path.is_file()}
    assert left == {"node.log", "secret"}


def test_an_interrupted_start_stops_what_it_started_and_nothing_else(
    kept: local_cluster.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other nodes are those of other commands."""
    before = local_cluster.kill(kept, "node2")
    with monkeypatch.context() as patch:
        patch.setattr(local_cluster, "_await_ready", interrupted)
        with pytest.raises(KeyboardInterrupt):
            local_cluster.start_node(kept, "node2")
    found = local_cluster.load(tmp_path / "cluster")
    assert [row["state"] for row in local_cluster.status(found)] == ["running", "down", "running"]
    assert found.node("node2") == before


def test_a_start_that_is_interrupted_between_two_nodes_leaves_none(
    kept: local_cluster.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may come when the process runs and nobody has its pid yet."""
    local_cluster.stop(kept)

    def spawn(*arguments: Any, **how: Any) -> subprocess.Popen[bytes]:
        lost.append(node_process.spawn(*arguments, **how))
        if len(lost) == 2:
            raise KeyboardInterrupt
        return lost[-1]

    lost: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(local_cluster, "spawn", spawn)
    with pytest.raises(KeyboardInterrupt):
        local_cluster.start(tmp_path / "cluster")
    assert [child.wait(30) for child in lost] == [-signal.SIGTERM] * 2
    assert not any(is_alive(node) for node in local_cluster.load(tmp_path / "cluster").nodes)


# A start that is refused changes nothing


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_nodes_without_a_register_are_left_alone(kept: local_cluster.Cluster, tmp_path: Path) -> None:
    """A new identity over their files would put all messages out of reach."""
    local_cluster.stop(kept)
    for file in (STATE_FILE, COPY_FILE):
        (tmp_path / "cluster" / file).rename(tmp_path / file)
    before = content(tmp_path / "cluster")
    with pytest.raises(ClusterError, match=r"node1, node2, node3 of a cluster lie here") as caught:
        local_cluster.start(tmp_path / "cluster")
    assert f"perftest broker rebuild --dir {tmp_path / 'cluster'}" in caught.value.fix
    assert content(tmp_path / "cluster") == before
    (tmp_path / STATE_FILE).rename(tmp_path / "cluster" / STATE_FILE)


@pytest.mark.parametrize(("key", "value"), [("cluster", "local-of-another"), ("node", 3)])
def test_a_directory_of_another_node_or_cluster_is_left_alone(
    kept: local_cluster.Cluster, tmp_path: Path, key: str, value: object
) -> None:
    """Whoever puts a drive into the wrong machine wants it back as it was."""
    local_cluster.stop(kept)
    config = Path(kept.nodes[1].data_dir) / "node.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: value}))
    before = content(config.parent)
    with pytest.raises(ClusterError, match="this directory belongs to node"):
        local_cluster.start_node(kept, "node2")
    with pytest.raises(NotAllStartedError, match="this directory belongs to node") as caught:
        local_cluster.start(tmp_path / "cluster")
    assert caught.value.where == str(config) and content(config.parent) == before


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "with data"])
def test_a_start_without_its_ports_changes_nothing(
    tmp_path: Path, stand_in: Path, base_port: int, is_new: bool
) -> None:
    directory = tmp_path / "cluster"
    if not is_new:
        local_cluster.stop(local_cluster.start(directory, base_port=base_port))
    before, there = content(tmp_path), set(tmp_path.rglob("*"))
    with socket.create_server(("127.0.0.1", base_port + 1)), pytest.raises(ClusterError, match="is in use"):
        local_cluster.start(directory, base_port=base_port)
    assert content(tmp_path) == before and set(tmp_path.rglob("*")) == there


class Undead:
    """A child that ends at no signal, as if it waited for a drive that hangs."""

    stdin = None
    pid = 77

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send_signal(self, _number: int) -> None:
        self.asked.append("continue")

    def terminate(self) -> None:
        self.asked.append("terminate")

    def kill(self) -> None:
        self.asked.append("kill")

    def wait(self, timeout: float) -> None:
        raise subprocess.TimeoutExpired("node", timeout)


def test_a_node_that_does_not_end_is_told() -> None:
    """Waiting for ever would cost what was measured after the run, and every run behind it."""
    child = Undead()
    with pytest.raises(ClusterError, match=r"not even after SIGKILL \(pid 77\)"):
        node_process.end_children([child])  # type: ignore[list-item]
    assert child.asked == ["continue", "terminate", "kill"]
