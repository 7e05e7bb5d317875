"""The coordinator's end of a worker process: start it, ask it, hear it, end it.

Theory of operation. A worker may take long over a request (thousands of connections, a drain), but its event loop turns
all the while, so it answers a ping. A watch beside each worker sends a ping when the worker has said nothing for a
while. When the worker goes on saying nothing, because it was stopped or hangs, the watch gives it up and kills it. So
whoever waits for a worker gets an answer or a :class:`WorkerError`, and needs no deadline of its own.

The watch counts its own turns and not the time: while the whole machine sleeps, nobody is silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any, Final

from perftest.engine.api import RunError
from perftest.engine.workers import wire

STDERR_TAIL: Final = 2000

WATCH_S: Final = 1.0
"""How often the watch looks whether the worker has said something."""
SILENCE_S: Final = 15.0
"""A worker that says nothing for so long, although it was pinged, is given up."""
START_SILENCE_S: Final = 60.0
"""The same until the worker's first word: many workers start at once on few cores."""
HURRY_SILENCE_S: Final = 3.0
"""The same once the user wants an end at once."""

_PING: Final = 0
"""The number of all pings: nobody waits for the answer to a certain one."""


class WorkerError(Exception):
    """The worker could not do what it was asked, or is no more."""

    def __init__(self, error: RunError) -> None:
        super().__init__(error.what)
        self.error = error


class WorkerProcess:
    """A running worker. ``failed`` is done when it gives up by itself, or dies; its result says why.

    ``on_message`` gets whatever it says unasked, but that it failed.
    """

    def __init__(self, process: Process, on_message: Callable[[wire.Message], None], who: str) -> None:
        self.failed: asyncio.Future[RunError] = asyncio.get_running_loop().create_future()
        self._process = process
        self._on_message = on_message
        self._where = f"worker process {process.pid}: {who}"
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._stderr = b""
        self._gone = False
        self._heard = False
        self._silence_s = START_SILENCE_S
        self._readers = asyncio.gather(self._read_messages(), self._read_stderr())
        self._watch = asyncio.create_task(self._watch_silence())

    @classmethod
    async def start(cls, first: wire.Message, on_message: Callable[[wire.Message], None], who: str) -> WorkerProcess:
        """Start a worker in a session of its own, so that the terminal's Ctrl-C does not reach it. Errors name it as
        ``who``."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perftest.engine.workers.worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=wire.LINE_MAX,
            start_new_session=True,
        )
        worker = cls(process, on_message, who)
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

    def hurry(self) -> None:
        """Wait for a silent worker only for a moment from now on."""
        self._silence_s = min(self._silence_s, HURRY_SILENCE_S)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Close its stdin, which ends it; kill it if that takes too long."""
        assert self._process.stdin is not None
        self._watch.cancel()
        self._process.stdin.close()
        ended, _ = await asyncio.wait({self._readers}, timeout=timeout_s)
        if not ended:
            self._kill()
            ended, _ = await asyncio.wait({self._readers}, timeout=timeout_s)
        if not ended:  # not even a kill ends a process that waits for a broken device
            self._readers.cancel()
            return
        await self._readers

    def _send(self, message: wire.Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(wire.to_line(message))

    async def _read_messages(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):  # a worker that was killed may have left a part of a line
                self._heard = True
                self._handle(json.loads(line))
        code = await self._process.wait()
        tail = self._stderr.decode(errors="replace").strip().rpartition("\n")[2]
        self._lose(
            what=f"the worker process ended with status {code}" + (f": {tail}" if tail else ""),
            fix="a status of -9 means it was killed, perhaps for want of memory; otherwise report this as a fault",
        )

    async def _watch_silence(self) -> None:
        """Ping a worker that says nothing; give it up and kill it if it goes on saying nothing."""
        silent_s = 0.0
        while silent_s < self._silence_s:
            await asyncio.sleep(WATCH_S)
            if self._heard:
                silent_s, self._heard = 0.0, False
                self._silence_s = min(self._silence_s, SILENCE_S)
            else:
                silent_s += WATCH_S
                if silent_s == WATCH_S:
                    self.tell({"id": _PING, "op": "ping"})
        self._lose(
            what=f"the worker process said nothing for {silent_s:g} s, and was killed",
            fix="somebody stopped it (SIGSTOP, a debugger), or the machine had no CPU or memory left for it; "
            "run again, with less beside it",
        )
        self._kill()

    def _lose(self, *, what: str, fix: str) -> None:
        """The worker is no more: whoever waits for it, or asks from now on, gets the reason."""
        if self._gone:
            return
        self._gone = True
        self._watch.cancel()
        self._give_up(RunError(what=what, where=self._where, fix=fix))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerError(self.failed.result()))
        self._waiting.clear()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

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
            future = self._waiting.pop(message["id"], None)
            if future is None or future.done():  # a ping, or nobody waits any more
                return
            if "error" in message:
                future.set_exception(WorkerError(RunError(**message["error"])))
            else:
                future.set_result(message["result"])

    def _give_up(self, error: RunError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
