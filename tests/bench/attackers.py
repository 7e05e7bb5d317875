"""Clients that a broker must bear beside others: ``python -m tests.bench.attackers KIND ADDRESS SECONDS``.

The address is an AMQP URI, or that of the management API for the kinds of :data:`BY_HTTP`. Each kind prints one line
when everything is open, then goes on for so long. Frames are made once, so that the attack takes little of the
processors that the broker needs.
"""

from __future__ import annotations

import base64
import contextlib
import selectors
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import urlsplit

from pamqp import commands, frame, header
from pamqp.body import ContentBody

from perftest.amqp.methods import encode
from tests.bench.client import Client

_SIZE: Final = 1000
_PUBLISHERS: Final = 30
_QUEUES: Final = 5
_BURST: Final = 500
"""Messages that a publisher writes at once."""
_CONNECTIONS: Final = 24
_CHANNELS: Final = 1700
"""Channels of each of these connections."""
_LARGE: Final = 20_000
_IDLE: Final = 2000
"""Connections that stop half way."""
_ASKING: Final = 4
"""Connections that have names filtered."""
_BACKTRACKING: Final = "/api/queues?page=1&use_regex=true&name=(a%2B)%2B%24"
_HOSTILE: Final = "a" * 40 + "!"
"""A name on which a backtracking matcher tries that pattern in some 2**40 ways."""
_READ: Final = 1 << 18


def publish(queue: str, channel: int = 1, size: int = _SIZE) -> bytes:
    """A persistent message to a queue."""
    method = encode(channel, commands.Basic.Publish(exchange="", routing_key=queue))
    properties = commands.Basic.Properties(delivery_mode=2)
    head = frame.marshal(header.ContentHeader(body_size=size, properties=properties), channel)
    return bytes(method + head + frame.marshal(ContentBody(b"x" * size), channel))


def tell_begun() -> None:
    """Tell whoever started this process that the attack begins."""
    sys.stdout.write("under way\n")
    sys.stdout.flush()


def flood(uri: str, seconds: float, *, confirms: bool, mixed: bool) -> None:
    """Publishers that write as fast as the broker reads, to one queue each or to five in turn."""
    names = [f"attack-{number}" for number in range(_QUEUES)]
    with Client(uri) as declaring:
        for name in names:
            declaring.declare(name)
    with ExitStack() as stack:
        sockets: dict[socket.socket, bytes] = {}
        for number in range(_PUBLISHERS):
            client = stack.enter_context(Client(uri))
            if confirms:
                client.begin_confirms()
            turn = [names[(number + step * mixed) % _QUEUES] for step in range(_QUEUES)]
            sockets[client.socket] = b"".join(publish(turn[message % _QUEUES]) for message in range(_BURST))
        tell_begun()
        write(sockets, seconds, again=True)
    with Client(uri) as declaring:
        for name in names:
            declaring.delete(name)


def many_channels(uri: str, seconds: float) -> None:
    """Connections with as many channels as they may have, each of which publishes one message."""
    with Client(uri) as declaring:
        declaring.declare("attack-0")
    with ExitStack() as stack:
        sockets: dict[socket.socket, bytes] = {}
        for _ in range(_CONNECTIONS):
            client = stack.enter_context(Client(uri))
            opening = (encode(number, commands.Channel.Open()) for number in range(2, _CHANNELS + 2))
            publishing = (publish("attack-0", number) for number in range(2, _CHANNELS + 2))
            sockets[client.socket] = b"".join([*opening, *publishing])
        tell_begun()
        write(sockets, seconds, again=False)
    with Client(uri) as declaring:
        declaring.delete("attack-0")


def never_acknowledged(uri: str, seconds: float) -> None:
    """Publishers of large messages, and a consumer that takes all of them and acknowledges none."""
    with ExitStack() as stack:
        consumer = stack.enter_context(Client(uri))
        consumer.declare("attack-0")
        consumer.socket.sendall(encode(1, commands.Basic.Consume(queue="attack-0", nowait=True)))
        sockets: dict[socket.socket, bytes] = {consumer.socket: b""}
        for _ in range(4):
            sockets[stack.enter_context(Client(uri)).socket] = publish("attack-0", size=_LARGE) * 50
        tell_begun()
        write(sockets, seconds, again=True)
    with Client(uri) as declaring:
        declaring.delete("attack-0")


