"""Stages telescope: whatever the stamps are, they sum to the time from the first to the last."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.anatomy.anatomy import ROWS, Anatomy, Snapshot
from reference_broker.anatomy.stages import CHAINS, STAGES, Chain, Stage, telescoped
from reference_broker.anatomy.track import Track
from reference_broker.machines.commands import Enqueue
from reference_broker.machines.effects import Span
from reference_broker.message_run import MessageRun, stamped
from reference_broker.types import ChannelId, LogIndex, NodeId

CLOCK = 7
CHANNEL = ChannelId(NodeId(1), 1, 1, 1)


def rows(width: int) -> st.SearchStrategy[list[list[int]]]:
    """Stamps in any order, 0 among them."""
    stamp = st.one_of(st.just(0), st.integers(1, 30), st.integers(1, 10**15))
    return st.lists(st.lists(stamp, min_size=width, max_size=width), min_size=1, max_size=20)


def slow(stamps: list[int]) -> list[int]:
    """The rules of ``stages``, one stamp after the other."""
    moved = list(stamps)
    if len(moved) > 8:
        handed, synced, committed = moved[4], moved[7], moved[8]
        if not synced or synced > committed:
            moved[5] = moved[6] = moved[7] = handed
    durations = []
    for before, after in zip(range(len(moved)), range(1, len(moved)), strict=False):
        moved[after] = max(moved[before], moved[after])
        durations.append(moved[after] - moved[before])
    return durations


@given(st.sampled_from(Chain).flatmap(lambda chain: rows(len(CHAINS[chain]) + 1)))
def test_stages_sum_to_the_whole_and_none_is_negative(stamps: list[list[int]]) -> None:
    """If they did not, the bars of a report would not add up to the latency they explain."""
    durations = telescoped(np.array(stamps, np.int64))
    assert durations.tolist() == [slow(row) for row in stamps]
    assert (durations >= 0).all()
    for row, row_durations in zip(stamps, durations.tolist(), strict=True):
        if row[-1] == max(row):
            assert sum(row_durations) == row[-1] - row[0]


def test_stamps_in_order_are_just_subtracted() -> None:
    """The usual case needs no rule."""
    stamps = np.cumsum([[1000, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]], axis=1)
    assert telescoped(stamps).tolist() == [list(range(1, 12))]


def test_a_commit_before_the_own_sync_leaves_the_own_disk_out() -> None:
    """The other two members made the majority: this node's slow drive is not what the message waited for."""
    read, proposed, sent, made, handed, begun, written, synced = 100, 110, 120, 120, 125, 130, 140, 900
    committed, applied, dealt, delivered = 200, 210, 210, 230
    stamps = np.array(
        [[read, proposed, sent, made, handed, begun, written, synced, committed, applied, dealt, delivered]]
    )
    by_stage = dict(zip(CHAINS[Chain.DELIVERY], telescoped(stamps)[0].tolist(), strict=True))
    assert [by_stage[stage] for stage in (Stage.WAL_QUEUE, Stage.WAL_WRITE, Stage.FSYNC)] == [0, 0, 0]
    assert by_stage[Stage.REPLICATE] == committed - handed
    assert sum(by_stage.values()) == delivered - read


def test_neighbouring_stages_meet_in_one_stamp() -> None:
    """A gap between two stages would be time that nobody accounts for."""
    specs = {spec.stage: spec for spec in STAGES}
    for stages in CHAINS.values():
        for stage, following in pairwise(stages):
            assert specs[stage].ends == specs[following].begins
    assert set(specs) == set(Stage) - {Stage.TOTAL}


def run_of(count: int, clock: int = CLOCK, read: int = 100, sent: int = 0) -> MessageRun:
    return stamped(MessageRun(count, b"", b"x" * count, 1), clock, read, read + 10, sent)


def anatomy_with_entry(clock: int = CLOCK, entries_max: int = 9) -> tuple[Anatomy, Track]:
    anatomy = Anatomy(CLOCK, entries_max)
    track = Track(anatomy)
    track.handed(5, clock, 130, 135)
    track.synced(5, 140, 150, 170)
    track.applied(5, 5, 190, 195)
    return anatomy, track


def means(snapshot: Snapshot, chain: Chain) -> dict[str, tuple[int, int]]:
    """Messages and sum of each stage."""
    return {stage: (int(series.counts.sum()), series.total) for stage, series in snapshot.chains[chain].items()}


def deliver(track: Track, run: MessageRun, count: int, index: int = 5) -> None:
    track.delivered([Span(LogIndex(index), 0, 0, count)], [(run, 0, count, 1)])


def test_a_delivery_is_followed_from_the_read_to_the_socket() -> None:
    """The chain of every message of the run, weighted, and the sum beside it."""
    anatomy, track = anatomy_with_entry()
    deliver(track, run_of(4), 3)
    anatomy.hold("connection")
    anatomy.written("another", 1)
    assert not means(anatomy.snapshot(), Chain.DELIVERY)["total"][0]
    anatomy.written("connection", 205)
    found = means(anatomy.snapshot(), Chain.DELIVERY)
    expected = dict(zip(CHAINS[Chain.DELIVERY], (10, 20, 0, 5, 5, 10, 20, 20, 5, 0, 10), strict=True))
    assert found == {stage: (3, 3 * time) for stage, time in expected.items()} | {"total": (3, 3 * 105)}


