"""A member whose directories are no good says so, names the place, and ends; the others go on with all their data.

One whose drives are lost comes back blank, by the very command that its refusal names.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from infra import local_cluster
from infra.cluster import HOST
from infra.local_cluster import Cluster, ClusterError, Node, NotAllStartedError
from infra.node_process import marked, wait
from infra.replacement import replace_node
from tests.integration.testing.pika_clients import connect

pytestmark = [pytest.mark.slow, pytest.mark.processes]

QUORUM = {"x-queue-type": "quorum"}
BODIES = [b"%04d" % number + b"x" * 1000 for number in range(60)]


def publish(node: Node, bodies: list[bytes]) -> None:
    """Each confirmed before the next."""
    with connect(node) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def consume(node: Node, count: int) -> list[bytes]:
    """The next messages, acknowledged."""
    taken: list[bytes] = []
    with connect(node) as connection:
        channel = connection.channel()
        for method, _, body in channel.consume("q", inactivity_timeout=30):
            assert method is not None, f"only {len(taken)} of {count} messages"
            taken.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(taken) == count:
                break
        channel.cancel()
    return taken


def all_have_written(cluster: Cluster) -> None:
    """A majority confirms: the third node may be behind, and write all that it gets then as one batch."""
    for _ in range(10_000):
        rows = local_cluster.change(cluster, {"op": "quorum-status", "queue": "q"})["members"]
        if len({row.get("last_written", -1) for row in rows}) == 1:  # a member that does not answer tells nothing
            return
    pytest.fail(f"they do not come to have the same on disk: {rows}")


@contextmanager
def cluster_with_data(directory: Path, base_port: int) -> Iterator[Cluster]:
    """Three nodes that hold the first messages, in several batches each; ended afterwards, whoever runs by then."""
    cluster = local_cluster.start(directory, base_port=base_port)
    try:
        publish(cluster.nodes[0], BODIES[:38])
        all_have_written(cluster)
        publish(cluster.nodes[0], BODIES[38:40])
        all_have_written(cluster)
        yield cluster
    finally:
        local_cluster.stop(local_cluster.load(directory))


def the_others_go_on(cluster: Cluster) -> None:
    """All that was confirmed is there, and more is taken."""
    publish(cluster.nodes[0], BODIES[40:])
    assert consume(cluster.nodes[2], len(BODIES)) == BODIES


def newest_wal(node: Node) -> Path:
    """The WAL file that holds the last batches."""
    files = sorted(Path(node.paths()["wal_dir"]).glob("*.wal"), key=lambda path: path.stat().st_mtime)
    return max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0")))


def damage_the_wal(cluster: Cluster) -> str:
    """One bit, in the middle of what was synced."""
    path = newest_wal(cluster.nodes[1])
    octets = path.read_bytes()
    at = octets.find(b"x" * 1000, len(octets.rstrip(b"\0")) // 2)
    assert at > 0
    with path.open("r+b") as file:
        file.seek(at + 500)
        file.write(b"y")
    return f"{path}, offset "


def foreign_cluster(cluster: Cluster) -> str:
    """As if drives had been put into the wrong machine."""
    for role in ("data_dir", "wal_dir", "segment_dir"):
        path = Path(cluster.nodes[1].paths()[role]) / "identity"
        path.write_text(path.read_text().replace(cluster.cluster, "another-cluster"))
    return cluster.nodes[1].data_dir


def older_copy(cluster: Cluster) -> str:
    """A backup from before a later start: it has forgotten votes and acknowledged entries of that start."""
    home = Path(cluster.nodes[1].data_dir)
    shutil.copytree(home, home.with_name("backup"))
    cluster = local_cluster.start_node(cluster, "node2")
    local_cluster.kill(cluster, "node2")
    shutil.rmtree(home)
    home.with_name("backup").rename(home)
    return str(home)


def another_node(cluster: Cluster) -> str:
    """The directories of node3 under the name of node2: two members that are one and the same."""
    second, third = (Path(node.data_dir) for node in cluster.nodes[1:])
    for role in ("data", "wal", "segments"):
        shutil.rmtree(second / role, ignore_errors=True)
        if (third / role).exists():
            shutil.copytree(third / role, second / role)
    return str(second)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (damage_the_wal, "damaged log"),
        (foreign_cluster, "not this node's"),
        (another_node, "not this node's"),
        (older_copy, "a peer has seen another start of this node, with boot id 2"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_directory_that_is_no_good_is_refused(
    tmp_path: Path, base_port: int, spoil: Callable[[Cluster], str], what: str
) -> None:
    """Killed, spoiled, started: by itself, and with the whole cluster."""
    with cluster_with_data(tmp_path / "c", base_port) as cluster:
        local_cluster.kill(cluster, "node2")
        where = spoil(cluster)
        with pytest.raises(ClusterError, match="node2 ended while it started: ") as caught:
            local_cluster.start_node(cluster, "node2")
        assert what in caught.value.what and caught.value.where.startswith(where) and caught.value.fix
        assert "--replace" not in caught.value.fix or "costs the classic queues" in caught.value.fix
        local_cluster.stop(cluster)
        with pytest.raises(NotAllStartedError) as again:
            local_cluster.start(tmp_path / "c", base_port=base_port)
        assert what in again.value.what and again.value.where == caught.value.where
        the_others_go_on(again.value.cluster)


@contextmanager
def small_drive(where: Path, size: str) -> Iterator[None]:
    """A drive of its own, mounted there."""
    where.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no drive can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(where)], check=True)


def fill(drive: Path, but: int = 0) -> Path:
    """Somebody else's file takes what is free, but for so many octets."""
    path = drive / "somebody-elses"
    with path.open("wb") as file:
        file.write(bytes(shutil.disk_usage(drive).free - but))
    return path


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small drive needs root")