def stopped_logins(uri: str, seconds: float) -> None:
    """Connections that send the first octets of a log-in and stop."""
    at = urlsplit(uri)
    _stop(at.hostname, at.port, b"AMQP\x00\x00\x09\x01", seconds)


def stopped_requests(api: str, seconds: float) -> None:
    """Connections that send the first line of a request and stop."""
    at = urlsplit(api)
    _stop(at.hostname, at.port, b"GET /api/overview HTTP/1.1\r\n", seconds)


def _stop(host: str | None, port: int | None, begins: bytes, seconds: float) -> None:
    """Open connections that stop, and open again what the broker closes."""
    with selectors.DefaultSelector() as selector:
        end = time.monotonic() + seconds
        tell_begun()
        while time.monotonic() < end:
            for _ in range(min(100, _IDLE - len(selector.get_map()))):
                opened = socket.create_connection((host, port))
                opened.sendall(begins)
                selector.register(opened, selectors.EVENT_READ)
            for key, _ in selector.select(0.1):
                if not _is_open(key.fileobj):
                    selector.unregister(key.fileobj)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]


def _is_open(each: Any) -> bool:
    with contextlib.suppress(OSError):
        if each.recv(_READ):
            return True
    each.close()
    return False


def backtracking(api: str, seconds: float) -> None:
    """Users who look for a queue by a pattern that takes a backtracking matcher years."""
    at, end = urlsplit(api), time.monotonic() + seconds
    head = f"Host: {at.hostname}\r\nAuthorization: Basic {base64.b64encode(b'guest:guest').decode()}\r\n"
    asks = f"GET {_BACKTRACKING} HTTP/1.1\r\n{head}\r\n".encode()
    made = f"PUT /api/queues/%2f/{_HOSTILE} HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
    with ExitStack() as stack:
        sockets = {}
        for number in range(_ASKING):
            opened = stack.enter_context(socket.create_connection((at.hostname, at.port)))
            if not number:
                opened.sendall(f"{made}Content-Length: 2\r\n\r\n{{}}".encode())
                opened.recv(_READ)
            sockets[opened] = asks
        tell_begun()
        write(sockets, end - time.monotonic(), again=True)


def write(sockets: dict[socket.socket, bytes], seconds: float, *, again: bool) -> None:
    """Write to each socket its octets, and ``again`` from the beginning; read and forget what comes."""
    end, left = time.monotonic() + seconds, {each: memoryview(octets) for each, octets in sockets.items()}
    with selectors.DefaultSelector() as selector:
        for each, octets in sockets.items():
            each.setblocking(False)
            selector.register(each, selectors.EVENT_READ | (selectors.EVENT_WRITE if octets else 0), each)
        while time.monotonic() < end and selector.get_map():
            for key, events in selector.select(0.1):
                try:
                    _serve(key.data, events, left)
                except BlockingIOError:
                    continue
                except OSError:  # turned away
                    selector.unregister(key.data)
                    continue
                if not left[key.data] and again:
                    left[key.data] = memoryview(sockets[key.data])
                elif not left[key.data]:
                    selector.modify(key.data, selectors.EVENT_READ, key.data)


def _serve(each: socket.socket, events: int, left: dict[socket.socket, memoryview]) -> None:
    if events & selectors.EVENT_READ and not each.recv(_READ):
        raise ConnectionResetError
    if events & selectors.EVENT_WRITE:
        left[each] = left[each][each.send(left[each]) :]


ATTACKS: Final[dict[str, Callable[[str, float], None]]] = {
    "flood of five queues": lambda uri, seconds: flood(uri, seconds, confirms=False, mixed=True),
    "flood of five queues with confirms": lambda uri, seconds: flood(uri, seconds, confirms=True, mixed=True),
    "flood of one queue each": lambda uri, seconds: flood(uri, seconds, confirms=False, mixed=False),
    "many channels": many_channels,
    "messages never acknowledged": never_acknowledged,
    "log-ins that stop": stopped_logins,
    "requests that stop": stopped_requests,
    "patterns that backtrack": backtracking,
}
BY_HTTP: Final = frozenset({"requests that stop", "patterns that backtrack"})

if __name__ == "__main__":
    ATTACKS[sys.argv[1]](sys.argv[2], float(sys.argv[3]))
