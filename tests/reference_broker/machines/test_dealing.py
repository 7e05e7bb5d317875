"""The parts that deal and hold: each against the per-message version of itself."""

from __future__ import annotations

from random import Random

import pytest

from reference_broker.machines.consumers import UNLIMITED, Consumer, HeldRange
from reference_broker.machines.messages.backlog import Backlog, Record
from reference_broker.machines.messages.origins import NEVER, Origin, joined_step
from reference_broker.machines.service_queue import ServiceQueue

from .logs import consumer

ORIGIN = Origin(1, 0, 0, 0)


def subscribed(number: int, credit: int, priority: int = 0) -> Consumer:
    one = Consumer(consumer(1, number=number))
    one.subscribe(min(credit, 1 << 30), credit == UNLIMITED, priority)
    return one


def deal_one_by_one(wants: list[tuple[int, int]], count: int) -> tuple[dict[int, list[int]], list[int]]:
    """Seed rule: front of the highest priority takes the message and goes to the back, if it has credit left."""
    left = {turn: credit for turn, (credit, _) in enumerate(wants)}
    line = list(left)
    got: dict[int, list[int]] = {turn: [] for turn in line}
    for position in range(count):
        if not line:
            break
        turn = max(line, key=lambda candidate: wants[candidate][1])
        line.remove(turn)
        got[turn].append(position)
        left[turn] -= 1
        if left[turn]:
            line.append(turn)
    return got, sorted(line, key=lambda turn: -wants[turn][1])


@pytest.mark.seeds(300)
def test_dealing_a_run_equals_dealing_each_message(seed: int) -> None:
    """The round robin is visible to clients; a faster one that deals otherwise would be another queue."""
    random = Random(seed)
    choices = random.choice(((1, 2, 3), (5, 50), (UNLIMITED,), (1, 4, UNLIMITED), (3,)))
    wants = [(random.choice(choices), random.choice((0, 0, 1))) for _ in range(random.randint(1, 7))]
    queue = ServiceQueue()
    consumers = [subscribed(number, *want) for number, want in enumerate(wants)]
    for one in consumers:
        queue.add(one)
    count = random.choice((1, 2, 5, 17, 100))
    got: dict[int, list[int]] = {turn: [] for turn in range(len(consumers))}
    start = 0
    while queue.levels and start < count:
        dealt, width, shares = queue.deal(count - start)
        assert dealt > 0
        for one, turn, share in shares:
            positions = [start + turn + width * step for step in range(share)]
            got[consumers.index(one)] += positions
            one.hold(share, positions[0], width, ORIGIN)
        start += dealt
    expected, line = deal_one_by_one(wants, count)
    assert got == expected
    assert [consumers.index(one) for one in queue.order()] == line


def test_work_of_dealing_follows_messages_not_consumers() -> None:
    """A hundred idle consumers must not make each single message a hundred times dearer."""
    queue = ServiceQueue()
    for number in range(100):
        queue.add(subscribed(number, 10))
    assert [len(queue.deal(1)[2]) for _ in range(5)] == [1] * 5
    assert len(queue.deal(3)[2]) == 3


@pytest.mark.seeds(100)
def test_releasing_any_ids_gives_up_exactly_those(seed: int) -> None:
    """Settles come out of order, overlap and repeat: each id is given up once, all others stay."""
    random = Random(seed)
    one = subscribed(1, 10_000)
    expected: dict[int, tuple[int, int]] = {}
    for entry in range(random.randint(1, 12)):
        origin = Origin(random.choice((entry, 3)), 0, 0, random.choice((0, 0, 1)))
        start, count, step = random.randint(0, 5), random.randint(1, 9), random.choice((1, 1, 2, 3))
        first = one.hold(count, start, step, origin)
        expected |= {first + turn: (origin.entry, start + turn * step) for turn in range(count)}
    for _ in range(15):
        first = random.randint(0, 60)
        last = first + random.choice((-2, 0, 0, 3, 10, 100))
        given_up = one.release(first, last)
        assert all(held.count > 0 for held in [*given_up, *one.held])
        assert messages(given_up) == {key: expected.pop(key) for key in list(expected) if first <= key <= last}
        assert messages(one.held) == expected
        assert one.unacked == len(expected)
        assert one.credit == 10_000 - len(expected)