@needs_root
def test_a_full_drive_stops_its_node_and_no_other(tmp_path: Path, base_port: int) -> None:
    """A write that failed is never tried again; what the others confirm is safe without this node."""
    wal = tmp_path / "wal" / "node2"
    directories = local_cluster.Directories(wal_dir=str(tmp_path / "wal"))
    with small_drive(wal, "200m"):
        cluster = local_cluster.start(tmp_path / "c", base_port=base_port, directories=directories)
        try:
            publish(cluster.nodes[0], BODIES[:40])
            local_cluster.kill(cluster, "node2")
            filler = fill(wal)
            with pytest.raises(ClusterError, match="No space left on device") as caught:
                local_cluster.start_node(cluster, "node2")
            assert str(wal) in caught.value.where + caught.value.what
            the_others_go_on(cluster)
            filler.unlink()
            cluster = local_cluster.start_node(cluster, "node2")
        finally:
            local_cluster.stop(local_cluster.load(tmp_path / "c"))


@needs_root
def test_a_drive_that_is_full_at_the_roll_over_stops_its_node_under_load(tmp_path: Path, base_port: int) -> None:
    """The next WAL file does not fit while publishers are at it: every confirm holds, the node's last words name the
    file, and with room again it comes back and catches up."""
    wal = tmp_path / "wal" / "node2"
    directories = local_cluster.Directories(wal_dir=str(tmp_path / "wal"))
    bodies = [b"%04d" % number + b"x" * 500_000 for number in range(200)]
    with small_drive(wal, "200m"):
        cluster = local_cluster.start(tmp_path / "c", base_port=base_port, directories=directories)
        try:
            node, confirmed = cluster.node("node2"), 0
            filler = fill(wal, but=60_000_000)  # no alarm yet, and no room for a file of 64 MiB
            while local_cluster.is_alive(node):
                assert confirmed < len(bodies), "the drive was never full"
                publish(cluster.nodes[0], bodies[confirmed : confirmed + 10])
                confirmed += 10
            words = Path(node.log_file).read_text().splitlines()[-3:]
            assert words[0] == "error: the log cannot be written: No space left on device"
            assert words[1].startswith(f"  at   {wal}/0") and "free space" in words[2]
            publish(cluster.nodes[2], bodies[confirmed : confirmed + 10])
            filler.unlink()
            cluster = local_cluster.start_node(cluster, "node2")
            local_cluster.kill(cluster, "node1")
            assert consume(cluster.nodes[1], confirmed + 10) == bodies[: confirmed + 10]
        finally:
            local_cluster.stop(local_cluster.load(tmp_path / "c"))


