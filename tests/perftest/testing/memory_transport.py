"""A transport whose worker lives in the process of the test: the lines are the real ones, no process is started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from perftest.engine.workers import wire
from perftest.engine.workers.worker import Worker


class MemoryTransport:
    """Keeps every line in ``sent``; without ``answers`` nobody answers after the hello."""

    def __init__(self, *, answers: bool = True) -> None:
        self.out_of_reach = False
        self.place = "worker in memory"
        self.sent: list[bytes] = []
        self.killed = False
        self.lines_back: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.lines_back.put_nowait(wire.to_line(wire.hello()))
        self._answers = answers
        self._worker: Worker | None = None

    def send(self, line: bytes) -> None:
        self.sent.append(line)
        if self._worker is not None:
            self._worker.request(json.loads(line))
        elif self._answers:
            self._worker = Worker(json.loads(line), self.lines_back.put_nowait)

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self.lines_back.get()) is not None:
            yield line

    async def exit_reason(self) -> str:
        return "the worker was killed" if self.killed else "the worker has ended"

    def mend(self) -> None:
        """Nothing breaks."""

    def end(self) -> None:
        self.lines_back.put_nowait(None)

    def kill(self) -> None:
        self.killed = True
        self.end()

    def forget(self) -> None:
        """Nothing is held."""
