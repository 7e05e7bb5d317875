"""What happened, in order: a running hash of everything, and the last events for people.

An event is a callback of a node's or a client's event loop, a packet's arrival, an operation that changes a drive, or
something that the nemesis does. It is noted as numbers and short strings, and made readable only when somebody wants to
read it. The hash covers every event of the run, so two runs of one seed can be compared by eight digits.

What the events meant to Raft, to queues and to clients is told beside them (:mod:`reference_broker.sim.story`). It
follows from the events, so it is not in the hash; it is kept longer, so that a failure's story begins well before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import merge
from typing import Final
from zlib import crc32

KEPT: Final = 4000

Detail = str | int
Line = tuple[int, float, str, str, str]
"""After how many events, when, who, what, detail."""


class Trace:
    """A ring of the last events and of what they meant, and the hash of all events.

    ``kept`` is the length of each; None keeps everything.
    """

    def __init__(self, kept: int | None = KEPT) -> None:
        self.events: deque[tuple[float, str, str, Detail]] = deque(maxlen=kept)
        self._story: deque[tuple[int, float, str, str, Callable[..., str], tuple[object, ...]]] = deque(maxlen=kept)
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

    def tell(self, now: float, who: str, what: str, words: Callable[..., str], *about: object) -> None:
        """What the present event means; ``words`` makes it readable out of ``about``, should anybody read it."""
        self._story.append((self.count, now, who, what, words, about))

    def lines(self) -> list[str]:
        """Both rings, readable: virtual seconds, host, event or kind of meaning, detail."""
        first = self.count - len(self.events) + 1
        events = ((first + at, *event) for at, event in enumerate(self.events))
        story = ((count, now, who, what, words(*about)) for count, now, who, what, words, about in self._story)
        both = merge(events, story, key=lambda line: line[0])
        return [f"{now:12.6f} {who:<4} {what:<14} {detail}" for _, now, who, what, detail in both]
