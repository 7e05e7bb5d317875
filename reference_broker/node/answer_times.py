"""How long each node takes to have a few entries on disk: who is slower than whom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reference_broker.types import NodeId

_RECENT: Final = 8
"""About so many answers weigh in a mean."""
_ALIKE_NS: Final = 1_000_000
"""A difference of so much is none: a process that waits for its turn makes it."""


class AnswerTimes:
    """Running means in nanoseconds: of peers from sending to the answer, of the node itself that of its own log."""

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: dict[NodeId, int] = {}

    def took(self, node: NodeId, ns: int) -> None:
        """An answer took so long."""
        mean = self._means.get(node, ns)
        self._means[node] = mean + (ns - mean) // _RECENT

    def slower_than(self, node: NodeId, among: Iterable[NodeId]) -> set[NodeId]:
        """Those that take more than twice as long as ``node``. Who never answered may be slower than anybody."""
        means, unknown = self._means, 1 << 62
        limit = 2 * means[node] + _ALIKE_NS if node in means else -1
        return {each for each in among if means.get(each, unknown) > limit}
