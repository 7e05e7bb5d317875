"""A node that cannot start says in three lines what is in its way, where, and what to do; and it does not stay. A node
that starts without something that is lost says so in every place where somebody looks."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from infra.ports import free_ports
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror, store_of
from reference_broker.node.config import NodeConfig, load
from reference_broker.node.endpoints import metrics, status
from reference_broker.node.links.peer_requests import Answer
from reference_broker.node.operations.figures import FIGURES
from reference_broker.node.start_problems import StartError, StartFindings, files_problem, listening
from reference_broker.storage.findings import StartFinding
from reference_broker.types import GroupId, NodeId
from tests.reference_broker.node.quiet_cluster import NODES, quiet_cluster

KEYS = ("amqp_port", "peer_port", "control_port", "metrics_port")


def write_config(directory: Path, **member: str | int) -> Path:
    ports = dict(zip(KEYS, free_ports(len(KEYS)), strict=True))
    named = {"node": 1, "name": "node1", "host": "127.0.0.1", **ports, **member}
    secret = directory / "secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 32)
    config = {"name": "node1", "node": 1, "cluster": "c", "nodes": [named], "data_dir": str(directory / "data")}
    config["secret_file"] = str(secret)
    path = directory / "node.json"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return load(write_config(tmp_path, host="h", amqp_port=81))


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (socket.gaierror(-2, "Name or service not known"), "name 'h' cannot be resolved: Name or", "it can resolve"),
        (OSError(errno.EADDRINUSE, "while binding"), "port 81 is taken", "free the port or choose another"),
        (OSError(errno.EADDRNOTAVAIL, "cannot assign"), "h is no address of this machine", "set host"),
        (OSError("could not bind on any address"), "h is no address of this machine", "set host"),
        (PermissionError(errno.EACCES, "denied"), "may not listen on port 81", "a port above 1023"),
        (OSError(errno.ENOBUFS, "no buffers"), "cannot listen on h, port 81: no buffers", "another host or port"),
    ],
    ids=["unknown host", "taken", "foreign address", "no address", "not allowed", "other"],
)
def test_a_port_that_cannot_be_had(config: NodeConfig, error: OSError, what: str, fix: str) -> None:
    with pytest.raises(StartError) as problem, listening(config.me, "amqp_port"):
        raise error
    lines = str(problem.value).splitlines()
    assert what in lines[0] and lines[0].startswith("error: ")
    assert lines[1] == "  at   node1: host h, amqp_port 81"
    assert fix in lines[2] and lines[2].startswith("  fix  ")


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOTDIR, "make it a directory"),
        (errno.EACCES, "make it a directory"),
        (errno.ENOSPC, "make room"),
        (errno.EIO, "mend the drive"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_files_that_cannot_be_used(config: NodeConfig, number: int, fix: str) -> None:
    """The path where the system tells one, else where the node keeps everything."""
    named = str(files_problem(OSError(number, "told", "/some/where"), config)).splitlines()
    assert named[0] == "error: the node cannot use its files: told"
    assert named[1] == "  at   /some/where"
    assert fix in named[2]
    assert f"  at   {config.data_dir}" in str(files_problem(OSError(number, "told"), config))


def test_a_file_system_that_is_read_only_is_mounted_again_and_not_given_up(config: NodeConfig) -> None:
    """A flush failed, and the node ended itself: everything that it confirmed is still there."""
    named = str(files_problem(OSError(errno.EROFS, "Read-only file system", "/some/where"), config)).splitlines()
    assert named[0].endswith("Read-only file system, as the kernel mounts it after an error of its drive")
    assert "mount it again" in named[2] and "--replace" not in named[2]


def test_an_address_to_listen_on_that_cannot_be_had_is_named_by_its_key(tmp_path: Path) -> None:
    me = load(write_config(tmp_path, bind="203.0.113.9", peer_bind="b")).me
    for port, where, fix in (
        ("peer_port", "node1: peer_bind b,", "set peer_bind to an address of this machine"),
        ("amqp_port", "node1: bind 203.0.113.9,", "set bind to an address of this machine"),
    ):
        with pytest.raises(StartError) as problem, listening(me, port):
            raise OSError(errno.EADDRNOTAVAIL, "cannot assign")
        _, at, remedy = str(problem.value).splitlines()
        assert where in at and remedy.endswith(fix)


@pytest.mark.processes
@pytest.mark.parametrize("key", KEYS)
def test_a_node_without_one_of_its_ports_ends(tmp_path: Path, key: str) -> None:
    """The AMQP port opens last: a node that stayed without it would look alive and serve nobody."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, lines = start(write_config(tmp_path, **{key: port}))
    assert code == 1
    assert lines == [
        f"error: port {port} is taken",
        f"  at   node1: host 127.0.0.1, {key} {port}",
        "  fix  free the port or choose another",
    ]


