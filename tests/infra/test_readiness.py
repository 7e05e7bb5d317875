"""How long a start waits for its nodes: as long as they get on, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from infra.cluster import Node
from infra.readiness import PATIENCE_S, NodeLook, Wait

NODES = [
    Node(node=number, name=f"node{number}", amqp_port=1, peer_port=2, control_port=3, data_dir="d", log_file="l")
    for number in (1, 2, 3)
]
READY = NodeLook(True, True, 0, "", (1, 99, 0))


def silent(cpu: int) -> NodeLook:
    return NodeLook(False, False, 0, "is silent", (0, cpu))


def applying(entries: int) -> NodeLook:
    return NodeLook(True, False, 0, "waits for the metadata", (1, entries, 0))


def electing(queues: int) -> NodeLook:
    return NodeLook(True, True, queues, "queues without a leader", (1, 99, -queues))


class Start:
    """Nodes that say one thing after the other, and a clock that only waiting moves."""

    def __init__(self, *looks: Iterator[NodeLook]) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.asked: list[str] = []
        self._looks = dict(zip((node.name for node in NODES), looks, strict=False))
        nodes = NODES[: len(looks)]
        self.wait = Wait(lambda: nodes, look=self._look, clock=lambda: self.now, sleep=self._sleep)

    def _look(self, node: Node) -> NodeLook:
        self.asked.append(node.name)
        return next(self._looks[node.name])

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def one_a_second(look: Callable[[int], NodeLook], times: int) -> Iterator[NodeLook]:
    """Something new with every fifth look, which is about one a second."""
    return chain.from_iterable(repeat(look(number), 5) for number in range(times))


def test_a_start_that_gets_on_is_waited_for_however_long_it_takes() -> None:
    """Three thousand queues took longer than a fixed deadline of twenty seconds, and the start gave up on a cluster
    that was at work."""
    minute = chain(one_a_second(silent, 60), one_a_second(applying, 60), one_a_second(lambda n: electing(60 - n), 60))
    start = Start(chain(minute, repeat(READY)))
    assert start.wait.until_ready() == ""
    assert start.now > 8 * PATIENCE_S


@pytest.mark.parametrize("stuck", [silent(5), applying(5)])
def test_a_start_that_does_not_get_on_ends_and_says_what_it_waits_for(stuck: NodeLook) -> None:
    """Somebody looks at a command that does nothing."""
    start = Start(repeat(READY), chain(one_a_second(silent, 5), repeat(stuck)))
    assert start.wait.until_ready() == stuck.waits_for
    assert PATIENCE_S < start.now < PATIENCE_S + 10


def test_going_to_and_fro_is_not_getting_on() -> None:
    """A node that is now silent and now answers, with the same as before, does not start."""
    start = Start(chain.from_iterable(repeat((applying(5), silent(7)))))
    assert start.wait.until_ready() != ""
    assert start.now < PATIENCE_S + 5


def test_queues_that_find_no_leader_do_not_fail_a_start() -> None:
    """The nodes serve all the others; who wants those will be told."""
    start = Start(repeat(electing(3)), repeat(READY))
    assert start.wait.until_ready() == ""
    assert start.now < PATIENCE_S


def test_nodes_are_asked_less_and_less_often_and_not_again_once_they_are_ready() -> None:
    """Every answer costs the node time in which it could start."""
    start = Start(repeat(READY), chain(repeat(silent(1), 30), repeat(READY)))
    assert start.wait.until_ready() == ""
    assert start.asked.count("node1") == 1
    assert start.pauses == sorted(start.pauses) and start.pauses[-1] == 0.25
