"""A small blocking AMQP client for what ``perftest run`` does not do: an exact number of messages, many idle queues."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from types import TracebackType

from pamqp import commands, frame, header
from pamqp.base import Frame as Method
from pamqp.body import ContentBody

from perftest.amqp.connection import ClientConnection
from perftest.amqp.events import ChannelEnded, Confirms, ConnectionEnded, Delivery, DeliveryRun, Event, Opened, Reply
from perftest.amqp.methods import encode
from perftest.amqp.uri import parse_uri
from perftest.engine.publishing.inflight import ConfirmWindow
from tests.bench.figures import BenchError

IN_FLIGHT = 1000
PREFETCH = 1000
SIZE = 1000
_TIMEOUT_S = 120.0
_RECEIVE_BYTES = 1 << 20


class Client:
    """One connection with channel 1 open. A context: it closes at the end."""

    def __init__(self, uri: str, receive_octets: int = 0) -> None:
        """``receive_octets``: the size of the socket's buffer, if not the usual one."""
        parsed = parse_uri(uri)
        self._core = ClientConnection(parsed, name="bench")
        self.server: dict[str, object] = {}
        try:
            self.socket = socket.create_connection((parsed.host, parsed.port), timeout=_TIMEOUT_S)
            try:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if receive_octets:
                    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_octets)
                while not self.server:
                    for event in self.read():
                        if isinstance(event, Opened):
                            self.server = event.server_properties
                self.call(commands.Channel.Open())
            except BaseException:
                self.socket.close()
                raise
        except OSError as error:
            raise BenchError(f"no AMQP connection to {parsed.host}:{parsed.port}: {error}") from error

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with contextlib.suppress(OSError, BenchError), contextlib.closing(self.socket):
            if kind is None:
                self._core.close()
                while not any(isinstance(event, ConnectionEnded) for event in self._receive()):
                    pass

    def call(self, method: Method) -> None:
        """A method and its answer."""
        self._send(encode(1, method))
        while not any(isinstance(event, Reply) for event in self.read()):
            pass

    def declare(self, queue: str) -> None:
        """A quorum queue."""
        self.call(commands.Queue.Declare(queue=queue, durable=True, arguments={"x-queue-type": "quorum"}))

    def delete(self, queue: str) -> None:
        """Delete a queue with what is in it."""
        self.call(commands.Queue.Delete(queue=queue))

    def read(self) -> list[Event]:
        """What comes next. Raises :class:`BenchError` when the broker closed or is silent for two minutes."""
        try:
            events = self._receive()
        except OSError as error:
            raise BenchError(f"the connection was lost: {error}") from error
        for event in events:
            if isinstance(event, ConnectionEnded | ChannelEnded):
                raise BenchError(f"the broker closed: {event.code} {event.text}")
        return events

    def publish(self, queue: str, count: int) -> list[tuple[int, float]]:
        """Publish so many persistent messages of :data:`SIZE` octets, :data:`IN_FLIGHT` unconfirmed at most.

        The progress: messages confirmed so far, and when (monotonic clock).
        """
        self.begin_confirms()
        window, octets, sent = ConfirmWindow(IN_FLIGHT), _publishes(queue, IN_FLIGHT), 0
        each = len(octets) // IN_FLIGHT
        progress = [(0, time.monotonic())]
        while window.unconfirmed or sent < count:
            if room := min(window.room, count - sent):
                window.sent(sent, room, intended_ns=0, sent_ns=0)
                sent += room
                self._send(octets[: room * each])
            for event in self.read():
                if isinstance(event, Confirms):
                    _confirm(window, event)
            progress.append((sent - window.unconfirmed, time.monotonic()))
        return progress

    def begin_confirms(self) -> None:
        """Have publishes confirmed from now on."""
        self.call(commands.Confirm.Select())

    def publish_one(self, queue: str) -> None:
        """Publish a message, and wait for nothing."""
        self._send(_publishes(queue, 1))

    def start_consuming(self, queue: str) -> None:
        """Ask for all messages of a queue, without acknowledgement, and read none of them."""
        self._send(encode(1, commands.Basic.Consume(queue=queue, no_ack=True)))

    def hang_up(self) -> None:
        """End without a word."""
        self.socket.close()

    def drain(self, queue: str, count: int) -> float:
        """Consume so many messages; the seconds from the first request to the last acknowledgement."""
        began, got = time.monotonic(), 0
        self.call(commands.Basic.Qos(prefetch_count=PREFETCH))
        # Deliveries may come in one piece with the answer: it is read with them.
        self._send(encode(1, commands.Basic.Consume(queue=queue)))
        while got < count:
            tag = 0
            for event in self.read():
                if isinstance(event, DeliveryRun):
                    tag, got = event.first_tag + len(event) - 1, got + len(event)
                elif isinstance(event, Delivery):
                    tag, got = event.tag, got + 1
            if tag:
                self._send(encode(1, commands.Basic.Ack(tag, multiple=True)))
        return time.monotonic() - began

    def _send(self, octets: bytes | memoryview) -> None:
        try:
            self.socket.sendall(octets)
        except OSError as error:
            raise BenchError(f"the connection was lost: {error}") from error

    def _receive(self) -> list[Event]:
        self.socket.sendall(self._core.take_output())
        octets = self.socket.recv(_RECEIVE_BYTES)
        events = self._core.receive(octets)
        self.socket.sendall(self._core.take_output())
        if not octets and not events:
            raise ConnectionResetError("the broker hung up")
        return events


def _publishes(queue: str, count: int) -> memoryview:
    """So many equal publishes, ready to be sent."""
    head = encode(1, commands.Basic.Publish(exchange="", routing_key=queue))
    head += frame.marshal(
        header.ContentHeader(body_size=SIZE, properties=commands.Basic.Properties(delivery_mode=2)), 1
    )
    return memoryview((head + frame.marshal(ContentBody(b"." * SIZE), 1)) * count)


def _confirm(window: ConfirmWindow, event: Confirms) -> None:
    if event.nack:
        raise BenchError("the broker refused a message (basic.nack)")
    if event.multiple:
        window.confirm_to(int(event.tags[-1]))
    else:
        window.confirm_each(event.tags)


@contextlib.contextmanager
def queues(client: Client, names: list[str]) -> Iterator[None]:
    """Quorum queues that are deleted at the end."""
    for name in names:
        client.declare(name)
    yield
    for name in names:
        client.delete(name)
