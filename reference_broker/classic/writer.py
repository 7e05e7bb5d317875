"""A writer of the store: group commit for classic queues.

Theory of operation
-------------------
A writer has all classic queues of a node, or one of them (:mod:`~reference_broker.classic.lanes`). It takes all waiting
operations as one batch. It writes the parts of all queues and syncs the parts that must survive, then it writes the
index records, and then it tells the owner. Operations that arrive meanwhile wait for the next batch, so a slow drive
makes the batches larger. A part is not written if all its messages are gone by then, so a queue whose consumers keep up
with its publishers hardly touches the drive. A lazy queue writes every message, as RabbitMQ's lazy queues do.

Order within one batch: parts; syncs of parts; records; syncs of records and names; notices; removal of files. So no
record of a message that must survive reaches the platter before its part, although drives reorder writes, and a start
that finds such a record without its part knows that something is damaged.

A failed write or sync ends the writer: nothing more is written, or told to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from reference_broker.classic.counters import StoreCounters
from reference_broker.classic.parts import Part, QueueName
from reference_broker.classic.queue_files import QueueFiles
from reference_broker.classic.shared import SharedAppender
from reference_broker.records import record
from reference_broker.storage.errors import drive_failure
from reference_broker.storage.files import Files
from reference_broker.types import GroupId

BATCH_BYTES: Final = 16 << 20
"""Octets of messages at which a batch is closed."""


@record
class AddPart:
    """Write a part of ``octets`` octets. ``drops_body``: the body is read back from the drive when it is wanted."""

    queue: QueueName
    part: Part
    drops_body: bool
    octets: int


@record
class TakeMessages:
    """Messages of one part are gone: ``count`` sequence numbers ``seq, seq + step, ...``. ``next_seq`` is the number
    that the queue's next message will get."""

    queue: QueueName
    seq: int
    count: int
    step: int
    next_seq: int


@record
class Delete:
    """Remove everything that the queue wrote."""

    queue: QueueName


Operation = AddPart | TakeMessages | Delete


@record
class Stored:
    """The queue's messages below ``seq_end`` survive a loss of power, as far as they are persistent and not gone."""

    group: GroupId
    seq_end: int


@record
class Deleted:
    """Nothing is left of the queue."""

    group: GroupId


@record
class StoreFailed:
    """The store has ended, for the reason given: the node must stop."""

    reason: str


Notice = Stored | Deleted | StoreFailed
Notify = Callable[[list[Notice]], None]


@dataclass(slots=True)
class StoreHealth:
    """The state of the drive for all writers of a node: once a call has failed, nothing more is written."""

    has_failed: bool = False


class StoreWriter:
    """Handles lists of operations, one list at a time."""

    def __init__(
        self,
        files: Files,
        root: str,
        shared: SharedAppender,
        counters: StoreCounters,
        health: StoreHealth,
        notify: Notify,
    ) -> None:
        self.queues: dict[GroupId, QueueFiles] = {}
        self.deleted: set[GroupId] = set()
        """Queues whose :class:`Delete` is under way: nothing of them is written any more. The owner adds to it."""
        self.shared, self.counters = shared, counters
        self._files, self._root, self._notify = files, root, notify
        self._health = health
        self._next_seq: dict[GroupId, int] = {}

    def handle(self, operations: list[Operation]) -> None:
        """Carry out a list of operations."""
        if self._health.has_failed:
            return
        try:
            self._handle(operations)
        except OSError as error:
            self._health.has_failed = True
            self._notify([StoreFailed(drive_failure("the store of classic queues", self._root, error))])

    def _handle(self, operations: Sequence[Operation]) -> None:
        octets, begin = 0, 0
        for position, operation in enumerate(operations):
            if type(operation) is AddPart:
                octets += self._add(operation)
                self._next_seq[operation.queue.group] = operation.part.seq + operation.part.count
            elif type(operation) is TakeMessages:
                self._queue(operation.queue).take(operation.seq, operation.count, operation.step)
                self._next_seq[operation.queue.group] = operation.next_seq
            elif type(operation) is Delete:
                self._queue(operation.queue).delete()
            if octets >= BATCH_BYTES:
                self._commit(operations[begin : position + 1])
                octets, begin = 0, position + 1
        if begin < len(operations):
            self._commit(operations[begin:])

    def _add(self, operation: AddPart) -> int:
        part, queue = operation.part, operation.queue
        if queue.group in self.deleted or not (part.left or queue.is_lazy):
            self.counters.classic_messages_skipped += part.count
            return 0
        return self._queue(queue).stage(part)

    def _queue(self, name: QueueName) -> QueueFiles:
        if (queue := self.queues.get(name.group)) is None:
            queue = self.queues[name.group] = QueueFiles(name, self._files, self._root, self.shared, self.counters)
        return queue

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Write and sync one batch, and tell the owner."""
        self.counters.classic_batches += 1
        groups = dict.fromkeys(operation.queue.group for operation in operations)
        queues = [self.queues[group] for group in groups if group in self.queues]
        self.shared.write()
        for queue in queues:
            queue.write_messages()
        if any(type(operation) is AddPart and operation.part.is_persistent for operation in operations):
            self.shared.sync()
        for queue in queues:
            queue.sync_messages()
        for queue in queues:
            queue.write_index()
        for queue in queues:
            queue.sync_index()
        if self._health.has_failed:
            return  # another writer's call, after this batch began: the drive may have lost octets
        self.counters.classic_done_bytes += sum([each.octets for each in operations if type(each) is AddPart])
        self._drop_bodies(operations)
        self._notify(self._notices(operations))
        self._clean_up(operations, queues)

    def _drop_bodies(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if type(operation) is AddPart and operation.drops_body and operation.part.place is not None:
                operation.part.run = None

    def _notices(self, operations: Sequence[Operation]) -> list[Notice]:
        stored: dict[GroupId, Notice] = {}
        for operation in operations:
            group = operation.queue.group
            if type(operation) is AddPart:
                stored[group] = Stored(group, operation.part.seq + operation.part.count)
            elif type(operation) is Delete:
                stored[group] = Deleted(group)
        return list(stored.values())

    def _clean_up(self, operations: Sequence[Operation], queues: Sequence[QueueFiles]) -> None:
        for queue in queues:
            queue.sweep(self._next_seq.get(queue.name.group, 0))
        for operation in operations:
            if type(operation) is Delete:
                self.queues.pop(operation.queue.group, None)
                self._next_seq.pop(operation.queue.group, None)
                self.deleted.discard(operation.queue.group)
                if not self.queues:
                    self.shared.leave()

    def close(self) -> None:
        """Close the files of all queues. The executor works no more."""
        for queue in self.queues.values():
            queue.close()
