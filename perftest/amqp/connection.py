"""The client's side of an AMQP 0-9-1 connection, without I/O: octets in, events out.

Theory of operation. The shell reads into :meth:`ClientConnection.free_space`, reports the number of octets with
:meth:`ClientConnection.received`, handles the events, and writes :meth:`ClientConnection.take_output`. The core answers
by itself if no decision is needed: in the handshake, and to close. Requests are marshalled by
:func:`~perftest.amqp.methods.encode`, which has no state. So the shell can freely mix single methods with the octets of
many publishes (:mod:`perftest.amqp.encode`).

A frame is looked at where it lies in the receive buffer. Deliveries and confirms first meet the fast path
(:mod:`perftest.amqp.fastpath`), which takes a whole run of them or nothing. The rest goes frame by frame through pamqp,
and :mod:`perftest.amqp.assembly` puts the contents of each channel together.

Invariants:

- The buffer is twice the greatest frame, so a complete frame always fits, and no announced length allocates anything.
  The buffer is small until a read fills it: of thousands of connections few are ever busy.
- Views in events live until the next ``free_space()`` or ``receive()``. Octets before ``_start`` are never read again.
- Incomplete input gives no event and no exception. Input against the protocol always gives
  :class:`BrokerProtocolError`.
- After connection.close from either side, only close and close-ok have an effect.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from pamqp import body, commands, exceptions, frame, header, heartbeat
from pamqp.base import Frame as Method
from pamqp.common import FieldTable

import perftest
from perftest.amqp import fastpath
from perftest.amqp.assembly import PartialContents
from perftest.amqp.errors import BrokerProtocolError, MechanismError
from perftest.amqp.events import (
    Blocked,
    ChannelEnded,
    ConnectionEnded,
    ConsumerCancelled,
    Event,
    GetEmpty,
    Opened,
    Reply,
    Unblocked,
)
from perftest.amqp.methods import encode, method_name
from perftest.amqp.options import FRAME_MAX, FRAME_MIN, ConnectionOptions
from perftest.amqp.uri import AmqpUri

CHANNEL_MAX: Final = 65535
"""The limit of channels for a broker that names none."""

FIRST_BUFFER_SIZE: Final = 16 * 1024
HEARTBEAT: Final = heartbeat.Heartbeat().marshal()
PROTOCOL_HEADER: Final = header.ProtocolHeader(0, 9, 1).marshal()
_FRAME_HEAD: Final = struct.Struct(">BHI")


class HandshakeStage(Enum):
    """The progress of the connection. The report of a refusal names the stage."""

    START = auto()
    TUNE = auto()
    OPEN = auto()
    RUNNING = auto()
    CLOSING = auto()
    CLOSED = auto()


class ClientConnection:
    """One connection. ``name`` appears in the broker's management tools."""

    def __init__(self, uri: AmqpUri, *, name: str, options: ConnectionOptions | None = None) -> None:
        self.stage = HandshakeStage.START
        self.server_properties: dict[str, object] = {}
        self.frame_max = FRAME_MAX
        self.channel_max = CHANNEL_MAX
        self.heartbeat_s = 0
        self._uri = uri
        self._options = options or ConnectionOptions()
        self._name = name
        self._output: list[bytes] = [PROTOCOL_HEADER]
        self._buffer = bytearray(FIRST_BUFFER_SIZE)
        self._full_size = 2 * max(self._options.frame_limit, FRAME_MAX)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._partial = PartialContents()
        self._contents = self._partial.by_channel
        self._closing_channels: set[int] = set()
        self._shapes: dict[bytes, fastpath.Shape] = {}
        self._handlers: dict[type, Callable[[int, Method], list[Event]]] = {
            commands.Connection.Start: self._on_start,
            commands.Connection.Secure: self._on_secure,
            commands.Connection.Tune: self._on_tune,
            commands.Connection.OpenOk: self._on_open_ok,
            commands.Connection.Close: self._on_close,
            commands.Connection.CloseOk: self._on_close_ok,
            commands.Connection.Blocked: self._on_blocked,
            commands.Connection.Unblocked: self._on_unblocked,
            commands.Channel.Close: self._on_channel_close,
            commands.Channel.CloseOk: self._on_channel_close_ok,
            commands.Basic.Cancel: self._on_cancel,
            commands.Basic.Deliver: self._on_content_method,
            commands.Basic.GetOk: self._on_content_method,
            commands.Basic.GetEmpty: self._on_get_empty,
            commands.Basic.Return: self._on_content_method,
        }

    # Calls of the shell

    def free_space(self) -> memoryview:
        """The memory for the next octets; never empty. The views in earlier events are invalid from now on."""
        rest = self._end - self._start
        if self._end == len(self._buffer) < self._full_size:
            self._buffer = bytearray(self._full_size)
            self._buffer[:rest] = self._view[self._start : self._end]
            self._view = memoryview(self._buffer)
            self._start, self._end = 0, rest
        elif self._start:
            self._view[:rest] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, rest
        return self._view[rest:]

    def received(self, count: int) -> list[Event]:
        """``count`` octets were written at the start of the free space. Raises :class:`BrokerProtocolError`."""
        self._end += count
        return self._parse()

    def receive(self, data: bytes) -> list[Event]:
        """Take octets that lie in other memory. Views in the events stay valid only if the octets fit into the free
        space."""
        events: list[Event] = []
        while data:
            space = self.free_space()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            events += self.received(count)
            data = data[count:]
        return events

    def take_output(self) -> bytes:
        """The octets to write now; empty most of the time."""
        if not self._output:
            return b""
        output, self._output = b"".join(self._output), []
        return output

    def close(self, code: int = 200, text: str = "bye") -> None:
        """Begin to close; :class:`ConnectionEnded` follows when the broker has agreed."""
        if self.stage not in (HandshakeStage.CLOSING, HandshakeStage.CLOSED):
            self._send(0, commands.Connection.Close(code, text, 0, 0))
            self.stage = HandshakeStage.CLOSING

    def channel_closing(self, channel: int) -> None:
        """This client sent channel.close. Everything else on the channel is dropped until close-ok comes."""
        self._closing_channels.add(channel)
        self._forget_channel(channel)

    def _forget_channel(self, channel: int) -> None:
        self._contents.pop(channel, None)
        self._shapes.pop(channel.to_bytes(2, "big"), None)

    # Parsing

    def _parse(self) -> list[Event]:
        events: list[Event] = []
        while self._end - self._start >= 8:
            taken = self._parse_run(events)
            if not taken:
                taken = self._parse_frame(events)
            if not taken:
                break
            self._start += taken
        return events

    def _parse_run(self, events: list[Event]) -> int:
        """Take a run on the fast path. Returns the octets taken; 0 if the general path must try."""
        ids = self._buffer[self._start + 7 : min(self._start + 11, self._end)]
        if self.stage is not HandshakeStage.RUNNING or self._closing_channels or self._contents:
            return 0
        if ids == fastpath.DELIVER_IDS:
            return self._parse_deliveries(events)
        if ids == fastpath.ACK_IDS or ids == fastpath.NACK_IDS:
            taken, confirm = fastpath.cut_confirms(self._buffer, self._start, self._end)
            if confirm is not None:
                events.append(confirm)
            return taken
        return 0

    def _parse_deliveries(self, events: list[Event]) -> int:
        channel = bytes(self._buffer[self._start + 1 : self._start + 3])
        shape = self._shapes.get(channel)
        if shape is None or not self._buffer.startswith(shape.head, self._start):
            shape = fastpath.learn(self._buffer, self._start, self._end)
        if shape is None:
            return 0
        taken, cut = fastpath.cut_deliveries(shape, self._buffer, self._start, self._end)
        if not taken and not fastpath.awaits_rest(shape, self._buffer, self._start, self._end):
            shape = fastpath.learn(self._buffer, self._start, self._end)
            if shape is not None:
                taken, cut = fastpath.cut_deliveries(shape, self._buffer, self._start, self._end)
        if taken and shape is not None:
            self._shapes[channel] = shape
            events += cut
        return taken

    def _parse_frame(self, events: list[Event]) -> int:
        kind: int
        size: int
        kind, channel, size = _FRAME_HEAD.unpack_from(self._buffer, self._start)
        if self.stage is HandshakeStage.START and kind != 1:
            raise BrokerProtocolError(_not_amqp(bytes(self._buffer[self._start : self._start + 8])))
        if size > self.frame_max - 8:
            raise BrokerProtocolError(f"frame of {size} octets of payload; agreed was {self.frame_max - 8}")
        stop = self._start + 8 + size
        if stop > self._end or self._awaits_delivery(kind):
            return 0
        if self._buffer[stop - 1] != fastpath.FRAME_END:
            raise BrokerProtocolError("frame without its end octet 0xCE")
        try:
            _, _, value = frame.unmarshal(bytes(self._view[self._start : stop]))
        except (exceptions.UnmarshalingException, ValueError, struct.error, IndexError, KeyError) as error:
            raise BrokerProtocolError(f"a frame that cannot be decoded: {error}") from error
        events += self._on_frame(channel, value)
        return 8 + size

    def _awaits_delivery(self, kind: int) -> bool:
        """Whether the rest of a delivery of the known shape is still to come. Waiting for it is cheaper than parsing
        frame by frame."""
        if kind != 1 or self._contents or self._closing_channels or self.stage is not HandshakeStage.RUNNING:
            return False
        shape = self._shapes.get(bytes(self._buffer[self._start + 1 : self._start + 3]))
        return shape is not None and fastpath.awaits_rest(shape, self._buffer, self._start, self._end)

    def _on_frame(self, channel: int, value: frame.FrameTypes) -> list[Event]:
        if isinstance(value, heartbeat.Heartbeat):
            return []
        if channel in self._closing_channels and not isinstance(
            value, (commands.Channel.CloseOk, commands.Channel.Close)
        ):
            return []
        if isinstance(value, header.ContentHeader):
            return self._partial.header(channel, value)
        if isinstance(value, body.ContentBody):
            return self._partial.body(channel, value.value)
        if not isinstance(value, Method):
            raise BrokerProtocolError(f"a {type(value).__name__} in the middle of a connection")
        return self._on_method(channel, value)

    def _on_method(self, channel: int, method: Method) -> list[Event]:
        if channel in self._contents and channel:
            raise BrokerProtocolError(f"{method.name} where the content of a message was due")
        if self.stage in (HandshakeStage.CLOSING, HandshakeStage.CLOSED) and not method.name.startswith(
            "Connection.Close"
        ):
            return []
        handler = self._handlers.get(type(method))
        if handler is not None:
            return handler(channel, method)
        if self.stage is not HandshakeStage.RUNNING:
            raise BrokerProtocolError(f"{method.name} during the handshake")
        if isinstance(method, (commands.Basic.Ack, commands.Basic.Nack)):
            raise BrokerProtocolError(f"malformed {method.name}")
        return [Reply(channel, method)]

    # Handshake and connection

    def _send(self, channel: int, method: Method) -> None:
        self._output.append(encode(channel, method))

    def _expect(self, stage: HandshakeStage, method: Method) -> None:
        if self.stage is not stage:
            raise BrokerProtocolError(f"{method.name} at stage {self.stage.name.lower()} of the connection")

    def _on_start(self, _channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Connection.Start)
        self._expect(HandshakeStage.START, method)
        mechanism, response = self._login()
        if mechanism not in method.mechanisms.split():
            raise MechanismError(f"the broker offers no {mechanism} login, only {method.mechanisms!r}")
        self.server_properties = dict(method.server_properties or {})
        self._send(0, commands.Connection.StartOk(_client_properties(self._name), mechanism, response, "en_US"))
        self.stage = HandshakeStage.TUNE
        return []

    def _login(self) -> tuple[str, str]:
        """The SASL mechanism and the response to it."""
        if self._options.external:
            return "EXTERNAL", ""
        return "PLAIN", f"\0{self._uri.user}\0{self._uri.password}"

    def _on_secure(self, _channel: int, method: Method) -> list[Event]:
        raise BrokerProtocolError("connection.secure: the broker wants more than the login gave")

    def _on_tune(self, _channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Connection.Tune)
        self._expect(HandshakeStage.TUNE, method)
        limit = self._options.frame_limit
        self.frame_max = max(min(method.frame_max or limit, limit), FRAME_MIN)
        self.heartbeat_s = _agreed_heartbeat_s(self._options.heartbeat_s, method.heartbeat or 0)
        self.channel_max = method.channel_max or CHANNEL_MAX
        tune_ok = commands.Connection.TuneOk(self.channel_max, self.frame_max, self.heartbeat_s)
        self._send(0, tune_ok)
        self._send(0, commands.Connection.Open(self._uri.vhost))
        self.stage = HandshakeStage.OPEN
        return []

    def _on_open_ok(self, _channel: int, method: Method) -> list[Event]:
        self._expect(HandshakeStage.OPEN, method)
        self.stage = HandshakeStage.RUNNING
        return [Opened(self.server_properties)]

    def _on_close(self, _channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Connection.Close)
        stage, self.stage = self.stage, HandshakeStage.CLOSED
        self._send(0, commands.Connection.CloseOk())
        cause = method_name(method.class_id or 0, method.method_id or 0)
        return [ConnectionEnded(method.reply_code or 0, method.reply_text, cause, stage.name.lower())]

    def _on_close_ok(self, _channel: int, method: Method) -> list[Event]:
        self._expect(HandshakeStage.CLOSING, method)
        self.stage = HandshakeStage.CLOSED
        return [ConnectionEnded(200, "closed by us", "", "running")]

    def _on_blocked(self, _channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Connection.Blocked)
        return [Blocked(method.reason)]

    def _on_unblocked(self, _channel: int, _method: Method) -> list[Event]:
        return [Unblocked()]

    # Channels and contents

    def _on_channel_close(self, channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Channel.Close)
        self._send(channel, commands.Channel.CloseOk())
        self._forget_channel(channel)
        cause = method_name(method.class_id or 0, method.method_id or 0)
        return [ChannelEnded(channel, method.reply_code or 0, method.reply_text, cause)]

    def _on_channel_close_ok(self, channel: int, method: Method) -> list[Event]:
        if channel not in self._closing_channels:
            raise BrokerProtocolError(f"channel.close-ok on channel {channel}, which nobody closes")
        self._closing_channels.discard(channel)
        return [Reply(channel, method)]

    def _on_cancel(self, channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Basic.Cancel)
        return [ConsumerCancelled(channel, method.consumer_tag or "")]

    def _on_content_method(self, channel: int, method: Method) -> list[Event]:
        assert isinstance(method, (commands.Basic.Deliver, commands.Basic.GetOk, commands.Basic.Return))
        self._expect(HandshakeStage.RUNNING, method)
        self._partial.begin(channel, method)
        return []

    def _on_get_empty(self, channel: int, method: Method) -> list[Event]:
        self._expect(HandshakeStage.RUNNING, method)
        return [GetEmpty(channel)]


def _client_properties(name: str) -> FieldTable:
    """The properties of this client. Without ``authentication_failure_close`` the broker would hang up in silence after
    a refused login."""
    capabilities = ("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked")
    return {
        "product": "perftest",
        "version": perftest.__version__,
        "platform": "CPython",
        "connection_name": name,
        "capabilities": dict.fromkeys((*capabilities, "authentication_failure_close"), True),
    }


def _agreed_heartbeat_s(wanted_s: int | None, offered_s: int) -> int:
    """The lower of two heartbeats, as the specification says, or the broker's if this client wants no particular
    one."""
    if wanted_s is None:
        return offered_s
    return min(wanted_s, offered_s) if offered_s else wanted_s


def _not_amqp(octets: bytes) -> str:
    """Why these first octets are not ``connection.start``, as far as they tell."""
    if octets.startswith(b"AMQP"):
        return "the broker does not speak AMQP 0-9-1: it answered with a protocol header"
    if octets.startswith(b"HTTP"):
        return "the port speaks HTTP, not AMQP"
    if octets[0] == 0x15 and octets[1] == 3:
        return "the port speaks TLS: the URI must start with amqps://"
    return f"the port does not speak AMQP: the first octets are {octets.hex(' ')}"
