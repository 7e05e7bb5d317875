"""What happened, in order: a running hash of everything, and the last events for people.

An event is a callback of a node's or a client's event loop, a packet's arrival, an operation that changes a drive, or
something that the nemesis does. It is noted as numbers and short strings, and made readable only when somebody wants to
read it. The hash covers every event of the run, so two runs of one seed can be compared by eight digits.
"""

from __future__ import annotations

from collections import deque
from typing import Final
from zlib import crc32

KEPT: Final = 4000

Detail = str | int


class Trace:
    """A ring of the last events, and the hash of all."""

    def __init__(self, kept: int = KEPT) -> None:
        self.events: deque[tuple[float, str, str, Detail]] = deque(maxlen=kept)
        self.hash = 0
        self.count = 0
        self.counts: dict[str, int] = {}
        """Events by kind."""

    def note(self, now: float, who: str, what: str, detail: Detail = "") -> None:
        """``who`` is a host, ``what`` a kind of event."""
        self.count += 1
        self.events.append((now, who, what, detail))
        self.hash = crc32(f"{now:.9f}{who}{what}{detail}".encode(), self.hash)
        self.counts[what] = self.counts.get(what, 0) + 1

    def lines(self) -> list[str]:
        """The ring, readable: virtual seconds, host, event."""
        return [f"{now:12.6f} {who:<4} {what:<14} {detail}" for now, who, what, detail in self.events]
