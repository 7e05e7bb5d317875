"""The way to a worker: lines go there, lines come back, until the worker ends.

The coordinator knows a worker by this port alone, so where the worker runs is the transport's business. Here is the
transport to a process of this host. A transport to another host has a place beside it; its preliminaries, such as the
versions of both ends, come before the first line.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

LINE_MAX: Final = 1 << 24
"""Longest line in octets: an interval with all its histograms takes a few hundred thousand at most."""

STDERR_TAIL: Final = 2000
STDERR_PATIENCE_S: Final = 1.0
"""Longest wait for the last words that a worker may have left in the pipe when it ended."""


class Transport(Protocol):
    """A started worker. ``place`` names it in errors. ``out_of_reach`` is true while the way to the worker is cut and
    the transport tries to mend it; :meth:`lines` goes on with a hello of the worker when that is done."""

    place: str
    out_of_reach: bool

    def send(self, line: bytes) -> None:
        """Send a line to the worker; a worker that has ended gets nothing."""

    def lines(self) -> AsyncIterator[bytes]:
        """The lines that the worker sends, until it has ended."""

    async def exit_reason(self) -> str:
        """Why the worker has ended, once :meth:`lines` is over."""

    def mend(self) -> None:
        """The worker says nothing: see whether the way to it still stands."""

    def end(self) -> None:
        """Ask the worker to end."""

    def kill(self) -> None:
        """End the worker at once."""

    def forget(self) -> None:
        """Let go of a worker that not even :meth:`kill` ends."""


Start = Callable[[], Awaitable[Transport]]
"""Function that starts a worker."""


class LocalProcess:
    """A worker that is a process of this host: requests on its stdin, answers on its stdout."""

    out_of_reach = False

    def __init__(self, process: Process) -> None:
        self.place = f"worker process {process.pid}"
        self._process = process
        self._stderr = b""
        self._stderr_reader = asyncio.create_task(self._read_stderr())

    @classmethod
    async def start(cls) -> LocalProcess:
        """Start a worker in a session of its own, so that the terminal's Ctrl-C does not reach it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perftest.engine.workers.worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LINE_MAX,
            start_new_session=True,
        )
        return cls(process)

    def send(self, line: bytes) -> None:
        """Write the line to the process's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """The complete lines of the process's stdout."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):  # a worker that was killed may have left a part of a line
                yield line

    async def exit_reason(self) -> str:
        """The exit status and the last line of stderr."""
        code = await self._process.wait()
        await asyncio.wait({self._stderr_reader}, timeout=STDERR_PATIENCE_S)
        self.forget()
        tail = self._stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"the worker process ended with status {code}" + (f": {tail}" if tail else "")

    def mend(self) -> None:
        """A pipe does not break while its process lives."""

    def end(self) -> None:
        """Close the process's stdin, which ends the worker."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """Send SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def forget(self) -> None:
        """Read no more of its stderr."""
        self._stderr_reader.cancel()

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._stderr = (self._stderr + chunk)[-STDERR_TAIL:]


def files_allowed() -> int:
    """Number of files, and so of connections, that a process of this user may have open (the hard limit)."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 1 << 30
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if hard == resource.RLIM_INFINITY else hard


def allow_files() -> None:
    """Raise this process's own limit of open files (the soft limit) as far as it goes."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems promise more than they give
            return
