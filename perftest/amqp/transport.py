"""The shell around :class:`~perftest.amqp.connection.ClientConnection`: a socket, futures for answers, heartbeats.

There is one object per connection. Everything runs in the thread of the event loop, and nothing is queued between the
socket and the listener of a channel: octets come in, the core cuts them into events, and the listener handles each
event at once. The clock is read once per read, before parsing, so all messages of one read have the same arrival time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from typing import Any, Final, TypeVar, cast

from pamqp import commands
from pamqp.base import Frame as Method

from perftest.amqp.connection import HEARTBEAT, ClientConnection, HandshakeStage
from perftest.amqp.errors import (
    REPLY_ACCESS_REFUSED,
    REPLY_CONNECTION_FORCED,
    REPLY_FRAME_ERROR,
    REPLY_RESOURCE_ERROR,
    AmqpError,
    BrokerProtocolError,
    ChannelClosedError,
    ConnectionClosedError,
    ConnectionLostError,
    LoginRefusedError,
    NoChannelLeftError,
    TlsError,
    UnreachableError,
    VhostRefusedError,
)
from perftest.amqp.events import (
    Blocked,
    ChannelEnded,
    Confirms,
    ConnectionEnded,
    ConsumerCancelled,
    Delivery,
    DeliveryRun,
    Event,
    GetEmpty,
    Opened,
    Reply,
    Returned,
    Unblocked,
)
from perftest.amqp.listener import ConnectionListener, Listener
from perftest.amqp.methods import encode
from perftest.amqp.options import ConnectionOptions, tls_context
from perftest.amqp.uri import AmqpUri
from perftest.metrics.clock import Clock

WRITE_HIGH_WATER: Final = 1 << 20
"""Publishers pause while more octets than this wait for the socket: a second of a slow network."""

ANSWER_TIMEOUT_S: Final = 30.0
_M = TypeVar("_M", bound=Method)


class Connection(asyncio.BufferedProtocol):
    """An open connection. As soon as the connection ends, ``lost`` is done, with the reason as its result."""

    def __init__(self, uri: AmqpUri, *, name: str, clock: Clock, options: ConnectionOptions) -> None:
        self.uri = uri
        self.writable = True
        self._core = ClientConnection(uri, name=name, options=options)
        self._options = options
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[AmqpError] = self._loop.create_future()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._listeners: dict[int, Listener] = {}
        self._touched: dict[int, Listener] = {}
        self._watcher: ConnectionListener | None = None
        self._calls = Calls()
        self._holders: set[object] = set()
        self._held = False
        self._called = 0
        self._heartbeat: asyncio.TimerHandle | None = None
        self._silent_beats = 0
        self._wrote = False
        self._channels = ChannelNumbers()

    # Opening and closing

    @classmethod
    async def open(
        cls,
        uri: AmqpUri,
        *,
        name: str,
        clock: Clock,
        timeout_s: float = 10.0,
        watcher: ConnectionListener | None = None,
        options: ConnectionOptions | None = None,
    ) -> Connection:
        """Connect and log in.

        Raises :class:`UnreachableError`, :class:`TlsError`, :class:`LoginRefusedError`, :class:`VhostRefusedError`, or
        another :class:`AmqpError` when the broker says something else.
        """
        options = options or ConnectionOptions()
        connection = cls(uri, name=name, clock=clock, options=options)
        connection._watcher = watcher
        try:
            async with asyncio.timeout(timeout_s):
                await connection._open_socket()
                await connection._opened
        except TimeoutError as error:
            connection.abort()
            raise UnreachableError(f"no answer from {uri.host}:{uri.port} within {timeout_s:g} s") from error
        except ssl.SSLError as error:
            raise _tls_error(error, uri) from error
        except OSError as error:
            # asyncio words a refused connection by itself; the text of the system says more.
            known = os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else error.strerror
            reason = known or str(error)
            raise UnreachableError(f"cannot connect to {uri.host}:{uri.port}: {reason}") from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        return connection

    async def _open_socket(self) -> None:
        uri, options = self.uri, self._options
        tls: dict[str, Any] = {}
        if uri.tls:
            tls = {"ssl": options.tls or tls_context(), "server_hostname": options.server_name or uri.host}
        transport, _ = await self._loop.create_connection(lambda: self, uri.host, uri.port, **tls)
        connected = transport.get_extra_info("socket")
        if options.send_buffer:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
        if options.receive_buffer:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
        if not options.no_delay:  # asyncio and uvloop set it by themselves
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    async def close(self, timeout_s: float = 5.0) -> None:
        """Close the connection. Wait at most ``timeout_s`` for the broker's answer and the end of the socket, then drop
        the socket."""
        if self.lost.done() or self._transport is None:
            return
        self._core.close()
        self._flush()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self.lost)
                await asyncio.shield(self._gone)  # TLS says goodbye, too
        except TimeoutError:
            self._transport.abort()
            self._finish(ConnectionLostError(f"no connection.close-ok within {timeout_s:g} s"))

    def abort(self) -> None:
        """Drop the socket at once, without connection.close."""
        if self._transport is not None:
            self._transport.abort()
        self._finish(ConnectionLostError("given up by this client"))

    def fail(self, error: AmqpError) -> None:
        """Give the connection up because of ``error``, which becomes the reason of its loss."""
        if isinstance(error, BrokerProtocolError):
            self._core.close(REPLY_FRAME_ERROR, str(error)[:200])
        self._finish(error)

    # Using

    @property
    def server_properties(self) -> dict[str, object]:
        """The broker's server properties."""
        return self._core.server_properties

    @property
    def frame_max(self) -> int:
        """The agreed greatest frame, its 8 octets of overhead included."""
        return self._core.frame_max

    def socket_option(self, level: int, option: int) -> int:
        """``getsockopt`` of the connection's socket: the value that the system has really set."""
        assert self._transport is not None
        return int(self._transport.get_extra_info("socket").getsockopt(level, option))

    async def open_channel(self, listener: Listener | None = None) -> int:
        """Open a channel; ``listener`` handles its incoming methods. Raises :class:`NoChannelLeftError` when the broker
        allows no more on one connection."""
        channel = self._channels.take(self._core.channel_max)
        if listener is not None:
            self._listeners[channel] = listener
        await self.call(channel, commands.Channel.Open(), commands.Channel.OpenOk)
        return channel

    def _forget_channel(self, channel: int) -> None:
        """Both sides have closed the channel. Its number may be used again."""
        self._listeners.pop(channel, None)
        self._touched.pop(channel, None)
        self._channels.give_back(channel)

    async def close_channel(self, channel: int) -> None:
        """Close a channel. Everything that is still on its way to this client is dropped."""
        self._core.channel_closing(channel)
        self._calls.fail(channel, ConnectionLostError("the channel was closed before the answer came"))
        await self.call(channel, commands.Channel.Close(200, "bye", 0, 0), commands.Channel.CloseOk)
        self._forget_channel(channel)

    async def call(self, channel: int, method: Method, answer: type[_M], *, timeout_s: float = ANSWER_TIMEOUT_S) -> _M:
        """Send a synchronous method and return its answer.

        Raises :class:`ChannelClosedError`, :class:`ConnectionClosedError`, :class:`ConnectionLostError`.
        """
        if self.lost.done():
            raise self.lost.result()
        answered = self._calls.begin(channel)
        self.write(encode(channel, method))
        self._called += 1
        self._read_or_not()
        try:
            async with asyncio.timeout(timeout_s):
                reply = await answered
        except TimeoutError as error:
            self.abort()
            raise ConnectionLostError(f"no answer to {method.name} within {timeout_s:g} s") from error
        finally:
            self._called -= 1
            self._read_or_not()
        if not isinstance(reply, answer):
            self.fail(BrokerProtocolError(f"{reply.name} in answer to {method.name}"))
            raise self.lost.result()
        return reply

    def write(self, octets: bytes) -> None:
        """Hand complete frames to the socket. Does nothing if the connection has ended; ``lost`` tells why."""
        if self._transport is not None and not self._transport.is_closing():
            self._wrote = True
            self._transport.write(octets)

    def hold(self, holder: object) -> None:
        """Read nothing from the socket until ``holder`` releases it, except while a call waits for its answer."""
        self._holders.add(holder)
        self._read_or_not()

    def release(self, holder: object) -> None:
        """Let the socket be read again, as far as ``holder`` is concerned."""
        self._holders.discard(holder)
        self._read_or_not()

    def _read_or_not(self) -> None:
        held = bool(self._holders) and not self._called
        if held != self._held and self._transport is not None and not self._transport.is_closing():
            self._held = held
            self._transport.pause_reading() if held else self._transport.resume_reading()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open: begin the handshake."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Read straight into the core's buffer."""
        return self._core.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the octets of one read."""
        now_ns = self._clock()
        self._silent_beats = 0
        try:
            events = self._core.received(nbytes)
        except BrokerProtocolError as error:
            self.fail(error)
            return
        for event in events:
            self._handle(event, now_ns)
        if self._touched:
            touched, self._touched = self._touched, {}
            for listener in touched.values():
                listener.on_read_end()
        self._flush()

    def eof_received(self) -> bool:
        """The broker has closed its side: close the socket."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        if not self._gone.done():
            self._gone.set_result(None)
        self._finish(_lost_error(exc, self.uri, self._core.stage))

    def pause_writing(self) -> None:
        """Too many octets wait for the socket."""
        self.writable = False

    def resume_writing(self) -> None:
        """The socket has caught up."""
        self.writable = True
        for listener in tuple(self._listeners.values()):
            listener.on_writable()

    # Events

    def _handle(self, event: Event, now_ns: int) -> None:
        if isinstance(event, (Delivery, DeliveryRun)):
            if (listener := self._listeners.get(event.channel)) is not None:
                self._touched[event.channel] = listener
                listener.on_delivery(event, now_ns)
        elif isinstance(event, Confirms):
            if (listener := self._listeners.get(event.channel)) is not None:
                self._touched[event.channel] = listener
                listener.on_confirms(event, now_ns)
        else:
            self._handle_cold(event, now_ns)

    def _handle_cold(self, event: Event, now_ns: int) -> None:
        match event:
            case Reply(channel, method):
                self._on_reply(channel, method)
            case ChannelEnded(channel, code, text, method_text):
                self._on_channel_ended(channel, ChannelClosedError(code, text, method_text))
            case ConnectionEnded():
                self._finish(_closed_error(event))
            case GetEmpty(channel):
                if (listener := self._listeners.get(channel)) is not None:
                    listener.on_get_empty(now_ns)
            case Returned(channel):
                if (listener := self._listeners.get(channel)) is not None:
                    listener.on_returned(event, now_ns)
            case ConsumerCancelled(channel):
                if (listener := self._listeners.get(channel)) is not None:
                    listener.on_cancelled()
            case Opened():
                self._start_heartbeats()
                self._opened.set_result(None)
            case Blocked(reason):
                if self._watcher is not None:
                    self._watcher.on_blocked(reason)
            case Unblocked():
                if self._watcher is not None:
                    self._watcher.on_unblocked()

    def _on_reply(self, channel: int, method: Method) -> None:
        if not self._calls.answer(channel, method):
            self.fail(BrokerProtocolError(f"{method.name} on channel {channel}, which nobody asked for"))

    def _on_channel_ended(self, channel: int, error: ChannelClosedError) -> None:
        listener = self._listeners.get(channel)
        self._forget_channel(channel)
        if not self._calls.fail(channel, error) and listener is not None:
            listener.on_channel_closed(error)

    # Ends

    def _flush(self) -> None:
        output = self._core.take_output()
        if output:
            self.write(output)

    def _finish(self, error: AmqpError) -> None:
        if self.lost.done():
            return
        self.lost.set_result(error)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # open() may have given up waiting; asyncio need not complain then
        self._calls.fail_all(error)
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # Heartbeats: one is sent in each half interval without other traffic; four silent halves are two intervals.

    def _start_heartbeats(self) -> None:
        if self._core.heartbeat_s:
            self._heartbeat = self._loop.call_later(self._core.heartbeat_s / 2, self._beat)

    def _beat(self) -> None:
        if not self._wrote:
            self.write(HEARTBEAT)
        self._wrote = False
        self._silent_beats += 0 if self._held else 1
        if self._silent_beats > 4:
            seconds = 2 * self._core.heartbeat_s
            self._finish(ConnectionLostError(f"{self.uri.host}:{self.uri.port} was silent for {seconds} s"))
            return
        self._start_heartbeats()


