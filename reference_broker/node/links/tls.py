"""TLS on the links and on the control port: certificates of both sides, checked by both sides. And TLS for clients.

A node shows the same certificate to the nodes that dial it and to the nodes that it dials. The name in the certificate
is the name of the node, so a certificate goes with its node from address to address. Both sides check the other one's
certificate against the authority of the cluster. TLS comes before the handshake and does not replace it: the secret
still has to be proved, now over a connection that others can neither read nor change.

A :class:`TlsDoor` stands before a port with TLS. It takes a connection through TLS and hands it on as if TLS were not
there. So a port without TLS has no door, and costs nothing more.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from reference_broker.node.config import ClientTls, ConfigError, Tls
from reference_broker.node.links.strangers import Strangers

_RECIPE: Final = "docs/internals/node.md, section TLS, has the commands that make certificates"


def server_context(tls: Tls) -> ssl.SSLContext:
    """For connections to this node. Raises :class:`ConfigError`."""
    return _context(ssl.PROTOCOL_TLS_SERVER, tls)


def client_context(tls: Tls) -> ssl.SSLContext:
    """For the nodes that this node dials. Raises :class:`ConfigError`."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, tls)


_CLIENT_CERTIFICATES: Final = {
    "none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED,
}  # fmt: skip


def clients_context(tls: ClientTls) -> ssl.SSLContext:
    """For clients of AMQP. Raises :class:`ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, tls.certificate, tls.key, tls.ca)
    context.verify_mode = _CLIENT_CERTIFICATES[tls.client_certificates]
    return context


def _context(protocol: int, tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, tls.certificate, tls.key, tls.ca)
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str, ca: str) -> None:
    """Have the context use these files, ``ca`` if it is not empty. Raises :class:`ConfigError`."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    named = [file for file in (certificate, key, ca) if file]
    for file in named:
        try:
            with Path(file).open("rb"):
                pass
        except OSError as error:
            raise ConfigError(f"a file for TLS cannot be read: {error.strerror}", str(file), _RECIPE) from error
    if Path(key).stat().st_mode & 0o077:
        raise ConfigError("the key for TLS is open to other users", str(key), f"chmod 600 {key}")
    try:
        context.load_cert_chain(certificate, key)
        if ca:
            context.load_verify_locations(ca)
    except (ssl.SSLError, OSError) as error:
        what = f"these are no certificate, key and authority for TLS: {_words(error)}"
        raise ConfigError(what, ", ".join(named), _RECIPE) from error


def reason(error: BaseException) -> str:
    """Why TLS with the other side failed, for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {_words(error)}"
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "TLS was not done in time"
    return "it does not speak TLS, or one side does not accept the other's certificate: its log may say why"


def _words(error: Exception) -> str:
    """OpenSSL's words, without numbers and places in its source."""
    words = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(words).replace("_", " ").lower()


def names(transport: asyncio.BaseTransport) -> list[str] | None:
    """The names in the other side's certificate; None without TLS."""
    certificate = transport.get_extra_info("peercert")
    if certificate is None:
        return None
    return [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]


class TlsDoor(asyncio.Protocol):
    """One connection on its way through TLS. ``behind`` makes the protocol that gets the connection then.

    The connection is taken over as a socket. An event loop begins to read a new connection whether its protocol wants
    that or not, so the first octets of TLS could otherwise be read before TLS has begun, and be lost.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        timeout_s: float,
        behind: Callable[[], asyncio.Protocol],
        strangers: Strangers,
        complain: Callable[[str], None],
        has_room: Callable[[int], bool] = lambda _number: True,
    ) -> None:
        """``has_room``: whether the connection may be the open file of a number. It gets another number here than the
        kernel gave it first, and the first is free again."""
        self._context = context
        self._timeout_s = timeout_s
        self._behind = behind
        self._strangers = strangers
        self._complain = complain
        self._has_room = has_room
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin TLS."""
        address: Any = transport.get_extra_info("peername") or ("an unknown address", 0)
        taken = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        taken.setblocking(False)
        cast(asyncio.Transport, transport).abort()  # this closes one of two descriptors, and sends nothing
        if not self._has_room(taken.fileno()):
            taken.close()
            return
        self._strangers.add(self)
        self._task = asyncio.get_running_loop().create_task(self._open(taken, f"{address[0]}:{address[1]}"))

    def close(self) -> None:
        """Drop the connection."""
        if self._task is not None:
            self._task.cancel()

    async def _open(self, taken: socket.socket, address: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._behind, taken, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )
        except (TimeoutError, OSError) as error:
            self._complain(f"connection from {address} refused: {reason(error)}")
            taken.close()
        except asyncio.CancelledError:
            taken.close()
            raise
        finally:
            self._strangers.remove(self)