def test_a_follower_s_publish_shows_its_way_to_the_leader() -> None:
    """Without it, the wire to the leader would look like waiting at the publisher's node."""
    anatomy, track = anatomy_with_entry()
    deliver(track, run_of(1, sent=122), 1)
    anatomy.hold(1)
    anatomy.written(1, 205)
    found = means(anatomy.snapshot(), Chain.DELIVERY)
    assert (found["propose"], found["forward"]) == ((1, 12), (1, 8))


def test_a_confirm_over_a_follower_shows_the_way_to_the_leader_too() -> None:
    """The publisher's node keeps the run as it was before it was forwarded: it must remember when that was."""
    anatomy, track = anatomy_with_entry()
    track.forwarded(6, 1)
    track.forwarded(8, 122)
    track.proposals_applied(5, 8, [Enqueue(CHANNEL, 1, run_of(1)), Enqueue(CHANNEL, 2, run_of(1))])
    track.confirmed(CHANNEL)
    anatomy.hold(1)
    anatomy.written(1, 205)
    found = means(anatomy.snapshot(), Chain.CONFIRM)
    assert (found["propose"], found["forward"]) == ((2, 24), (2, 16))


def test_a_backlog_shows_as_ready_and_nowhere_else() -> None:
    """A deep queue must not look like a slow socket."""
    anatomy, track = anatomy_with_entry()
    track.applied(9, 9, 5000, 5001)
    deliver(track, run_of(1), 1)
    anatomy.hold(1)
    anatomy.written(1, 5011)
    found = means(anatomy.snapshot(), Chain.DELIVERY)
    assert (found["ready"], found["deliver"]) == ((1, 5001 - 195), (1, 10))


def test_confirms_are_recorded_for_whom_they_are_sent() -> None:
    """A channel without confirms has no confirm latency; one that has must get all its runs."""
    anatomy, track = anatomy_with_entry()
    commands = [Enqueue(CHANNEL, 1, run_of(2)), object(), Enqueue(CHANNEL, 3, run_of(3))]
    track.proposals_applied(5, 3, commands)
    track.confirmed(CHANNEL)
    anatomy.hold(1)
    track.confirmed(CHANNEL)
    anatomy.begun.clear()
    anatomy.written(1, 200)
    assert means(anatomy.snapshot(), Chain.CONFIRM)["confirm"] == (5, 25)
    assert means(anatomy.snapshot(), Chain.CONFIRM)["total"] == (5, 500)


def test_other_clocks_leave_the_cross_node_stages_out() -> None:
    """Two hosts' clocks differ by anything: a difference of their stamps is no time."""
    for run_clock, entry_clock in ((8, CLOCK), (CLOCK, 8)):
        anatomy, track = anatomy_with_entry(entry_clock)
        deliver(track, run_of(2, clock=run_clock), 2)
        anatomy.hold(1)
        anatomy.written(1, 205)
        found = means(anatomy.snapshot(), Chain.DELIVERY)
        assert anatomy.foreign == 2
        assert [found[stage][0] for stage in CHAINS[Chain.DELIVERY]] == [0] * 4 + [2] * 7
        assert (found["wal_queue"], found["deliver"], found["total"]) == ((2, 10), (2, 20), (0, 0))


def test_old_entries_are_forgotten_and_counted() -> None:
    """The table is bounded; what it no longer knows is said, not guessed."""
    anatomy, track = anatomy_with_entry(entries_max=2)
    for index in (6, 7):
        track.handed(index, CLOCK, 130, 135)
    deliver(track, run_of(2), 2)
    deliver(track, MessageRun(1, b"", b"x", 1), 1, index=7)
    assert anatomy.forgotten == 3
    assert len(track.entries) == 2


def test_an_overwritten_entry_starts_over() -> None:
    """A new leader's entry at the same index has times of its own."""
    _anatomy, track = anatomy_with_entry()
    track.handed(5, CLOCK, 230, 235)
    track.synced(5, 240, 250, 270)
    times = track.entries[5]
    assert (times.made, times.synced, times.applied) == (230, 270, 0)


def test_settles_are_measured_up_to_the_entry_that_carries_them() -> None:
    """They ride with others, on purpose: how long is worth knowing."""
    anatomy, track = anatomy_with_entry()
    for number, count, read in ((3, 10, 100), (4, 1, 200), (6, 7, 300)):
        track.settling(number, count, read)
    track.settled(5, 1000)
    assert means(anatomy.snapshot(), Chain.SETTLE)["settle"] == (11, 10 * 900 + 800)


def test_full_buffers_are_folded_on_the_way() -> None:
    """Memory must not grow with the messages between two questions."""
    anatomy = Anatomy(CLOCK)
    for number in range(3 * ROWS):
        anatomy.record(Chain.SETTLE, 2, (0, number))
    assert means(anatomy.snapshot(), Chain.SETTLE)["settle"] == (6 * ROWS, 3 * ROWS * (3 * ROWS - 1))
