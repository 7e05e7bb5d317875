"""The errors between this client and a broker, divided as AMQP divides them.

:class:`ChannelClosedError` is a channel-level exception: one channel ends, the connection lives.
:class:`ConnectionClosedError` is a connection-level exception. :class:`ConnectionLostError` means that the socket ended
or fell silent without a word from the broker. :class:`BrokerProtocolError` means that the broker broke the protocol.
Misuse of this client is ``ValueError`` or ``AssertionError``, never one of these errors.
"""

from __future__ import annotations

from typing import Final

REPLY_CONTENT_TOO_LARGE: Final = 311
REPLY_CONNECTION_FORCED: Final = 320
REPLY_ACCESS_REFUSED: Final = 403
REPLY_NOT_FOUND: Final = 404
REPLY_FRAME_ERROR: Final = 501
REPLY_RESOURCE_ERROR: Final = 506
REPLY_INTERNAL_ERROR: Final = 541

TEMPORARY_CONNECTION_CODES: Final = frozenset({REPLY_CONNECTION_FORCED, REPLY_RESOURCE_ERROR, REPLY_INTERNAL_ERROR})
TEMPORARY_CHANNEL_CODES: Final = frozenset({REPLY_CONTENT_TOO_LARGE, REPLY_RESOURCE_ERROR, REPLY_INTERNAL_ERROR})
NODE_DOWN: Final = "is down or inaccessible"
"""RabbitMQ's words for a classic queue that is there, on a node that is not."""


class AmqpError(Exception):
    """Base of this package. ``temporary`` says whether trying again, maybe elsewhere, can help."""

    temporary = False


class UnreachableError(AmqpError):
    """No TCP connection: refused, no route, unknown host, or no answer in time."""

    temporary = True


class ConnectionLostError(AmqpError):
    """The connection ended without connection.close, or nothing came for two heartbeats."""

    temporary = True


class BrokerProtocolError(AmqpError):
    """The broker sent octets that AMQP 0-9-1 does not allow. The connection cannot go on."""


class TlsError(AmqpError):
    """No TLS connection: a certificate that is not trusted, a file that cannot be read, or a port without TLS."""


class MechanismError(BrokerProtocolError):
    """The broker does not offer the login mechanism that was asked for."""


class NoChannelLeftError(AmqpError):
    """The broker allows no more channels on the connection."""


class ReplyError(AmqpError):
    """The broker gave a reply code and a text."""

    def __init__(self, code: int, text: str, method: str = "") -> None:
        super().__init__(f"{code} {text}" + (f" (in answer to {method})" if method else ""))
        self.code = code
        self.text = text
        self.method = method


class ChannelClosedError(ReplyError):
    """The broker has closed a channel: channel.close."""

    @property
    def temporary(self) -> bool:  # type: ignore[override]
        """311, 506 and 541 pass by themselves, and so does the 404 of a queue whose node is down. 403, 405, 406 and any
        other 404 say that the request itself is wrong."""
        return self.code in TEMPORARY_CHANNEL_CODES or (self.code == REPLY_NOT_FOUND and NODE_DOWN in self.text)


class ConnectionClosedError(ReplyError):
    """The broker has closed the connection: connection.close."""

    @property
    def temporary(self) -> bool:  # type: ignore[override]
        """320 (an operator or a shutdown), 506 and 541 pass by themselves."""
        return self.code in TEMPORARY_CONNECTION_CODES


class LoginRefusedError(ReplyError):
    """The user or the password is not accepted (403 in answer to the login)."""


class VhostRefusedError(ReplyError):
    """connection.open was answered with a close: no such virtual host, or no permission for it."""

    @property
    def temporary(self) -> bool:  # type: ignore[override]
        """541 passes by itself: the virtual host is down on that node, or the node is just starting."""
        return self.code in TEMPORARY_CONNECTION_CODES