@pytest.mark.seeds(100)
def test_holding_goes_on_while_ids_are_given_up(seed: int) -> None:
    """One long run, dealt bit by bit to a consumer that settles at the end, in the middle, anywhere in between."""
    random = Random(seed)
    one, expected, start = subscribed(1, 10_000), dict[int, tuple[int, int]](), 0
    for _ in range(40):
        count, step = random.choice((1, 1, 2, 5)), random.choice((1, 1, 2))
        first = one.hold(count, start, step, ORIGIN)
        expected |= {first + turn: (ORIGIN.entry, start + turn * step) for turn in range(count)}
        start += count * step
        at = max(0, one.next_id - random.choice((1, 1, 2, 3, 8)))
        released = one.release(at, at + random.choice((0, 0, 1, 5)))
        assert all(held.count > 0 for held in [*released, *one.held])
        for message_id, message in messages(released).items():
            assert expected.pop(message_id) == message
        assert messages(one.held) == expected


def messages(ranges: list[HeldRange]) -> dict[int, tuple[int, int]]:
    return {
        held.first_id + turn: (held.origin.entry, held.start + turn * held.step)
        for held in ranges
        for turn in range(held.count)
    }


def test_a_prefix_settle_of_many_messages_touches_ranges_only() -> None:
    """Ack "multiple" of a whole prefetch window is what fast consumers do all day."""
    one = subscribed(1, 1_000_000)
    for entry in range(10):
        one.hold(50_000, 0, 1, Origin(entry, 0, 0, 0))
    assert len(one.release(0, 449_999)) == 9
    assert len(one.held) == 1


def test_single_deliveries_of_one_run_are_held_as_one_range() -> None:
    """A consumer that acks one by one over a long backlog must not make the state grow."""
    one = subscribed(1, 1000)
    for position in range(1000):
        one.hold(1, position, 1, ORIGIN)
    assert len(one.held) == 1
    assert one.held[0].count == 1000


@pytest.mark.parametrize(
    ("first", "second", "step"),
    [
        ((0, 3, 1), (3, 2, 1), 1),
        ((0, 1, 7), (4, 1, 9), 4),
        ((0, 2, 4), (8, 1, 1), 4),
        ((0, 1, 1), (3, 2, 3), 3),
        ((0, 3, 1), (4, 2, 1), 0),
        ((0, 2, 2), (4, 2, 3), 0),
        ((5, 1, 1), (4, 1, 1), 0),
        ((5, 1, 1), (5, 1, 1), 0),
    ],
)
def test_when_two_stretches_are_one(first: tuple[int, int, int], second: tuple[int, int, int], step: int) -> None:
    """Joining what does not belong together would deliver other messages."""
    assert joined_step(*first, *second) == step


@pytest.mark.parametrize("seed", range(8))
def test_a_backlog_is_a_list_of_records(seed: int) -> None:
    """Freezing and thawing the middle of a large backlog must be invisible, whichever end messages leave at."""
    random = Random(seed)
    backlog, expected, taken, entry = Backlog(), list[Record](), 0, 0
    for _ in range(random.choice((50, 400))):
        for _ in range(random.choice((0, 1, 5, Backlog.block_records // 3))):
            entry += 1
            place = entry, 13, random.choice((0, 2)), random.choice((1, 1, 3))
            record = *place, random.choice((NEVER, 1000)), random.choice((0, 7))
            backlog.push(record)
            expected.append(record)
        for _ in range(random.choice((0, 1, 5, Backlog.block_records // 3))):
            if expected:
                index, offset, start, count, *rest = expected[0]
                assert backlog.first() == expected[0]
                part = random.randint(1, count)
                backlog.take(part)
                taken += part
                expected[:1] = [(index, offset, start + part, count - part, *rest)] if part < count else []
        for _ in range(random.choice((0, 0, 1, Backlog.block_records // 3))):
            if expected:
                index, offset, start, count, *rest = expected[-1]
                assert backlog.peek_tail() == expected[-1]
                part = random.randint(1, count)
                backlog.take_tail(part)
                expected[-1:] = [(index, offset, start, count - part, *rest)] if part < count else []
        assert backlog.count == sum(record[3] for record in expected)
        assert backlog.octets == sum(record[3] * record[5] for record in expected)
        assert backlog.first_number == taken
    assert list(backlog) == expected
    assert backlog.column("entry").tolist() == [record[0] for record in expected]
    copy = Backlog.loaded(backlog.first_number, backlog.dump())
    assert (list(copy), copy.count, copy.octets, copy.dump()) == (
        expected,
        backlog.count,
        backlog.octets,
        backlog.dump(),
    )
    backlog.clear()
    assert (backlog.count, backlog.octets, list(backlog)) == (0, 0, [])
    assert backlog.first_number == taken + copy.count
