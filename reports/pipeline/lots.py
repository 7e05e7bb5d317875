"""Lots of things, each the work of one task. No PySpark is imported here, which would cost each worker seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from reports.store.columns import Batches

if TYPE_CHECKING:
    from pyspark import Broadcast

T = TypeVar("T")


def lots_of(things: Sequence[T], octets: Callable[[T], int], most: int, tasks: int) -> list[list[T]]:
    """Things in lots of about equal size, in their order: as many as ``tasks``, or more of about ``most`` octets."""
    whole = max(sum(map(octets, things)), 1)
    number = min(max(tasks, math.ceil(whole / most)), len(things))
    lots: list[list[T]] = [[] for _ in range(number)]
    before = 0
    for thing in things:
        lots[min(before * number // whole, number - 1)].append(thing)
        before += octets(thing)
    return [lot for lot in lots if lot]


def worked(batches: Batches, lots: Broadcast[Any], work: Callable[[Iterable[Any]], Batches]) -> Batches:
    """The rows of ``work`` for the lots with these numbers."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from work(lots.value[number])
