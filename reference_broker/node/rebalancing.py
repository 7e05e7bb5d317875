"""Which queues should be led from which node. Pure.

Leaders are evened out over the nodes with as few transfers as possible: a queue is moved only from a node that leads at
least two queues more than the one it goes to, and each move narrows that difference. So it ends, and the same state
gives the same moves on every node that is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reference_broker.types import NodeId


@dataclass(frozen=True, slots=True)
class Move:
    """Hand the leadership of ``queue`` over."""

    queue: str
    source: NodeId
    target: NodeId


def moves(leaders: Mapping[str, NodeId], voters: Mapping[str, Sequence[NodeId]]) -> list[Move]:
    """The transfers that even the leaders out. ``voters``: the nodes that could lead each queue now."""
    now = dict(leaders)
    nodes = sorted({node for members in voters.values() for node in members} | set(now.values()))
    found: list[Move] = []
    while (move := _best(now, voters, nodes)) is not None:
        found.append(move)
        now[move.queue] = move.target
    return _joined(found, leaders)


def _best(
    leaders: Mapping[str, NodeId], voters: Mapping[str, Sequence[NodeId]], nodes: Sequence[NodeId]
) -> Move | None:
    """The move from the busiest node to the idlest that can take over one of its queues."""
    load = dict.fromkeys(nodes, 0)
    for leader in leaders.values():
        load[leader] += 1
    candidates = [
        (load[target] - load[source], queue, source, target)
        for queue, source in leaders.items()
        for target in voters.get(queue, ())
        if load[source] - load[target] >= 2
    ]
    if not candidates:
        return None
    _, queue, source, target = min(candidates)
    return Move(queue, source, target)


def _joined(found: Sequence[Move], leaders: Mapping[str, NodeId]) -> list[Move]:
    """One move a queue: from where it is led to where it ends up."""
    last = {move.queue: move.target for move in found}
    return [Move(queue, leaders[queue], target) for queue, target in sorted(last.items()) if leaders[queue] != target]
