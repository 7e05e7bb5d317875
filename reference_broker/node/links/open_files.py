"""The limits of clients: the configuration, and the files that a process may have open.

Every connection is an open file for the kernel, as is every file of the log. A node without a free file could not begin
a segment, and would have to stop. So a node raises its limit to the system's, and keeps a quarter back from clients of
all its ports. When the rest is taken, a new client is turned away: its socket is closed at once, and the log says why.

Connections without proof at the ports for nodes and operators (*strangers*) do use the reserve, because a stranger
looks like another node before the proof. All strangers together get a quarter of the reserve.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from reference_broker.node.config import Limits
from reference_broker.node.links.strangers import Complaints
from reference_broker.storage.errors import MORE_FILES, lacks_files

_KEPT: Final = 4
"""The divisor of the limit of open files that gives the files kept back from clients."""
_STRANGERS_KEPT: Final = 8
"""The divisor of the files kept back that gives the share of strangers at one port. Two ports have strangers."""
_HTTP_SHARE: Final = 4
"""The divisor of the places of clients that gives the share of the HTTP port, if that is less than its limit."""


def raise_limit() -> None:
    """Allow this process as many open files as the system does (``ulimit -n``: the hard limit)."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shared_max() -> int:
    """Number of open files, the log's among them, up to which clients still come in."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - soft // _KEPT


def strangers_max(limits: Limits) -> int:
    """The most strangers at a port: ``strangers_max``, and fewer if few files are kept back."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(limits.strangers_max, soft // _KEPT // _STRANGERS_KEPT))


def lowest_free() -> int:
    """The number that the next open file gets, or would get if there could be one more.

    The lowest free number of a file. At least this number of files is open, of any kind, also connections that no part
    of the node knows yet. To ask takes a microsecond, to count the files would take milliseconds.
    """
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        if lacks_files(error):
            return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise
    os.close(number)
    return number


@dataclass(frozen=True, slots=True)
class ClientCrowd:
    """The connected clients, and which of them are not logged in yet."""

    connected: int
    logging_in: int
    lacks_memory: bool


def why_no_client(crowd: ClientCrowd, limits: Limits) -> str:
    """Why one more client of AMQP may not come in; empty if it may."""
    if crowd.lacks_memory:
        return _LACKS_MEMORY
    if crowd.logging_in >= limits.logins_waiting_max:
        return f"{crowd.logging_in} others are not logged in yet; the limit is logins_waiting_max"
    if crowd.connected >= limits.connections_max:
        return f"{crowd.connected} are connected; the limit is connections_max"
    return ""


def why_no_visitor(connected: int, limits: Limits, *, lacks_memory: bool) -> str:
    """Why one more client of the port for metrics may not come in; empty if it may."""
    if lacks_memory:
        return _LACKS_MEMORY
    if connected >= limits.http_connections_max:
        return f"{connected} are connected; the limit is http_connections_max"
    if connected >= shared_max() // _HTTP_SHARE:
        return f"{connected} are connected, a quarter of the files for clients; {MORE_FILES}"
    return ""


_LACKS_MEMORY: Final = "this node holds much more memory than memory_bytes_max"


class Door:
    """Lets clients of one port in while there is room for them, and files."""

    def __init__(self, who: str, why_not: Callable[[], str], complaints: Complaints) -> None:
        """``who`` a client of the port is, for the log; ``why_not`` says why one more may not come in, empty if it
        may."""
        self._who = who
        self._why_not = why_not
        self._complaints = complaints

    def turns_away(self) -> asyncio.Protocol | None:
        """None if the client that has just connected may come in; else what takes the client's place."""
        if reason := self._why_not():
            self._complain(reason)
        elif self.has_room(lowest_free() - 1):
            return None
        return _TurnedAway()

    def has_room(self, number: int) -> bool:
        """Whether a client may have the open file of this number; all lower numbers are open, too. If not, the log says
        so."""
        if number < (most := shared_max()):
            return True
        self._complain(
            f"{most} files are open, connections among them, and the other open files that the system allows are kept "
            f"for the log and the links between nodes; {MORE_FILES}"
        )
        return False

    def _complain(self, reason: str) -> None:
        self._complaints.say(self._who, f"{self._who} is turned away: {reason}")


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the socket."""
        cast(asyncio.Transport, transport).abort()
