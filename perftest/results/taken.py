"""The messages that a load without publishers took out of its queues: their number, time and rate.

To drain a backlog is a test of its own. Its time is that from the first subscription to the last message that a
consumer was done with; the wait until the queue is known to be empty is in no drain.

Pure: the events of a run in, a record and a sentence out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perftest.metrics.figures import three_figures

KIND = "taken"
"""Event of a worker that took ``count`` messages between ``start_ns`` and ``end_ns``."""


class TakenFromQueues:
    """Adds up the events of all workers; :meth:`event` takes every event of a run."""

    def __init__(self) -> None:
        self._count = 0
        self._start_ns = self._end_ns = 0

    def event(self, record: Mapping[str, object]) -> None:
        """Take an event; most are about something else."""
        count, start_ns, end_ns = (record.get(name) for name in ("count", "start_ns", "end_ns"))
        if record.get("kind") != KIND:
            return
        if isinstance(count, int) and isinstance(start_ns, int) and isinstance(end_ns, int):
            self._start_ns = min(self._start_ns, start_ns) if self._count else start_ns
            self._end_ns = max(self._end_ns, end_ns)
            self._count += count

    def to_json(self) -> dict[str, Any]:
        """``taken`` of ``result.json``; empty if there were publishers, or nothing was taken."""
        if not self._count:
            return {}
        length_ns = self._end_ns - self._start_ns
        per_s = round(self._count * 1e9 / length_ns, 3) if length_ns > 0 else None
        return {"count": self._count, "length_ns": length_ns, "per_s": per_s}

    def sentence(self) -> str:
        """The same for people; empty where there is nothing to tell."""
        found = self.to_json()
        if not found:
            return ""
        rate = f", {found['per_s']:,.0f}/s" if found["per_s"] else ""
        length = f"{three_figures(found['length_ns'] / 1e9)} s"
        return f"taken   {found['count']:,} messages in {length}{rate}, from the subscription on"
