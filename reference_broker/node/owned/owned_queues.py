"""The queues that this node owns, and the store of their messages.

The store opens with the first such queue, or at the start if the store was open before. A node without these queues has
neither the files nor the thread of the store.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic_ns
from typing import Final

from reference_broker.access.names import listed
from reference_broker.classic.counters import COUNTERS
from reference_broker.classic.openings import Openings
from reference_broker.classic.parts import QueueName
from reference_broker.classic.store import ClassicStore, StoreConfig, StoredQueue, was_used
from reference_broker.classic.writer import Deleted, Notice, Stored, StoreFailed
from reference_broker.machines.cluster.metadata import QueueRecord, with_policy
from reference_broker.machines.cluster.mirror_records import store_of
from reference_broker.machines.cluster.policies import Policy
from reference_broker.node.observer import NO_OBSERVER, NodeObserver, before
from reference_broker.node.owned.owner import OwnerPorts, OwnerRunner
from reference_broker.queues.port import Channels, MemberPorts, QueueKind, QueueOwner
from reference_broker.storage.errors import StorageError, drive_failure
from reference_broker.storage.executor import IoPolicy
from reference_broker.storage.files import Files
from reference_broker.storage.findings import StartFinding
from reference_broker.types import GroupId

log = logging.getLogger(__name__)

_NO_FIGURES: Final = {spec.name: 0 for spec in COUNTERS}


class OwnedQueues:
    """The queues of one node that are in no log. All methods but :meth:`notify` are called in the loop's thread."""

    def __init__(
        self,
        config: StoreConfig,
        files: Files,
        policy: IoPolicy,
        call_soon: Callable[[Callable[[], None]], None],
        failed: Callable[[str], None],
        clock: Callable[[], int] = monotonic_ns,
        observer: NodeObserver = NO_OBSERVER,
    ) -> None:
        """``call_soon`` brings a call from the store's thread into the loop; ``failed`` stops the node. ``clock`` gives
        the nanoseconds by which syncs are timed."""
        self.runners: dict[GroupId, OwnerRunner] = {}
        self.store: ClassicStore | None = None
        self.findings: list[StartFinding] = []
        """Losses and damage that the store found when it opened, and the losses with a given-up master."""
        self._followers: dict[GroupId, Callable[[int], None]] = {}
        """The receivers of the news that messages survive, by the name of the queue in the store."""
        self._records: dict[GroupId, QueueRecord] = {}
        """The declared record of each followed queue and copy, by its name in the store."""
        self.policies: Callable[[], Collection[Policy]] = tuple
        """The policies of the cluster, as this node knows them."""
        self._config = config
        self._files = files
        self._policy = policy
        self._call_soon = call_soon
        self._failed = failed
        self._clock = clock
        self._observer = observer
        self._notices: deque[Sequence[Notice]] = deque()
        if was_used(files, config.directory):
            self._open()
        elif (gone := Openings(files, config.directory).gone()) is not None:
            self.findings.append(gone)

    def begin(
        self, record: QueueRecord, kind: QueueKind, channels: Channels, services: MemberPorts, node: OwnerPorts,
        now_ms: Callable[[], int],
    ) -> tuple[OwnerRunner, QueueOwner]:  # fmt: skip
        """Own a queue, with the messages that the store has of it. Raises StorageError if the store of the first queue
        cannot be opened."""
        assert kind.owner is not None, "a kind that lives on one node has an owner"
        host = kind.owner(record, self.begin_copy(record, record.owner_since), channels, services, now_ms)
        runner = self.runners[record.group] = OwnerRunner(record, host, node)
        self.follow(record, record.owner_since, runner.stored)
        return runner, host

    def gone(self, record: QueueRecord) -> None:
        """The queue was deleted, or another node owns it."""
        if self.runners.pop(record.group, None) is not None:
            self.follow_no_more(record, record.owner_since)

    def begin_copy(self, record: QueueRecord, since: int) -> StoredQueue:
        """The messages of the copy ``since`` of a queue. Raises StorageError as :meth:`begin` does."""
        name = QueueName(store_of(record.group, since), is_durable=record.durable, is_lazy=self._is_lazy(record))
        return (self.store or self._opened()).queue(name)

    def _is_lazy(self, record: QueueRecord) -> bool:
        return dict(with_policy(record, self.policies()).arguments).get("x-queue-mode") == "lazy"

    def policies_changed(self) -> None:
        """Another policy may hold: queues and copies are lazy from now on, or no more."""
        for name, record in self._records.items():
            if self.store is not None and (stored := self.store.has(name)) is not None:
                stored.be_lazy(self._is_lazy(record))

    def follow(self, record: QueueRecord, since: int, stored: Callable[[int], None]) -> None:
        """Call ``stored`` when messages of the copy survive, with the end of their numbers."""
        self._followers[store_of(record.group, since)] = stored
        self._records[store_of(record.group, since)] = record

    def follow_no_more(self, record: QueueRecord, since: int) -> None:
        """End the calls for the copy."""
        self._followers.pop(store_of(record.group, since), None)
        self._records.pop(store_of(record.group, since), None)

    def lacks_messages(self, record: QueueRecord, former: str) -> None:
        """A copy here that was not synchronised became the master's, because the node ``former`` was lost. No other
        place would ever tell the loss."""
        what = f"its master on {former} was lost, and no mirror was synchronised: what only {former} had is gone"
        fix = "set ha-promote-on-failure to when-synced, if such a queue is to wait for its master"
        self.findings.append(
            StartFinding(what=what, where=str(self._config.directory), fix=fix, queue=listed(record.name))
        )
        log.error("%s", self.findings[-1])

    def became_current(self, copies: Collection[GroupId]) -> None:
        """This node has the queues and copies that have begun, and these ``copies`` by their names in the store, and no
        others: delete the rest from the drive."""
        if self.store is not None:
            self.store.keep_only(self._followers.keys() | set(copies))

    def counters(self) -> Mapping[str, int]:
        """The figures of the store."""
        return self.store.counters.as_dict() if self.store is not None else _NO_FIGURES

    def close(self) -> None:
        """Leave the messages in order. Nothing that was confirmed depends on this."""
        if self.store is not None:
            self.store.close()

    def notify(self, notices: Sequence[Notice]) -> None:
        """Called in the store's thread."""
        self._notices.append(notices)
        self._call_soon(self._take_notices)

    def _opened(self) -> ClassicStore:
        try:
            return self._open()
        except OSError as error:
            raise StorageError(drive_failure("the store of classic queues", self._config.directory, error)) from error

    def _open(self) -> ClassicStore:
        notify = before(self._observer.store_tells, self.notify)
        self.store = ClassicStore.open(self._config, self._files, notify, self._policy, self._clock)
        self._observer.store_opened(self.store)
        self.findings += self.store.findings
        return self.store

    def _take_notices(self) -> None:
        while self._notices:
            for notice in self._notices.popleft():
                match notice:
                    case Stored(group, seq_end):
                        if (stored := self._followers.get(group)) is not None:
                            stored(seq_end)
                    case Deleted(group):
                        log.debug("nothing is left of queue %x", group)
                    case StoreFailed(reason):
                        self._failed(reason)
