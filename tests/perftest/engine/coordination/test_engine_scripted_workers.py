"""The coordinator and workers of two hosts that are late, silent, repeat themselves or end, at virtual time.

Nothing here waits for a real clock, so a test says to the second how long a run is held up, and a hang is a failure.
"""

from __future__ import annotations

import dataclasses
import functools
from itertools import pairwise

import pytest

from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.engine.coordination.load import DRAIN_STALL_S
from perftest.metrics.interval import Interval, Phase
from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Plan, Settings
from tests.perftest.engine.coordination.test_engine_execute import MemorySink, plan
from tests.perftest.testing.scripted_worker import RATE, Fault, ScriptedWorker, scripted
from tests.perftest.testing.virtual_time import VirtualTimeHost, run_virtually

LIMIT_S = 3600.0
HOSTS = (LoadHost(name="left", workers=1), LoadHost(name="right", workers=1))
AHEAD_NS = {"left": 5_000_000_000, "right": -5_000_000_000}
STEP_S = 5.0
DRAIN_S = 20.0
OPS = ("prepare", "connect_consumers", "connect_publishers", "ready", "begin", "cut", "apply", "quiesce", "left",
       "flush", "disconnect", "settle", "ledger")  # fmt: skip
"""The requests of a run of two steps, in their order; ``cut`` comes many times."""
BEGUN = OPS[OPS.index("begin") :]
"""From here on a run goes on without a host."""


@dataclasses.dataclass
class Told:
    """What a run left: its outcome, the virtual seconds it took, its records, and its workers by host."""

    outcome: RunOutcome
    took_s: float
    sink: MemorySink
    workers: dict[str, ScriptedWorker]

    def of(self, host: str) -> list[Interval]:
        return [interval for interval in self.sink.intervals if interval.host == host]

    @property
    def lost(self) -> list[str]:
        return [event["host"] for event in self.sink.events if event["kind"] == "host_lost"]


def two_steps() -> Plan:
    wanted = (Settings(in_flight=1, size_bytes=100, publishers=2, consumers=2),
              Settings(in_flight=9, size_bytes=100, publishers=2, consumers=2))  # fmt: skip
    made = plan("amqp://nobody", *wanted, interval_s=1.0, drain_s=DRAIN_S)
    steps = tuple(dataclasses.replace(step, duration_s=STEP_S, warmup_s=1.0) for step in made.steps)
    return dataclasses.replace(made.changed(steps=steps), hosts=HOSTS)


def run(fault: Fault | None = None, *, on: str = "left", and_on: str = "", missing: int = 0) -> Told:
    sink, workers = MemorySink(), dict[str, ScriptedWorker]()
    faults = {host: fault for host in (on, and_on) if fault is not None and host}
    start = scripted(workers, faults, AHEAD_NS, missing)
    work = execute(two_steps(), sink, StopRequest(), start_worker=start, host=VirtualTimeHost())
    outcome, took_s = run_virtually(work, LIMIT_S)
    return Told(outcome, took_s, sink, workers)


@functools.cache
def whole() -> Told:
    """A run without a fault."""
    return run()


def is_whole(intervals: list[Interval]) -> bool:
    """Whether there is no gap between intervals, and nothing twice, up to what clocks leave open."""
    ends = [(each.start_ns + each.length_ns, later.start_ns) for each, later in pairwise(intervals)]
    return all(abs(start - end) < 2_000_000 for end, start in ends)


def counts(intervals: list[Interval]) -> int:
    return sum(interval.published for interval in intervals)


def test_a_run_without_a_fault() -> None:
    """What the runs with a fault are compared with."""
    assert whole().outcome.state == "finished" and not whole().lost
    assert whole().took_s == pytest.approx(2 * STEP_S + 1, abs=1.0)
    (ledger,) = whole().sink.ledgers
    assert ledger["verdict"] == "ok" and ledger["published"] == counts(whole().sink.intervals)
    for host in AHEAD_NS:
        assert is_whole(whole().of(host)) and len(whole().of(host)) >= 2 * STEP_S
        assert counts(whole().of(host)) == pytest.approx(RATE * 2 * STEP_S, rel=0.1)
        asked = whole().workers[host].asked
        assert [op for op in dict.fromkeys(asked) if op in OPS] == [
            op for op in OPS if host == "left" or op != "prepare"
        ]
    steady = [interval for interval in whole().of("left") if interval.phase is Phase.STEADY]
    assert all(interval.published == pytest.approx(RATE, abs=2) for interval in steady[1:-1])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("what", ["twice", "swapped", "dropped", "stray"])
