"""The ledger against one that keeps a dictionary entry per message: a verdict that is wrong once is worth nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.accounting import account as account_module
from perftest.engine.accounting import ledger as ledger_module
from perftest.engine.accounting.account import CONFIRMED, NACKED, RETURNED
from perftest.engine.accounting.forwarding import from_text, to_text
from perftest.engine.accounting.ledger import Ledger

RUN = 77
COUNTED = (
    *("published", "confirmed", "nacked", "returned", "unconfirmed", "republished", "delivered", "redelivered"),
    *("unique", "lost", "duplicated", "reordered", "unexpected", "undelivered", "foreign"),
)


class SlowLedger:
    """One publisher, sets and dictionaries, message by message. ``shared``: by several workers."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.repeated_first: set[int] = set()
        self.next = 0
        self.answers: dict[int, set[str]] = {}
        self.seen: set[int] = set()
        self.again: set[int] = set()
        self.highest: dict[int, int] = {}
        self.counts = dict.fromkeys(COUNTED, 0)

    def deliver(self, scope: int, number: int, redelivered: bool) -> None:
        if not 0 <= number < self.next:
            self.counts["unexpected"] += 1
            return
        self.counts["delivered"] += 1
        self.counts["redelivered"] += redelivered
        excused = redelivered or number in self.again
        if number in self.seen:
            if self.shared and not redelivered and number in self.repeated_first:
                self.repeated_first.remove(number)
                excused = True
            self.counts["duplicated"] += not excused
            return
        self.seen.add(number)
        if redelivered:
            self.repeated_first.add(number)
        self.counts["unique"] += 1
        if not redelivered:
            if number < self.highest.get(scope, -1) and number not in self.again:
                self.counts["reordered"] += 1
            self.highest[scope] = max(number, self.highest.get(scope, -1))

    def close(self, drained: bool) -> dict[str, int]:
        promised = [
            number
            for number, answers in self.answers.items()
            if "confirmed" in answers and "returned" not in answers and number not in self.seen
        ]
        self.counts["lost" if drained else "undelivered"] = len(promised)
        self.counts["published"] = self.next
        self.counts["unconfirmed"] = self.next - self.counts["confirmed"] - self.counts["nacked"]
        return self.counts


NUMBERS = st.lists(st.floats(0, 1), min_size=1, max_size=30)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 60)),
        st.tuples(st.just("answer"), st.sampled_from([CONFIRMED, CONFIRMED, CONFIRMED, NACKED]), NUMBERS),
        st.tuples(st.just("return"), st.floats(0, 1)),
        st.tuples(st.just("run"), st.integers(1, 4), st.integers(1, 60), st.booleans()),
        st.tuples(st.just("deliver"), st.integers(1, 4), NUMBERS, st.booleans()),
        st.tuples(st.just("stray"), st.sampled_from([-5, 10**6])),
        st.tuples(st.just("again"), NUMBERS),
    ),
    max_size=40,
)


def deliver(ledger: Any, scope: int, numbers: list[int], redelivered: bool, source: int = RUN << 16) -> Any:
    count = len(numbers)
    return ledger.delivered(scope, np.full(count, source), np.array(numbers), np.full(count, redelivered))


class Apart:
    """Two workers: the publisher is the first one's, consumers with odd channels are the second one's."""

    def __init__(self, queues: tuple[int, ...] | None = None) -> None:
        self.first = Ledger(RUN, queues=queues, of_other_workers=lambda numbers: numbers != 0)
        self.second = Ledger(RUN, queues=queues, of_other_workers=lambda numbers: numbers != 1)
        self.publisher = self.first.publisher

    def delivered(self, scope: int, *deliveries: Any) -> Any:
        return (self.second if scope % 2 else self.first).delivered(scope, *deliveries)

    def forward(self) -> None:
        self.first.forwarded(from_text(to_text(self.second.forwarding_buffer.take())))

    def close(self, **how: bool) -> None:
        self.forward()
        self.first.close(**how)
        self.second.close(**how)

    def record(self, *, complete: bool) -> dict[str, Any]:
        records = [ledger.record(complete=complete) for ledger in (self.first, self.second)]
        return ledger_module.merge_records(records, complete=complete)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@given(operations=OPERATIONS, drained=st.booleans())
