"""The clients of a plan, spread over worker processes, as if they were in one.

Theory of operation. Every worker has the whole plan, knows which clients are its own
(:mod:`perftest.engine.workers.shares`), and is asked for the same things at the same time as the others. One of them,
the first, does what is to be done once: declaring and deleting queues. Deliveries of a message that another worker
published pass through here to that worker, which has its account; pipes keep their order, so once all workers have
answered ``forward``, whatever is asked next is answered by accounts that know of every delivery until then.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from perftest.engine.accounting.ledger import merge_records
from perftest.engine.accounting.routing import is_fleeting, is_transient, keeps_messages
from perftest.engine.api import RunError
from perftest.engine.consuming.exit_condition import in_words
from perftest.engine.workers import wire
from perftest.engine.workers.shares import Share
from perftest.engine.workers.worker_process import WorkerError, WorkerProcess
from perftest.spec.codec import plan_to_json
from perftest.spec.plan import Plan

SALVAGE_TIMEOUT_S: Final = 5.0
"""After a failure each worker may take so long for an answer."""

_LOSSES: Final = frozenset({"connection_lost", "channel_closed", "consumer_cancelled"})
"""Events after which a queue that goes with its last consumer, or with a restart, may have gone."""


class Load:
    """See the module. ``failed`` is done with the reason when a worker gives up or dies; ``exhausted`` is set when all
    clients that stop by themselves have, which is then told by an event. Start it with :meth:`start`."""

    def __init__(self, plan: Plan, names: Iterable[str], on_event: Callable[[dict[str, object]], None]) -> None:
        self.plan = plan
        self.names = tuple(names)
        self.failed: asyncio.Future[RunError] = asyncio.get_running_loop().create_future()
        self.exhausted = asyncio.Event()
        self._on_event = on_event
        self._connections_lost = False
        self._workers: list[WorkerProcess] = []
        self._waiting = [0] * len(self.names)
        self._reasons: dict[int, dict[str, int]] = {}
        self._cutting: list[asyncio.Future[Any]] = []

    async def start(self, offset_ns: int) -> None:
        """Start the workers, one for each name."""
        first = {"plan": plan_to_json(self.plan), "offset_ns": offset_ns, "workers": len(self.names)}
        first["run"] = random.SystemRandom().getrandbits(16)
        for index, name in enumerate(self.names):
            self._workers.append(await self._start_one(index, first | {"worker": name, "index": index}))

    async def _start_one(self, index: int, first: wire.Message) -> WorkerProcess:
        who = f"worker {self.names[index]}, with {self._share_in_words(index)}"
        worker = await WorkerProcess.start(first, lambda message: self._hear(index, message), who)
        worker.failed.add_done_callback(self._give_up)
        return worker

    def _share_in_words(self, index: int) -> str:
        share = Share(self.plan, index=index, workers=len(self.names))
        publishers = max((step.settings.publishers for step in self.plan.steps), default=0)
        consumers = max((step.settings.consumers for step in self.plan.steps), default=0)
        return (
            f"{len(share.publishers(publishers))} of {publishers * self.plan.publishing.channels} publishers and "
            f"{len(share.consumers(consumers))} of {consumers * self.plan.consuming.channels} consumers"
        )

    # Operations; each may raise WorkerError

    async def open(self, settings: wire.Message, *, fresh: bool) -> dict[str, str]:
        """Declare the queues, connect all consumers, then all publishers; what the broker says of itself."""
        properties: dict[str, str] = await self._workers[0].call("prepare", fresh=fresh)
        await self._all("connect_consumers", settings=settings)
        self._waiting = await self._all("connect_publishers", settings=settings)
        self._reasons.clear()
        self.exhausted.clear()
        return properties

    async def begin(self, at_ns: int) -> None:
        """Publish from ``at_ns`` (run clock; 0: now) on."""
        await self._all("ready")
        await self._all("begin", at_ns=at_ns)

    async def apply(self, settings: wire.Message) -> None:
        """Change settings and numbers of clients while messages flow."""
        self._waiting = await self._all("apply", settings=settings)

    async def cut(self, at_ns: int = 0) -> list[tuple[str, wire.Message]]:
        """The interval of every worker that ends at ``at_ns`` (run clock; 0: now), with the worker's name."""
        self._cutting = [asyncio.ensure_future(worker.call("cut", at_ns=at_ns)) for worker in self._workers]
        await asyncio.wait(self._cutting)
        answers, self._cutting = self._cutting, []
        return [(name, answer.result()) for name, answer in zip(self.names, answers, strict=True)]

    async def quiesce(self) -> None:
        """Publish nothing new."""
        await self._all("quiesce")

    async def left(self) -> dict[str, int]:
        """What still has to be confirmed or delivered, as :meth:`perftest.engine.workers.session.Session.left` says
        it."""
        await self._share_deliveries()
        answers = await self._all("left")
        return {name: sum(answer[name] for answer in answers) for name in answers[0]}

    async def flush(self) -> None:
        """Acknowledge what consumers are done with, also where an interval is not complete."""
        await self._all("flush")

    async def close(self, *, drained: bool, abandoned: bool, delete: bool) -> None:
        """Disconnect everybody, close the accounts, delete the queues if wanted.

        If they are not ``drained`` and hold nothing all the same, what was not delivered is lost and not late.
        """
        held = not drained and self._tells_loss() and all(await self._all("hold"))
        await self._all("disconnect")
        await self._share_deliveries()
        drained = drained or (held and all(await self._all("emptied")))
        await self._all("settle", drained=drained, abandoned=abandoned and delete)
        if delete:
            await self._workers[0].call("delete")

    def _tells_loss(self) -> bool:
        """Whether queues that hold nothing have lost what did not come."""
        may_forget = is_fleeting(self.plan) or is_transient(self.plan)
        return keeps_messages(self.plan) and not (may_forget and self._connections_lost)

    async def ledger(self, *, complete: bool) -> dict[str, Any]:
        """The content of ``ledger.json`` so far."""
        return merge_records(await self._all("ledger", complete=complete), complete=complete)

    async def _all(self, op: str, **arguments: object) -> list[Any]:
        return await asyncio.gather(*(worker.call(op, **arguments) for worker in self._workers))

    async def _share_deliveries(self) -> None:
        if len(self._workers) > 1:
            await self._all("forward")

    # After a failure

    async def salvage_cut(self) -> list[tuple[str, wire.Message]]:
        """The last intervals of the workers that are left, which publish no more: that of the cut which the failure
        interrupted, whatever some of them have answered to it, and what happened since."""
        await _those_that_answer(worker.call("quiesce") for worker in self._workers)
        interrupted = [None] * len(self.names)
        if self._cutting:
            interrupted = await _those_that_answer(self._cutting)
        last = await _those_that_answer(worker.call("cut", at_ns=0) for worker in self._workers)
        answers = [*zip(self.names, interrupted, strict=True), *zip(self.names, last, strict=True)]
        return [(name, answer) for name, answer in answers if answer is not None]

    async def salvage_close(self, *, delete: bool) -> None:
        """Leave nothing behind on the broker, as far as it still listens to the workers that are left."""
        living = self._living()
        await _those_that_answer(worker.call("disconnect") for worker in living)
        await _those_that_answer(worker.call("settle", drained=False, abandoned=False) for worker in living)
        if delete and living:
            await _those_that_answer([living[0].call("delete")])

    async def salvage_ledger(self) -> dict[str, Any] | None:
        """The accounts of the workers that are left, together; None if there are none."""
        answers = await _those_that_answer(worker.call("ledger", complete=False) for worker in self._living())
        records = [answer for answer in answers if answer is not None]
        if not records:
            return None
        lost_a_worker = len(records) < len(self.names)
        whole = [{**record, "drained": record["drained"] and not lost_a_worker} for record in records]
        return merge_records(whole, complete=False)

    def hurry(self) -> None:
        """The user wants an end at once: wait for silent workers only for a moment."""
        for worker in self._workers:
            worker.hurry()

    async def stop(self) -> None:
        """End the processes."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    def _living(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if worker.alive]

    # What workers say unasked

    def _hear(self, index: int, message: wire.Message) -> None:
        if "forwarded" in message:
            self._pass_on(index, message["forwarded"], message["bindings"])
        elif message["event"]["kind"] == "limit_reached":
            self._on_limit_reached(index, message["event"])
        else:
            self._connections_lost |= message["event"]["kind"] in _LOSSES
            self._on_event(message["event"])

    def _on_limit_reached(self, index: int, event: dict[str, Any]) -> None:
        """One worker has no client left that will stop by itself; with the last of them the load is over."""
        self._waiting[index] = 0
        self._reasons[index] = event["reasons"]
        if not any(self._waiting):
            reasons: Counter[str] = sum((Counter(part) for part in self._reasons.values()), Counter())
            told = {"t_ns": event["t_ns"], "kind": "limit_reached", "text": in_words(reasons)}
            self._on_event(told)
            self.exhausted.set()

    def _pass_on(self, sender: int, parcels: dict[str, str], bindings: list[object]) -> None:
        for index, worker in enumerate(self._workers):
            rows = parcels.get(str(index), "")
            if index != sender and (rows or bindings):
                worker.tell({"op": "forwarded", "rows": rows, "bindings": bindings})

    def _give_up(self, failed: asyncio.Future[RunError]) -> None:
        if not self.failed.done() and not failed.cancelled():
            self.failed.set_result(failed.result())


async def _those_that_answer(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The answers of workers, None of each that fails or takes too long."""
    bounded = (asyncio.wait_for(call, SALVAGE_TIMEOUT_S) for call in calls)
    answers = await asyncio.gather(*bounded, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, WorkerError | TimeoutError):
            raise answer
    return [None if isinstance(answer, BaseException) else answer for answer in answers]
