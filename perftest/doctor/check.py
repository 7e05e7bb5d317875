"""The shape of a finding, shared by all checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["pass", "warn", "fail"]
_ORDER = ("pass", "warn", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``text`` says what was found and what follows from it; ``figures`` are the numbers, units in their names."""

    name: str
    status: Status
    text: str
    figures: dict[str, float | int | str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"check": self.name, "status": self.status, "text": self.text, "figures": self.figures}


def worst(checks: Sequence[Check]) -> Status:
    """The gravest status; pass if there is none."""
    return max((check.status for check in checks), key=_ORDER.index, default="pass")


def percentile(sorted_values: Sequence[int], percent: float) -> int:
    """The value that ``percent`` of them do not exceed; they are not empty."""
    return sorted_values[min(int(percent / 100 * len(sorted_values) + 0.5), len(sorted_values) - 1)]
