"""Who is removed from the group of a queue, held against what the metadata group committed: X4."""

from __future__ import annotations

from collections.abc import Iterable

from reference_broker.machines.metadata import QueueRecord
from reference_broker.raft.configuration import Configuration
from reference_broker.sim.invariants import check
from reference_broker.types import GroupId, NodeId


class MemberChecks:
    """Every membership that ever was to end, as any node applied it."""

    def __init__(self) -> None:
        self._leaving: set[tuple[GroupId, NodeId, int]] = set()

    def heard(self, records: Iterable[QueueRecord]) -> None:
        """These are the queues after an entry of the metadata log."""
        self._leaving.update(
            (record.group, node, record.membership_epoch(node)) for record in records for node in record.leaving
        )

    def changed(self, group: GroupId, former: Configuration, now: Configuration) -> None:
        """The leader of a queue's group appends a change. A membership that was to end once is to end for good, so it
        does not matter when that was; the next one of the same node is another one."""
        for node in set(former.members) - set(now.members):
            epoch = former.replica_id_of(node)
            wanted = (group, node, epoch) in self._leaving
            check(
                wanted,
                "X4",
                f"group {group:x}: node {node} is removed in membership epoch {epoch}, which nobody asked for",
            )