def test_the_account_is_that_of_the_slow_ledger(
    small: bool, apart: bool, operations: list[tuple[object, ...]], drained: bool
) -> None:
    """``small`` makes roll-up, stragglers and the forgetting of channels happen within a few messages."""
    with pytest.MonkeyPatch.context() as patch:
        if small:
            for limit in ("ARRAY_MIN", "STRAGGLER_SPAN"):
                patch.setattr(account_module, limit, 8)
            patch.setattr(account_module, "HIGHEST_MIN", 1)
        _compare(operations, drained, Apart() if apart else Ledger(RUN))


def _compare(operations: list[tuple[object, ...]], drained: bool, ledger: Any) -> None:
    slow = SlowLedger(shared=isinstance(ledger, Apart))
    account = ledger.publisher(0)
    cursor = 0

    def pick(shares: list[float]) -> list[int]:
        return [round(share * (slow.next - 1)) for share in shares] if slow.next else []

    for operation in operations:
        match operation:
            case ("publish", int(count)):
                assert account.published(count, confirms=True) == slow.next
                slow.answers |= {slow.next + i: set() for i in range(count)}
                slow.next += count
            case ("answer", int(flag), list(shares)):
                word = "confirmed" if flag == CONFIRMED else "nacked"
                fresh = sorted({n for n in pick(shares) if not slow.answers[n] & {"confirmed", "nacked"}})
                account.answered(np.array(fresh, np.int64), flag)
                for number in fresh:
                    slow.answers[number].add(word)
                slow.counts[word] += len(fresh)
            case ("return", float(share)):
                fresh = [n for n in pick([share]) if not slow.answers[n] and n not in slow.seen]
                account.answered(np.array(fresh, np.int64), RETURNED)
                slow.counts["returned"] += len(fresh)
                for number in fresh:
                    slow.answers[number].add("returned")
            case ("run", int(scope), int(count), bool(again)):
                numbers = list(range(cursor, min(cursor + count, slow.next)))
                cursor += len(numbers)
                if numbers:
                    deliver(ledger, scope, numbers, again)
                for number in numbers:
                    slow.deliver(scope, number, again)
            case ("deliver", int(scope), list(shares), bool(again)) if slow.next:
                numbers = pick(shares)
                deliver(ledger, scope, numbers, again)
                for number in numbers:
                    slow.deliver(scope, number, again)
            case ("stray", int(number)):
                deliver(ledger, 1, [number], False)
                slow.deliver(1, number, False)
            case ("again", list(shares)):
                fresh = sorted({n for n in pick(shares) if not slow.answers[n] and n not in slow.again})
                account.republished(np.array(fresh, np.int64))
                slow.again.update(fresh)
                slow.counts["republished"] += len(fresh)
        if isinstance(ledger, Apart):
            ledger.forward()
    ledger.close(drained=drained, abandoned=False)
    record = ledger.record(complete=True)
    assert {name: record[name] for name in COUNTED} == slow.close(drained)


def test_a_clean_run_is_ok_and_keeps_the_array_short() -> None:
    """Memory may not grow with the length of the run."""
    ledger = Ledger(RUN)
    account = ledger.publisher(0)
    for _ in range(500):
        first = account.published(200, confirms=True)
        numbers = np.arange(first, first + 200)
        deliver(ledger, 1, numbers.tolist(), False)
        account.answered(numbers, CONFIRMED)
    assert len(account._flags) == account_module.ARRAY_MIN
    ledger.close(drained=True, abandoned=False)
    record = ledger.record(complete=True)
    assert (record["verdict"], record["unique"], record["examples"]) == ("ok", 100_000, [])


def test_one_message_that_stays_open_does_not_hold_the_array() -> None:
    ledger = Ledger(RUN)
    account = ledger.publisher(0)
    for turn in range(4000):
        first = account.published(200, confirms=True)
        numbers = np.arange(first, first + 200)
        deliver(ledger, 1, numbers[1:].tolist() if turn == 0 else numbers.tolist(), False)
        account.answered(numbers, CONFIRMED)
    assert len(account._flags) <= 4 * account_module.STRAGGLER_SPAN
    assert ledger.outstanding() == 1
    ledger.close(drained=True, abandoned=False)
    record = ledger.record(complete=True)
    assert record["examples"] == [{"publisher": 0, "first": 0, "last": 0, "what": "lost"}]
    assert record["verdict"] == "violated"


