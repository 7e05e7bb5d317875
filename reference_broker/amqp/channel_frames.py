"""Frames on the channels of an open connection, one at a time: what the fast paths leave.

A channel number is free, open, or closing; what may come on it depends on that, and on an open one on whether a content
is being assembled. A soft error closes the channel it happened on and goes no further.
"""

from __future__ import annotations

from typing import Final

from pamqp import commands

from reference_broker.amqp.channel import Channel
from reference_broker.amqp.closing import Closing
from reference_broker.amqp.errors import NO_METHOD, HardError, MethodId, ReplyCode, SoftError
from reference_broker.amqp.fields import decode_method, method_id
from reference_broker.amqp.frames import HEADER, METHOD
from reference_broker.amqp.link import ConnectionConfig

_CHANNEL_OPEN: Final[MethodId] = (20, 10)
_CHANNEL_CLOSE: Final[MethodId] = (20, 40)
_CHANNEL_CLOSE_OK: Final[MethodId] = (20, 41)
_BASIC_PUBLISH: Final[MethodId] = (60, 40)
_CONNECTION_CLASS: Final = 10
PUBLISH_OCTETS: Final = b"\x00\x3c\x00\x28"
"""Class and method of basic.publish, as they begin its payload."""


class ChannelFrames(Closing):
    """Reads one frame of a channel other than 0."""

    def __init__(self, config: ConnectionConfig, now_s: float) -> None:
        super().__init__(config, now_s)
        self._channel_max = config.channel_max

    def _channel_frame(self, kind: int, number: int, payload: bytes, frame: bytes) -> None:
        channel = self._channels.get(number)
        if channel is None:
            self._open_channel(kind, number, payload)
        elif channel.closing:
            self._frame_while_closing(channel, kind, payload)
        else:
            try:
                self._frame_on_open_channel(channel, kind, payload, frame)
            except SoftError as error:
                self._close_channel(channel, error)

    def _open_channel(self, kind: int, number: int, payload: bytes) -> None:
        if kind != METHOD:
            raise HardError(ReplyCode.CHANNEL_ERROR, f"expected 'channel.open' on channel {number}")
        at_fault = method_id(payload)
        if at_fault[0] == _CONNECTION_CLASS:
            raise HardError(ReplyCode.COMMAND_INVALID, f"connection method on channel {number}", at_fault)
        if at_fault != _CHANNEL_OPEN:
            raise HardError(ReplyCode.CHANNEL_ERROR, f"expected 'channel.open' on channel {number}", at_fault)
        decode_method(payload)
        if len(self._channels) >= self._channel_max:
            text = f"number of channels opened ({len(self._channels)}) has reached the negotiated channel_max"
            raise HardError(ReplyCode.NOT_ALLOWED, f"{text} ({self._channel_max})", at_fault)
        self._channels[number] = Channel(number, self._link)
        self._link.send(number, commands.Channel.OpenOk())

    def _frame_while_closing(self, channel: Channel, kind: int, payload: bytes) -> None:
        """We sent channel.close: nothing counts until its answer, and the client's own close gets one too."""
        at_fault = method_id(payload) if kind == METHOD else NO_METHOD
        if at_fault == _CHANNEL_CLOSE_OK:
            del self._channels[channel.number]
        elif at_fault == _CHANNEL_CLOSE:
            self._link.send(channel.number, commands.Channel.CloseOk())

    def _frame_on_open_channel(self, channel: Channel, kind: int, payload: bytes, frame: bytes) -> None:
        if kind == METHOD:
            self._method_on_channel(channel, payload, frame)
            return
        assembly = channel.assembly
        if assembly is None:
            what = "content header" if kind == HEADER else "non method"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, f"expected method frame, got {what} frame instead")
        content = assembly.header(payload) if kind == HEADER else assembly.body(payload)
        if content is not None:
            channel.end_content()
            self._runs.add_publish(assembly.route, content, 1, None, assembly.ttl_ms)

    def _method_on_channel(self, channel: Channel, payload: bytes, frame: bytes) -> None:
        at_fault = method_id(payload)
        if channel.assembly is not None:
            due = channel.assembly.due
            text = f"expected content {due}, got non content {due} frame instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, _BASIC_PUBLISH)
        if at_fault == _BASIC_PUBLISH:
            route = self._publishes.route(frame)
            assert route is not None, "a publish on an open channel is learned before it gets here"
            channel.begin_content(route)
            return
        method = decode_method(payload)
        if at_fault == _CHANNEL_OPEN:
            raise HardError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", at_fault)
        if at_fault[0] == _CONNECTION_CLASS:
            raise HardError(ReplyCode.COMMAND_INVALID, f"connection method on channel {channel.number}", at_fault)
        if at_fault == _CHANNEL_CLOSE:
            self._forget_channel(channel)
            del self._channels[channel.number]
            self._link.send(channel.number, commands.Channel.CloseOk())
        elif at_fault == _CHANNEL_CLOSE_OK:
            text = f"'channel.close-ok' on channel {channel.number}, which the broker has not closed"
            raise HardError(ReplyCode.COMMAND_INVALID, text, at_fault)
        else:
            channel.handle(method)

    def _learn_route(self, frame: bytes, number: int, payload: bytes) -> bool:
        """Whether the frame is a basic.publish whose route was not known and now is."""
        channel = self._channels.get(number)
        if payload[:4] != PUBLISH_OCTETS or channel is None or channel.closing or channel.assembly is not None:
            return False
        if self._publishes.route(frame) is not None:
            return False
        method = decode_method(payload)
        assert isinstance(method, commands.Basic.Publish)
        try:
            self._publishes.learn(frame, channel.route(method))
        except SoftError as error:
            self._close_channel(channel, error)
        return True
