"""Virtual time, and everything that will happen, in its order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Generic, TypeVar

Time = TypeVar("Time", int, float)


class Agenda(Generic[Time]):
    """Calls by virtual time. ``now`` is in the unit of the kind of world, and ``chance`` is all chance of the world."""

    def __init__(self, chance: Random, begin: Time) -> None:
        self.chance = chance
        self.now: Time = begin
        self._heap: list[tuple[Time, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = 0

    def at(self, when: Time, call: Callable[..., object], *arguments: Any) -> None:
        """Call at a time; calls for the same time keep their order."""
        self._numbers += 1
        heappush(self._heap, (when if when > self.now else self.now, self._numbers, call, arguments))

    def step(self) -> None:
        """Let the next thing happen. Raises IndexError if nothing ever will."""
        self.now, _, call, arguments = heappop(self._heap)
        call(*arguments)
