"""Words and columns for intervals over rounds, and for figures that the rounds do not tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reports.pages import words
from reports.pages.model import Column

LOW: Final = "95 % interval from"
HIGH: Final = "95 % interval to"

RIVALS: Final = Column(name="rivals", title="rate not told apart from")
"""Column of the rows whose intervals overlap with that of the row."""

NAMED_MAX: Final = 3
"""Largest number of rivals that a cell names."""


def named_rivals(names: Sequence[str], rivals: Sequence[Sequence[int]]) -> list[str]:
    """The rivals of each row by name, or their number if there are many; ``rivals`` are rows of ``names``."""
    return [
        words.listed([names[row] for row in each]) if len(each) <= NAMED_MAX else f"{len(each)} others"
        for each in rivals
    ]
