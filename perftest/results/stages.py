"""Where within the broker a step's time went: from what nodes answer to lines of ``latency.hlog``.

A node that keeps a latency anatomy answers with histograms that are cumulative since its start, by chain ("delivery",
"confirm") and stage ("fsync"). The lengths of its syncs, by the role of the file, count as a chain of their own:
"fsync" with the stages "wal" and "segment". The counts between two answers are their difference, counter by counter:
exact, as merging is. Nothing here knows what the stages mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hdr_buckets import BUCKET_HIGHEST_NS, Counts, PayloadError
from perftest.metrics.histogram import Histogram, SparseCounts, decode
from perftest.metrics.interval import LOCAL_HOST, Phase
from perftest.results.hlog import HlogLine
from perftest.results.schema import STAGE_PREFIX

_SYNCS = "fsync."


@dataclass(frozen=True, slots=True)
class StageCounts:
    """The answer of one node: its boot id, and its counters by series."""

    node: str
    incarnation: int
    counts: Mapping[str, Counts]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> StageCounts | None:
        """From the answer of a node; None from one that keeps no anatomy, or whose answer cannot be read."""
        try:
            counts = {
                f"{STAGE_PREFIX}{chain}.{stage}": decode(payload)
                for chain, stages in answer["chains"].items()
                for stage, payload in stages.items()
            }
            syncs = {name: text for name, text in answer.get("gauges", {}).items() if name.startswith(_SYNCS)}
            counts |= {f"{STAGE_PREFIX}{name}": decode(payload) for name, payload in syncs.items()}
            return cls(str(answer["name"]), int(answer["incarnation"]), counts)
        except (KeyError, TypeError, ValueError, AttributeError, PayloadError):
            return None


class StageSteps:
    """The stages of each step, from the events of a run and the answers of its nodes at the boundaries of steps.

    ``begin_at_once`` are the numbers of the steps without a warm-up.
    """

    def __init__(self, begin_at_once: Collection[int]) -> None:
        self._begin_at_once = begin_at_once
        self._began_ns = 0
        self._before: Mapping[str, StageCounts] = {}

    def boundary(self, record: Mapping[str, object]) -> Boundary | None:
        """The boundary that an event of a run is; None for any other event."""
        step, at_ns, kind = record.get("step"), record.get("t_ns"), str(record.get("kind"))
        if not isinstance(step, int) or not isinstance(at_ns, int):
            return None
        if kind in ("steady", "step_ended") or (kind == "step_started" and step in self._begin_at_once):
            return Boundary(kind, step, at_ns)
        return None

    def take(self, boundary: Boundary, counts: Mapping[str, StageCounts]) -> list[HlogLine]:
        """Take the answers of the nodes at a boundary, by name; the lines of the step that ends there, if one does."""
        ended = boundary.kind == "step_ended"
        before, began_ns = self._before, self._began_ns
        self._before, self._began_ns = ({}, 0) if ended else (counts, boundary.at_ns)
        if not (ended and began_ns):
            return []
        times = {"step": boundary.step, "start_ns": began_ns, "end_ns": boundary.at_ns}
        return [line for name, after in counts.items() for line in lines(before.get(name), after, **times)]


class Boundary(NamedTuple):
    """The begin or end of the steady time of a step: the kind of the event, the step, and the Unix time in ns."""

    kind: str
    step: int
    at_ns: int


def between(before: StageCounts | None, after: StageCounts) -> Iterator[tuple[str, Counts]]:
    """Each series that grew, with its counters. The counters of a node that was started anew count from its start."""
    base = before.counts if before is not None and before.incarnation == after.incarnation else {}
    for series, counts in after.counts.items():
        grown = counts.copy()
        if (old := base.get(series)) is not None:
            grown[: len(old)] -= old
        if grown.any():
            yield series, grown


def lines(
    before: StageCounts | None, after: StageCounts, *, step: int, start_ns: int, end_ns: int
) -> Iterator[HlogLine]:
    """The lines of one node for the steady time of a step, from ``start_ns`` to ``end_ns`` (Unix time)."""
    for series, counts in between(before, after):
        used = np.flatnonzero(counts)
        max_ns = int(BUCKET_HIGHEST_NS[used[-1]])
        yield HlogLine(
            series=series,
            step=step,
            phase=Phase.STEADY,
            host=LOCAL_HOST,
            worker=after.node,
            start_ns=start_ns,
            length_ns=end_ns - start_ns,
            max_ns=max_ns,
            payload=Histogram.of(SparseCounts(used.astype(np.int32), counts[used], max_ns)).encode(),
        )
