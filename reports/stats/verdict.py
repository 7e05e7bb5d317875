"""What a change means, in one of five words.

Both bounds of the interval of confidence decide, never the change alone: one figure says nothing about how far chance
carries it. The noise is what nobody would act on.

=========================  ==================================
both bounds                verdict
=========================  ==================================
beyond the noise           improved, or regressed
within the noise           within noise; no change detected if the interval holds 0
anything else              inconclusive
=========================  ==================================
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from reports.stats.confidence import Change

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
    if change.low > noise or change.high < -noise:
        return Verdict.IMPROVED if (change.value > 0) is more_is_better else Verdict.REGRESSED
    if -noise <= change.low and change.high <= noise:
        return Verdict.NO_CHANGE if change.low <= 0 <= change.high else Verdict.WITHIN_NOISE
    return Verdict.INCONCLUSIVE
