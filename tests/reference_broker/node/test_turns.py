"""The turns of a node: one turn for all that came in, in the order in which it is promised, and a stop on a defect."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.node import turns
from reference_broker.node.turns import Turns
from reference_broker.sim.loop import Scheduler, SimLoop
from reference_broker.sim.network import Network
from reference_broker.sim.trace import Trace
from reference_broker.storage.errors import StorageError
from reference_broker.types import NodeId

PATIENCE_MS = 2000


class Runner:
    """Notes its turns."""

    def __init__(self, name: str, node: Node) -> None:
        self.scheduled = False
        self._name, self._node = name, node

    def turn(self) -> None:
        self.scheduled = False
        self._node.happened.append(self._name)
        self._node.gathered.append("a frame")


class Node:
    """Turns in virtual time, with links and a client that note what they are asked for."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(Random(1), Trace(0))
        self.loop = SimLoop(self.scheduler, Network(self.scheduler), "n1")  # type: ignore[abstract]
        self.happened: list[str] = []
        self.failures: list[str] = []
        self.congested: set[NodeId] = set()
        self.gathered: list[str] = []
        self.now_ns = 0
        self.loop.run(self._begin)

    def _begin(self) -> None:
        self.turns = Turns(
            Anatomy(1),
            lambda: self.now_ns,
            PATIENCE_MS,
            failed=self.failures.append,
            on_suspension=lambda: self.happened.append("suspended"),
            forget_bodies=lambda _runners: None,
        )
        self.turns.links = self

    @property
    def holds(self) -> bool:
        return self._holds

    @holds.setter
    def holds(self, holds: bool) -> None:
        self._holds = holds
        if holds:
            self.happened.append("hold")

    def flush(self) -> None:
        self.gathered.clear()
        self.happened.append("frames")

    def run(self, call: Callable[[], None], seconds: float = 0.0) -> list[str]:
        """What happens until so much time has passed."""
        self.loop.run(call)
        end = self.scheduler.now + seconds + 0.001
        self.scheduler.after(seconds + 0.001, lambda: None)
        while self.scheduler.now < end:
            self.scheduler.step()
        happened, self.happened = self.happened, []
        return happened


class Client:
    """A connection."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def flush(self) -> None:
        self._node.turns.check_suspension()
        self._node.happened.append("client")


def test_all_that_came_in_shares_one_turn() -> None:
    """One entry per queue, one write per link and one per client, however much was read."""
    node = Node()
    one, two, client = Runner("one", node), Runner("two", node), Client(node)

    def much_comes_in() -> None:
        for _ in range(3):
            node.turns.touch(client)
            node.turns.wake(two)
            node.turns.wake(one)

    assert node.run(much_comes_in) == ["hold", "two", "one", "frames", "client"]


def test_calls_that_are_due_at_about_the_same_time_come_together_and_not_early() -> None:
    """A thousand queues with a timer each must not make a thousand turns."""
    node = Node()
    times: list[float] = []

    def set_timers() -> None:
        for delay_s in (0.0201, 0.0205, 0.0299):
            node.turns.later(delay_s, lambda: times.append(node.scheduler.now))

    start = node.scheduler.now
    node.run(set_timers, 0.1)
    assert len(times) == 3 and len(set(times)) <= 2
    assert all(0.02 <= time - start <= 0.05 for time in times)


def test_a_defect_stops_the_node() -> None:
    """A node that goes on after a defect looks alive and confirms nothing."""
    node = Node()

    def defect() -> None:
        raise KeyError("x")

    node.run(lambda: node.turns.after(0.001, defect), 0.01)
    assert node.failures == ["defect: KeyError('x')"]


def test_a_suspension_in_a_turn_is_noticed_before_a_client_is_written_to() -> None:
    """Others may have got the messages since, so they are written as redelivered."""
    node = Node()
    client = Client(node)
    runner = Runner("sleepy", node)
    turn = runner.turn

    def falls_asleep() -> None:
        turn()
        node.now_ns += PATIENCE_MS * 500_000

    runner.turn = falls_asleep  # type: ignore[method-assign]

    def wake() -> None:
        node.turns.wake(runner)
        node.turns.touch(client)

    assert node.run(wake) == ["hold", "sleepy", "frames", "suspended", "client"]
    node.now_ns += PATIENCE_MS * 499_000
    node.turns.check_suspension()
    assert not node.happened, "shorter than half of the others' patience"
    node.now_ns += PATIENCE_MS * 1_000
    node.turns.check_suspension()
    assert node.happened == ["suspended"], "a long turn is as bad as a long sleep: the last word is just as old"


def test_sockets_are_read_before_a_runner_that_took_long_goes_on() -> None:
    """A member that applies what thousands of channels published has the turn again and again."""
    node = Node()
    runner = Runner("busy", node)
    turn = runner.turn

    def takes_long() -> None:
        turn()
        node.now_ns += 5_000_000
        if node.happened.count("busy") == 1:
            node.turns.wake(runner)
            node.loop.call_soon(node.happened.append, "read")

    runner.turn = takes_long  # type: ignore[method-assign]
    assert node.run(lambda: node.turns.wake(runner)) == ["hold", "busy", "frames", "read", "hold", "busy", "frames"]


@pytest.mark.parametrize(("busy_share", "said"), [(0.9, "was busy with one thing"), (0.1, "was suspended")])
def test_the_log_tells_a_busy_node_from_one_that_stood_still(
    busy_share: float, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for the reason of an election looks at the clients in one case, and at the host in the other."""
    node = Node()
    node.turns.tick()
    node.now_ns += PATIENCE_MS * 1_000_000
    used_ns = time.thread_time_ns() + int(busy_share * PATIENCE_MS * 1_000_000)
    monkeypatch.setattr(turns.time, "thread_time_ns", lambda: used_ns)
    node.turns.check_suspension()
    (line,) = caplog.messages
    assert said in line and f"{PATIENCE_MS / 1000:.1f} s" in line


