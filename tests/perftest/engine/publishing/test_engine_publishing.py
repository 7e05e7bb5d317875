"""What publishers can be told to do, as a broker sees it."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from perftest.engine.accounting import stamp
from perftest.engine.publishing import material
from perftest.engine.publishing.material import MaterialError
from perftest.engine.publishing.messages import RandomKeys
from perftest.engine.publishing.publisher import ConfirmTimeoutError
from perftest.engine.workers import wire
from perftest.engine.workers.failures import explain
from perftest.metrics.interval import Series
from perftest.spec.behaviour import Arrivals, Bodies, Exchange, Publishing, RoutingKeys
from perftest.spec.plan import Isolation, Plan, Settings
from perftest.spec.units import IN_FLIGHT_UNLIMITED
from tests.perftest.testing.session_run import PATIENCE_S, Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100)
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def plan_with(publishing: Publishing) -> Plan:
    return Plan.of(name="t", title="t", uris=(), queues=(), steps=(), isolation=Isolation.LIVE, publishing=publishing)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def honest(record: dict[str, Any]) -> None:
    assert record["verdict"] == "ok", record
    assert record["published"] == record["delivered"] == record["unique"]


# Windows


def test_confirms_without_a_limit_are_timed_and_take_no_memory_beforehand(stub: ModuleType) -> None:
    """PerfTest's ``-c 0`` confirms, and loses the latencies."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.hold_confirms = True
            run = Run(broker, replace(SETTINGS, in_flight=IN_FLIGHT_UNLIMITED, rate=20_000.0))
            await run.open()
            await run.published(2000)
            publisher = run.session.publishers[0]
            assert publisher.unconfirmed >= 2000
            assert publisher._window._size <= 1 << 17
            broker.hold_confirms = False
            for connection in broker.connections:
                connection.flush_confirms()
            record = await run.finish()
            honest(record)
            assert record["confirmed"] == record["published"]

    play(scenario())


def test_a_rate_of_zero_is_connected_and_idle_until_it_rises(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, rate=0.0))
            await run.open()
            await run.load.apply(replace(SETTINGS, rate=0.0, prefetch=51))
            assert broker.published == 0
            await run.load.apply(replace(SETTINGS, rate=5000.0))
            await run.published(50)
            await run.load.apply(replace(SETTINGS, rate=0.001))
            await run.load.apply(replace(SETTINGS, rate=5000.0))
            await run.published(50)
            honest(await run.finish())

    play(scenario())


@pytest.mark.parametrize("change", [{"in_flight": 3}, {"in_flight": IN_FLIGHT_UNLIMITED}, {"in_flight": 0}])
def test_the_window_changes_while_messages_flow(stub: ModuleType, change: dict[str, int]) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, rate=3000.0))
            await run.open()
            for settings in (replace(SETTINGS, rate=3000.0, **change), SETTINGS):
                await run.published(50)
                await run.load.apply(settings)
            await run.published(50)
            honest(await run.finish())

    play(scenario())


# Ends


