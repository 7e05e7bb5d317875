"""What happened to a run besides its messages, summed up from its events: a figure that nobody would look for there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

_COUNTED: Final = {
    "connection_lost": ("connection lost", "connections lost"),
    "channel_closed": ("channel closed by the broker", "channels closed by the broker"),
    "consumer_cancelled": ("consumer cancelled by the broker", "consumers cancelled by the broker"),
    "metrics_lost": ("loss of the broker's own figures", "losses of the broker's own figures"),
    "node_lost": ("broker node did not answer", "times a broker node did not answer"),
}
_ADDED: Final = ("blocked_ns", "dropped", "polls", "empty")
"""Numbers that events carry: each counts for itself."""


class Disturbances:
    """Tell :meth:`event` everything."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()

    def event(self, record: Mapping[str, object]) -> None:
        """Count an event."""
        self._kinds[str(record.get("kind"))] += 1
        for name in _ADDED:
            number = record.get(name)
            if isinstance(number, int):
                self._sums[name] += number

    def in_words(self) -> str:
        """What a reader has to know of, whatever the step; empty if nothing happened."""
        words = []
        for kind, (one, many) in _COUNTED.items():
            if count := self._kinds[kind]:
                words.append(f"1 {one}" if count == 1 else f"{count:,} {many}")
        if self._kinds["blocked"]:
            words.append(f"connections blocked by the broker for {self._sums['blocked_ns'] / 1e9:.1f} s, added up")
        if dropped := self._sums["dropped"]:
            words.append(f"{dropped:,} overdue messages not sent")
        return f"while the run lasted: {', '.join(words)}" if words else ""

    def polls(self) -> str:
        """How many polls were in vain; empty where nobody polled."""
        polls, empty = self._sums["polls"], self._sums["empty"]
        return f"polls   {polls:,}, of which {empty:,} ({empty / polls:.0%}) found the queue empty" if polls else ""
