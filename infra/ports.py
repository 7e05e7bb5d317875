"""Ports for servers of the moment: free ones that no client's end of a connection can take meanwhile.

A port that the kernel gives (``bind`` to 0) is *ephemeral*: between the choice and the server's own ``bind`` any
connection of any process may get it for its own end, and a connection to it while nobody listens may even connect to
itself. Ports below the kernel's range have neither problem.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_USUAL_EPHEMERAL: Final = 32_768
_TRIES: Final = 1000


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on now. Raises OSError if there are not so many."""
    end = _first_ephemeral()
    ports: list[int] = []
    with contextlib.ExitStack() as held:  # until all are chosen, so that none is chosen twice
        for _ in range(_TRIES):
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, _LOWEST + secrets.randbelow(end - _LOWEST)))
                ports.append(int(probe.getsockname()[1]))
    if len(ports) < count:
        raise OSError(f"no {count} free ports between {_LOWEST} and {end}")
    return ports


def _first_ephemeral() -> int:
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError):
        first = _USUAL_EPHEMERAL
    return first if first > _LOWEST + _TRIES else _USUAL_EPHEMERAL
