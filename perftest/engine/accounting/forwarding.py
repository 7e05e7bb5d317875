"""Deliveries of messages that another worker published: what travels to it, so that each account is in one place.

Theory of operation. The account of a publisher is kept by the worker that publishes. A worker whose consumers get its
messages notes nothing but what came: runs of consecutive numbers on one channel, in the order of that channel. These
rows go to the publisher's worker, where they are accounted for exactly as if they had been delivered there. In bulk a
row stands for hundreds of messages; at worst, when several workers share one queue, it is one message.

Order among workers is that in which their rows arrive: it matters only for a message that two of them got, one of
them flagged as redelivered.
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
    """Rows for other workers that were not handed on yet."""

    def __init__(self) -> None:
        self.rows = 0
        self._batches: list[Rows] = []

    def add(
        self, scopes: Integers, queues: Integers, sources: Integers, numbers: Integers, redelivered: Booleans
    ) -> None:
        """Deliveries, of each channel in the order they came; those of one channel and source lie together."""
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
        """All of them; the forwarding_buffer is empty afterwards."""
        batches, self._batches, self.rows = self._batches, [], 0
        return np.concatenate(batches) if batches else np.empty(0, _ROW)


def to_text(rows: Rows) -> str:
    """Rows as they travel."""
    return base64.b64encode(rows.tobytes()).decode()


def from_text(text: str) -> Rows:
    """The rows again."""
    return np.frombuffer(base64.b64decode(text), _ROW)


def expand(rows: Rows) -> tuple[Integers, Integers, Integers, Booleans]:
    """The deliveries: scopes, sources, numbers, whether redelivered."""
    counts = rows["count"]
    before = np.cumsum(counts) - counts
    numbers = np.repeat(rows["first"] - before, counts) + np.arange(int(counts.sum()))
    scopes, sources = (np.repeat(rows[name], counts).astype(np.int64) for name in ("scope", "source"))
    return scopes, sources, numbers, np.repeat(rows["again"], counts)
