"""The master's side: it records changes to its messages for its mirrors, and counts their confirmations. Pure.

:class:`RecordingStore` stands before the store of the queue. The queue does not know that it is mirrored: it adds
messages and takes them as always, and each change becomes an operation of the present batch
(:mod:`~reference_broker.mirroring.operations`). All messages are confirmed late: when they are safe here and every
mirror has confirmed the batch that brought them. A majority is not enough; that is what mirrored queues cost.

:class:`Deliveries` says how far the master may deliver. A mirror that becomes the master must know which messages the
former master may have delivered, and flags these as redelivered. So the master announces deliveries to the mirrors
before it makes them, some ahead, so that it seldom waits. A master that is cut off from its mirrors delivers only
announced messages."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.classic.message_store import MessageStore
from reference_broker.classic.parts import NEVER, FoundPart, Part
from reference_broker.message_run import MessageRun
from reference_broker.mirroring.operations import Add, AppliedPublishes, Delivered, Take
from reference_broker.mirroring.stored_end import StoredEnd
from reference_broker.types import NodeId

AHEAD_MIN: Final = 256
"""The least number of messages that are announced ahead of their delivery. After a promotion the new master may mark
this number of messages as redelivered although they were not delivered before."""


class RecordingStore:
    """A store whose changes are recorded."""

    def __init__(self, store: MessageStore) -> None:
        """Begins with a store in which every confirmed message is safe."""
        self.store = store
        self.found: list[FoundPart] = []
        self.stored_end = StoredEnd(store.next_seq)
        self.deliveries = Deliveries(store.delivered_end)
        self._batch: list[bytes | memoryview] = []

    @property
    def next_seq(self) -> int:
        """The number of the next message."""
        return self.store.next_seq

    @property
    def delivered_end(self) -> int:
        """Messages below may have been delivered."""
        return self.store.delivered_end

    def add(self, run: MessageRun, persistent: bool | npt.NDArray[np.bool_], expires: int = NEVER) -> list[Part]:
        """Take a run behind all other messages."""
        self._batch += Add(self.store.next_seq, run, persistent, expires).buffers()
        parts = self.store.add(run, persistent, expires)
        for part in parts:
            self.stored_end.added(part.seq, part.seq + part.count, is_written=self.store.is_written(part))
        return parts

    def is_written(self, part: Part) -> bool:
        """Whether the part goes to the drive."""
        return self.store.is_written(part)

    def is_confirmed_late(self, part: Part) -> bool:
        """Always: when all mirrors have the part."""
        return True

    def run(self, seq: int) -> MessageRun:
        """The messages of the part that begins at ``seq``."""
        return self.store.run(seq)

    def needs_reading(self, seq: int) -> bool:
        """Whether :meth:`run` would read from the drive."""
        return self.store.needs_reading(seq)

    def take(self, part_seq: int, start: int, count: int, step: int = 1) -> None:
        """Messages of a part are gone."""
        self._batch += Take(part_seq, start, count, step).buffers()
        self.store.take(part_seq, start, count, step)

    def parts(self) -> list[Part]:
        """The parts with messages in the queue, oldest first."""
        return self.store.parts()

    def oldest(self) -> int:
        """The number of the oldest part; the number of the next message if there is none."""
        return self.store.oldest()

    def delivered(self, seq_end: int) -> None:
        """Messages below ``seq_end`` have been delivered. The mirrors know that they may have been."""
        self.store.delivered(seq_end)

    def applied(self, node: NodeId, boot_id: int, number: int) -> None:
        """The publishes of a process are in the queue up to this number."""
        self._batch += AppliedPublishes(node, boot_id, number).buffers()

    def delete(self) -> None:
        """Give up the queue."""
        self.store.delete()

    def take_batch(self) -> bytes:
        """The operations since the last call, with a due announcement; empty if there is nothing."""
        if (end := self.deliveries.announced()) is not None:
            self._batch += Delivered(end).buffers()
        batch, self._batch = self._batch, []
        return b"".join(batch)


class Deliveries:
    """How far the master may deliver: up to the end of the deliveries that it has announced to all mirrors.

    Ends are above sequence numbers. Invariant: delivered messages are below ``_end``, and ``_end`` was announced in a
    batch that has been round the ring, through every present mirror.
    """

    def __init__(self, end: int) -> None:
        """``end``: end of the deliveries so far."""
        self.ahead_min = AHEAD_MIN
        self.is_free = True
        """There is no mirror to announce deliveries to."""
        self._end = 0
        self._wanted = end
        """End of the wanted deliveries so far, allowed or not."""
        self._wanted_before = end
        """The same at the last announcement."""
        self._announced = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """Number of the batch and end of each announcement that some mirrors lack."""

    def allow(self, end: int) -> bool:
        """Whether messages below ``end`` may be delivered now. If not, they may be after an announcement."""
        self._wanted = max(self._wanted, end)
        return end <= self._end or self.is_free

    def announced(self) -> int | None:
        """The end that the present batch has to announce; None if what was announced is enough. The faster the
        deliveries, the farther ahead of them."""
        ahead = max(self.ahead_min, 2 * (self._wanted - self._wanted_before))
        if self.is_free or self._wanted + self.ahead_min // 2 <= self._announced:
            return None
        self._wanted_before, self._announced = self._wanted, self._wanted + ahead
        return self._announced

    def sent(self, number: int) -> None:
        """The present batch is under way, and has that number."""
        if self._announced > (self._under_way[-1][1] if self._under_way else self._end):
            self._under_way.append((number, self._announced))

    def heard(self, number: int) -> bool:
        """All mirrors have the batches up to ``number``. Returns whether more may be delivered than before."""
        end = self._end
        while self._under_way and self._under_way[0][0] <= number:
            self._end = self._under_way.popleft()[1]
        return self._end > end

    def begin_anew(self) -> None:
        """There is a mirror without any announcement yet."""
        self._end = self._announced = 0
        self._under_way.clear()


class Confirmations:
    """The mirrors' confirmations of the master's batches."""

    def __init__(self) -> None:
        self._confirmed: dict[NodeId, int] = {}
        self._ends: deque[tuple[int, int]] = deque()
        """Number of each batch that some mirrors have not confirmed, and the end of its messages."""
        self._end = 0

    def mirrors_are(self, nodes: tuple[NodeId, ...]) -> None:
        """These are the mirrors now. A new mirror has confirmed nothing yet."""
        self._confirmed = {node: self._confirmed.get(node, -1) for node in nodes}

    def sent(self, number: int, seq_end: int) -> None:
        """A batch is under way."""
        self._ends.append((number, seq_end))

    def confirmed(self, node: NodeId, number: int) -> None:
        """A mirror has confirmed everything up to a batch."""
        if node in self._confirmed:
            self._confirmed[node] = max(self._confirmed[node], number)

    def everywhere(self) -> int:
        """The number of the last batch that all mirrors have confirmed; above all numbers if there is no mirror."""
        return min(self._confirmed.values(), default=1 << 62)

    def of(self, node: NodeId) -> int:
        """The number of the last batch that a mirror has confirmed; -1 if it has confirmed nothing yet."""
        return self._confirmed.get(node, -1)

    def end(self, own_end: int) -> int:
        """End of the messages that are safe everywhere; ``own_end``: end of the messages that are safe here."""
        everywhere = self.everywhere()
        while self._ends and self._ends[0][0] <= everywhere:
            self._end = self._ends.popleft()[1]
        return min(own_end, self._end) if self._ends else own_end
