"""The metadata group on one node: declares and deletes of queues go in, groups start and stop here as they commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reference_broker.machines import metadata
from reference_broker.machines.metadata import (
    Answer,
    DeclareQueue,
    DeleteQueue,
    MetadataEffect,
    MetadataMachine,
    QueueAdded,
    QueueRecord,
    QueueRemoved,
)
from reference_broker.types import Entry, NodeId

Answered = Callable[[QueueRecord | None], None]

_COMMAND_BYTES = 256


class QueueStarter(Protocol):
    """The node's part: it runs the groups of its queues."""

    node: NodeId
    incarnation: int

    def queue_added(self, record: QueueRecord) -> None:
        """Run the queue's group here, unless it already runs."""

    def queue_removed(self, record: QueueRecord) -> None:
        """Stop the queue's group and remove its data, if it is here."""

    def queues_replaced(self, records: Sequence[QueueRecord]) -> None:
        """These are all the queues there are: stop the groups of all others."""


class MetadataHost:
    """Host of the metadata machine (see :class:`reference_broker.node.group.Host`)."""

    def __init__(self, starter: QueueStarter) -> None:
        self.machine = MetadataMachine()
        self._starter = starter
        self._effects: list[MetadataEffect] = []
        self._waiting: dict[int, Answered] = {}
        self._next_correlation = (starter.incarnation << 32) + 1  # an answer replayed from a former life matches nobody

    def declare(self, record: QueueRecord, answered: Answered) -> tuple[DeclareQueue, int]:
        """The command to propose, and its size; ``answered`` is called with the record that exists then."""
        command = DeclareQueue(record=record, node=self._starter.node, correlation=self._wait(answered))
        return command, _COMMAND_BYTES

    def delete(self, record: QueueRecord, answered: Answered) -> tuple[DeleteQueue, int]:
        """The command to propose, and its size; ``answered`` is called with None."""
        command = DeleteQueue(
            name=record.name, group=record.group, node=self._starter.node, correlation=self._wait(answered)
        )
        return command, _COMMAND_BYTES

    def encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        """One batch."""
        return [metadata.encode(commands)]

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a forwarded batch."""
        return [(command, _COMMAND_BYTES) for command in metadata.decode(sealed[:end])]

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry and keep its effects."""
        self._effects.extend(self.machine.apply(entry.payload[:end], skip))

    def run_effects(self) -> None:
        """Start and stop groups, answer those who wait on this node."""
        effects, self._effects = self._effects, []
        for effect in effects:
            match effect:
                case QueueAdded(record):
                    self._starter.queue_added(record)
                case QueueRemoved(record):
                    self._starter.queue_removed(record)
                case Answer(node, correlation, record) if node == self._starter.node:
                    if (answered := self._waiting.pop(correlation, None)) is not None:
                        answered(record)

    def has_clients_on(self, node: NodeId) -> bool:
        """Everybody may want to use a new queue at once."""
        return True

    def became_leader(self) -> None:
        """Leading the metadata asks for nothing more."""

    def lost_leadership(self) -> None:
        """Nor does following."""

    def snapshot(self) -> bytes:
        """The machine's state."""
        return self.machine.snapshot()

    def restore(self, state: bytes) -> None:
        """Take over this member's own snapshot. A queue that it lacks may exist: the log goes on."""
        self.machine = MetadataMachine.restore(state)
        for record in self.machine.queues.values():
            self._starter.queue_added(record)

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        """Take over a newer state: a queue it lacks is gone. Those who wait for a skipped command are answered."""
        self.machine = MetadataMachine.restore(state)
        self._effects.clear()
        records = list(self.machine.queues.values())
        self._starter.queues_replaced(records)
        for record in records:
            self._starter.queue_added(record)
        for command in skipped:
            name = command.record.name if isinstance(command, DeclareQueue) else command.name
            if (answered := self._waiting.pop(command.correlation, None)) is not None:
                answered(self.machine.queues.get(name))

    def live_entries(self) -> list[tuple[int, int]]:
        """None: the state stands on its own."""
        return []

    def lowest_live_entry(self) -> int | None:
        """None."""
        return None

    def _wait(self, answered: Answered) -> int:
        correlation = self._next_correlation
        self._next_correlation += 1
        self._waiting[correlation] = answered
        return correlation
