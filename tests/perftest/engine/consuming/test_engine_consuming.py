"""All that a consumer can be told to do, seen from the broker: what it is asked for, and what it gets back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from perftest.engine.consuming.consumer import CONSUMER_IDLE, MESSAGE_LIMIT, QUEUE_EMPTY
from perftest.engine.coordination.load import drain
from perftest.spec.behaviour import Consuming, ExitWhen, Publishing
from perftest.spec.plan import Settings
from tests.perftest.testing.session_run import PATIENCE_S, Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def consuming(broker: Any, settings: dict[str, Any] | None = None, /, *, queues: int = 1, **how: Any) -> Run:
    """A run whose consumers behave like ``how``."""
    return Run(broker, replace(SETTINGS, **settings or {}), queues=queues, consuming=Consuming(**how))


async def some(run: Run, count: int) -> None:
    """Publish ``count`` more at least, and wait until all is delivered."""
    await run.published(count)
    assert await run.drain()


def acked(broker: Any) -> int:
    """Messages the broker was told to forget, if each acknowledgement covers up to its tag."""
    return max((tag for tag, _ in broker.acks), default=0)


# Acknowledgements


@pytest.mark.parametrize("requeue", [True, False])
def test_a_share_of_the_deliveries_fails_each_by_itself(stub: ModuleType, requeue: bool) -> None:
    """A failed delivery comes again, or is given up; the others are acknowledged as ever."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"failing": 0.3, "rate": 2000.0}, requeue=requeue)
            await run.open()
            await some(run, 400)
            assert {(multiple, again) for _, multiple, again in broker.nacks} == {(False, requeue)}
            assert not any(multiple for multiple in (multiple for _, multiple in broker.acks))
            assert 0.2 < len(broker.nacks) / (len(broker.nacks) + len(broker.acks)) < 0.4
            assert not broker.dropped if requeue else broker.dropped == len(broker.nacks)
            record = await run.finish()
            assert (record["verdict"], record["redelivered"] > 0) == ("ok", requeue), record

    play(scenario())


def test_an_interval_ends_after_its_time(stub: ModuleType) -> None:
    """At low rates nobody should wait for the N-th message for ever."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": 40, "ack_after_ms": 30, "rate": 100.0})
            await run.open()
            before = time.monotonic_ns()
            await run.until(lambda: len(broker.acks) >= 3)
            assert time.monotonic_ns() - before >= 3 * 30_000_000
            assert all(multiple for _, multiple in broker.acks)
            await run.until(lambda: broker.acks[-1][0] >= 10)
            assert run.session.cut()["counts"]["ack"]["max"] >= 29_000_000
            record = await run.finish()
            assert record["verdict"] == "ok", record

    play(scenario())


def test_a_full_interval_does_not_wait_for_its_time(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": 5, "ack_after_ms": 60_000})
            await run.open()
            await some(run, 103)
            tags = [tag for tag, _ in broker.acks]
            assert tags == list(range(5, len(tags) * 5 + 1, 5))
            await run.finish()
            assert acked(broker) == run.session.ledger(complete=True)["delivered"]

    play(scenario())


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("interval", [1, 4])
def test_messages_are_refused_instead(stub: ModuleType, requeue: bool, interval: int) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": interval, "rate": 300.0}, nack=True, requeue=requeue)
            await run.open()
            await run.published(20)
            await run.until(lambda: len(broker.nacks) >= 40 // interval if requeue else broker.dropped >= 20)
            assert not broker.acks
            assert {(multiple, again) for _, multiple, again in broker.nacks} == {(interval > 1, requeue)}
            interval_record = run.session.cut()
            assert interval_record["acked"] >= 20 and bool(interval_record["redelivered"]) is requeue
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert (broker.dropped == record["unique"]) is not requeue

    play(scenario())


@pytest.mark.parametrize(
    ("interval", "transaction", "sizes"),
    [(1, 10, {10}), (1, 1, {1}), (7, 10, {2}), (10, 5, {1}), (3, 9, {3})],
)
def test_acknowledgements_are_committed_in_portions(
    stub: ModuleType, interval: int, transaction: int, sizes: set[int]
) -> None:
    """A portion ends with the first acknowledgement that reaches the size of a transaction."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": interval}, transaction=transaction)
            await run.open()
            await some(run, 200)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert set(broker.commits[:-1]) == sizes
            assert sum(broker.commits) == len(broker.acks)
            assert acked(broker) == record["delivered"] == record["published"]
            assert broker.queues == {}

    play(scenario())


