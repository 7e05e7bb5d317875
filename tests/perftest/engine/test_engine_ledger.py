"""The ledger against one that keeps a dictionary entry per message: a verdict that is wrong once is worth nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perftest.engine import ledger as ledger_module
from perftest.engine.ledger import CONFIRMED, NACKED, RETURNED, Ledger

RUN = 77
COUNTED = (
    *("published", "confirmed", "nacked", "returned", "unconfirmed", "republished", "delivered", "redelivered"),
    *("unique", "lost", "duplicated", "reordered", "unexpected", "undelivered", "foreign"),
)


class SlowLedger:
    """One publisher, sets and dictionaries, message by message."""

    def __init__(self) -> None:
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
            self.counts["duplicated"] += not excused
            return
        self.seen.add(number)
        self.counts["unique"] += 1
        if not excused:
            if number < self.highest.get(scope, -1):
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
        st.tuples(st.just("run"), st.integers(1, 2), st.integers(1, 60), st.booleans()),
        st.tuples(st.just("deliver"), st.integers(1, 2), NUMBERS, st.booleans()),
        st.tuples(st.just("stray"), st.sampled_from([-5, 10**6])),
        st.tuples(st.just("again"), NUMBERS),
        st.tuples(st.just("forget"), st.integers(1, 2)),
    ),
    max_size=40,
)


def deliver(ledger: Ledger, scope: int, numbers: list[int], redelivered: bool, source: int = RUN << 16) -> Any:
    count = len(numbers)
    return ledger.delivered(scope, np.full(count, source), np.array(numbers), np.full(count, redelivered))


@pytest.mark.parametrize("small", [False, True])
@settings(derandomize=True, deadline=None, max_examples=250)
@given(operations=OPERATIONS, drained=st.booleans())
def test_the_account_is_that_of_the_slow_ledger(
    small: bool, operations: list[tuple[object, ...]], drained: bool
) -> None:
    """``small`` makes roll-up and stragglers happen within a few messages."""
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(ledger_module, "ARRAY_MIN", 8)
            patch.setattr(ledger_module, "STRAGGLER_SPAN", 8)
        _compare(operations, drained)


def _compare(operations: list[tuple[object, ...]], drained: bool) -> None:
    ledger, slow = Ledger(RUN), SlowLedger()
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
            case ("forget", int(scope)):
                ledger.forget_scope(scope)
                slow.highest.pop(scope, None)
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
    assert len(account._flags) == ledger_module.ARRAY_MIN
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
    assert len(account._flags) <= 4 * ledger_module.STRAGGLER_SPAN
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
