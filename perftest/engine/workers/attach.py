"""``python -m perftest.engine.workers.attach DOOR``: stdin and stdout become the way to a worker behind its door.

It runs in a new SSH session after the old one was lost, and ends with its stdin or with the worker. Small on purpose:
only the standard library is imported.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from perftest.engine.workers.door import GONE_STATUS, entered

if TYPE_CHECKING:
    import socket

_CHUNK: Final = 1 << 16


def _pass_on_input(connection: socket.socket) -> None:
    try:
        while chunk := os.read(0, _CHUNK):
            connection.sendall(chunk)
    finally:
        os._exit(0)  # the other thread waits for the worker, which has no receiver any more


def main() -> None:
    """Pass on octets in both directions."""
    try:
        connection = entered(sys.argv[1])
    except OSError as error:
        sys.stderr.write(f"the worker is gone: {error.strerror or error}\n")
        sys.exit(GONE_STATUS)
    threading.Thread(target=_pass_on_input, args=(connection,), daemon=True).start()
    while chunk := connection.recv(_CHUNK):
        while chunk:
            chunk = chunk[os.write(1, chunk) :]


if __name__ == "__main__":
    try:
        main()
    except OSError:  # the session or the worker has ended
        sys.exit(0)
