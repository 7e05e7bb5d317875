"""Puts contents together that come in several frames: deliveries the fast path has left, returned messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from pamqp import commands
from pamqp.header import ContentHeader

from perftest.amqp import deliveries
from perftest.amqp.errors import BrokerProtocolError
from perftest.amqp.events import Delivery, Event, Returned

ContentMethod = commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return


@dataclass(slots=True)
class Content:
    """A content that is being put together from several frames."""

    method: ContentMethod
    size: int = -1
    stamp: bytes | None = None
    pieces: list[bytes] = field(default_factory=list)
    got: int = 0


class Assembly:
    """``contents`` are those that are being put together, at most one for each channel."""

    def __init__(self) -> None:
        self.contents: dict[int, Content] = {}

    def begin(self, channel: int, method: ContentMethod) -> None:
        """The method before a content."""
        self.contents[channel] = Content(method)

    def header(self, channel: int, value: ContentHeader) -> list[Event]:
        """A content header: the message, if it has no body. Raises :class:`BrokerProtocolError`."""
        content = self.contents.get(channel)
        if content is None or content.size >= 0:
            raise BrokerProtocolError(f"a content header on channel {channel} where none was due")
        content.size = value.body_size
        content.stamp = _stamp_of(value)
        return self._finished(channel, content)

    def body(self, channel: int, octets: bytes) -> list[Event]:
        """A content body: the message, if this was the last of it. Raises :class:`BrokerProtocolError`."""
        content = self.contents.get(channel)
        if content is None or content.size < 0:
            raise BrokerProtocolError(f"a content body on channel {channel} where none was due")
        content.pieces.append(octets)
        content.got += len(octets)
        if content.got > content.size:
            raise BrokerProtocolError(f"a body of {content.got} octets; the header announced {content.size}")
        return self._finished(channel, content)

    def _finished(self, channel: int, content: Content) -> list[Event]:
        if content.got < content.size:
            return []
        del self.contents[channel]
        octets, method = b"".join(content.pieces), content.method
        if isinstance(method, commands.Basic.Return):
            return [Returned(channel, method.reply_code or 0, method.reply_text, octets, content.stamp)]
        return [Delivery(channel, method.delivery_tag or 0, bool(method.redelivered), octets, content.stamp)]


def _stamp_of(value: ContentHeader) -> bytes | None:
    """The stamp in a header of the message. pamqp takes a long string that happens to be UTF-8 for text."""
    stamp: object = (value.properties.headers or {}).get(deliveries.STAMP_HEADER)
    octets = stamp.encode() if isinstance(stamp, str) else stamp
    return octets if isinstance(octets, bytes) and len(octets) == deliveries.STAMP_OCTETS else None