def test_a_store_that_cannot_be_used_stops_the_node_with_its_own_words() -> None:
    """A full drive is no defect, and the reader needs the file and what to do."""
    node = Node()

    def fail() -> None:
        raise StorageError("the store cannot be written: no space left\n  /data")

    node.run(lambda: node.turns.after(0.001, fail), 0.01)
    assert node.failures == ["the store cannot be written: no space left\n  /data"]


def test_nothing_goes_on_with_a_change_that_is_half_made() -> None:
    """The process ends a moment after its node has failed. In the simulator's world 4700416 a full drive broke off the
    effects of an entry of the metadata, and the next entry found a queue without a name."""
    node = Node()
    names: dict[str, int] = {}

    def half() -> None:
        raise StorageError("the store cannot be written: no space left\n  /data")

    node.run(lambda: node.turns.after(0.001, half), 0.01)
    happened = node.run(lambda: node.turns.after(0.001, lambda: node.happened.append(f"{names['q']}")), 0.01)
    assert (len(node.failures), happened) == (1, [])


def test_the_log_writes_before_a_late_turn_and_after_the_others() -> None:
    """A follower answers before it applies: the leader waits for the answer, and nobody for what is applied."""
    node = Node()
    node.turns.write_log = lambda: node.happened.append("log")
    follower, leader = Runner("late", node), Runner("soon", node)

    def frames_come_in() -> None:
        node.turns.wake_late(follower)
        node.turns.wake_late(follower)
        node.turns.write_soon()
        node.turns.wake(leader)

    assert node.run(frames_come_in) == ["hold", "soon", "frames", "log", "late", "frames"]
    assert node.run(lambda: node.turns.wake_late(follower)) == ["hold", "late", "frames"], "nothing to be written"


def test_what_is_done_in_step_comes_at_one_moment_between_half_a_period_and_one_and_a_half() -> None:
    """The spare copies of forty queues are one frame, not forty."""
    node = Node()
    times: list[tuple[float, float]] = []

    def set_timer() -> None:
        begun = node.loop.time()
        node.turns.in_step(0.05, lambda: times.append((begun, node.loop.time())))

    for _ in range(40):
        node.run(set_timer, 0.004)
    node.run(lambda: None, 0.1)
    assert len(times) == 40 and len({due for _begun, due in times}) <= 8
    assert all(0.025 <= due - begun <= 0.076 for begun, due in times)