def test_what_the_way_does_to_a_line_changes_nothing(what: str, op: str) -> None:
    """Twice, in another order, lost, or behind the words of a login: every message counts once, in its turn."""
    told = run(Fault(what, op))
    assert told.outcome.state == "finished" and not told.lost, told.outcome
    assert told.took_s == pytest.approx(whole().took_s, abs=1.5), "a line that is lost is noticed with the next one"
    for host in AHEAD_NS:
        assert is_whole(told.of(host)) and counts(told.of(host)) == pytest.approx(
            counts(whole().of(host)), abs=0.2 * RATE
        )
    (ledger,) = told.sink.ledgers
    assert ledger["verdict"] == "ok" and ledger["published"] == counts(told.sink.intervals)


@pytest.mark.parametrize("op", BEGUN)
@pytest.mark.parametrize("what", ["ends", "half"])
def test_a_run_goes_on_at_once_without_a_worker_that_ends(what: str, op: str) -> None:
    told = run(Fault(what, op))
    assert told.outcome.state == "finished" and told.lost == ["left"], told.outcome
    assert told.took_s <= whole().took_s + 1.0
    assert is_whole(told.of("right")) and len(told.of("right")) >= len(whole().of("right")) - 1
    (ledger,) = told.sink.ledgers
    assert ledger["verdict"] == "unknown" and [each["host"] for each in ledger["missing"]] == ["left"]


@pytest.mark.parametrize("op", BEGUN)
def test_a_silent_worker_is_given_up_and_never_waited_for_longer(op: str) -> None:
    """It takes requests and says nothing, as one that was stopped."""
    told = run(Fault("silent", op))
    assert told.outcome.state == "finished" and told.lost == ["left"], told.outcome
    assert told.workers["left"].killed
    assert told.took_s <= whole().took_s + 20.0, "15 s of silence, and what they begin and end with"
    assert is_whole(told.of("right"))
    (ledger,) = told.sink.ledgers
    assert ledger["verdict"] == "unknown" and [each["host"] for each in ledger["missing"]] == ["left"]


@pytest.mark.parametrize("times", [1, 2])
def test_the_intervals_of_others_do_not_wait_for_a_silent_worker(times: int) -> None:
    told = run(Fault("silent", "cut", times))
    assert [event["host"] for event in told.sink.events if event["kind"] == "cut_late" and "host" in event] == ["left"]
    steady = [each for each in told.of("right") if each.phase is Phase.STEADY and each.step == 1]
    assert all(each.length_ns == pytest.approx(1e9, rel=0.01) for each in steady) and len(steady) == STEP_S - 1


@pytest.mark.parametrize(
    ("fault", "held_s", "late"),
    [
        (Fault("late", "ready", for_s=5.0), 5.0, False),
        (Fault("late", "connect_publishers", for_s=100.0), 100.0, False),
        (Fault("late", "begin", for_s=2.0), 2.0, False),
        (Fault("late", "cut", 3, for_s=0.3), 0.0, False),
        (Fault("late", "cut", 3, for_s=4.0), 0.0, True),
        (Fault("late", "apply", for_s=10.0), 10.0, False),
        (Fault("late", "quiesce", for_s=5.0), 5.0, False),
        (Fault("late", "ledger", for_s=5.0), 5.0, False),
        (Fault("away", "cut", 1, for_s=4.5), 1.0, True),
        (Fault("away", "cut", 3, for_s=4.0), 2.0, False),
        (Fault("away", "apply", for_s=8.0), 4.0, True),
    ],
)
def test_a_late_worker_loses_nothing(fault: Fault, held_s: float, late: bool) -> None:
    told = run(fault)
    assert told.outcome.state == "finished" and not told.lost, told.outcome
    assert told.took_s <= whole().took_s + held_s + 2.0
    (ledger,) = told.sink.ledgers
    assert ledger["verdict"] == "ok" and ledger["published"] == counts(told.sink.intervals)
    for host in AHEAD_NS:
        assert is_whole(told.of(host))
    assert any(event["kind"] == "cut_late" and event.get("host") == "left" for event in told.sink.events) is late


