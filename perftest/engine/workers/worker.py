"""The worker process, ``python -m perftest.engine.workers.worker``: it carries out the requests on its stdin.

:mod:`perftest.engine.workers.wire` describes the requests and the answers. The worker is a process of its own, so no
work of the command (drawing, writing files, encoding histograms) can delay a message. The worker ends when its stdin
ends, so it never outlives the command. On another host the end of a connection may go unnoticed, so there the worker
has a *lease*, too: it ends when nobody has said anything for so long. It ignores interrupts from the terminal, which
are for the command.

Garbage collection: all objects that exist once the clients are connected are frozen, and collections become rare. The
hot paths make no cycles, and a full collection in the middle of a run would be a pause that looks like the broker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import Any, Final

from perftest.amqp.errors import AmqpError
from perftest.engine.api import RunError
from perftest.engine.host import THIS_HOST, Host
from perftest.engine.workers import wire
from perftest.engine.workers.failures import explain
from perftest.engine.workers.sequence import Sequence
from perftest.engine.workers.session import Session
from perftest.engine.workers.shares import Share
from perftest.engine.workers.transport import LINE_MAX, allow_files
from perftest.spec.codec import plan_from_json
from perftest.spec.plan import Settings

GC_THRESHOLDS: Final = (100_000, 50, 100)
LEAVE_S: Final = 5.0
"""A worker whose lease is over closes its clients in good order for so long at most."""


class Worker:
    """Carries out requests for one session. ``on_connected`` is called when all clients are connected."""

    def __init__(
        self,
        first: wire.Message,
        write: Callable[[bytes], None],
        on_connected: Callable[[], None] = lambda: None,
        host: Host = THIS_HOST,
    ) -> None:
        self.ended = False
        self.sequence = Sequence(first.get("n", 0))
        self._write = write
        self._host = host
        self._timekeeper: asyncio.subprocess.Process | None = None
        self._on_connected = on_connected
        self._name = first["worker"]
        plan = plan_from_json(first["plan"])
        self.session = Session(
            plan,
            Share(plan, index=first["index"], workers=first["workers"]),
            offset_ns=first["offset_ns"],
            run=first["run"],
            emit=self._emit,
            fail=self._fail,
            send=self._send,
            host=host,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, Callable[..., Any]] = {
            "ping": lambda: None,
            "timekeeper": self._start_timekeeper,
            "prepare": self.session.prepare,
            "connect_consumers": self.session.connect_consumers,
            "connect_publishers": self._connect_publishers,
            "ready": self.session.ready,
            "begin": self._begin,
            "apply": self._apply,
            "cut": self._cut,
            "quiesce": self._quiesce,
            "forward": self.session.forward,
            "left": self.session.left,
            "flush": self.session.flush,
            "disconnect": self.session.disconnect,
            "hold": self.session.hold,
            "emptied": self.session.emptied,
            "settle": self.session.settle,
            "delete": self.session.delete,
            "ledger": self.session.ledger,
        }

    def request(self, message: wire.Message) -> None:
        """Start to carry out a request, and those that waited for it: each one once."""
        if message.get("op") == "resend":
            self.sequence.acknowledge(message["seen"])
            self.resend()
            return
        for due in self.sequence.take(message):
            self._start(due)

    def resend(self) -> None:
        """Write what the coordinator may not have."""
        for line in self.sequence.unseen:
            self._write(line)

    def _start(self, message: wire.Message) -> None:
        """A long request does not hold up the next one. Deliveries that another worker forwards are accounted for at
        once, so every later answer counts them. So is the time told: an answer that waits for its turn says less about
        the clock."""
        if message["op"] == "end":
            self.ended = True
            return
        if message["op"] == "clock":
            received_ns = self._host.monotonic_ns()
            self._send({"id": message["id"], "result": [received_ns, self._host.monotonic_ns()]})
            return
        if message["op"] == "forwarded":
            self.session.forwarded(message["rows"], message["bindings"])
            return
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: wire.Message) -> None:
        try:
            result = await self.perform(message)
        except AmqpError as error:
            self._send({"id": message["id"], "error": _error_to_json(explain(error))})
        else:
            self._send({"id": message["id"], "result": result})

    async def perform(self, message: wire.Message) -> object:
        """Carry out a request. Raises :class:`AmqpError`."""
        arguments = {name: value for name, value in message.items() if name not in ("id", "op")}
        if "settings" in arguments:
            arguments["settings"] = Settings(**arguments["settings"])
        result = self._operations[message["op"]](**arguments)
        return await result if inspect.isawaitable(result) else result

    async def _start_timekeeper(self, secret: str) -> int:
        """Have a process of its own tell the clock of this host over UDP; its port. 0: it cannot be had here. The
        process ends with this one, which holds its stdin."""
        if self._host is not THIS_HOST:
            return 0  # another process would tell another clock
        try:
            process = self._timekeeper = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perftest.engine.workers.timekeeper"), stdin=PIPE, stdout=PIPE
            )
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{secret}\n".encode())
            return int(await process.stdout.readline())
        except (OSError, ValueError):
            return 0

    async def _connect_publishers(self, settings: Settings) -> int:
        waiting = await self.session.connect_publishers(settings)
        self._on_connected()
        return waiting

    async def _begin(self, at_ns: int) -> int:
        late_ns = await self._at(at_ns)
        self.session.begin(at_ns)
        return late_ns

    async def _apply(self, at_ns: int, settings: Settings) -> int:
        await self._at(at_ns)
        return await self.session.apply(settings)

    async def _quiesce(self, at_ns: int) -> int:
        late_ns = await self._at(at_ns)
        self.session.quiesce()
        return late_ns

    async def _cut(self, at_ns: int, clocks: wire.Message | None = None) -> dict[str, Any]:
        await self._at(at_ns)
        return self.session.cut(clocks)

    async def _at(self, when_ns: int) -> int:
        """Wait for a moment of the run clock (0: now). Returns by how much it has passed."""
        context = self.session.context
        if context.clock() < when_ns:
            reached = asyncio.get_running_loop().create_future()
            context.wakeups.at(when_ns, lambda: reached.set_result(None))
            await reached
        return context.clock() - when_ns if when_ns else 0

    def _emit(self, kind: str, text: str = "", **more: object) -> None:
        event: dict[str, object] = {"t_ns": self.session.context.clock(), "kind": kind, "worker": self._name}
        self._send({"event": event | ({"text": text} if text else {}) | more})

    def _fail(self, error: AmqpError, where: str) -> None:
        self._send({"failed": _error_to_json(explain(error, where))})

    def _send(self, message: wire.Message) -> None:
        self._write(self.sequence.line(message))


def _spare_garbage_collections() -> None:
    """Freeze all objects of the connected clients, and make collections rare from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _error_to_json(error: RunError) -> dict[str, str]:
    return {"what": error.what, "where": error.where, "fix": error.fix}


