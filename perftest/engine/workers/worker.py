"""The worker process: ``python -m perftest.engine.workers.worker``, spoken to over stdin and stdout
(:mod:`perftest.engine.workers.wire`).

It is a process of its own so that nothing the command does (drawing, writing files, encoding histograms) can delay a
message. It ends when its stdin does, so it never outlives the command. Interrupts from the terminal are for the
command: the worker ignores them.

Garbage collection: what exists once the clients are connected is frozen, and collections become rare; the hot paths
make no cycles, and a full collection in the middle of a run would be a pause that looks like the broker's.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from perftest.amqp.errors import AmqpError
from perftest.engine.api import RunError
from perftest.engine.workers import wire
from perftest.engine.workers.failures import explain
from perftest.engine.workers.session import Session
from perftest.engine.workers.shares import Share
from perftest.engine.workers.transport import LINE_MAX, allow_files
from perftest.spec.codec import plan_from_json
from perftest.spec.plan import Settings

GC_THRESHOLDS: Final = (100_000, 50, 100)


class Worker:
    """Carries out requests for one session. ``on_connected`` is called when all clients are connected."""

    def __init__(
        self, first: wire.Message, write: Callable[[bytes], None], on_connected: Callable[[], None] = lambda: None
    ) -> None:
        self._write = write
        self._on_connected = on_connected
        self._name = first["worker"]
        plan = plan_from_json(first["plan"])
        self.session = Session(
            plan,
            offset_ns=first["offset_ns"],
            run=first["run"],
            emit=self._emit,
            fail=self._fail,
            share=Share(plan, index=first["index"], workers=first["workers"]),
            send=self._send,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, Callable[[wire.Message], Awaitable[object]]] = {
            "ping": self._ping,
            "prepare": self._prepare,
            "connect_consumers": self._connect_consumers,
            "connect_publishers": self._connect_publishers,
            "ready": self._ready,
            "begin": self._begin,
            "apply": self._apply,
            "cut": self._cut,
            "quiesce": self._quiesce,
            "forward": self._forward,
            "left": self._left,
            "flush": self._flush,
            "disconnect": self._disconnect,
            "hold": self._hold,
            "emptied": self._emptied,
            "settle": self._settle,
            "delete": self._delete,
            "ledger": self._ledger,
        }

    def request(self, message: wire.Message) -> None:
        """Start to carry out a request; a long one does not hold up the next. What another worker handed on is taken
        at once: whatever is asked after it is answered by what it says."""
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
        return await self._operations[message["op"]](message)

    async def _ping(self, _message: wire.Message) -> object:
        return None

    async def _prepare(self, message: wire.Message) -> object:
        properties = await self.session.prepare(fresh=message["fresh"])
        return {name: str(properties.get(name, "")) for name in ("product", "version", "platform", "cluster_name")}

    async def _connect_consumers(self, message: wire.Message) -> object:
        await self.session.connect_consumers(Settings(**message["settings"]))
        return self.session.waiting()

    async def _connect_publishers(self, message: wire.Message) -> object:
        await self.session.connect_publishers(Settings(**message["settings"]))
        self._on_connected()
        return self.session.waiting()

    async def _ready(self, _message: wire.Message) -> object:
        self.session.ready()
        return None

    async def _begin(self, message: wire.Message) -> object:
        await self._at(message["at_ns"])
        self.session.begin(message["at_ns"])
        return None

    async def _apply(self, message: wire.Message) -> object:
        await self.session.apply(Settings(**message["settings"]))
        return self.session.waiting()

    async def _cut(self, message: wire.Message) -> object:
        await self._at(message["at_ns"])
        return self.session.cut()

    async def _at(self, when_ns: int) -> None:
        """Wait for a moment of the run clock."""
        context = self.session.context
        if context.clock() < when_ns:
            reached = asyncio.get_running_loop().create_future()
            context.wakeups.at(when_ns, lambda: reached.set_result(None))
            await reached

    async def _quiesce(self, _message: wire.Message) -> object:
        self.session.quiesce()
        return None

    async def _forward(self, _message: wire.Message) -> object:
        self.session.forward()
        return None

    async def _left(self, _message: wire.Message) -> object:
        return self.session.left()

    async def _disconnect(self, _message: wire.Message) -> object:
        await self.session.disconnect()
        return None

    async def _flush(self, _message: wire.Message) -> object:
        self.session.flush()
        return None

    async def _hold(self, _message: wire.Message) -> object:
        return await self.session.hold()

    async def _emptied(self, _message: wire.Message) -> object:
        return await self.session.emptied()

    async def _settle(self, message: wire.Message) -> object:
        self.session.settle(drained=message["drained"], abandoned=message["abandoned"])
        return None

    async def _delete(self, _message: wire.Message) -> object:
        await self.session.delete()
        return None

    async def _ledger(self, message: wire.Message) -> object:
        return self.session.ledger(complete=message["complete"])

    def _emit(self, kind: str, text: str = "", **more: object) -> None:
        event: dict[str, object] = {"t_ns": self.session.context.clock(), "kind": kind, "worker": self._name}
        self._send({"event": event | ({"text": text} if text else {}) | more})

    def _fail(self, error: AmqpError, where: str) -> None:
        self._send({"failed": _error_to_json(explain(error, where))})

    def _send(self, message: wire.Message) -> None:
        self._write(wire.to_line(message))


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
    first: dict[str, Any] = json.loads(await reader.readline())
    worker = Worker(first, transport.write, _spare_garbage_collections)
    async for line in reader:
        worker.request(json.loads(line))


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
