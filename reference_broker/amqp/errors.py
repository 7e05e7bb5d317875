"""The errors that a client can make, divided as the AMQP specification divides them.

A *soft* error closes the channel, a *hard* error closes the connection. Both name a reply code and the method at fault;
the client reads them in channel.close or connection.close. A :class:`NegotiationError` happens before the connection is
open. RabbitMQ sends no answer to it and closes the socket three seconds later, which slows down the guessing of
passwords. Clients know this behaviour.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pamqp import base, commands

MethodId = tuple[int, int]
"""Class and method number; (0, 0) where no method is at fault."""

NO_METHOD: Final[MethodId] = (0, 0)
BASIC_PUBLISH: Final[MethodId] = (60, 40)
REPLY_TEXT_OCTETS_MAX: Final = 255


class ReplyCode(IntEnum):
    """The reply codes of AMQP 0-9-1 (section 1.2) and of RabbitMQ. 402 and 502 occur neither in RabbitMQ nor here."""

    NO_ROUTE = 312
    CONNECTION_FORCED = 320
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


class ProtocolError(Exception):
    """The client broke a rule. ``text`` is for the person who reads the client's log."""

    def __init__(self, code: int, text: str, method: MethodId = NO_METHOD) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.method = method


class SoftError(ProtocolError):
    """An error that closes its channel: a channel-level exception."""


class HardError(ProtocolError):
    """An error that closes the connection: a connection-level exception."""


class NegotiationError(Exception):
    """A violation while login and limits are negotiated. The socket closes after three seconds, without a word."""


def printable(text: str) -> str:
    """The text with its control characters escaped, because text from a client must not forge lines of a log."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def reply_text(code: int, text: str) -> str:
    """``NOT_FOUND - no queue 'q' in vhost '/'``: printable, and cut to fit a short string."""
    try:
        text = f"{ReplyCode(code).name} - {text}"
    except ValueError:
        text = f"{code} - {text}"
    octets = printable(text).encode("utf-8", "replace")
    if len(octets) <= REPLY_TEXT_OCTETS_MAX:
        return octets.decode()
    return octets[: REPLY_TEXT_OCTETS_MAX - 3].decode("utf-8", "ignore") + "..."


def method_by_name(name: str) -> MethodId:
    """The method of a name: (50, 10) for ``queue.declare``, (0, 0) for an unknown name."""
    return _METHODS_BY_NAME.get(name.lower().replace("-", "").replace("_", ""), NO_METHOD)


_ALL_METHODS: Final[dict[int, type[base.Frame]]] = commands.INDEX_MAPPING
_METHODS_BY_NAME: Final[dict[str, MethodId]] = {
    str(kind.name).lower(): (index >> 16, index & 0xFFFF) for index, kind in _ALL_METHODS.items()
}
