"""When the tail has settled after a change of settings."""

from __future__ import annotations

import pandas as pd
import pytest

from reports.stats.settling import settlings


def _timeline(*values: float, warmup: int = 2, step: int = 1, start_s: float = 0.0) -> pd.DataFrame:
    """Slots of one second with these p99s (ms)."""
    return pd.DataFrame(
        {
            "step": step,
            "phase": ["warmup"] * warmup + ["steady"] * (len(values) - warmup),
            "t_s": [start_s + second for second in range(len(values))],
            "length_s": 1.0,
            "p99": [value * 1e6 for value in values],
        }
    )


@pytest.mark.parametrize(
    ("values", "after_s"),
    [
        ((10, 10, 10, 10, 10, 10, 10, 10), 0.0),
        ((40, 30, 20, 14, 10, 10, 10, 10, 10, 10, 10), 4.0),
        ((10, 10, 10, 99, 10, 10, 10, 10), 0.0),
        ((10, 10, 20, 10, 20, 20, 10, 20, 10, 20), None),
    ],
)
def test_a_step_has_settled_once_it_stays_at_its_level(values: tuple[float, ...], after_s: float | None) -> None:
    """One odd interval is not heard; a tail that keeps moving never settles."""
    (found,) = settlings(_timeline(*values), p99="p99")
    assert found.after_s == after_s
    assert found.length_s == len(values)


def test_steps_stand_in_the_order_in_which_they_ran_without_the_short_ones() -> None:
    """A step with few intervals tells nothing, and must not look settled."""
    frame = pd.concat(
        [
            _timeline(*[5.0] * 8, step=2),
            _timeline(5.0, 5.0, 5.0, step=3, start_s=8),
            _timeline(*[7.0] * 8, step=1, start_s=11),
        ]
    )
    assert [(each.step, each.level_ns) for each in settlings(frame, p99="p99")] == [(2, 5e6), (1, 7e6)]
