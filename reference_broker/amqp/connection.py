"""The server side of one AMQP 0-9-1 connection: octets in, events and octets out, no I/O.

Theory of operation
-------------------
``receive`` takes whatever the socket gave and returns what the client asked for, as events in the order of the wire;
``take_output`` hands over what is to be written. In between stand the phases of a connection::

    HEADER -> STARTING -> TUNING -> OPENING -> RUNNING -> CLOSING -> CLOSED
       |          |          |                              ^
       |          +----------+--> REFUSING (3 s of silence) |
       +--> CLOSED (wrong protocol)    any HardError -------+

``_CONNECTION_METHODS`` is the table of what may come on channel 0 in each phase. On the other channels, and only in
RUNNING, a frame goes first to the readers of runs (:mod:`~reference_broker.amqp.fastpath`,
:mod:`~reference_broker.amqp.settles`); what they leave is read by the general path, one frame at a time
(:mod:`~reference_broker.amqp.channel_frames`). A *soft* error closes its channel, a *hard* one the connection, and
nothing a client sends ends in anything else: ``receive`` does not raise.

Invariant: events gathered by the readers are emitted before any other event. For how channels and connections end see
:mod:`~reference_broker.amqp.closing`.

The caller answers every event that asks for it (see :mod:`~reference_broker.amqp.events`). Until it has, it *holds* the
channel: what the client sends there waits, unread (:mod:`~reference_broker.amqp.unread`). For that the caller must hear
of an event before anything behind it is read. So reading stops at a method of a channel as long as there are events,
and after one that made some; ``go_on`` reads on. Runs of publishes and of acknowledgements come out in one go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pamqp import base, commands

from reference_broker.amqp import handshake
from reference_broker.amqp.channel_frames import PUBLISH_OCTETS, ChannelFrames
from reference_broker.amqp.closing import OVER, Phase
from reference_broker.amqp.deliveries import marked_redelivered
from reference_broker.amqp.errors import (
    HardError,
    RefusedError,
    ReplyCode,
    SoftError,
    printable,
)
from reference_broker.amqp.events import ConnectionOpened, Event, FieldValue
from reference_broker.amqp.fields import decode_method, method_id
from reference_broker.amqp.frames import (
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    octets_needed,
    read_frame,
)
from reference_broker.amqp.link import ConnectionConfig, Octets
from reference_broker.amqp.settles import SettleReader

_EVENTS_FIRST: Final = -1
"""In the place of how many octets are needed to read on: none, but somebody must look at the events."""


class ServerConnection(ChannelFrames):
    """One client's connection. Times are seconds of any clock that never goes back."""

    def __init__(self, config: ConnectionConfig, now_s: float = 0.0, connection_name: str = "") -> None:
        super().__init__(config, now_s)
        self.name = connection_name
        self._settles = SettleReader(self._channels, self._runs)
        self._heartbeat_s = 0
        self._must_look = False
        """Reading has stopped for the sake of the events."""
        self._heard_s = self._spoke_s = now_s

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """How far the connection has come."""
        return self._phase

    @property
    def is_open(self) -> bool:
        """Between connection.open-ok and the first sign of closing."""
        return self._phase is Phase.RUNNING

    @property
    def user(self) -> str:
        """Who logged in; empty before that."""
        return self._link.user

    @property
    def vhost(self) -> str:
        """The virtual host; empty before connection.open."""
        return self._link.vhost

    @property
    def client_properties(self) -> dict[str, FieldValue]:
        """What the client told about itself."""
        return self._link.client_properties

    @property
    def frame_max(self) -> int:
        """Octets of the largest frame, as agreed."""
        return self._link.frame_max

    @property
    def heartbeat_s(self) -> int:
        """The agreed heartbeat, 0 for none."""
        return self._heartbeat_s

    @property
    def open_channels(self) -> tuple[int, ...]:
        """Numbers of the channels that are open and not closing."""
        return tuple(number for number, channel in self._channels.items() if not channel.closing)

    def unacked(self, channel: int) -> int:
        """Deliveries of a channel that wait for their acknowledgement."""
        found = self._channels.get(channel)
        return found.unacked.count if found else 0

    def unconfirmed(self, channel: int) -> int:
        """Publishes of a channel that no queue has answered for."""
        found = self._channels.get(channel)
        return found.confirms.unresolved if found and found.confirms else 0

    # -- octets in, octets out -------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """Take octets from the client, and return events: once these are handled, :meth:`go_on` may have more. Never
        raises for anything that the octets may be."""
        self._now_s = self._heard_s = now_s
        buffer = self._inbox.push(data)
        if buffer is None or self._phase is Phase.CLOSED:
            return self._take_events()
        if self._phase in OVER:
            self._search_last_words(buffer)
            return self._take_events()
        self._read(buffer, 0, 0)
        return self._take_events()

    def go_on(self) -> list[Event]:
        """Read on behind the events that were returned last. Empty if nothing is left to be read now."""
        self._must_look = False
        while not self._must_look and (stretch := self._unread.next()) is not None:
            self._read(*stretch)
        return self._take_events()

    @property
    def has_more(self) -> bool:
        """Whether :meth:`go_on` has something to read."""
        return bool(self._unread)

    def take_output(self) -> list[Octets]:
        """The buffers to write now, in order."""
        output = self._link.output[:]
        if output:
            self._link.output.clear()
            self._spoke_s = self._now_s
        return output

    def mark_redelivered(self) -> None:
        """What is to be written now may have been delivered elsewhere: say so in each delivery of it."""
        if self.is_open and self._link.output:
            self._link.output[:] = [marked_redelivered(self._link.output)]

    def tick(self, now_s: float) -> list[Event]:
        """Let time pass: heartbeats, time-outs. Call it a few times a second."""
        self._now_s = now_s
        if self._phase is Phase.CLOSED:
            return self._take_events()
        if self._give_up_s is not None and now_s >= self._give_up_s:
            self._end(self._closed_reason or "handshake timeout")
        elif self._heartbeat_s and self._phase is Phase.RUNNING:
            self._tick_heartbeat(now_s)
        return self._take_events()

    def not_reading(self, now_s: float) -> None:
        """The socket is not read for now, so the client's heartbeats are not heard either: silence does not count."""
        self._heard_s = now_s

    def connection_lost(self, reason: str) -> list[Event]:
        """The socket is gone, for whatever reason: emit what is left to tell the broker."""
        if self._phase is not Phase.CLOSED:
            self._link.output.clear()
            self._drop_channels()
            self._end(reason)
        return self._take_events()

    def _tick_heartbeat(self, now_s: float) -> None:
        if now_s >= self._heard_s + 2 * self._heartbeat_s:
            text = f"missed heartbeats from client, timeout: {2 * self._heartbeat_s}s"
            self._close_connection(HardError(ReplyCode.CONNECTION_FORCED, text))
            self._end(text)
        elif now_s >= self._spoke_s + self._heartbeat_s / 2 and not self._link.output:
            self._link.output.append(HEARTBEAT_FRAME)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, buffer: bytes, at: int, number: int) -> None:
        """Consume what can be from ``at`` on, keep the rest; turn errors into their close methods. What was held for a
        channel has its ``number``, else that is 0."""
        if self._phase is Phase.HEADER:
            at = self._protocol_header(buffer)
        try:
            while self._phase not in OVER and self._phase is not Phase.HEADER:
                reached, need = self._read_some(buffer, at, number)
                if need:
                    self._stop(buffer, reached, number, need)
                    break
                at = reached
            self._runs.flush()
        except HardError as error:
            self._runs.flush()
            self._close_connection(error)
            self._search_last_words((b"" if number else buffer[at:]) + self._unread.rest())
        except RefusedError as error:
            self._refuse(str(error))

    def _stop(self, buffer: bytes, at: int, number: int, need: int) -> None:
        if need == _EVENTS_FIRST:
            self._must_look = True
            self._unread.put_back(buffer, at, number)
        elif not number:  # what was held consists of whole frames: it is read to its end
            self._inbox.keep(buffer[at:], need)

    def _protocol_header(self, buffer: bytes) -> int:
        if not PROTOCOL_HEADER.startswith(buffer[:8]):
            self._link.output.append(PROTOCOL_HEADER)
            self._end("the client does not speak AMQP 0-9-1")
            return 0
        if len(buffer) < len(PROTOCOL_HEADER):
            self._inbox.keep(buffer, len(buffer) + 1)
            return 0
        self._phase = Phase.STARTING
        self._link.send(0, handshake.start(self._config))
        return len(PROTOCOL_HEADER)

    def _read_some(self, buffer: bytes, at: int, held_for: int) -> tuple[int, int]:
        """Consume from ``at`` on as far as one way of reading leads. Returns the position reached, and the octets
        needed from there on to get further, 0 if it can go on at once. Behind what was ``held_for`` a channel nothing
        more comes: the rest of a message that is cut off there is read frame by frame."""
        publishes = self._publishes
        try:
            reached = publishes.take(buffer, at)
            if reached == at and not publishes.need:
                reached = self._settles.take(buffer, at)
        except SoftError as error:
            self._close_channel_of(buffer, at, error)
            return at, 0  # read again, the frames of a closing channel are dropped
        if reached > at:
            return reached, 0
        if publishes.need and not held_for:
            return at, publishes.need
        size = octets_needed(buffer, at, self._link.payload_max)
        if size > len(buffer) - at:
            return at, size
        return self._general(buffer, at, size)

    def _general(self, buffer: bytes, at: int, size: int) -> tuple[int, int]:
        """Read one frame of any kind; returns the position after it, and 0, or that the events come first."""
        kind, number, payload, end = read_frame(buffer, at, size)
        channel = self._channels.get(number)
        if channel is not None and channel.held is not None:
            return self._unread.keep(buffer, at, channel, self._link.payload_max), 0
        if kind == METHOD and number and self._learn_route(buffer[at:end], number, payload):
            return at, 0  # now that the route is known, the fast path may have the whole message
        if kind == METHOD and payload[:4] != PUBLISH_OCTETS:
            self._runs.flush()
            if number and self._link.events:
                return at, _EVENTS_FIRST
        if kind == HEARTBEAT:
            self._heartbeat_frame(number, payload)
        elif self._phase is not Phase.RUNNING and (number or kind != METHOD):
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"frame of type {kind} on channel {number} before open")
        elif not number:
            self._connection_frame(kind, payload)
        else:
            self._channel_frame(kind, number, payload, buffer[at:end] if kind == METHOD else b"")
            if kind == METHOD and self._link.events:
                return end, _EVENTS_FIRST
        return end, 0

    def _heartbeat_frame(self, number: int, payload: bytes) -> None:
        if number:
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"heartbeat on channel {number}")
        if payload:
            raise HardError(ReplyCode.FRAME_ERROR, f"heartbeat with a payload of {len(payload)} octets")

    # -- channel 0 ---------------------------------------------------------------------------------------------------

    def _connection_frame(self, kind: int, payload: bytes) -> None:
        if kind != METHOD:
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"content frame of type {kind} on channel 0")
        method = decode_method(payload)
        handler = _CONNECTION_METHODS[self._phase].get(type(method))
        if handler is not None:
            handler(self, method)
            return
        at_fault = method_id(payload)
        if type(method) in _FROM_SERVER:
            raise HardError(ReplyCode.COMMAND_INVALID, f"{method.name} is not for a client to send", at_fault)
        text = f"unexpected method {method.name} in connection state {self._phase.name.lower()}"
        raise HardError(ReplyCode.CHANNEL_ERROR, text, at_fault)

    def _start_ok(self, method: commands.Connection.StartOk) -> None:
        self._link.client_properties = dict(method.client_properties or {})
        self._link.capabilities = handshake.capabilities(self._link.client_properties)
        self._link.user = handshake.authenticate(self._config, method, self._link.capabilities)
        self._link.send(0, handshake.tune(self._config))
        self._phase = Phase.TUNING

    def _tune_ok(self, method: commands.Connection.TuneOk) -> None:
        handshake.check_tune(self._config, method)
        self._channel_max = method.channel_max
        self._heartbeat_s = method.heartbeat
        self._link.limit_frames(method.frame_max)
        self._phase = Phase.OPENING

    def _vhost_open(self, method: commands.Connection.Open) -> None:
        handshake.check_vhost(self._config, method)
        self._link.vhost = method.virtual_host
        self._link.send(0, commands.Connection.OpenOk())
        self._phase = Phase.RUNNING
        self._give_up_s = None
        self._link.events.append(ConnectionOpened(self.user, self.vhost, self.client_properties))

    def _update_secret(self, method: commands.Connection.UpdateSecret) -> None:
        handshake.check_secret(self._config, self.user, method)
        self._link.send(0, commands.Connection.UpdateSecretOk())

    def _close(self, method: commands.Connection.Close) -> None:
        self._flush_confirms()
        self._drop_channels()
        self._link.send(0, commands.Connection.CloseOk())
        self._end(f"closed by the client: {method.reply_code} {printable(method.reply_text)}")


_Handler = Callable[[ServerConnection, Any], None]  # each is called with the one method it is listed for

_CLOSE_ONLY: Final[dict[type[base.Frame], _Handler]] = {commands.Connection.Close: ServerConnection._close}
_CONNECTION_METHODS: Final[dict[Phase, dict[type[base.Frame], _Handler]]] = {
    Phase.STARTING: {commands.Connection.StartOk: ServerConnection._start_ok, **_CLOSE_ONLY},
    Phase.TUNING: {commands.Connection.TuneOk: ServerConnection._tune_ok, **_CLOSE_ONLY},
    Phase.OPENING: {commands.Connection.Open: ServerConnection._vhost_open, **_CLOSE_ONLY},
    Phase.RUNNING: {commands.Connection.UpdateSecret: ServerConnection._update_secret, **_CLOSE_ONLY},
}
"""What may come on channel 0, by phase. The other phases read no methods."""

_FROM_SERVER: Final = frozenset(
    {
        commands.Connection.Start,
        commands.Connection.Secure,
        commands.Connection.Tune,
        commands.Connection.OpenOk,
        commands.Connection.Blocked,
        commands.Connection.Unblocked,
        commands.Connection.UpdateSecretOk,
    }
)
