"""Terms by index, compared with a list that has one term an entry."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference_broker.raft.log_view import LogView
from reference_broker.types import LogIndex, Term


@dataclass(frozen=True)
class Point:
    index: LogIndex
    term: Term


class LogViewAgainstList(RuleBasedStateMachine):
    """``terms[i]`` is the term of entry ``base + 1 + i``."""

    @initialize()
    def start(self) -> None:
        self.view = LogView()
        self.base, self.base_term, self.synced = 0, 0, 0
        self.terms: list[int] = []

    @property
    def last(self) -> int:
        return self.base + len(self.terms)

    @rule(step=st.integers(0, 2), count=st.integers(1, 4))
    def append(self, step: int, count: int) -> None:
        term = max(1, (self.terms[-1] if self.terms else self.base_term) + step)
        assert self.view.append(Term(term), count) == self.last + count
        self.terms += [term] * count

    @precondition(lambda self: self.terms)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.base, self.last + 2))
        term = data.draw(st.integers(0, 1 + max(self.terms)))
        known = self.base < index <= self.last and self.terms[index - self.base - 1] == term
        counts = known and index > self.synced
        assert self.view.mark_synced(LogIndex(index), Term(term)) == counts
        self.synced = index if counts else self.synced

    @precondition(lambda self: self.terms)
    @rule()
    def sync_all(self) -> None:
        self.view.mark_synced(LogIndex(self.last), Term(self.terms[-1]))
        self.synced = self.last

    @precondition(lambda self: self.terms and self.synced == self.last)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.base + 1, self.last))
        self.view.truncate(LogIndex(index))
        del self.terms[index - self.base - 1 :]
        self.synced = self.last

    @precondition(lambda self: self.terms)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.base + 1, self.last))
        self.base_term = self.terms[index - self.base - 1]
        self.view.compact(LogIndex(index), Term(self.base_term))
        del self.terms[: index - self.base]
        self.base = index
        self.synced = max(self.synced, index)

    @rule(ahead=st.integers(1, 5), term=st.integers(0, 3))
    def reset(self, ahead: int, term: int) -> None:
        self.base, self.base_term = self.last + ahead, (self.terms[-1] if self.terms else self.base_term) + term
        self.view.reset(LogIndex(self.base), Term(self.base_term))
        self.terms = []
        self.synced = self.base

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "view"):
            return
        view = self.view
        assert (view.snapshot_index, view.snapshot_term) == (self.base, self.base_term)
        assert (view.first_index, view.last_index, view.synced_index) == (self.base + 1, self.last, self.synced)
        assert view.last_term == (self.terms[-1] if self.terms else self.base_term)
        assert view.is_synced == (self.synced == self.last)
        assert view.term_at(LogIndex(self.base)) == self.base_term
        assert view.term_at(LogIndex(self.last + 1)) is None
        assert self.base == 0 or view.term_at(LogIndex(self.base - 1)) is None
        for at, term in enumerate(self.terms):
            assert view.term_at(LogIndex(self.base + 1 + at)) == term
            assert view.run_start(LogIndex(self.base + 1 + at)) == self.base + 1 + self.terms.index(term)


TestLogViewAgainstList = LogViewAgainstList.TestCase
TestLogViewAgainstList.settings = settings(
    derandomize=True, max_examples=150, stateful_step_count=40, deadline=None, database=None
)


@given(st.tuples(st.integers(1, 9), st.integers(0, 9)), st.tuples(st.integers(1, 9), st.integers(0, 9)))
def test_up_to_date_orders_by_term_then_index(mine: tuple[int, int], theirs: tuple[int, int]) -> None:
    """5.4.1. The wrong order elects a leader without the committed entries."""
    view = LogView(runs=[(LogIndex(1), Term(mine[0]))], last_index=LogIndex(mine[1] + 1))
    assert view.is_up_to_date(LogIndex(theirs[1] + 1), Term(theirs[0])) == (theirs >= mine)


def runs(*pairs: tuple[int, int]) -> list[tuple[LogIndex, Term]]:
    return [(LogIndex(index), Term(term)) for index, term in pairs]


@pytest.mark.parametrize(
    ("snapshot", "found", "last", "drawn"),
    [
        (None, [], 0, "snap 0@0 | - | synced 0"),
        (None, [(1, 1), (4, 2)], 6, "snap 0@0 | 1..3@1 4..6@2 | synced 6"),
        ((3, 1), [(1, 1), (4, 2)], 6, "snap 3@1 | 4..6@2 | synced 6"),
        ((5, 2), [(1, 1), (4, 2)], 6, "snap 5@2 | 6..6@2 | synced 6"),
        ((6, 2), [(1, 1), (4, 2)], 6, "snap 6@2 | - | synced 6"),
        ((9, 2), [(1, 1), (4, 2)], 6, "snap 9@2 | - | synced 9"),
        ((5, 2), [(6, 2)], 8, "snap 5@2 | 6..8@2 | synced 8"),
        ((5, 3), [(1, 1), (4, 2)], 8, "snap 5@3 | - | synced 5"),
    ],
    ids=["nothing", "log", "edge", "within", "all", "ahead", "compacted", "another log"],
)
def test_recovered_view(snapshot: tuple[int, int] | None, found: list[tuple[int, int]], last: int, drawn: str) -> None:
    """After a crash between snapshot and log the two overlap, or contradict each other: then the snapshot is right."""
    point = Point(LogIndex(snapshot[0]), Term(snapshot[1])) if snapshot else None
    assert LogView.recovered(point, runs(*found), LogIndex(last)).describe() == drawn


@pytest.mark.parametrize(
    ("found", "last"),
    [([(2, 1)], 4), ([(1, 2), (3, 1)], 4), ([(1, 1), (1, 2)], 4), ([(1, 1), (5, 2)], 4), ([], 4)],
    ids=["gap", "term goes back", "index twice", "run behind the end", "no runs"],
)
def test_an_impossible_log_is_refused(found: list[tuple[int, int]], last: int) -> None:
    """A member with a hole in its log must not vote: it could elect a leader without committed entries."""
    with pytest.raises(ValueError, match="gap or goes back"):
        LogView(runs=runs(*found), last_index=LogIndex(last))
