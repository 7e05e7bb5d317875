"""The options of a connection beside its URI: settings of AMQP, of the socket and of TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from perftest.amqp.errors import TlsError

FRAME_MAX: Final = 131072
"""The largest frame to agree on, unless more is asked for. It is RabbitMQ's own default, and large enough that the
socket limits the runs of 1 KB messages."""

FRAME_MIN: Final = 4096
"""AMQP's ``frame-min-size``: the smallest ``frame_max`` that AMQP allows."""

FRAME_LIMIT: Final = 1 << 24
"""The largest frame of all, whatever is asked for: every connection has a buffer of two frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """An option that is not set takes the value that the broker offers.

    ``heartbeat_s``
        0 switches heartbeats off; None takes the broker's.
    ``frame_max``
        octets; the broker's is the limit. None or 0: the broker's, up to :data:`FRAME_MAX`.
    ``external``
        SASL EXTERNAL in place of user and password.
    ``send_buffer``, ``receive_buffer``
        octets of the socket's buffers; 0 leaves them to the system.
    ``tls``, ``server_name``
        for ``amqps`` URIs. Without ``server_name``, the certificate must be for the host of the URI.
    """

    heartbeat_s: int | None = None
    frame_max: int | None = None
    external: bool = False
    send_buffer: int = 0
    receive_buffer: int = 0
    no_delay: bool = True
    tls: ssl.SSLContext | None = None
    server_name: str = ""

    @property
    def frame_limit(self) -> int:
        """The greatest frame that may be agreed on."""
        return min(max(self.frame_max or FRAME_MAX, FRAME_MIN), FRAME_LIMIT)


def tls_context(
    *, ca_file: str = "", cert_file: str = "", key_file: str = "", system_authorities: bool = False
) -> ssl.SSLContext:
    """The settings of TLS. With authorities, from a file or the system's, the broker's certificate and its name are
    checked. Without authorities, nothing is checked. The key may be in the file of the certificate.

    Raises :class:`TlsError` for a file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file:
        _load(ca_file, "authorities", lambda: context.load_verify_locations(ca_file))
    if system_authorities:
        context.load_default_certs()
    if not ca_file and not system_authorities:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file:
        files = cert_file if not key_file else f"{cert_file}, {key_file}"
        _load(files, "certificate and key", lambda: context.load_cert_chain(cert_file, key_file or None, password=""))
    elif key_file:
        raise TlsError(f"there is a key ({key_file}), but no certificate for it")
    return context


def _load(files: str, what: str, action: Callable[[], object]) -> None:
    try:
        action()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise TlsError(f"{what} cannot be read from {files}: {reason}") from error
