"""The channels of one connection: how a channel opens, what may come on it, and how it ends.

The fast paths leave single frames to this module. A channel number is free, open, or closing, and that decides which
frames may come on it. An error of the client's is *soft* or *hard*. A soft error closes its channel: the table sends
channel.close, and drops every frame of that channel until channel.close-ok comes. A hard error closes the connection;
:class:`~reference_broker.amqp.connection.ServerConnection` takes care of it.

Invariants: each channel that was opened ends with one ChannelClosed event; a closing channel gets no frame but its
channel.close or channel.close-ok.
"""

from __future__ import annotations

from typing import Final

from pamqp import commands

from reference_broker.amqp.channel import Channel
from reference_broker.amqp.errors import (
    BASIC_PUBLISH,
    NO_METHOD,
    HardError,
    MethodId,
    ProtocolError,
    ReplyCode,
    reply_text,
)
from reference_broker.amqp.events import ChannelClosed
from reference_broker.amqp.fastpath import PublishReader, RunBuilder
from reference_broker.amqp.fields import decode_method, method_id
from reference_broker.amqp.frames import HEADER, METHOD
from reference_broker.amqp.state import ConnectionState
from reference_broker.amqp.unread import Unread

_CHANNEL_OPEN: Final[MethodId] = (20, 10)
_CHANNEL_CLOSE: Final[MethodId] = (20, 40)
_CHANNEL_CLOSE_OK: Final[MethodId] = (20, 41)
_CONNECTION_CLASS: Final = 10
PUBLISH_OCTETS: Final = b"\x00\x3c\x00\x28"
"""Class and method of basic.publish: the first octets of its payload."""


