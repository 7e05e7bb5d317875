"""One group of load: its clients, spread over worker processes, as if they were in one.

Theory of operation. Every worker has the plan of the group, knows which clients are its own
(:mod:`perftest.engine.workers.shares`), and is asked for the same things at the same time as the others. The first
worker also does the work that is done once: it declares and deletes queues. When a consumer gets a message of another
worker's publisher, the delivery passes through here to that worker, which keeps the account of the message. Pipes keep
their order: once all workers have answered ``forward``, every later answer counts all deliveries until then.

The life of a load is always the same: ``open``, ``begin``, ``apply`` and ``cut`` as often as wanted, ``quiesce``,
:func:`drain`, ``close``, ``ledger``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from perftest.engine.accounting.ledger import merge_records
from perftest.engine.accounting.routing import is_fleeting, is_transient, keeps_messages
from perftest.engine.api import RunError
from perftest.engine.coordination.clocks import Clocks
from perftest.engine.host import THIS_HOST, Host
from perftest.engine.workers import wire
from perftest.engine.workers.remote_worker import LEASE_S, RemoteWorker, StartWorker, WorkerError, WorkerHandle
from perftest.engine.workers.shares import Share
from perftest.metrics.figures import three_figures
from perftest.metrics.interval import LOCAL_HOST, Phase
from perftest.spec.codec import plan_to_json
from perftest.spec.plan import Group, Plan, Settings

LATE_S: Final = 3.0
"""Grace period after which a missing interval is reported."""
CHANGE_PATIENCE_S: Final = 2.0
"""Time after a change of settings for which the other workers wait for a silent worker."""
SILENCE_LOOK_S: Final = 0.5
"""Interval at which a slow change checks for silent workers."""
SALVAGE_TIMEOUT_S: Final = 5.0
"""Deadline of each worker's answers after a failure."""

ANSWER_S: Final = 60.0
"""Deadline of a call that a worker answers by itself."""
BROKER_ANSWER_S: Final = 3600.0
"""Deadline of a call for which a worker has to talk with the broker, besides the times that the plan allows. Thousands
of connections are opened one portion after the other."""
_WITH_BROKER: Final = frozenset(
    {"prepare", "connect_consumers", "connect_publishers", "apply", "disconnect", "hold", "emptied", "delete"}
)

DRAIN_POLL_S: Final = 0.02
DRAIN_POLL_SHARE: Final = 4
"""Shortest pause between two looks at a drain, as a multiple of the time that the last look took."""
DRAIN_STALL_S: Final = 5.0
"""Time without an arrival after which a drain is over once a worker is lost. Most of the remaining messages are for the
lost worker's consumers alone, or were taken by them."""

_LOSSES: Final = frozenset({"connection_lost", "channel_closed", "consumer_cancelled"})
"""Events after which a queue may be gone because it ends with its last consumer or with a restart."""


class IntervalSource(NamedTuple):
    """A worker, as records name it: names of workers are unique on a host only."""

    host: str
    worker: str


class IntervalPlace(NamedTuple):
    """The place of an interval in the run: its step and its phase."""

    step: int
    phase: Phase


class Drained(NamedTuple):
    """The end of a drain: the number of undelivered messages, and whether it ended because nothing arrived any more
    after a worker was lost, or because no consumer could take them (``hopeless``)."""

    left: int
    stalled: bool
    hopeless: bool = False


class Cut(NamedTuple):
    """An interval that a worker ended. ``place`` is None for an interval after a failure."""

    source: IntervalSource
    record: wire.Message
    place: IntervalPlace | None


@dataclasses.dataclass
class Asked:
    """A worker was asked to end an interval at ``at_ns`` (run clock; 0: at once)."""

    index: int
    at_ns: int
    place: IntervalPlace | None
    answer: asyncio.Future[Any]


