"""How many files a process may have open, and what of them clients may take.

Every connection is an open file for the kernel, as is every file of the log. A node that has none left could no longer
begin a segment, and would have to stop. So a node raises its limit to what the system allows, and keeps a quarter back
from clients. A client that comes when the rest is taken is turned away: its socket is closed at once, and the log says
why.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Final, cast

from reference_broker.node.strangers import Complaints

_KEPT: Final = 4
"""One file of so many is kept back."""


def raise_limit() -> None:
    """Allow this process as many open files as the system does (``ulimit -n``: the hard limit)."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def clients_max() -> int:
    """How many clients may be connected at once."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - soft // _KEPT


class Door:
    """Lets clients in while there are files for them. ``connected`` counts the clients that are in."""

    def __init__(self, connected: Callable[[], int], complaints: Complaints) -> None:
        self._connected = connected
        self._complaints = complaints

    def turns_away(self) -> asyncio.Protocol | None:
        """None if one more client may come in; else what takes the client's place."""
        most = clients_max()
        if self._connected() < most:
            return None
        self._complaints.say(
            "open files",
            f"a client is turned away: {most} are connected, and the other open files that the system allows are kept "
            "for the log and the links between nodes; raise the limit (ulimit -n)",
        )
        return _TurnedAway()


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the socket."""
        cast(asyncio.Transport, transport).abort()