@pytest.mark.processes
def test_a_file_in_place_of_a_directory_is_named(tmp_path: Path) -> None:
    wal = tmp_path / "data" / "wal"
    wal.parent.mkdir()
    wal.touch()
    code, lines = start(write_config(tmp_path))
    assert (code, lines[1]) == (1, f"  at   {wal}")


def start(config: Path) -> tuple[int, list[str]]:
    """How the node ended, and the last three lines that it wrote."""
    command = [sys.executable, "-m", "reference_broker.node", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr.splitlines()[-3:]


def test_a_finding_of_a_start_is_told_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    """A loss that only one place tells is a loss that nobody hears of: log, status, metrics and the management API
    tell the queue by its name, as soon as the node knows the name, and the number of messages."""
    with quiet_cluster() as cluster:
        cluster.declare(["orders"])
        shard = cluster.shards[NODES[0]]
        group = shard.metadata.machine.queues["orders"].group
        whole_log = StartFinding(what="a file is gone", where="/wal/1", fix="mend it")
        shard.log.findings.append(whole_log)
        shard.owned.findings.append(
            StartFinding(what="2 are lost", where="/q/1", fix="mend it", group=group, messages=2)
        )
        shard.findings.tell()
        shard.findings.name_queues(shard.metadata.machine.queues.values())
        assert [record.getMessage() for record in caplog.records] == [
            "this start found damage: a file is gone (/wal/1); mend it",
            "this start found damage: 2 are lost (/q/1); mend it",
            "this start found damage in queue orders: 2 are lost (/q/1); mend it",
        ]
        named = {"what": "2 are lost", "where": "/q/1", "queue": "orders", "messages": 2, "fix": "mend it"}
        told = [whole_log.row(), named]
        assert status.summary(shard, listening=True, serves_http=True)["findings"] == told
        samples = {
            (sample.name, sample.labels["store"]): sample.value
            for family in metrics.NodeCollector(shard)._findings()
            for sample in family.samples
        }
        assert samples == {
            ("reference_broker_start_findings", "log"): 1, ("reference_broker_start_lost_messages", "log"): 0,
            ("reference_broker_start_findings", "classic"): 1, ("reference_broker_start_lost_messages", "classic"): 2,
            ("reference_broker_start_findings", "boots"): 0, ("reference_broker_start_lost_messages", "boots"): 0,
        }  # fmt: skip
        answers: list[Answer] = []
        shard.peer_answers.methods[FIGURES]({"of": "node"}, answers.append)
        assert answers[0]["rows"][0]["findings"] == told


def test_copies_of_a_queue_are_named_too() -> None:
    """The copies of a mirrored queue have numbers of their own in the store."""
    mirror = Mirror(NodeId(2), 1, 3, is_synchronised=True)
    record = QueueRecord(name="v\0q", group=GroupId(7), members=NODES, owner_since=2, mirrors=(mirror,))
    copies = [store_of(GroupId(7), since) for since in (0, 2, 3)]
    found = [StartFinding(what="w", where="", fix="f", group=group) for group in (*copies, GroupId(8))]
    findings = StartFindings({"classic": found})
    findings.name_queues([record])
    assert [each.queue for each in found] == ["q in virtual host 'v'"] * 3 + [""]
