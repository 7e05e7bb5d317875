"""The way to a worker on another host: a process at the other end of an SSH connection."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

from infra.remote.host import RemoteError
from infra.remote.shipping import Installed
from infra.remote.ssh import Connection, RemoteProcess
from perftest.engine.api import RunError
from perftest.engine.workers.remote_worker import WorkerError

WORKER: Final = "perftest.engine.workers.worker"
EXIT_PATIENCE_S: Final = 5.0
_MESSAGE: Final = b'{"'
"""Every message begins like this. Other lines are those of a login: banners, greetings, warnings of a shell."""
_PID: Final = b"perftest worker "
_WITH_PID: Final = ("sh", "-c", f'echo "{_PID.decode()}$$"; exec "$@"', "sh")
"""Tells the process id, which stays the same, before it becomes the command that follows."""
_TAIL: Final = 2000


class SshPipe:
    """A :class:`~perftest.engine.workers.transport.Transport` over SSH.

    paramiko waits in threads: one reads stdout, one reads stderr, and one writes, because a write waits while the host
    takes nothing.
    """

    def __init__(self, connection: Connection, process: RemoteProcess) -> None:
        self.place = f"worker process on {connection.host.name}"
        self._connection = connection
        self._pid = b""
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr = b""
        self._banner = b""
        for work in (self._read, self._write, self._read_stderr):
            threading.Thread(target=work, daemon=True).start()

    @classmethod
    async def start(cls, connection: Connection, installed: Installed) -> SshPipe:
        """Start a worker on a host. Raises WorkerError."""
        try:
            process = await asyncio.to_thread(connection.start, [*_WITH_PID, *installed.command(WORKER)])
        except RemoteError as error:
            raise WorkerError(RunError(what=error.what, where=error.where, fix=error.fix)) from error
        return cls(connection, process)

    def send(self, line: bytes) -> None:
        """Write the line to the worker's stdin, after those before."""
        self._outgoing.put(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """The messages that the worker sends; other lines are kept for errors."""
        while (line := await self._lines.get()) is not None:
            if line.startswith(_MESSAGE):
                yield line
            elif line.startswith(_PID) and not self._pid:
                self._pid = line.removeprefix(_PID).strip()
            else:
                self._banner = (self._banner + line)[-_TAIL:]

    async def exit_reason(self) -> str:
        """The exit status and the last line of stderr, or that the connection was lost."""
        status = await asyncio.to_thread(self._process.status, EXIT_PATIENCE_S)
        if status is None or status == -1:
            return "the connection to the host was lost"
        said = (self._stderr.strip() or self._banner.strip()).decode(errors="replace").rpartition("\n")[2]
        return f"the worker process ended with status {status}" + (f": {said}" if said else "")

    def end(self) -> None:
        """End the worker's stdin, which ends the worker."""
        self._outgoing.put(None)

    def kill(self) -> None:
        """End the worker at once: one that was stopped would not notice the end of its stdin."""
        self._outgoing.put(None)
        threading.Thread(target=self._kill, daemon=True).start()

    def forget(self) -> None:
        """Let go of the worker."""
        self._process.close()

    # Threads

    def _kill(self) -> None:
        with contextlib.suppress(RemoteError):  # without a connection the lease of the worker ends it
            if self._pid.isdigit():
                self._connection.run(["kill", "-KILL", self._pid.decode()], timeout_s=10.0, check=False)
        self._process.close()

    def _read(self) -> None:
        rest = b""
        while chunk := self._process.read():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tell(lambda line=line: self._lines.put_nowait(line + b"\n"))  # type: ignore[misc]
        self._tell(lambda: self._lines.put_nowait(None))  # a part of a line is what a dying worker left

    def _write(self) -> None:
        while (line := self._outgoing.get()) is not None:
            self._process.write(line)
        self._process.end_input()

    def _read_stderr(self) -> None:
        while chunk := self._process.read_stderr():
            self._stderr = (self._stderr + chunk)[-_TAIL:]

    def _tell(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for the worker any more
            self._loop.call_soon_threadsafe(call)
