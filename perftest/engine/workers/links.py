"""The ways between a worker and its coordinator: stdin and stdout at first, and its door for later connections.

The worker's messages go to the newest link. Lines are taken from every link, because their numbers tell repeated ones.
A worker without a door ends with its stdin.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import IO, Final, Protocol

from perftest.engine.workers.transport import LINE_MAX


class _Way(Protocol):
    def write(self, data: bytes) -> None:
        """Write without waiting."""

    def close(self) -> None:
        """Close it once everything is written."""


class _Output(asyncio.Protocol):
    """Tells when stdout is closed at the other end."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()


class WorkerLinks:
    """See the module. ``lines`` are the lines of all links; None is the end of the worker. ``greeting`` gives the first
    octets of every link."""

    def __init__(self, greeting: Callable[[], list[bytes]], *, has_door: bool) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._greeting = greeting
        self._has_door = has_door
        self._way: _Way | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    async def use_standard(self, output: int) -> None:
        """Begin with stdin and the descriptor that was stdout."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        pipe: IO[bytes] = os.fdopen(output, "wb", buffering=0)
        way, _ = await loop.connect_write_pipe(lambda: _Output(lambda: self._forget(way)), pipe)
        self._turn_to(way)
        task = asyncio.create_task(self._read(reader, way))
        self._tasks.add(task)  # there is no other reference
        task.add_done_callback(self._tasks.discard)

    async def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A coordinator has come through the door."""
        before = self._way
        self._turn_to(writer)
        if before is not None:
            before.close()
        try:
            await self._read(reader, writer)
        finally:
            writer.close()

    def write(self, line: bytes) -> None:
        """Write to the newest link; without one the line waits for the next greeting."""
        if self._way is not None:
            self._way.write(line)

    def _turn_to(self, way: _Way) -> None:
        self._way = way
        for line in self._greeting():
            way.write(line)

    def _forget(self, way: _Way) -> None:
        if self._way is way:
            self._way = None

    async def _read(self, reader: asyncio.StreamReader, way: _Way) -> None:
        try:
            while line := await reader.readline():
                if line.endswith(b"\n"):  # a lost connection may leave a part of a line
                    self.lines.put_nowait(line)
        except (OSError, ValueError):  # the connection was lost, or a line has no end
            pass
        self._forget(way)
        if not self._has_door:
            self.lines.put_nowait(None)
