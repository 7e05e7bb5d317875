"""Does something at each change of a cycle."""

from __future__ import annotations

from collections.abc import Callable

from perftest.engine.context import Context
from perftest.engine.schedule.cycles import Turns


class TurnTimer:
    """Calls ``on_turn`` with the value that holds and the number of its change: now, and at each change from now on
    until :meth:`stop`. A change that is missed (the worker was held up) is left out."""

    def __init__(self, context: Context, turns: Turns, on_turn: Callable[[float, int], None]) -> None:
        self._context = context
        self._turns = turns
        self._on_turn = on_turn
        self._stopped = False
        self._turn()

    def stop(self) -> None:
        """No more calls."""
        self._stopped = True

    def _turn(self) -> None:
        if self._stopped:
            return
        change = self._turns.number(self._context.clock())
        self._on_turn(self._turns.value(change), change)
        self._context.wakeups.at(self._turns.at_ns(change + 1), self._turn)
