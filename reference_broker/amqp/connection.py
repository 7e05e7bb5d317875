"""The server's side of one AMQP 0-9-1 connection: octets in, events and octets out, no I/O.

Theory of operation
-------------------
``receive`` takes the octets of one read and returns the client's wishes as events, in the order of the wire.
``take_output`` hands over the octets to write. A connection has these phases::

    HEADER -> STARTING -> TUNING -> OPENING -> RUNNING -> CLOSING -> CLOSED
       |          |          |                              ^
       |          +----------+--> REFUSING (3 s of silence) |
       +--> CLOSED (wrong protocol)    any HardError -------+

From RUNNING a client's connection.close leads to CLOSED, or to LEAVING until the broker has carried out the close.

:data:`~reference_broker.amqp.handshake.STEPS` is the table of the methods that may come on channel 0 in each phase. In
RUNNING, a frame of another channel goes first to the readers of runs (:mod:`~reference_broker.amqp.fastpath`). The
frames that the readers leave are read one at a time (:mod:`~reference_broker.amqp.channel_table`). ``receive`` never
raises, whatever a client sends: a *soft* error closes its channel, a *hard* error closes the connection. After a hard
error the octets may have lost their framing, so the connection parses nothing more and only searches its input for
connection.close-ok.

The broker speaks through the other methods: deliveries, confirms, answers, notices. None of them raises. Calls for a
closed or closing channel are dropped, because the broker learns of the end of a channel late. Only
:meth:`ServerConnection.deliver` and :meth:`ServerConnection.get_ok` tell whether the channel was there, for messages
that were not delivered must go back to their queue.

The broker answers every event that asks for it (see :mod:`~reference_broker.amqp.events`). Until it has answered, it
*holds* the channel: the client's next frames on that channel wait unread (:mod:`~reference_broker.amqp.unread`). So the
broker must get an event before anything behind the event is read. Reading therefore stops before a method of a channel
if there are events, and after a method that makes an event; ``go_on`` reads on. Runs of publishes and of
acknowledgements come out in one go.

Invariants: events of the readers are emitted before any other event. After ConnectionClosed there are no events. Octets
go out in the order of the calls, except confirms, which wait for ``flush_confirms``; so a basic.return precedes the
confirm of its message.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Final

from pamqp import commands

from reference_broker.amqp import deliveries, handshake
from reference_broker.amqp.channel import Channel
from reference_broker.amqp.channel_table import PUBLISH_OCTETS, ChannelTable
from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.errors import (
    HardError,
    NegotiationError,
    ProtocolError,
    ReplyCode,
    SoftError,
    method_by_name,
    printable,
    reply_text,
)
from reference_broker.amqp.events import ConnectionClosed, ConnectionClosing, Event
from reference_broker.amqp.fastpath import PublishReader, RunBuilder, SettleReader
from reference_broker.amqp.fields import decode_method, method_id
from reference_broker.amqp.frames import (
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    octets_needed,
    read_frame,
)
from reference_broker.amqp.state import OVER, ConnectionState, Octets, Phase
from reference_broker.amqp.transactions import CommitTracker
from reference_broker.amqp.unread import Inbox
from reference_broker.message_run import MessageRun, RunSlice

_HEARTBEATS_MISSED: Final = 3
"""Heartbeats that a client may miss before its connection ends, as in RabbitMQ."""
_EVENTS_FIRST: Final = -1
"""In place of the number of octets that are needed to read on: the broker must take the events first."""

_LAST_WORDS: Final = re.compile(
    rb"\x01\x00\x00(?:\x00\x00\x00\x04\x00\x0a\x00\x33\xce|(?P<close>\x00\x00..\x00\x0a\x00\x32))", re.DOTALL
)
"""A frame of connection.close-ok, or the beginning of a frame of connection.close."""
_LAST_WORDS_OCTETS: Final = 12


class ServerConnection:
    """One client's connection. Times are seconds of any clock that never goes back."""

    def __init__(self, config: ConnectionConfig, now_s: float = 0.0) -> None:
        self.state = ConnectionState(config)
        """The negotiated limits, and the lists that all parts share."""
        self._events = self.state.events
        self.output = self.state.output
        """The octets to be written; :meth:`take_output` takes them."""
        self.delivering_octets = 0
        """Octets of deliveries that were not taken for writing yet."""
        self._inbox = Inbox()
        self._runs = RunBuilder(self.state)
        self._publishes = PublishReader(self.state, self._runs)
        self._table = ChannelTable(self.state, self._runs, self._publishes)
        self._channels = self._table.by_number
        self.confirming = self._table.confirming
        """The channels with confirms for :meth:`flush_confirms` to write."""
        self.unread = self._table.unread
        """The unread octets, and the part that waits on held channels for answers of the broker."""
        self._settles = SettleReader(self._channels, self._runs)
        self.phase = Phase.HEADER
        """The progress of the connection."""
        self._closed_reason = ""
        self._closes_late = False
        self.client_closes = False
        """The client has asked for the end and has its close-ok: it is for the client to close the socket."""
        self._must_look = False
        """Reading has stopped until the broker has taken the events."""
        self._failure: Callable[[], None] | None = None
        """Ends a channel or the connection once the broker has taken the events: the client may still be owed returned
        messages, and nothing follows a close."""
        self._now_s = self._heard_s = self._spoke_s = now_s
        self._give_up_s: float | None = now_s + config.handshake_timeout_s

    @property
    def is_open(self) -> bool:
        """Whether connection.open was answered and no side has begun to close."""
        return self.phase is Phase.RUNNING

    @property
    def open_channels(self) -> tuple[int, ...]:
        """Numbers of the channels that are open and not closing."""
        return tuple(number for number, channel in self._channels.items() if not channel.closing)

    def has_open(self, channel: int) -> bool:
        """Whether the channel is open and not closing."""
        found = self._channels.get(channel)
        return found is not None and not found.closing

    def unacked(self, channel: int) -> int:
        """Deliveries of a channel that wait for their acknowledgement."""
        found = self._channels.get(channel)
        return found.unacked.count if found else 0

    def unconfirmed(self, channel: int) -> int:
        """Publishes of a channel that no queue has answered yet."""
        found = self._channels.get(channel)
        return found.confirms.unresolved if found and found.confirms else 0

    def confirms(self, channel: int) -> bool:
        """Whether a channel is in confirm mode."""
        found = self._channels.get(channel)
        return found is not None and found.confirms is not None and not isinstance(found.confirms, CommitTracker)

    def prefetch(self, channel: int) -> int:
        """The prefetch count of a channel's next consumer; 0: no limit."""
        found = self._channels.get(channel)
        return found.prefetch if found else 0

    # -- octets in, octets out -------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """Take octets from the client and return events. When the events are handled, :meth:`go_on` may have more.
        Never raises, whatever the octets are."""
        self._now_s = self._heard_s = now_s
        buffer = self._inbox.push(data) if self._inbox.chunks else data
        if buffer is None or self.phase is Phase.CLOSED:
            return self._take_events()
        if self.phase in OVER:
            self._search_last_words(buffer)
            return self._take_events()
        self._read(buffer, 0, 0)
        return self._take_events()

    def go_on(self) -> list[Event]:
        """Read on behind the events that were returned last. Returns no events if there is nothing to read now."""
        self._must_look = False
        if (fail := self._failure) is not None:
            self._failure = None
            fail()
        while not self._must_look and (stretch := self.unread.next()) is not None:
            self._read(*stretch)
        return self._take_events()

    @property
    def has_more(self) -> bool:
        """Whether :meth:`go_on` has something to read."""
        return bool(self.unread.stretches) or self._failure is not None

    @property
    def receives_content(self) -> bool:
        """Whether a message has begun to come on any channel."""
        return any(channel.content is not None for channel in self._channels.values())

    @property
    def has_output(self) -> bool:
        """Whether there is something to write, or will be at the end of the turn."""
        return bool(self.output or self.confirming)

    def take_output(self) -> list[Octets]:
        """The buffers to write now, in order."""
        output = self.output[:]
        if output:
            self.output.clear()
            self.delivering_octets = 0
            self._spoke_s = self._now_s
        return output

    def tick(self, now_s: float) -> list[Event]:
        """Let time pass: heartbeats and time-outs. Call it a few times a second."""
        self._now_s = now_s
        if self.phase is Phase.CLOSED:
            return self._take_events()
        if self._give_up_s is not None and now_s >= self._give_up_s:
            if self.phase is Phase.LEAVING:
                self.close_ok()
                return self._take_events()
            self._end(self._closed_reason or "handshake timeout")
        elif self.state.heartbeat_s and self.phase is Phase.RUNNING:
            self._tick_heartbeat(now_s, self.state.heartbeat_s)
        return self._take_events()

    @property
    def due_s(self) -> float:
        """When the next tick has something to do if no octets come and none go."""
        heartbeat_s = self.state.heartbeat_s
        due = [] if self._give_up_s is None else [self._give_up_s]
        if heartbeat_s:
            due += [self._spoke_s + heartbeat_s / 2, self._heard_s + _HEARTBEATS_MISSED * heartbeat_s]
        return min(due, default=math.inf)

    def not_reading(self, now_s: float) -> None:
        """Nobody reads the socket for now. The client's heartbeats are not heard, so its silence does not count."""
        self._heard_s = now_s

    def connection_lost(self, reason: str) -> list[Event]:
        """The socket is gone. Returns the last events of the connection."""
        if self.phase is not Phase.CLOSED:
            self.output.clear()
            self._table.end_all()
            self._end(reason)
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events = self._events[:]
        self._events.clear()
        return events

    def _tick_heartbeat(self, now_s: float, heartbeat_s: int) -> None:
        if now_s >= self._heard_s + _HEARTBEATS_MISSED * heartbeat_s:
            text = f"missed heartbeats from client, timeout: {_HEARTBEATS_MISSED * heartbeat_s}s"
            self._close(HardError(ReplyCode.CONNECTION_FORCED, text))
            self._end(text)
        elif now_s >= self._spoke_s + heartbeat_s / 2 and not self.output:
            self.output.append(HEARTBEAT_FRAME)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, buffer: bytes, at: int, number: int) -> None:
        """Consume octets from ``at`` on, keep the rest, and answer errors with their close methods. ``number`` is the
        channel that all octets were kept for, else 0."""
        if self.phase is Phase.HEADER:
            at = self._protocol_header(buffer)
        try:
            while at < len(buffer) and self.phase not in OVER and self.phase is not Phase.HEADER:
                reached, need = self._read_some(buffer, at, number)
                if need:
                    self._stop(buffer, reached, number, need)
                    break
                at = reached
            self._runs.flush()
        except HardError as error:
            self._runs.flush()
            rest = b"" if number else buffer[at:]
            self._fail(lambda error=error: self._close_for(error, rest))  # type: ignore[misc]
        except NegotiationError as error:
            self._refuse(str(error))

    def _fail(self, fail: Callable[[], None]) -> int:
        """End a channel or the connection: now, or once the broker has taken the earlier events. Returns 0 or
        :data:`_EVENTS_FIRST`."""
        if not self._events:
            fail()
            return 0
        self._must_look, self._failure = True, fail
        return _EVENTS_FIRST

    def _fail_channel(self, number: int, error: SoftError) -> int:
        """Close a channel in the same way."""
        self._runs.flush()
        return self._fail(functools.partial(self._table.close, self._channels[number], error))

    def _close_for(self, error: HardError, rest: bytes) -> None:
        """Close the connection; ``rest`` was not read yet."""
        self._close(error)
        self._search_last_words(rest + self.unread.rest())

    def _stop(self, buffer: bytes, at: int, number: int, need: int) -> None:
        if need == _EVENTS_FIRST:
            self._must_look = True
            self.unread.put_back(buffer, at, number)
        elif not number:  # octets that were kept for a channel are whole frames, and are read to their end
            self._inbox.keep(buffer[at:], need)

    def _protocol_header(self, buffer: bytes) -> int:
        if not PROTOCOL_HEADER.startswith(buffer[:8]):
            self.output.append(PROTOCOL_HEADER)
            self._end("the client does not speak AMQP 0-9-1")
            return 0
        if len(buffer) < len(PROTOCOL_HEADER):
            self._inbox.keep(buffer, len(buffer) + 1)
            return 0
        self.phase = Phase.STARTING
        self.state.send(0, handshake.start(self.state.config))
        return len(PROTOCOL_HEADER)

    def _read_some(self, buffer: bytes, at: int, held_for: int) -> tuple[int, int]:
        """Consume octets from ``at`` on, as far as one way of reading leads. Returns the position reached, and the
        octets needed from there on, 0 if reading can go on at once. Behind octets that were ``held_for`` a channel
        nothing more comes: a message that is cut off there is read frame by frame."""
        publishes = self._publishes
        try:
            reached = publishes.take(buffer, at)
            if reached == at and not publishes.need:
                reached = self._settles.take(buffer, at)
        except SoftError as error:
            number = int.from_bytes(buffer[at + 1 : at + 3], "big")
            return at, self._fail_channel(number, error)  # read again: the frames of a closing channel are dropped
        if reached > at:
            return reached, 0
        if publishes.need and not held_for:
            return at, publishes.need
        size = octets_needed(buffer, at, self.state.payload_max)
        if size > len(buffer) - at:
            return at, size
        return self._read_frame(buffer, at, size)

    def _read_frame(self, buffer: bytes, at: int, size: int) -> tuple[int, int]:
        """Read one frame of any kind. Returns the position after it, and 0 or :data:`_EVENTS_FIRST`."""
        kind, number, payload, end = read_frame(buffer, at, size)
        channel = self._channels.get(number)
        if channel is not None and channel.held is not None:
            return self.unread.keep(buffer, at, channel, self.state.payload_max), 0
        try:
            if kind == METHOD and number and self._table.learn_route(buffer[at:end], number, payload):
                return at, 0  # now that the route is known, the fast path may take the whole message
        except SoftError as error:
            return at, self._fail_channel(number, error)
        if kind == METHOD and payload[:4] != PUBLISH_OCTETS:
            self._runs.flush()
            if self._events and self.phase is Phase.RUNNING:
                return at, _EVENTS_FIRST
        if kind == HEARTBEAT:
            self._heartbeat(number, payload)
        elif self.phase is not Phase.RUNNING and (number or kind != METHOD):
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"frame of type {kind} on channel {number} before open")
        elif not number:
            self._connection_frame(kind, payload)
        else:
            try:
                self._table.frame(kind, number, payload, buffer[at:end] if kind == METHOD else b"")
            except SoftError as error:
                return end, self._fail_channel(number, error)
            if kind == METHOD and self._events:
                return end, _EVENTS_FIRST
        return end, 0

    def _heartbeat(self, number: int, payload: bytes) -> None:
        if number:
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"heartbeat on channel {number}")
        if payload:
            raise HardError(ReplyCode.FRAME_ERROR, f"heartbeat with a payload of {len(payload)} octets")

    def _connection_frame(self, kind: int, payload: bytes) -> None:
        if kind != METHOD:
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"content frame of type {kind} on channel 0")
        method = decode_method(payload)
        step = handshake.STEPS[self.phase].get(type(method))
        if step is not None:
            self.phase = step(self.state, method)
            if self.phase is Phase.RUNNING:
                self._give_up_s = None
            return
        if isinstance(method, commands.Connection.Close):
            self._closed_by_client(method)
            return
        at_fault = method_id(payload)
        text = f"unexpected method {method.name} in connection state {self.phase.name.lower()}"
        raise HardError(ReplyCode.CHANNEL_ERROR, text, at_fault)

    # -- ends --------------------------------------------------------------------------------------------------------

    def channel_error(self, channel: int, code: int, text: str, method_name: str = "") -> list[Event]:
        """Close a channel with an exception. ``method_name`` is the method at fault, such as ``queue.declare``."""
        if (found := self._channel(channel)) is not None:
            self._table.close(found, SoftError(code, text, method_by_name(method_name)))
        return self._take_events()

    def connection_error(self, code: int, text: str, method_name: str = "") -> list[Event]:
        """Close the connection with an exception, for example 320 when the node stops."""
        if self.phase not in OVER:
            self._close(HardError(code, text, method_by_name(method_name)))
        return self._take_events()

    def _closed_by_client(self, method: commands.Connection.Close) -> None:
        self.flush_confirms()
        self._table.end_all()
        self._closed_reason = f"closed by the client: {method.reply_code} {printable(method.reply_text)}"
        self.phase = Phase.LEAVING
        if self._closes_late:
            self._give_up_s = self._now_s + self.state.config.close_timeout_s
            self._events.append(ConnectionClosing())
        else:
            self.close_ok()

    def _close(self, error: ProtocolError) -> None:
        """Send connection.close and wait for the answer."""
        self.flush_confirms()
        self._table.end_all()
        text = reply_text(error.code, error.text)
        self.state.send(0, commands.Connection.Close(error.code, text, *error.method))
        self.phase = Phase.CLOSING
        self._closed_reason = f"{error.code} {text}"
        self._give_up_s = self._now_s + self.state.config.close_timeout_s
        self._inbox.relax()

    def _refuse(self, reason: str) -> None:
        self.phase = Phase.REFUSING
        self._closed_reason = reason
        self._give_up_s = self._now_s + self.state.config.refusal_delay_s
        self._inbox.relax()

    def _search_last_words(self, buffer: bytes) -> None:
        """Look for the client's answer to connection.close, and for nothing else."""
        found = _LAST_WORDS.search(buffer) if self.phase is Phase.CLOSING else None
        if found is None:
            self._inbox.keep(buffer[-_LAST_WORDS_OCTETS:], 0)
            return
        if found["close"]:
            self.state.send(0, commands.Connection.CloseOk())
        self._end(self._closed_reason)

    def _end(self, reason: str) -> None:
        self.phase = Phase.CLOSED
        self._give_up_s = None
        self._events.append(ConnectionClosed(reason))

    # -- the broker's deliveries and confirms ------------------------------------------------------------------------

    def deliver(
        self, channel: int, consumer_tag: str, first_message_id: int, slices: Sequence[RunSlice], delivery_count: int
    ) -> bool:
        """Deliver messages with the ids ``first_message_id``, +1, ... to a consumer. If ``delivery_count`` is above 0,
        the messages are redelivered and say so in a header.

        False if there is no such consumer any more. Then nothing was delivered, and the messages belong back in their
        queue.
        """
        found = self._channels.get(channel)
        subscription = found.subscriptions.get(consumer_tag) if found is not None else None
        if found is None or subscription is None:
            return False
        first_tag = tag = found.next_delivery_tag
        for each in slices:
            frames = deliveries.deliver(subscription, channel, tag, each, delivery_count, self.state.frame_max)
            self.output.append(frames)
            self.delivering_octets += len(frames)
            tag += each[2]
        found.next_delivery_tag = tag
        if not subscription.no_ack and tag > first_tag:
            found.unacked.add(first_tag, tag - first_tag, consumer_tag, first_message_id)
        return True

    def mark_redelivered(self) -> None:
        """Set the redelivered flag in each delivery that is not written yet: another client may have the message."""
        if self.is_open and self.output:
            self.output[:] = [deliveries.marked_redelivered(self.output)]

    def get_ok(
        self,
        channel: int,
        consumer_tag: str,
        message_id: int,
        message: RunSlice,
        delivery_count: int,
        left: int,
        no_ack: bool,
        *,
        counted: bool = False,
    ) -> bool:
        """Answer a Get with one message; ``left`` messages are ready behind it. ``counted`` messages have their
        ``delivery_count`` in their headers also if it is 0. False if the channel is gone: then the message belongs back
        in its queue."""
        found = self._channel(channel)
        if found is None:
            return False
        tag = found.next_delivery_tag
        found.next_delivery_tag += 1
        frame_max = self.state.frame_max
        self.output.append(deliveries.got(channel, tag, message, delivery_count, left, frame_max, counted=counted))
        if not no_ack:
            found.unacked.add(tag, 1, consumer_tag, message_id)
        return True

    def get_empty(self, channel: int) -> None:
        """Answer a Get: nothing is ready."""
        if self._channel(channel) is not None:
            self.state.send(channel, commands.Basic.GetEmpty())

    def confirm(self, channel: int, first_seq: int, last_seq: int) -> None:
        """These publishes are safe. The next :meth:`flush_confirms` tells the client."""
        found = self._channels.get(channel)
        if found is not None and found.confirms is not None and not found.closing:
            found.confirms.confirm(first_seq, last_seq)
            self.confirming[channel] = found

    def reject(self, channel: int, first_seq: int, last_seq: int) -> None:
        """A queue has refused these publishes. The client gets basic.nack at the next :meth:`flush_confirms`."""
        found = self._channels.get(channel)
        if found is not None and found.confirms is not None and not found.closing:
            found.confirms.reject(first_seq, last_seq)
            self.confirming[channel] = found

    def flush_confirms(self) -> None:
        """Tell the client of all confirms and rejections, in as few frames as possible. Call it once per turn."""
        for channel in self.confirming.values():
            if channel.confirms is not None and (frames := channel.confirms.flush(channel.number)):
                self.output.append(frames)
        self.confirming.clear()

    def returned(self, channel: int, code: int, text: str, exchange: str, routing_key: str, run: MessageRun) -> None:
        """Send a mandatory run back: basic.return with each content. Call it before the run's ``confirm``."""
        if self._channel(channel) is not None:
            frames = deliveries.returned(channel, code, text, exchange, routing_key, run, self.state.frame_max)
            self.output.append(frames)

    # -- the broker's answers and notices ----------------------------------------------------------------------------

    def hold(self, channel: int) -> None:
        """The broker owes the channel an answer. The next frames of the channel wait for :meth:`release`."""
        if (found := self._channel(channel)) is not None:
            found.takes_runs = False
            self.unread.hold(found)

    def release(self, channel: int) -> None:
        """The channel has its answer. The frames that wait are read next."""
        if (found := self._channel(channel)) is not None and found.held is not None:
            found.takes_runs = found.content is None
            self.unread.release(found)

    def close_late(self, channel: int = 0) -> None:
        """From now on, the broker says when the client's close of a channel may be answered; of 0, that of the
        connection."""
        self._closes_late = True
        if (found := self._channel(channel)) is not None:
            found.closes_late = True

    def channel_close_ok(self, channel: int) -> None:
        """Answer a ChannelClosed whose client waits for the answer."""
        found = self._channels.get(channel)
        if found is not None and found.closing and found.closes_late and found.held is not None:
            self._table.close_ok(found)

    def close_ok(self) -> None:
        """Answer a ConnectionClosing. The next events, of :meth:`tick` or :meth:`connection_lost`, tell the end."""
        if self.phase is Phase.LEAVING:
            self.state.send(0, commands.Connection.CloseOk())
            self.client_closes = True
            self._end(self._closed_reason)

    def queue_declare_ok(self, channel: int, queue: str, messages: int, consumers: int) -> None:
        """Answer a QueueDeclare, unless it came with nowait."""
        if (found := self._channel(channel)) is not None:
            found.queue_declare_ok(queue, messages, consumers)

    def queue_delete_ok(self, channel: int, messages: int) -> None:
        """Answer a QueueDelete, unless it came with nowait."""
        if (found := self._channel(channel)) is not None:
            found.queue_delete_ok(messages)

    def queue_purge_ok(self, channel: int, messages: int) -> None:
        """Answer a QueuePurge, unless it came with nowait."""
        if (found := self._channel(channel)) is not None:
            found.queue_purge_ok(messages)

    def exchange_ok(self, channel: int, method: str) -> None:
        """Answer an ExchangeDeclare, ExchangeDelete or BindingChange by its ``method``, unless it came with nowait."""
        if (found := self._channel(channel)) is not None:
            found.exchange_ok(method)

    def tx_selected(self, channel: int, tracker: CommitTracker) -> None:
        """Answer a TxSelect. The tracker tells when all publishes of a transaction are resolved."""
        if (found := self._channel(channel)) is not None:
            found.tx_selected(tracker)

    def tx_ended(self, channel: int, *, committed: bool) -> None:
        """Answer a TxCommit, or else a TxRollback: what was acknowledged is unacknowledged again."""
        if (found := self._channel(channel)) is not None:
            found.tx_ended(committed=committed)

    def consume_ok(self, channel: int, consumer_tag: str) -> None:
        """Answer a Consume, before its first delivery."""
        if (found := self._channel(channel)) is not None:
            found.consume_ok(consumer_tag)

    def cancel_ok(self, channel: int, consumer_tag: str) -> None:
        """Answer a Cancel. No delivery to this consumer comes after it."""
        if (found := self._channel(channel)) is not None:
            found.cancel_ok(consumer_tag)

    def set_apart(self, channel: int, consumer_tag: str) -> str:
        """From now on the tag, or the gets of a queue, stand for another queue. Returns the name under which the
        messages that were delivered before are settled."""
        found = self._channel(channel)
        return found.set_apart(consumer_tag) if found is not None else ""

    def cancelled_by_broker(self, channel: int, consumer_tag: str) -> None:
        """End a subscription that the client did not end: basic.cancel, if the client understands it."""
        if (found := self._channel(channel)) is not None:
            found.cancelled_by_broker(consumer_tag)

    def blocked(self, reason: str) -> None:
        """Tell the client that its publishes are not read for now, if the client understands that."""
        if self.is_open and "connection.blocked" in self.state.capabilities:
            self.state.send(0, commands.Connection.Blocked(reason))

    def unblocked(self) -> None:
        """Tell the client that its publishes are read again."""
        if self.is_open and "connection.blocked" in self.state.capabilities:
            self.state.send(0, commands.Connection.Unblocked())

    def _channel(self, number: int) -> Channel | None:
        """The channel of this number, if it is open and not closing."""
        channel = self._channels.get(number)
        return None if channel is None or channel.closing else channel
