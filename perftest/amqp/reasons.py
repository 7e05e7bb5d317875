"""What the end of a connection, or of an attempt at one, means: the typed error for it."""

from __future__ import annotations

import ssl

from perftest.amqp.connection import Stage
from perftest.amqp.errors import (
    AmqpError,
    ConnectionClosedError,
    ConnectionLostError,
    LoginRefusedError,
    TlsError,
    UnreachableError,
    VhostRefusedError,
)
from perftest.amqp.events import ConnectionEnded
from perftest.amqp.uri import AmqpUri


def tls_error(error: ssl.SSLError, uri: AmqpUri) -> AmqpError:
    """What a failed handshake means. One that was cut off in the middle is a broker on its way down or up."""
    where = f"{uri.host}:{uri.port}"
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return UnreachableError(f"{where} broke the TLS handshake off")
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"the certificate of {where} is not trusted: {error.verify_message}")
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return TlsError(f"{where} does not speak TLS")
    return TlsError(f"no TLS with {where}: {(error.reason or str(error)).lower().replace('_', ' ')}")


def closed_error(event: ConnectionEnded) -> AmqpError:
    """The typed error for a connection.close, by the handshake step it answered."""
    if event.stage == "tune":
        return LoginRefusedError(event.code, event.text)
    if event.stage == "open":
        return VhostRefusedError(event.code, event.text, event.method)
    return ConnectionClosedError(event.code, event.text, event.method)


def lost_error(cause: Exception | None, uri: AmqpUri, stage: Stage) -> AmqpError:
    """The typed error for a socket that is gone without a word of AMQP, by where the handshake stood."""
    if isinstance(cause, ssl.SSLError) and stage in (Stage.START, Stage.TUNE, Stage.OPEN):
        return tls_error(cause, uri)
    reason = str(cause) if cause else "the broker closed the socket"
    if stage is Stage.START:
        what = "a certificate of this client" if uri.tls else "TLS, which is amqps://"
        reason = f"closed without a word; perhaps it wants {what}"
    elif stage is Stage.TUNE:
        reason = "the broker hung up after the login was sent, as some do when user or password are wrong"
    return ConnectionLostError(f"connection to {uri.host}:{uri.port} lost: {reason}")