def test_without_confirms_nothing_was_promised() -> None:
    ledger = Ledger(RUN)
    ledger.publisher(0).published(10, confirms=False)
    deliver(ledger, 1, [0, 1, 2], False)
    assert ledger.outstanding() == 7
    ledger.close(drained=True, abandoned=False)
    record = ledger.record(complete=True)
    assert (record["lost"], record["unconfirmed"], record["verdict"]) == (0, 0, "ok")


def test_messages_of_another_run_are_foreign_and_no_violation() -> None:
    """What lay in the queue before is not this run's fault, and belongs into no latency."""
    ledger = Ledger(RUN)
    ledger.publisher(0).published(5, confirms=True)
    sources = np.array([RUN << 16, 78 << 16, RUN << 16])
    ours = ledger.delivered(1, sources, np.array([0, 1, 1]), np.zeros(3, np.bool_))
    assert ours is not None and ours.tolist() == [True, False, True]
    record = ledger.record(complete=True)
    assert (record["foreign"], record["delivered"], record["unexpected"]) == (1, 2, 0)


def test_an_abandoned_backlog_is_not_lost_but_leaves_the_verdict_open() -> None:
    ledger = Ledger(RUN)
    account = ledger.publisher(0)
    account.published(10, confirms=True)
    account.answered(np.arange(10), CONFIRMED)
    ledger.close(drained=False, abandoned=True)
    record = ledger.record(complete=True)
    assert (record["lost"], record["undelivered"], record["abandoned"]) == (0, 10, 10)
    assert (record["drained"], record["verdict"]) == (False, "unknown")


def test_what_other_workers_consumers_got_is_judged_once_whenever_it_is_handed_on() -> None:
    """One queue, consumers in two workers: every other message of each is no gap, and doubling is seen across them."""
    ledger = Apart()
    account = ledger.publisher(0)
    account.published(1000, confirms=True)
    account.answered(np.arange(1000), CONFIRMED)
    deliver(ledger, 1, list(range(0, 1000, 2)), False)
    deliver(ledger, 2, [number for number in range(1, 1000, 2) if number != 501], False)
    deliver(ledger, 3, [11], False)
    deliver(ledger, 5, [20], True)
    deliver(ledger, 1, [501], False)
    assert ledger.second.forwarding_buffer.rows == 503
    ledger.close(drained=True, abandoned=False)
    record = ledger.record(complete=True)
    found = {name: record[name] for name in ("unique", "delivered", "redelivered", "duplicated", "reordered", "lost")}
    harm = {"duplicated": 1, "reordered": 1, "lost": 0}
    assert found == {"unique": 1000, "delivered": 1002, "redelivered": 1} | harm
    assert record["examples"] == [
        {"publisher": 0, "first": 501, "last": 501, "what": "reordered"},
        {"publisher": 0, "first": 11, "last": 11, "what": "duplicated"},
    ]


def test_a_publisher_of_nobody_is_unexpected_wherever_it_is_delivered() -> None:
    ledger = Apart()
    ledger.publisher(0).published(5, confirms=True)
    deliver(ledger, 1, [0], False, source=RUN << 16 | 6)
    deliver(ledger, 1, [0], False, source=78 << 16)
    ledger.forward()
    record = ledger.record(complete=True)
    assert (record["unexpected"], record["foreign"], record["delivered"]) == (1, 1, 0)


