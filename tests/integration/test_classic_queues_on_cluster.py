"""Classic queues of three real processes, spoken to by pika: on the node that owns the queue and on another node."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.layout import PlacedDrive, PlacedLayout
from infra.local_cluster import Cluster, Node
from infra.replacement import replace_node
from tests.integration.testing.pika_clients import connect
from tests.integration.testing.scripts import until

pytestmark = pytest.mark.processes

PERSISTENT = pika.BasicProperties(delivery_mode=2, message_id="m", headers={"k": "v"})
TRANSIENT = pika.BasicProperties(delivery_mode=1)


def publish(channel: BlockingChannel, queue: str, bodies: list[bytes], properties: Any = PERSISTENT) -> None:
    """Publish, each confirmed before the next: pika raises on a nack."""
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, properties, mandatory=True)


def take(channel: BlockingChannel, queue: str, count: int) -> list[tuple[bytes, bool]]:
    """The next ``count`` deliveries: body, and whether it is flagged as redelivered. All are acknowledged."""
    taken = []
    for method, _properties, body in channel.consume(queue, inactivity_timeout=30):
        assert method is not None, f"only {len(taken)} of {count} messages came"
        channel.basic_ack(method.delivery_tag)
        taken.append((body, method.redelivered))
        if len(taken) == count:
            break
    channel.cancel()
    return taken


def bodies(count: int) -> list[bytes]:
    """Small messages, and every tenth is large: those go to the shared store."""
    return [b"message %d " % number + b"x" * (10_000 if number % 10 == 9 else 1000) for number in range(count)]


@pytest.mark.parametrize("mode", ["default", "lazy"])
@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT], ids=["persistent", "transient"])
def test_messages_arrive_in_order_on_every_node(
    cluster: Cluster, request: pytest.FixtureRequest, mode: str, properties: Any
) -> None:
    """A client does not know which node owns the queue."""
    owner, other, third = cluster.nodes
    name, arguments = request.node.name, {"x-queue-mode": mode}
    with connect(owner) as first, connect(other) as second, connect(third) as last:
        first.channel().queue_declare(name, durable=True, arguments=arguments)
        for publisher, consumer in ((first, first), (second, last), (last, first), (first, second)):
            publish(publisher.channel(), name, bodies(30), properties)
            assert take(consumer.channel(), name, 30) == [(body, False) for body in bodies(30)]
        assert second.channel().queue_delete(name).method.message_count == 0


def sent_to(node: Node, peer: Node) -> float:
    """The octets that a node says it has sent to a peer for classic queues of either."""
    line = f'reference_broker_proxied_sent_bytes_total{{peer="{peer.name}",queue_type="classic"}} '
    (value,) = [each.removeprefix(line) for each in metrics_of(node).splitlines() if each.startswith(line)]
    return float(value)


def metrics_of(node: Node) -> str:
    """The node's figures. Its port for them opens a little later than AMQP."""
    found: list[str] = []

    def is_there() -> bool:
        url = f"http://127.0.0.1:{node.metrics_port}/metrics"
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url, timeout=30) as response:
            found.append(response.read().decode())
        return bool(found)

    until(is_there)
    return found[0]


