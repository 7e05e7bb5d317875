"""The kernel's facts about a connection: Linux' ``struct tcp_info`` (linux/tcp.h)."""

from __future__ import annotations

import asyncio
import socket
from struct import Struct
from typing import Final, NamedTuple

_STATE_AT: Final = 0
_ACKED_AND_RECEIVED: Final = Struct("=QQ")
_ACKED_AT: Final = 120
"""Offset of ``tcpi_bytes_acked``; ``tcpi_bytes_received`` follows."""
_OCTETS: Final = _ACKED_AT + _ACKED_AND_RECEIVED.size
_CLOSED_BY_PEER: Final = frozenset({7, 8, 9, 11})
"""The states TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK and TCP_CLOSING."""


class TcpInfo(NamedTuple):
    """A connection as the kernel sees it."""

    is_closed_by_peer: bool
    received: int
    """Octets that came."""
    acknowledged: int
    """Octets that were sent and have arrived."""


def tcp_info(transport: asyncio.BaseTransport | None) -> TcpInfo | None:
    """The kernel's facts about a transport's connection; None without a connection, and on other systems."""
    plug = transport.get_extra_info("socket") if transport is not None else None
    if plug is None or plug.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        told = plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _OCTETS)
    except (OSError, AttributeError):
        return None
    if len(told) < _OCTETS:
        return None
    acknowledged, received = _ACKED_AND_RECEIVED.unpack_from(told, _ACKED_AT)
    return TcpInfo(told[_STATE_AT] in _CLOSED_BY_PEER, received, acknowledged)