@needs_root
@pytest.mark.parametrize("role", ["wal_dir", "classic_dir"])
def test_a_drive_that_runs_low_stops_publishers_on_every_node(tmp_path: Path, base_port: int, role: str) -> None:
    """What is published on one node is written on the others, too: they would be filled to the last octet by clients
    that never hear of it. When there is room again, or the node is gone, publishers go on."""
    drive = tmp_path / "drive" / "node2"
    directories = local_cluster.Directories(**{role: str(tmp_path / "drive")})
    with small_drive(drive, "200m"):
        cluster = local_cluster.start(tmp_path / "c", base_port=base_port, directories=directories)
        try:
            heard: list[str] = []
            with connect(cluster.nodes[0]) as connection:
                connection.add_on_connection_blocked_callback(lambda _, method: heard.append(method.method.reason))
                connection.add_on_connection_unblocked_callback(lambda *_: heard.append("on"))
                channel = connection.channel()
                channel.queue_declare("q", durable=True, arguments=QUORUM)

                def publish_until_heard(count: int) -> None:
                    assert wait(lambda: _publish_one(connection, channel) or len(heard) >= count, 20), heard

                filler = fill(drive, but=40_000_000)
                publish_until_heard(1)
                filler.unlink()
                publish_until_heard(2)
                fill(drive, but=40_000_000)
                publish_until_heard(3)
                local_cluster.kill(cluster, "node2")
                publish_until_heard(4)
            assert heard == ["low on disk", "on"] * 2
        finally:
            local_cluster.stop(local_cluster.load(tmp_path / "c"))


def _publish_one(connection: pika.BlockingConnection, channel: Any) -> None:
    channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
    connection.process_data_events(0)


# A boot id that somebody made up


def forged(known: bool) -> bytes:
    """The first words of node2 with a boot id far ahead, as anybody can send them: in the form of today, and in that of
    a time when nothing had to be proved."""
    life = {"life": [4_000_000, 1], "known": [4_000_000, 1] if known else None}
    said = {"cluster": "", "node": 2, "incarnation": 4_000_000, **life}
    return json.dumps(said).encode()


def tell(cluster: Cluster, to: Node, messages: list[bytes]) -> None:
    """Say so on a node's peer port until the node hangs up, as a stranger who heard the name of the cluster."""
    with socket.create_connection((HOST, to.peer_port), timeout=20) as connection:
        for message in messages:
            text = message.replace(b'"cluster": ""', b'"cluster": "%s"' % cluster.cluster.encode())
            connection.sendall(struct.pack(">I", 1 + len(text)) + b"\0" + text)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass


@pytest.mark.parametrize("known", [False, True], ids=["of node2", "of both"])
def test_a_life_that_a_stranger_claims_shuts_nobody_out(tmp_path: Path, base_port: int, known: bool) -> None:
    """One connection to a peer port must not be able to end a node for good: neither the one that is named nor the one
    that is told."""
    opening = {"version": 2, "cluster": "", "node": 2, "to": 1, "nonce": "00" * 32}
    with cluster_with_data(tmp_path / "c", base_port) as cluster:
        first = cluster.node("node1")
        seen = Path(first.paths()["data_dir"], "lives")
        before = json.loads(seen.read_text())
        tell(cluster, first, [forged(known)])
        tell(cluster, first, [json.dumps(opening).encode(), bytes(32) + forged(known)])
        assert json.loads(seen.read_text()) == before
        local_cluster.kill(cluster, "node2")
        tell(cluster, first, [forged(known)])
        tell(cluster, first, [json.dumps(opening).encode(), bytes(32) + forged(known)])
        cluster = local_cluster.start_node(cluster, "node2")
        local_cluster.kill(cluster, "node1")
        cluster = local_cluster.start_node(cluster, "node1")
        assert json.loads(seen.read_text())["2"][0] == 2
        the_others_go_on(cluster)


