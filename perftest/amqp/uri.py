"""AMQP URIs: ``amqp://user:password@host:port/vhost``, each part percent-encoded, each part optional; ``amqps`` is TLS.

The rules are those of RabbitMQ's URI specification: a missing path is the virtual host ``/``, an empty path
(``amqp://host/``) is the virtual host with the empty name, ``%2f`` in the path is a slash. Of RabbitMQ's query
parameters ``heartbeat`` and ``connection_timeout`` (ms) are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

DEFAULT_PORT: Final = 5672
DEFAULT_TLS_PORT: Final = 5671


class UriError(ValueError):
    """The text is not a usable AMQP URI. The message says what is wrong, and does not contain the password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpUri:
    """Host, user and virtual host of a connection. ``str()`` and ``repr()`` never show the password. ``unused`` are the
    names of query parameters without an effect here."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    tls: bool = False
    heartbeat_s: int | None = None
    timeout_s: float | None = None
    unused: tuple[str, ...] = ()

    @property
    def redacted(self) -> str:
        """The URI with ``***`` for the password: what may be printed and stored."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{quote(self.user, safe='')}:***@{host}:{self.port}/{quote(self.vhost, safe='')}"

    def __str__(self) -> str:
        return self.redacted


def parse_uri(text: str) -> AmqpUri:
    """Read a URI.

    Raises :class:`UriError` for another scheme, a port that is no number from 1 to 65535, a query parameter that is no
    number, or a path with more than one segment (a slash in a virtual host's name is written ``%2f``).
    """
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UriError("the host is not readable; an IPv6 address is written [::1]") from error
    if parts.scheme not in ("amqp", "amqps"):
        raise UriError(f"the scheme is {parts.scheme or 'missing'!r}; an AMQP URI starts with amqp:// or amqps://")
    for mark, part in (("/ (%2f)", parts.path), ("? (%3f)", parts.query), ("# (%23)", parts.fragment)):
        if "@" in part:
            raise UriError(f"{mark[0]} in a user or a password is written {mark[3:6]}")
    if parts.fragment:
        raise UriError("an AMQP URI has no fragment: write %23 for a #")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return AmqpUri(
        heartbeat_s=_number(query.pop("heartbeat", None), "heartbeat", "seconds", 65_535),
        timeout_s=_seconds(_number(query.pop("connection_timeout", None), "connection_timeout", "ms", 10**7)),
        unused=tuple(query),
        host=unquote(parts.hostname or "127.0.0.1"),
        port=_port(text, DEFAULT_TLS_PORT if parts.scheme == "amqps" else DEFAULT_PORT),
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=_vhost(parts.path),
        tls=parts.scheme == "amqps",
    )


def _number(text: str | None, name: str, unit: str, most: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= most):
        raise UriError(f"{name}={text[:20]} must be a whole number of {unit}, at most {most}")
    return int(text)


def _seconds(number_ms: int | None) -> float | None:
    return number_ms / 1000 if number_ms else None


def _port(text: str, default: int) -> int:
    try:
        port = urlsplit(text).port
    except ValueError as error:
        raise UriError("the port must be a number from 1 to 65535") from error
    if port == 0:
        raise UriError("the port must be a number from 1 to 65535")
    return default if port is None else port


def _vhost(path: str) -> str:
    if not path:
        return "/"
    if "/" in path[1:]:
        raise UriError("a slash in a virtual host's name is written %2f")
    return unquote(path[1:])
