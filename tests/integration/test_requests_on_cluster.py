"""Clients that do not wait for their answers, on a cluster of three real processes: what each is told in the end.

pika waits for each answer before it asks on, so these clients write their octets themselves.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pamqp.frame
import pytest
from pamqp import base, commands
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Queue
from pamqp.header import ContentHeader

from infra import local_cluster
from infra.local_cluster import Cluster, Node

pytestmark = pytest.mark.processes

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
DEADLINE_S = 40
"""Of a read: a paused node is suspected after 2 s, a queue without a leader answers after 5 s."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with local_cluster.temporary(tmp_path_factory.mktemp("requests")) as running:
        yield running


class RawClient:
    """One connection with channels 1 to ``channels``."""

    def __init__(self, node: Node, channels: int = 1) -> None:
        host, port = node.uri.rpartition("@")[2].rstrip("/").split("/")[0].split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self._octets = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        properties: Any = {"capabilities": {"consumer_cancel_notify": True, "basic.nack": True}}
        self.send(0, commands.Connection.StartOk(properties, "PLAIN", "\0guest\0guest", "en_US"))
        self.send(0, commands.Connection.TuneOk(2047, 131_072, 0), commands.Connection.Open("/"))
        for channel in range(1, channels + 1):
            self.send(channel, Channel.Open())
            self.hears(channel, Channel.OpenOk)

    def send(self, channel: int, *methods: base.Frame) -> None:
        self.socket.sendall(b"".join(pamqp.frame.marshal(each, channel) for each in methods))

    def next(self) -> tuple[int, Any]:
        """Channel and frame that the broker says next."""
        while True:
            if len(self._octets) > 7:
                size = int.from_bytes(self._octets[3:7], "big") + 8
                if len(self._octets) >= size:
                    _, channel, frame = pamqp.frame.unmarshal(self._octets[:size])
                    self._octets = self._octets[size:]
                    return channel, frame
            more = self.socket.recv(65_536)
            assert more, "the broker hung up"
            self._octets += more

    def hears(self, channel: int, kind: type[base.Frame]) -> Any:
        """The next frame of that kind on the channel; those in between are dropped."""
        while True:
            number, frame = self.next()
            if number == channel and isinstance(frame, kind):
                return frame

    def close(self) -> None:
        self.socket.close()


def test_requests_to_a_queue_that_is_deleted_meanwhile_are_answered(cluster: Cluster) -> None:
    """The only member of the queue stands still, so nothing is answered; then the queue is deleted. Once that left
    channels that waited for ever, and with one further method a connection that was not read any more."""
    home, other, third = cluster.nodes
    owner = RawClient(home)
    alone = {**QUORUM, "x-quorum-initial-group-size": 1}
    owner.send(1, Queue.Declare(0, "alone", durable=True, arguments=alone))
    owner.hears(1, Queue.DeclareOk)
    asking, deleting = RawClient(other, channels=5), RawClient(third)
    asking.send(1, Basic.Consume(0, "alone", "c"))
    asking.hears(1, Basic.ConsumeOk)
    local_cluster.pause(cluster, home.name)
    try:
        asking.send(1, Basic.Cancel("c"), Queue.Declare(0, "behind", durable=True, arguments=QUORUM))
        asking.send(2, Basic.Consume(0, "alone", "d"), Basic.Qos(0, 1, False))
        asking.send(3, Basic.Get(0, "alone"), Basic.Get(0, "alone"))
        asking.send(4, Queue.Purge(0, "alone"))
        deleting.send(1, Queue.Delete(0, "alone"))
        deleting.hears(1, Queue.DeleteOk)
        answers: dict[int, list[Any]] = {}
        while sum(map(len, answers.values())) < 5:
            channel, frame = asking.next()
            if not isinstance(frame, Basic.QosOk):
                answers.setdefault(channel, []).append(frame)
        cancelled, declared = answers.pop(1)
        assert (cancelled.name, declared.name) == ("Basic.CancelOk", "Queue.DeclareOk")
        closes = {channel: (close.reply_code, close.reply_text) for channel, (close,) in answers.items()}
        assert closes == dict.fromkeys((2, 3, 4), (404, "NOT_FOUND - no queue 'alone' in vhost '/'"))
        asking.send(5, Queue.Declare(0, declared.queue, passive=True))
        asking.hears(5, Queue.DeclareOk)
    finally:
        local_cluster.resume(cluster, home.name)
        for client in (owner, asking, deleting):
            client.close()


def test_a_queue_that_was_declared_on_another_node_a_moment_ago_gets_what_is_published(cluster: Cluster) -> None:
    """A node that stands still while the queue is declared reads the publish before it hears of the queue. Once that
    was "no route": dropped, and confirmed."""
    declaring, publishing = RawClient(cluster.nodes[0]), RawClient(cluster.nodes[2])
    publishing.send(1, commands.Confirm.Select())
    publishing.hears(1, commands.Confirm.SelectOk)
    try:
        for number in range(5):
            queue = f"young-{number}"
            local_cluster.pause(cluster, cluster.nodes[2].name)
            try:
                declaring.send(1, Queue.Declare(0, queue, durable=True, arguments=QUORUM))
                declaring.hears(1, Queue.DeclareOk)
                content = pamqp.frame.marshal(ContentHeader(body_size=1), 1) + pamqp.frame.marshal(ContentBody(b"x"), 1)
                publish = pamqp.frame.marshal(Basic.Publish(0, "", queue, mandatory=True), 1)
                publishing.socket.sendall(publish + content)
            finally:
                local_cluster.resume(cluster, cluster.nodes[2].name)
            channel, answer = publishing.next()
            assert (channel, answer.name) == (1, "Basic.Ack")
            declaring.send(1, Basic.Get(0, queue, no_ack=True))
            declaring.hears(1, Basic.GetOk)
    finally:
        for client in (declaring, publishing):
            client.close()
