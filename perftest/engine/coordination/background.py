"""Loads beside the measured one: each in a worker of its own, for the whole run, in none of its figures.

They begin before the measured load connects and end after it has drained. What they published and what became of it is
told in an event of their own; their ledgers are kept apart and stand in ``ledger.json`` under ``background``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from perftest.engine.coordination.load import Load
from perftest.engine.workers import wire
from perftest.engine.workers.worker_process import WorkerError
from perftest.spec.plan import Group, Plan

DRAIN_POLL_S: Final = 0.05
TOTALS: Final = ("published", "confirmed", "nacked", "returned", "delivered", "redelivered", "published_bytes")


class BackgroundLoad:
    """One of them."""

    def __init__(self, plan: Plan, group: Group, on_event: Callable[[dict[str, object]], None]) -> None:
        self.name = group.name
        self.load = Load(plan.only(group), [f"background {group.name}"], on_event)
        self._settings = wire.settings_to_json(group.steps[0].settings)
        self._begun = False

    async def begin(self, offset_ns: int) -> None:
        """Connect and publish. Raises :class:`~perftest.engine.workers.worker_process.WorkerError`."""
        await self.load.start(offset_ns)
        await self.load.open(self._settings, fresh=False)
        await self.load.begin(0)
        self._begun = True

    async def end(self, drain_s: float) -> dict[str, Any] | None:
        """Publish no more, drain for at most ``drain_s``, clean up; totals and ledger, None if it never began, has
        ended before, or its worker is no more."""
        if not self._begun:
            return None
        self._begun = False
        try:
            await self.load.quiesce()
            drained = await self._drain(drain_s)
            ((_, totals),) = await self.load.cut()
            await self.load.close(drained=drained, abandoned=False, delete=self.load.plan.delete_queues)
            ledger = await self.load.ledger(complete=True)
        except WorkerError:
            return None
        length_s = totals["length_ns"] / 1e9
        return {"name": self.name, "length_s": length_s, **{name: totals[name] for name in TOTALS}, "ledger": ledger}

    async def _drain(self, drain_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while (await self.load.left())["left"]:
                    await asyncio.sleep(DRAIN_POLL_S)
                return True
        return False


_VERDICTS: Final = {
    "ok": "none lost, none out of order",
    "violated": "its messages were not safe",
    "unknown": "not drained",
}


def in_words(ended: Mapping[str, Any]) -> str:
    """What :meth:`BackgroundLoad.end` said, as a sentence."""
    rate = ended["published"] / ended["length_s"] if ended["length_s"] else 0.0
    counts = f"{ended['published']:,} messages published ({rate:,.0f} per second), {ended['delivered']:,} delivered"
    return f"background load {ended['name']}: {counts}; {_VERDICTS[ended['ledger']['verdict']]}"
