"""Connections that have not proved yet that they belong to the cluster, and their lines in the log.

A node must not spend much on a stranger: neither memory, nor lines of its log. So there is a bound on the number of
strangers, and the log has at most one line for each kind of refusal in a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, Protocol

log = logging.getLogger(__name__)

COMPLAIN_AGAIN_S: Final = 10.0
"""The shortest time between two log lines about one topic: a refused stranger often comes again at once."""


class Stranger(Protocol):
    """A connection without proof so far."""

    def close(self) -> None:
        """Drop the connection at once."""


class Complaints:
    """Lines of the log about refusals: at most one in a while for each topic. ``now`` gives seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._said: dict[Hashable, tuple[float, int]] = {}

    def say(self, topic: Hashable, text: str) -> None:
        """Log why a connection was refused, unless the topic had its line already; the next line counts the lines left
        out."""
        since, count = self._said.get(topic, (-COMPLAIN_AGAIN_S, 0))
        if self._now() - since < COMPLAIN_AGAIN_S:
            self._said[topic] = since, count + 1
            return
        self._said[topic] = self._now(), 0
        log.warning("%s%s", text, f" (and {count} more since the last such line)" if count else "")


class Strangers:
    """The strangers at one port, in the order of their arrival: at most ``limit``."""

    def __init__(self, limit: int, complain: Callable[[str], None]) -> None:
        self._limit = limit
        self._complain = complain
        self._all: dict[Stranger, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, stranger: Stranger) -> None:
        """A stranger has come. If there are too many, the oldest has to go, so that silent connections keep no other
        out."""
        self._all[stranger] = None
        if len(self._all) > self._limit:
            oldest = next(iter(self._all))
            del self._all[oldest]
            self._complain(f"more than {self._limit} strangers at once: the oldest is dropped")
            oldest.close()

    def remove(self, stranger: Stranger) -> None:
        """Somebody has proved who it is, or is gone."""
        self._all.pop(stranger, None)
