"""A group of background load through a run: it begins, changes and ends beside the measured load.

Theory of operation. A request to a background load may take long: to open a thousand connections, or to drain. So each
request is a task that waits for the request before it (:meth:`BackgroundRun.then`), and the intervals of the measured
load go on meanwhile. The coordinator cuts a background load together with the measured ones only while the load is
``steady``; while clients open, change or leave, the coordinator does not touch the load.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from perftest.engine.coordination.load import IntervalPlace, IntervalSource, Load
from perftest.engine.workers import wire
from perftest.metrics.interval import Phase
from perftest.spec.plan import Group, Settings

TOTALS: Final = (*("published", "confirmed", "nacked", "returned", "delivered", "redelivered", "published_bytes"),)
"""Counts that are added up over the life of a background load."""

_VERDICTS: Final = {
    "ok": "none lost, none out of order",
    "violated": "its messages were not safe",
    "unknown": "not drained",
}


class BackgroundRun:
    """The background load of a group. ``failed`` is done with the exception of a request that failed.

    ``begun`` is whether the load was asked to begin, and ``ended`` whether it was asked to end. ``step`` is an index
    into the steps of the group.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.steady = False
        self.ended = False
        self.step = 0
        self._counts: Counter[str] = Counter()
        self._lengths_ns: Counter[IntervalSource] = Counter()
        self._last: asyncio.Task[None] | None = None

    @property
    def group(self) -> Group:
        """The group of this load."""
        return self.load.group

    @property
    def settings(self) -> Settings:
        """The settings of the step that goes on."""
        return self.group.steps[self.step].settings

    @property
    def recorded(self) -> bool:
        """Whether the load has an interval."""
        return bool(self._lengths_ns)

    def then(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Do ``work`` once all work before it is done."""
        before = self._last

        async def turn() -> None:
            if before is not None:
                await before
            await work()

        self._last = asyncio.create_task(turn())
        self._last.add_done_callback(self._note_failure)
        return self._last

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_result(error)

    async def done(self) -> None:
        """Wait for all work that was asked for."""
        if self._last is not None:
            await self._last

    def cancel(self) -> None:
        """Give up the work that is not done yet."""
        if self._last is not None:
            self._last.cancel()

    def place(self, measured: IntervalPlace) -> IntervalPlace:
        """The number of the step and the phase that an interval belongs to, given the measured load's. A group with
        steps of its own goes by these. Its only warm-up is the interval in which its settings change."""
        if not self.group.has_own_steps:
            return measured
        own = Phase.STEADY if self.steady else Phase.WARMUP
        phase = Phase.DRAIN if measured.phase is Phase.DRAIN else own
        return IntervalPlace(self.group.steps[self.step].number, phase)

    def count(self, worker: IntervalSource, record: wire.Message) -> None:
        """Add an interval to the totals."""
        self._counts.update({name: int(record[name]) for name in TOTALS})
        self._lengths_ns[worker] += int(record["length_ns"])

    def summary(self, ledger: Mapping[str, Any]) -> dict[str, Any]:
        """The content of the event ``background_ended``: length, totals and ledger, and all of it in a sentence."""
        counts = {name: self._counts[name] for name in TOTALS}
        length_s = max(self._lengths_ns.values(), default=0) / 1e9
        text = _in_words(self.group.name, length_s, counts, ledger["verdict"])
        return {"text": text, "name": self.group.name, "length_s": length_s, **counts, "ledger": dict(ledger)}


def _in_words(name: str, length_s: float, counts: Mapping[str, int], verdict: str) -> str:
    """The fate of the messages of a background load, as a sentence."""
    rate = counts["published"] / length_s if length_s else 0.0
    text = f"{counts['published']:,} messages published ({rate:,.0f} per second), {counts['delivered']:,} delivered"
    return f"background load {name}: {text}; {_VERDICTS[verdict]}"
