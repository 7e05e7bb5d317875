"""The clients of one worker, and the operations that the coordinator asks of them.

A worker has one session, which holds its share of a group's clients. Its ledger lives as long as the session.
Publishers and consumers live from ``connect_consumers`` to ``disconnect``: once per step if steps are isolated, else
once per run. The order of the operations is the business of :class:`~perftest.engine.coordination.load.Load`, which
asks all workers of a group for each operation before the next: so all consumers are there before the first publisher,
and no account is closed while another worker still has deliveries for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from perftest.amqp.errors import AmqpError, ChannelClosedError
from perftest.amqp.uri import parse_uri
from perftest.engine.accounting import forwarding
from perftest.engine.accounting.crossing import CrossingLatencies
from perftest.engine.accounting.ledger import Ledger
from perftest.engine.accounting.observations import Observations
from perftest.engine.accounting.promise import promise_of
from perftest.engine.accounting.routing import queues_of_each
from perftest.engine.connections.client import Client
from perftest.engine.connections.link import ClientLinks
from perftest.engine.connections.plan_topology import PlanTopology
from perftest.engine.consuming.consumer import Consumer
from perftest.engine.consuming.queue_keeper import SETTLE_S, QueueKeeper
from perftest.engine.context import Context, Emit, IntervalCounters
from perftest.engine.host import THIS_HOST, Host
from perftest.engine.publishing import material
from perftest.engine.publishing.publisher import Publisher
from perftest.engine.wakeups import Wakeups
from perftest.engine.workers import wire
from perftest.engine.workers.health import Health
from perftest.engine.workers.progress import ProgressNotes
from perftest.engine.workers.shares import Share
from perftest.metrics.clock import run_clock
from perftest.metrics.clock_model import ClockModel
from perftest.metrics.recorder import Recorder
from perftest.spec.plan import Plan, Settings, consumers_work, is_open_loop

STARTS_AT_ONCE: Final = 16
"""Number of connections that are opened at the same time: more would be a login storm, fewer would take long."""

CHECKS_PER_BEAT: Final = 100
"""Number of publishers that are checked at each beat, in turn: a check of thousands at once would be a pause of its
own."""

COUNTED: Final = (
    *("published", "confirmed", "nacked", "returned", "delivered", "redelivered", "acked", "published_bytes"),
)
"""Counters that are fields of :class:`~perftest.metrics.interval.Interval`."""

FORWARD_ROWS: Final = 4096
"""Number of rows above which deliveries of other workers' messages are forwarded before the interval ends."""


