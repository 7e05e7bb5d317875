"""Delivery tags as ranges, against a dict with one entry per tag."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.amqp.unacked import Taken, Unacked

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 12), st.sampled_from("ab"), st.integers(0, 2)),
        st.tuples(st.just("skip"), st.integers(1, 3), st.just(""), st.just(0)),
        st.tuples(st.just("take"), st.integers(0, 60), st.just(""), st.integers(0, 6)),
        st.tuples(st.just("up_to"), st.integers(0, 60), st.just(""), st.just(0)),
        st.tuples(st.just("all"), st.just(0), st.just(""), st.just(0)),
    ),
    max_size=40,
)


def flat(taken: list[Taken]) -> list[tuple[str, int]]:
    return [(tag, each) for tag, first, last in taken for each in range(first, last + 1)]


@given(STEPS)
def test_ranges_hold_what_a_dict_of_tags_holds(steps: list[tuple[str, int, str, int]]) -> None:
    """An acknowledgement translated to the wrong message deletes a message that was never processed."""
    unacked, oracle = Unacked(), dict[int, tuple[str, int]]()
    next_tag, next_id = 1, {"a": 0, "b": 0}
    for what, number, consumer, extra in steps:
        if what == "add":
            next_id[consumer] += extra
            unacked.add(next_tag, number, consumer, next_id[consumer])
            oracle.update({next_tag + n: (consumer, next_id[consumer] + n) for n in range(number)})
            next_tag += number
            next_id[consumer] += number
        elif what == "skip":
            next_tag += number  # deliveries to a consumer without acknowledgements take tags, too
        elif what == "take":
            taken, missing = unacked.take(number, number + extra)
            wanted = range(number, number + extra + 1)
            gone = next((tag for tag in wanted if tag not in oracle), None)
            assert missing == gone
            assert flat(taken) == [oracle.pop(tag) for tag in wanted if gone is None or tag < gone]
        else:
            last = number if what == "up_to" else next_tag
            taken = unacked.take_up_to(number) if what == "up_to" else unacked.take_all()
            assert flat(taken) == [oracle.pop(tag) for tag in sorted(oracle) if tag <= last]
        assert unacked.count == len(oracle)
        assert [unacked.holds(tag) for tag in range(70)] == [tag in oracle for tag in range(70)]


def test_one_consumer_in_order_is_one_range_however_much_it_holds() -> None:
    """Memory and time of a prefetch of 100,000 would otherwise grow with it."""
    unacked = Unacked()
    for batch in range(1000):
        unacked.add(1 + batch * 100, 100, "c", batch * 100)
        assert unacked.take(1 + batch * 50, 50 + batch * 50)[1] is None
    assert unacked.count == 50_000
    assert len(unacked._ranges) == len(unacked._firsts) == 1
