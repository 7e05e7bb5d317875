"""How many dead letters are on their way at a time."""

from __future__ import annotations

import numpy as np

from reference_broker.machines.commands import Enqueue, Tick, UpdateConfig
from reference_broker.machines.config import DeadLetterStrategy, FifoConfig
from reference_broker.machines.dead_letters import DEAD_LETTER, DEAD_LETTER_COLUMNS, WINDOW, WINDOW_OCTETS, DeadLetters
from reference_broker.machines.effects import DeadLetterReason, Effect, SetTimer
from reference_broker.machines.fifo import FifoMachine
from reference_broker.machines.messages.origins import Origin

from .logs import apply, channel, run_of, told

AT_MOST_ONCE = FifoConfig(name="q", dead_letter=DeadLetterStrategy.AT_MOST_ONCE)


def ids(letters: DeadLetters, fresh: bool) -> list[int]:
    ranges = letters.announce() if fresh else letters.in_flight
    return [number for one in ranges for number in range(one.first_id, one.first_id + one.count)]


def test_a_leader_hears_of_a_window_of_dead_letters() -> None:
    """A target that is away must not fill the leader's memory with bodies; nor may a letter be left out."""
    letters = DeadLetters()
    letters.keep(3 * WINDOW, 0, 1, Origin(1, 13, 0, 0, size=2), DeadLetterReason.EXPIRED)
    assert ids(letters, fresh=True) == list(range(1, WINDOW + 1))
    letters.settle(((WINDOW + 5, 2 * WINDOW),))  # nobody was told of these
    assert letters.count == 3 * WINDOW
    letters.settle(((1, 10), (20, 20)))
    assert ids(letters, fresh=True) == list(range(WINDOW + 1, WINDOW + 12))
    assert ids(letters, fresh=False) == [*range(11, 20), *range(21, WINDOW + 12)]
    assert (letters.count, letters.octets) == (3 * WINDOW - 11, 6 * WINDOW - 22)


def test_few_large_letters_are_a_window() -> None:
    """The leader holds their bodies in memory: a thousand of the largest were more than any machine has."""
    letters, large = DeadLetters(), WINDOW_OCTETS // 4
    letters.keep(9, 0, 1, Origin(1, 13, 0, 0, size=large), DeadLetterReason.EXPIRED)
    letters.keep(2, 0, 1, Origin(2, 13, 0, 0, size=5 * large), DeadLetterReason.EXPIRED)
    assert ids(letters, fresh=True) == [1, 2, 3, 4]
    letters.settle(((2, 3),))
    assert ids(letters, fresh=True) == [5, 6]
    letters.settle(((1, 9),))
    assert ids(letters, fresh=True) == [7, 8, 9], "only what was told can be settled"
    letters.settle(((7, 8),))
    assert ids(letters, fresh=True) == [], "one that is larger than the window goes alone"
    letters.settle(((9, 9),))
    assert [ids(letters, fresh=True), ids(letters, fresh=True)] == [[10], []]
    letters.settle(((10, 10),))
    assert ids(letters, fresh=True) == [11]


def test_an_entry_sends_a_window_of_dead_letters_on_their_way_and_asks_for_the_next() -> None:
    """A queue of a million that is told to hold none must not keep its node from everything else; and every message
    of it must arrive."""
    queue, messages = FifoMachine(AT_MOST_ONCE), 3 * WINDOW + 5
    apply(queue, *[Enqueue(channel(1), 1 + number, run_of(1)) for number in range(messages)])
    shrink = UpdateConfig(FifoConfig(name="q", dead_letter=DeadLetterStrategy.AT_MOST_ONCE, max_length=0))
    entries: list[list[Effect]] = [apply(queue, shrink, time_ms=7)]
    assert queue.counts().dropped == messages
    assert queue.become_leader(7)[-1] == SetTimer(7)
    assert queue.live_entries() == [(1, 1)]
    while SetTimer(7) in entries[-1]:
        entries.append(apply(queue, Tick(), time_ms=7))
    assert [len(told(effects).letters) for effects in entries] == [WINDOW, WINDOW, WINDOW, 5]
    places = [place for effects in entries for _id, place, _reason, _count in told(effects).letters]
    assert places == sorted(set(places))
    assert queue.live_entries() == []


def test_a_range_told_in_part_is_read_back_in_two() -> None:
    """A snapshot may hold one range of which a leader has heard the front: the rest is news to the next one."""
    letters, place = DeadLetters(), Origin(1, 13, 0, 0, size=2)
    letters.announced = 5
    packed = DEAD_LETTER.pack(DeadLetterReason.EXPIRED, 2, 10, 0, 1, *place)
    letters.load(np.frombuffer(packed, DEAD_LETTER_COLUMNS))
    assert (ids(letters, fresh=False), ids(letters, fresh=True)) == ([2, 3, 4], list(range(5, 12)))
    assert (letters.count, letters.octets) == (10, 20)
