"""The figures of the broker's nodes for the live screen, from two samples of each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

FSYNC_WARN_MS: Final = 20.0
LAG_WARN: Final = 1000
LAG_WARN_S: Final = 0.5
"""Number of entries by which a member may be behind before it is late, and the time in which that number is committed.
Nodes are asked one after the other: some milliseconds' worth of entries mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node, between its last two samples; None if it does not tell, or has only one sample.

    ``lag``: entries of the queue that the leader has committed and this member has not on its drive. ``sync_ms``: mean
    length of a sync of its WAL. ``batch``: entries in a write. ``cpu``: cores. ``messages``, ``connections`` and
    ``disk_free_bytes`` come from a node that was asked over HTTP.
    """

    name: str
    role: str
    cpu: float | None
    sync_ms: float | None
    batch: float | None
    commit: int | None
    lag: int | None
    late: bool
    term: int | None
    segments: int | None
    rss_bytes: int
    messages: int | None = None
    connections: int | None = None
    disk_free_bytes: int | None = None


class NodeBoard:
    """The samples of ``broker.jsonl`` as they come."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, Any]] = {}
        self._before: dict[str, Mapping[str, Any]] = {}

    def sample(self, record: Mapping[str, Any]) -> None:
        """Take a record of a node; one of a process that was started anew has none before it."""
        name = str(record["node"])
        last = self._last.pop(name, None)
        self._before.pop(name, None)
        if last is not None and last.get("pid") == record.get("pid"):
            self._before[name] = last
        self._last[name] = record

    def rows(self) -> list[NodeRow]:
        """A row for each node, by name."""
        queue = self._busiest_queue()
        commit = _commit(self._last, queue)
        passed_s = max((self._passed_ns(name) for name in self._before), default=0) / 1e9
        pace = (commit - _commit(self._before, queue)) / passed_s if passed_s > 0 else 0.0
        return [self._row(name, queue, commit, pace) for name in sorted(self._last)]

    def _row(self, name: str, queue: str, commit: int, pace: float) -> NodeRow:
        record = self._last[name]
        place = _place(record, queue)
        lag = max(commit - int(place["synced_index"]), 0) if place else None
        syncs = self._grown(name, "wal_syncs")
        sync_ns, writes = self._grown(name, "sync_ns_total"), self._grown(name, "wal_writes")
        entries, segments = self._grown(name, "wal_entries"), (record.get("metrics") or {}).get("segment_files")
        return NodeRow(
            name=name,
            role=str((place or record).get("role", "")),
            cpu=self._cpu(name),
            sync_ms=sync_ns / syncs / 1e6 if syncs and sync_ns is not None else None,
            batch=entries / writes if writes and entries is not None else None,
            commit=int(place["commit_index"]) if place else None,
            lag=lag,
            late=lag is not None and lag > max(LAG_WARN, LAG_WARN_S * pace),
            term=int(place["term"]) if place else None,
            segments=int(segments) if segments is not None else None,
            rss_bytes=int(record.get("rss_bytes") or 0),
            messages=_told(record, "messages"),
            connections=_told(record, "connections"),
            disk_free_bytes=_told(record, "disk_free_bytes"),
        )

    def _busiest_queue(self) -> str:
        """The queue with the highest commit: that is the one which is measured."""
        every = (place for record in self._last.values() for place in record.get("queues") or ())
        places = [place for place in every if "commit_index" in place]
        return str(max(places, key=lambda place: place["commit_index"])["name"]) if places else ""

    def _grown(self, name: str, counter: str) -> float | None:
        metrics = self._last[name].get("metrics") or {}
        before = (self._before[name].get("metrics") or {}) if name in self._before else {}
        return float(metrics[counter] - before[counter]) if counter in metrics and counter in before else None

    def _cpu(self, name: str) -> float | None:
        record, before = self._last[name], self._before.get(name)
        if before is None or "cpu_ns" not in record or "cpu_ns" not in before:
            return None
        passed = self._passed_ns(name)
        return float(record["cpu_ns"] - before["cpu_ns"]) / passed if passed > 0 else None

    def _passed_ns(self, name: str) -> int:
        return int(self._last[name]["t_ns"] - self._before[name]["t_ns"])


def _commit(records: Mapping[str, Mapping[str, Any]], queue: str) -> int:
    """The highest commit index of a queue that any node knows of."""
    places = (_place(record, queue) for record in records.values())
    return max((int(place["commit_index"]) for place in places if place), default=0)


def _place(record: Mapping[str, Any], queue: str) -> Mapping[str, Any] | None:
    """The standing of a node with a queue."""
    named = (place for place in record.get("queues") or () if place["name"] == queue)
    return next((place for place in named if "commit_index" in place), None)


def _told(record: Mapping[str, Any], figure: str) -> int | None:
    value = (record.get("metrics") or {}).get(figure)
    return None if value is None else int(value)
