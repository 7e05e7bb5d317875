"""A worker that goes by a script: it does what a worker does, until a request for which the script has something else.

It has the clock of a host of its own, and publishes, confirms and delivers :data:`RATE` messages a second from the
moment of ``begin`` to that of ``quiesce``. No broker takes part.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from perftest.engine.accounting.ledger import make_record
from perftest.engine.workers import wire
from perftest.engine.workers.remote_worker import RemoteWorker, StartWorker
from perftest.engine.workers.sequence import Sequence
from tests.perftest.testing.virtual_time import VirtualTimeHost

RATE = 100
THERE_S = 0.001
"""A line takes so long, in each direction."""


@dataclass(frozen=True)
class Fault:
    """What happens at the ``times``-th request ``op``; ``hello`` is the worker's first word.

    ======= ==========================================================================
    late    the answer comes ``for_s`` seconds after its time
    silent  nothing is heard of the worker from then on, and it does nothing
    away    all lines are held up for ``for_s`` seconds, in both directions
    ends    the worker ends without a word
    half    the worker ends within the line of its answer
    twice   the answer comes twice
    swapped the answer comes after the line that follows
    dropped the line of the answer is lost, and comes only when it is asked for again
    stray   something that is no message comes before the answer
    refused the answer is an error
    older   the worker is of another version
    ======= ==========================================================================
    """

    what: str
    op: str
    times: int = 1
    for_s: float = 0.0


class ScriptedWorker:
    """The :class:`~perftest.engine.workers.transport.Transport` to such a worker."""

    def __init__(self, ahead_ns: int = 0, fault: Fault | None = None, missing: int = 0) -> None:
        """``missing`` messages of its publishers are never delivered."""
        self.out_of_reach = False
        self.place = "scripted worker"
        self.killed = False
        self.asked: list[str] = []
        self._fault = fault
        self._missing = missing
        self._host = VirtualTimeHost(ahead_ns)
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._sequence = Sequence()
        self._first: dict[str, Any] = {}
        self._silent = self._over = False
        self._held_until_s = 0.0
        self._swapped: bytes | None = None
        self._began_ns = self._cut_ns = self._quiet_ns = 0
        self._told = 0
        self._tasks: set[asyncio.Task[None]] = set()
        hello = wire.hello()
        if self._is_due("hello"):
            hello |= {"version": "0.0.1"} if fault is not None and fault.what == "older" else {}
        self._deliver(wire.to_line(hello))

    # The transport

    def send(self, line: bytes) -> None:
        if not self._over:
            self._later(lambda: self._take(json.loads(line)))

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            yield line

    async def exit_reason(self) -> str:
        return "the worker was killed" if self.killed else "the worker has ended"

    def mend(self) -> None:
        """The way to it is whole."""

    def end(self) -> None:
        self._over = True
        self._lines.put_nowait(None)

    def kill(self) -> None:
        self.killed = True
        self.end()

    def forget(self) -> None:
        """Nothing is held."""

    # The worker

    def _take(self, message: wire.Message) -> None:
        if self._silent or self._over:
            return
        if message.get("op") == "resend":
            self._sequence.acknowledge(message["seen"])
            for line in self._sequence.unseen:
                self._deliver(line)
            return
        for due in self._sequence.take(message):
            if "op" not in due:
                self._first = due
            elif due["op"] != "end" and "id" in due:
                task = asyncio.create_task(self._answer(due))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: wire.Message) -> None:
        op = message["op"]
        fault = self._fault if self._is_due(op) else None
        if self._silent or self._over:
            return
        await self._reach(message.get("at_ns", 0))
        if fault is not None and fault.what == "late":
            await asyncio.sleep(fault.for_s)
        if self._silent or self._over:
            return
        answer = {"id": message["id"], "result": self._result(op, message)}
        if fault is not None and fault.what == "refused":
            answer = {"id": message["id"], "error": {"what": "no", "where": "there", "fix": "none"}}
        line = self._sequence.line(answer)
        if fault is None or fault.what in ("late", "away", "refused"):
            self._deliver(line)
        elif fault.what == "twice":
            self._deliver(line)
            self._deliver(line)
        elif fault.what == "swapped":
            self._swapped = line
        elif fault.what == "stray":
            self._deliver(b"Last login: Tue Nov 24\n")
            self._deliver(line)
        elif fault.what == "half":
            self._deliver(line[: len(line) // 2])
            self._later(self.end)

    def _is_due(self, op: str) -> bool:
        """Whether the fault of the script happens with this request; those that last begin here."""
        if op not in ("ping", "clock"):
            self.asked.append(op)
        fault = self._fault
        if fault is None or fault.op != op or self.asked.count(op) != fault.times:
            return False
        self._silent = fault.what == "silent"
        if fault.what == "ends":
            self.end()
        elif fault.what == "away":
            self._held_until_s = asyncio.get_running_loop().time() + fault.for_s
        return True

    def _deliver(self, line: bytes) -> None:
        if self._silent:
            return
        self._later(lambda: self._lines.put_nowait(line))
        if self._swapped is not None:
            swapped, self._swapped = self._swapped, None
            self._later(lambda: self._lines.put_nowait(swapped))

    def _later(self, work: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(max(loop.time() + THERE_S, self._held_until_s), work)

    # What it does

    def _now_ns(self) -> int:
        return self._host.monotonic_ns() + int(self._first["offset_ns"])

    async def _reach(self, at_ns: int) -> None:
        await asyncio.sleep(max(at_ns - self._now_ns(), 0) / 1e9 if at_ns else 0)

    def _result(self, op: str, message: wire.Message) -> Any:
        at_ns = message.get("at_ns", 0)
        if op in ("begin", "quiesce"):
            self._began_ns, self._cut_ns = (at_ns, at_ns) if op == "begin" else (self._began_ns, self._cut_ns)
            self._quiet_ns = self._now_ns() if op == "quiesce" else self._quiet_ns
            return self._now_ns() - at_ns if at_ns else 0
        if op == "clock":
            return [self._host.monotonic_ns()] * 2
        if op == "cut":
            return self._interval(at_ns)
        if op == "left":
            return {"left": self._missing, "unconfirmed": 0, "consumers": 1, "committing": 0}
        if op == "ledger":
            counts = dict.fromkeys(("published", "confirmed", "delivered", "unique"), self._published())
            return make_record(counts, [], complete=message["complete"], drained=True)
        return {"prepare": {}, "apply": 0, "connect_publishers": 0, "timekeeper": 0, "emptied": True, "hold": True}.get(
            op
        )

    def _published(self) -> int:
        if not self._began_ns:
            return 0
        return max((self._quiet_ns or self._now_ns()) - self._began_ns, 0) * RATE // 10**9

    def _interval(self, at_ns: int) -> dict[str, Any] | None:
        if 0 < at_ns <= self._cut_ns:
            return None
        start_ns, self._cut_ns = self._cut_ns, self._now_ns()
        count, self._told = self._published() - self._told, self._published()
        record = dict.fromkeys(("intended", "published", "confirmed", "delivered", "acked"), count)
        return {**record, "start_ns": start_ns, "length_ns": self._cut_ns - start_ns, "counts": {}, "progress": []}


def scripted(
    workers: dict[str, ScriptedWorker], faults: dict[str, Fault], ahead_ns: dict[str, int], missing: int = 0
) -> StartWorker:
    """Starts workers that go by a script; ``workers`` gets them, by host."""

    async def start_worker(first: wire.Message, on_message: Callable[[wire.Message], None], who: str) -> RemoteWorker:
        async def start() -> ScriptedWorker:
            host = first["host"]
            workers[host] = ScriptedWorker(ahead_ns.get(host, 0), faults.get(host), missing)
            return workers[host]

        return await RemoteWorker.start(first, on_message, who, start)

    return start_worker
