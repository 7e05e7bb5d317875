"""Raw nanoseconds in, histograms out: recording costs a copy, bucketing happens once per buffer.

The values of an interval leave the worker as :class:`~perftest.metrics.histogram.SparseCounts`. Percentiles and
encoding take milliseconds; the coordinator's process does that work, where it delays no message.

One :class:`SeriesRecorder` per :class:`~perftest.metrics.interval.Series`, one :class:`Recorder` per worker. The
buffers are allocated once; a full one is bucketed on the spot, so memory does not depend on the rate.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from perftest.metrics.histogram import Histogram, SparseCounts
from perftest.metrics.interval import Series

BUFFER_VALUES: Final = 4096
"""Values per buffer: large enough to make bucketing cheap (0.03 µs a value), small enough that bucketing one does not
hold up the messages behind it (0.1 ms)."""

Values = npt.NDArray[np.int64]


class SeriesRecorder:
    """The latencies of one series since the last cut."""

    def __init__(self) -> None:
        self.negative = 0
        self._buffer = np.empty(BUFFER_VALUES, np.int64)
        self._used = 0
        self._histogram = Histogram()

    def one(self, value: int) -> None:
        """Record a single value."""
        if self._used == BUFFER_VALUES:
            self._bucket()
        self._buffer[self._used] = value
        self._used += 1

    def repeated(self, value: int, count: int) -> None:
        """Record ``count`` times the same value."""
        while count > 0:
            taken = min(count, BUFFER_VALUES - self._used)
            self._buffer[self._used : self._used + taken] = value
            self._advance(taken)
            count -= taken

    def many(self, values: Values) -> None:
        """Record each of ``values``; they are copied."""
        at = 0
        while at < len(values):
            taken = min(len(values) - at, BUFFER_VALUES - self._used)
            self._buffer[self._used : self._used + taken] = values[at : at + taken]
            self._advance(taken)
            at += taken

    def cut(self) -> SparseCounts | None:
        """The counts since the last cut, or None if nothing was recorded; then begin anew."""
        self._bucket()
        if not self._histogram.total:
            return None
        counts = self._histogram.sparse()
        self._histogram.clear()
        return counts

    def _advance(self, taken: int) -> None:
        self._used += taken
        if self._used == BUFFER_VALUES:
            self._bucket()

    def _bucket(self) -> None:
        values = self._buffer[: self._used]
        self._used = 0
        below_zero = int(np.count_nonzero(values < 0))
        if below_zero:
            self.negative += below_zero
            values = values[values >= 0]
        self._histogram.record(values)


class Recorder:
    """All series of a worker."""

    def __init__(self) -> None:
        self._series = {series: SeriesRecorder() for series in Series}

    def __getitem__(self, series: Series) -> SeriesRecorder:
        return self._series[series]

    def cut(self) -> tuple[dict[Series, SparseCounts], int]:
        """The counts of the interval that ends now, and how many negative values were left out."""
        latencies = {}
        negative = 0
        for series, recorder in self._series.items():
            counts = recorder.cut()
            if counts is not None:
                latencies[series] = counts
            negative += recorder.negative
            recorder.negative = 0
        return latencies, negative
