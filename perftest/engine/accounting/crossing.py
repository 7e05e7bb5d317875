"""End-to-end latencies of messages that cross from one host to another, where two clocks take part.

Theory of operation. A message is stamped by the clock of its publisher's host, and arrives by the clock of its
consumer's host. Both times are kept raw until the interval ends. Then the coordinator sends its models of all clocks
(:mod:`perftest.metrics.clock_model`). Both times are corrected at once for all messages, and the differences go to the
recorder, which counts each of them once.

The two corrections have bounds, and their sum is the bound of the latency. A latency below its bound is counted
(``below_bound``): it is somewhere between 0 and the bound. A negative one is counted (``below_zero``) and recorded as
0: to leave it out would make the others look slower. A latency below minus its bound is impossible (``beyond_bound``):
a clock did something outside its model.

Memory is bounded: with more than :data:`ROWS_MAX` messages in an interval, the clocks go by their newest models at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from perftest.metrics.clock_model import ClockModel
from perftest.metrics.interval import Series
from perftest.metrics.recorder import Recorder

ROWS_MAX: Final = 1 << 20
"""Largest number of messages that are kept raw, at 32 octets each."""

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
HostsOf = Callable[[Integers], Integers]
"""Map from the numbers of publishers to the numbers of their hosts."""

_ROW: Final = np.dtype([("host", "<i8"), ("arrived", "<i8"), ("sent", "<i8"), ("intended", "<i8")])
_UNSCHEDULED: Final = -1


class CrossingLatencies:
    """The messages from other hosts since the last cut.

    ``host`` is the number of this worker's own host.
    """

    def __init__(self, recorder: Recorder, hosts_of: HostsOf, host: int) -> None:
        self._recorder = recorder
        self._hosts_of = hosts_of
        self._host = host
        self._clocks: Sequence[ClockModel | None] = ()
        self._batches: list[npt.NDArray[np.void]] = []
        self._kept = 0
        self._bound_ns = 0
        self._counts = dict.fromkeys(("below_bound", "below_zero", "beyond_bound"), 0)

    def learn(self, clocks: Sequence[ClockModel | None]) -> None:
        """The clock of each host, by the number of the host; None for the clock of reference itself."""
        self._clocks = clocks

    def set_aside(
        self, publishers: Integers, arrived: Integers, sent: Integers, intended: Integers | None, ours: Booleans | None
    ) -> Booleans | None:
        """Keep the messages that came from other hosts and are ``ours`` (None: all); returns which are ours and came
        from this host (None: all). ``intended`` is None without a schedule."""
        hosts = self._hosts_of(publishers)
        away: Booleans = hosts != self._host
        if ours is not None:
            away &= ours
        if not away.any():
            return ours
        rows = np.empty(int(np.count_nonzero(away)), _ROW)
        rows["host"], rows["arrived"], rows["sent"] = hosts[away], arrived[away], sent[away]
        rows["intended"] = _UNSCHEDULED if intended is None else intended[away]
        self._batches.append(rows)
        self._kept += len(rows)
        if self._kept > ROWS_MAX:
            self._correct()
        here: Booleans = ~away if ours is None else ours & ~away
        return here

    def cut(self) -> dict[str, int]:
        """Record the kept messages. Returns the counts of uncertain latencies, by the names of
        :class:`~perftest.metrics.interval.Interval`; the counts begin anew."""
        self._correct()
        found = {"clock_bound_ns": self._bound_ns, **self._counts}
        self._bound_ns = 0
        self._counts = dict.fromkeys(self._counts, 0)
        return found

    def _correct(self) -> None:
        if not self._batches:
            return
        assert self._clocks, "the coordinator tells the clocks before the first message"
        rows, self._batches, self._kept = np.concatenate(self._batches), [], 0
        arrived, arrived_bounds = self._at_reference(self._host, rows["arrived"])
        for host in np.unique(rows["host"]).tolist():
            here = rows["host"] == host
            sent, sent_bounds = self._at_reference(host, rows["sent"][here])
            self._record(arrived[here] - sent, arrived_bounds[here] + sent_bounds)
            scheduled = here & (rows["intended"] != _UNSCHEDULED)
            if scheduled.any():
                intended, _ = self._at_reference(host, rows["intended"][scheduled])
                self._recorder[Series.E2E_SCHED].many(np.maximum(arrived[scheduled] - intended, 0))

    def _record(self, latencies: Integers, bounds: Integers) -> None:
        self._counts["below_bound"] += int(np.count_nonzero(latencies < bounds))
        self._counts["below_zero"] += int(np.count_nonzero(latencies < 0))
        self._counts["beyond_bound"] += int(np.count_nonzero(latencies < -bounds))
        self._bound_ns = max(self._bound_ns, int(bounds.max()))
        self._recorder[Series.E2E].many(np.maximum(latencies, 0))

    def _at_reference(self, host: int, times: Integers) -> tuple[Integers, Integers]:
        """Times of a host as the clock of reference tells them, and their bounds."""
        clock = self._clocks[host]
        if clock is None:
            return times, np.zeros(len(times), np.int64)
        offsets, bounds = clock.at(times)
        return times + offsets, bounds
