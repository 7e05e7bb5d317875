"""Queues that the broker ends by itself, because they are unused or their connection is gone.

An ending is a deletion in the metadata, and takes a while. Meanwhile the node that has asked for the ending does not
tell the queue's counts (:attr:`Groups.ending <reference_broker.node.replication.known_groups.Groups.ending>`). So a
client that declares such a queue waits until the queue is gone on the declaring node, too, and makes a new one. A
client that causes an ending gets its answer (basic.cancel-ok, channel.close-ok, connection.close-ok) when the queue is
gone on the client's node.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from reference_broker.access.names import shown
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.hosting.reads import NodeReads
from reference_broker.node.links.peer_requests import Later
from reference_broker.node.replication.known_groups import Groups
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId, Priority

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 0.005


class Ending(StrEnum):
    """Why the broker deletes a queue that no client asked it to delete."""

    EXPIRED = "expired"
    """Nobody has used the queue for its ``x-expires``."""
    AUTO_DELETE = "auto-delete"
    """The last consumer is gone."""
    EXCLUSIVE = "exclusive"
    """The connection that declared the queue is gone."""
    TRANSIENT = "transient"
    """The queue is not durable, and its node has started again."""


class Endings:
    """The endings that one node asks for."""

    def __init__(self, groups: Groups, metadata: MetadataHost, reads: NodeReads, later: Later, timeout_ms: int) -> None:
        """``timeout_ms``: the longest wait of a client for the end of its queues."""
        self._groups = groups
        self._metadata = metadata
        self._reads = reads
        self._later = later
        self._timeout_ms = timeout_ms
        self.count: Counter[Ending] = Counter()
        """Number of queues that this node has ended, by reason."""

    def expired(self, group: GroupId, unused_ms: int) -> None:
        """Delete the queue, unless that is under way. Only the present leader of the metadata is asked: the queue may
        be in use again before there is another leader. The machine repeats its report while the queue is unused."""
        queue = self._groups.by_group.get(group)
        if queue is None or group in self._groups.ending:
            return
        record = queue.record
        self._groups.ending.add(group)

        def answered(left: QueueRecord | None) -> None:
            self._groups.ending.discard(group)
            if left is None:
                self._ended(record, Ending.EXPIRED, f"nobody used it for {unused_ms} ms")

        self._metadata.delete(record, answered, only_now=True)

    def end(self, record: QueueRecord, ending: Ending, why: str, ended: Callable[[], None] = lambda: None) -> None:
        """Delete a queue that no client has asked to delete, and call; ``why`` is for operators."""
        self._groups.ending.add(record.group)

        def answered(_record: QueueRecord | None) -> None:
            self._groups.ending.discard(record.group)
            self._ended(record, ending, why)
            ended()

        self._metadata.delete(record, answered)

    def _ended(self, record: QueueRecord, ending: Ending, why: str) -> None:
        self.count[ending] += 1
        log.info("queue %s was deleted (%s): %s", shown(record.name), ending, why)

    def when_left(self, left: Sequence[Queue], owned: Sequence[QueueRecord], call: Callable[[], None]) -> None:
        """Call when the queues that end with a channel or a connection are gone, or when that takes too long. A channel
        has just left the auto-delete queues ``left``: each goes unless others consume there. The queues ``owned``
        belong to the connection, and go in any case."""
        waiting = {queue.record.group for queue in left} | {record.group for record in owned}

        def done(group: GroupId) -> None:
            if group in waiting:
                waiting.discard(group)
                if not waiting:
                    call()

        def give_up() -> None:
            if waiting:
                waiting.clear()
                call()

        if not waiting:
            call()
            return
        self._later(self._timeout_ms / 1000, give_up)
        for record in owned:
            self.end(record, Ending.EXCLUSIVE, "its connection is gone", partial(done, record.group))
        for queue in left:
            self._look(queue, queue.proposer.unapplied[Priority.LOW].last, partial(done, queue.record.group))

    def _look(self, queue: Queue, end: int, done: Callable[[], None]) -> None:
        """Have the queue counted once it has applied the end of the channel, command number ``end`` of this node."""
        group = queue.record.group
        if self._groups.by_group.get(group) is not queue:
            done()
        elif queue.proposer.unapplied[Priority.LOW].applied_up_to < end:
            self._later(_LOOK_AGAIN_S, lambda: self._look(queue, end, done))
        else:
            self._reads.counts(group, lambda _counts: done())
