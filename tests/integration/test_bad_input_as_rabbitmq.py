"""Octets that no client should send, to a real RabbitMQ: our answers are its answers, or stricter with a proper close.

Our answers are tested where the cases are written. Here RabbitMQ gets the same octets over a socket. What differs is in
the table of docs/internals/hostile-input.md.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from infra import rabbitmq_cluster
from tests.reference_broker.amqp.test_amqp_bad_input import CHANNEL_CASES, CONNECTION_CASES, Case
from tests.reference_broker.amqp.testing import PROTOCOL_HEADER, method

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.processes,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "hostile-input.md"
QUIET_S = 1.5
"""So long RabbitMQ may be silent; its answers take milliseconds."""
OPENING = (
    PROTOCOL_HEADER
    + method(
        0,
        commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"),
        commands.Connection.TuneOk(2047, 131_072, 0),
        commands.Connection.Open("/"),
    )
    + method(1, commands.Channel.Open())
    + method(2, commands.Channel.Open())
    + method(2, commands.Queue.Declare(0, "q"))
)
CASES = {case.name: case for case in (*CONNECTION_CASES, *CHANNEL_CASES)}


@pytest.fixture(scope="module")
def port(rabbitmq: str) -> int:
    return int(rabbitmq.rpartition(":")[2].partition("/")[0])


def read_frames(wire: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Kind, channel and payload of each frame; ends with the socket, raises TimeoutError when nothing comes."""
    unread = b""
    while True:
        while len(unread) < 7 or len(unread) < 8 + struct.unpack_from(">I", unread, 3)[0]:
            try:
                more = wire.recv(65_536)
            except ConnectionError:
                return
            if not more:
                return
            unread += more
        kind, channel, size = struct.unpack_from(">BHI", unread)
        yield kind, channel, unread[7 : 7 + size]
        unread = unread[8 + size :]


def answer(port: int, octets: bytes) -> str:
    """What RabbitMQ does: *connection 501*, *channel 406*, *closes the socket*, *nothing*."""
    with socket.create_connection(("127.0.0.1", port), 20) as wire:
        wire.sendall(OPENING)
        frames = read_frames(wire)
        for kind, channel, payload in frames:
            if (kind, channel, payload[:4]) == (1, 2, b"\x00\x32\x00\x0b"):
                break
        wire.settimeout(QUIET_S)
        try:
            wire.sendall(octets)
            for kind, channel, payload in frames:
                if kind == 1 and payload[:4] in (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28"):
                    return f"{'channel' if channel else 'connection'} {int.from_bytes(payload[4:6], 'big')}"
        except TimeoutError:
            return "nothing"
        except ConnectionError:
            pass
        return "closes the socket"


def ours(case: Case) -> str:
    return f"{'channel' if case in CHANNEL_CASES else 'connection'} {case.code}"


def told() -> dict[str, tuple[str, str]]:
    """The table of the page: by name of the case, RabbitMQ's answer and ours."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (theirs, mine) for name, theirs, mine in rows}


def test_the_page_knows_every_difference(port: int) -> None:
    found = {}
    for name, case in CASES.items():
        theirs = answer(port, case.octets)
        if theirs != ours(case):
            found[name] = (theirs, ours(case))
    assert found == told()
