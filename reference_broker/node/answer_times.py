"""How long each node takes to have a few entries on disk: who is slower than whom."""

from __future__ import annotations

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

    def is_slower(self, node: NodeId, than: NodeId) -> bool:
        """Whether ``node`` takes more than twice as long as ``than``. Who never answered may be slower than anybody."""
        mean, other = self._means.get(node), self._means.get(than)
        return mean is None or other is None or mean > 2 * other + _ALIKE_NS
