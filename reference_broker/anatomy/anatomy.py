"""The latency anatomy of one node: where the rows of all its groups come together and become histograms.

To record a row costs a copy; the rows become histograms once per buffer. Not thread-safe: the node's event loop calls
it. :meth:`Anatomy.snapshot` gives copies that may be encoded elsewhere.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hdr_buckets import BUCKETS, HIGHEST_NS, Values, bucket_index, encode
from reference_broker.anatomy.stages import CHAINS, CROSS_NODE, Chain, Stage, telescoped

ENTRIES_MAX: Final = 8192
"""Number of entries whose stamps are kept, over all groups: about 5 MB."""
ROWS: Final = 512
"""Number of rows that wait to be bucketed: few enough for a pause of only 0.2 ms."""

Row = tuple[Chain, int, tuple[int, ...]]
"""Chain, messages, all stamps except the last."""


@dataclass(frozen=True, slots=True)
class Series:
    """One cumulative histogram: ``counts`` up to the last bucket in use, ``total`` the exact sum of all values."""

    counts: Values
    total: int

    def cumulated(self, bits: range) -> list[tuple[int, int]]:
        """Each power of two, and how many values lie below it. From 2**11 on powers of two are edges of buckets:
        exact."""
        edges = bucket_index(np.array([1 << bit for bit in bits], np.int64))
        return [(1 << bit, int(self.counts[:edge].sum())) for bit, edge in zip(bits, edges.tolist(), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything recorded since the start. ``chains`` by stage, TOTAL last; ``gauges`` by name."""

    chains: dict[Chain, dict[Stage, Series]]
    gauges: dict[str, Series]
    foreign: int
    forgotten: int

    def to_json(self) -> dict[str, Any]:
        """For the control port: histograms as base64 of HdrHistogram's compressed V2 encoding."""
        return {
            "unit": "ns",
            "chains": {
                str(chain): {str(stage): encode(series.counts) for stage, series in stages.items()}
                for chain, stages in self.chains.items()
            },
            "gauges": {name: encode(series.counts) for name, series in self.gauges.items()},
            "foreign": self.foreign,
            "forgotten": self.forgotten,
        }


class Histograms:
    """``rows`` histograms of the same occasions, in one array; ``sums`` are exact, for means and Prometheus."""

    __slots__ = ("counts", "sums")

    def __init__(self, rows: int) -> None:
        self.counts: Values = np.zeros((rows, BUCKETS), np.int64)
        self.sums: Values = np.zeros(rows, np.int64)

    def record(self, values: Values, weights: Values, first: int = 0) -> None:
        """Count column ``i`` of ``values``, shape (n, columns), in row ``first + i``, each ``weights`` (n) times.

        Values above an hour are counted in its bucket.
        """
        columns = values.shape[1]
        index = bucket_index(np.minimum(values, HIGHEST_NS)) + np.arange(first, first + columns) * BUCKETS
        np.add.at(self.counts.reshape(-1), index, weights[:, None])
        self.sums[first : first + columns] += weights @ values


class ChainRecorder:
    """The histograms of one chain since the start: its stages in order, and last the whole chain."""

    __slots__ = ("_buffer", "_width", "chain", "histograms")

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.histograms = Histograms(len(CHAINS[chain]) + 1)
        self._width = len(CHAINS[chain]) + 2
        self._buffer = array("q")

    def add(self, count: int, stamps: Iterable[int]) -> None:
        """``count`` messages with these stamps. First stamp 0: the cross-node stages are not known."""
        self._buffer.append(count)
        self._buffer.extend(stamps)
        if len(self._buffer) >= ROWS * self._width:
            self.fold()

    def fold(self) -> None:
        """Bucket the waiting rows. Call this before the histograms are read."""
        if not self._buffer:
            return
        rows = np.frombuffer(self._buffer, np.int64).reshape(-1, self._width).copy()
        self._buffer = array("q")
        weights, stamps = rows[:, 0], rows[:, 1:]
        if self.chain is not Chain.SETTLE and (foreign := stamps[:, 0] == 0).any():
            known = telescoped(stamps[foreign])
            self.histograms.record(known[:, CROSS_NODE:], weights[foreign], CROSS_NODE)
            weights, stamps = weights[~foreign], stamps[~foreign]
        stages = telescoped(stamps)
        self.histograms.record(np.column_stack([stages, stages.sum(axis=1)]), weights)


class Anatomy:
    """The anatomy of one node. ``clock`` names the clock of its stamps (0 stands for none)."""

    def __init__(self, clock: int, entries_max: int = ENTRIES_MAX) -> None:
        self.clock = clock
        self.foreign = 0
        """Messages whose stamps come from several clocks: recorded without the cross-node stages."""
        self.forgotten = 0
        """Messages whose entry or own stamp is not known any more. They are not recorded."""
        self._recorders = {chain: ChainRecorder(chain) for chain in Chain}
        self._gauges: dict[str, Histograms] = {}
        self._gauged: dict[str, list[int]] = {}
        self.kept: deque[tuple[dict[int, Any], int]] = deque()
        """The entries whose stamps are kept: the table of a track and an index, oldest first, at most
        :attr:`entries_max`."""
        self.entries_max = entries_max
        self.begun: list[Row] = []
        """Rows that lack their last stamp, and belong to no connection yet."""
        self.waiting: dict[object, list[Row]] = {}
        """The rows that lack their last stamp, by the connection whose octets are to be written."""

    # Rows

    def hold(self, connection: object) -> None:
        """The rows begun since the last call wait for this connection's octets to be written."""
        if self.begun:
            self.waiting.setdefault(connection, []).extend(self.begun)
            self.begun.clear()

    def written(self, connection: object, now: int) -> None:
        """The connection's octets are with the socket."""
        for chain, count, stamps in self.waiting.pop(connection, ()):
            self._recorders[chain].add(count, (*stamps, now))

    def record(self, chain: Chain, count: int, stamps: tuple[int, ...]) -> None:
        """Record a whole row."""
        self._recorders[chain].add(count, stamps)

    # Gauges

    def gauge(self, name: str, value: int) -> None:
        """Count a value that is no stage: octets or messages of a batch, an fsync of a file in some role."""
        waiting = self._gauged.setdefault(name, [])
        waiting.append(value)
        if len(waiting) >= 512:
            self._fold_gauge(name, waiting)

    def _fold_gauge(self, name: str, waiting: list[int]) -> None:
        values = np.maximum(np.array(waiting, np.int64), 0)
        self._gauges.setdefault(name, Histograms(1)).record(values[:, None], np.ones(len(values), np.int64))
        waiting.clear()

    def snapshot(self) -> Snapshot:
        """Copies of all histograms."""
        chains = {}
        for chain, recorder in self._recorders.items():
            recorder.fold()
            names = (*CHAINS[chain], Stage.TOTAL)
            chains[chain] = {name: _series(recorder.histograms, row) for row, name in enumerate(names)}
        for name, waiting in self._gauged.items():
            if waiting:
                self._fold_gauge(name, waiting)
        gauges = {name: _series(histograms, 0) for name, histograms in self._gauges.items()}
        return Snapshot(chains=chains, gauges=gauges, foreign=self.foreign, forgotten=self.forgotten)


def _series(histograms: Histograms, row: int) -> Series:
    counts = histograms.counts[row]
    used = np.flatnonzero(counts)
    return Series(counts[: int(used[-1]) + 1 if len(used) else 0].copy(), int(histograms.sums[row]))
