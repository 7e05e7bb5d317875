"""A worker that says hello, one that is of another version, and ways that print, repeat and lose lines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perftest.engine.workers import wire
from perftest.engine.workers.remote_worker import RemoteWorker, WorkerError
from perftest.engine.workers.sequence import Sequence
from perftest.engine.workers.transport import LocalProcess
from perftest.spec.codec import plan_to_json
from tests.perftest.engine.coordination.test_engine_execute import plan
from tests.perftest.testing.memory_transport import MemoryTransport


class ScriptedTransport(MemoryTransport):
    """A worker that says what the test has it say, and nothing else."""

    def __init__(self) -> None:
        super().__init__(answers=False)
        self.lines_back.get_nowait()  # the hello, which the test says itself
        self.sequence = Sequence()

    def say(self, *lines: bytes) -> None:
        for line in lines:
            self.lines_back.put_nowait(line)

    def hello(self, **other: object) -> None:
        self.say(wire.to_line({**wire.hello(), **other}))

    def asked(self) -> list[Any]:
        return [json.loads(line) for line in self.sent]


async def started(transport: MemoryTransport, heard: list[Any]) -> RemoteWorker:
    async def start() -> MemoryTransport:
        return transport

    return await RemoteWorker.start({"first": 1}, heard.append, "worker 0, alone", start)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_nothing_is_asked_before_the_hello_and_a_banner_is_passed_over() -> None:
    async def scenario() -> None:
        transport, heard = ScriptedTransport(), list[Any]()
        worker = await started(transport, heard)
        call = asyncio.ensure_future(worker.call("left", deadline_s=5.0))
        transport.say(b"Welcome to host load1\n", b"{not json}\n", b'{"id": 1, "result": "of nobody"}\n', b"42\n")
        await turns()
        assert not transport.sent and not call.done()
        transport.hello()
        await turns()
        assert [message["n"] for message in transport.asked()] == [1, 2]
        transport.say(b"a warning\n", transport.sequence.line({"id": 1, "result": 7}))
        assert await call == 7 and heard == []
        await worker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("other", [{"protocol": 1}, {"version": "0.0.1"}, {"protocol": None}])
def test_a_worker_of_another_version_is_refused_with_its_host_and_what_to_do(other: dict[str, Any]) -> None:
    async def scenario() -> None:
        transport = ScriptedTransport()
        worker = await started(transport, [])
        transport.hello(host="load7", **other)
        with pytest.raises(WorkerError, match="the worker on load7 is perftest") as caught:
            await worker.call("prepare", deadline_s=5.0)
        assert not transport.sent and transport.killed, "nothing has begun"
        assert "perftest remote up" in caught.value.error.fix
        await worker.stop()

    asyncio.run(scenario())


def test_who_ends_before_the_hello_is_quoted() -> None:
    async def scenario() -> None:
        transport = ScriptedTransport()
        worker = await started(transport, [])
        transport.say(b"x" * 5000 + b"\n", b"This account is closed.\n")
        transport.end()
        with pytest.raises(WorkerError, match=r"the worker has ended; it said: This account is closed\.$"):
            await worker.call("prepare", deadline_s=5.0)

    asyncio.run(scenario())


def test_messages_that_come_twice_or_too_early_do_no_harm_and_missing_ones_are_asked_for() -> None:
    async def scenario() -> None:
        transport, heard = ScriptedTransport(), list[Any]()
        worker = await started(transport, heard)
        transport.hello()
        lines = [transport.sequence.line({"event": {"kind": str(number)}}) for number in range(4)]
        transport.say(lines[0], lines[0], lines[3], lines[2])
        await turns()
        assert [each["event"]["kind"] for each in heard] == ["0"]
        assert [each for each in transport.asked() if each.get("op") == "resend"] == [{"op": "resend", "seen": 1}]
        transport.say(*lines)
        await turns()
        assert [each["event"]["kind"] for each in heard] == ["0", "1", "2", "3"]
        await worker.stop()

    asyncio.run(scenario())


def test_after_a_second_hello_each_request_is_sent_again_unless_the_worker_has_it() -> None:
    async def scenario() -> None:
        transport = ScriptedTransport()
        worker = await started(transport, [])
        transport.hello()
        calls = [asyncio.ensure_future(worker.call(op, deadline_s=5.0)) for op in ("cut", "left")]
        await turns()
        transport.sent.clear()
        transport.hello(seen=2)
        await turns()
        assert [(each["n"], each["op"]) for each in transport.asked()] == [(3, "left")]
        for number, call in enumerate(calls, 1):
            transport.say(transport.sequence.line({"id": number, "result": number}))
            assert await call == number
        await worker.stop()

    asyncio.run(scenario())


def test_a_real_worker_carries_out_a_request_once_and_tells_again_what_was_lost() -> None:
    async def scenario() -> None:
        transport = await LocalProcess.start()
        lines, sequence = transport.lines(), Sequence()
        hello = json.loads(await anext(lines))
        assert (hello["protocol"], hello["version"]) == (wire.PROTOCOL, wire.hello()["version"])
        first = {"plan": plan_to_json(plan("amqp://127.0.0.1:1")), "offset_ns": 0, "run": 1, "worker": "0", "index": 0,
                 "workers": 1}  # fmt: skip
        transport.send(sequence.line(first))
        pings = [sequence.line({"id": number, "op": "ping"}) for number in (1, 2)]
        for line in (pings[1], pings[0], pings[0], pings[1]):
            transport.send(line)
        answers = [json.loads(await anext(lines)) for _ in pings]
        assert [(each["n"], each["id"]) for each in answers] == [(1, 1), (2, 2)] and answers[-1]["seen"] == 3
        transport.send(wire.to_line({"op": "resend", "seen": 1}))
        assert json.loads(await anext(lines)) == answers[1]
        transport.send(sequence.line({"op": "end"}))
        assert [line async for line in lines] == []
        assert "status 0" in await transport.exit_reason()

    asyncio.run(scenario())
