"""What a change means, in one of five words.

Two questions decide: does the interval of confidence leave room for no change at all, and is the change larger than the
noise that nobody would act on?

=====================  ===========================  ==================================
interval               change within the noise      change beyond the noise
=====================  ===========================  ==================================
leaves out 0           within noise                 improved, or regressed
holds 0, within noise  no change detected           –
holds 0, and beyond    inconclusive                 inconclusive
=====================  ===========================  ==================================
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

from reports.stats.bootstrap import Change

NOISE_LATENCY: Final = 0.05
NOISE_RATE: Final = 0.02


class Verdict(StrEnum):
    """In the order in which a reader wants them."""

    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    IMPROVED = "improved"
    WITHIN_NOISE = "within noise"
    NO_CHANGE = "no change detected"


def judge(change: Change, *, noise: float, more_is_better: bool) -> Verdict:
    """The verdict on a change; ``noise`` is the part that nobody would act on (0.05 for 5 %)."""
    if not math.isfinite(change.value) or change.low <= 0 <= change.high:
        inside = -noise <= change.low and change.high <= noise
        return Verdict.NO_CHANGE if inside else Verdict.INCONCLUSIVE
    if abs(change.value) <= noise:
        return Verdict.WITHIN_NOISE
    return Verdict.IMPROVED if (change.value > 0) is more_is_better else Verdict.REGRESSED
