"""The result of a check, and helpers that all checks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["pass", "warn", "fail"]
Figures = dict[str, float | int | str]
_ORDER = ("pass", "warn", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """The result of a check.

    ``text`` says what was measured and what follows from it. ``figures`` are the numbers, with units in their names.
    """

    name: str
    status: Status
    text: str
    figures: Figures = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The result as plain values for JSON."""
        return {"check": self.name, "status": self.status, "text": self.text, "figures": self.figures}


def judged(name: str, text: str, doubt: str, figures: Figures) -> DoctorCheck:
    """A warning if there is a doubt, which then ends the text; else a pass."""
    return DoctorCheck(name=name, status="warn" if doubt else "pass", text=text + doubt, figures=figures)


def worst(checks: Sequence[DoctorCheck]) -> Status:
    """The gravest status of all checks; pass if there is no check."""
    return max((check.status for check in checks), key=_ORDER.index, default="pass")


def percentile(sorted_values: Sequence[int], percent: float) -> int:
    """The value that ``percent`` of the values do not exceed; there is at least one value."""
    return sorted_values[min(int(percent / 100 * len(sorted_values) + 0.5), len(sorted_values) - 1)]
