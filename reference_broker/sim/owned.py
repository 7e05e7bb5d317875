"""The classic queues of a node of the world. :class:`SimOwnedQueues` changes nothing; it shows the checkers what the
owners apply, what the store tells, and what the store finds at a start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from reference_broker.classic.store import MEMORY_BYTES, ClassicStore, StoreConfig
from reference_broker.classic.writer import Notice, Stored
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.mirroring.master import RecordingStore
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.node.owned.owner import OwnerPorts, OwnerRunner
from reference_broker.queues.classic_member import ClassicMember
from reference_broker.queues.port import Channels, MemberPorts, QueueKind, QueueOwner
from reference_broker.sim import fifo_checks
from reference_broker.sim.classic_checks import ClassicChecks
from reference_broker.sim.disk import CLASSIC, SimFiles
from reference_broker.sim.story import Story
from reference_broker.storage.executor import IoPolicy
from reference_broker.types import NodeId

_LOOK_EVERY: Final = 16


def store_config(chance: Random) -> StoreConfig:
    """The limits of a world's stores. Mostly they are so small that everything happens often."""
    return StoreConfig(
        directory=CLASSIC,
        memory_bytes=chance.choice((0, 2000, MEMORY_BYTES)),
        shared_file_bytes=chance.choice((1, 12_000, 100_000)),
    )


class Watch(NamedTuple):
    """Who looks on: the node, its drive, the checkers, the story, and whoever hears that messages are stored."""

    node: NodeId
    files: SimFiles
    checks: ClassicChecks
    story: Story
    stored: Callable[[], None]


class SimOwnedQueues(OwnedQueues):
    """The owners and the store of one node."""

    def __init__(
        self,
        config: StoreConfig,
        policy: IoPolicy,
        watch: Watch,
        call_soon: Callable[[Callable[[], None]], None],
        failed: Callable[[str], None],
    ) -> None:
        self._watch = watch
        super().__init__(config, watch.files, policy, call_soon, failed)

    def begin(
        self, record: QueueRecord, kind: QueueKind, channels: Channels, services: MemberPorts, node: OwnerPorts,
        now_ms: Callable[[], int],
    ) -> tuple[OwnerRunner, QueueOwner]:  # fmt: skip
        """Have the checkers see what the owner applies."""
        watch = self._watch
        watch.checks.begins(record)
        runner, host = super().begin(record, kind, channels, services, node, now_ms)
        assert isinstance(host, ClassicMember)
        watch.story.owns(watch.node, record)
        apply, stored, applied, store = host.apply, host.stored, 0, host._store

        def heard(seq_end: int) -> None:
            watch.checks.heard(record.group, seq_end)
            stored(seq_end)

        def shown(commands: Sequence[Any]) -> None:
            nonlocal applied
            watch.checks.numbered(record.group, store.next_seq, commands)
            watch.story.applies_at_once(watch.node, record.group, commands)
            watch.checks.applies(watch.node, record.name, commands)
            apply(commands)
            applied += 1
            if applied % _LOOK_EVERY == 0:
                fifo_checks.look_through(watch.node, host.machine)

        record_changes = host.record_changes

        def announces_little() -> RecordingStore:
            recording = record_changes()
            recording.deliveries.ahead_min = 1 + record.group % 8
            return recording

        setattr(host, "record_changes", announces_little)  # noqa: B010
        setattr(host, "apply", shown)  # noqa: B010 - methods that are shown, not replaced
        setattr(host, "stored", heard)  # noqa: B010
        return runner, host

    def notify(self, notices: Sequence[Notice]) -> None:
        """The store's writer has finished a batch."""
        watch = self._watch
        watch.story.classic_noticed(watch.node, notices)
        if told := {notice.group for notice in notices if isinstance(notice, Stored)}:
            watch.checks.stored(watch.node, watch.files, told)
            watch.stored()
        super().notify(notices)

    def _open(self) -> ClassicStore:
        store = super()._open()
        self._watch.checks.recovered(self._watch.node, store)
        return store
