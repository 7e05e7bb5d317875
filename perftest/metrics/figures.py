"""Figures as people read them in a line of text: never with an exponent, thousands grouped."""

from __future__ import annotations


def three_figures(value: float) -> str:
    """A measured value with three significant figures, above a thousand as a whole number: 0.0123, 4.81, 11,700."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def plain_number(value: float) -> str:
    """A value that somebody has written, with up to six significant figures: 0.5, 33.3333, 1,500,000."""
    return f"{value:,.0f}" if abs(value) >= 99_999.5 else f"{value:,.6g}"
