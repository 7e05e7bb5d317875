"""Clients that a broker must bear beside others: ``python -m tests.bench.attackers KIND URI SECONDS``.

Each kind prints one line when everything is open, then goes on for so long. Frames are made once, so that the attack
takes little of the processors that the broker needs.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

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


def write(sockets: dict[socket.socket, bytes], seconds: float, *, again: bool) -> None:
    """Write to each socket its octets, and ``again`` from the beginning; read and forget what comes."""
    end, left = time.monotonic() + seconds, {each: memoryview(octets) for each, octets in sockets.items()}
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            each.setblocking(False)
            selector.register(each, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
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
}

if __name__ == "__main__":
    ATTACKS[sys.argv[1]](sys.argv[2], float(sys.argv[3]))
