"""Connections of pika to a node, and their end.

Most tests speak to a broker with pika, because it is not ours. All of them connect here.
"""

from __future__ import annotations

from typing import Any, Protocol

import pika

DEADLINE_S = 60
_OPENED: list[pika.BlockingConnection] = []


class _Node(Protocol):
    @property
    def uri(self) -> str: ...


def parameters_of(at: str | _Node, vhost: str = "", user: str = "", password: str = "secret") -> pika.URLParameters:
    """Parameters of a connection to a URI or a node that gives up after ``DEADLINE_S``, not after hours."""
    parameters = pika.URLParameters(at if isinstance(at, str) else at.uri)
    parameters.socket_timeout = parameters.blocked_connection_timeout = DEADLINE_S
    if vhost:
        parameters.virtual_host = vhost
    if user:
        parameters.credentials = pika.PlainCredentials(user, password)
    return parameters


def connect(at: str | _Node, **more: Any) -> pika.BlockingConnection:
    """A connection as ``guest``, or with what :func:`parameters_of` takes besides.

    Raises what :class:`pika.BlockingConnection` raises.
    """
    connection = pika.BlockingConnection(parameters_of(at, **more))
    _OPENED.append(connection)
    return connection


def let_go() -> None:
    """Close the loops of all connections that have ended, however they did.

    pika leaves the two sockets with which its loop wakes itself to the garbage collector if a connection ends while
    nobody waits for anything of it. What the collector finds then counts against whichever test happens to run.
    """
    for connection in [each for each in _OPENED if each.is_closed]:
        connection._impl.ioloop.close()
        _OPENED.remove(connection)
