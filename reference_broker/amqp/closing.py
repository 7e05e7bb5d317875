"""How a connection and its channels end, whoever ends them.

An error of the client's closes its channel (*soft*) or the connection (*hard*); the broker may do the same. A closing
channel is deaf until its channel.close-ok, a closing connection searches its input for the client's last words: after
a hard error the octets may have lost their framing, so nothing of it is parsed any more.

Invariants: ChannelClosed is emitted once for each channel that was opened, before ConnectionClosed; after
ConnectionClosed there are no events; a closed or closing channel gets no frame but its channel.close or close-ok.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from pamqp import commands

from reference_broker.amqp.channel import Channel
from reference_broker.amqp.errors import HardError, ProtocolError, SoftError, method_by_name, reply_text
from reference_broker.amqp.events import ChannelClosed, ConnectionClosed, Event
from reference_broker.amqp.fastpath import PublishReader
from reference_broker.amqp.frames import Inbox
from reference_broker.amqp.link import ConnectionConfig, Link
from reference_broker.amqp.outbound import Outbound
from reference_broker.amqp.runs import RunBuilder
from reference_broker.amqp.unread import Unread

_LAST_WORDS: Final = re.compile(
    rb"\x01\x00\x00(?:\x00\x00\x00\x04\x00\x0a\x00\x33\xce|(?P<close>\x00\x00..\x00\x0a\x00\x32))", re.DOTALL
)
"""A frame of connection.close-ok, or the beginning of one of connection.close."""
_LAST_WORDS_OCTETS: Final = 12


class Phase(Enum):
    """How far the connection has come."""

    HEADER = auto()
    STARTING = auto()
    TUNING = auto()
    OPENING = auto()
    RUNNING = auto()
    CLOSING = auto()
    REFUSING = auto()
    CLOSED = auto()


OVER: Final = frozenset({Phase.CLOSING, Phase.REFUSING, Phase.CLOSED})


class Closing(Outbound):
    """The state that matters when something ends, and the ends."""

    def __init__(self, config: ConnectionConfig, now_s: float) -> None:
        super().__init__(Link(config))
        self._config = config
        self._inbox = Inbox()
        self._unread = Unread(self._channels)
        self._runs = RunBuilder(self._link)
        self._publishes = PublishReader(self._link, self._runs)
        self._phase = Phase.HEADER
        self._closed_reason = ""
        self._now_s = now_s
        self._give_up_s: float | None = now_s + config.handshake_timeout_s

    def _take_events(self) -> list[Event]:
        events = self._link.events[:]
        self._link.events.clear()
        return events

    def _close_channel_of(self, buffer: bytes, at: int, error: SoftError) -> None:
        self._close_channel(self._channels[int.from_bytes(buffer[at + 1 : at + 3], "big")], error)

    def _close_channel(self, channel: Channel, error: ProtocolError) -> None:
        """Send channel.close and drop what comes until the answer."""
        self._runs.flush()
        self._forget_channel(channel)
        channel.closing = True
        class_id, method = error.method
        close = commands.Channel.Close(error.code, reply_text(error.code, error.text), class_id, method)
        self._link.send(channel.number, close)

    def hold(self, channel: int) -> None:
        """The broker owes the channel an answer: what its client sends from here on waits for :meth:`release`."""
        if (found := self._channel(channel)) is not None:
            found.takes_runs = False
            self._unread.hold(found)

    def release(self, channel: int) -> None:
        """The channel has its answer: what waits is read next."""
        if (found := self._channel(channel)) is not None and found.held is not None:
            found.takes_runs = found.assembly is None
            self._unread.release(found)

    @property
    def held_octets(self) -> int:
        """How much was received that waits for answers of the broker."""
        return self._unread.held_octets

    def channel_error(self, channel: int, code: int, text: str, method_name: str = "") -> list[Event]:
        """Close a channel with an exception. ``method_name`` is the one at fault, such as ``queue.declare``."""
        if (found := self._channel(channel)) is not None:
            self._close_channel(found, SoftError(code, text, method_by_name(method_name)))
        return self._take_events()

    def connection_error(self, code: int, text: str) -> list[Event]:
        """Close the connection with an exception, for example 320 when the node stops."""
        if self._phase not in OVER:
            self._close_connection(HardError(code, text))
        return self._take_events()

    def _forget_channel(self, channel: Channel) -> None:
        """The channel's last confirms, and its end for the broker."""
        self._flush_channel_confirms(channel)
        self._confirming.pop(channel.number, None)
        self._publishes.forget()
        channel.assembly = None
        channel.takes_runs = False
        self._unread.release(channel)
        channel.consumers.clear()
        self._link.events.append(ChannelClosed(channel.number))

    def _drop_channels(self) -> None:
        for number, channel in self._channels.items():
            if not channel.closing:
                self._link.events.append(ChannelClosed(number))
        self._channels.clear()
        self._confirming.clear()
        self._publishes.forget()

    def _close_connection(self, error: ProtocolError) -> None:
        """Send connection.close and wait for the answer."""
        self._flush_confirms()
        self._drop_channels()
        class_id, method = error.method
        text = reply_text(error.code, error.text)
        self._link.send(0, commands.Connection.Close(error.code, text, class_id, method))
        self._phase = Phase.CLOSING
        self._closed_reason = f"{error.code} {text}"
        self._give_up_s = self._now_s + self._config.close_timeout_s
        self._inbox.relax()

    def _refuse(self, reason: str) -> None:
        self._phase = Phase.REFUSING
        self._closed_reason = reason
        self._give_up_s = self._now_s + self._config.refusal_delay_s
        self._inbox.relax()

    def _search_last_words(self, buffer: bytes) -> None:
        """Anything but the client's answer to our close is of no interest any more."""
        found = _LAST_WORDS.search(buffer) if self._phase is Phase.CLOSING else None
        if found is None:
            self._inbox.keep(buffer[-_LAST_WORDS_OCTETS:], 0)
            return
        if found["close"]:
            self._link.send(0, commands.Connection.CloseOk())
        self._end(self._closed_reason)

    def _end(self, reason: str) -> None:
        self._phase = Phase.CLOSED
        self._give_up_s = None
        self._link.events.append(ConnectionClosed(reason))