def test_octets_between_nodes_are_counted_in_both_directions(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """Whoever wonders what a client on the wrong node costs reads it off the metrics."""
    owner, other, _third = cluster.nodes
    name, octets = request.node.name, sum(map(len, bodies(30)))
    with connect(owner) as first, connect(other) as second:
        before = sent_to(owner, other), sent_to(other, owner)
        first.channel().queue_declare(name, durable=True)
        publish(first.channel(), name, bodies(30))
        assert len(take(first.channel(), name, 30)) == 30
        at_home = sent_to(owner, other) - before[0] + sent_to(other, owner) - before[1]
        assert at_home < octets / 10, "a client on the queue's node sends nothing; tests before may have left a little"
        publish(second.channel(), name, bodies(30))
        there = sent_to(other, owner) - before[1]
        assert len(take(second.channel(), name, 30)) == 30
        back = sent_to(owner, other) - before[0]
        assert octets < there < 2 * octets and octets < back < 2 * octets
        first.channel().queue_delete(name)
    told = {record["node"]: record["links"] for record in local_cluster.sample(cluster, 0)}
    assert (
        told[owner.name][other.name]["deliveries"] >= back / 2 and told[other.name][owner.name]["commands"] >= there / 2
    )
    assert any(sent.get("replication", 0) > 0 for links in told.values() for sent in links.values()), "of the metadata"


def test_a_plain_declaration_gives_a_classic_queue(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """A client that names no type, as most do, gets what RabbitMQ gives it."""
    with connect(cluster.nodes[0]) as connection:
        name = request.node.name
        connection.channel().queue_declare(name)
        connection.channel().queue_declare(name)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent arg 'durable'"):
            connection.channel().queue_declare(name, durable=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent arg 'x-queue-type'"):
            connection.channel().queue_declare(name, arguments={"x-queue-type": "quorum"})
        connection.channel().queue_delete(name)


def test_any_node_tells_which_node_has_a_queue(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """An action on the leader of a classic queue must meet the node that has the queue."""
    second, name = cluster.nodes[1], request.node.name
    with connect(second) as connection:
        connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": "classic"})
    for node in cluster.nodes:
        deadline = time.monotonic() + 30.0
        while "error" in (answer := local_cluster.ask(cluster, node, {"op": "leader", "queue": name})):
            assert time.monotonic() < deadline, answer  # the node has not heard of the queue yet
        assert answer == {"ok": True, "leader": second.name}
    unknown = local_cluster.ask(cluster, second, {"op": "leader", "queue": "nope"})
    assert "no queue 'nope'" in unknown["error"] and "name one of" in unknown["fix"]


def test_a_requeued_message_comes_back_in_its_place(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """Strict order: returned messages go before those that were behind them, flagged as redelivered."""
    with connect(cluster.nodes[1]) as connection:
        channel, name = connection.channel(), request.node.name
        channel.queue_declare(name, durable=True)
        publish(channel, name, bodies(6))
        tags = [channel.basic_get(name)[0].delivery_tag for _ in range(4)]  # type: ignore[union-attr]
        channel.basic_ack(tags[1])
        for tag in (tags[3], tags[0], tags[2]):
            channel.basic_nack(tag, requeue=True)
        expected = [(bodies(6)[number], number < 4) for number in (0, 2, 3, 4, 5)]
        assert take(connection.channel(), name, 5) == expected
        channel.queue_delete(name)


def test_an_exclusive_queue_is_its_connections_own_and_ends_with_it(cluster: Cluster) -> None:
    """The reply queues of clients: unreachable for others, and gone without a trace."""
    with connect(cluster.nodes[0]) as other, connect(cluster.nodes[1]) as watching:
        with connect(cluster.nodes[0]) as connection:
            name = connection.channel().queue_declare("", exclusive=True).method.queue
            assert name.startswith("amq.gen-")
            for ask in ("queue_declare", "queue_delete", "queue_purge", "basic_get"):
                for stranger in (other, watching):
                    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                        options = {"passive": True} if ask == "queue_declare" else {}
                        getattr(stranger.channel(), ask)(name, **options)
                    assert refused.value.reply_code == 405, ask
            channel = connection.channel()
            publish(channel, name, bodies(3), TRANSIENT)
            assert [body for body, _again in take(connection.channel(), name, 3)] == bodies(3)
        for stranger in (other, watching):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as gone:
                while True:  # the deletion is committed soon
                    try:
                        stranger.channel().queue_declare(name, passive=True)
                    except pika.exceptions.ChannelClosedByBroker as error:
                        if error.reply_code != 405:
                            raise
            assert gone.value.reply_code == 404


def test_an_auto_delete_queue_ends_with_its_last_consumer(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """Not before it had one, and not while one of two is left; also if the client is on another node."""
    name = request.node.name
    with connect(cluster.nodes[0]) as first, connect(cluster.nodes[2]) as second:
        channel, other = first.channel(), second.channel()
        channel.queue_declare(name, auto_delete=True)
        publish(first.channel(), name, bodies(1), TRANSIENT)
        tag = channel.basic_consume(name, lambda *_: None)
        other.basic_consume(name, lambda *_: None)
        channel.basic_cancel(tag)
        first.channel().queue_declare(name, auto_delete=True)
        second.close()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as gone:
            while True:
                first.channel().queue_declare(name, passive=True)
        assert gone.value.reply_code == 404


@pytest.mark.slow
def test_what_was_confirmed_survives_a_kill_and_the_rest_goes(tmp_path: Path) -> None:
    """Durable queues come back with their persistent messages, in order; other queues and messages do not."""
    with local_cluster.temporary(tmp_path) as cluster:
        owner, other = cluster.nodes[0], cluster.nodes[1]
        connection = connect(owner)
        with connect(other) as remote:
            channel = connection.channel()
            for name, mode in (("kept", "default"), ("lazy", "lazy")):
                channel.queue_declare(name, durable=True, arguments={"x-queue-mode": mode})
                publish(connection.channel(), name, bodies(40))
                assert take(connection.channel(), name, 5) == [(body, False) for body in bodies(5)]
            channel.queue_declare("mixed", durable=True)
            publish(connection.channel(), "mixed", [b"goes"], TRANSIENT)
            publish(remote.channel(), "mixed", [b"stays"])
            channel.queue_declare("transient")
            local_cluster.kill(cluster, owner.name)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"home node .* is down or inaccessible"):
                while True:  # until the other node has noticed
                    remote.channel().queue_declare("kept", durable=True, passive=True)
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()  # its node is gone
        local_cluster.start_node(cluster, owner.name)
        with connect(owner) as connection, connect(other) as remote:
            assert [body for body, _again in take(remote.channel(), "kept", 35)] == bodies(40)[5:]
            assert [body for body, _again in take(connection.channel(), "lazy", 35)] == bodies(40)[5:]
            assert [body for body, _again in take(connection.channel(), "mixed", 1)] == [b"stays"]
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'transient'"):
                while True:
                    connection.channel().queue_declare("transient", passive=True)


def names_below(directory: str) -> list[str]:
    """The names of the files below a directory."""
    return sorted(path.name for path in Path(directory).rglob("*") if path.is_file())


@pytest.mark.slow
def test_classic_queues_on_a_drive_of_their_own_survive_kills_and_are_taken_away(tmp_path: Path) -> None:
    """Nothing of them lies on the drive of the data, and nothing of them is left behind."""
    drives = (
        PlacedDrive(name="disk", path=str(tmp_path / "disk")),
        PlacedDrive(name="own", path=str(tmp_path / "{node}-own")),
    )
    roles = {**dict.fromkeys(("data", "logs", "segment", "wal"), "disk"), "classic": "own"}
    layout = PlacedLayout(name="apart", drives=drives, roles=roles)
    with local_cluster.temporary(tmp_path / "runs", nodes=1, layout=layout) as cluster:
        (node,) = cluster.nodes
        own = node.paths()["classic_dir"]
        assert Path(own).is_relative_to(tmp_path / "node1-own") and names_below(own) == ["identity"]
        with connect(node) as connection:
            channel = connection.channel()
            for name, mode in (("kept", "default"), ("lazy", "lazy")):
                channel.queue_declare(name, durable=True, arguments={"x-queue-mode": mode})
                publish(channel, name, bodies(20))
        assert {Path(name).suffix for name in names_below(own)} >= {".qi", ".qs", ".rdq"}
        assert not {".qi", ".qs", ".rdq"} & {Path(name).suffix for name in names_below(str(tmp_path / "disk"))}
        local_cluster.kill(cluster, node.name)
        cluster = local_cluster.start_node(cluster, node.name)
        with connect(cluster.nodes[0]) as connection:
            for name in ("kept", "lazy"):
                assert [body for body, _again in take(connection.channel(), name, 20)] == bodies(20)
    assert not [*(tmp_path / "disk").iterdir(), *(tmp_path / "node1-own").iterdir()]


@pytest.mark.slow
def test_the_drive_of_classic_queues_is_awaited_watched_and_emptied(tmp_path: Path, base_port: int) -> None:
    """A start without the drive is refused, and names the drive; a replaced node begins with an empty directory."""
    directories = local_cluster.Directories(classic_dir=str(tmp_path / "own"))
    cluster = local_cluster.start(tmp_path / "c", base_port=base_port, directories=directories)
    try:
        second = cluster.nodes[1]
        own = Path(second.paths()["classic_dir"])
        with connect(second) as connection:
            connection.channel().queue_declare("q", durable=True)
            publish(connection.channel(), "q", bodies(10))
        local_cluster.kill(cluster, second.name)
        own.rename(own.with_name("unmounted"))
        with pytest.raises(local_cluster.ClusterError, match="the directory is not this node's") as refused:
            local_cluster.start_node(cluster, second.name)
        assert refused.value.where.startswith(f"{own}: holds nothing;")
        assert refused.value.fix.startswith("is the drive of classic_dir mounted?")
        shutil.rmtree(own)
        own.with_name("unmounted").rename(own)
        cluster = local_cluster.start_node(cluster, second.name)
        with connect(cluster.nodes[1]) as connection:
            assert [body for body, _again in take(connection.channel(), "q", 10)] == bodies(10)
            connection.channel().queue_delete("q")
        local_cluster.kill(cluster, second.name)
        (own / "durable" / "of-before").touch()
        cluster = replace_node(cluster, second.name)
        assert names_below(str(own)) == ["identity", "openings"]
    finally:
        local_cluster.stop(local_cluster.load(tmp_path / "c"))


@pytest.mark.slow
def test_messages_that_a_start_finds_lost_are_told_everywhere(tmp_path: Path, base_port: int) -> None:
    """A cut file costs messages that nobody else has. The start says so, with the queue and the number, and delivers
    all others."""

    def broker(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "perftest.cli", "broker", *words, "--dir", str(tmp_path / "c")]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)

    cluster = local_cluster.start(tmp_path / "c", nodes=1, base_port=base_port)
    try:
        (node,) = cluster.nodes
        with connect(node) as connection:
            for queue in ("orders", "whole"):
                connection.channel().queue_declare(queue, durable=True)
                publish(connection.channel(), queue, bodies(30))
        local_cluster.stop(cluster)
        durable = Path(node.paths()["classic_dir"]) / "durable"
        cut = next(each for each in sorted(durable.iterdir()) if (each / "00000001.qs").exists())
        messages = cut / "00000001.qs"
        messages.write_bytes(messages.read_bytes()[:-1500])

        started = broker("start")
        assert started.returncode == 0
        [warning] = [line for line in started.stderr.splitlines() if line.startswith("warning: ")]
        queue = warning.split("queue ")[1].split(":")[0]
        assert queue in ("orders", "whole") and warning.endswith("2 messages are lost: the file is damaged")
        assert f"  at   {messages}" in started.stderr and messages.with_name("00000001.qs.damaged").exists()
        told = {"queue": queue, "messages": 2, "where": str(messages)}
        [row] = json.loads(broker("status", "--json").stdout)
        [finding] = row["findings"]
        assert finding.items() >= told.items()
        assert f"in queue {queue}: 2 messages are lost" in (tmp_path / "c" / "node1" / "node.log").read_text()
        (node,) = local_cluster.load(tmp_path / "c").nodes
        assert metrics_of(node).count('reference_broker_start_lost_messages{store="classic"} 2.0') == 1
        request = urllib.request.Request(f"http://127.0.0.1:{node.metrics_port}/api/overview")
        request.add_header("Authorization", f"Basic {b64encode(b'guest:guest').decode()}")
        with urllib.request.urlopen(request, timeout=30) as response:
            assert json.load(response)["findings"] == [{"node": "node1", **finding}]
        with connect(node) as connection:
            for name in ("orders", "whole"):
                there = [body for body, _again in take(connection.channel(), name, 30 - 2 * (name == queue))]
                assert there == [body for body in bodies(30) if name != queue or body not in bodies(30)[-3:-1]]
    finally:
        local_cluster.stop(local_cluster.load(tmp_path / "c"))
