"""A client for tests: it speaks through pamqp alone, so that it shares no code with what it tests."""

from __future__ import annotations

from collections.abc import Iterable

from pamqp import base, body, commands, frame, header
from pamqp.common import FieldValue
from pamqp.heartbeat import Heartbeat

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import Event

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
Heard = base.Frame | header.ContentHeader | body.ContentBody | header.ProtocolHeader | Heartbeat


def method(channel: int, *methods: base.Frame) -> bytes:
    """Methods as octets."""
    return b"".join(frame.marshal(each, channel) for each in methods)


def raw_frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    """Any frame, right or wrong."""
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + bytes([end])


def content(channel: int, payload: bytes, properties: commands.Basic.Properties | None = None, step: int = 0) -> bytes:
    """Content header and body frames; ``step`` octets of body a frame, 0 for all in one."""
    head = frame.marshal(header.ContentHeader(0, len(payload), properties or commands.Basic.Properties()), channel)
    step = step or max(len(payload), 1)
    cuts = range(0, len(payload), step)
    return head + b"".join(frame.marshal(body.ContentBody(payload[at : at + step]), channel) for at in cuts)


def publish(
    channel: int,
    key: str,
    payload: bytes,
    properties: commands.Basic.Properties | None = None,
    step: int = 0,
    mandatory: bool = False,
) -> bytes:
    """A whole basic.publish to the default exchange."""
    sent = commands.Basic.Publish(0, "", key, mandatory, False)
    return method(channel, sent) + content(channel, payload, properties, step)


def parse(octets: bytes) -> list[tuple[int, Heard]]:
    """Channel and frame of everything in ``octets``, read by pamqp."""
    heard: list[tuple[int, Heard]] = []
    while octets:
        size, channel, value = frame.unmarshal(octets)
        heard.append((channel, value))
        octets = octets[size:]
    return heard


class ScriptedClient:
    """Drives one :class:`ServerConnection` and collects what it says and what it reports."""

    def __init__(self, config: ConnectionConfig | None = None, now_s: float = 0.0) -> None:
        self.config = config or ConnectionConfig()
        self.server = ServerConnection(self.config, now_s)
        self.now_s = now_s
        self.events: list[Event] = []

    def raw(self, octets: bytes) -> list[Event]:
        """Send octets; returns the events they caused."""
        events = more = self.server.receive(octets, self.now_s)
        while more:
            more = self.server.go_on()
            events += more
        self.events += events
        return events

    def send(self, channel: int, *methods: base.Frame) -> list[Event]:
        """Send methods; returns the events they caused."""
        return self.raw(method(channel, *methods))

    def tick(self, now_s: float) -> list[Event]:
        """Let time pass until ``now_s``."""
        self.now_s = now_s
        events = self.server.tick(now_s)
        self.events += events
        return events

    def output(self) -> bytes:
        """The octets the server has written since the last look."""
        return b"".join(self.server.take_output())

    def heard(self) -> list[tuple[int, Heard]]:
        """The frames the server has written since the last look."""
        return parse(self.output())

    def start_ok(self, capabilities: Iterable[str] = (), user: str = "guest", password: str = "guest") -> bytes:
        """connection.start-ok with PLAIN."""
        properties: dict[str, FieldValue] = {"product": "test", "capabilities": dict.fromkeys(capabilities, True)}
        return method(0, commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}", "en_US"))

    def open(self, channels: int = 1, capabilities: Iterable[str] = (), heartbeat: int = 0, frame_max: int = 0) -> None:
        """Come to the state every test of the running connection begins with."""
        self.raw(PROTOCOL_HEADER)
        self.raw(self.start_ok(capabilities))
        frame_max = frame_max or self.config.frame_max
        self.send(0, commands.Connection.TuneOk(self.config.channel_max, frame_max, heartbeat))
        self.send(0, commands.Connection.Open("/"))
        for channel in range(1, channels + 1):
            self.send(channel, commands.Channel.Open())
        assert self.server.is_open
        self.output()
        self.events.clear()

    def consume(self, channel: int = 1, tag: str = "c", queue: str = "q", no_ack: bool = False) -> None:
        """Subscribe, and have the broker agree."""
        self.send(channel, commands.Basic.Consume(0, queue, tag, False, no_ack, False, False, {}))
        self.server.consume_ok(channel, tag)
        self.output()
