"""The events of a run in order: a running hash of all events, and the last events for people.

An event is a callback of an event loop, the arrival of a packet, an operation that changes a drive, or an act of the
nemesis. Events are noted as numbers and short strings, and become text only when somebody wants to read them. The hash
covers every event of the run, so eight digits tell whether two runs of one seed are equal.

The story (:mod:`reference_broker.sim.story`) stands beside the events: what they meant to Raft, to queues and to
clients. The story follows from the events, so the hash leaves it out. The story is kept longer than the events, so that
the story of a failure begins well before the failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import merge
from typing import Final

from reference_broker.checksum import crc32

KEPT: Final = 4000

Detail = str | int


class Trace:
    """The last events, the last lines of the story, and the hash of all events.

    ``kept`` is the number of each that are kept; None keeps everything.
    """

    def __init__(self, kept: int | None = KEPT) -> None:
        self.events: deque[tuple[float, str, str, Detail]] = deque(maxlen=kept)
        self._story: deque[tuple[int, float, str, str, Callable[..., str], tuple[object, ...]]] = deque(maxlen=kept)
        self.hash = 0
        self.count = 0
        self.counts: dict[str, int] = {}
        """The number of events of each kind."""

    def note(self, now: float, who: str, what: str, detail: Detail = "") -> None:
        """Note an event. ``who`` is a host, ``what`` a kind of event."""
        self.count += 1
        self.events.append((now, who, what, detail))
        self.hash = crc32(f"{now:.9f}{who}{what}{detail}".encode(), self.hash)
        self.counts[what] = self.counts.get(what, 0) + 1

    def tell(self, now: float, who: str, what: str, words: Callable[..., str], *about: object) -> None:
        """Add a line to the story of the present event. ``words`` makes the text out of ``about``, if somebody reads
        it."""
        self._story.append((self.count, now, who, what, words, about))

    def lines(self) -> list[str]:
        """Events and story as text: virtual seconds, host, kind, detail."""
        first = self.count - len(self.events) + 1
        events = ((first + at, *event) for at, event in enumerate(self.events))
        story = ((count, now, who, what, words(*about)) for count, now, who, what, words, about in self._story)
        both = merge(events, story, key=lambda line: line[0])
        return [f"{now:12.6f} {who:<4} {what:<14} {detail}" for _, now, who, what, detail in both]
