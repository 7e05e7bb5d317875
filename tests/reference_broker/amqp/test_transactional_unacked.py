"""What a rollback gives back, against a slow oracle: a dictionary of tags."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.amqp.transactions import CommitTracker, TransactionalUnacked
from reference_broker.amqp.unacked import Taken, Unacked

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 4), st.sampled_from("ab")),
        st.tuples(st.sampled_from(["one", "up_to"]), st.integers(1, 30), st.just("")),
        st.tuples(st.sampled_from(["commit", "rollback", "recover"]), st.just(0), st.just("")),
    ),
    max_size=40,
)


class Oracle:
    """Each tag with its consumer and message: unacknowledged, or acknowledged since the last commit."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[str, int]] = {}
        self.taken: dict[int, tuple[str, int]] = {}

    def take(self, tags: list[int]) -> list[tuple[str, int]]:
        for tag in tags:
            self.taken[tag] = self.held.pop(tag)
        return [self.taken[tag] for tag in tags]

    def rollback(self) -> None:
        self.held = dict(sorted((self.held | self.taken).items()))
        self.taken = {}


def messages(found: list[Taken]) -> list[tuple[str, int]]:
    return [(tag, number) for tag, first, last in found for number in range(first, last + 1)]


@given(STEPS)
def test_a_rollback_gives_back_what_was_acknowledged_since_the_last_commit(steps: list[tuple[str, int, str]]) -> None:
    unacked, oracle = TransactionalUnacked(Unacked()), Oracle()
    next_tag, next_message = 1, {"a": 1, "b": 1}
    for step, number, consumer in steps:
        if step == "deliver":
            unacked.add(next_tag, number, consumer, next_message[consumer])
            for at in range(number):
                oracle.held[next_tag + at] = consumer, next_message[consumer] + at
            next_tag, next_message[consumer] = next_tag + number, next_message[consumer] + number
        elif step == "one":
            wanted = [number] if number in oracle.held else []
            found, missing = unacked.take(number, number)
            assert messages(found) == oracle.take(wanted) and (missing is None) == bool(wanted)
        elif step == "up_to":
            found = unacked.take_up_to(number)
            assert messages(found) == oracle.take([tag for tag in oracle.held if tag <= number])
        elif step == "recover":
            assert messages(unacked.recover()) == [*oracle.held.values()]
            oracle.held.clear()
        elif step == "commit":
            unacked.commit()
            oracle.taken.clear()
        else:
            unacked.rollback()
            oracle.rollback()
        assert unacked.count == len(oracle.held)
    assert messages(unacked.take_all()) == [*oracle.held.values()]


def test_the_tracker_calls_once_all_publishes_are_resolved() -> None:
    calls: list[bool] = []
    tracker = CommitTracker(lambda: calls.append(tracker.refused))
    tracker.published(5)
    tracker.confirm(1, 2)
    tracker.reject(4, 5)
    assert not calls and not tracker.flush(1)
    tracker.confirm(3, 3)
    assert calls == [True] and tracker.is_resolved
    tracker.forget()
    assert not tracker.refused
