"""The way to a worker on another host: a process at the other end of an SSH connection, and of its successors.

Theory of operation. An SSH session carries the worker's stdin and stdout, and nothing else runs there while the
connection stands. When the connection is lost, or the worker says nothing and the connection does not answer either, a
new connection is made, and a small process there leads to the worker's *door* (:mod:`perftest.engine.workers.door`).
The worker has gone on meanwhile. Messages have numbers, so nothing is lost and nothing counts twice.

To connect may take long and cannot be interrupted, so it happens in threads that are not waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol, TypeVar

from infra.remote.host import RemoteError
from infra.remote.shipping import InstalledProject
from infra.remote.ssh import RemoteProcess, SshConnection
from perftest.engine.api import RunError
from perftest.engine.workers import wire
from perftest.engine.workers.door import GONE_STATUS, door_of
from perftest.engine.workers.remote_worker import LEASE_S, WorkerError

WORKER: Final = "perftest.engine.workers.worker"
ATTACH: Final = "perftest.engine.workers.attach"
EXIT_PATIENCE_S: Final = 5.0
PROBE_S: Final = 5.0
"""Time within which a connection must run `true`, or it is taken for lost."""
AGAIN_S: Final = 1.0
"""The pause before the next attempt to connect."""
_TAIL: Final = 2000
_R = TypeVar("_R")


class Reach(Protocol):
    """A host, as it is reached now."""

    installed: InstalledProject
    connection: SshConnection

    def reconnected(self, lost: SshConnection) -> SshConnection:
        """A connection in place of one that was lost; several who ask for the same get the same. Blocks. Raises
        RemoteError."""


def worker_command(installed: InstalledProject) -> list[str]:
    """The command line of a worker on a host."""
    return installed.command(WORKER, str(installed.directory / "doors"))


class Wire:
    """A process at the other end of one connection; ``on_line`` gets its lines, in the loop, and None at the end.

    paramiko waits in threads: one reads stdout, one reads stderr, and one writes, because a write waits while the host
    takes nothing.
    """

    def __init__(
        self, connection: SshConnection, process: RemoteProcess, on_line: Callable[[Wire, bytes | None], None]
    ) -> None:
        self.connection = connection
        self.process = process
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr = b""
        for work in (self._read, self._write, self._read_stderr):
            threading.Thread(target=work, daemon=True).start()

    def send(self, line: bytes | None) -> None:
        """Write a line after those before; None ends the stdin."""
        self._outgoing.put(line)

    def close(self) -> None:
        """Let go of the process. Closing may wait for a connection that is stuck, so a thread does it."""
        self._outgoing.put(None)
        threading.Thread(target=self.process.close, daemon=True).start()

    @property
    def last_words(self) -> str:
        """The last line of stderr."""
        return self._stderr.strip().decode(errors="replace").rpartition("\n")[2]

    def _read(self) -> None:
        rest = b""
        while chunk := self.process.read():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tell(line + b"\n")
        self._tell(None)  # a dying worker or a lost connection left a part of a line

    def _write(self) -> None:
        while (line := self._outgoing.get()) is not None:
            self.process.write(line)
        self.process.end_input()

    def _read_stderr(self) -> None:
        while chunk := self.process.read_stderr():
            self._stderr = (self._stderr + chunk)[-_TAIL:]

    def _tell(self, line: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has no reader any more
            self._loop.call_soon_threadsafe(self._on_line, self, line)


class SshPipe:
    """A :class:`~perftest.engine.workers.transport.Transport` over SSH."""

    def __init__(self, reach: Reach, connection: SshConnection, process: RemoteProcess) -> None:
        self.place = f"worker process on {connection.host.name}"
        self.out_of_reach = False
        self._reach = reach
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._first = self._wire = Wire(connection, process, self._take)
        self._hello: wire.Message | None = None
        self._leaving = False
        self._mending: asyncio.Task[None] | None = None
        self._reason = ""

    @classmethod
    async def start(cls, reach: Reach) -> SshPipe:
        """Start a worker on a host. Raises WorkerError."""
        connection = reach.connection
        try:
            process = await _in_thread(lambda: connection.start(worker_command(reach.installed)))
        except RemoteError as error:
            raise WorkerError(RunError(what=error.what, where=error.where, fix=error.fix)) from error
        return cls(reach, connection, process)

    def send(self, line: bytes) -> None:
        """Write the line to the worker, after those before; on a lost connection it is lost, and is sent again."""
        self._wire.send(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of the worker, over all connections, until it has ended or is given up."""
        while (line := await self._lines.get()) is not None:
            if self._hello is None:
                message = wire.from_line(line)
                self._hello = message if message is not None and message.get("hello") == wire.HELLO else None
            yield line

    async def exit_reason(self) -> str:
        """The exit status and the last line of stderr, or that the connection was lost."""
        return self._reason

    def mend(self) -> None:
        """Ask the host whether the connection stands; make a new one if it does not."""
        if self._mending is None or self._mending.done():
            self._mending = asyncio.create_task(self._see_and_mend(self._wire))

    def end(self) -> None:
        """End the worker's stdin; a worker that was told to end does not wait for another one."""
        self._leaving = True
        self._wire.send(None)

    def kill(self) -> None:
        """End the worker at once: one that was stopped would not notice the end of its stdin."""
        self.end()
        threading.Thread(target=self._kill, daemon=True).start()

    def forget(self) -> None:
        """Let go of the worker."""
        self._leaving = True
        if self._mending is not None:
            self._mending.cancel()
        self._wire.close()

    def _kill(self) -> None:
        pid = str((self._hello or {}).get("pid", ""))
        with contextlib.suppress(RemoteError):  # without a connection the lease of the worker ends it
            if pid.isdigit():
                self._reach.connection.run(["kill", "-KILL", pid], timeout_s=10.0, check=False)
        self._wire.process.close()

    # A connection that ends

    def _take(self, source: Wire, line: bytes | None) -> None:
        if line is not None:
            self._lines.put_nowait(line)
        elif source is self._wire and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._see_why_it_ended(source))

    async def _see_why_it_ended(self, ended: Wire) -> None:
        """A process that has ended has a status; a connection that was lost leaves none."""
        status = await _in_thread(lambda: ended.process.status(EXIT_PATIENCE_S))
        if status == GONE_STATUS and ended is not self._first:
            self._finish("the worker process ended while the connection to its host was lost")
        elif status is not None and status >= 0:
            said = ended.last_words
            self._finish(f"the worker process ended with status {status}" + (f": {said}" if said else ""))
        elif self._leaving or self._hello is None:
            self._finish("the connection to the host was lost")
        else:  # lost, or killed by a signal: the door tells
            self.out_of_reach = True
            await self._mend(ended, whole=await _answers(ended.connection))

    async def _see_and_mend(self, suspect: Wire) -> None:
        """A connection that answers is whole: then the worker is silent by itself."""
        self.out_of_reach = True
        if not await _answers(suspect.connection):
            await self._mend(suspect, whole=False)
        self.out_of_reach = False
        if suspect is self._wire and suspect.process.has_ended:  # its end came while the host was asked
            await self._see_why_it_ended(suspect)

    async def _mend(self, lost: Wire, *, whole: bool) -> None:
        """Lead a connection to the worker, as long as the worker waits: at first the same one if it is ``whole``."""
        loop = asyncio.get_running_loop()
        until, why = loop.time() + LEASE_S, "the run has ended"
        while loop.time() < until and not self._leaving:
            try:
                self._turn_to(*await _in_thread(lambda whole=whole: self._enter(lost.connection, whole=whole)))  # type: ignore[misc]
            except RemoteError as error:
                whole, why = False, error.what
                await asyncio.sleep(AGAIN_S)
            else:
                self.out_of_reach = False
                lost.close()
                return
        self._finish(f"the connection to the host was lost, and could not be had again: {why}")

    def _enter(self, before: SshConnection, *, whole: bool) -> tuple[SshConnection, RemoteProcess]:
        assert self._hello is not None
        connection = before if whole else self._reach.reconnected(before)
        installed = self._reach.installed
        door = door_of(installed.directory / "doors", self._hello["host"], self._hello["pid"])
        return connection, connection.start(installed.command(ATTACH, door))

    def _turn_to(self, connection: SshConnection, process: RemoteProcess) -> None:
        self._wire = Wire(connection, process, self._take)

    def _finish(self, reason: str) -> None:
        self._reason = reason
        self._lines.put_nowait(None)


async def _answers(connection: SshConnection) -> bool:
    """Whether a command runs there in time. On a connection that is cut without a word not even the beginning of a
    command does, so the time is taken here."""

    def runs() -> bool:
        return connection.is_open and connection.run(["true"], timeout_s=PROBE_S, check=False).status == 0

    try:
        async with asyncio.timeout(PROBE_S):
            return await _in_thread(runs)
    except (RemoteError, TimeoutError):
        return False


async def _in_thread(work: Callable[[], _R]) -> _R:
    """As :func:`asyncio.to_thread`, in a thread that holds up no end of the program."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_R] = loop.create_future()

    def tell(found: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(found)
        else:
            done.set_exception(error)

    def run() -> None:
        found, failed = None, None
        try:
            found = work()
        except Exception as error:  # the waiting caller gets it
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the caller has gone
            loop.call_soon_threadsafe(tell, found, failed)

    threading.Thread(target=run, daemon=True).start()
    return await done
