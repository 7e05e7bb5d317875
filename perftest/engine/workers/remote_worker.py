"""The coordinator's end of a worker: start it, ask it, hear it, end it.

Theory of operation. Every call has a deadline, so a caller gets an answer or a :class:`WorkerError`. Deadlines are
generous, because a worker may need long for a request (thousands of connections, a drain). A worker that hangs is found
earlier: its event loop turns all the while, so a healthy worker answers a ping. A watch beside each worker sends a ping
when the worker has said nothing for a while. If the worker stays silent, because it was stopped or hangs, the watch
gives it up and kills it. A worker on another host has a lease, so the watch also pings it now and then when there are
no other messages for it.

The worker says hello before anything is asked of it (:mod:`perftest.engine.workers.wire`): a worker of another version
is refused, and lines that a login printed before are passed over. Messages are numbered in both directions, so a
message that comes twice or too early does no harm, and after a lost connection each end repeats the messages that the
other end may lack.

The watch counts its own turns and not the time, so no worker counts as silent while the whole machine sleeps.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from perftest.engine.api import RunError
from perftest.engine.workers import wire
from perftest.engine.workers.sequence import Sequence
from perftest.engine.workers.transport import LocalProcess, Start, Transport

LEASE_S: Final = 30.0
"""Time without a message after which a worker on another host closes its clients and ends."""
_PING_EVERY: Final = 5
"""Number of turns of the watch between two pings, so that no lease runs out."""
WATCH_S: Final = 1.0
"""Interval at which the watch checks whether the worker has said something."""
SILENCE_S: Final = 15.0
"""Silence after which a worker that was pinged is given up."""
START_SILENCE_S: Final = 60.0
"""Silence that is allowed until the worker's first message: many workers start at once on few cores."""
MEND_S: Final = 4.0
"""Silence after which the transport checks whether the connection to the worker is lost."""
HURRY_SILENCE_S: Final = 3.0
"""Silence that is allowed once the user wants an end at once."""

BANNER_TAIL: Final = 2000
"""Number of octets that are no message and are kept for errors."""

_PING: Final = 0
"""Number of all pings: no caller waits for the answer to a certain ping."""


class WorkerError(Exception):
    """The worker could not carry out a request, or has ended."""

    def __init__(self, error: RunError) -> None:
        super().__init__(error.what)
        self.error = error


class WorkerHandle(Protocol):
    """A worker that has got its first message. ``failed`` is done when the worker gives up by itself, or ends; its
    result says why."""

    failed: asyncio.Future[RunError]

    async def call(self, op: str, *, deadline_s: float | None, **arguments: object) -> Any:
        """Ask for an operation and wait for its result. Raises :class:`WorkerError`."""

    def tell(self, message: wire.Message) -> None:
        """Send a message that has no answer."""

    @property
    def alive(self) -> bool:
        """Whether the worker can still be asked."""

    @property
    def silent(self) -> bool:
        """Whether the worker says nothing at the moment, although it was pinged."""

    def hurry(self) -> None:
        """Wait for a silent worker only for a moment from now on."""

    async def stop(self) -> None:
        """End the worker."""


StartWorker = Callable[[wire.Message, Callable[[wire.Message], None], str], Awaitable[WorkerHandle]]
"""Function that starts a worker. It gets the first message, the receiver of messages that are no answers, and the
worker's name in errors."""


