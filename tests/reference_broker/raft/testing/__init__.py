"""A cluster in memory for tests: production cores over modelled disks and a modelled network, checked as it runs.

Theory of operation
-------------------
Each :class:`Member` is a shell as the node's is: it carries out Readys in their order, keeps messages back until the
hard state is on disk, and passes every message through the wire codec. A :class:`Disk` has what is durable and what
is merely written; a crash loses any tail of the latter. Nothing happens by itself: whoever drives the :class:`Cluster`
(a transcript, a seeded random walk) chooses what is delivered, synced, noticed, lost or crashed next.

:class:`Checker` compares everything anybody does with what everybody did before. It knows the true content of the
disks, so it sees a claim that no member could see to be false.

One simplification: a snapshot's state is the list of (term, CRC) of all entries up to it, so that states compare.
"""

from tests.reference_broker.raft.testing.checker import Checker, Violation
from tests.reference_broker.raft.testing.cluster import Cluster
from tests.reference_broker.raft.testing.disk import Disk, Snapshot
from tests.reference_broker.raft.testing.member import Member
from tests.reference_broker.raft.testing.transcript import replay, sketch

__all__ = ["Checker", "Cluster", "Disk", "Member", "Snapshot", "Violation", "replay", "sketch"]
