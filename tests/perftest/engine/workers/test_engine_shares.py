"""Dealing out clients: every client once, whatever the number of workers; and how many workers a plan gets."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest

from perftest.engine.context import NUMBERS_PER_WORKER
from perftest.engine.workers import shares
from perftest.engine.workers.shares import Share, choose_workers, files_needed
from perftest.spec import rules
from perftest.spec.behaviour import Connecting, Consuming, Publishing
from perftest.spec.codec import plan_digest, plan_from_json, plan_to_json
from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Isolation, Plan, QueueSpec, Settings, Step


def plan(settings: Settings | None = None, queues: int = 1, **more: Any) -> Plan:
    step = Step(number=1, label="", settings=settings or Settings(), duration_s=1, warmup_s=0)
    names = tuple(QueueSpec(name=f"q{index}") for index in range(queues))
    fields: dict[str, Any] = {"name": "t", "title": "t", "uris": (), "queues": names, "steps": (step,)}
    return Plan.of(**fields, isolation=Isolation.LIVE, **more)


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"publishing": Publishing(channels=4), "consuming": Consuming(channels=3)},
        {"queues": 3, "connecting": Connecting(exclusive=True)},
    ],
)
def test_every_client_is_one_workers(workers: int, more: dict[str, Any]) -> None:
    shared = plan(Settings(publishers=5, consumers=11), **more)
    shares = [Share(shared, index, workers) for index in range(workers)]
    for count in (0, 1, 5, 11, 40):
        publishers = [share.publishers(count) for share in shares]
        consumers = [share.consumers(count) for share in shares]
        assert sorted(chain.from_iterable(publishers)) == list(range(count * shared.publishing.channels))
        assert sorted(chain.from_iterable(consumers)) == list(range(count * shared.consuming.channels))
        for share, mine in zip(shares, publishers, strict=True):
            away = share.is_of_another_worker(np.arange(count * shared.publishing.channels))
            assert np.flatnonzero(~away).tolist() == mine
    for share in shares:  # with more connections the list only grows at its end
        for fewer, those in pairwise(share.consumers(count) for count in range(30)):
            assert those[: len(fewer)] == fewer


def test_channels_of_a_connection_stay_together_and_so_do_clients_of_an_exclusive_queue() -> None:
    channels = plan(publishing=Publishing(channels=4))
    for index in (0, 1):
        assert all(number // 4 % 2 == index for number in Share(channels, index, 2).publishers(6))
    exclusive = plan(Settings(publishers=3, consumers=5), queues=3, connecting=Connecting(exclusive=True))
    for index in (0, 1):
        share = Share(exclusive, index, 2)
        assert {number % 3 for number in share.publishers(9)} == {number % 3 for number in share.consumers(9)}


def test_one_publisher_and_one_consumer_are_apart() -> None:
    shares = [Share(plan(), index, 2) for index in (0, 1)]
    assert [(share.publishers(1), share.consumers(1)) for share in shares] == [([0], []), ([], [0])]


@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        ({}, 1),
        ({"publishers": 8, "consumers": 8}, 1),
        ({"publishers": 20, "consumers": 20}, 3),
        ({"publishers": 500, "consumers": 500}, 8),
        ({"rate": 1000.0}, 1),
        ({"rate": 100_000.0}, 2),
        ({"rate": 1.0, "publishers": 400, "consumers": 400}, 1),
        ({"rate": 1.0, "publishers": 5000, "consumers": 5000}, 8),
        ({"rate": 10.0, "publishers": 1000, "consumers": 10}, 3),
    ],
)
def test_workers_are_chosen_by_the_load(settings: dict[str, Any], workers: int) -> None:
    assert choose_workers(plan(Settings(**settings)), cores=8, files=10**6) == workers


def test_a_plan_may_say_how_many_and_files_may_ask_for_more() -> None:
    many = plan(Settings(publishers=5000, consumers=5000, rate=1.0))
    assert choose_workers(replace(many, workers=3), cores=8, files=10**6) == 3
    assert choose_workers(many, cores=2, files=10**6) == 2
    assert choose_workers(many, cores=2, files=1064) == 10
    assert files_needed(many, 2) == 5064


def test_the_channels_of_as_many_workers_as_may_be_are_told_apart() -> None:
    """30 bits of a key are for the channel."""
    assert rules.WORKERS_MAX == shares.WORKERS_MAX
    assert shares.WORKERS_MAX * NUMBERS_PER_WORKER <= 1 << 30
    assert choose_workers(plan(Settings(publishers=60_000)), cores=512, files=200) == shares.WORKERS_MAX


def on_hosts(*hosts: LoadHost, wanted: int = 1, **more: Any) -> tuple[Plan, int]:
    """A plan on these hosts, and its number of workers."""
    whole = replace(plan(**more), hosts=hosts)
    spread = shares.seated(whole, whole.load, wanted=wanted)
    return spread, sum(host.workers for host in spread.hosts)


def test_every_client_is_on_a_host_that_may_have_it() -> None:
    spread, workers = on_hosts(
        LoadHost(name="a", workers=2, consumes=()), LoadHost(name="b", publishes=()), LoadHost(name="c", workers=3)
    )
    assert workers == 6
    all_shares = [Share(spread, index, workers) for index in range(workers)]
    assert [share.host.name for share in all_shares if share.host] == ["a", "a", "b", "c", "c", "c"]
    published = [share.publishers(20) for share in all_shares]
    consumed = [share.consumers(20) for share in all_shares]
    assert sorted(chain.from_iterable(published)) == sorted(chain.from_iterable(consumed)) == list(range(20))
    assert published[2] == [] and consumed[0] == consumed[1] == []
    assert [len(each) for each in published] == [4, 4, 0, 4, 4, 4]
    assert [len(each) for each in consumed] == [0, 0, 5, 5, 5, 5]
    owners, hosts = all_shares[0].owners(np.arange(20)), all_shares[0].hosts_of(np.arange(20))
    assert hosts.tolist() == [[0, 0, 1, 2, 2, 2][owner] for owner in owners.tolist()]


def test_clients_of_an_exclusive_queue_are_on_a_host_that_may_have_both() -> None:
    both = LoadHost(name="c", workers=2)
    spread, workers = on_hosts(LoadHost(name="a", consumes=()), both, queues=3, connecting=Connecting(exclusive=True))
    found = [Share(spread, index, workers) for index in range(workers)]
    assert found[0].publishers(6) == found[0].consumers(6) == []
    for share in found:
        assert {number % 3 for number in share.publishers(9)} == {number % 3 for number in share.consumers(9)}


def test_workers_are_spread_by_cores_where_a_host_does_not_say() -> None:
    spread, workers = on_hosts(LoadHost(name="a", cores=4), LoadHost(name="b", cores=12), wanted=8)
    assert ([host.workers for host in spread.hosts], workers) == ([2, 6], 8)
    spread, workers = on_hosts(*(LoadHost(name=name, cores=2) for name in "abc"))
    assert ([host.workers for host in spread.hosts], workers) == ([1, 1, 1], 3), "every host has one"
    spread, _ = on_hosts(LoadHost(name="a"), LoadHost(name="b", publishes=("lazy",), consumes=("lazy",)))
    assert [host.name for host in spread.hosts] == ["a"], "the other serves another group only"


def test_names_of_workers_begin_anew_on_every_host() -> None:
    spread, workers = on_hosts(LoadHost(name="a", workers=2), LoadHost(name="b", workers=1))
    assert shares.names_of_workers(spread.hosts, "", workers) == ["0", "1", "0"]
    assert shares.names_of_workers((), "x ", 2) == ["x 0", "x 1"]


def test_hosts_do_not_change_the_digest_and_travel_with_the_plan() -> None:
    spread, _ = on_hosts(LoadHost(name="a", workers=2, publishes=("", "b"), consumes=(), near=(1, 2)))
    assert plan_digest(spread) == plan_digest(replace(spread, hosts=()))
    assert plan_from_json(plan_to_json(spread)) == spread
