"""Which writer has which queue: one writer for all queues of a node, or a writer for each.

A *lane* is a writer with an executor. With one lane, all queues share batches: a sync of the drive serves as many
messages as possible. This is :class:`OneLane`, for a node whose stores have threads of their own.

:class:`LaneForEach` is for a node whose stores share a pool of threads. Each queue writes and syncs for itself, as each
process of a RabbitMQ queue does, through the pool that the write-ahead log uses, too. So a drive that is busy with many
queues holds many threads, and the log waits in the line behind them.

Both are used by the owner's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from reference_broker.classic.counters import StoreCounters
from reference_broker.classic.parts import QueueName
from reference_broker.classic.queue_files import QueueFiles
from reference_broker.classic.writer import Delete, Operation, StoreWriter
from reference_broker.storage.executor import Executor, IoPolicy
from reference_broker.types import GroupId

MakeWriter = Callable[[StoreCounters], StoreWriter]
"""Makes a writer that counts there."""


class Lanes(Protocol):
    """Writers with their executors."""

    def writer(self, group: GroupId) -> StoreWriter:
        """The writer of a queue."""

    def start(self) -> None:
        """From now on operations are carried out."""

    def submit(self, operation: Operation) -> None:
        """Hand an operation to the writer of its queue."""

    def delete(self, queue: QueueName) -> None:
        """Have everything removed that a queue wrote. What waits to be written of the queue is not written any more."""

    def executors(self) -> Iterator[Executor[Operation]]:
        """All executors."""

    def files_of(self, group: GroupId) -> QueueFiles | None:
        """The files of a queue, None before it has written anything."""

    def counters(self) -> StoreCounters:
        """The figures of the store: those of all writers together."""

    def close(self) -> None:
        """Finish what waits, and close the files."""


def lanes_of(policy: IoPolicy, make: MakeWriter, counters: StoreCounters) -> Lanes:
    """The lanes that fit the I/O policy. ``counters`` has the figures that are no writer's."""
    return LaneForEach(policy, make, counters) if policy.shares_threads else OneLane(policy, make, counters)


class OneLane:
    """One writer for all queues."""

    def __init__(self, policy: IoPolicy, make: MakeWriter, counters: StoreCounters) -> None:
        self._counters = counters
        self._writer = make(counters)
        self._executor: Executor[Operation] = policy("classic store", self._writer.handle)
        self.submit = self._executor.submit
        self.start = self._executor.start

    def writer(self, _group: GroupId) -> StoreWriter:
        """The one writer."""
        return self._writer

    def delete(self, queue: QueueName) -> None:
        """See :class:`Lanes`."""
        self._writer.deleted.add(queue.group)
        self.submit(Delete(queue))

    def executors(self) -> Iterator[Executor[Operation]]:
        """The one executor."""
        yield self._executor

    def files_of(self, group: GroupId) -> QueueFiles | None:
        """See :class:`Lanes`, as for all below."""
        return self._writer.queues.get(group)

    def counters(self) -> StoreCounters:
        """The figures are those of the one writer."""
        return self._counters

    def close(self) -> None:
        """Finish what waits."""
        self._executor.close()
        self._writer.close()


class _Lane:
    """The writer of one queue, and its executor."""

    __slots__ = ("counters", "executor", "writer")

    def __init__(
        self,
        policy: IoPolicy,
        make: MakeWriter,
        group: GroupId,
        ended: Callable[[GroupId], None],
        counters: StoreCounters,
    ) -> None:
        self.counters = counters
        self.writer = writer = make(counters)

        def handle(operations: list[Operation]) -> None:
            writer.handle(operations)
            if any(type(operation) is Delete for operation in operations):
                ended(group)

        self.executor: Executor[Operation] = policy(f"classic queue {group:x}", handle)

    def close(self) -> None:
        self.executor.close()
        self.writer.close()


class LaneForEach:
    """A writer for each queue, which ends with the queue."""

    def __init__(self, policy: IoPolicy, make: MakeWriter, counters: StoreCounters) -> None:
        self._policy, self._make, self._rest = policy, make, counters
        self._lanes: dict[GroupId, _Lane] = {}
        self._ended: deque[GroupId] = deque()
        """Queues that their writers have deleted: written by many threads."""
        self._has_started = False

    def writer(self, group: GroupId) -> StoreWriter:
        """The writer of a queue."""
        return self._lane(group).writer

    def start(self) -> None:
        """Start the lanes of queues that are there. Later lanes start at once."""
        self._has_started = True
        for lane in self._lanes.values():
            lane.executor.start()

    def submit(self, operation: Operation) -> None:
        """Hand an operation to the writer of its queue, which is made for the first one."""
        if self._ended:
            self._forget_ended()
        self._lane(operation.queue.group).executor.submit(operation)

    def delete(self, queue: QueueName) -> None:
        """See :class:`Lanes`. A queue that never wrote has no writer, and gets none."""
        if (lane := self._lanes.get(queue.group)) is not None:
            lane.writer.deleted.add(queue.group)
            self.submit(Delete(queue))

    def executors(self) -> Iterator[Executor[Operation]]:
        """The executors, in the order in which their queues wrote first."""
        return (lane.executor for lane in list(self._lanes.values()))

    def files_of(self, group: GroupId) -> QueueFiles | None:
        """See :class:`Lanes`, as for all below."""
        lane = self._lanes.get(group)
        return lane.writer.queues.get(group) if lane is not None else None

    def counters(self) -> StoreCounters:
        """The sum over all queues, those included that are gone."""
        total = StoreCounters()
        for each in (self._rest, *(lane.counters for lane in self._lanes.values())):
            total.add(each)
        return total

    def close(self) -> None:
        """Finish what waits in all lanes."""
        for lane in self._lanes.values():
            lane.close()

    def _lane(self, group: GroupId) -> _Lane:
        if (lane := self._lanes.get(group)) is None:
            lane = self._lanes[group] = _Lane(
                self._policy, self._make, group, self._ended.append, StoreCounters(self._rest.clock)
            )
            if self._has_started:
                lane.executor.start()
        return lane

    def _forget_ended(self) -> None:
        while self._ended:
            lane = self._lanes.pop(self._ended.popleft())
            lane.close()
            self._rest.add(lane.counters)
