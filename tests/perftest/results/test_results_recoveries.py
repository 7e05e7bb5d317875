"""The times of recoveries in the rows of their steps: an objective is only as good as the row that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from perftest.results.summary import with_recoveries


def after(
    acted_ns: int, back_s: float | None, outage_s: float | None = 0.0, rate: float | None = 100.0, first_s: float = 0.1
) -> dict[str, Any]:
    return {
        "acted_ns": acted_ns,
        "back_s": back_s,
        "outage_s": outage_s,
        "rate_before": rate,
        "first_confirm_s": first_s,
    }


ROWS = [{"step": 1, "start_ns": 1000}, {"step": 2, "start_ns": 2000}]


@pytest.mark.parametrize(
    ("recoveries", "first", "second"),
    [
        ([], (), ()),
        ([after(1500, 2.0, 1.0)], (2_000_000_000, 1_000_000_000), ()),
        ([after(500, 2.0, 1.0)], (2_000_000_000, 1_000_000_000), ()),
        ([after(1500, 2.0, 1.0), after(2000, 0.5, 3.0)], (2_000_000_000, 1_000_000_000), (500_000_000, 3_000_000_000)),
        ([after(1500, None, 4.0), after(1900, 0.5)], (500_000_000, 4_000_000_000), ()),
        ([after(1500, 0.5), after(1900, None, 4.0)], (None, 4_000_000_000), ()),
        ([after(1500, None, None, rate=None, first_s=0.25)], (250_000_000, None), ()),
    ],
)
def test_each_step_has_the_longest_times_after_its_own_actions(
    recoveries: list[dict[str, Any]], first: tuple[int | None, ...], second: tuple[int | None, ...]
) -> None:
    found = with_recoveries(ROWS, recoveries)
    names = ("recovery_ns", "gap_ns")
    assert [tuple(row[name] for name in names if name in row) for row in found] == [first, second]