def test_nothing_is_intended_once_publishers_are_told_to_stop(stub: ModuleType) -> None:
    """Else the drain would make every rate look missed."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, rate=2000.0))
            await run.open()
            await run.published(50)
            run.session.quiesce()
            run.session.cut()
            until_ns = run.session.context.clock() + 20_000_000
            await run.until(lambda: run.session.context.clock() > until_ns)
            assert run.session.cut()["intended"] == 0
            honest(await run.finish())

    play(scenario())


@pytest.mark.parametrize("settings", [{}, {"rate": 3000.0}, {"in_flight": 0}, {"publishers": 3}])
def test_a_publisher_stops_after_exactly_its_messages(stub: ModuleType, settings: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, **settings), publishing=Publishing(messages=137))
            await run.open()
            await run.until(lambda: all(publisher.finished for publisher in run.session.publishers))
            each = len(run.session.publishers)
            await run.until(lambda: broker.published >= 137 * each)
            assert run.texts[run.events.index("limit_reached")] == f"Producer reached message limit [{each}]"
            assert run.session.cut()["intended"] == broker.published == 137 * each
            await run.load.apply(replace(run.settings, rate=9000.0))
            record = await run.finish()
            honest(record)
            assert record["published"] == 137 * each

    play(scenario())


# Transactions


def test_each_transaction_has_its_messages_and_their_latency_is_the_commits(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            publishing = Publishing(transaction=7)
            run = Run(broker, replace(SETTINGS, in_flight=0), publishing=publishing)
            await run.open()
            await run.until(lambda: len(broker.commits) >= 20)
            counts = run.session.cut()["counts"]
            record = await run.finish()
            honest(record)
            assert record["confirmed"] == record["published"] == sum(broker.commits)
            assert set(broker.commits[:-1]) == {7}
            timed = int(wire.counts_from_json(counts)[Series.CONFIRM].counts.sum())
            assert timed >= 7 * 19

    play(scenario())


def test_what_is_left_of_a_transaction_is_committed_at_the_end(stub: ModuleType) -> None:
    """A broker forgets what is not committed: that would be a loss of our own making."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            publishing = Publishing(transaction=100, messages=230)
            run = Run(broker, replace(SETTINGS, in_flight=0), publishing=publishing)
            await run.open()
            await run.until(lambda: run.session.publishers[0].finished)
            assert broker.commits == [100, 100, 30]
            honest(await run.finish())
        async with stub.StubBroker() as broker:
            settings = replace(SETTINGS, in_flight=0, rate=2000.0)
            run = Run(broker, settings, publishing=Publishing(transaction=1000))
            await run.open()
            await run.published(5)
            record = await run.finish()
            honest(record)
            assert broker.commits == [record["published"]]

    play(scenario())


def test_a_lost_transaction_is_published_again(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, in_flight=0), publishing=Publishing(transaction=10))
            await run.open()
            await run.published(100)
            broker.hold_commits = True
            await run.until(lambda: run.session.publishers[0].unconfirmed == 10)
            await run.published(0)
            broker.drop_connections()
            broker.hold_commits = False
            await run.until(lambda: run.events.count("reconnected") >= 2)
            await run.published(100)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["republished"] == 10
            assert record["confirmed"] == record["published"] == record["unique"]

    play(scenario())


def test_a_commit_that_is_never_answered_ends_the_run(stub: ModuleType) -> None:
    """The time a transaction takes to fill is not the broker's."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.hold_commits = True
            run = Run(broker, replace(SETTINGS, in_flight=0, rate=20.0), publishing=Publishing(transaction=10))
            await run.open()
            publisher = run.session.publishers[0]
            await run.until(lambda: publisher.unconfirmed == 9)
            publisher.check(run.session.context.clock() + round((PATIENCE_S + 5) * 1e9))
            await run.until(lambda: publisher.unconfirmed == 10)
            asked_ns = run.session.context.clock()
            publisher.check(asked_ns + round((PATIENCE_S - 0.2) * 1e9))
            assert not run.failures
            publisher.check(asked_ns + round((PATIENCE_S + 5) * 1e9))
            assert [type(error) for error in run.failures] == [ConfirmTimeoutError]
            await run.abandon()

    play(scenario())


# Schedules


def test_who_is_told_late_to_begin_counts_from_when_all_began(stub: ModuleType) -> None:
    """What was overdue then would be the rate of the moment that is left: thousands a second at 50."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, rate=50.0))
            await run.connect()
            run.session.ready()
            run.session.begin(run.session.context.clock() - 1_000_000_000)
            await run.published(40)
            record = run.session.cut()
            assert record["published"] >= 40 and record["length_ns"] >= 1_000_000_000
            honest(await run.finish())

    play(scenario())


