"""The client's side of an AMQP 0-9-1 connection, without I/O: octets in, events out.

Theory of operation. The shell reads into :meth:`ClientConnection.free_space`, says how much came with
:meth:`ClientConnection.received`, handles the events, and writes :meth:`ClientConnection.take_output`. The core answers
by itself what needs no decision: the handshake, close-ok, heartbeats' existence. Requests are marshalled by
:func:`~perftest.amqp.methods.encode`, which has no state, so that bulk octets (:mod:`perftest.amqp.encode`) and cold
methods can be mixed freely by the shell.

A frame is looked at where it lies in the receive buffer. A basic.deliver or a confirm first meets the fast path, which
takes a whole run of them or nothing; what it leaves goes frame by frame through pamqp, and contents are put together
per channel by :mod:`perftest.amqp.assembly`.

Invariants:

- The buffer is twice the greatest frame, so a complete frame always fits, and no announced length allocates anything.
  It is small until a read fills it: of thousands of connections few are ever busy.
- Views in events live until the next ``free_space()`` or ``receive()``; octets before ``_start`` are never read again.
- Incomplete input gives no event and no exception; input against the protocol gives :class:`BrokerProtocolError`,
  always.
- After connection.close from either side nothing but close and close-ok has an effect.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from pamqp import body, commands, exceptions, frame, header, heartbeat
from pamqp.base import Frame as Method

from perftest.amqp import confirms, deliveries
from perftest.amqp.assembly import Assembly
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
from perftest.amqp.handshake import agreed_heartbeat_s, client_properties, stranger
from perftest.amqp.methods import encode, method_name
from perftest.amqp.options import FRAME_MAX, FRAME_MIN, Options
from perftest.amqp.uri import AmqpUri

CHANNEL_MAX: Final = 65535
"""What a broker that names no limit is told, and held to."""

FIRST_BUFFER_SIZE: Final = 16 * 1024
HEARTBEAT: Final = heartbeat.Heartbeat().marshal()
PROTOCOL_HEADER: Final = header.ProtocolHeader(0, 9, 1).marshal()
_FRAME_HEAD: Final = struct.Struct(">BHI")


class Stage(Enum):
    """Where the handshake stands; the name is what a refusal is reported with."""

    START = auto()
    TUNE = auto()
    OPEN = auto()
    RUNNING = auto()
    CLOSING = auto()
    CLOSED = auto()


class ClientConnection:
    """One connection. ``name`` appears in the broker's management tools."""

    def __init__(self, uri: AmqpUri, *, name: str, options: Options | None = None) -> None:
        self.stage = Stage.START
        self.server_properties: dict[str, object] = {}
        self.frame_max = FRAME_MAX
        self.channel_max = CHANNEL_MAX
        self.heartbeat_s = 0
        self._uri = uri
        self._options = options or Options()
        self._name = name
        self._output: list[bytes] = [PROTOCOL_HEADER]
        self._buffer = bytearray(FIRST_BUFFER_SIZE)
        self._full_size = 2 * max(self._options.frame_limit, FRAME_MAX)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._assembly = Assembly()
        self._contents = self._assembly.contents
        self._closing_channels: set[int] = set()
        self._shapes: dict[bytes, deliveries.Shape] = {}
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

    # What the shell calls

    def free_space(self) -> memoryview:
        """Where the next octets go; never empty. Ends the life of the views in earlier events."""
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
        """The same for octets that lie elsewhere. For views to stay valid, at most the free space at once."""
        events: list[Event] = []
        while data:
            space = self.free_space()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            events += self.received(count)
            data = data[count:]
        return events

    def take_output(self) -> bytes:
        """What must be written now; empty most of the time."""
        if not self._output:
            return b""
        output, self._output = b"".join(self._output), []
        return output

    def close(self, code: int = 200, text: str = "bye") -> None:
        """Begin to close; :class:`ConnectionEnded` follows when the broker has agreed."""
        if self.stage not in (Stage.CLOSING, Stage.CLOSED):
            self._send(0, commands.Connection.Close(code, text, 0, 0))
            self.stage = Stage.CLOSING

    def channel_closing(self, channel: int) -> None:
        """We sent channel.close: whatever else comes on the channel before close-ok is dropped."""
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
        """Octets the fast path has taken; 0 to try the general one."""
        ids = self._buffer[self._start + 7 : min(self._start + 11, self._end)]
        if self.stage is not Stage.RUNNING or self._closing_channels or self._contents:
            return 0
        if ids == deliveries.DELIVER_IDS:
            return self._parse_deliveries(events)
        if ids == confirms.ACK_IDS or ids == confirms.NACK_IDS:
            taken, confirm = confirms.cut_run(self._buffer, self._start, self._end)
            if confirm is not None:
                events.append(confirm)
            return taken
        return 0

    def _parse_deliveries(self, events: list[Event]) -> int:
        channel = bytes(self._buffer[self._start + 1 : self._start + 3])
        shape = self._shapes.get(channel)
        if shape is None or not self._buffer.startswith(shape.head, self._start):
            shape = deliveries.learn(self._buffer, self._start, self._end)
        if shape is None:
            return 0
        taken, cut = deliveries.cut_run(shape, self._buffer, self._start, self._end)
        if not taken and not deliveries.awaits_rest(shape, self._buffer, self._start, self._end):
            shape = deliveries.learn(self._buffer, self._start, self._end)
            if shape is not None:
                taken, cut = deliveries.cut_run(shape, self._buffer, self._start, self._end)
        if taken and shape is not None:
            self._shapes[channel] = shape
            events += cut
        return taken

    def _parse_frame(self, events: list[Event]) -> int:
        kind: int
        size: int
        kind, channel, size = _FRAME_HEAD.unpack_from(self._buffer, self._start)
        if self.stage is Stage.START and kind != 1:
            raise BrokerProtocolError(stranger(bytes(self._buffer[self._start : self._start + 8])))
        if size > self.frame_max - 8:
            raise BrokerProtocolError(f"frame of {size} octets of payload; agreed was {self.frame_max - 8}")
        stop = self._start + 8 + size
        if stop > self._end or self._awaits_delivery(kind):
            return 0
        if self._buffer[stop - 1] != deliveries.FRAME_END:
            raise BrokerProtocolError("frame without its end octet 0xCE")
        try:
            _, _, value = frame.unmarshal(bytes(self._view[self._start : stop]))
        except (exceptions.UnmarshalingException, ValueError, struct.error, IndexError, KeyError) as error:
            raise BrokerProtocolError(f"a frame that cannot be decoded: {error}") from error
        events += self._on_frame(channel, value)
        return 8 + size

    def _awaits_delivery(self, kind: int) -> bool:
        """The rest of a delivery of the known shape is still on its way: wait for it rather than parse frame by
        frame."""
        if kind != 1 or self._contents or self._closing_channels or self.stage is not Stage.RUNNING:
            return False
        shape = self._shapes.get(bytes(self._buffer[self._start + 1 : self._start + 3]))
        return shape is not None and deliveries.awaits_rest(shape, self._buffer, self._start, self._end)

    def _on_frame(self, channel: int, value: frame.FrameTypes) -> list[Event]:
        if isinstance(value, heartbeat.Heartbeat):
            return []
        if channel in self._closing_channels and not isinstance(
            value, (commands.Channel.CloseOk, commands.Channel.Close)
        ):
            return []
        if isinstance(value, header.ContentHeader):
            return self._assembly.header(channel, value)
        if isinstance(value, body.ContentBody):
            return self._assembly.body(channel, value.value)
        if not isinstance(value, Method):
            raise BrokerProtocolError(f"a {type(value).__name__} in the middle of a connection")
        return self._on_method(channel, value)

    def _on_method(self, channel: int, method: Method) -> list[Event]:
        if channel in self._contents and channel:
            raise BrokerProtocolError(f"{method.name} where the content of a message was due")
        if self.stage in (Stage.CLOSING, Stage.CLOSED) and not method.name.startswith("Connection.Close"):
            return []
        handler = self._handlers.get(type(method))
        if handler is not None:
            return handler(channel, method)
        if self.stage is not Stage.RUNNING:
            raise BrokerProtocolError(f"{method.name} during the handshake")
        if isinstance(method, (commands.Basic.Ack, commands.Basic.Nack)):
            raise BrokerProtocolError(f"malformed {method.name}")
        return [Reply(channel, method)]

    # Handshake and connection

    def _send(self, channel: int, method: Method) -> None:
        self._output.append(encode(channel, method))

    def _expect(self, stage: Stage, method: Method) -> None:
        if self.stage is not stage:
            raise BrokerProtocolError(f"{method.name} at stage {self.stage.name.lower()} of the connection")

    def _on_start(self, _channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Connection.Start)
        self._expect(Stage.START, method)
        mechanism, response = self._login()
        if mechanism not in method.mechanisms.split():
            raise MechanismError(f"the broker offers no {mechanism} login, only {method.mechanisms!r}")
        self.server_properties = dict(method.server_properties or {})
        self._send(0, commands.Connection.StartOk(client_properties(self._name), mechanism, response, "en_US"))
        self.stage = Stage.TUNE
        return []

    def _login(self) -> tuple[str, str]:
        """The SASL mechanism and what it is answered with."""
        if self._options.external:
            return "EXTERNAL", ""
        return "PLAIN", f"\0{self._uri.user}\0{self._uri.password}"

    def _on_secure(self, _channel: int, method: Method) -> list[Event]:
        raise BrokerProtocolError("connection.secure: the broker wants more than the login gave")

    def _on_tune(self, _channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Connection.Tune)
        self._expect(Stage.TUNE, method)
        limit = self._options.frame_limit
        self.frame_max = max(min(method.frame_max or limit, limit), FRAME_MIN)
        self.heartbeat_s = agreed_heartbeat_s(self._options.heartbeat_s, method.heartbeat or 0)
        self.channel_max = method.channel_max or CHANNEL_MAX
        tune_ok = commands.Connection.TuneOk(self.channel_max, self.frame_max, self.heartbeat_s)
        self._send(0, tune_ok)
        self._send(0, commands.Connection.Open(self._uri.vhost))
        self.stage = Stage.OPEN
        return []

    def _on_open_ok(self, _channel: int, method: Method) -> list[Event]:
        self._expect(Stage.OPEN, method)
        self.stage = Stage.RUNNING
        return [Opened(self.server_properties)]

    def _on_close(self, _channel: int, method: Method) -> list[Event]:
        assert isinstance(method, commands.Connection.Close)
        stage, self.stage = self.stage, Stage.CLOSED
        self._send(0, commands.Connection.CloseOk())
        cause = method_name(method.class_id or 0, method.method_id or 0)
        return [ConnectionEnded(method.reply_code or 0, method.reply_text, cause, stage.name.lower())]

    def _on_close_ok(self, _channel: int, method: Method) -> list[Event]:
        self._expect(Stage.CLOSING, method)
        self.stage = Stage.CLOSED
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
        self._expect(Stage.RUNNING, method)
        self._assembly.begin(channel, method)
        return []

    def _on_get_empty(self, channel: int, method: Method) -> list[Event]:
        self._expect(Stage.RUNNING, method)
        return [GetEmpty(channel)]
