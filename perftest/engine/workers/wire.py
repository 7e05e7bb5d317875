"""The messages between coordinator and worker: one JSON object a line, in both directions.

To the worker, the first line is ``{"plan": ..., "offset_ns": ..., "run": ..., "worker": name, "index": ..., "workers":
...}``; on another host also its name (``host``) and a lease (``lease_s``). Requests follow: ``{"id": 1, "op": "cut",
...}``, and without an answer ``{"op": "forwarded", ...}``.

``clock`` is answered at once, with the host's monotonic clock when the request came and when the answer leaves.
``timekeeper`` has another process answer the same question over UDP (:mod:`perftest.engine.workers.timekeeper`).
``at_ns`` is a moment of the worker's own run clock, and so are all times that a worker tells.

The worker answers ``{"id": 1, "result": ...}`` or ``{"id": 1, "error": {what, where, fix}}``. Its other messages are
``{"event": ...}``, ``{"failed": {what, where, fix}}`` and ``{"forwarded": {index: rows}, "bindings": ...}``
(:mod:`perftest.engine.accounting.forwarding`). The coordinator passes forwarded rows on to the other workers before any
message that comes later. Histograms travel as their non-empty buckets, base64 of little-endian integers.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from perftest.metrics.histogram import SparseCounts
from perftest.metrics.interval import Series

Message = dict[str, Any]


def to_line(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def counts_to_json(counts: dict[Series, SparseCounts]) -> Message:
    """The bucket counts of an interval, as they travel."""
    return {
        series.value: {
            "i": base64.b64encode(one.indexes.astype("<i4").tobytes()).decode(),
            "c": base64.b64encode(one.counts.astype("<i8").tobytes()).decode(),
            "max": one.max_ns,
        }
        for series, one in counts.items()
    }


def counts_from_json(values: Message) -> dict[Series, SparseCounts]:
    """The bucket counts of :func:`counts_to_json`."""
    return {
        Series(name): SparseCounts(
            np.frombuffer(base64.b64decode(one["i"]), "<i4"),
            np.frombuffer(base64.b64decode(one["c"]), "<i8"),
            one["max"],
        )
        for name, one in values.items()
    }
