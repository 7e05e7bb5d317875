"""The ways a client can be wrong, as the AMQP specification divides them.

A *soft* error closes the channel, a *hard* error the connection; both name a reply code and the method that was
at fault, and the client reads them in channel.close or connection.close. A :class:`RefusedError` is a violation before
the connection is open: RabbitMQ answers these with nothing and closes the socket three seconds later, which slows
down guessing of passwords, and clients know it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pamqp import base, commands

MethodId = tuple[int, int]
"""Class and method number; (0, 0) where no method is at fault."""

NO_METHOD: Final[MethodId] = (0, 0)
REPLY_TEXT_OCTETS_MAX: Final = 255


class ReplyCode(IntEnum):
    """AMQP 0-9-1, section 1.2 and the RabbitMQ documentation. 402 and 502 never occur in RabbitMQ, nor here."""

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
    """The peer broke a rule. ``text`` is for the person who reads the client's log."""

    def __init__(self, code: int, text: str, method: MethodId = NO_METHOD) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.method = method


class SoftError(ProtocolError):
    """Closes the channel it happened on."""


class HardError(ProtocolError):
    """Closes the connection."""


class RefusedError(Exception):
    """Violation during the handshake: the socket is closed after three seconds, without a word."""


def printable(text: str) -> str:
    """The text with control characters escaped: what a client chose must not forge lines of a log."""
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
    """``queue.declare`` to (50, 10); (0, 0) for a name that is none."""
    return _METHODS_BY_NAME.get(name.lower().replace("-", "").replace("_", ""), NO_METHOD)


_ALL_METHODS: Final[dict[int, type[base.Frame]]] = commands.INDEX_MAPPING
_METHODS_BY_NAME: Final[dict[str, MethodId]] = {
    str(kind.name).lower(): (index >> 16, index & 0xFFFF) for index, kind in _ALL_METHODS.items()
}
