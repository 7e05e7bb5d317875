"""The round trips from a host to each node: ``python -m infra.remote.round_trips``, run on the host before the load.

The question comes as one JSON line over stdin, ``{"node": ["address", port]}``; the answer is a JSON line, the rows of
:func:`round_trips`. A round trip is the time that the kernel takes to open a TCP connection: one packet there and one
back. The connection is closed at once, so a broker has next to nothing to do. The least of several tries counts,
because what else happens on a host or a network can only add to a round trip.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from infra.remote.host import RemoteError

if TYPE_CHECKING:  # a host has no SSH client, and needs none
    from infra.remote.shipping import InstalledProject
    from infra.remote.ssh import SshConnection

MODULE: Final = "infra.remote.round_trips"
TRIES: Final = 5
"""Number of connections that are opened to a node."""
FAILURES: Final = 2
"""Number of failures after which a node is given up."""
TRY_S: Final = 1.5
"""Longest time of a try. If the first packet was lost, a second one follows after 1 s."""
WHOLE_S: Final = 10.0
"""Longest time of all tries of a host together."""
_ANSWER_S: Final = 60.0

Connect = Callable[[str, int, float], int]
"""Opens a connection to an address and a port within a number of seconds, and returns the time that it took (ns).
Raises OSError."""


def round_trips(
    nodes: Mapping[str, tuple[str, int]],
    connect: Connect | None = None,
    now: Callable[[], float] = time.monotonic,
) -> list[dict[str, Any]]:
    """A row for each node as in the manifest of a run: ``node``, ``address``, ``round_trip_ns`` (the least; None if the
    node was not reached), ``tries`` that succeeded, and ``reason`` where none did. The nodes take turns, so a node that
    does not answer takes no time from the others. The whole ends after :data:`WHOLE_S` seconds."""
    connect, end = connect or opened_ns, now() + WHOLE_S
    took: dict[str, list[int]] = {name: [] for name in nodes}
    failed: dict[str, list[str]] = {name: [] for name in nodes}
    for _ in range(TRIES):
        for name, (address, port) in nodes.items():
            left_s = end - now()
            if left_s <= 0 or len(failed[name]) == FAILURES:
                continue
            try:
                took[name].append(connect(address, port, min(TRY_S, left_s)))
            except OSError as error:
                failed[name].append(error.strerror or str(error) or "no answer")
    return [_row(name, *nodes[name], took[name], failed[name]) for name in nodes]


def _row(name: str, address: str, port: int, took: Sequence[int], failed: Sequence[str]) -> dict[str, Any]:
    row = {"node": name, "address": shown(address, port), "round_trip_ns": min(took, default=None), "tries": len(took)}
    why = failed[-1] if failed else f"not tried within {WHOLE_S:g} s"
    return row if took else row | {"reason": why}


def shown(address: str, port: int) -> str:
    """An address and a port as one word."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def opened_ns(address: str, port: int, timeout_s: float) -> int:
    """Open a connection and close it; the time that opening took (ns). A name is looked up before. Raises OSError."""
    failure: OSError | None = None
    for family, place in _places(address, port):
        with socket.socket(family, socket.SOCK_STREAM) as opened:
            opened.settimeout(timeout_s)
            began_ns = time.monotonic_ns()
            try:
                opened.connect(place)
            except OSError as error:
                failure = error
                continue
            return time.monotonic_ns() - began_ns
    raise failure or OSError("no address")


@cache
def _places(address: str, port: int) -> list[tuple[int, Any]]:
    return [(found[0], found[4]) for found in socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)]


def command(installed: InstalledProject) -> list[str]:
    """The command line that measures on a host."""
    return installed.command(MODULE)


def measure(
    connection: SshConnection, installed: InstalledProject, nodes: Mapping[str, tuple[str, int]]
) -> list[dict[str, Any]]:
    """The rows of a host, measured there. Raises RemoteError."""
    question = json.dumps(nodes).encode() + b"\n"
    found = connection.run(command(installed), stdin=question, timeout_s=_ANSWER_S)
    try:
        rows: list[dict[str, Any]] = json.loads(found.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        what = f"the round trips to the nodes cannot be read: {found.last_words!r}"
        fix = "see what `perftest remote check` says of the host"
        raise RemoteError(what, f"host {connection.host.name}", fix) from None
    return rows


def main() -> None:
    """Measure from this host."""
    asked = {name: (str(address), int(port)) for name, (address, port) in json.loads(sys.stdin.readline()).items()}
    sys.stdout.write(json.dumps(round_trips(asked)) + "\n")


if __name__ == "__main__":
    main()
