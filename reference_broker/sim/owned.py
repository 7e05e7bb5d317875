"""The classic queues of a node of the world. :class:`WatchedOwner` changes nothing but a limit; it shows the checkers
what the owner of a queue applies, and what it hears from the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from reference_broker.classic.message_store import MessageStore
from reference_broker.classic.store import MEMORY_BYTES, StoreConfig
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.mirroring.master import RecordingStore
from reference_broker.queues.classic import CLASSIC as KIND
from reference_broker.queues.classic_member import ClassicMember
from reference_broker.queues.kinds import KINDS
from reference_broker.queues.port import Channels, MemberPorts, QueueKind
from reference_broker.sim.checks import fifo_checks
from reference_broker.sim.disk import CLASSIC
from reference_broker.sim.environment import Checkers
from reference_broker.types import NodeId

_LOOK_EVERY: Final = 16


def store_config(chance: Random) -> StoreConfig:
    """The limits of a world's stores. Mostly they are so small that everything happens often."""
    return StoreConfig(
        directory=CLASSIC,
        memory_bytes=chance.choice((0, 2000, MEMORY_BYTES)),
        shared_file_bytes=chance.choice((1, 12_000, 100_000)),
    )


def watched_kinds(node: NodeId, checkers: Checkers) -> Mapping[str, QueueKind]:
    """All kinds of queues, with classic queues whose owners on ``node`` are watched."""
    return {**KINDS, KIND.name: replace(KIND, owner=partial(WatchedOwner, node, checkers))}


class WatchedOwner(ClassicMember):
    """A classic queue on its owner, and checkers that look on."""

    def __init__(
        self, on: NodeId, checkers: Checkers, record: QueueRecord, store: MessageStore, channels: Channels,
        node: MemberPorts, now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        checkers.classic.begins(record)
        super().__init__(record, store, channels, node, now_ms)
        checkers.story.owns(on, record)
        self._on = on
        self._checkers = checkers
        self._applied = 0

    def apply(self, commands: Sequence[Any]) -> None:
        """Have the checkers see the commands first, and now and then the queue afterwards."""
        checks, group = self._checkers.classic, self.record.group
        checks.numbered(group, self._plain_store.next_seq, commands)
        self._checkers.story.applies_at_once(self._on, group, commands)
        checks.applies(self._on, self.record.name, commands)
        super().apply(commands)
        self._applied += 1
        if self._applied % _LOOK_EVERY == 0:
            fifo_checks.look_through(self._on, self.machine)

    def stored(self, seq_end: int) -> None:
        """Have the checkers hear it first."""
        self._checkers.classic.heard(self.record.group, seq_end)
        super().stored(seq_end)

    def record_changes(self) -> RecordingStore:
        """Announce deliveries to mirrors in small numbers, so that they are often to be announced."""
        recording = super().record_changes()
        recording.deliveries.ahead_min = 1 + self.record.group % 8
        return recording
