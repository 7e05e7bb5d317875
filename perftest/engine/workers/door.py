"""A unix socket through which a coordinator comes back to its worker after a lost connection.

The socket lies in a directory of mode 700, so only the user gets in. Its name is made of the host's and the process's.
The directory may have a longer path than a socket's address may have; the address therefore goes by way of the
directory's descriptor (Linux). Sockets of processes that were killed are removed by the next worker.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

GONE_STATUS: Final = 3
"""Exit status of :mod:`perftest.engine.workers.attach` if there is no worker behind the door."""
_ENTER_S: Final = 10.0
"""Time after which a worker that accepts no connection counts as absent."""


def door_of(directory: PurePath, host: str, pid: int) -> str:
    """The path of a worker's door."""
    return str(directory / f"{host.replace('/', '_')}-{pid}")


@contextlib.contextmanager
def opened(directory: Path, host: str) -> Iterator[socket.socket]:
    """A listening socket at the door of this process, which is removed at the end. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    _remove_stale(directory, host)
    door = door_of(directory, host, os.getpid())
    with _short(door) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(address)
        try:
            listening.listen()
            yield listening
        finally:
            with contextlib.suppress(OSError):
                Path(door).unlink()


def entered(door: str) -> socket.socket:
    """A connection through a door. Raises OSError if no worker is behind it, or none accepts."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_ENTER_S)
        with _short(door) as address:
            connection.connect(address)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _short(door: str) -> Iterator[str]:
    directory, name = os.path.split(door)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def _remove_stale(directory: Path, host: str) -> None:
    for door in directory.glob(f"{host.replace('/', '_')}-*"):
        pid = door.name.rpartition("-")[2]
        if pid.isdigit() and (int(pid) == os.getpid() or not Path("/proc", pid).exists()):
            door.unlink(missing_ok=True)
