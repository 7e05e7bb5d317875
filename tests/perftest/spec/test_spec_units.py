"""Quantities: a unit that is read wrongly measures another load than the one that was asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.spec.sweep import swept_value
from perftest.spec.units import (
    IN_FLIGHT_UNLIMITED,
    WORDS,
    UnitError,
    format_duration,
    in_words,
    parse_ack_interval,
    parse_count,
    parse_duration_s,
    parse_in_flight,
    parse_prefetch,
    parse_rate,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("30s", 30),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("2min", 120),
        (7, 7),
        ("7", 7),
        ("2d", 172_800),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1m30s", 90),
        ("1.5s", 1.5),
        ("2s500ms", 2.5),
    ],
)
def test_duration(text: object, seconds: float) -> None:
    """A step of 5m lasts five minutes, not five milliseconds."""
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1000 B", 1000),
        ("2MiB", 2 * 1024**2),
        (12, 12),
        ("1_000", 1000),
        ("1k", 1000),
        ("1K", 1000),
        ("2M", 2_000_000),
        ("20gb", 20 * 10**9),
        ("1kib", 1024),
        ("1.001k", 1001),
    ],
)
def test_size_keeps_decimal_and_binary_apart(text: object, octets: int) -> None:
    """Published results in kB and in KiB differ by 2.4 %: more than the differences people look for."""
    assert parse_size_bytes(text) == octets


@pytest.mark.parametrize(("text", "count"), [("40k", 40_000), ("1M", 1_000_000), ("1.5k", 1500), (0, 0)])
def test_count(text: object, count: int) -> None:
    """In-flight limits may be written as people say them."""
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "rate"), [("unlimited", None), (None, None), ("40k", 40_000), ("1k/s", 1000), (0.5, 0.5)]
)
def test_rate(text: object, rate: float | None) -> None:
    """No rate is a closed loop, and must not become a rate of nothing."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "bad",
    ["", "m5", "5x", "-3s", "5 5s", "30m1h", "1h1h", "1h30", "1h30x", True, [1], "1e9", -1, float("nan"), float("inf")],
)
def test_what_cannot_be_read_is_refused_with_a_fix(bad: object) -> None:
    """A quantity that was guessed would be worse than none."""
    with pytest.raises(UnitError) as caught:
        parse_duration_s(bad)
    assert caught.value.rule and caught.value.fix


@pytest.mark.parametrize("bad", ["0.5", 1.5, "1.0001k"])
def test_a_part_of_a_message_is_refused(bad: object) -> None:
    """Rounding 0.5 to 0 would switch confirms off."""
    with pytest.raises(UnitError, match="whole"):
        parse_count(bad)


@given(st.integers(min_value=0, max_value=10**6))
def test_a_formatted_duration_is_the_same_duration(milliseconds: int) -> None:
    """The plan that is shown is the plan that runs."""
    assert parse_duration_s(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@pytest.mark.parametrize(
    ("read", "value", "meaning"),
    [
        (parse_in_flight, "no_confirms", 0),
        (parse_in_flight, "unlimited", IN_FLIGHT_UNLIMITED),
        (parse_in_flight, "2k", 2000),
        (parse_prefetch, "unlimited", 0),
        (parse_prefetch, 0, 0),
        (parse_prefetch, 5, 5),
        (parse_ack_interval, "automatic", 0),
        (parse_ack_interval, "1", 1),
    ],
)
def test_what_is_no_number_has_a_word(read: Callable[[object], int], value: object, meaning: int) -> None:
    """Nobody has to know which number stands for none."""
    assert read(value) == meaning


@pytest.mark.parametrize("read", [parse_in_flight, parse_ack_interval])
@pytest.mark.parametrize("value", [0, "0", 0.0])
def test_a_zero_that_says_two_things_is_refused(read: Callable[[object], int], value: object) -> None:
    """PerfTest's -c 0 is confirms without a limit, to others it is no confirms: a wrong guess measures another load."""
    with pytest.raises(UnitError, match="says two things") as caught:
        read(value)
    assert caught.value.fix.startswith("write ")


@pytest.mark.parametrize("setting", WORDS)
def test_every_word_reads_as_it_is_shown(setting: str) -> None:
    """A label of a sweep, and a file that was written from a plan, are typed again."""
    for value, word in WORDS[setting].items():
        assert in_words(setting, value) == word
        assert swept_value(setting, word) == value
    assert in_words(setting, 17) == "17"
