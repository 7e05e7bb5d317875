"""Puts together the contents that come in several frames: deliveries that the fast path has left, returned messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from pamqp import commands
from pamqp.header import ContentHeader

from perftest.amqp import fastpath
from perftest.amqp.errors import BrokerProtocolError
from perftest.amqp.events import Delivery, Event, Returned

ContentMethod = commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return


@dataclass(slots=True)
class PartialContent:
    """A content that is not complete yet."""

    method: ContentMethod
    size: int = -1
    stamp: bytes | None = None
    pieces: list[bytes] = field(default_factory=list)
    got: int = 0


class PartialContents:
    """The contents that are not complete yet: at most one for each channel."""

    def __init__(self) -> None:
        self.by_channel: dict[int, PartialContent] = {}

    def begin(self, channel: int, method: ContentMethod) -> None:
        """A method came whose content must come next."""
        self.by_channel[channel] = PartialContent(method)

    def header(self, channel: int, value: ContentHeader) -> list[Event]:
        """Take a content header. Returns the message if it has no body. Raises :class:`BrokerProtocolError`."""
        content = self.by_channel.get(channel)
        if content is None or content.size >= 0:
            raise BrokerProtocolError(f"a content header on channel {channel} where none was due")
        content.size = value.body_size
        content.stamp = _stamp_of(value)
        return self._finished(channel, content)

    def body(self, channel: int, octets: bytes) -> list[Event]:
        """Take a part of the body. Returns the message if it is complete. Raises :class:`BrokerProtocolError`."""
        content = self.by_channel.get(channel)
        if content is None or content.size < 0:
            raise BrokerProtocolError(f"a content body on channel {channel} where none was due")
        content.pieces.append(octets)
        content.got += len(octets)
        if content.got > content.size:
            raise BrokerProtocolError(f"a body of {content.got} octets; the header announced {content.size}")
        return self._finished(channel, content)

    def _finished(self, channel: int, content: PartialContent) -> list[Event]:
        if content.got < content.size:
            return []
        del self.by_channel[channel]
        octets, method = b"".join(content.pieces), content.method
        if isinstance(method, commands.Basic.Return):
            return [Returned(channel, method.reply_code or 0, method.reply_text, octets, content.stamp)]
        return [Delivery(channel, method.delivery_tag or 0, bool(method.redelivered), octets, content.stamp)]


def _stamp_of(value: ContentHeader) -> bytes | None:
    """The stamp in a header of the message. pamqp decodes a long string as text if it happens to be UTF-8."""
    stamp: object = (value.properties.headers or {}).get(fastpath.STAMP_HEADER)
    octets = stamp.encode() if isinstance(stamp, str) else stamp
    return octets if isinstance(octets, bytes) and len(octets) == fastpath.STAMP_OCTETS else None
