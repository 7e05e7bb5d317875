"""Rates out of the requests themselves."""

from __future__ import annotations

from reference_broker.management.rates import Rates


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_rate_is_the_mean_since_the_request_before() -> None:
    clock = Clock()
    rates = Rates(clock)
    assert rates.of("q", 50) == 0, "nobody knows what was before"
    clock.now_s += 2
    assert rates.of("q", 70) == 10
    clock.now_s += 5
    assert rates.of("q", 70) == 0


def test_two_who_poll_at_once_get_the_same_rate() -> None:
    """Else the second would see the change of a few milliseconds."""
    clock = Clock()
    rates = Rates(clock)
    rates.of("q", 0)
    clock.now_s += 5
    assert rates.of("q", 100) == 20
    clock.now_s += 0.01
    assert rates.of("q", 101) == 20


def test_a_counter_that_begins_anew_has_no_negative_rate() -> None:
    clock = Clock()
    rates = Rates(clock)
    rates.of("q", 1000)
    clock.now_s += 5
    assert rates.of("q", 3) == 0
    clock.now_s += 1
    assert rates.of("q", 5) == 2


def test_counters_have_their_details_beside_them() -> None:
    clock = Clock()
    rates = Rates(clock)
    rates.beside({"publish": 0, "ack": 0}, "/", "q")
    clock.now_s += 4
    assert rates.beside({"publish": 6, "ack": 2}, "/", "q") == {
        "publish": 6, "publish_details": {"rate": 1.5}, "ack": 2, "ack_details": {"rate": 0.5},
    }  # fmt: skip


def test_what_is_gone_is_forgotten() -> None:
    clock = Clock()
    rates = Rates(clock)
    for number in range(100):
        rates.of(number, 1)
    clock.now_s += 1000
    rates.of("q", 1)
    assert len(rates) == 1