class Calls:
    """The calls of one connection: methods that wait for their answers. A channel answers in the order of its calls."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[asyncio.Future[Method]]] = {}

    def begin(self, channel: int) -> asyncio.Future[Method]:
        """A call is about to be sent. Returns the future of its answer, which fails if no answer can come."""
        future: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(channel, deque()).append(future)
        return future

    def answer(self, channel: int, method: Method) -> bool:
        """An answer came. Returns whether a call waited for it."""
        waiting = self._waiting.get(channel)
        if not waiting:
            return False
        future = waiting.popleft()
        if not future.done():
            future.set_result(method)
        return True

    def fail(self, channel: int, error: AmqpError) -> bool:
        """No more answers come on a channel. Returns whether a call waited."""
        waiting = self._waiting.pop(channel, None) or ()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        return bool(waiting)

    def fail_all(self, error: AmqpError) -> None:
        """No more answers come on any channel."""
        for channel in tuple(self._waiting):
            self.fail(channel, error)


class ChannelNumbers:
    """The channel numbers of a connection: numbers in use, and numbers that may be used again."""

    def __init__(self) -> None:
        self._used = 0
        self._free: deque[int] = deque()

    def take(self, channel_max: int) -> int:
        """A number that was never used, as long as there is one, because the owner of a channel that has just ended may
        not know yet. Raises :class:`NoChannelLeftError` if the broker allows no more channels on one connection."""
        if self._used < channel_max:
            self._used += 1
            return self._used
        if self._free:
            return self._free.popleft()
        raise NoChannelLeftError(f"the broker allows {channel_max} channels on a connection")

    def give_back(self, channel: int) -> None:
        """Both sides have closed the channel."""
        self._free.append(channel)


def _tls_error(error: ssl.SSLError, uri: AmqpUri) -> AmqpError:
    """The error for a failed TLS handshake. A broker that starts or stops cuts the handshake off in the middle."""
    where = f"{uri.host}:{uri.port}"
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return UnreachableError(f"{where} broke the TLS handshake off")
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"the certificate of {where} is not trusted: {error.verify_message}")
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return TlsError(f"{where} does not speak TLS")
    return TlsError(f"no TLS with {where}: {(error.reason or str(error)).lower().replace('_', ' ')}")


def _closed_error(event: ConnectionEnded) -> AmqpError:
    """The error for a connection.close, by its code and the stage of the handshake that it answered. A node that stops
    says so at any stage."""
    if event.stage == "tune" and event.code == REPLY_ACCESS_REFUSED:
        return LoginRefusedError(event.code, event.text)
    if event.stage == "open" and event.code not in (REPLY_CONNECTION_FORCED, REPLY_RESOURCE_ERROR):
        return VhostRefusedError(event.code, event.text, event.method)
    return ConnectionClosedError(event.code, event.text, event.method)


def _lost_error(cause: Exception | None, uri: AmqpUri, stage: HandshakeStage) -> AmqpError:
    """The error for a socket that closed without a word of AMQP, by the stage of the handshake."""
    if isinstance(cause, ssl.SSLError) and stage in (HandshakeStage.START, HandshakeStage.TUNE, HandshakeStage.OPEN):
        return _tls_error(cause, uri)
    reason = str(cause) if cause else "the broker closed the socket"
    if stage is HandshakeStage.START:
        what = "a certificate of this client" if uri.tls else "TLS, which is amqps://"
        reason = f"closed without a word; perhaps it wants {what}"
    elif stage is HandshakeStage.TUNE:
        reason = "the broker hung up after the login was sent, as some do when user or password are wrong"
    return ConnectionLostError(f"connection to {uri.host}:{uri.port} lost: {reason}")