class Load:
    """See the module. Every operation may raise :class:`~perftest.engine.workers.remote_worker.WorkerError`.

    ``names`` are the workers' names. ``failed`` is done with the reason when a worker gives up or ends. ``exhausted``
    is set, and an event written, when all clients that stop by themselves have stopped. ``clocks`` translate moments
    for the workers of other hosts. ``start_worker`` starts a worker.

    A load of several hosts goes on without a worker that has ended, once it has begun, while there are publishers and
    consumers. The share of the lost worker stays missing, and the fate of its messages is unknown.
    """

    def __init__(
        self,
        plan: Plan,
        group: Group,
        names: Iterable[str],
        on_event: Callable[[dict[str, object]], None],
        clocks: Clocks,
        start_worker: StartWorker = RemoteWorker.start,
        host: Host = THIS_HOST,
    ) -> None:
        self.plan = plan.only(group)
        self.group = group
        self.names = tuple(names)
        self.sources = tuple(IntervalSource(self._host_of(index), name) for index, name in enumerate(self.names))
        self.failed: asyncio.Future[RunError] = asyncio.get_running_loop().create_future()
        self.exhausted = asyncio.Event()
        self._on_event = on_event
        self._clocks = clocks
        self._start_worker = start_worker
        self._host = host
        self._connections_lost = False
        self._workers: list[WorkerHandle] = []
        self._waiting = [0] * len(self.names)
        self._reasons: dict[int, dict[str, int]] = {}
        self._cutting: list[Asked] = []
        self._late: set[int] = set()
        self._changed_ns: dict[int, float] = {}
        """When each worker answered a change of settings that it was late with; infinite until then."""
        self._begun = False
        self._lost: dict[int, RunError] = {}
        self._stopping = False

    async def start(self, offset_ns: int) -> None:
        """Start the workers, one for each name."""
        first = {"plan": plan_to_json(self.plan), "offset_ns": offset_ns, "workers": len(self.names)}
        first["run"] = self._host.run_number()
        first |= {"lease_s": LEASE_S} if self.plan.hosts else {}
        for index, name in enumerate(self.names):
            own = {"worker": name, "index": index, "host": self.sources[index].host}
            self._workers.append(await self._start_one(index, first | own))
            self._clocks.add(self.sources[index].host, self._workers[-1])
        await self._clocks.know()

    async def _start_one(self, index: int, first: wire.Message) -> WorkerHandle:
        host, name = self.sources[index]
        of_host = f" of {host}" if self.plan.hosts else ""
        who = f"worker {name}{of_host}, with {self._share_in_words(index)}"
        worker = await self._start_worker(first, lambda message: self._hear(index, message), who)
        worker.failed.add_done_callback(lambda failed: self._give_up(index, failed))
        return worker

    def _share(self, index: int) -> Share:
        return Share(self.plan, index=index, workers=len(self.names))

    def _host_of(self, index: int) -> str:
        host = self._share(index).host
        return host.name if host is not None else LOCAL_HOST

    def _share_in_words(self, index: int) -> str:
        share = self._share(index)
        publishers = max((step.settings.publishers for step in self.plan.steps), default=0)
        consumers = max((step.settings.consumers for step in self.plan.steps), default=0)
        return (
            f"{len(share.publishers(publishers))} of {publishers * self.plan.publishing.channels} publishers and "
            f"{len(share.consumers(consumers))} of {consumers * self.plan.consuming.channels} consumers"
        )

    # The life of a load

    async def open(self, settings: Settings, *, fresh: bool) -> dict[str, str]:
        """Declare the queues, connect all consumers, then all publishers. Returns the broker's server properties.

        ``fresh`` deletes the queues first.
        """
        properties: dict[str, str] = await self._call(self._living()[0], "prepare", fresh=fresh)
        plain = dataclasses.asdict(settings)
        self._reasons.clear()
        self.exhausted.clear()
        await self._all("connect_consumers", settings=plain)
        self._waiting = [n or 0 for n in await self._each("connect_publishers", settings=plain)]
        if any(self._waiting):  # consumers that have emptied their queues by now are not all clients
            self.exhausted.clear()
        return properties

    async def begin(self, at_ns: int, *, takes_only: bool = False) -> None:
        """Publish from ``at_ns`` (run clock; 0: now) on. With ``takes_only`` nobody publishes: the load began when its
        consumers subscribed."""
        more = {"takes_only": True} if takes_only else {}
        if not takes_only:
            await self._all("ready", **self._models(at_ns))
        self._begun = True
        self._tell_skew("begun", await asyncio.gather(*self._at(at_ns, "begin", **more)))

    async def apply(self, settings: Settings, at_ns: int = 0) -> None:
        """Change settings and numbers of clients at ``at_ns`` (run clock; 0: now), while messages flow.

        A worker may need long to connect clients, so the load waits for a worker that sends messages. It does not wait
        for a worker of another host that is silent for :data:`CHANGE_PATIENCE_S` after ``at_ns``: this worker changes
        when the request arrives. Its intervals until its answer belong to neither setting.
        """
        calls = self._at(at_ns, "apply", settings=dataclasses.asdict(settings))
        answers = [asyncio.ensure_future(call) for call in calls]
        for index, answer in enumerate(answers):
            answer.add_done_callback(functools.partial(self._on_changed, index))
        ahead_s = max(at_ns - self._clocks.now_ns(), 0) / 1e9
        timeout_s = ahead_s + CHANGE_PATIENCE_S if self.plan.hosts else None
        left: set[asyncio.Task[Any]] = set(answers)
        while left:
            _, left = await asyncio.wait(left, timeout=timeout_s)
            timeout_s = SILENCE_LOOK_S
            if all(self._workers[answers.index(each)].silent for each in left):
                break
        for index in (answers.index(each) for each in left):
            self._changed_ns[index] = math.inf
            if index not in self._late:
                self._tell_late(index, "has not answered to the change of settings")
        for answer in answers:
            if answer.done():
                answer.result()  # raises a worker's refusal

    def _on_changed(self, index: int, answer: asyncio.Future[Any]) -> None:
        """A worker has answered to a change of settings, perhaps long after the others."""
        if answer.cancelled():
            return
        late = index in self._changed_ns
        if late:
            self._changed_ns[index] = self._clocks.now_ns()
        failure = answer.exception()
        if failure is None:
            self._waiting[index] = answer.result() or 0
        elif late and isinstance(failure, WorkerError) and not self.failed.done():
            self.failed.set_result(failure.error)

    async def cut(self, at_ns: int = 0, place: IntervalPlace | None = None, patience_s: float | None = None) -> None:
        """Have every worker end its interval at ``at_ns`` (run clock; 0: now); :meth:`take` gets the intervals. They
        are kept until then, so a failure that comes in the same moment as the last interval does not lose them.

        Nobody waits for a worker that is silent for ``patience_s`` after ``at_ns`` (None: for as long as it lives): its
        interval is taken when it comes.
        """
        calls = self._at(at_ns, "cut", **self._models(at_ns))
        asked = [Asked(index, at_ns, place, asyncio.ensure_future(call)) for index, call in enumerate(calls)]
        for each in asked:  # after a failure the answer may have no reader
            each.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._cutting += asked
        ahead_s = max(at_ns - self._clocks.now_ns(), 0) / 1e9
        timeout_s = None if patience_s is None else ahead_s + patience_s
        await asyncio.wait([each.answer for each in asked], timeout=timeout_s)
        self._tell_late_intervals()

    def take(self) -> list[Cut]:
        """The intervals that came since the last call, each worker's in order. An interval that reaches into another
        step or phase, because its worker heard of the change too late, belongs to none and is taken for warm-up."""
        for each in self._cutting:
            if each.answer.done():
                each.answer.result()  # raises: then all of them are left for salvage_cut
        asked, self._cutting = self._cutting, []
        waiting: set[int] = set()
        found = []
        for number, each in enumerate(asked):
            if each.index in waiting or not each.answer.done():
                waiting.add(each.index)
                self._cutting.append(each)
            elif (record := each.answer.result()) is not None:
                source, record = self._dated(self.sources[each.index], record)
                end_ns = record["start_ns"] + record["length_ns"]
                later = (other for other in asked[number + 1 :] if other.index == each.index and other.at_ns)
                mixed = any(other.at_ns <= end_ns and other.place != each.place for other in later)
                mixed |= record["start_ns"] < self._changed_ns.get(each.index, 0)
                place = each.place._replace(phase=Phase.WARMUP) if mixed and each.place is not None else each.place
                found.append(Cut(source, record, place))
        self._late &= waiting
        return found

    def _tell_late_intervals(self) -> None:
        """Tell once of each worker that has not ended its interval for a while."""
        now_ns = self._clocks.now_ns()
        for each in self._cutting:
            behind_s = (now_ns - each.at_ns) / 1e9 if each.at_ns and not each.answer.done() else 0.0
            if behind_s >= LATE_S and each.index not in self._late:
                self._tell_late(each.index, f"has told nothing for {behind_s:.0f} s")

    def _tell_late(self, index: int, what: str) -> None:
        self._late.add(index)
        host, worker = self.sources[index]
        text = f"worker {worker} of {host} {what}: the others go on"
        record = {"t_ns": self._clocks.now_ns(), "kind": "cut_late", "host": host, "worker": worker, "text": text}
        self._on_event(record)

    async def quiesce(self, at_ns: int = 0) -> None:
        """Publish nothing new from ``at_ns`` (run clock; 0: now) on."""
        self._tell_skew("quiesced", await asyncio.gather(*self._at(at_ns, "quiesce")))

    async def left(self) -> dict[str, int]:
        """The messages still to be confirmed or delivered, as
        :meth:`perftest.engine.workers.session.WorkerSession.left` counts it."""
        await self._share_deliveries()
        answers = await self._all("left")
        return {name: sum(answer[name] for answer in answers) for name in answers[0]}

    @property
    def stall_s(self) -> float:
        """Time without a change after which a drain is over; infinite while no worker is lost."""
        working_us = max((step.settings.consumer_latency_us for step in self.group.steps), default=0)
        return DRAIN_STALL_S + working_us / 1e6 if self._lost else math.inf

    async def flush(self) -> None:
        """Acknowledge the messages that consumers are done with, also where an interval is not complete."""
        await self._all("flush")

    async def close(self, *, drained: bool, abandoned: bool, delete: bool) -> None:
        """Disconnect all clients, close the accounts, delete the queues if wanted.

        If the queues were not ``drained`` and are empty all the same, undelivered messages are lost and not late.
        """
        held = not drained and not self._lost and self._tells_loss() and all(await self._all("hold"))
        await self._all("disconnect")
        await self._share_deliveries()
        drained = drained or (held and all(await self._all("emptied")))
        await self._all("settle", drained=drained, abandoned=abandoned and delete)
        if delete:
            await self._call(self._living()[0], "delete")

    def _tells_loss(self) -> bool:
        """Whether an empty queue has lost the messages that were not delivered."""
        may_forget = is_fleeting(self.plan) or is_transient(self.plan)
        return keeps_messages(self.plan) and not (may_forget and self._connections_lost)

    async def ledger(self, *, complete: bool) -> dict[str, Any]:
        """The content of ``ledger.json`` so far."""
        records = await self._all("ledger", complete=complete)
        if not self._lost:
            return merge_records(records, complete=complete)
        record = merge_records([{**each, "drained": False} for each in records], complete=False)
        return record | {"missing": [self.sources[index]._asdict() for index in sorted(self._lost)]}

    async def _all(self, op: str, **arguments: object) -> list[Any]:
        """The answers of the workers that are not lost."""
        return [answer for answer in await self._each(op, **arguments) if answer is not None]

    async def _each(self, op: str, **arguments: object) -> list[Any]:
        """The answer of each worker; None for a lost worker."""
        calls = (self._answer(index, self._call(each, op, **arguments)) for index, each in enumerate(self._workers))
        return await asyncio.gather(*calls)

    async def _answer(self, index: int, call: Awaitable[Any]) -> Any:
        """The answer of a worker, or None if the worker is lost and the load goes on."""
        try:
            return await call
        except WorkerError as error:
            if not self._goes_on_without(index, error.error):
                raise
            return None

    async def _call(self, worker: WorkerHandle, op: str, **arguments: object) -> Any:
        deadline_s: float | None = ANSWER_S
        if op in _WITH_BROKER:
            allowed_s = self.plan.connecting.startup_timeout_s + self.plan.confirm_timeout_s
            deadline_s = BROKER_ANSWER_S + allowed_s if math.isfinite(allowed_s) else None
        return await worker.call(op, deadline_s=deadline_s, **arguments)

    def _at(self, at_ns: int, op: str, **arguments: object) -> list[Awaitable[Any]]:
        """The calls that have every worker do something at one moment (run clock; 0: now)."""
        moments = [self._clocks.to_host(source.host, at_ns) for source in self.sources]
        return [
            self._answer(index, self._call(worker, op, at_ns=moment, **arguments))
            for index, (worker, moment) in enumerate(zip(self._workers, moments, strict=True))
        ]

    def _models(self, until_ns: int) -> dict[str, Any]:
        """The models with which workers of several hosts correct latencies between them."""
        return {"clocks": self._clocks.models(until_ns)} if len(self.plan.hosts) > 1 else {}

    def _dated(self, source: IntervalSource, record: wire.Message) -> tuple[IntervalSource, wire.Message]:
        """The interval of a worker, with the times of the coordinator's clock."""
        if self.plan.hosts:
            start_ns, end_ns = (
                self._clocks.to_reference(source.host, moment)
                for moment in (record["start_ns"], record["start_ns"] + record["length_ns"])
            )
            record |= {"start_ns": start_ns, "length_ns": end_ns - start_ns}
            record["progress"] = [
                [self._clocks.to_reference(source.host, moment), *rest] for moment, *rest in record["progress"]
            ]
        return source, record

    async def _share_deliveries(self) -> None:
        if len(self._workers) > 1:
            await self._all("forward")

    # After a failure

    async def salvage_cut(self) -> list[Cut]:
        """The last intervals of the remaining workers, which publish no more: first the intervals of unread cuts, then
        the time since."""
        await _those_that_answer(self._at(0, "quiesce"))
        interrupted, self._cutting = self._cutting, []
        before = await _those_that_answer(each.answer for each in interrupted)
        last = await _those_that_answer(self._at(0, "cut", **self._models(0)))
        sources = [*(self.sources[each.index] for each in interrupted), *self.sources]
        answers = zip(sources, [*before, *last], strict=True)
        return [Cut(*self._dated(source, answer), None) for source, answer in answers if answer is not None]

    async def salvage_close(self, *, delete: bool) -> None:
        """Leave nothing behind on the broker, as far as the remaining workers still reach it."""
        living = self._living()
        await _those_that_answer(self._call(worker, "disconnect") for worker in living)
        await _those_that_answer(self._call(worker, "settle", drained=False, abandoned=False) for worker in living)
        if delete and living:
            await _those_that_answer([self._call(living[0], "delete")])

    async def salvage_ledger(self) -> dict[str, Any] | None:
        """The accounts of the remaining workers together; None if no worker is left."""
        answers = await _those_that_answer(self._call(worker, "ledger", complete=False) for worker in self._living())
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
        """End the workers. From now on none that ends is lost."""
        self._stopping = True
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    def _living(self) -> list[WorkerHandle]:
        return [worker for worker in self._workers if worker.alive]

    # Messages of workers that are no answers

    def _hear(self, index: int, message: wire.Message) -> None:
        if self.plan.hosts and "event" in message:
            event, host = message["event"], self.sources[index].host
            event |= {"host": host, "t_ns": self._clocks.to_reference(host, event["t_ns"])}
        if "forwarded" in message:
            self._pass_on(index, message["forwarded"], message["bindings"])
        elif message["event"]["kind"] == "limit_reached":
            self._on_limit_reached(index, message["event"])
        else:
            self._connections_lost |= message["event"]["kind"] in _LOSSES
            self._on_event(message["event"])

    def _on_limit_reached(self, index: int, event: dict[str, Any]) -> None:
        """In one worker all clients that stop by themselves have stopped. With the last such worker the load is
        over."""
        self._waiting[index] = 0
        self._reasons[index] = event["reasons"]
        if not any(self._waiting):
            reasons: Counter[str] = sum((Counter(part) for part in self._reasons.values()), Counter())
            told = {"t_ns": event["t_ns"], "kind": "limit_reached", "text": _in_words(reasons)}
            self._on_event(told)
            self.exhausted.set()

    def _pass_on(self, sender: int, parcels: dict[str, str], bindings: list[object]) -> None:
        for index, worker in enumerate(self._workers):
            rows = parcels.get(str(index), "")
            if index != sender and (rows or bindings):
                worker.tell({"op": "forwarded", "rows": rows, "bindings": bindings})

    def _give_up(self, index: int, failed: asyncio.Future[RunError]) -> None:
        if self._stopping or self.failed.done() or failed.cancelled():
            return
        if self._goes_on_without(index, failed.result()):
            return
        self.failed.set_result(failed.result())

    def _tell_skew(self, kind: str, late_ns: Sequence[int | None]) -> None:
        """Tell the delay of each host after a common moment, by its last worker."""
        if len(self.plan.hosts) <= 1:
            return
        skew: dict[str, int] = {}
        for source, late in zip(self.sources, late_ns, strict=True):
            if late is not None:
                skew[source.host] = max(late, skew.get(source.host, 0))
        last_ms = max(skew.values(), default=0) / 1e6
        text = f"all hosts {kind} within {three_figures(last_ms)} ms of the moment that was set"
        self._on_event({"t_ns": self._clocks.now_ns(), "kind": kind, "text": text, "skew_ns": skew})

    # Lost workers

    def _goes_on_without(self, index: int, error: RunError) -> bool:
        """Note that a worker is lost, if it has ended; whether the load goes on."""
        if index in self._lost:
            return True
        if not self._begun or len(self.plan.hosts) <= 1 or self._workers[index].alive:
            return False
        left = [each for each in range(len(self.names)) if each not in self._lost and each != index]
        if not self._is_whole(left):
            return False
        self._lost[index] = error
        host, worker = self.sources[index]
        kind = "worker_lost" if any(self.sources[each].host == host for each in left) else "host_lost"
        text = f"the run goes on without worker {worker} of {host}: {error.what}"
        self._on_event({"t_ns": self._clocks.now_ns(), "kind": kind, "host": host, "worker": worker, "text": text})
        if self._waiting[index]:
            self._on_limit_reached(index, {"t_ns": self._clocks.now_ns(), "reasons": {}})
        return True

    def _is_whole(self, indexes: Sequence[int]) -> bool:
        """Whether these workers publish and consume, as far as the whole load does."""
        shares = [self._share(index) for index in range(len(self.names))]
        return all(
            any(has_clients(shares[index]) for index in indexes) or not any(map(has_clients, shares))
            for has_clients in (self._publishes, self._consumes)
        )

    def _publishes(self, share: Share) -> bool:
        return any(share.publishers(step.settings.publishers) for step in self.plan.steps)

    def _consumes(self, share: Share) -> bool:
        return any(share.consumers(step.settings.consumers) for step in self.plan.steps)


