"""Finds free ports for temporary servers, such that no outgoing connection can take a port before its server does.

A port that the kernel chooses (``bind`` to 0) is *ephemeral*: until the server binds the port, any outgoing connection
of any process may get it. A connection to such a port, while nobody listens, may even connect to itself. Ports below
the kernel's range of ephemeral ports have neither problem.
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
    """Different ports without a listener now. Raises OSError if there are too few."""
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