def test_a_node_with_another_secret_stays_alone_and_says_why(tmp_path: Path, base_port: int) -> None:
    """Its file was not copied, or it belongs to another cluster of that name: it waits to be mended, and is then let
    in as if nothing had been."""
    with cluster_with_data(tmp_path / "c", base_port) as cluster:
        local_cluster.kill(cluster, "node2")
        node, home = cluster.node("node2"), Path(cluster.node("node2").data_dir)
        secret, config, seen = tmp_path / "secret", tmp_path / "node.json", Path(node.paths()["data_dir"], "lives")
        secret.touch(mode=0o600)
        secret.write_text("another" * 8)
        plain = json.loads((home / "node.json").read_text())
        config.write_text(json.dumps({**plain, "secret_file": str(secret), "exit_with_stdin": True}))
        before = seen.read_text()
        command = [sys.executable, "-m", "reference_broker.node", "--config", str(config)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            try:
                assert child.stderr is not None
                said = next(line for line in child.stderr if "another secret" in line)
                assert "link to node 1" in said and "give all nodes of a cluster the same `secret_file`" in said
                assert child.poll() is None and seen.read_text() == before and "another" * 2 not in said
                publish(cluster.nodes[0], BODIES[40:50])
            finally:
                child.terminate()
        cluster = local_cluster.start_node(cluster, "node2")
        local_cluster.kill(cluster, "node1")
        publish(cluster.nodes[1], BODIES[50:])
        assert consume(cluster.nodes[2], len(BODIES)) == BODIES


# Nothing left


def copied(fix: str) -> list[str]:
    """The command in an advice, as a person would copy it."""
    command = fix[fix.index("perftest broker start") :].partition(" (")[0]
    return [sys.executable, "-m", "perftest.cli", *shlex.split(command)[1:]]


def state_of(cluster: Cluster, name: str) -> dict[str, Any]:
    rows = local_cluster.change(cluster, {"op": "quorum-status", "queue": "q"})["members"]
    return next(row for row in rows if row["node_name"] == name)


def lose(cluster: Cluster, name: str) -> None:
    """All of the node's directories are empty."""
    home = Path(cluster.node(name).data_dir)
    shutil.rmtree(home)
    home.mkdir()


def test_a_node_that_lost_its_directories_is_replaced(tmp_path: Path, base_port: int) -> None:
    """Blank, it is refused: it forgot its votes. Replaced, it gets everything from the others; afterwards another node
    may fail, and what the old directories held is no way back."""
    with cluster_with_data(tmp_path / "c", base_port) as cluster:
        local_cluster.kill(cluster, "node2")
        home = Path(cluster.node("node2").data_dir)
        shutil.copytree(home, home.with_name("found-again"))
        lose(cluster, "node2")
        with pytest.raises(ClusterError, match="blank one") as refused:
            local_cluster.start_node(cluster, "node2")

        done = subprocess.run(copied(refused.value.fix), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        cluster = local_cluster.load(tmp_path / "c")
        assert wait(lambda: state_of(cluster, "node2")["membership"] == "voter", 20), state_of(cluster, "node2")

        local_cluster.kill(cluster, "node1")
        publish(cluster.nodes[1], BODIES[40:])
        cluster = local_cluster.start_node(cluster, "node1")
        local_cluster.kill(cluster, "node2")
        cluster = local_cluster.start_node(cluster, "node2")
        assert consume(cluster.nodes[1], len(BODIES)) == BODIES

        local_cluster.kill(cluster, "node2")
        shutil.rmtree(home)
        home.with_name("found-again").rename(home)
        with pytest.raises(ClusterError, match="older copy"):
            local_cluster.start_node(cluster, "node2")


def test_a_first_start_that_was_killed_is_found_and_goes_on(tmp_path: Path, base_port: int) -> None:
    """Its nodes run, and clients may have used them. What was there before stays."""
    (tmp_path / "c" / "node1").mkdir(parents=True)
    (tmp_path / "c" / "node1" / "mine").touch()
    start = [sys.executable, "-m", "perftest", "broker", "start", "--dir", tmp_path / "c", "--port", str(base_port)]
    child = subprocess.Popen([*start, "--wal-dir", tmp_path / "wal"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert wait((tmp_path / "wal" / "node3").exists, 60)
    finally:
        child.kill()
        child.communicate()
    with pytest.raises(ClusterError, match="a cluster already runs here: node1"):
        local_cluster.start(tmp_path / "c", base_port=base_port)
    assert local_cluster.stop(local_cluster.load(tmp_path / "c")) == ["node1", "node2", "node3"]
    cluster = local_cluster.start(tmp_path / "c")
    try:
        publish(cluster.nodes[0], BODIES[:2])
        assert (tmp_path / "c" / "node1" / "mine").exists() and len(list((tmp_path / "wal").iterdir())) == 3
    finally:
        local_cluster.stop(cluster)


def test_a_signal_ends_what_a_start_has_started(tmp_path: Path, base_port: int) -> None:
    """While the command waits for its nodes; what was there before stays, and the next start is as the first one."""
    start = [sys.executable, "-m", "perftest", "broker", "start", "--dir", tmp_path / "c", "--port", str(base_port)]
    for number in (signal.SIGTERM, signal.SIGINT):
        child = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert wait(lambda: any(marked(str(tmp_path / "c"))), 60)
            next(marked(str(tmp_path / "c")))[0].suspend()  # so that the command waits
            assert wait(lambda: len(list(marked(str(tmp_path / "c")))) == 3, 60)
            child.send_signal(number)
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
        assert child.returncode == 130 and "the nodes that this command had started are stopped" in said
        assert not list(marked(str(tmp_path / "c"))) and not (tmp_path / "c" / "cluster.json").exists()


def test_the_classic_queues_of_a_lost_node_are_deleted_and_can_be_declared_again(
    tmp_path: Path, base_port: int
) -> None:
    """Nobody else has their messages. The queues of other nodes keep theirs."""
    with cluster_with_data(tmp_path / "c", base_port) as cluster:
        for node, name in ((cluster.nodes[1], "lost"), (cluster.nodes[2], "kept")):
            with connect(node) as connection:
                channel = connection.channel()
                channel.queue_declare(name, durable=True)
                channel.confirm_delivery()
                channel.basic_publish("", name, b"m", pika.BasicProperties(delivery_mode=2), mandatory=True)
        local_cluster.kill(cluster, "node2")
        lose(cluster, "node2")
        command = [sys.executable, "-m", "perftest", "broker", "start", "--node", "node2", "--replace"]
        command += ["--dir", str(tmp_path / "c")]
        unreadable = Path(cluster.node("node2").data_dir) / "node.json"
        unreadable.write_text("{")
        failed = subprocess.run([*command, "--yes"], capture_output=True, text=True, check=False)
        assert failed.returncode == 1 and "node.json cannot be read" in failed.stderr and "lost" not in failed.stderr
        unreadable.unlink()
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "the classic queues 'lost'" in refused.stderr and "--yes" in refused.stderr
        with (
            connect(cluster.nodes[0]) as connection,
            pytest.raises(pika.exceptions.ChannelClosedByBroker, match="node2"),  # still there, and out of reach
        ):
            connection.channel().queue_declare("lost", durable=True)
        done = subprocess.run([*command, "--yes"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "the classic queues 'lost'" in done.stderr and "kept" not in done.stderr
        cluster = local_cluster.load(tmp_path / "c")
        with connect(cluster.nodes[0]) as connection:
            channel = connection.channel()
            assert channel.queue_declare("lost", durable=True).method.message_count == 0
            assert channel.queue_declare("kept", durable=True).method.message_count == 1
        assert wait(lambda: state_of(cluster, "node2")["membership"] == "voter", 20)
        assert consume(cluster.nodes[1], 40) == BODIES[:40]


def test_what_only_the_lost_node_had_is_not_given_up_silently(tmp_path: Path, base_port: int) -> None:
    """A queue whose only member was there cannot come back from the others: somebody must decide."""
    with cluster_with_data(tmp_path / "c", base_port) as cluster:
        for node in ("node1", "node3"):
            local_cluster.change(cluster, {"op": "remove-member", "queue": "q", "node": node})
        with pytest.raises(ClusterError, match="already runs"):
            replace_node(cluster, "node2")
        local_cluster.kill(cluster, "node2")
        with pytest.raises(ClusterError, match="only member of 'q'"):
            replace_node(cluster, "node2")
        kept = json.loads((tmp_path / "c" / "cluster.json").read_text())["nodes"][1]
        assert kept["first_life"] == 0
        cluster = local_cluster.start_node(cluster, "node2")
        assert consume(cluster.nodes[0], 40) == BODIES[:40]


def test_a_replacement_without_a_majority_says_what_is_missing(tmp_path: Path, base_port: int) -> None:
    """Two of three are down: nobody may decide that one of them has forgotten everything."""
    with cluster_with_data(tmp_path / "c", base_port) as cluster:
        for name in ("node2", "node3"):
            local_cluster.kill(cluster, name)
        with pytest.raises(ClusterError, match="not replaced yet") as refused:
            replace_node(cluster, "node2")
        assert "majority" in refused.value.fix
        cluster = local_cluster.start_node(cluster, "node3")
        cluster = replace_node(cluster, "node2")
        assert wait(lambda: state_of(cluster, "node2")["membership"] == "voter", 20)
        assert consume(cluster.nodes[1], 40) == BODIES[:40]