def test_a_drain_waits_for_acknowledgements_that_wait_for_their_commit(stub: ModuleType) -> None:
    """Messages whose acknowledgement was due would stay in a queue that is kept, although all were delivered."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": 4, "prefetch": 100}, transaction=1)
            await run.open()
            broker.hold_commits = True
            await run.published(40)
            await run.load.quiesce()
            await run.until(lambda: run.session.left()["left"] == 0)

            async def one_commit_each(_seconds: float) -> bool:
                broker.release_commit()
                await asyncio.sleep(0)
                return True

            assert not (await drain([run.load], PATIENCE_S, one_commit_each)).left
            delivered = run.session.context.counters.delivered
            assert acked(broker) == delivered - delivered % 4 > 4
            assert not broker.held_commits
            broker.hold_commits = False
            await run.close(drained=True)

    play(scenario())


def test_a_drain_does_not_wait_for_ever_for_a_commit(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": 4, "prefetch": 100}, transaction=1)
            await run.open()
            broker.hold_commits = True
            await run.published(40)
            await run.load.quiesce()
            await run.until(lambda: run.session.left()["left"] == 0)
            looks = iter((True, True, False))

            async def user_is_patient(_seconds: float) -> bool:
                return next(looks)

            assert not (await drain([run.load], PATIENCE_S, user_is_patient)).left, "every message was delivered"
            assert next(looks, "all looked at") == "all looked at"
            broker.drop_connections()
            await run.abandon()

    play(scenario())


def test_a_transaction_that_was_not_committed_comes_again(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"rate": 500.0, "prefetch": 0}, transaction=1000)
            await run.open()
            await run.published(20)
            await run.until(lambda: len(broker.acks) >= 10)
            broker.drop_connections()
            await run.until(lambda: run.events.count("reconnected") == 2)
            await run.published(20)
            record = await run.finish()
            assert record["redelivered"] >= 10
            assert record["verdict"] == "ok", record

    play(scenario())


# WorkQueue


def test_a_latency_is_worked_off_message_by_message(stub: ModuleType) -> None:
    """End-to-end latency ends before the work, that of the acknowledgement after it."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"consumer_latency_us": 4000, "prefetch": 10})
            await run.open()
            before = time.monotonic_ns()
            await run.until(lambda: acked(broker) >= 25)
            assert time.monotonic_ns() - before >= 25 * 4_000_000
            counts = run.session.cut()["counts"]
            assert counts["ack"]["max"] >= 8 * 4_000_000
            assert all(not multiple for _, multiple in broker.acks)
            assert [tag for tag, _ in broker.acks] == list(range(1, len(broker.acks) + 1))
            run.session.quiesce()
            await run.abandon()

    play(scenario())


def test_a_rate_limits_each_consumer_without_bursts(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"prefetch": 20}, rate=500.0)
            await run.open()
            before = time.monotonic_ns()
            await run.until(lambda: len(broker.acks) >= 40)
            elapsed_s = (time.monotonic_ns() - before) / 1e9
            assert len(broker.acks) <= 500 * elapsed_s + 2
            run.session.quiesce()
            await run.abandon()

    play(scenario())


@pytest.mark.parametrize("settings", [{"ack_interval": 0}, {"prefetch": 0}])
def test_a_slow_consumer_without_prefetch_is_felt_by_the_broker(stub: ModuleType, settings: dict[str, Any]) -> None:
    """Otherwise a rate would say nothing: all that is published would lie in this process."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {**settings, "in_flight": 500, "size_bytes": 5000}, rate=1000.0)
            await run.open()
            consumer = run.session.consumers[0]
            await run.until(lambda: consumer._work.holding)
            delivered = run.session.cut()["delivered"]
            assert delivered >= 1000
            await run.until(lambda: not consumer._work.holding)
            assert consumer._work.waiting <= 1000
            await run.finish(drain_s=0.1)
            assert not run.failures

    play(scenario())


def test_work_changes_while_messages_flow(stub: ModuleType) -> None:
    changes: list[dict[str, Any]] = [
        {"consumer_latency_us": 300},
        {"consumer_latency_us": 20, "prefetch": 7},
        {"ack_interval": 0},
        {"consumer_latency_us": 100},
        {"ack_interval": 5, "ack_after_ms": 3},
        {"consumer_latency_us": 0},
        {"ack_after_ms": 0, "ack_interval": 3},
    ]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker)
            await run.open()
            for change in changes:
                await run.published(60)
                await run.change(**change)
            await run.published(60)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["unique"] == record["published"]

    play(scenario())


def test_what_is_in_work_is_settled_before_acknowledgements_become_automatic(stub: ModuleType) -> None:
    """Afterwards nobody would: the broker would hold it as unacknowledged to the end of the channel."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"consumer_latency_us": 20_000, "prefetch": 20})
            await run.open()

            def unacked() -> int:
                return sum(len(each.unacked) for server in broker.connections for each in server.channels.values())

            await run.until(lambda: unacked() == 20)
            await run.change(ack_interval=0)
            await run.until(lambda: not unacked())
            assert acked(broker) >= 20
            run.session.consumers[0]._work.change(0)
            record = await run.finish()
            assert record["verdict"] == "ok", record

    play(scenario())