async def drain(loads: Sequence[Load], drain_s: float, pause: Callable[[float], Awaitable[bool]]) -> Drained:
    """Wait until every confirmed message of these loads was delivered, and until the acknowledgements that are due by
    then are committed.

    A transaction takes a round trip for each commit, so the acknowledgements of messages that came long ago may still
    wait for their turn. Consumers that leave may take only a few seconds, too short a time for all these round trips.
    The wait ends after ``drain_s``, or when no client is left that could still change anything. Once a load has lost a
    worker, the wait for this load also ends when nothing changes for :data:`DRAIN_STALL_S` and for as long as a
    consumer works on a message. ``pause`` waits for a number of seconds; it returns False to end the drain.
    """
    monotonic = asyncio.get_running_loop().time
    deadline = monotonic() + drain_s
    before: list[dict[str, int]] = []
    moved = [monotonic()] * len(loads)
    while True:
        began = monotonic()
        found = await asyncio.gather(*(load.left() for load in loads))
        moved = [monotonic() if [each] != before[at : at + 1] else moved[at] for at, each in enumerate(found)]
        before = found
        left = sum(each["left"] for each in found)
        waited_for = [at for at, each in enumerate(found) if each["left"] or each["committing"]]
        hopeless = not any(each["consumers"] or each["unconfirmed"] for each in found)
        stalled = all(monotonic() - moved[at] >= loads[at].stall_s for at in waited_for)
        if not waited_for or hopeless or stalled or monotonic() >= deadline:
            return Drained(left, bool(waited_for) and stalled and monotonic() < deadline, hopeless)
        if not await pause(max(DRAIN_POLL_S, DRAIN_POLL_SHARE * (monotonic() - began))):
            return Drained(left, False)


async def _those_that_answer(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The answers of workers; None for each worker that fails or takes too long."""
    bounded = (asyncio.wait_for(call, SALVAGE_TIMEOUT_S) for call in calls)
    answers = await asyncio.gather(*bounded, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, WorkerError | TimeoutError):
            raise answer
    return [None if isinstance(answer, BaseException) else answer for answer in answers]


def _in_words(reasons: Mapping[str, int]) -> str:
    """The reasons for which clients left, with the number of clients for each, in PerfTest's words."""
    return ", ".join(f"{reason} [{count}]" for reason, count in sorted(reasons.items()))