class RemoteWorker:
    """A worker at the other end of a transport.

    ``on_message`` gets every message that is no answer, except the news that the worker failed. Errors name the worker
    as ``who``.
    """

    def __init__(self, transport: Transport, on_message: Callable[[wire.Message], None], who: str) -> None:
        self.failed: asyncio.Future[RunError] = asyncio.get_running_loop().create_future()
        self._transport = transport
        self._on_message = on_message
        self._where = f"{transport.place}: {who}"
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._sequence = Sequence()
        self._greeted = False
        self._banner = b""
        self._gone = False
        self._heard = False
        self._silent_s = 0.0
        self._silence_s = START_SILENCE_S
        self._reader = asyncio.create_task(self._read())
        self._watch = asyncio.create_task(self._watch_silence())

    @classmethod
    async def start(
        cls,
        first: wire.Message,
        on_message: Callable[[wire.Message], None],
        who: str,
        start: Start = LocalProcess.start,
    ) -> RemoteWorker:
        """Start a worker, which gets its ``first`` message once it has said hello."""
        worker = cls(await start(), on_message, who)
        worker._send(first)
        return worker

    async def call(self, op: str, *, deadline_s: float | None, **arguments: object) -> Any:
        """Ask for an operation and wait for its result, at most ``deadline_s`` (None: as long as the worker lives).
        Raises :class:`WorkerError`."""
        if self._gone:
            raise WorkerError(self.failed.result())
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "op": op, **arguments})
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                return await future
        except TimeoutError:
            if not deadline.expired():
                raise
            self._waiting.pop(number, None)
            what = f"the worker process did not finish {op!r} within {deadline_s:g} s"
            fix = "see what the worker waits for, or report this as a fault"
            raise WorkerError(RunError(what=what, where=self._where, fix=fix)) from None

    def tell(self, message: wire.Message) -> None:
        """Send a message that has no answer. A worker that has ended gets nothing."""
        if not self._gone:
            self._send(message)

    @property
    def alive(self) -> bool:
        """Whether the worker can still be asked."""
        return not self._gone

    @property
    def silent(self) -> bool:
        """Whether the worker says nothing at the moment, although it was pinged."""
        return self._silent_s > WATCH_S  # the ping goes out after one turn of the watch

    def hurry(self) -> None:
        """Wait for a silent worker only for a moment from now on."""
        self._silence_s = min(self._silence_s, HURRY_SILENCE_S)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Ask the worker to end; kill it if that takes too long."""
        self._watch.cancel()
        self._send({"op": "end"})
        self._transport.end()
        ended, _ = await asyncio.wait({self._reader}, timeout=timeout_s)
        if not ended:
            self._transport.kill()
            ended, _ = await asyncio.wait({self._reader}, timeout=timeout_s)
        if not ended:  # not even a kill ends a process that waits for a broken device
            self._reader.cancel()
            self._transport.forget()
            return
        await self._reader

    def _send(self, message: wire.Message) -> None:
        line = self._sequence.line(message)
        if self._greeted:
            self._transport.send(line)

    async def _read(self) -> None:
        async for line in self._transport.lines():
            self._take(line)
        said = "" if self._greeted else self._banner.decode(errors="replace").strip().rpartition("\n")[2]
        self._lose(
            what=await self._transport.exit_reason() + (f"; it said: {said}" if said else ""),
            fix="a status of -9 means it was killed, perhaps for want of memory; otherwise report this as a fault",
        )

    def _take(self, line: bytes) -> None:
        """A line: a hello, a message, or something that a login, a shell or a library printed."""
        message = wire.from_line(line)
        if message is not None and message.get("hello") == wire.HELLO:
            self._greet(message)
        elif message is None or not self._greeted:
            self._banner = (self._banner + line)[-BANNER_TAIL:]
        else:
            self._heard = True
            missed = self._sequence.misses
            for due in self._sequence.take(message):
                self._handle(due)
            if self._sequence.misses and not missed:
                self._transport.send(wire.to_line({"op": "resend", "seen": self._sequence.seen}))

    def _greet(self, hello: wire.Message) -> None:
        """Check the worker's identity, and send the messages that it may lack: at the first hello all messages so
        far."""
        self._heard = True
        own = wire.hello()
        if (hello.get("protocol"), hello.get("version")) != (own["protocol"], own["version"]):
            self._lose(
                what=f"the worker on {hello.get('host')} is perftest {hello.get('version')} (worker protocol "
                f"{hello.get('protocol')}), and this is perftest {own['version']} (worker protocol {own['protocol']})",
                fix="begin again, so that both ends are of one version; on another host `perftest remote up` sends the "
                "version of this machine",
            )
            self._transport.kill()
            return
        self._greeted = True
        self._sequence.acknowledge(hello.get("seen", 0))
        for line in self._sequence.unseen:
            self._transport.send(line)

    async def _watch_silence(self) -> None:
        """Ping a worker that says nothing; give it up and kill it if it goes on saying nothing."""
        for turn in itertools.count(1):
            if self._silent_s >= self._patience_s():
                break
            await asyncio.sleep(WATCH_S)
            if turn % _PING_EVERY == 0 and self._greeted:
                self.tell({"id": _PING, "op": "ping"})
            if self._heard:
                self._silent_s, self._heard = 0.0, False
                self._silence_s = min(self._silence_s, SILENCE_S)
            else:
                self._silent_s += WATCH_S
                if self._silent_s == WATCH_S and self._greeted:
                    self.tell({"id": _PING, "op": "ping"})
                if self._silent_s >= MEND_S and self._greeted:
                    self._transport.mend()
        if self._transport.out_of_reach:
            self._lose(
                what=f"the connection to the host was lost, and could not be had again within {self._silent_s:g} s",
                fix="see whether the host is up and what lies between; what it measured since then is missing",
            )
        self._lose(
            what=f"the worker process said nothing for {self._silent_s:g} s, and was killed",
            fix="somebody stopped it (SIGSTOP, a debugger), or the machine had no CPU or memory left for it; "
            "run again, with less beside it",
        )
        self._transport.kill()

    def _patience_s(self) -> float:
        """The longest silence of the worker now: a lease while its connection is being mended."""
        hurried = self._silence_s <= HURRY_SILENCE_S
        return LEASE_S if self._transport.out_of_reach and not hurried else self._silence_s

    def _lose(self, *, what: str, fix: str) -> None:
        """The worker has ended: every call, under way or later, gets the reason."""
        if self._gone:
            return
        self._gone = True
        self._watch.cancel()
        self._give_up(RunError(what=what, where=self._where, fix=fix))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerError(self.failed.result()))
        self._waiting.clear()

    def _handle(self, message: wire.Message) -> None:
        if "failed" in message:
            self._give_up(RunError(**message["failed"]))
        elif "id" not in message:
            self._on_message(message)
        else:
            future = self._waiting.pop(message["id"], None)
            if future is None or future.done():  # a ping, or a call whose caller has gone
                return
            if "error" in message:
                future.set_exception(WorkerError(RunError(**message["error"])))
            else:
                future.set_result(message["result"])

    def _give_up(self, error: RunError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
