"""The coordinator's end of a worker process: start it, ask it, hear it, end it."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any, Final

from perftest.engine import wire
from perftest.engine.api import RunError

STDERR_TAIL: Final = 2000


class WorkerError(Exception):
    """The worker could not do what it was asked, or is no more."""

    def __init__(self, error: RunError) -> None:
        super().__init__(error.what)
        self.error = error


class WorkerProcess:
    """A running worker. ``failed`` is done when it gives up by itself, or dies; its result says why.

    ``on_message`` gets whatever it says unasked, but that it failed.
    """

    def __init__(self, process: Process, on_message: Callable[[wire.Message], None]) -> None:
        self.failed: asyncio.Future[RunError] = asyncio.get_running_loop().create_future()
        self._process = process
        self._on_message = on_message
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._stderr = b""
        self._gone = False
        self._readers = asyncio.gather(self._read_messages(), self._read_stderr())

    @classmethod
    async def start(cls, first: wire.Message, on_message: Callable[[wire.Message], None]) -> WorkerProcess:
        """Start a worker in a session of its own, so that the terminal's Ctrl-C does not reach it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perftest.engine.worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=wire.LINE_MAX,
            start_new_session=True,
        )
        worker = cls(process, on_message)
        worker._send(first)
        return worker

    async def call(self, op: str, **arguments: object) -> Any:
        """Ask for an operation and wait for its result. Raises :class:`WorkerError`."""
        if self._gone:
            raise WorkerError(self.failed.result())
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "op": op, **arguments})
        return await future

    def tell(self, message: wire.Message) -> None:
        """Say something that has no answer; nothing happens if it is no more."""
        if not self._gone:
            self._send(message)

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return not self._gone

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Close its stdin, which ends it; kill it if that takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._readers

    def _send(self, message: wire.Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(wire.to_line(message))

    async def _read_messages(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._handle(json.loads(line))
        code = await self._process.wait()
        tail = self._stderr.decode(errors="replace").strip().rpartition("\n")[2]
        gone = RunError(
            what=f"the worker process ended with status {code}" + (f": {tail}" if tail else ""),
            where=f"worker process {self._process.pid}",
            fix="a status of -9 means it was killed, perhaps for want of memory; otherwise report this as a fault",
        )
        self._gone = True
        self._give_up(gone)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerError(gone))
        self._waiting.clear()

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._stderr = (self._stderr + chunk)[-STDERR_TAIL:]

    def _handle(self, message: wire.Message) -> None:
        if "failed" in message:
            self._give_up(RunError(**message["failed"]))
        elif "id" not in message:
            self._on_message(message)
        else:
            future = self._waiting.pop(message["id"])
            if future.done():
                return
            if "error" in message:
                future.set_exception(WorkerError(RunError(**message["error"])))
            else:
                future.set_result(message["result"])

    def _give_up(self, error: RunError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
