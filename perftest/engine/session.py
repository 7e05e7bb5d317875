"""The clients of one worker, and what can be asked of them: open, begin, apply, cut, quiesce, drain, close, ledger.

A worker has one session. Its ledger lives as long as the session; publishers and consumers live from ``open`` to
``close``, which an isolated sweep does once per step and a live one once per run.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from perftest.amqp.errors import AmqpError, ChannelClosedError
from perftest.amqp.uri import parse_uri
from perftest.engine import wire
from perftest.engine.consumer import Consumer
from perftest.engine.context import Context, Counters, Emit
from perftest.engine.control import Control
from perftest.engine.ledger import Ledger
from perftest.engine.link import Links
from perftest.engine.observations import Observations
from perftest.engine.pacing import SECOND_NS
from perftest.engine.publisher import Publisher
from perftest.engine.routing import queues_of_each
from perftest.engine.wakeups import Wakeups
from perftest.metrics.clock import run_clock
from perftest.metrics.recorder import Recorder
from perftest.spec.plan import Plan, Settings, is_open_loop

STARTS_AT_ONCE: Final = 16
"""Connections opened at the same time: more would be a login storm, fewer would take long with thousands."""

LAG_PROBE_NS: Final = 20_000_000
DRAIN_POLL_S: Final = 0.02


class Session:
    """See the module. ``emit`` and ``fail`` carry events and the reason to give up to the coordinator."""

    def __init__(
        self, plan: Plan, *, offset_ns: int, run: int, emit: Emit, fail: Callable[[AmqpError, str], None]
    ) -> None:
        ledger, recorder = Ledger(run, queues=queues_of_each(plan)), Recorder()
        sizes = {step.settings.size_bytes for step in plan.steps}
        sizes |= {int(size) for size, _ in plan.publishing.size_cycle}
        self.context = Context(
            plan=plan,
            uris=tuple(parse_uri(uri) for uri in plan.uris),
            run=run,
            clock=run_clock(offset_ns),
            ledger=ledger,
            recorder=recorder,
            observations=Observations(ledger, recorder, sizes=sizes),
            wakeups=Wakeups(offset_ns),
            emit=emit,
            fail=fail,
            finished=self._on_finished,
        )
        self._control = Control(self.context)
        self._links = Links(self.context)
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self._finished: dict[str, str] = {}
        self._cut_ns = self.context.clock()
        self._cut_cpu_ns = time.process_time_ns()
        self._lag_ns = 0
        self._probe_due_ns = 0
        self._checked_ns = 0

    # Operations

    async def open(self, settings: Settings, *, fresh: bool) -> dict[str, object]:
        """Declare the queues and connect everybody; consumers before publishers. Returns the broker's properties.

        ``fresh``: delete the queues first; see :meth:`Control.prepare`.
        """
        self.context.observations.scheduled = is_open_loop(settings, self.context.plan.publishing)
        properties = await self._control.prepare(fresh=fresh)
        await self._resize(settings)
        return properties

    def begin(self) -> None:
        """Start to publish; the first interval begins now."""
        self.cut()
        if not self._probe_due_ns:
            self._set_probe()
        for consumer in self.consumers:
            consumer.begin()
        for publisher in self.publishers:
            publisher.begin()

    async def apply(self, settings: Settings) -> None:
        """Change the settings of everybody who is there, and the number of clients, while messages flow."""
        self.context.observations.account()
        self.context.observations.scheduled = is_open_loop(settings, self.context.plan.publishing)
        running = [*self.consumers, *self.publishers]
        for client in running:
            try:
                await client.apply(settings)
            except AmqpError as error:
                if not error.temporary:
                    raise
                if isinstance(error, ChannelClosedError):
                    client.on_channel_closed(error)
                # Connection or channel is being made again, and will work by the new settings.
        known, known_consumers = len(self.publishers), len(self.consumers)
        await self._resize(settings)
        for consumer in self.consumers[known_consumers:]:
            consumer.begin()
        for publisher in self.publishers[known:]:
            publisher.begin()

    def cut(self) -> dict[str, Any]:
        """Everything since the last cut, as plain values."""
        self.context.observations.account()
        now_ns, cpu_ns = self.context.clock(), time.process_time_ns()
        counts, negative = self.context.recorder.cut()
        counters: Counters = self.context.counters.cut()
        if counters.nacked:
            self.context.emit("nacked", f"the broker refused {counters.nacked} messages (basic.nack)")
        dropped = sum(publisher.dropped_since_cut() for publisher in self.publishers)
        if dropped:
            self.context.emit("dropped", f"{dropped} messages were overdue and were not sent", dropped=dropped)
        record: dict[str, Any] = {name: getattr(counters, name) for name in Counters.__slots__}
        record |= {
            "start_ns": self._cut_ns,
            "length_ns": now_ns - self._cut_ns,
            "intended": sum(publisher.intended_since_cut(now_ns) for publisher in self.publishers),
            "unconfirmed": sum(publisher.unconfirmed for publisher in self.publishers),
            "negative_latencies": negative,
            "worker_cpu_ns": cpu_ns - self._cut_cpu_ns,
            "loop_lag_ns": max(self._lag_ns, self._overdue_probe_ns()),
            "counts": wire.counts_to_json(counts),
        }
        self._cut_ns, self._cut_cpu_ns, self._lag_ns = now_ns, cpu_ns, 0
        return record

    def quiesce(self) -> None:
        """Publish nothing new."""
        for publisher in self.publishers:
            publisher.quiesce()

    async def drain(self, timeout_s: float) -> dict[str, object]:
        """Wait until nothing is unconfirmed and nothing outstanding; at most ``timeout_s``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        left = self._left()
        while left and loop.time() < deadline and (self._taking() or self._unconfirmed()):
            await asyncio.sleep(DRAIN_POLL_S)
            left = self._left()
        return {"drained": not left, "left": left}

    async def close(self, *, drained: bool, abandoned: bool, delete: bool) -> None:
        """Disconnect everybody, close the account of this step, delete the queues if wanted."""
        self.quiesce()
        await self._disconnect()
        self.context.observations.account()
        self.context.ledger.close(drained=drained, abandoned=abandoned and delete)
        if delete:
            await self._control.remove()

    async def _disconnect(self) -> None:
        """End all clients, in good order as long as the broker answers in the time that is allowed."""
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

    def ledger(self, *, complete: bool) -> dict[str, object]:
        """The content of ``ledger.json`` so far."""
        return self.context.ledger.record(complete=complete)

    # Clients

    async def _resize(self, settings: Settings) -> None:
        """Start or end clients until their number is right."""
        plan = self.context.plan
        publisher_count = settings.publishers * plan.publishing.channels
        consumer_count = settings.consumers * plan.consuming.channels
        await self._end(self.publishers, publisher_count)
        await self._end(self.consumers, consumer_count)
        consumers = [self._consumer(n, settings) for n in range(len(self.consumers), consumer_count)]
        publishers = [self._publisher(n, settings) for n in range(len(self.publishers), publisher_count)]
        self.consumers += consumers
        self.publishers += publishers
        await _in_portions([consumer.start for consumer in consumers])
        await _in_portions([publisher.start for publisher in publishers])

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

    async def _end(self, clients: list[Any], keep: int, *, patience_s: float | None = None) -> None:
        """End all clients but the first ``keep``; publishers that leave a running load settle first. Raises
        ``TimeoutError`` when a portion of them takes longer than ``patience_s``."""
        leaving = clients[keep:]
        if keep:
            for client in leaving:
                if isinstance(client, Publisher):
                    client.quiesce()
                    await client.settled()
        await _in_portions([client.close for client in leaving], patience_s)
        del clients[keep:]

    def _on_finished(self, name: str, reason: str) -> None:
        """A client left by itself; with the last one that may, the load is over."""
        self._finished[name] = reason
        if all(client.name in self._finished for client in (*self.publishers, *self.consumers) if client.limited):
            reasons = Counter(self._finished.values())
            text = ", ".join(f"{reason} [{count}]" for reason, count in sorted(reasons.items()))
            self.context.emit("limit_reached", text)

    # Watching

    def _left(self) -> int:
        self.context.observations.account()
        return self._unconfirmed() + self.context.ledger.outstanding()

    def _taking(self) -> bool:
        """Whether somebody still consumes."""
        return any(consumer.name not in self._finished for consumer in self.consumers)

    def _unconfirmed(self) -> int:
        return sum(publisher.unconfirmed for publisher in self.publishers)

    def _probe_lag(self) -> None:
        """How late the event loop comes to a timer is how long it was busy with something else."""
        now_ns = self.context.clock()
        self._lag_ns = max(self._lag_ns, now_ns - self._probe_due_ns)
        if now_ns - self._checked_ns > SECOND_NS:
            self._checked_ns = now_ns
            for publisher in self.publishers:
                publisher.check(now_ns)
        self._set_probe()

    def _set_probe(self) -> None:
        self._probe_due_ns = self.context.clock() + LAG_PROBE_NS
        self.context.wakeups.at(self._probe_due_ns, self._probe_lag)

    def _overdue_probe_ns(self) -> int:
        return max(self.context.clock() - self._probe_due_ns, 0) if self._probe_due_ns else 0


async def _in_portions(actions: Sequence[Callable[[], Awaitable[None]]], patience_s: float | None = None) -> None:
    """Do them, a few at a time; raises what the first failing one raises, once its portion has been tried, and
    ``TimeoutError`` when a portion takes too long."""
    for at in range(0, len(actions), STARTS_AT_ONCE):
        portion = (action() for action in actions[at : at + STARTS_AT_ONCE])
        async with asyncio.timeout(patience_s):
            results = await asyncio.gather(*portion, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
