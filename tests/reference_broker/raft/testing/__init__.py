"""A cluster in memory for tests: production cores over modelled disks and a modelled network, checked as it runs.

Theory of operation
-------------------
Each :class:`Member` is a shell like the node's: it carries out Readys in their
order, keeps messages back until the hard state is on disk, and passes every message through the wire codec. A
:class:`Disk` knows durable writes and writes that are not synced; a crash loses any tail of the latter. Nothing happens
by itself: the driver of the :class:`Cluster` (a transcript, a seeded random walk) chooses which message is delivered,
synced, noticed or lost, and who crashes next.

:class:`Checker` compares each action of a member with all actions before. It knows the true content of the disks, so it
sees a false claim that no member could see.

One simplification: a snapshot's state is the list of (term, CRC) of all entries up to it, so that states compare.
"""

from tests.reference_broker.raft.testing.checker import Checker, Violation
from tests.reference_broker.raft.testing.cluster import Cluster
from tests.reference_broker.raft.testing.disk import Disk, Snapshot
from tests.reference_broker.raft.testing.member import Member
from tests.reference_broker.raft.testing.transcript import replay, sketch

__all__ = ["Checker", "Cluster", "Disk", "Member", "Snapshot", "Violation", "replay", "sketch"]
