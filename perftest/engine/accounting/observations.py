"""Deliveries of all consumers, kept raw until there are enough to be worth a few numpy calls.

Theory of operation. A delivery leaves four values behind: its stamp, its time of arrival, its redelivered flag, and its
channel (scope). They are copied into preallocated columns. When the columns are full, or an interval ends, all rows are
accounted for at once: the ledger takes the numbers, the recorder takes the differences. So a run of one delivery costs
a few slices, and a run of hundreds hardly more.

The rest of each body is compared with the filler on the spot, because the receive buffer does not live on. Bodies whose
stamp comes in a header are files or documents of the user; they are not compared.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from perftest.amqp.events import Delivery, DeliveryRun
from perftest.engine.accounting import stamp
from perftest.engine.accounting.crossing import CrossingLatencies
from perftest.engine.accounting.ledger import Ledger
from perftest.metrics.interval import Series
from perftest.metrics.recorder import Recorder

ROWS: Final = 4096
"""Largest number of deliveries that are kept raw."""

_STAMP: Final = np.dtype([("source", ">u4"), ("sequence", ">u8"), ("intended", ">u8"), ("sent", ">u8")])

Integers = npt.NDArray[np.int64]


class Observations:
    """The deliveries of all consumers of a worker that are not accounted for yet.

    ``sizes`` are the body sizes of this run; the filler is made once for the largest. With a schedule (``scheduled``)
    the latency from the intended time is recorded as well. ``crossing`` takes the times of messages from other hosts,
    where there are other hosts.
    """

    scheduled = False

    def __init__(
        self, ledger: Ledger, recorder: Recorder, *, sizes: set[int], crossing: CrossingLatencies | None = None
    ) -> None:
        self._ledger = ledger
        self._crossing = crossing
        self._recorder = recorder
        self._sizes = frozenset(sizes)
        self._filler = stamp.filler(max(*sizes, stamp.SIZE) - stamp.SIZE)
        self._filler_array = np.frombuffer(self._filler, np.uint8)
        self._used = 0
        self.arrived_ns = 0
        """When the last message came that is accounted for."""
        self._stamps = np.empty((ROWS, stamp.SIZE), np.uint8)
        self._octets = self._stamps.reshape(-1).data
        self._arrived = np.empty(ROWS, np.int64)
        self._scope = np.empty(ROWS, np.int64)
        self._redelivered = np.empty(ROWS, np.bool_)
        self._damaged = np.zeros(ROWS, np.bool_)

    def add_one(self, scope: int, event: Delivery, arrived_ns: int) -> None:
        """A single delivery."""
        body, mark = event.body, event.stamp
        if mark is None and len(body) < stamp.SIZE:
            self.arrived_ns = arrived_ns
            self._ledger.illegible(1)
            return
        if self._used == ROWS:
            self.account()
        at = self._used
        self._octets[at * stamp.SIZE : (at + 1) * stamp.SIZE] = mark or body[: stamp.SIZE]
        self._arrived[at] = arrived_ns
        self._scope[at] = scope
        self._redelivered[at] = event.redelivered
        self._damaged[at] = mark is None and self._is_damaged(body)
        self._used = at + 1

    def add_run(self, scope: int, event: DeliveryRun, arrived_ns: int) -> None:
        """A run of deliveries of one size."""
        marks = event.bodies if event.stamps is None else event.stamps
        if marks.shape[1] < stamp.SIZE:
            self.arrived_ns = arrived_ns
            self._ledger.illegible(len(marks))
            return
        damaged = self._find_damage(event.bodies) if event.stamps is None else False
        start = 0
        while start < len(marks):
            if self._used == ROWS:
                self.account()
            at, count = self._used, min(len(marks) - start, ROWS - self._used)
            end, stop = at + count, start + count
            self._stamps[at:end] = marks[start:stop, : stamp.SIZE]
            self._arrived[at:end] = arrived_ns
            self._scope[at:end] = scope
            self._redelivered[at:end] = event.redelivered[start:stop]
            self._damaged[at:end] = damaged if isinstance(damaged, bool) else damaged[start:stop]
            self._used, start = end, stop

    def account(self) -> None:
        """Give all rows to the ledger and the recorder."""
        count, self._used = self._used, 0
        if not count:
            return
        stamps = self._stamps[:count].view(_STAMP).ravel()
        sources = stamps["source"].astype(np.int64)
        numbers = stamps["sequence"].astype(np.int64)
        ours = self._tell_ledger(sources, numbers, count)
        self.arrived_ns = int(self._arrived[count - 1])
        arrived, sent = self._arrived[:count], stamps["sent"].astype(np.int64)
        intended = stamps["intended"].astype(np.int64) if self.scheduled else None
        if self._crossing is not None:
            ours = self._crossing.set_aside(sources & 0xFFFF, arrived, sent, intended, ours)
        self._record(Series.E2E, arrived - sent, ours)
        if intended is not None:
            self._record(Series.E2E_SCHED, arrived - intended, ours)

    def _record(self, series: Series, values: Integers, ours: npt.NDArray[np.bool_] | None) -> None:
        self._recorder[series].many(values if ours is None else values[ours])

    def _tell_ledger(self, sources: Integers, numbers: Integers, count: int) -> npt.NDArray[np.bool_] | None:
        """Tell the ledger; returns which rows are messages of this run (None: all)."""
        scopes, again, damaged = self._scope[:count], self._redelivered[:count], self._damaged[:count]
        if damaged.any():
            for source in np.unique(sources[damaged]).tolist():
                self._ledger.damaged(source, numbers[damaged & (sources == source)])
        return self._ledger.delivered_to(scopes, sources, numbers, again)

    def _is_damaged(self, body: bytes) -> bool:
        size = len(body)
        return size not in self._sizes or body[stamp.SIZE :] != self._filler[: size - stamp.SIZE]

    def _find_damage(self, bodies: npt.NDArray[np.uint8]) -> bool | npt.NDArray[np.bool_]:
        """Whether bodies are damaged: one answer for all, or an answer for each."""
        size = bodies.shape[1]
        if size not in self._sizes:
            return True
        same = bodies[:, stamp.SIZE :] == self._filler_array[: size - stamp.SIZE]
        return False if same.all() else ~same.all(axis=1)
