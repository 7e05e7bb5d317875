"""The messages between coordinator and worker: one JSON object a line, in both directions.

The worker's first line is its *hello* (:func:`hello`): its versions, its process id, and how far it has got. Earlier
lines come from a login, a shell or a library, and are ignored. All messages from then on have numbers
(:mod:`perftest.engine.workers.sequence`). When a new connection replaces a lost one, the worker says hello again, and
each end repeats the messages that the other end may lack. ``{"op": "resend"}`` asks for the same, without a number;
``{"op": "end"}`` ends the worker.

To the worker, the first message is ``{"plan": ..., "offset_ns": ..., "run": ..., "worker": name, "index": ...,
"workers": ...}``; on another host also its name (``host``) and a lease (``lease_s``). Requests follow: ``{"id": 1,
"op": "cut", ...}``, and without an answer ``{"op": "forwarded", ...}``.

``clock`` is answered at once, with the host's monotonic clock when the request came and when the answer leaves.
``timekeeper`` starts a process that answers the same question over UDP (:mod:`perftest.engine.workers.timekeeper`).
``at_ns`` is a moment of the worker's own run clock, and so are all times that a worker tells.

The worker answers ``{"id": 1, "result": ...}`` or ``{"id": 1, "error": {what, where, fix}}``. Its other messages are
``{"event": ...}``, ``{"failed": {what, where, fix}}`` and ``{"forwarded": {index: rows}, "bindings": ...}``
(:mod:`perftest.engine.accounting.forwarding`). The coordinator passes forwarded rows on to the other workers before any
message that comes later. Histograms travel as their non-empty buckets, base64 of little-endian integers; those of
other hosts are encoded there, too, so that the work of the coordinator does not grow with the hosts.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import socket
from typing import Any, Final

import numpy as np

import perftest
from perftest.metrics.histogram import Histogram, SparseCounts
from perftest.metrics.interval import Series

Message = dict[str, Any]

HELLO: Final = "perftest-worker"
PROTOCOL: Final = 2
"""Version of the protocol, raised when a message changes its meaning. Version 1 had neither hello nor numbers."""


def to_line(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def hello(seen: int = 0) -> Message:
    """The first message of a worker on each connection; ``seen`` is the last number that it has taken."""
    return {
        "hello": HELLO,
        "protocol": PROTOCOL,
        "version": perftest.__version__,
        "python": platform.python_version(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "seen": seen,
    }


def from_line(line: bytes) -> Message | None:
    """The message of a line; None for a line that is no message."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def counts_to_json(counts: dict[Series, SparseCounts], *, encoded: bool = False) -> Message:
    """The bucket counts of an interval, as they travel; ``encoded`` as a payload of a histogram, too."""
    return {
        series.value: {
            "i": base64.b64encode(one.indexes.astype("<i4").tobytes()).decode(),
            "c": base64.b64encode(one.counts.astype("<i8").tobytes()).decode(),
            "max": one.max_ns,
            **({"payload": Histogram.of(one).encode()} if encoded else {}),
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
            one.get("payload", ""),
        )
        for name, one in values.items()
    }
