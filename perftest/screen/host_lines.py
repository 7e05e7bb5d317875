"""The load hosts of a run for the live screen: what each of them does now, and how busy it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Series

_LATE_INTERVALS: Final = 2.5
"""Number of intervals between the last one of a host and the newest one of all hosts from which on the host is late."""


class HostState(IntEnum):
    """How a host is, the worst first."""

    LOST = 0
    LATE = 1
    RUNNING = 2

    @property
    def word(self) -> str:
        """For people."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """A load host: rates of its last interval (messages per second), p99 of the end-to-end latency there, or of the
    confirms where nothing is consumed (None: neither), CPU of all cores (0 to 1), and its network traffic (megabits per
    second, both ways); None if the host has not told yet."""

    name: str
    state: HostState
    published: float
    confirmed: float
    delivered: float
    p99_ns: int | None
    cpu: float | None
    mbit: float | None


class HostBoard:
    """The intervals, events and samples of load hosts as they come. ``names`` are the plan's."""

    def __init__(self, names: Sequence[str], interval_s: float) -> None:
        self._names = tuple(names)
        self._patience_ns = round(_LATE_INTERVALS * interval_s * 1e9)
        self._last: dict[str, dict[tuple[str, str], Interval]] = {}
        self._lost: set[str] = set()
        self._samples: dict[str, Mapping[str, Any]] = {}
        self._before: dict[str, Mapping[str, Any]] = {}

    def interval(self, record: Interval) -> None:
        """Take an interval of any group of load."""
        self._last.setdefault(record.host, {})[record.worker, record.group] = record

    def event(self, record: Mapping[str, object]) -> None:
        """Take an event, which may say that a host is lost."""
        if record.get("kind") == "host_lost":
            self._lost.add(str(record.get("host")))

    def sample(self, record: Mapping[str, Any]) -> None:
        """Take a record of ``host.jsonl``."""
        name = str(record["host"])
        if name in self._samples:
            self._before[name] = self._samples[name]
        self._samples[name] = record

    def rows(self) -> list[HostRow]:
        """A row for each host, hosts with problems first, else in the order of the plan."""
        newest_ns = max((_end_ns(each) for last in self._last.values() for each in last.values()), default=0)
        rows = [self._row(name, newest_ns) for name in self._names]
        return sorted(rows, key=lambda row: row.state)

    def _row(self, name: str, newest_ns: int) -> HostRow:
        last = [each for each in self._last.get(name, {}).values() if each.length_ns]
        state = HostState.RUNNING
        if name in self._lost:
            state, last = HostState.LOST, []
        elif newest_ns - max(map(_end_ns, last), default=newest_ns) > self._patience_ns:
            state, last = HostState.LATE, []
        return HostRow(
            name=name, state=state, p99_ns=_p99_ns(last), cpu=self._cpu(name), mbit=self._mbit(name),
            **{counter: _rate(last, counter) for counter in ("published", "confirmed", "delivered")},
        )  # fmt: skip

    def _cpu(self, name: str) -> float | None:
        percent = self._samples.get(name, {}).get("cpu_percent")
        return None if percent is None else float(percent) / 100

    def _mbit(self, name: str) -> float | None:
        now, before = self._samples.get(name), self._before.get(name)
        if now is None or before is None or now["t_ns"] <= before["t_ns"]:
            return None
        octets = sum(int(now.get(way, 0)) - int(before.get(way, 0)) for way in ("rx_bytes", "tx_bytes"))
        return max(octets, 0) * 8e3 / int(now["t_ns"] - before["t_ns"])


def _end_ns(record: Interval) -> int:
    return record.start_ns + record.length_ns


def _rate(records: Sequence[Interval], counter: str) -> float:
    return sum((float(getattr(record, counter)) * 1e9 / record.length_ns for record in records), 0.0)


def _p99_ns(records: Sequence[Interval]) -> int | None:
    for series in (Series.E2E, Series.CONFIRM):
        merged = Histogram()
        for record in records:
            if (counts := record.latencies.get(series)) is not None:
                merged.add_sparse(counts)
        if merged.total:
            return merged.capped_percentiles_ns([99.0])[0]
    return None