async def _serve(output: int) -> None:
    """Read requests until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    pipe = os.fdopen(output, "wb", buffering=0)
    transport, _ = await loop.connect_write_pipe(asyncio.Protocol, pipe)
    transport.write(wire.to_line(wire.hello()))
    first: dict[str, Any] = json.loads(await reader.readline())
    worker = Worker(first, transport.write, _spare_garbage_collections)
    try:
        while line := await _next_line(reader, first.get("lease_s")):
            worker.request(json.loads(line))
            if worker.ended:
                return
    except TimeoutError:
        sys.stderr.write(f"nobody has asked for anything for {first['lease_s']:g} s: the clients leave\n")
        with contextlib.suppress(TimeoutError, AmqpError):
            async with asyncio.timeout(LEAVE_S):
                await worker.session.disconnect()


async def _next_line(reader: asyncio.StreamReader, lease_s: float | None) -> bytes:
    """The next request; empty at the end. Raises TimeoutError when the lease is over."""
    async with asyncio.timeout(lease_s):
        return await reader.readline()


def main() -> None:
    """Run until stdin ends. Whatever is printed goes to stderr: stdout is for messages."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    allow_files()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        import uvloop
    except ImportError:  # it has no build for Windows
        asyncio.run(_serve(output))
    else:
        uvloop.run(_serve(output))


if __name__ == "__main__":
    main()
