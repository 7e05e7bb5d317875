"""The stages, and the two stamps between which each lies.

Theory of operation
-------------------
A run of messages is stamped once per arrow of its way, in nanoseconds of the host's monotonic clock. A *chain* is a
list of stamps in the order of the way; a *stage* is the time between two neighbours. So the stages of a chain
telescope: they always sum to the last stamp minus the first.

The way forks where an entry is written: the leader's disk, the followers' disks and the wire work side by side, and a
majority is enough. Each node stamps what it sees itself. The rule that keeps the sum (:func:`telescoped`):

1. If this node's own sync ended after the entry was known as committed (or its end is not known yet), the message did
   not wait for this node's disk. Then the three stages of the own WAL are 0 and all the time is REPLICATE.
2. A stamp that lies before its predecessor is moved up to the predecessor: that stage is 0, the next stage shorter.

Stamps of two nodes are compared only when both run on one clock (one boot of one host). Otherwise the stages up to the
stage that ends at ``handed`` are left out, and the messages counted as ``foreign``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Stamps = npt.NDArray[np.int64]


class Chain(StrEnum):
    """A way that is followed from its first stamp to its last."""

    DELIVERY = "delivery"
    CONFIRM = "confirm"
    SETTLE = "settle"


class Stage(StrEnum):
    """One arrow of the way. ``TOTAL`` is a whole chain."""

    READ = "read"
    PROPOSE = "propose"
    FORWARD = "forward"
    APPEND = "append"
    WAL_QUEUE = "wal_queue"
    WAL_WRITE = "wal_write"
    FSYNC = "fsync"
    REPLICATE = "replicate"
    APPLY = "apply"
    READY = "ready"
    DELIVER = "deliver"
    CONFIRM = "confirm"
    SETTLE = "settle"
    TOTAL = "total"


class StageSpec(NamedTuple):
    """The stamps at both ends of a stage, and what happens in it."""

    stage: Stage
    begins: str
    ends: str
    text: str


STAGES: Final = (
    StageSpec(Stage.READ, "read", "proposed", "the octets of a recv are cut into runs and routed"),
    StageSpec(Stage.PROPOSE, "proposed", "sent", "the run waits at the publisher's node for the group's last entry"),
    StageSpec(Stage.FORWARD, "sent", "made", "a follower's batch travels to the leader and waits there; else 0"),
    StageSpec(Stage.APPEND, "made", "handed", "the entry reaches this node's log: on a follower, over the wire"),
    StageSpec(Stage.WAL_QUEUE, "handed", "begun", "the writer thread is busy with the batch before"),
    StageSpec(Stage.WAL_WRITE, "begun", "written", "write of the batch that holds the entry"),
    StageSpec(Stage.FSYNC, "written", "synced", "fdatasync of that batch"),
    StageSpec(Stage.REPLICATE, "synced", "committed", "a majority syncs, and this node's loop hears of it"),
    StageSpec(Stage.APPLY, "committed", "applied", "the queue machine takes the entry"),
    StageSpec(Stage.READY, "applied", "dealt", "the message waits in the queue for a consumer with credit"),
    StageSpec(Stage.DELIVER, "dealt", "delivered", "frames are built and handed to the socket"),
    StageSpec(Stage.CONFIRM, "applied", "confirmed", "the confirm is built and handed to the socket"),
    StageSpec(Stage.SETTLE, "acked", "settled", "from the read of an acknowledgement until its entry is applied here"),
)
"""All stages but TOTAL. Documentation and reports read the same table."""

_TO_APPLIED: Final = (
    Stage.READ,
    Stage.PROPOSE,
    Stage.FORWARD,
    Stage.APPEND,
    Stage.WAL_QUEUE,
    Stage.WAL_WRITE,
    Stage.FSYNC,
    Stage.REPLICATE,
    Stage.APPLY,
)
CHAINS: Final[dict[Chain, tuple[Stage, ...]]] = {
    Chain.DELIVERY: (*_TO_APPLIED, Stage.READY, Stage.DELIVER),
    Chain.CONFIRM: (*_TO_APPLIED, Stage.CONFIRM),
    Chain.SETTLE: (Stage.SETTLE,),
}
"""The stages of each chain in order; a chain of n stages has n + 1 stamps."""

CROSS_NODE: Final = 4
"""Number of stages at the head of DELIVERY and CONFIRM that begin at a stamp which may be another node's."""

_HANDED, _BEGUN, _SYNCED, _COMMITTED = 4, 5, 7, 8


def telescoped(stamps: Stamps) -> Stamps:
    """The durations of the stages, shape (n, stages), of ``stamps``, shape (n, stages + 1); see the rules above.

    No duration is negative, and each row sums to its last stamp (moved up, if necessary) minus its first.
    """
    ordered = stamps.copy()
    if ordered.shape[1] > _COMMITTED:
        committed, synced = ordered[:, _COMMITTED], ordered[:, _SYNCED]
        late = (synced == 0) | (synced > committed)
        ordered[late, _BEGUN : _SYNCED + 1] = ordered[late, _HANDED, None]
    np.maximum.accumulate(ordered, axis=1, out=ordered)
    return np.diff(ordered, axis=1)
