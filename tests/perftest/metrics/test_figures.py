"""Figures in a line of text: a person reads 11,700 ms at once, and 1.17e+04 ms never."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.metrics.figures import plain_number, three_figures


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "0.0123"), (4.814, "4.81"), (999.4, "999"), (999.6, "1,000"), (11_700.0, "11,700"), (-2e6, "-2,000,000")],
)
def test_three_figures(value: float, text: str) -> None:
    assert three_figures(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (33.333333, "33.3333"), (1000.0, "1,000"), (99_999.9, "100,000"), (1.5e6, "1,500,000")],
)
def test_a_plain_number(value: float, text: str) -> None:
    assert plain_number(value) == text


@given(st.floats(min_value=0.001, max_value=1e15))
def test_no_figure_has_an_exponent(value: float) -> None:
    for text in (three_figures(value), plain_number(value)):
        assert "e" not in text
        assert float(text.replace(",", "")) == pytest.approx(value, rel=0.01)