def test_the_latency_turns(stub: ModuleType) -> None:
    """Each value for its time, over and over again; a step's own latency is not what counts then."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            cycle = ((300.0, 0.03), (50.0, 0.02))
            run = consuming(broker, {"consumers": 2, "consumer_latency_us": 5_000_000}, latency_cycle=cycle)
            await run.open()
            consumer = run.session.consumers[0]
            seen = [consumer._work.latency_us]
            while len(seen) < 5:
                await run.until(lambda: consumer._work.latency_us != seen[-1])
                seen.append(consumer._work.latency_us)
            assert seen in ([300, 50, 300, 50, 300], [50, 300, 50, 300, 50])
            await run.load.apply(replace(run.settings, ack_interval=2))
            assert {consumer._work.latency_us for consumer in run.session.consumers} <= {300, 50}
            changes = [text for text in run.texts if "of work on each message" in text]
            assert set(changes) == {f"{value} µs of work on each message from now on" for value in (300, 50)}
            record = await run.finish()
            assert record["verdict"] == "ok", record

    play(scenario())


def test_what_was_in_work_when_the_connection_was_lost_comes_again(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"consumer_latency_us": 2000})
            await run.open()
            await run.until(lambda: acked(broker) >= 5)
            broker.drop_connections()
            await run.until(lambda: run.events.count("reconnected") == 2)
            run.session.consumers[0]._work.change(0)
            await run.published(50)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert not run.failures

    play(scenario())


# Polling


@pytest.mark.parametrize("settings", [{}, {"ack_interval": 0}, {"ack_interval": 3}, {"consumer_latency_us": 50}])
def test_messages_can_be_polled(stub: ModuleType, settings: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, settings, polling=True)
            await run.open()
            await run.published(100)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["unique"] == record["published"]
            assert broker.polls >= record["unique"]
            assert not any(connection.consumers for connection in broker.connections)
            assert acked(broker) == (record["unique"] if run.settings.ack_interval else 0)
            assert "polled" in run.events

    play(scenario())


def test_polls_that_find_nothing_are_counted_and_paused(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"publishers": 0}, polling=True, polling_interval_ms=20)
            before = time.monotonic_ns()
            await run.open()
            await run.until(lambda: broker.polls >= 6)
            assert time.monotonic_ns() - before >= 5 * 20_000_000
            await run.finish()
            polled = run.texts[run.events.index("polled")]
            assert polled == f"consumer 0: {broker.polls} of {broker.polls} polls found the queue empty"

    play(scenario())


# Limits


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({}, {}),
        ({"ack_interval": 20}, {}),
        ({"consumer_latency_us": 100}, {}),
        ({}, {"polling": True}),
        ({}, {"transaction": 40}),
        ({"prefetch": 0}, {}),
        ({"prefetch": 3}, {"rate": 2000.0}),
    ],
)
def test_a_consumer_takes_no_more_than_its_limit(
    stub: ModuleType, settings: dict[str, Any], how: dict[str, Any]
) -> None:
    """What comes beyond it goes back to the queue, and the rest of the last interval is acknowledged."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, settings, messages=130, **how)
            await run.open()
            await run.until(lambda: "limit_reached" in run.events)
            assert run.texts[run.events.index("limit_reached")] == f"{MESSAGE_LIMIT} [1]"
            counts = run.session.cut()
            assert (counts["delivered"], counts["acked"], acked(broker)) == (130, 130, 130)
            await run.published(20)
            await run.until(lambda: len(broker.queues["q0"].ready) == broker.published - 130)
            record = await run.finish(drain_s=0.1)
            assert (record["delivered"], record["verdict"]) == (130, "unknown")
            assert record["undelivered"] == record["confirmed"] - 130

    play(scenario())


