"""Whatever comes in through any port: an answer that the specification names, and nobody else notices.

The codes are tested case by case on the protocol core; here a whole node stands behind the socket, and a polite client
is connected all the time.
"""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Iterator

import pamqp.frame
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.control_link import connected
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes

HEADER = b"AMQP\x00\x00\x09\x01"
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with local_cluster.temporary(tmp_path_factory.mktemp("hostile"), nodes=1) as running:
        yield running


@pytest.fixture
def neighbour(cluster: Cluster) -> Iterator[BlockingChannel]:
    """A client that does nothing wrong. After the test it must still be served."""
    with connect(cluster.nodes[0]) as connection:
        channel = connection.channel()
        channel.queue_declare("neighbour", durable=True, arguments=QUORUM)
        channel.confirm_delivery()
        yield channel
        channel.basic_publish("", "neighbour", b"still here", mandatory=True)
        method, _, body = next(channel.consume("neighbour", inactivity_timeout=20))
        channel.basic_ack(method.delivery_tag)
        channel.cancel()
        assert body == b"still here"


def conversation(port: int, octets: bytes) -> bytes:
    """Send and read until the other side has nothing more to say."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(octets)
        client.shutdown(socket.SHUT_WR)
        heard = b""
        try:
            while more := client.recv(65536):
                heard += more
        except ConnectionResetError:
            pass  # closed before everything of ours was read: that too is an end
        return heard


def handshake(*frames: bytes) -> bytes:
    """A login as guest, a channel, and then ``frames``."""
    polite = (
        commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"),
        commands.Connection.TuneOk(2047, 131072, 0),
        commands.Connection.Open("/"),
    )
    opening = b"".join(pamqp.frame.marshal(frame, 0) for frame in polite)
    return HEADER + opening + pamqp.frame.marshal(commands.Channel.Open(), 1) + b"".join(frames)


def close_code(heard: bytes) -> int:
    """The reply code of the last close method in what the broker said."""
    code = 0
    while heard:
        used, _channel, frame = pamqp.frame.unmarshal(heard)
        if isinstance(frame, commands.Connection.Close | commands.Channel.Close):
            code = frame.reply_code
        heard = heard[used:]
    return code


def method(class_id: int, method_id: int, arguments: bytes = b"", channel: int = 1) -> bytes:
    payload = struct.pack(">HH", class_id, method_id) + arguments
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"


CASES = {
    "wrong frame end": (struct.pack(">BHI", 1, 1, 4) + b"\x00\x14\x00\x0a" + b"\x00", 501),
    "larger than negotiated": (struct.pack(">BHI", 3, 1, 200_000), 501),
    "four gigabytes announced": (struct.pack(">BHI", 3, 1, 0xFFFFFFFF), 501),
    "unknown method": (method(60, 999), 503),
    "unknown class": (method(999, 10), 503),
    "unknown frame type": (struct.pack(">BHI", 9, 1, 4) + b"abcd\xce", 501),
    "body without header": (struct.pack(">BHI", 3, 1, 2) + b"ab\xce", 505),
    "channel that was never opened": (method(60, 80, struct.pack(">QB", 1, 0), channel=7), 504),
    "close-ok for a channel that is open": (method(20, 41), 503),
    "close-ok for a channel that was never opened": (method(20, 41, channel=7), 504),
    "ack of nothing": (method(60, 80, struct.pack(">QB", 42, 0)), 406),
    "unknown exchange": (method(60, 40, b"\x00\x00\x04nope\x01q\x00") + struct.pack(">BHI", 2, 1, 14)
                         + struct.pack(">HHQH", 60, 0, 0, 0) + b"\xce", 404),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_violations_are_answered_with_their_code(cluster: Cluster, neighbour: BlockingChannel, name: str) -> None:
    octets, code = CASES[name]
    heard = conversation(cluster.nodes[0].amqp_port, handshake(octets))
    assert close_code(heard) == code


@pytest.mark.parametrize("response", [b"\0\xff\0\xfe", b"\0guest\0\xfe"])
def test_credentials_that_are_no_text_are_wrong_ones(
    cluster: Cluster, neighbour: BlockingChannel, response: bytes
) -> None:
    able = struct.pack(">I", 31) + b"\x1cauthentication_failure_closet\x01"
    properties = b"\x0ccapabilitiesF" + able
    start_ok = struct.pack(">I", len(properties)) + properties + b"\x05PLAIN"
    start_ok += struct.pack(">I", len(response)) + response + b"\x05en_US"
    assert close_code(conversation(cluster.nodes[0].amqp_port, HEADER + method(10, 11, start_ok, channel=0))) == 403


def test_a_client_may_renew_its_password(cluster: Cluster) -> None:
    with connect(cluster.nodes[0]) as connection:
        connection.update_secret("guest", "as often as one likes")
        assert connection.channel().is_open


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", b"\x00" * 64])
def test_who_does_not_speak_amqp_is_told_what_is_spoken(
    cluster: Cluster, neighbour: BlockingChannel, greeting: bytes
) -> None:
    assert conversation(cluster.nodes[0].amqp_port, greeting) == HEADER


@pytest.mark.parametrize("port", ["amqp_port", "peer_port", "control_port"])
def test_noise_on_any_port_harms_nobody(cluster: Cluster, neighbour: BlockingChannel, port: str) -> None:
    noise = random.Random(1)
    for _ in range(20):
        conversation(getattr(cluster.nodes[0], port), noise.randbytes(noise.randint(1, 5000)))
    assert local_cluster.status(cluster)[0]["state"] == "running"


def test_the_control_port_answers_nonsense_in_json(cluster: Cluster) -> None:
    with connected(cluster, cluster.nodes[0], 10) as lines:
        lines.write(b'nonsense\n{"op": "explode"}\n[]\n')
        lines.flush()
        answers = [json.loads(lines.readline()) for _ in range(3)]
    assert all("error" in answer for answer in answers)
