"""The figures of a run in progress so far, from the new lines of its files.

Workers end their intervals together, and each has lines of its own. Lines of one step and phase whose intervals begin
within half an interval of each other are one *point*: counts are added up, histograms are merged exactly. A point is
told once an interval has passed after its end, because until then lines of other workers may come; the last points are
told when the run has ended. Only the measured load is shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hdr_buckets import PayloadError
from perftest.metrics.histogram import Histogram
from perftest.results import hlog, schema
from perftest.results.errors import LineError
from perftest.results.folder import json_object
from perftest.results.intervals import cells_of, parser

POINTS_MAX: Final = 600
"""Points that are kept and drawn: ten minutes of intervals of a second."""
EVENTS_MAX: Final = 20
TEXT_MAX: Final = 200
"""Characters of an event."""
CHUNK_BYTES: Final = 512 * 1024
"""Octets read of a file in one look. A long run is caught up with over several looks, and memory stays bounded."""
SERIES: Final = ("e2e", "confirm")
SHOWN: Final = {"p50_ms": 50.0, "p99_ms": 99.0}
COUNTS: Final = ("published", "confirmed", "delivered")

Point = dict[str, Any]


class GrowingFile:
    """The lines that a file has got since the last look. A line that has no end yet waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.caught_up = True
        """Whether the last look saw the end of the file."""

    def new_lines(self) -> list[str]:
        """None if the file is not there yet. Raises OSError."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            octets = file.read(CHUNK_BYTES)
        self.caught_up = len(octets) < CHUNK_BYTES
        whole = octets[: octets.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()


@dataclass(slots=True, eq=False)
class _Slot:
    """The lines of one interval so far. Times in Unix nanoseconds."""

    step: int
    phase: str
    start_ns: int
    end_ns: int
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    latencies: dict[str, Histogram] = field(default_factory=dict)


class LiveRun:
    """The points of a run so far; :meth:`look` reads new lines."""

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        plan = manifest["plan"]
        self.path = path
        self.points: deque[Point] = deque(maxlen=POINTS_MAX)
        self.events: deque[Point] = deque(maxlen=EVENTS_MAX)
        self.damaged = 0
        self._told = 0
        self._started_ns = int(manifest["started_ns"])
        self._interval_ns = _interval_ns(plan)
        self._labels = _labels(plan)
        self._background = {str(load.get("name", "")) for load in _objects(plan.get("background"))}
        self._open: list[_Slot] = []
        self._parse: Callable[[str], dict[str, Any] | None] | None = None
        self._base_ns = 0
        self._newest_ns = 0
        self._histograms = GrowingFile(path / schema.LATENCY_HLOG)
        self._intervals = GrowingFile(path / schema.INTERVALS_CSV)
        self._waiting: deque[dict[str, Any]] = deque()
        """Records of intervals whose histograms have not been read yet."""
        self._events = GrowingFile(path / schema.EVENTS)

    @property
    def told(self) -> int:
        """Number of points told since the start, including points that are no longer kept."""
        return self._told

    def since(self, told: int) -> list[Point]:
        """The points after the first ``told`` ones, as far as they are kept."""
        new = self._told - told
        return list(self.points)[-new:] if new > 0 else []

    def look(self, *, ended: bool = False) -> None:
        """Take the new lines; of a run that has ended, tell the last points, too. Raises OSError."""
        self._take(self._histograms, self._histogram)
        # Counts must not run ahead of the histograms of the same interval.
        if len(self._waiting) < POINTS_MAX:
            self._take(self._intervals, self._interval)
        whole = self._histograms.caught_up
        while self._waiting and (whole or self._waiting[0]["start_ns"] <= self._newest_ns):
            self._count(self._waiting.popleft())
        self._take(self._events, self._event)
        self._tell_ended(everything=ended and whole and not self._waiting)

    def _take(self, file: GrowingFile, take: Callable[[str], None]) -> None:
        for line in file.new_lines():
            try:
                take(line)
            except (LineError, ValueError, PayloadError):
                self.damaged += 1

    def _histogram(self, line: str) -> None:
        stated_ns = hlog.base_ns_of(line)
        self._base_ns = self._base_ns if stated_ns is None else stated_ns
        found = hlog.parse_line(line, self._base_ns)
        if found is None or found.series not in SERIES or found.group in self._background:
            return
        self._newest_ns = max(self._newest_ns, found.start_ns)
        slot = self._slot(found.step, str(found.phase), found.start_ns, found.length_ns)
        slot.latencies.setdefault(found.series, Histogram()).add_payload(found.payload, found.max_ns)

    def _interval(self, line: str) -> None:
        if self._parse is None:
            self._parse = parser(cells_of(line))
            return
        record = self._parse(line)
        if record is not None and record["group"] not in self._background:
            self._waiting.append(record)

    def _count(self, record: Mapping[str, Any]) -> None:
        slot = self._slot(record["step"], str(record["phase"]), record["start_ns"], record["length_ns"])
        for name in COUNTS:
            slot.counts[name] += record[name]

    def _event(self, line: str) -> None:
        record = json_object(line)
        t_ns = record.get("t_ns")
        t_s = (t_ns - self._started_ns) / 1e9 if isinstance(t_ns, int) else None
        self.events.append({"t_s": t_s, "kind": str(record.get("kind", "")), "text": _words(record)})

    def _slot(self, step: int, phase: str, start_ns: int, length_ns: int) -> _Slot:
        for slot in self._open:
            if (slot.step, slot.phase) == (step, phase) and abs(start_ns - slot.start_ns) <= self._interval_ns / 2:
                break
        else:
            slot = _Slot(step, phase, start_ns, start_ns + length_ns)
            self._open.append(slot)
        slot.end_ns = max(slot.end_ns, start_ns + length_ns)
        return slot

    def _tell_ended(self, *, everything: bool) -> None:
        newest_ns = max((slot.end_ns for slot in self._open), default=0)
        if not self._histograms.caught_up or self._waiting:
            newest_ns = min(newest_ns, self._newest_ns)
        ended = [slot for slot in self._open if everything or slot.end_ns <= newest_ns - self._interval_ns]
        self._open = [slot for slot in self._open if slot not in ended]
        for slot in sorted(ended, key=lambda each: each.end_ns):
            self.points.append(self._point(slot))
            self._told += 1

    def _point(self, slot: _Slot) -> Point:
        length_s = max(slot.end_ns - slot.start_ns, 1) / 1e9
        point: Point = {"t_s": (slot.end_ns - self._started_ns) / 1e9, "step": slot.step, "phase": slot.phase}
        point |= {"label": self._labels.get(slot.step, f"step {slot.step}")}
        point |= {f"{name}_per_s": count / length_s for name, count in slot.counts.items()}
        for series in SERIES:
            point |= {f"{series}_{name}": value for name, value in _figures(slot.latencies.get(series)).items()}
        return point


def _figures(histogram: Histogram | None) -> dict[str, float | None]:
    if histogram is None or not histogram.total:
        return dict.fromkeys(SHOWN)
    values_ns = histogram.capped_percentiles_ns(tuple(SHOWN.values()))
    return {name: value_ns / 1e6 for name, value_ns in zip(SHOWN, values_ns, strict=True)}


def _interval_ns(plan: Mapping[str, Any]) -> int:
    value = plan.get("interval_s")
    return int(value * 1e9) if isinstance(value, int | float) and 0 < value < 86_400 else 1_000_000_000


def _labels(plan: Mapping[str, Any]) -> dict[int, str]:
    return {
        step["number"]: str(step.get("label", "")) or f"step {step['number']}"
        for step in _objects(plan.get("steps"))
        if isinstance(step.get("number"), int)
    }


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _words(record: Mapping[str, Any]) -> str:
    """An event in words: its text, or else its other short parts."""
    text = record.get("text")
    if isinstance(text, str):
        return text[:TEXT_MAX]
    parts = {name: value for name, value in record.items() if name not in ("t_ns", "kind")}
    return " ".join(f"{name}={value}" for name, value in parts.items() if isinstance(value, str | int | float))[
        :TEXT_MAX
    ]
