"""Where within the broker a step's time went: from what nodes answer to lines of ``latency.hlog``.

A node that keeps a latency anatomy answers with histograms that are cumulative since its start, by chain ("delivery",
"confirm") and stage ("fsync"). The lengths of its syncs, by the role of the file, count as a chain of their own:
"fsync" with the stages "wal" and "segment". What happened between two answers is their difference, counter by counter:
exact, as merging is. Nothing here knows what the stages mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perftest.metrics.histogram import BUCKET_HIGHEST_NS, Counts, DamagedHistogramError, Histogram, SparseCounts, decode
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
        except (KeyError, TypeError, ValueError, AttributeError, DamagedHistogramError):
            return None


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