@pytest.mark.parametrize("apart", [False, True])
@given(
    deliveries=st.lists(st.tuples(st.integers(1, 3), st.floats(0, 1), st.integers(1, 9), st.booleans()), max_size=30),
    returned=st.sets(st.integers(0, 59), max_size=5),
    drained=st.booleans(),
)
def test_each_queue_has_to_deliver_its_copy(
    apart: bool, deliveries: list[tuple[int, float, int, bool]], returned: set[int], drained: bool
) -> None:
    """A message that three queues get is lost if one loses it, and doubled if one doubles it."""
    ledger: Any = Apart((1, 2, 3)) if apart else Ledger(RUN, queues=(1, 2, 3))
    slow = {queue: SlowLedger(shared=apart) for queue in (1, 2, 3)}
    account = ledger.publisher(0)
    account.published(60, confirms=True)
    back = np.array(sorted(returned), np.int64)
    account.answered(back, RETURNED)
    account.answered(np.arange(60), CONFIRMED)
    for queue, one in slow.items():
        one.next = 60
        one.answers = {n: {"confirmed", "returned"} if n in returned else {"confirmed"} for n in range(60)}
        for part in (ledger.first, ledger.second) if apart else (ledger,):
            part.consume(queue, queue)
    for queue, share, count, again in deliveries:
        first = round(share * 59)
        numbers = list(range(first, min(first + count, 60)))
        deliver(ledger, queue, numbers, again)
    # What the other worker's consumers got is handed on in one piece: of that, what is flagged redelivered counts last.
    forwarded = sorted(deliveries, key=lambda one: one[3] and one[0] % 2 == 1) if apart else deliveries
    for queue, share, count, again in forwarded:
        first = round(share * 59)
        for number in range(first, min(first + count, 60)):
            slow[queue].deliver(queue, number, again)
    if apart:
        ledger.forward()
    ledger.close(drained=drained, abandoned=False)
    record = ledger.record(complete=True)
    names = ("delivered", "redelivered", "unique", "lost", "duplicated", "reordered", "undelivered")
    wanted = dict.fromkeys(names, 0)
    for one in slow.values():
        wanted = {name: wanted[name] + one.close(drained)[name] for name in names}
    assert {name: record[name] for name in names} == wanted
    assert (record["published"], record["confirmed"], record["returned"]) == (60, 60, len(returned))


def test_a_queue_that_comes_or_goes_while_messages_flow_owes_only_what_it_was_there_for() -> None:
    ledger = Ledger(RUN, queues=(1,))
    account = ledger.publisher(0)
    ledger.consume(1, 1)
    ledger.consume(2, 2)
    account.published(10, confirms=True)
    ledger.bind(2)  # messages 7, 8, 9 were on their way
    account.published(10, confirms=True)
    account.answered(np.arange(20), CONFIRMED)
    deliver(ledger, 1, list(range(20)), False)
    deliver(ledger, 2, [7, 8, 9, *range(10, 18)], False)
    assert ledger.outstanding() == 2
    deliver(ledger, 2, [8, 18], False)
    assert ledger.record(complete=True)["duplicated"] == 1
    ledger.unbind(2)
    assert ledger.outstanding() == 0
    account.published(5, confirms=True)
    account.answered(np.arange(20, 25), CONFIRMED)
    deliver(ledger, 1, list(range(20, 25)), False)
    ledger.close(drained=True, abandoned=False)
    record = ledger.record(complete=True)
    assert (record["delivered"], record["lost"], record["abandoned"], record["published"]) == (38, 0, 1, 25)


def test_channels_far_behind_are_forgotten() -> None:
    """Thousands of consumers on the queue of thousands of publishers: memory is for messages under way."""
    ledger = Ledger(RUN)
    account = ledger.publisher(0)
    for scope in range(2000):
        deliver(ledger, scope + 1, [account.published(1, confirms=True)], False)
    assert len(account._highest) <= account_module.HIGHEST_MIN + 1
    assert ledger.record(complete=True)["unique"] == 2000


def test_a_redelivery_that_is_heard_of_before_its_delivery_accuses_nobody() -> None:
    """A consumer of another worker gave a message back: its delivery is handed on when the redelivery is known."""
    ledger = Apart()
    account = ledger.publisher(0)
    account.published(5, confirms=True)
    account.answered(np.arange(5), CONFIRMED)
    deliver(ledger, 1, [0, 1, 2, 3, 4], False)
    deliver(ledger, 2, [2, 3], True)
    deliver(ledger, 3, [3], False)
    ledger.close(drained=True, abandoned=False)
    record = ledger.record(complete=True)
    assert (record["unique"], record["redelivered"], record["duplicated"], record["lost"]) == (5, 2, 1, 0)


