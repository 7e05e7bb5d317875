"""A session of the engine under test, without the processes around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perftest.amqp.errors import AmqpError
from perftest.engine.workers.session import Session
from perftest.spec.plan import Isolation, Plan, QueueSpec, Settings, Step

PATIENCE_S = 20.0


class Run:
    """A session, what it said, and a broker to be unkind with. ``sizes`` are those of further steps, ``plan_fields``
    what its plan differs in; so many plain ``queues``, or the ones given."""

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
        self.texts: list[str] = []
        self.session = Session(plan, offset_ns=0, run=5, emit=self._emit, fail=self._fail)

    def _emit(self, kind: str, text: str = "", **_: object) -> None:
        self.events.append(kind)
        self.texts.append(text)

    def _fail(self, error: AmqpError, where: str) -> None:
        if where:
            error.add_note(where)
        self.failures.append(error)

    async def open(self) -> None:
        await self.session.open(self.settings, fresh=False)
        self.session.begin()

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
        await self.session.apply(self.settings)

    async def finish(self, *, drain_s: float = PATIENCE_S) -> dict[str, Any]:
        self.session.quiesce()
        drained = (await self.session.drain(drain_s))["drained"]
        await self.session.close(drained=bool(drained), abandoned=False, delete=True)
        return self.session.ledger(complete=True)


def _plain(count: int) -> tuple[QueueSpec, ...]:
    return tuple(QueueSpec(name=f"q{index}") for index in range(count))
