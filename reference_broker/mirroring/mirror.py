"""A mirror: a copy of the messages of a queue, in the store of another node. Pure, except for the store.

A mirror takes the master's batches in order, and repeats the master's operations in its own store. Part for part, both
have the same messages under the same sequence numbers. A new mirror begins empty, with the master's next number;
operations about older messages do nothing. Consumers and their held messages are the master's affair.

A mirror *confirms* a batch when its own messages are as safe as the store makes them, and the direct copies of the
batch's publishes have come (:mod:`~reference_broker.mirroring.copies`).

Invariants
    at the same batch, a synchronised mirror has exactly the messages of the master (I32)
    a batch is confirmed after all batches before it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from reference_broker.classic.message_store import MessageStore
from reference_broker.mirroring.copies import DirectCopies, Process
from reference_broker.mirroring.operations import Add, AppliedPublishes, Delivered, Operation, Take, decode
from reference_broker.mirroring.stored_end import StoredEnd


class MirrorStore(MessageStore, Protocol):
    """The messages of one queue; :class:`reference_broker.classic.store.StoredQueue` is one."""

    next_seq: int

    def has(self, part_seq: int) -> bool:
        """Whether a part begins at this number that has messages in the queue."""

    def take_over(self) -> None:
        """The messages here become the queue's first messages."""


class DivergedError(Exception):
    """The mirror differs from the master's view of it: the copy must begin anew."""


class MirrorCopy:
    """The copy of one queue on one node."""

    def __init__(self, store: MirrorStore) -> None:
        self.store = store
        self.copies = DirectCopies()
        self.confirmed = 0
        """The number of the last batch that this mirror confirms."""
        self._stored = StoredEnd(store.next_seq)
        self._unconfirmed: deque[tuple[int, int, tuple[tuple[Process, int], ...]]] = deque()
        """Number and last message of each batch, and the last number of each publisher in it."""

    def begin(self, batch: int, next_seq: int) -> None:
        """The copy has everything up to a batch, and the next message gets this number."""
        self.confirmed = batch
        self._jump(next_seq)

    def fill(self, payload: bytes) -> None:
        """Take messages that were in the queue before the copy began. Their numbers go up. The ring does not bring
        them, so the master tells whose publishes are among them."""
        for operation in decode(payload):
            if isinstance(operation, Add):
                self._jump(operation.seq)
            elif isinstance(operation, AppliedPublishes):
                self.copies.applied((operation.node, operation.boot_id), operation.number)
            self._do(operation)

    def apply(self, number: int, payload: bytes) -> None:
        """Take the next batch. Raises :class:`DivergedError` if its messages do not follow the messages here, and
        ValueError if it is damaged."""
        publishers: list[tuple[Process, int]] = []
        for operation in decode(payload):
            if isinstance(operation, AppliedPublishes):
                process = operation.node, operation.boot_id
                self.copies.applied(process, operation.number)
                publishers.append((process, operation.number))
            else:
                self._do(operation)
        self._unconfirmed.append((number, self.store.next_seq, tuple(publishers)))

    def _do(self, operation: Operation) -> None:
        store = self.store
        match operation:
            case Add(seq, run, persistent, expires):
                if seq != store.next_seq:
                    raise DivergedError(f"message {seq} comes, and {store.next_seq} is next")
                for part in store.add(run, persistent, expires):
                    self._stored.added(part.seq, part.seq + part.count, is_written=store.is_written(part))
            case Take(seq, start, count, step):
                if store.has(seq):
                    store.take(seq, start, count, step)
            case Delivered(seq_end):
                store.delivered(seq_end)
            case AppliedPublishes():
                pass

    def stored(self, seq_end: int) -> None:
        """The store has told that the messages below ``seq_end`` survive."""
        self._stored.stored(seq_end)

    @property
    def is_stored(self) -> bool:
        """Whether everything that is here is as safe as the store makes it."""
        return self._stored.end >= self.store.next_seq

    def confirm(self) -> int:
        """The number of the last batch that is confirmed now."""
        end = self._stored.end
        while self._unconfirmed and self._unconfirmed[0][1] <= end and self._has_both(self._unconfirmed[0][2]):
            self.confirmed = self._unconfirmed.popleft()[0]
        return self.confirmed

    def _has_both(self, publishers: Iterable[tuple[Process, int]]) -> bool:
        return all(self.copies.has(process, number) for process, number in publishers)

    def _jump(self, next_seq: int) -> None:
        if next_seq < self.store.next_seq:
            raise DivergedError(f"message {next_seq} comes, and {self.store.next_seq} is next")
        self.store.next_seq = next_seq
        self._stored.starts_at(next_seq)
