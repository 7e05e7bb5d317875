"""Numbers in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.pages import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123, "0.0123"),
        (0.00001234, "1.2e-05"),
        (0.82, "0.82"),
        (4.8123, "4.81"),
        (9.996, "10.0"),
        (48.12, "48.1"),
        (99.96, "100"),
        (481.2, "481"),
        (1204.4, "1,204"),
        (-3.14159, "-3.14"),
    ],
)
def test_significant(value: float, text: str) -> None:
    """More digits than were measured pretend a precision that is not there."""
    assert words.significant(value) == text


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0 µs"),
        (850, "0.85 µs"),
        (820_000, "820 µs"),
        (999_400, "999 µs"),
        (999_600, "1.00 ms"),
        (4_810_000, "4.81 ms"),
        (126_000_000, "126 ms"),
        (1_200_000_000, "1.20 s"),
        (3_600_000_000_000, "3,600 s"),
    ],
)
def test_latency_takes_the_unit_that_reads_best(value_ns: float, text: str) -> None:
    """1,000 µs and 0.00482 s are right and unreadable."""
    assert words.latency(value_ns) == text


@given(st.floats(1, 3.6e12))
def test_a_latency_in_words_is_within_half_a_per_cent(value_ns: float) -> None:
    """Rounding must never move a figure by more than its last digit."""
    number, unit = words.latency(value_ns).split()
    assert float(number.replace(",", "")) * words.LATENCY_UNITS[unit] == pytest.approx(value_ns, rel=0.0051)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.0, "3.00 s"), (38, "38 s"), (250, "4 min 10 s"), (1800, "30 min"), (7500, "2 h 5 min"), (7200, "2 h")],
)
def test_duration(seconds: float, text: str) -> None:
    """A reader does not divide by sixty."""
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(912, "912 B"), (1536, "1.5 KiB"), (8 * 2**30, "8 GiB"), (3 * 2**40, "3 TiB"), (0, "0 B")]
)
def test_octets(value: float, text: str) -> None:
    """Memory is bought in GiB."""
    assert words.octets(value) == text


@pytest.mark.parametrize(("part", "text"), [(0.461, "46.1 %"), (1, "100.0 %"), (0.0006, "0.06 %"), (0.0, "0 %")])
def test_share(part: float, text: str) -> None:
    """A share of 0.0 % that is not zero is a lie."""
    assert words.share(part) == text


@pytest.mark.parametrize(("value", "text"), [(208_900.4, "208,900 msg/s"), (2.5, "2.50 msg/s"), (0, "0 msg/s")])
def test_rate(value: float, text: str) -> None:
    """Slow queues deliver fractions."""
    assert words.rate(value) == text
