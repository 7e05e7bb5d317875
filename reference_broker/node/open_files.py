"""How many clients may come in: what the configuration allows, and the files that a process may have open.

Every connection is an open file for the kernel, as is every file of the log. A node that has none left could no longer
begin a segment, and would have to stop. So a node raises its limit to what the system allows, and keeps a quarter back
from clients. A client that comes when the rest is taken is turned away: its socket is closed at once, and the log says
why.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from reference_broker.node.config import Limits
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


@dataclass(frozen=True, slots=True)
class Crowd:
    """The clients that are connected, and those of them that are not logged in yet."""

    connected: int
    logging_in: int
    lacks_memory: bool


class Door:
    """Lets clients in while there is room for them."""

    def __init__(self, crowd: Callable[[], Crowd], limits: Limits, complaints: Complaints) -> None:
        """``crowd``: as it is now."""
        self._crowd = crowd
        self._limits = limits
        self._complaints = complaints

    def turns_away(self) -> asyncio.Protocol | None:
        """None if one more client may come in; else what takes the client's place."""
        reason = self._reason(self._crowd())
        if not reason:
            return None
        self._complaints.say("clients", f"a client is turned away: {reason}")
        return _TurnedAway()

    def _reason(self, crowd: Crowd) -> str:
        if crowd.lacks_memory:
            return "this node holds much more memory than memory_bytes_max"
        if crowd.logging_in >= self._limits.logins_waiting_max:
            return f"{crowd.logging_in} others are not logged in yet; the limit is logins_waiting_max"
        if crowd.connected >= self._limits.connections_max:
            return f"{crowd.connected} are connected; the limit is connections_max"
        if crowd.connected >= (most := clients_max()):
            return (
                f"{most} are connected, and the other open files that the system allows are kept for the log and the "
                "links between nodes; raise the limit (ulimit -n)"
            )
        return ""


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the socket."""
        cast(asyncio.Transport, transport).abort()