def test_a_consumer_that_lost_its_connection_at_its_limit_leaves_all_the_same(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": 1000, "prefetch": 0}, messages=100)
            await run.open()
            consumer = run.session.consumers[0]
            await run.until(lambda: bool(consumer.finished))
            broker.drop_connections()  # before its basic.cancel is answered
            await run.until(lambda: "limit_reached" in run.events)
            assert run.session.cut()["delivered"] == 100
            assert "connection_lost" in run.events
            await run.finish(drain_s=0.1)

    play(scenario())


def test_what_was_lost_in_work_does_not_count_for_the_limit(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"consumer_latency_us": 2000, "prefetch": 20}, messages=60)
            await run.open()
            await run.until(lambda: len(broker.acks) >= 5)
            broker.drop_connections()
            await run.until(lambda: "limit_reached" in run.events)
            assert run.session.cut()["acked"] == 60  # the broker may miss those that were on their way
            await run.finish(drain_s=0.1)

    play(scenario())


def test_the_load_is_over_when_all_have_reached_their_limit(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"consumers": 3, "publishers": 3}, queues=3, messages=50)
            await run.open()
            await run.until(lambda: "limit_reached" in run.events)
            assert [consumer.finished for consumer in run.session.consumers] == [MESSAGE_LIMIT] * 3
            assert run.session.cut()["delivered"] == 150
            assert run.events.count("limit_reached") == 1
            await run.finish(drain_s=0.1)

    play(scenario())


@pytest.mark.parametrize(("exit_when", "reason"), [(ExitWhen.EMPTY, QUEUE_EMPTY), (ExitWhen.IDLE, CONSUMER_IDLE)])
@pytest.mark.parametrize("polling", [False, True])
def test_a_consumer_leaves_when_nothing_is_left(
    stub: ModuleType, exit_when: ExitWhen, reason: str, polling: bool
) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            interval = {"ack_interval": 1000, "prefetch": 0}
            run = consuming(broker, interval, exit_when=exit_when, polling=polling, polling_interval_ms=polling * 5)
            await run.open()
            await run.published(100)
            assert "limit_reached" not in run.events
            run.session.quiesce()
            await run.until(lambda: "limit_reached" in run.events)
            assert run.texts[run.events.index("limit_reached")] == f"{reason} [1]"
            assert acked(broker) == broker.published
            assert ("polled" in run.events) is polling
            record = await run.finish()
            assert record["verdict"] == "ok", record

    play(scenario())


# How it begins


def test_what_the_broker_is_asked_for(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            arguments: dict[str, Any] = {"x-priority": 5, "note": "a"}
            run = consuming(broker, {"prefetch": 7}, channel_prefetch=9, arguments=arguments)
            await run.open()
            (consumer,) = [each for connection in broker.connections for each in connection.consumers]
            assert (consumer.prefetch, consumer.arguments) == (7, arguments)
            channels = [channel for connection in broker.connections for channel in connection.channels.values()]
            assert sorted(channel.channel_prefetch for channel in channels) == [0, 9]
            await some(run, 100)
            assert (await run.finish())["verdict"] == "ok"

    play(scenario())


def test_a_delay_lets_a_backlog_grow_first(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, start_delay_s=0.2)
            before = time.monotonic_ns()
            await run.open()
            await run.until(lambda: bool(run.session.context.counters.delivered))
            assert time.monotonic_ns() - before >= 200_000_000
            await run.published(10)
            record = await run.finish()
            assert record["verdict"] == "ok", record

    play(scenario())


def test_slow_starters_come_one_after_another(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            monkeypatch.setattr("perftest.engine.context.SLOW_START_S", 0.1)
            run = consuming(broker, {"consumers": 3}, queues=3, slow_start=True)
            before = time.monotonic_ns()
            await run.open()
            assert time.monotonic_ns() - before >= 200_000_000
            await some(run, 100)
            assert (await run.finish())["verdict"] == "ok"

    play(scenario())


def test_a_cancelled_consumer_gives_back_what_it_holds(stub: ModuleType) -> None:
    """On its old channel it would lie for ever."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = consuming(broker, {"ack_interval": 1000, "prefetch": 0})
            await run.open()
            await run.published(50)
            broker.cancel_consumers()
            await run.until(lambda: "reconnected" in run.events)
            await run.published(50)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["redelivered"] > 0
            assert sum(len(connection.channels) for connection in broker.connections) == 0

    play(scenario())


def test_consumers_on_one_connection_do_not_mix(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(
                broker,
                replace(SETTINGS, consumers=2, ack_interval=6, consumer_latency_us=10),
                queues=2,
                consuming=Consuming(channels=4, transaction=12),
                publishing=Publishing(channels=2),
            )
            await run.open()
            await some(run, 300)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["unique"] == record["published"]
            assert "error" not in run.events

    play(scenario())
