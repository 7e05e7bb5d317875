"""Counters per second, as RabbitMQ's API has them beside each counter. Pure.

RabbitMQ samples by itself. Here the requests are the samples: a rate is the mean since the last request that was at
least a second ago. So nobody pays for rates that nobody asks for, a script that polls gets the rates of its own
interval, and the first answer has rates of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from reference_broker.management.shapes import Row

_APART_S: Final = 1.0
_FORGOTTEN_AFTER_S: Final = 300.0


class _Sample(NamedTuple):
    at_s: float
    value: float
    rate: float


class Rates:
    """What was asked for lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds that never go back."""
        self._clock = clock
        self._known: dict[Hashable, _Sample] = {}
        self._swept_s = clock()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: Hashable, value: float) -> float:
        """How fast the counter of this key grows."""
        now = self._clock()
        self._sweep(now)
        known = self._known.get(key)
        if known is not None and now - known.at_s < _APART_S:
            return known.rate
        rate = 0.0 if known is None else max(value - known.value, 0.0) / (now - known.at_s)
        self._known[key] = _Sample(now, value, rate)
        return rate

    def beside(self, counters: Row, *key: Hashable) -> Row:
        """The counters, each with its ``…_details``."""
        details = {f"{name}_details": {"rate": round(self.of((*key, name), counters[name]), 3)} for name in counters}
        return counters | details

    def _sweep(self, now: float) -> None:
        """Forget what nobody asks for any more."""
        if now - self._swept_s > _FORGOTTEN_AFTER_S:
            self._swept_s = now
            self._known = {key: each for key, each in self._known.items() if now - each.at_s < _FORGOTTEN_AFTER_S}