@pytest.mark.parametrize("fault", [Fault("silent", "apply"), Fault("away", "apply", for_s=8.0)])
def test_a_change_of_settings_does_not_wait_for_a_silent_host(fault: Fault) -> None:
    """The others change at the moment that was set, and measure the new setting three seconds later."""
    told = run(fault)
    at_ns = {event["kind"]: event["t_ns"] for event in told.sink.events}
    assert at_ns["setting_changed"] - at_ns["step_started"] <= 3e9
    late = [event for event in told.sink.events if event["kind"] == "cut_late" and "host" in event]
    assert [event["host"] for event in late] == ["left"] and "change of settings" in str(late[0]["text"])
    steady = [each for each in told.of("right") if each.phase is Phase.STEADY and each.step == 2]
    assert all(each.length_ns == pytest.approx(1e9, rel=0.01) for each in steady) and len(steady) == STEP_S - 1
    assert is_whole(told.of("right"))
    if not told.lost:  # what it did before it heard of the change belongs to neither setting
        first = next(each for each in told.of("left") if each.length_ns > 4e9)
        assert first.phase is Phase.WARMUP


def test_a_worker_that_is_busy_with_a_change_is_waited_for() -> None:
    """It connects thousands of clients, and answers pings: nobody measures a part of the load."""
    told = run(Fault("late", "apply", for_s=10.0))
    at_ns = {event["kind"]: event["t_ns"] for event in told.sink.events}
    assert at_ns["setting_changed"] - at_ns["step_started"] == pytest.approx(10.25e9, rel=0.01)


@pytest.mark.parametrize(("op", "early"), [("cut", True), ("quiesce", True), ("never", False)])
def test_a_drain_ends_early_when_nothing_arrives_after_a_host_was_lost(op: str, early: bool) -> None:
    """What only the lost host's consumers could take, or had taken, never arrives."""
    told = run(Fault("ends", op), missing=7)
    (event,) = (event for event in told.sink.events if event["kind"] == "drain_timeout")
    assert event["left"] == (7 if early else 14) and ("ended early" in str(event["text"])) is early
    assert told.took_s == pytest.approx(whole().took_s + (DRAIN_STALL_S if early else DRAIN_S), abs=1.0)


def test_a_host_that_begins_late_is_told_of() -> None:
    """The skew is that of the corrected clocks, which are ten seconds apart."""
    (begun,) = (event for event in run(Fault("late", "begin", for_s=2.0)).sink.events if event["kind"] == "begun")
    assert begun["skew_ns"]["left"] == pytest.approx(2e9, rel=0.01)
    assert begun["skew_ns"]["right"] < 10_000_000
    (begun,) = (event for event in whole().sink.events if event["kind"] == "begun")
    assert max(begun["skew_ns"].values()) < 10_000_000


@pytest.mark.parametrize(
    ("fault", "words", "within_s"),
    [
        (Fault("silent", "hello"), "said nothing", 65.0),
        (Fault("ends", "hello"), "has ended", 1.0),
        (Fault("older", "hello"), "is perftest 0.0.1", 1.0),
        *((Fault("silent", op), "said nothing", 80.0) for op in OPS[1:4]),
        *((Fault("ends", op), "has ended", 2.0) for op in OPS[1:4]),
        (Fault("refused", "connect_publishers"), "no", 2.0),
        (Fault("refused", "apply"), "no", 2 * STEP_S),
    ],
)
def test_what_cannot_begin_or_is_refused_ends_the_run(fault: Fault, words: str, within_s: float) -> None:
    told = run(fault)
    assert told.outcome.state == "failed" and told.outcome.error is not None and words in told.outcome.error.what
    assert told.took_s <= within_s and not told.lost


@pytest.mark.parametrize("op", ["begin", "cut", "apply", "ledger"])
def test_either_host_may_be_lost_and_both_end_the_run(op: str) -> None:
    for host in AHEAD_NS:
        assert run(Fault("ends", op), on=host).outcome.state == "finished"
    told = run(Fault("ends", op), on="left", and_on="right")
    assert told.outcome.state == "failed" and told.took_s <= whole().took_s + 5.0
