"""Nodes of one cluster on several hosts: network namespaces with addresses of their own, joined by a bridge.

Each node is started by a command on its host, with nothing but the description and the secret in a directory there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.cluster import Cluster, ClusterError
from infra.cluster_file import DESCRIPTION_FILE, load
from infra.description import NodePlace, describe, usual_ports, write
from infra.node_process import wait
from tests.integration.testing.pika_clients import connect

pytestmark = [
    pytest.mark.lab,
    pytest.mark.processes,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are made by root only"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="there is no `ip` (iproute2) to make network namespaces"),
]

SUBNET = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
BRIDGE = f"pt{os.getpid() % 100_000}b"
QUORUM = {"x-queue-type": "quorum"}
CONFIRMED_WITHIN_S = 30


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[str]]:
    """So many namespaces on one bridge, whose own address is that of this process."""
    names = [f"{BRIDGE}{number}" for number in range(1, count + 1)]
    with contextlib.ExitStack() as undo:
        try:
            ip("link", "add", BRIDGE, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no bridge can be made here: {error.stderr.decode().strip()}")
        undo.callback(ip, "link", "del", BRIDGE)
        ip("addr", "add", f"{SUBNET}.254/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, name in enumerate(names, start=1):
            ip("netns", "add", name)
            undo.callback(ip, "netns", "del", name)
            ip("link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
            undo.callback(ip, "link", "del", f"{name}v")  # the kernel takes its time with those of a namespace
            ip("link", "set", f"{name}v", "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts, by the names of their nodes, and the cluster as somebody sees it who runs no node."""

    names: dict[str, str]
    directories: dict[str, Path]
    cluster: Cluster

    def begin(self, action: str, node: str, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "infra.host_node", action, "--dir", str(self.directories[node]), *more]
        if action == "start":
            command += ["--node", node]
        command = ["ip", "netns", "exec", self.names[node], *command]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def do(self, action: str, node: str, *more: str) -> dict[str, Any]:
        return ended(self.begin(action, node, *more))

    def state(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in local_cluster.summary(self.cluster)}


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts, on which nothing runs yet. The nodes listen on all addresses of their hosts."""
    nodes = ["a", "b", "c"]
    with hosts(3) as names:
        places = [
            NodePlace(name=node, address=f"{SUBNET}.{number}", ports=usual_ports(5691), addresses={"bind": "0.0.0.0"})
            for number, node in enumerate(nodes, start=1)
        ]
        cluster = write(describe("over-hosts", places), tmp_path / "coordinator")
        directories = {node: tmp_path / "hosts" / node for node in nodes}
        for directory in directories.values():
            directory.mkdir(parents=True)
            for file in (Path(cluster.directory, DESCRIPTION_FILE), cluster.secret_file):
                shutil.copy2(file, directory)
        found = Hosts(dict(zip(nodes, names, strict=True)), directories, cluster)
        try:
            yield found
        finally:
            for node in nodes:
                with contextlib.suppress(ClusterError):
                    local_cluster.stop(load(directories[node]))


def test_nodes_on_three_hosts_are_one_cluster(three: Hosts) -> None:
    """Published on each host and consumed on the next; one node dies, and comes back."""
    first = three.do("start", "a")
    assert first["state"] == "running" and not first["ready"], "it waits for nobody, because nobody else runs"
    others = [three.begin("start", node, "--until-ready") for node in ("b", "c")]
    assert all(ended(other)["ready"] for other in others)
    assert three.do("start", "a")["pid"] == first["pid"], "what runs is not started again"

    with contextlib.ExitStack() as open_connections:
        channels = [open_connections.enter_context(connect(uri)).channel() for uri in three.cluster.uris]
        for number, channel in enumerate(channels):
            channel.confirm_delivery()
            channel.queue_declare(f"q{number}", durable=True, arguments=QUORUM)
            channel.basic_publish("", f"q{number}", b"from %d" % number, mandatory=True)
        for number, channel in enumerate(channels):
            source = (number + 1) % 3
            method, _, body = next(channel.consume(f"q{source}", inactivity_timeout=20))
            assert body == b"from %d" % source
            channel.basic_ack(method.delivery_tag)
            channel.cancel()

    assert three.do("kill", "c")["state"] == "down"
    assert three.state() == {"a": "running", "b": "running", "c": "silent"}
    with connect(three.cluster.uris[1]) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q2", b"without c", mandatory=True)
    assert three.do("start", "c", "--until-ready")["ready"]
    assert three.do("pause", "b")["state"] == "paused"
    assert wait(lambda: three.state()["b"] == "silent", 20)
    assert three.do("resume", "b")["state"] == "running"
    assert [three.do("stop", node)["state"] for node in ("a", "b", "c")] == ["down"] * 3
    assert set(three.state().values()) == {"silent"}


def test_operators_elsewhere_change_what_the_nodes_have(three: Hosts) -> None:
    starts = [three.begin("start", node, "--until-ready") for node in ("a", "b", "c")]
    assert all(ended(start)["ready"] for start in starts)
    policy = {"name": "p", "pattern": "x", "definition": {"max-length": 5}}
    assert local_cluster.change(three.cluster, {"op": "set-policy", **policy})["ok"]
    three.do("stop", "a")
    answer = local_cluster.change(three.cluster, {"op": "policies"})  # the next node answers
    assert [policy["name"] for policy in answer["policies"]] == ["p"]
    records = local_cluster.sample(three.cluster, 7)
    assert [record["node"] for record in records] == ["b", "c"]
    assert not any("rss_bytes" in record for record in records), "the pids are those of other machines"


@contextlib.contextmanager
def cut(three: Hosts, *ways: tuple[str, str]) -> Iterator[None]:
    """What a node sends to another one is lost without a word, for each of the ``ways``."""
    routes = [(three.names[source], f"{SUBNET}.{'abc'.index(target) + 1}/32") for source, target in ways]
    for name, address in routes:
        ip("-n", name, "route", "add", "blackhole", address)
    try:
        yield
    finally:
        for name, address in routes:
            ip("-n", name, "route", "del", "blackhole", address)


def publish(uri: str, numbers: range) -> None:
    """Publish to the queue ``q``, and wait for the confirms, but not for ever."""

    def work() -> None:
        with connect(uri) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in numbers:
                channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2), mandatory=True)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(CONFIRMED_WITHIN_S)
    assert not worker.is_alive(), f"of {numbers} not all are confirmed"


def mirrored_queue(three: Hosts) -> None:
    """Three nodes, and a queue whose master is on ``a``."""
    starts = [three.begin("start", node, "--until-ready") for node in ("a", "b", "c")]
    assert all(ended(start)["ready"] for start in starts)
    policy = {"name": "p", "pattern": "^q$", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
    assert local_cluster.change(three.cluster, {"op": "set-policy", **policy})["ok"]
    with connect(three.cluster.uris[0]) as connection:
        connection.channel().queue_declare("q", durable=True, arguments={"x-queue-type": "classic"})
    publish(three.cluster.uris[0], range(10))


@pytest.mark.parametrize("ways", [[("b", "c")], [("c", "b")], [("b", "c"), ("c", "b")]], ids=["to c", "to b", "both"])
def test_confirms_go_on_while_two_mirrors_do_not_reach_each_other(three: Hosts, ways: list[tuple[str, str]]) -> None:
    """The master reaches both, and gives up one of them for as long as the cut lasts."""
    mirrored_queue(three)
    with cut(three, *ways):
        publish(three.cluster.uris[0], range(10, 100))
    publish(three.cluster.uris[0], range(100, 120))
    with connect(three.cluster.uris[0]) as connection:
        channel = connection.channel()
        found = [body for _method, _properties, body in (channel.basic_get("q", True) for _ in range(121))]
    assert found == [*[b"%d" % number for number in range(120)], None]


def test_a_master_that_is_isolated_delivers_nothing_that_comes_as_new_from_the_next(three: Hosts) -> None:
    """A client stays on its side, and gets messages one by one before, during and after the cut."""
    mirrored_queue(three)
    publish(three.cluster.uris[0], range(10, 1000))
    got: list[tuple[int, bool]] = []
    is_over = threading.Event()

    def get(channel: BlockingChannel) -> bool:
        method, _properties, body = channel.basic_get("q", True)
        got.extend([(int(body), method.redelivered)] if method is not None else [])
        return method is not None

    def get_on() -> None:
        with contextlib.suppress(pika.exceptions.AMQPError), connect(three.cluster.uris[0]) as near:
            channel = near.channel()
            while not is_over.is_set() and get(channel):
                near.process_data_events(0.02)  # slowly: the cut must find messages in the queue

    worker = threading.Thread(target=get_on, daemon=True)
    worker.start()
    assert wait(lambda: len(got) > 5, 60)
    with cut(three, ("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")), connect(three.cluster.uris[2]) as far:
        channel = far.channel()
        assert wait(lambda: get(channel), 60), "nobody is the next master"
        while get(channel):
            pass
    is_over.set()
    worker.join(60)
    assert not worker.is_alive(), "the client of the former master has no answer after the cut"
    as_new = [number for number, redelivered in got if not redelivered]
    assert len(as_new) == len(set(as_new))
    assert {number for number, _ in got} == set(range(1000))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda directory: (directory / "secret").unlink(), "cannot be read: No such file"),
        (lambda directory: (directory / "secret").chmod(0o644), "is open to other users"),
        (lambda directory: (directory / DESCRIPTION_FILE).write_text("{"), "Expecting property name"),
        (lambda directory: (directory / DESCRIPTION_FILE).unlink(), "there is no description.json"),
    ],
    ids=["no secret", "open secret", "damaged", "missing"],
)
def test_a_host_that_lacks_something_says_what(three: Hosts, damage: Any, says: str) -> None:
    damage(three.directories["a"])
    process = three.begin("start", "a")
    out, err = process.communicate(timeout=60)
    assert out == "" and process.returncode == 1
    assert err.startswith("error: ") and says in err and len(err.splitlines()) == 3