class WorkerSession:
    """The clients of the ``share`` of a worker.

    ``emit`` and ``fail`` carry events and the reason to give up to the coordinator. ``send`` carries deliveries to the
    other workers.
    """

    def __init__(
        self,
        plan: Plan,
        share: Share,
        *,
        offset_ns: int,
        run: int,
        emit: Emit,
        fail: Callable[[AmqpError, str], None],
        send: Callable[[wire.Message], None],
        host: Host = THIS_HOST,
    ) -> None:
        self._share = share
        self._host = host
        self._send = send
        of_other_workers = self._share.is_of_another_worker if self._share.workers > 1 else None
        promise, recorder = promise_of(plan), Recorder()
        ledger = Ledger(run, queues=queues_of_each(plan), of_other_workers=of_other_workers, promise=promise)
        self._crossing = None
        if share.host is not None and len(plan.hosts) > 1:
            self._crossing = CrossingLatencies(recorder, share.hosts_of, plan.hosts.index(share.host))
        sizes = {step.settings.size_bytes for step in plan.steps}
        sizes |= {int(size) for size, _ in plan.publishing.size_cycle}
        self.context = Context(
            plan=plan,
            uris=tuple(parse_uri(uri) for uri in plan.uris),
            run=run,
            clock=run_clock(offset_ns, host.monotonic_ns),
            ledger=ledger,
            recorder=recorder,
            observations=Observations(ledger, recorder, sizes=sizes, crossing=self._crossing),
            wakeups=Wakeups(offset_ns, host),
            emit=emit,
            fail=fail,
            finished=self._on_finished,
            worker=self._share.index,
            workers=self._share.workers,
            near=share.host.near if share.host is not None else (),
            forward=self.forward,
            promise=promise,
        )
        self._topology = PlanTopology(self.context)
        self._queue_keeper = QueueKeeper(self.context)
        self._links = ClientLinks(self.context)
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self._departed: list[Consumer] = []
        self._finished: dict[str, str] = {}
        self._limited = 0
        self._cut_ns = self.context.clock()
        self._stolen_ns = host.stolen_ns
        self._stolen_before_ns = host.stolen_ns()
        self._health = Health(self.context.clock, self.context.wakeups, self._beat, host)
        self._takes_only = False
        self._taken = 0
        self._works = consumers_work(plan)
        self._progress = ProgressNotes(wanted=bool(plan.timeline))
        self._to_check = 0

    # Operations

    async def prepare(self, *, fresh: bool) -> dict[str, str]:
        """Declare the exchange and the queues, which one worker does for all; the properties of the broker. ``fresh``
        deletes the queues first. Material that cannot be used is found before."""
        await self._make_material()
        properties = await self._topology.prepare(fresh=fresh)
        return {name: str(properties.get(name, "")) for name in ("product", "version", "platform", "cluster_name")}

    async def _make_material(self) -> None:
        """Make it in a thread if it may take long: thousands of documents take many seconds, and a worker that answers
        no ping meanwhile would seem to hang. A simulated host has one thread only."""
        plan = self.context.plan
        bodies = plan.publishing.bodies
        if self._host is THIS_HOST and (bodies.files or bodies.json_count or plan.publishing.trace):
            await asyncio.to_thread(material.prepare, plan)
        else:
            material.prepare(plan)

    async def connect_consumers(self, settings: Settings) -> int:
        """Bring the number of consumers to the settings' number; returns :meth:`waiting`. Every worker makes the
        publishers' material first: later this work would keep the event loop from serving connections."""
        await self._make_material()
        self.context.observations.scheduled = is_open_loop(settings, self.context.plan.publishing)
        for consumer in self._departed:
            consumer.forget_queue()
        self._departed.clear()
        if not self.context.began_ns:
            self.cut()  # messages before the first subscription are in no figure
            self._taken = 0
        wanted = self._share.consumers(settings.consumers)
        await self._end(self.consumers, len(wanted), running=True)
        fresh = [self._consumer(number, settings) for number in wanted[len(self.consumers) :]]
        self.consumers += fresh
        self._count_limited()
        await _in_portions([consumer.start for consumer in fresh])
        return self.waiting()

    async def connect_publishers(self, settings: Settings) -> int:
        """Bring the number of publishers to the settings' number; returns :meth:`waiting`. New publishers wait for
        :meth:`begin`."""
        wanted = self._share.publishers(settings.publishers)
        await self._end(self.publishers, len(wanted), running=True)
        fresh = [self._publisher(number, settings) for number in wanted[len(self.publishers) :]]
        self.publishers += fresh
        self._count_limited()
        await _in_portions([publisher.start for publisher in fresh])
        return self.waiting()

    def ready(self, clocks: wire.Message | None = None) -> None:
        """Drop the counts since the last interval, because a step is about to begin. All workers do this before the
        first of them publishes. ``clocks`` as in :meth:`cut`. Earlier deliveries, from queues that were not empty, are
        told, because no figure has them."""
        early = self.context.counters.delivered
        self.cut(clocks)
        if early:
            text = f"{early} messages that lay in the queues were delivered before the load began: no figure has them"
            self.context.emit("delivered_before", text, count=early)

    def begin(self, at_ns: int = 0, *, takes_only: bool = False) -> None:
        """Start to publish; the first interval begins now. Schedules count from ``at_ns``, which is the same for all
        workers; 0 is now, for a load with one worker. :meth:`ready` comes before.

        With ``takes_only`` nobody publishes, and the load is the messages in the queues. It begins with the
        subscriptions: :meth:`ready` is left out, and the first interval has all deliveries since
        :meth:`connect_consumers`.
        """
        self._health.begin()
        now_ns = self.context.clock()
        self.context.began_ns = at_ns or now_ns
        self._takes_only = takes_only
        if not takes_only:
            self._health.cut()
            self._stolen_before_ns = self._stolen_ns()
            # A busy machine may begin late: overdue messages belong to the whole time since ``at_ns``.
            self._cut_ns = min(now_ns, self.context.began_ns)
        for consumer in self.consumers:
            consumer.begin()
        for publisher in self.publishers:
            publisher.begin(self.context.began_ns)

    async def apply(self, settings: Settings) -> int:
        """Change the settings and the number of clients while messages flow; returns :meth:`waiting`."""
        self.context.observations.account()
        self.context.observations.scheduled = is_open_loop(settings, self.context.plan.publishing)
        running = [*self.consumers, *self.publishers]
        await _in_portions([partial(self._apply, client, settings) for client in running])
        known, known_consumers = len(self.publishers), len(self.consumers)
        await self.connect_consumers(settings)
        await self.connect_publishers(settings)
        for consumer in self.consumers[known_consumers:]:
            consumer.begin()
        for publisher in self.publishers[known:]:
            publisher.begin()
        return self.waiting()

    async def _apply(self, client: Client, settings: Settings) -> None:
        """A client whose connection or channel is being made again goes by the new settings afterwards."""
        try:
            await client.apply(settings)
        except AmqpError as error:
            if not error.temporary:
                raise
            if isinstance(error, ChannelClosedError):
                client.on_channel_closed(error)

    def cut(self, clocks: wire.Message | None = None) -> dict[str, Any]:
        """The interval since the last cut, as plain values. ``clocks`` are the models of the clocks of hosts, by name;
        a host that is missing has the clock of reference. They are needed where load comes from several hosts."""
        self.forward()
        crossed = self._crossed(clocks or {})
        now_ns = self.context.clock()
        counts, negative = self.context.recorder.cut()
        progress = self._progress.take(now_ns, self.context.counters)
        counters: IntervalCounters = self.context.counters.cut()
        if counters.nacked:
            self.context.emit("nacked", f"the broker refused {counters.nacked} messages (basic.nack)")
        dropped = sum(publisher.dropped_since_cut() for publisher in self.publishers)
        if dropped:
            self.context.emit("dropped", f"{dropped} messages were overdue and were not sent", dropped=dropped)
        record: dict[str, Any] = {name: getattr(counters, name) for name in COUNTED}
        record["processed"] = counters.processed if self._works else None
        self._taken += counters.processed
        record |= {
            "start_ns": self._cut_ns,
            "length_ns": now_ns - self._cut_ns,
            "intended": sum(publisher.intended_since_cut(now_ns) for publisher in self.publishers),
            "unconfirmed": sum(publisher.unconfirmed for publisher in self.publishers),
            "negative_latencies": negative,
            "progress": progress,
            **self._health.cut(),
            **self.context.ledger.harm_since_cut(),
            "counts": wire.counts_to_json(counts, encoded=bool(self.context.plan.hosts)),
        }
        self._cut_ns = now_ns
        return record | crossed | self._steal()

    @property
    def cut_ns(self) -> int:
        """When the last interval ended, on the run clock."""
        return self._cut_ns

    def _crossed(self, clocks: wire.Message) -> dict[str, int]:
        """Record the latencies of messages from other hosts. Returns the counts of latencies that their clocks leave
        open."""
        if self._crossing is None:
            return {}
        names = [host.name for host in self.context.plan.hosts]
        if clocks:
            self._crossing.learn([ClockModel.from_json(clocks[name]) if name in clocks else None for name in names])
        return self._crossing.cut()

    def _steal(self) -> dict[str, int]:
        """CPU time that the hypervisor took since the last cut. The coordinator counts its own host."""
        if self._share.host is None:
            return {}
        before_ns, self._stolen_before_ns = self._stolen_before_ns, self._stolen_ns()
        return {"steal_ns": max(self._stolen_before_ns - before_ns, 0)}

    def waiting(self) -> int:
        """The number of clients that stop by themselves and have not stopped yet."""
        return self._limited - len(self._finished)

    def quiesce(self) -> None:
        """Publish no new messages."""
        for publisher in self.publishers:
            publisher.quiesce()

    def left(self) -> dict[str, int]:
        """The rest of a drain: messages of this worker's publishers that have to be confirmed or delivered (``left``),
        messages to be confirmed, consumers that may still get deliveries, and consumers whose due acknowledgements wait
        for commits (``committing``)."""
        self.context.observations.account()
        unconfirmed = sum(publisher.unconfirmed for publisher in self.publishers)
        left = unconfirmed + self.context.ledger.outstanding()
        taking = sum(1 for consumer in self.consumers if consumer.name not in self._finished)
        committing = sum(1 for consumer in self.consumers if consumer.committing)
        return {"left": left, "unconfirmed": unconfirmed, "consumers": taking, "committing": committing}

    def flush(self) -> None:
        """Let consumers acknowledge the messages that they are done with."""
        for consumer in self.consumers:
            consumer.flush()

    async def disconnect(self) -> None:
        """End all clients, in good order as long as the broker answers in time. The cycles of the next step begin
        anew."""
        self.quiesce()
        self._tell_taken()
        self.context.began_ns = self.context.subscribed_ns = 0
        self._departed = list(self.consumers)
        patience_s = self.context.plan.connecting.shutdown_timeout_s
        if patience_s > 0:
            try:
                await self._end(self.publishers, 0, patience_s=patience_s)
                await self._end(self.consumers, 0, patience_s=patience_s)
            except TimeoutError:
                text = f"the broker did not let connections be closed within {patience_s:g} s: they were dropped"
                self.context.emit("warning", text)
        self._links.abort()
        self.publishers.clear()
        self.consumers.clear()
        self._finished.clear()
        self._count_limited()
        self.forward()

    def _tell_taken(self) -> None:
        """In a load without publishers: tell the number of processed messages, and the time."""
        context, start_ns = self.context, self.context.subscribed_ns
        context.observations.account()
        count = self._taken + context.counters.processed
        end_ns = context.worked_ns if self._works else context.observations.arrived_ns
        if self._takes_only and count and end_ns > start_ns > 0:
            text = f"{count:,} messages were taken out of the queues in {(end_ns - start_ns) / 1e9:.3f} s"
            context.emit("taken", text, count=count, start_ns=start_ns, end_ns=end_ns)

    async def settle(self, *, drained: bool, abandoned: bool) -> None:
        """Close the account of this step. Pings are answered between the accounts of two publishers: a worker that
        computes is no worker that hangs."""
        for _ in self.context.ledger.closing(drained=drained, abandoned=abandoned):
            await asyncio.sleep(0)

    async def hold(self) -> bool:
        """Keep queues that delete themselves: this worker's own queues, and in the first worker the queues with names.
        Returns whether that could be done."""
        held = [consumer.queue_name for consumer in self.consumers if consumer.queue_name and not consumer.queue.name]
        if self._share.index == 0:
            held += [queue.name for queue in self.context.plan.queues if queue.name and queue.auto_delete]
        return await self._queue_keeper.hold(held)

    async def emptied(self) -> bool:
        """Whether the queues are empty, so that undelivered messages are lost. Kept queues may delete themselves
        now."""
        await asyncio.sleep(SETTLE_S)
        spent = await self._topology.is_spent() if self._share.index == 0 else True
        return await self._queue_keeper.emptied() and spent

    async def delete(self) -> None:
        """Delete the declared exchange and queues; the worker that declared them does this."""
        await self._topology.remove()

    # Other workers

    def forward(self) -> None:
        """Account for the deliveries so far, and send other workers theirs."""
        context = self.context
        context.observations.account()
        rows = context.ledger.forwarding_buffer.take()
        bindings, context.bindings = context.bindings, []
        if self._share.workers == 1 or (not len(rows) and not bindings):
            return
        owners = self._share.owners(rows["source"].astype(np.int64) & 0xFFFF)
        parcels = {str(owner): forwarding.to_text(rows[owners == owner]) for owner in np.unique(owners).tolist()}
        self._send({"forwarded": parcels, "bindings": bindings})

    def forwarded(self, text: str, bindings: list[tuple[int, bool]]) -> None:
        """Account for deliveries that another worker sent, between its new queues and its queues that are gone."""
        ledger = self.context.ledger
        self.context.observations.account()
        for queue, bound in bindings:
            if bound:
                ledger.bind(queue)
        ledger.forwarded(forwarding.from_text(text))
        for queue, bound in bindings:
            if not bound:
                ledger.unbind(queue)

    def ledger(self, *, complete: bool) -> dict[str, object]:
        """The content of ``ledger.json`` so far."""
        return self.context.ledger.record(complete=complete)

    # Clients

    def _consumer(self, number: int, settings: Settings) -> Consumer:
        queues = self.context.plan.queues
        queue = queues[number % len(queues)]
        link = self._links.of("consumer", number)
        return Consumer(self.context, number=number, queue=queue, settings=settings, link=link)

    def _publisher(self, number: int, settings: Settings) -> Publisher:
        queues = self.context.plan.queues
        queue = queues[number % len(queues)]
        link = self._links.of("publisher", number)
        return Publisher(self.context, number=number, queue=queue, settings=settings, link=link)

    async def _end(
        self, clients: list[Any], keep: int, *, running: bool = False, patience_s: float | None = None
    ) -> None:
        """End all clients but the first ``keep``; publishers that leave a ``running`` load settle first. Raises
        ``TimeoutError`` when a portion of them takes longer than ``patience_s``."""
        leaving = clients[keep:]
        publishers = [client for client in leaving if running and isinstance(client, Publisher)]
        for publisher in publishers:
            publisher.quiesce()
        for publisher in publishers:
            await publisher.settled()
        await _in_portions([client.close for client in leaving], patience_s)
        del clients[keep:]
        for client in leaving:
            self._finished.pop(client.name, None)
            if isinstance(client, Consumer) and running:
                client.forget_queue()
        self._count_limited()

    def _count_limited(self) -> None:
        self._limited = sum(1 for client in (*self.publishers, *self.consumers) if client.limited)

    def _on_finished(self, name: str, reason: str) -> None:
        """A client left by itself. With the last such client the load of this worker is over."""
        self._finished[name] = reason
        if not self.waiting():
            self.context.emit("limit_reached", reasons=Counter(self._finished.values()))

    # Watching

    def _beat(self, now_ns: int) -> None:
        """Note the progress, and check a few publishers. With many consumers account for the deliveries so far, so that
        this work is not all left for the end of the interval."""
        self._progress.note(now_ns, self.context.counters)
        count = len(self.publishers)
        if count:
            for at in range(self._to_check, self._to_check + min(CHECKS_PER_BEAT, count)):
                self.publishers[at % count].check(now_ns)
            self._to_check = (self._to_check + CHECKS_PER_BEAT) % count
        if len(self.consumers) > STARTS_AT_ONCE:
            self.context.observations.account()
        if self.context.ledger.forwarding_buffer.rows > FORWARD_ROWS:
            self.forward()


async def _in_portions(actions: Sequence[Callable[[], Awaitable[None]]], patience_s: float | None = None) -> None:
    """Do actions, a few at a time. Raises the exception of the first action that fails, once its portion has been
    tried, and ``TimeoutError`` when a portion takes too long."""
    for at in range(0, len(actions), STARTS_AT_ONCE):
        portion = (action() for action in actions[at : at + STARTS_AT_ONCE])
        async with asyncio.timeout(patience_s):
            results = await asyncio.gather(*portion, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
