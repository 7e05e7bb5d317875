"""The store of a node's classic queues, as the queues use it.

Theory of operation
-------------------
The owner's thread keeps for each queue its *parts* (:mod:`~reference_broker.classic.parts`), by their first sequence
number. A published run becomes one part or a few. Persistent messages of durable queues go to a writer, which sends
:class:`~reference_broker.classic.writer.Stored` when they would survive a loss of power. All messages of a lazy queue
go to the writer, and leave memory as soon as they are written; their confirms wait for that, so publishers cannot fill
the memory faster than the drive writes. Other messages stay in memory only.

The bodies of all queues together have a limit in memory. Above the limit, new messages that are on the drive anyway
leave memory. So the oldest messages, which are delivered next, stay.

A body that is not in memory is read back as a whole part. The last part that a queue read stays in memory, because its
other messages are wanted next.

Invariants
    a part has its body in memory or has a place on the drive
    sequence numbers of a queue go up, and a part never crosses an index segment
    a queue that is deleted has no files when ``Deleted`` is told

Back of the envelope: to add a run of 500 messages of 1 KB takes 10 us on the owner's thread and 0.6 ms on the writer's,
most of it CRC and copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from reference_broker.classic import part_codec
from reference_broker.classic.clean_stop import CleanStops, StoppedQueue
from reference_broker.classic.counters import StoreCounters
from reference_broker.classic.index_codec import segment_of
from reference_broker.classic.lanes import lanes_of
from reference_broker.classic.openings import Openings
from reference_broker.classic.parts import NEVER, FoundPart, Part, QueueName
from reference_broker.classic.queue_files import QueueFiles
from reference_broker.classic.recovery import FIRST_SEQ, FoundQueue, recover
from reference_broker.classic.shared import SHARED_FILE_BYTES, SharedAppender, SharedStore
from reference_broker.classic.writer import AddPart, Notify, Operation, StoreHealth, StoreWriter, TakeMessages
from reference_broker.message_run import MessageRun
from reference_broker.storage.executor import Executor, IoPolicy
from reference_broker.storage.files import Files
from reference_broker.storage.findings import StartFinding
from reference_broker.types import GroupId

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 256 << 20
_KINDS: Final = ("durable", "transient")
"""The directories of queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The place of the store, and its limits."""

    directory: str
    memory_bytes: int = MEMORY_BYTES
    """Octets of messages in memory above which new messages that are on the drive leave memory."""
    shared_file_bytes: int = SHARED_FILE_BYTES


def was_used(files: Files, directory: str) -> bool:
    """Whether a store was open in this directory before, which need not exist."""
    return _KINDS[0] in files.names(directory)


class ClassicStore:
    """All classic queues of one node. One thread owns the store; writers have other threads, or none."""

    def __init__(
        self, config: StoreConfig, files: Files, notify: Notify, policy: IoPolicy, clock: Callable[[], int]
    ) -> None:
        """Use :meth:`open`."""
        self.config = config
        self.memory_bytes = 0
        """Octets of the messages in memory."""
        self.findings: list[StartFinding] = []
        """Losses and damage that :meth:`open` found, and went on without."""
        self._files = files
        for name in _KINDS:
            files.make_dir(f"{config.directory}/{name}")
        self._shared = shared = SharedStore(
            files, f"{config.directory}/shared", config.shared_file_bytes, self.findings
        )
        self._stops = CleanStops(files, config.directory)
        self._health = health = StoreHealth()
        self._counters = StoreCounters(clock)
        self._lanes = lanes_of(
            policy,
            lambda each: StoreWriter(files, config.directory, SharedAppender(shared, each), each, health, notify),
            self._counters,
        )
        self._queues: dict[GroupId, StoredQueue] = {}
        self._found: dict[GroupId, FoundQueue] = {}

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        files: Files,
        notify: Notify,
        policy: IoPolicy,
        clock: Callable[[], int] = monotonic_ns,
    ) -> ClassicStore:
        """Read the store's files, and start. ``notify`` is called in a writer's thread, and ``clock`` gives the
        nanoseconds by which syncs are timed. Raises OSError if the drive cannot be read or written."""
        store = cls(config, files, notify, policy, clock)
        lanes = store._lanes

        def later(group: GroupId) -> tuple[SharedAppender, StoreCounters]:
            writer = lanes.writer(group)
            return writer.shared, writer.counters

        stopped = store._stops.take(store.findings)
        openings = Openings(files, config.directory)
        if (older := openings.older()) is not None:
            store.findings.append(older)
            stopped = None  # the deliveries since that stop are unknown
        openings.count()
        store._found = recover(files, config.directory, store._shared, later, stopped, store.findings)
        for group, found in store._found.items():
            lanes.writer(group).queues[group] = found.files
        lanes.start()
        return store

    @property
    def counters(self) -> StoreCounters:
        """The figures of the store."""
        counters = self._lanes.counters()
        counters.classic_shared_files = len(self._shared)
        return counters

    def queue(self, name: QueueName) -> StoredQueue:
        """The queue of that name, with its messages from the start."""
        if (queue := self._queues.get(name.group)) is None:
            found = self._found.pop(name.group, None) if name.is_durable else None
            queue = self._queues[name.group] = StoredQueue(self, name, found)
        return queue

    def has(self, group: GroupId) -> StoredQueue | None:
        """The queue of this group, if it was asked for by its name."""
        return self._queues.get(group)

    def keep_only(self, groups: Collection[GroupId]) -> None:
        """Delete the found files of queues that are gone by now."""
        for group in [group for group in self._found if group not in groups]:
            del self._found[group]
            self._lanes.delete(QueueName(group, is_durable=True))

    def deleted(self, queue: StoredQueue) -> None:
        """A queue gives up everything that it wrote."""
        self._queues.pop(queue.name.group, None)
        self._lanes.delete(queue.name)

    def submit(self, operation: Operation) -> None:
        """Hand an operation to the writer of its queue."""
        if type(operation) is AddPart:
            self._counters.classic_handed_bytes += operation.octets
        self._lanes.submit(operation)

    def executors(self) -> Iterator[Executor[Operation]]:
        """Without threads: the executors whose ``run_pending`` the owner may call, each when it likes."""
        return self._lanes.executors()

    def run_pending(self) -> bool:
        """Without threads: carry out what waits. False if there was nothing."""
        return sum(executor.run_pending() for executor in self.executors()) > 0

    def read(self, files: QueueFiles | None, part: Part, group: GroupId) -> MessageRun:
        """Read a part back from the drive."""
        place = part.place
        assert place is not None, "a part without a body has a place"
        if place.file:
            file = self._shared.file(place.file)
        else:
            assert files is not None, "a queue that wrote has files"
            file = files.segments[segment_of(part.seq)].messages
        octets = file.read(place.offset, place.size)
        self._counters.classic_reads += 1
        self._counters.classic_read_bytes += len(octets)
        return part_codec.decode_part(octets, group, part.seq, place.check)

    def files_of(self, group: GroupId) -> QueueFiles | None:
        """The files of a queue, None before it has written anything."""
        return self._lanes.files_of(group)

    def close(self) -> None:
        """Finish what waits, and leave the file of a clean stop."""
        self._lanes.close()
        if not self._health.has_failed:
            delivered = {group: queue.delivered_end for group, queue in self._queues.items() if queue.name.is_durable}
            delivered |= {group: found.delivered_end for group, found in self._found.items()}
            try:
                self._stops.write({group: self._stopped(group, end) for group, end in delivered.items()})
            except OSError as error:  # a full drive, say: everything else of the store is on it
                log.warning(
                    "the classic store stops without its file of a clean stop (%s): after the start all its messages "
                    "come as redelivered",
                    error,
                )
        self._shared.close()

    def _stopped(self, group: GroupId, delivered_end: int) -> StoppedQueue:
        """The facts about a queue for the next start."""
        files = self.files_of(group)
        return StoppedQueue(delivered_end, files.messages() if files is not None else {})


class StoredQueue:
    """The messages of one queue."""

    def __init__(self, store: ClassicStore, name: QueueName, found: FoundQueue | None) -> None:
        self.name = name
        self.next_seq = found.next_seq if found else FIRST_SEQ
        self.delivered_end = found.delivered_end if found else FIRST_SEQ
        """Messages below this sequence number may have been delivered."""
        self.found: list[FoundPart] = found.parts if found else []
        """The parts at the start, in order."""
        self._store = store
        self._parts = {each.part.seq: each.part for each in self.found}
        for each in self.found:
            each.part.gone = _gone(each)
            each.part.is_written = True
        self._last_read: tuple[int, MessageRun] | None = None

    def be_lazy(self, is_lazy: bool) -> None:
        """Write all messages from now on, or only the messages that must survive."""
        if is_lazy != self.name.is_lazy:
            self.name = replace(self.name, is_lazy=is_lazy)

    def add(self, run: MessageRun, persistent: bool | npt.NDArray[np.bool_], expires: int = NEVER) -> list[Part]:
        """Take a run of messages behind all others. ``persistent`` is for all messages or for each. Returns the parts.
        The parts that :meth:`is_written` of are stored when ``Stored`` says so."""
        parts = []
        base = self.next_seq
        for stretch in part_codec.stretches(run, base, persistent):
            body = part_codec.cut(run, stretch.start, stretch.count)
            seq = base + stretch.start
            part = Part(seq, stretch.count, body, stretch.count, expires, stretch.is_large, stretch.is_persistent)
            self._parts[seq] = part
            self.next_seq = seq + stretch.count
            self._keep(part)
            parts.append(part)
        return parts

    def is_written(self, part: Part) -> bool:
        """Whether the part goes to the drive."""
        return part.is_written

    def is_confirmed_late(self, part: Part) -> bool:
        """Whether a confirm of the part's messages waits until the writer is done with them."""
        return self.is_written(part)

    def _keep(self, part: Part) -> None:
        store = self._store
        part.is_written = self.name.is_lazy or (part.is_persistent and self.name.is_durable)
        octets = 0 if part.run is None else len(part.run.data)
        drops_body = part.is_written and (self.name.is_lazy or store.memory_bytes > store.config.memory_bytes)
        if not drops_body and part.run is not None:
            part.memory_bytes = octets
            store.memory_bytes += octets
        if part.is_written:
            store.submit(AddPart(self.name, part, drops_body, octets))

    def run(self, seq: int) -> MessageRun:
        """The messages of the part that begins at ``seq``. Raises OSError or :class:`~reference_broker.classic.
        part_codec.DamagedPartError` if the drive does not give them back."""
        part = self._parts[seq]
        if (run := part.run) is not None:
            return run
        if self._last_read is None or self._last_read[0] != seq:
            self._last_read = seq, self._store.read(self._store.files_of(self.name.group), part, self.name.group)
        return self._last_read[1]

    def needs_reading(self, seq: int) -> bool:
        """Whether :meth:`run` would read the part from the drive."""
        return self._parts[seq].run is None and (self._last_read is None or self._last_read[0] != seq)

    def take(self, part_seq: int, start: int, count: int, step: int = 1) -> None:
        """Messages at positions ``start, start + step, ...`` of a part are gone. Each message goes once."""
        part = self._parts[part_seq]
        part.left -= count
        if not part.left:
            del self._parts[part_seq]
            self._forget(part)
        elif part.gone is None:
            part.gone = [(start, count, step)]
        else:
            first, known, known_step = part.gone[-1]
            if step == known_step == 1 and first + known == start:
                part.gone[-1] = first, known + count, 1
            else:
                part.gone.append((start, count, step))
        if self.is_written(part):
            self._store.submit(TakeMessages(self.name, part_seq + start, count, step, self.next_seq))

    def has(self, part_seq: int) -> bool:
        """Whether a part begins at this number that has messages in the queue."""
        return part_seq in self._parts

    def parts(self) -> list[Part]:
        """The parts with messages in the queue, oldest first."""
        return list(self._parts.values())

    def oldest(self) -> int:
        """The number of the oldest part; the number of the next message if there is none."""
        return next(iter(self._parts), self.next_seq)

    def take_over(self) -> None:
        """The messages here become the queue's first messages."""
        self.found = [FoundPart(part, part.positions(), self._sizes(part)) for part in self._parts.values()]

    def _sizes(self, part: Part) -> npt.NDArray[np.int64]:
        """The octets of the bodies of the messages that are still in the queue."""
        sizes: npt.NDArray[np.int64] = self.run(part.seq).body_sizes()[part.positions()]
        return sizes

    def _forget(self, part: Part) -> None:
        self._store.memory_bytes -= part.memory_bytes
        if self._last_read is not None and self._last_read[0] == part.seq:
            self._last_read = None

    def delivered(self, seq_end: int) -> None:
        """Messages below ``seq_end`` have been delivered."""
        self.delivered_end = max(self.delivered_end, seq_end)

    def delete(self) -> None:
        """Give up the queue with everything that it wrote."""
        for part in self._parts.values():
            self._forget(part)
            part.left = 0
        self._parts.clear()
        self._store.deleted(self)


def _gone(found: FoundPart) -> list[tuple[int, int, int]] | None:
    """The messages of a part that were gone when it was found."""
    if len(found.positions) == found.part.count:
        return None
    missing = np.setdiff1d(np.arange(found.part.count), found.positions)
    breaks: Any = np.flatnonzero(np.diff(missing) != 1) + 1
    return [(int(each[0]), len(each), 1) for each in np.split(missing, breaks)]
