"""The chart of findings: measured against claimed, on one axis."""

from __future__ import annotations

from math import inf, log10
from typing import Any

import pandas as pd
import pytest

from reports.charts import claims

ROW = {"says": "so", "verdict": "reproduced", "ratio": 2.0, "low": 1.5, "high": 2.5, "least": 1.1, "most": inf}


def chart(**other: Any) -> tuple[float, float, dict[str, Any]]:
    """The ends of the axis, and the measured trace, of one finding."""
    figure = claims.figure(pd.DataFrame([ROW | other]))
    low, high = figure["layout"]["xaxis"]["range"]
    return 10**low, 10**high, figure["data"][-1]


@pytest.mark.parametrize(("low", "high"), [(1e-40, 1e60), (-3.0, inf)])
def test_a_very_wide_interval_leaves_the_others_readable(low: float, high: float) -> None:
    """Its whiskers end with the axis, which gets one power of ten more at most."""
    least, most, measured = chart(low=low, high=high)
    assert 0.05 < least < 1 and 2.5 < most < 100
    error = measured["error_x"]
    assert measured["x"][0] - error["arrayminus"][0] == pytest.approx(least, abs=1e-5)
    assert measured["x"][0] + error["array"][0] <= most * (1 + 1e-6)


def test_the_axis_holds_what_was_claimed_and_measured() -> None:
    least, most, _measured = chart(ratio=300.0, low=200.0, high=400.0, least=10.0)
    assert least < 1 and most > 400 and log10(most) < 3


def test_a_negative_ratio_of_gains_is_at_the_end_of_the_axis_and_said_on_touch() -> None:
    least, _most, measured = chart(ratio=-0.5, low=-1.0, high=0.1, least=0.0, most=1.0)
    assert measured["x"] == [pytest.approx(least)] and measured["customdata"] == [["so", -0.5]]