class ChannelTable:
    """The channels that are open or closing, by number."""

    __slots__ = ("_publishes", "_runs", "_state", "by_number", "confirming", "unread")

    def __init__(self, state: ConnectionState, runs: RunBuilder, publishes: PublishReader) -> None:
        self._state = state
        self._runs = runs
        self._publishes = publishes
        self.by_number: dict[int, Channel] = {}
        self.confirming: dict[int, Channel] = {}
        """The channels with confirms or rejections for their client."""
        self.unread = Unread(self.by_number)

    # -- frames ------------------------------------------------------------------------------------------------------

    def frame(self, kind: int, number: int, payload: bytes, octets: bytes) -> None:
        """Read one frame of a channel; ``octets`` is the whole frame if it is a method frame. Raises HardError, and
        SoftError for what closes the channel."""
        channel = self.by_number.get(number)
        if channel is None:
            self._open(kind, number, payload)
        elif channel.closing:
            self._frame_while_closing(channel, kind, payload)
        elif kind == METHOD:
            self._method(channel, payload, octets)
        else:
            self._content(channel, kind, payload)

    def _open(self, kind: int, number: int, payload: bytes) -> None:
        if kind != METHOD:
            text = f"content frame on channel {number}, which is not open"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text)
        at_fault = method_id(payload)
        if at_fault[0] == _CONNECTION_CLASS:
            raise HardError(ReplyCode.COMMAND_INVALID, f"connection method on channel {number}", at_fault)
        if at_fault != _CHANNEL_OPEN:
            raise HardError(ReplyCode.CHANNEL_ERROR, f"expected 'channel.open' on channel {number}", at_fault)
        decode_method(payload)
        limit = self._state.channel_max
        if len(self.by_number) >= limit:
            text = f"number of channels opened ({len(self.by_number)}) has reached the negotiated channel_max"
            raise HardError(ReplyCode.NOT_ALLOWED, f"{text} ({limit})", at_fault)
        if refusal := self._state.config.gate.why_no_channel(self._state.user):
            raise HardError(ReplyCode.NOT_ALLOWED, refusal, at_fault)
        self.by_number[number] = Channel(number, self._state)
        self._state.send(number, commands.Channel.OpenOk())

    def _frame_while_closing(self, channel: Channel, kind: int, payload: bytes) -> None:
        """The broker has sent channel.close. It waits for the answer, and answers the client's own channel.close."""
        at_fault = method_id(payload) if kind == METHOD else NO_METHOD
        if at_fault == _CHANNEL_CLOSE_OK:
            del self.by_number[channel.number]
        elif at_fault == _CHANNEL_CLOSE:
            self._state.send(channel.number, commands.Channel.CloseOk())

    def _content(self, channel: Channel, kind: int, payload: bytes) -> None:
        partial, route = channel.content, channel.content_route
        if partial is None or route is None:
            what = "content header" if kind == HEADER else "non method"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"expected method frame, got {what} frame instead")
        content = partial.header(payload) if kind == HEADER else partial.body(payload)
        if content is not None:
            channel.end_content()
            self._runs.add_publish(route, content, 1, None, partial.ttl_ms)

    def _method(self, channel: Channel, payload: bytes, octets: bytes) -> None:
        at_fault = method_id(payload)
        if channel.content is not None:
            due = channel.content.due
            text = f"expected content {due}, got non content {due} frame instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, BASIC_PUBLISH)
        if at_fault == BASIC_PUBLISH:
            route = self._publishes.route(octets)
            assert route is not None, "a publish on an open channel is learned before it gets here"
            channel.begin_content(route)
            return
        method = decode_method(payload)
        if at_fault == _CHANNEL_OPEN:
            raise HardError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", at_fault)
        if at_fault[0] == _CONNECTION_CLASS:
            raise HardError(ReplyCode.COMMAND_INVALID, f"connection method on channel {channel.number}", at_fault)
        if at_fault == _CHANNEL_CLOSE:
            self._closed_by_client(channel)
        elif at_fault == _CHANNEL_CLOSE_OK:
            text = f"'channel.close-ok' on channel {channel.number}, which the broker has not closed"
            raise HardError(ReplyCode.COMMAND_INVALID, text, at_fault)
        else:
            channel.handle(method, payload)

    def learn_route(self, octets: bytes, number: int, payload: bytes) -> bool:
        """Whether the frame is a basic.publish whose route was unknown until now. Raises HardError, and SoftError for
        what closes the channel."""
        channel = self.by_number.get(number)
        if payload[:4] != PUBLISH_OCTETS or channel is None or channel.closing or channel.content is not None:
            return False
        if self._publishes.route(octets) is not None:
            return False
        method = decode_method(payload)
        assert isinstance(method, commands.Basic.Publish)
        self._publishes.learn(octets, channel.route(method))
        return True

    # -- ends --------------------------------------------------------------------------------------------------------

    def _closed_by_client(self, channel: Channel) -> None:
        self._forget(channel, owes_ok=channel.closes_late)
        channel.closing = True
        self.unread.hold(channel)
        if not channel.closes_late:
            self.close_ok(channel)

    def close_ok(self, channel: Channel) -> None:
        """Answer the client's channel.close. The number is free, and the waiting frames are read."""
        del self.by_number[channel.number]
        self._state.send(channel.number, commands.Channel.CloseOk())
        self.unread.release(channel)

    def close(self, channel: Channel, error: ProtocolError) -> None:
        """Send channel.close, and drop the channel's frames until the answer."""
        self._runs.flush()
        self._forget(channel)
        channel.closing = True
        close = commands.Channel.Close(error.code, reply_text(error.code, error.text), *error.method)
        self._state.send(channel.number, close)

    def _forget(self, channel: Channel, *, owes_ok: bool = False) -> None:
        """Send the last confirms of the channel, and tell the broker that it ends."""
        if channel.confirms is not None and (frames := channel.confirms.flush(channel.number)):
            self._state.output.append(frames)
        self.confirming.pop(channel.number, None)
        self._publishes.forget()
        channel.end()
        self.unread.release(channel)
        self._state.events.append(ChannelClosed(channel.number, owes_ok))

    def end_all(self) -> None:
        """The connection ends, and all its channels with it."""
        for number, channel in self.by_number.items():
            if not channel.closing:
                self._state.events.append(ChannelClosed(number))
        self.by_number.clear()
        self.confirming.clear()
        self._publishes.forget()
