"""Who has the mirrored queue, as the metadata says, and whether what was confirmed must still be there.

A confirm of a mirrored queue means that the master and every mirror have the message. It is there for as long as the
copy of some node goes on that had it. The ledger forgets its promises where nobody may expect that: a mirror is
promoted that is not synchronised, or the queue was declared anew. A lost drive is noted elsewhere
(:meth:`~reference_broker.sim.checks.ledger.MessageLedger.drive_lost`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import mirror_of
from reference_broker.sim.queues import MIRRORED
from reference_broker.types import GroupId


class MirrorChecks:
    """The newest record of the mirrored queue that any node has applied."""

    def __init__(self, copies_lost: Callable[[], None]) -> None:
        """``copies_lost`` is called when confirmed messages may be gone."""
        self._copies_lost = copies_lost
        self._known: QueueRecord | None = None
        self._former: set[GroupId] = set()

    def heard(self, records: Iterable[QueueRecord]) -> None:
        """A node has applied an entry of the metadata, and knows these queues now."""
        for record in records:
            if record.name == MIRRORED and record.group not in self._former:
                self._is(record)

    def _is(self, record: QueueRecord) -> None:
        known = self._known
        if known is not None and known.group != record.group:
            self._former.add(known.group)
            self._copies_lost()
        elif known is not None and record.changes <= known.changes:
            return
        elif known is not None and not _goes_on(known, record):
            self._copies_lost()
        self._known = record


def _goes_on(known: QueueRecord, record: QueueRecord) -> bool:
    """Whether the master has what the former one confirmed: it is the same copy, or was a synchronised mirror."""
    if (record.leader, record.owner_since) == (known.leader, known.owner_since):
        return True
    mirror = mirror_of(known, record.leader, record.owner_since)
    return mirror is not None and mirror.is_synchronised
