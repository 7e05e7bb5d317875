"""The worker process, ``python -m perftest.engine.workers.worker [DOORS]``: it carries out the requests on its stdin.

:mod:`perftest.engine.workers.wire` describes the requests and the answers. The worker is a process of its own, so no
work of the command (drawing, writing files, encoding histograms) can delay a message. The worker ends when its stdin
ends, so it never outlives the command. It ignores interrupts from the terminal, which are for the command.

On another host the stdin ends with the connection, which may be had again. So there the worker has a *door*
(:mod:`perftest.engine.workers.door`) and a *lease*: it goes on without its stdin, keeps its messages, and ends when no
message has come for the time of the lease.

Garbage collection: all objects that exist once the clients are connected are frozen, and collections become rare. The
hot paths make no cycles, and a full collection in the middle of a run would be a pause that looks like the broker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from perftest.amqp.errors import AmqpError
from perftest.engine.api import RunError
from perftest.engine.host import THIS_HOST, Host
from perftest.engine.workers import wire
from perftest.engine.workers.door import opened
from perftest.engine.workers.failures import explain
from perftest.engine.workers.links import WorkerLinks
from perftest.engine.workers.sequence import Sequence
from perftest.engine.workers.session import WorkerSession
from perftest.engine.workers.shares import Share
from perftest.engine.workers.transport import LINE_MAX, allow_files
from perftest.spec.codec import plan_from_json
from perftest.spec.plan import Settings

GC_THRESHOLDS: Final = (100_000, 50, 100)
UNASKED_S: Final = 60.0
"""Time after which a worker with a door ends if it gets no first message."""
LEAVE_S: Final = 5.0
"""Longest time in which a worker whose lease is over closes its clients in good order."""


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
        self._may_be_late = "lease_s" in first
        self.sequence = Sequence(first.get("n", 0))
        self._write = write
        self._host = host
        self._timekeeper: asyncio.subprocess.Process | None = None
        self._changing = asyncio.Lock()
        self._on_connected = on_connected
        self._name = first["worker"]
        plan = plan_from_json(first["plan"])
        self.session = WorkerSession(
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
        """Start to carry out a request and the requests that waited for it, each one once."""
        if message.get("op") == "resend":
            self.sequence.acknowledge(message["seen"])
            self.resend()
            return
        for due in self.sequence.take(message):
            self._start(due)

    def resend(self) -> None:
        """Write the messages that the coordinator may lack."""
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

    async def _begin(self, at_ns: int, *, takes_only: bool = False) -> int:
        late_ns = await self._at(at_ns)
        self.session.begin(at_ns, takes_only=takes_only)
        return late_ns

    async def _apply(self, at_ns: int, settings: Settings) -> int:
        """One change after the other: several come at once to a worker that was out of reach."""
        await self._at(at_ns)
        async with self._changing:
            return await self.session.apply(settings)

    async def _quiesce(self, at_ns: int) -> int:
        late_ns = await self._at(at_ns)
        async with self._changing:  # publishers that a late change adds publish nothing after this
            self.session.quiesce()
        return late_ns

    async def _cut(self, at_ns: int, clocks: wire.Message | None = None) -> dict[str, Any] | None:
        """None if the interval before has reached beyond this moment, because the requests came together, late."""
        await self._at(at_ns)
        if self._may_be_late and 0 < at_ns <= self.session.cut_ns:
            return None
        return self.session.cut(clocks)

    async def _at(self, when_ns: int) -> int:
        """Wait for a moment of the run clock (0: now). Returns the lateness."""
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


class Server:
    """Reads requests until the coordinator wants no more, or says nothing for a lease. ``doors`` is the directory of
    the door for a coordinator that comes back; without it the worker ends with its stdin."""

    def __init__(self, doors: Path | None) -> None:
        self._doors = doors
        self._worker: Worker | None = None
        self._lease_s: float | None = None
        self._links = WorkerLinks(self._greeting, has_door=doors is not None)

    async def serve(self, output: int) -> None:
        """Serve the coordinator at stdin and at ``output``, and connections through the door."""
        async with contextlib.AsyncExitStack() as stack:
            if self._doors is not None:
                listening = stack.enter_context(opened(self._doors, socket.gethostname()))
                stack.push_async_callback(_close, await asyncio.start_unix_server(
                    self._links.enter, sock=listening.dup(), limit=LINE_MAX))  # fmt: skip
            await self._links.use_standard(output)
            try:
                await self._take_requests()
            except TimeoutError:
                await self._leave()

    def _greeting(self) -> list[bytes]:
        sequence = self._worker.sequence if self._worker is not None else Sequence()
        return [wire.to_line(wire.hello(sequence.seen)), *sequence.unseen]

    async def _take_requests(self) -> None:
        """Raises TimeoutError when the lease is over."""
        while self._worker is None or not self._worker.ended:
            async with asyncio.timeout(self._lease_s or (UNASKED_S if self._doors is not None else None)):
                line = await self._links.lines.get()
            if line is None:
                return
            message = wire.from_line(line)
            if message is None:  # the rest of a line that a lost connection cut
                continue
            if self._worker is None:
                self._lease_s = message.get("lease_s")
                self._worker = Worker(message, self._links.write, _spare_garbage_collections)
            else:
                self._worker.request(message)

    async def _leave(self) -> None:
        """Nobody has asked for anything for a lease: the clients leave."""
        with contextlib.suppress(OSError):  # the reader may be gone, too
            sys.stderr.write(f"nobody has asked for anything for {self._lease_s or UNASKED_S:g} s: the clients leave\n")
        if self._worker is not None:
            with contextlib.suppress(TimeoutError, AmqpError):
                async with asyncio.timeout(LEAVE_S):
                    await self._worker.session.disconnect()


async def _close(server: asyncio.Server) -> None:
    server.close()


def main() -> None:
    """``worker [DOORS]``: run until the coordinator wants no more. Whatever is printed goes to stderr: stdout is for
    messages."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    allow_files()
    server = Server(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        import uvloop
    except ImportError:  # it has no build for Windows
        asyncio.run(server.serve(output))
    else:
        uvloop.run(server.serve(output))


if __name__ == "__main__":
    main()