def test_harm_is_told_once_as_it_is_found() -> None:
    """What the screen shows while it runs; the record at the end has all of it."""
    ledger = Ledger(RUN)
    ledger.publisher(0).published(100, confirms=True)

    def deliver(*numbers: int) -> None:
        found = np.array(numbers)
        ledger.delivered(1, np.full(len(found), RUN << 16), found, np.zeros(len(found), np.bool_))

    deliver(0, 1, 2)
    assert set(ledger.harm_since_cut().values()) == {0}
    deliver(5, 4, 4, 2, 300)
    ledger.damaged(RUN << 16, np.array([5]))
    assert ledger.harm_since_cut() == {"reordered": 1, "duplicated": 2, "unexpected": 1, "damaged": 1}
    assert set(ledger.harm_since_cut().values()) == {0}
    record = ledger.record(complete=True)
    assert (record["reordered"], record["duplicated"], record["unexpected"]) == (1, 2, 1)


def test_what_is_missing_stays_missing_in_the_sum() -> None:
    """Of a lost worker nobody knows what became of its messages, whatever group it worked for."""
    whole = ledger_module.make_record({}, [], complete=True, drained=True)
    missing = [{"host": "far", "worker": "0"}]
    merged = ledger_module.merge_records([whole, whole | {"missing": missing, "drained": False}], complete=False)
    assert merged["missing"] == missing and merged["verdict"] == "unknown"
    assert "missing" not in ledger_module.merge_records([whole, whole], complete=True)


def test_millions_of_undelivered_messages_are_closed_as_ranges() -> None:
    """An end that looked at each message took seconds of silence and hundreds of megabytes: the worker was killed."""
    ledger = Ledger(RUN, queues=(1, 2))
    account = ledger.publisher(0)
    count = 4_000_000
    account.published(count, confirms=False)
    account.published(3, confirms=True)
    account.answered(np.arange(count, count + 3), CONFIRMED)
    ledger.consume(1, 1)
    deliver(ledger, 1, list(range(5000)), False)
    tracemalloc.start()
    try:
        assert ledger.outstanding() == 2 * (count + 3) - 5000
        ledger.close(drained=True, abandoned=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    record = ledger.record(complete=True)
    assert record["lost"] == 6
    assert {(each["first"], each["last"]) for each in record["examples"]} == {(count, count + 2)}


def test_only_the_ranges_that_are_kept_as_examples_are_made() -> None:
    examples = account_module.Examples()
    made = []

    def ranges() -> Iterator[tuple[int, int]]:
        for number in range(0, 1000, 2):
            made.append(number)
            yield number, number

    examples.add_ranges(0, "lost", 500, ranges())
    assert (len(examples.records), examples.counts["lost"]) == (account_module.EXAMPLES_MAX, 500)
    assert len(made) <= account_module.EXAMPLES_MAX + 1


@given(gaps=st.lists(st.integers(1, 3), min_size=1, max_size=60), part=st.sampled_from([1, 2, 7, 1 << 16]))
def test_examples_are_the_ranges_whatever_the_parts(gaps: list[int], part: int) -> None:
    """Ranges that the end of a part cuts are joined again."""
    numbers = np.cumsum(gaps)
    ledger = Ledger(RUN)
    account = ledger.publisher(0)
    account.published(int(numbers[-1]) + 1, confirms=True)
    account.answered(numbers, CONFIRMED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(account_module, "PART", part)
        assert ledger.outstanding() == len(numbers)
        ledger.close(drained=True, abandoned=False)
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
    ends = np.append(starts[1:], len(numbers)) - 1
    wanted = list(zip(numbers[starts].tolist(), numbers[ends].tolist(), strict=True))
    found = [(each["first"], each["last"]) for each in ledger.record(complete=True)["examples"]]
    assert found == wanted[: account_module.EXAMPLES_MAX]


def test_a_worker_can_answer_between_the_accounts_of_two_publishers() -> None:
    ledger = Ledger(RUN)
    for number in range(3):
        ledger.publisher(number).published(1, confirms=False)
    assert sum(1 for _ in ledger.closing(drained=False, abandoned=False)) == 3
