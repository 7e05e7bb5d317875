"""What is sampled beside a run: a node that goes away is told of, even if no client was connected to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perftest.measuring import samplers


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, str]]]:
    """The events that come of samples, each the names of the nodes that answered; node1 to node3 are there. A node in
    capitals answers under the pid of a new process, which stands in the cluster's file only."""

    def run(*samples: tuple[str, ...]) -> list[tuple[str, str]]:
        events: list[tuple[str, str]] = []
        left = list(samples)
        nodes = [SimpleNamespace(name=f"node{number}") for number in (1, 2, 3)]
        cluster = SimpleNamespace(nodes=nodes, directory="c", pids="old")

        def sample(asked: Any, _t_ns: int) -> list[dict[str, str]]:
            return [{"node": name.lower()} for name in left.pop(0) if name.islower() or asked.pids == "new"]

        monkeypatch.setattr(samplers.local_cluster, "sample", sample)
        read = SimpleNamespace(nodes=nodes, directory="c", pids="new")
        monkeypatch.setattr(samplers.local_cluster, "load", lambda _directory: read)
        writer = SimpleNamespace(
            broker=lambda record: None, event=lambda record: events.append((record["kind"], record["text"]))
        )
        sampler = samplers.Sampler(cast(Any, writer), cast(Any, cluster))
        for _ in samples:
            asyncio.run(sampler.nodes())
        return events

    return run


def test_a_node_that_goes_and_comes_back_is_told_of_once_each(told: Callable[..., list[tuple[str, str]]]) -> None:
    """A run of which half was on two of three members must not look like one on three."""
    everyone, two = ("node1", "node2", "node3"), ("node3", "node1")
    assert told(everyone, two, two, everyone, everyone) == [
        ("node_lost", "node2 does not answer"),
        ("node_back", "node2 answers again"),
    ]


def test_a_node_that_is_down_from_the_beginning_is_told_of(told: Callable[..., list[tuple[str, str]]]) -> None:
    """There is no sample before the first to tell it by."""
    assert told(("node2",), ("node2",)) == [
        ("node_lost", "node1 does not answer"),
        ("node_lost", "node3 does not answer"),
    ]


def test_a_node_that_was_started_again_is_sampled_under_its_new_pid(told: Callable[..., list[tuple[str, str]]]) -> None:
    """Its CPU time and its figures would be missing for the rest of the run."""
    assert told(("node1", "node2", "node3"), ("node1", "node3"), ("node1", "NODE2", "node3")) == [
        ("node_lost", "node2 does not answer"),
        ("node_back", "node2 answers again"),
    ]
