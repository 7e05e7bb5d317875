"""A load of the engine under test: the life that production gives it, with its worker in the process of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perftest.amqp.errors import AmqpError
from perftest.engine.api import RunError
from perftest.engine.coordination.clocks import Clocks, ignore_clocks
from perftest.engine.coordination.load import Load, drain
from perftest.engine.host import THIS_HOST
from perftest.engine.workers import wire
from perftest.engine.workers.worker import Worker
from perftest.spec.plan import Isolation, Plan, QueueSpec, Settings, Step

PATIENCE_S = 20.0
RUN = 5


class DirectWorker:
    """A worker without a transport: an operation that fails raises the exception itself."""

    def __init__(self, first: wire.Message, on_message: Callable[[wire.Message], None]) -> None:
        self.failed: asyncio.Future[RunError] = asyncio.get_running_loop().create_future()
        self.alive = True
        self.silent = False
        self.worker = Worker(first | {"run": RUN}, lambda line: on_message(json.loads(line)))

    async def call(self, op: str, *, deadline_s: float | None, **arguments: object) -> Any:
        return await self.worker.perform({"op": op, **arguments})

    def tell(self, message: wire.Message) -> None:
        self.worker.request(message)

    def hurry(self) -> None:
        """It answers at once."""

    async def stop(self) -> None:
        """It ends with the test."""


class Run:
    """A load, what its worker said, and a broker to be unkind with. ``sizes`` are those of further steps,
    ``plan_fields`` what its plan differs in; so many plain ``queues``, or the ones given."""

    def __init__(
        self,
        broker: Any,
        settings: Settings,
        *sizes: int,
        queues: int | tuple[QueueSpec, ...] = 1,
        uri: str = "",
        **plan_fields: Any,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.events: list[str] = []
        self.texts: list[str] = []
        self.failures: list[AmqpError] = []
        steps = [
            Step(number=1, label="", settings=replace(settings, size_bytes=size), duration_s=1, warmup_s=0)
            for size in (settings.size_bytes, *sizes)
        ]
        usual: dict[str, Any] = {
            "uris": (uri or broker.uri,),
            "queues": _plain(queues) if isinstance(queues, int) else queues,
            "confirm_timeout_s": PATIENCE_S,
        }
        plan = Plan.of(name="t", title="t", steps=tuple(steps), isolation=Isolation.LIVE, **usual | plan_fields)
        clocks = Clocks(0, THIS_HOST, ignore_clocks, lambda kind, **more: None)
        self.load = Load(plan, plan.load, ["0"], self._on_event, clocks, self._start_worker)
        starting = self.load.start(0)
        try:
            starting.send(None)  # a worker in this process starts without waiting
        except StopIteration:
            return
        raise AssertionError("the worker waits for something")

    async def _start_worker(self, first: wire.Message, on_message: Callable[[wire.Message], None], _: str) -> Any:
        worker = DirectWorker(first, on_message)
        self.session = worker.worker.session
        self.session.context.fail = self._fail
        return worker

    def _on_event(self, event: dict[str, object]) -> None:
        self.events.append(str(event["kind"]))
        self.texts.append(str(event.get("text", "")))

    def _fail(self, error: AmqpError, where: str) -> None:
        if where:
            error.add_note(where)
        self.failures.append(error)

    async def connect(self) -> dict[str, str]:
        return await self.load.open(self.settings, fresh=False)

    async def open(self) -> None:
        await self.connect()
        await self.load.begin(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert not self.failures, self.failures
                await asyncio.sleep(0)

    async def published(self, count: int) -> None:
        """Until the broker has got so many more."""
        wanted = self.broker.published + count
        await self.until(lambda: self.broker.published >= wanted)

    async def change(self, **settings: Any) -> None:
        """Go on with other settings, while messages flow."""
        self.settings = replace(self.settings, **settings)
        await self.load.apply(self.settings)

    async def drain(self, drain_s: float = PATIENCE_S) -> bool:
        """Publish no more, and wait for what is under way; whether all of it came."""

        async def pause(seconds: float) -> bool:
            await asyncio.sleep(seconds)
            return True

        await self.load.quiesce()
        left, *_ = await drain([self.load], drain_s, pause)
        return not left

    async def close(self, *, drained: bool, delete: bool = True) -> None:
        await self.load.close(drained=drained, abandoned=False, delete=delete)

    async def abandon(self, *, delete: bool = True) -> None:
        """End as after a failure: nobody looks at what is left in the queues."""
        await self.load.salvage_close(delete=delete)

    async def finish(self, *, drain_s: float = PATIENCE_S) -> dict[str, Any]:
        await self.close(drained=await self.drain(drain_s))
        return await self.load.ledger(complete=True)


def _plain(count: int) -> tuple[QueueSpec, ...]:
    return tuple(QueueSpec(name=f"q{index}") for index in range(count))
