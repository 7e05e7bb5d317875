"""Deliveries of another worker's messages on their way to this worker, so that each account is in one place.

Theory of operation. The worker of a publisher keeps the publisher's account. A worker whose consumers get messages of
another worker's publisher notes rows: runs of consecutive numbers on one channel, in the order of that channel. The
rows go to the publisher's worker, which accounts for them as if they had been delivered there. In bulk a row stands for
hundreds of messages; at worst, when several workers share one queue, it stands for one message.

Rows of different workers are accounted for in the order in which they arrive. This order matters only for a message
that two workers got, once as a redelivery.
"""

from __future__ import annotations

import base64
from typing import Final

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_ROW: Final = np.dtype(
    [("scope", "<i4"), ("source", "<u4"), ("queue", "<i4"), ("first", "<i8"), ("count", "<i4"), ("again", "?")]
)
Rows = npt.NDArray[np.void]


class ForwardingBuffer:
    """Rows for other workers that were not forwarded yet."""

    def __init__(self) -> None:
        self.rows = 0
        self._batches: list[Rows] = []

    def add(
        self, scopes: Integers, queues: Integers, sources: Integers, numbers: Integers, redelivered: Booleans
    ) -> None:
        """Add deliveries: the deliveries of one channel and source lie together, in their order."""
        steps = (np.diff(numbers) == 1) & (np.diff(sources) == 0) & (np.diff(scopes) == 0)
        starts = np.concatenate([[0], np.flatnonzero(~steps | (redelivered[1:] != redelivered[:-1])) + 1])
        rows = np.empty(len(starts), _ROW)
        columns = (scopes, sources, queues, numbers, redelivered)
        for name, column in zip(("scope", "source", "queue", "first", "again"), columns, strict=True):
            rows[name] = column[starts]
        rows["count"] = np.diff(np.concatenate([starts, [len(numbers)]]))
        self._batches.append(rows)
        self.rows += len(rows)

    def take(self) -> Rows:
        """All rows; the buffer is empty afterwards."""
        batches, self._batches, self.rows = self._batches, [], 0
        return np.concatenate(batches) if batches else np.empty(0, _ROW)


def to_text(rows: Rows) -> str:
    """Rows as they travel."""
    return base64.b64encode(rows.tobytes()).decode()


def from_text(text: str) -> Rows:
    """The rows again."""
    return np.frombuffer(base64.b64decode(text), _ROW)


def expand(rows: Rows) -> tuple[Integers, Integers, Integers, Booleans]:
    """The deliveries of the rows: scopes, sources, numbers, whether redelivered."""
    counts = rows["count"]
    before = np.cumsum(counts) - counts
    numbers = np.repeat(rows["first"] - before, counts) + np.arange(int(counts.sum()))
    scopes, sources = (np.repeat(rows[name], counts).astype(np.int64) for name in ("scope", "source"))
    return scopes, sources, numbers, np.repeat(rows["again"], counts)