def test_a_trace_is_played_and_a_bad_one_refused_with_its_line(stub: ModuleType, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("0\n0.1ms\n2ms\n")
    bad.write_text("0\n1\n0.5\n")

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            publishing = Publishing(arrivals=Arrivals.TRACE, trace=str(good))
            run = Run(broker, SETTINGS, publishing=publishing)
            await run.open()
            await run.published(60)
            counts = run.session.cut()["counts"]
            assert {"lag", "e2e_sched", "confirm_sched"} <= set(counts)
            honest(await run.finish())

    play(scenario())
    with pytest.raises(MaterialError) as caught:
        material.prepare(plan_with(Publishing(arrivals=Arrivals.TRACE, trace=str(bad))))
    told = explain(caught.value)
    assert told.where == f"{bad}:3"
    assert "before the arrival above" in told.what
    with pytest.raises(MaterialError, match="cannot be read"):
        material.prepare(plan_with(Publishing(bodies=Bodies(files=(str(tmp_path / "none"),)))))


@pytest.mark.parametrize(
    ("publishing", "what"),
    [
        (Publishing(arrivals=Arrivals.TRACE, trace="/no/such/trace"), "trace of arrivals cannot be read"),
        (Publishing(bodies=Bodies(files=("/no/such/body",))), "file of bodies cannot be read"),
        (Publishing(properties={"priority": 1000}), "priority cannot be 1000"),
    ],
)
def test_what_publishers_cannot_use_is_said_before_anything_is_declared(
    stub: ModuleType, publishing: Publishing, what: str
) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            with pytest.raises(MaterialError, match=what) as caught:
                await Run(broker, SETTINGS, publishing=publishing).open()
            told = explain(caught.value)
            assert told.where and told.fix
            assert not broker.queues

    play(scenario())


def test_poisson_publishers_have_times_of_their_own(stub: ModuleType) -> None:
    async def scenario() -> list[int]:
        async with stub.StubBroker() as broker:
            broker.keep_published = True
            settings = replace(SETTINGS, rate=500.0, publishers=2)
            run = Run(broker, settings, publishing=Publishing(arrivals=Arrivals.POISSON))
            await run.open()
            await run.published(120)
            honest(await run.finish())
            gaps: dict[int, list[int]] = {0: [], 1: []}
            for _, _, content in broker.kept:
                source, _, intended, _ = stamp.STAMP.unpack_from(content)
                gaps[source & 0xFFFF].append(intended)
            first, second = ([b - a for a, b in itertools.pairwise(t)][:20] for t in gaps.values())
            assert first != second
            return first

    assert asyncio.run(scenario()) == pytest.approx(asyncio.run(scenario()), abs=2)


def test_a_cycle_of_rates_and_sizes_tells_each_change(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.keep_published = True
            publishing = Publishing(
                rate_cycle=((2000.0, 0.05), (0.0, 0.02), (500.0, 0.05)), size_cycle=((40, 0.03), (400, 0.03))
            )
            run = Run(broker, replace(SETTINGS, publishers=2), publishing=publishing)
            await run.open()

            def told() -> set[str]:
                events = zip(run.events, run.texts, strict=True)
                return {text.split()[0] for kind, text in events if kind == "setting_changed"}

            # A busy machine passes over a setting of 20 ms now and then.
            await run.until(lambda: told() == {"2,000", "0", "500", "bodies"})
            await run.until(lambda: {len(content) for _, _, content in broker.kept} == {40, 400})
            assert run.events.count("setting_changed") >= 4
            run.session.quiesce()
            began_ns = run.session.context.began_ns
            record = await run.finish()
            honest(record)
            for _, _, content in broker.kept:
                within_ms = (stamp.STAMP.unpack_from(content)[2] - began_ns) / 1e6 % 120
                assert not 50.001 < within_ms < 69.999

    play(scenario())


def test_publishers_that_do_not_catch_up_say_what_they_dropped(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            settings = replace(SETTINGS, rate=2000.0, in_flight=5)
            run = Run(broker, settings, publishing=Publishing(catch_up=False))
            await run.open()
            await run.published(20)
            broker.hold_confirms = True
            publisher = run.session.publishers[0]
            await run.until(lambda: publisher.unconfirmed == 5)
            until_ns = run.session.context.clock() + 50_000_000
            await run.until(lambda: run.session.context.clock() > until_ns)
            broker.hold_confirms = False
            for connection in broker.connections:
                connection.flush_confirms()
            await run.published(20)
            interval = run.session.cut()
            assert "dropped" in run.events
            dropped = int(run.texts[run.events.index("dropped")].split()[0])
            assert dropped >= 80
            assert interval["intended"] >= interval["published"] + dropped
            honest(await run.finish())

    play(scenario())


def test_a_random_start_delay_is_recorded_and_ends(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            publishing = Publishing(start_delay_s=0.05)
            run = Run(broker, replace(SETTINGS, publishers=5), publishing=publishing)
            await run.open()
            assert run.events[-1] == "publisher_phases"
            await run.until(lambda: all(publisher._sent for publisher in run.session.publishers))
            honest(await run.finish())
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, publishing=Publishing(start_delay_s=1e6))
            await run.open()
            record = await run.finish()
            assert record["published"] == 0

    play(scenario())


# Routing


@pytest.mark.parametrize("keys", ["fixed", "random", "cached"])
def test_routing_keys(stub: ModuleType, keys: str) -> None:
    publishing = {
        "fixed": Publishing(routing_keys=RoutingKeys.FIXED, routing_key="käse"),
        "random": Publishing(routing_keys=RoutingKeys.RANDOM),
        "cached": Publishing(routing_keys=RoutingKeys.RANDOM, routing_key_cache=4),
    }[keys]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.keep_published = True
            exchange = Exchange(name="direct")
            run = Run(broker, replace(SETTINGS, consumers=0), publishing=publishing, exchange=exchange)
            await run.open()
            await run.published(100)
            await run.finish(drain_s=0.1)
            assert {method.exchange for method, _, _ in broker.kept} == {"direct"}
            found = [method.routing_key for method, _, _ in broker.kept]
            if keys == "fixed":
                assert set(found) == {"käse"}
                return
            assert all(UUID.fullmatch(key) for key in found)
            assert len(set(found)) == (4 if keys == "cached" else len(found))
            if keys == "cached":
                assert all(found[at] == found[at % 4] for at in range(len(found)))

    play(scenario())


def test_fresh_keys_do_not_depend_on_the_portions_they_are_asked_for_in() -> None:
    portions, at_once = RandomKeys(1, 2), RandomKeys(1, 2)
    rows = [bytes(row) for count in (1, 3, 700, 1, 255, 40) for row in portions.of(np.arange(count))]
    assert rows == [bytes(row) for row in at_once.of(np.arange(1000))]
    assert len(set(rows)) == 1000
    assert bytes(RandomKeys(1, 3).of(np.arange(1))[0]) != rows[0]


# Bodies


def test_bodies_from_files_take_turns_and_every_message_is_accounted_for(stub: ModuleType, tmp_path: Path) -> None:
    contents = [b"", b"a small one", b"x" * 5000]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    files = tuple(str(tmp_path / str(number)) for number in range(3))

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.keep_published = True
            publishing = Publishing(
                bodies=Bodies(files=files, content_type="image/x"), properties={"priority": 3, "mine": 7}
            )
            run = Run(broker, replace(SETTINGS, persistent=False), publishing=publishing)
            await run.open()
            await run.published(100)
            interval = run.session.cut()
            record = await run.finish()
            honest(record)
            assert (record["damaged"], record["foreign"]) == (0, 0)
            assert interval["counts"]["e2e"]["max"] > 0
            assert [content for _, _, content in broker.kept[:6]] == contents * 2
            properties = broker.kept[0][1].properties
            assert (properties.content_type, properties.priority, properties.delivery_mode) == ("image/x", 3, 1)
            assert properties.headers["mine"] == 7
            sizes = sum(len(content) for _, _, content in broker.kept[: interval["published"]])
            assert interval["published_bytes"] == sizes

    play(scenario())


def test_json_bodies_are_documents_of_the_wanted_size(stub: ModuleType) -> None:
    async def scenario(seed: int) -> list[bytes]:
        async with stub.StubBroker() as broker:
            broker.keep_published = True
            publishing = Publishing(bodies=Bodies(json_count=5, json_fields=30))
            run = Run(broker, replace(SETTINGS, size_bytes=900), 2000, publishing=publishing, seed=seed)
            await run.open()
            await run.published(40)
            await run.load.apply(replace(run.settings, size_bytes=2000))
            await run.published(60)
            honest(await run.finish())
            bodies = [content for _, _, content in broker.kept]
            assert Counter(map(len, bodies)).keys() == {900, 2000}
            assert all(isinstance(json.loads(content), dict) for content in bodies)
            assert len(set(bodies[:20])) == 5
            assert {value.properties.content_type for _, value, _ in broker.kept} == {"application/json"}
            return bodies[:5]

    first = asyncio.run(scenario(1))
    assert asyncio.run(scenario(1)) == first
    assert asyncio.run(scenario(2)) != first


def test_documents_are_drawn_before_anything_is_connected(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every size that the run will have: large ones take seconds, in which no heartbeat would be answered."""
    drawn: list[tuple[int, int]] = []

    async def scenario(plan_fields: dict[str, Any], *sizes: int) -> None:
        async with stub.StubBroker() as broker:
            made = material.json_documents

            def json_documents(count: int, *, size: int, fields: int, seed: int) -> list[bytes]:
                drawn.append((size, len(broker.connections)))
                return made(count, size=size, fields=fields, seed=seed)

            monkeypatch.setattr(material, "json_documents", json_documents)
            publishing = Publishing(bodies=Bodies(json_count=2, json_fields=31), **plan_fields)
            run = Run(broker, replace(SETTINGS, size_bytes=700), *sizes, publishing=publishing)
            await run.open()
            await run.published(20)
            for size in sizes:
                await run.change(size_bytes=size)
            honest(await run.finish())
            monkeypatch.setattr(material, "json_documents", made)

    play(scenario({}, 800, 900))
    play(scenario({"size_cycle": ((750.0, 60.0), (850.0, 60.0))}))
    assert sorted(drawn) == [(size, 0) for size in (700, 750, 800, 850, 900)]


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 27])
def test_a_document_may_be_smaller_than_a_stamp(stub: ModuleType, size: int) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.keep_published = True
            publishing = Publishing(bodies=Bodies(json_count=2), messages=30)
            run = Run(broker, replace(SETTINGS, size_bytes=size), publishing=publishing)
            await run.open()
            await run.until(lambda: run.session.publishers[0].finished)
            honest(await run.finish())
            assert {len(content) for _, _, content in broker.kept} == {size}
            assert not size or [json.loads(content) for _, _, content in broker.kept]

    play(scenario())


# Returns


@pytest.mark.parametrize("bodies", [Bodies(), Bodies(json_count=3)])
def test_returned_messages_are_known_by_their_stamp_wherever_it_travels(stub: ModuleType, bodies: Bodies) -> None:
    def fate(number: int) -> Any:
        return {10: stub.Fate.NACK, 20: stub.Fate.RETURN, 31: stub.Fate.RETURN}.get(number, stub.Fate.DELIVER)

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(fate=fate)) as broker:
            run = Run(broker, replace(SETTINGS, mandatory=True), publishing=Publishing(bodies=bodies))
            await run.open()
            await run.published(100)
            record = await run.finish()
            assert (record["nacked"], record["returned"], record["verdict"]) == (1, 2, "ok")

    play(scenario())


def test_a_worker_answers_while_it_draws_documents(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of large ones take longer than a silent worker is given."""
    turned = threading.Event()
    drawn: list[bool] = []

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            documents = Publishing(bodies=Bodies(json_count=1, json_fields=1))
            run = Run(broker, Settings(size_bytes=100), publishing=documents)
            monkeypatch.setattr(material, "prepare", lambda plan: drawn.append(turned.wait(10)))
            asyncio.get_running_loop().call_soon(turned.set)
            await run.connect()
            await run.abandon()

    asyncio.run(scenario())
    assert drawn and all(drawn)
