"""A worker behind a transport: every call ends, with an answer or with a reason, wherever the worker runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perftest.engine.workers import remote_worker, wire
from perftest.engine.workers.remote_worker import RemoteWorker, WorkerError
from perftest.engine.workers.transport import LocalProcess
from perftest.spec.codec import plan_to_json
from tests.perftest.engine.coordination.test_engine_execute import plan
from tests.perftest.testing.memory_transport import MemoryTransport


async def started(transport: MemoryTransport, heard: list[Any] | None = None) -> RemoteWorker:
    async def start() -> MemoryTransport:
        return transport

    hear = [] if heard is None else heard
    return await RemoteWorker.start({"first": 1}, hear.append, "worker 0, alone", start)


def test_the_first_line_is_the_first_message_and_a_call_gets_its_own_answer() -> None:
    async def scenario() -> None:
        transport, heard = MemoryTransport(answers=False), []
        worker = await started(transport, heard)
        calls = [asyncio.ensure_future(worker.call(op, deadline_s=5.0)) for op in ("left", "cut")]
        await asyncio.sleep(0)
        first, left, cut = (json.loads(line) for line in transport.sent)
        assert first["first"] == 1 and (left["op"], cut["op"]) == ("left", "cut")
        assert [message["n"] for message in (first, left, cut)] == [1, 2, 3]
        for answer in ({"id": cut["id"], "result": "c"}, {"event": {"kind": "e"}}, {"id": left["id"], "result": "l"}):
            transport.lines_back.put_nowait(json.dumps(answer).encode())
        assert await asyncio.gather(*calls) == ["l", "c"]
        assert heard == [{"event": {"kind": "e"}}]
        await worker.stop()

    asyncio.run(scenario())


def test_a_call_that_is_not_answered_ends_at_its_deadline_and_names_itself_and_the_worker() -> None:
    async def scenario() -> None:
        worker = await started(MemoryTransport(answers=False))
        with pytest.raises(WorkerError, match=r"did not finish 'drain' within 0\.01 s") as caught:
            await worker.call("drain", deadline_s=0.01)
        assert caught.value.error.where == "worker in memory: worker 0, alone"
        assert worker.alive and not worker.failed.done(), "a late answer is no death"
        await worker.stop()

    asyncio.run(scenario())


def test_whoever_waits_for_a_worker_that_ends_gets_its_reason() -> None:
    async def scenario() -> None:
        transport = MemoryTransport(answers=False)
        worker = await started(transport)
        call = asyncio.ensure_future(worker.call("cut", deadline_s=None))
        await asyncio.sleep(0)
        transport.end()
        with pytest.raises(WorkerError, match="the worker has ended"):
            await call
        with pytest.raises(WorkerError, match="the worker has ended"):
            await worker.call("left", deadline_s=None)
        assert not worker.alive and "worker 0" in worker.failed.result().where
        await worker.stop()

    asyncio.run(scenario())


def test_a_worker_that_says_nothing_is_pinged_and_then_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_worker, "WATCH_S", 0.01)
    monkeypatch.setattr(remote_worker, "START_SILENCE_S", 0.03)

    async def scenario() -> None:
        transport = MemoryTransport(answers=False)
        worker = await started(transport)
        with pytest.raises(WorkerError, match="said nothing"):
            await worker.call("cut", deadline_s=None)
        assert transport.killed and [json.loads(line)["op"] for line in transport.sent[1:]] == ["cut", "ping"]
        await worker.stop()

    asyncio.run(scenario())


def test_a_worker_whose_lease_is_over_ends() -> None:
    """The coordinator's machine may be gone without a word: then nothing ends the stdin."""

    async def scenario() -> str:
        transport = await LocalProcess.start()
        first = {"plan": plan_to_json(plan("amqp://127.0.0.1:1")), "offset_ns": 0, "run": 1, "worker": "0", "index": 0,
                 "workers": 1, "host": "far", "lease_s": 0.2}  # fmt: skip
        transport.send(wire.to_line(first))
        async for line in transport.lines():
            assert json.loads(line)["hello"] == wire.HELLO
            break
        async for _line in transport.lines():
            pass
        return await transport.exit_reason()

    assert "nobody has asked for anything for 0.2 s" in asyncio.run(scenario())
