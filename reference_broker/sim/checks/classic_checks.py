"""The promises of the store of classic queues, checked on the drive of each node.

The checks know the store's formats (docs/internals/classic-store.md) and the ledger of the clients. They do not ask the
store what it has written. When the store tells that messages survive, everything that must survive is looked up on the
platter. When a node starts, everything that was confirmed is looked up in what the store found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from reference_broker.classic.index_codec import GONE, PERSISTENT, RECORD_SIZE, STORED
from reference_broker.classic.recovery import FoundQueue
from reference_broker.classic.store import ClassicStore
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import store_of
from reference_broker.machines.commands import Enqueue
from reference_broker.sim.checks.invariants import check
from reference_broker.sim.checks.ledger import NUMBER, MessageLedger
from reference_broker.sim.disk import CLASSIC, SimFiles, UnsyncedFile
from reference_broker.types import GroupId, NodeId

_SHARED_FILE: Final = slice(4, 8)
_NO_FILE: Final = bytes(4)
_HEAD: Final = 12
"""Head of a part: a mark of 4 octets, and its queue."""


class ClassicChecks:
    """What the owners of classic queues apply, write and find."""

    def __init__(self, ledger: MessageLedger) -> None:
        self._ledger = ledger
        self._names: dict[GroupId, str] = {}
        self._unstored: dict[GroupId, deque[tuple[int, int]]] = {}
        """Sequence number and number of each message that a queue's owner has not heard of as stored."""

    def begins(self, record: QueueRecord) -> None:
        """A node owns a queue."""
        self._names[record.group] = record.name
        self._unstored[record.group] = deque()

    def numbered(self, group: GroupId, next_seq: int, commands: Iterable[object]) -> None:
        """An owner is about to apply commands; the first message gets the sequence number ``next_seq``."""
        for command in commands:
            if isinstance(command, Enqueue):
                texts = [int(number) for number, _ in NUMBER.findall(bytes(command.run.data))]
                numbers = [self._ledger.number_in(self._names[group], number) for number in texts]
                self._unstored[group].extend(enumerate(numbers, next_seq))
                next_seq += command.run.count

    def heard(self, group: GroupId, seq_end: int) -> None:
        """The owner hears that the messages below ``seq_end`` survive, and may confirm them."""
        unstored = self._unstored[group]
        while unstored and unstored[0][0] < seq_end:
            self._ledger.stored(unstored.popleft()[1])

    def applies(self, node: NodeId, queue: str, commands: Iterable[object]) -> None:
        """An owner applies commands."""
        for command in commands:
            if isinstance(command, Enqueue):
                self._ledger.taken(node, queue, bytes(command.run.data))

    # The drive

    def stored(self, node: NodeId, files: SimFiles, groups: Collection[GroupId]) -> None:
        """The store of a node tells that messages of these queues survive. No octet of a message that must survive, and
        no record or name of such a message, may be in the kernel's memory only (X9)."""
        durable = set(files.names(f"{CLASSIC}/durable"))
        for directory in sorted({f"{group:016x}" for group in groups} & durable):
            for file in files.unsynced(f"{CLASSIC}/durable/{directory}"):
                self._look_at(node, file)
        for file in files.unsynced(f"{CLASSIC}/shared"):
            octets = [bytes(file.platter[:_HEAD]), *(octets for _at, octets in file.writes)]
            if any(_queue_of(each) in groups for each in octets):
                self._look_at(node, file)

    def _look_at(self, node: NodeId, file: UnsyncedFile) -> None:
        where = f"node {node}, {file.path}"
        if file.path.endswith(".qi"):
            missing = _records_missing(file)
            check(not missing, "X9", f"{where}: records in slots {missing[:5]} are not on disk")
            states = bytes(file.platter[::RECORD_SIZE])
            has_some = STORED in states or GONE in states
        else:
            unsynced = [int(number) for _at, octets in file.writes for number, _ in NUMBER.findall(octets)]
            missing = [number for number in unsynced if self._ledger.must_survive(number)]
            check(not missing, "X9", f"{where}: messages {missing[:5]} are not on disk")
            synced = {int(number) for number, _ in NUMBER.findall(bytes(file.platter))}
            has_some = any(self._ledger.must_survive(number) for number in synced)
        check(file.is_named or not has_some, "X9", f"{where}: the name of the file is not on disk")

    # A start

    def recovered(self, node: NodeId, store: ClassicStore) -> None:
        """Check what the store of a node has found at a start: all that must survive, and no damage, because a crash
        does none (X10)."""
        check(not store.findings, "X10", f"node {node} tells of damage: {[str(each) for each in store.findings[:3]]}")
        found: set[int] = set()
        for group, contents in contents_of(store, store._found).items():
            found |= self._ledger.found(node, self._names.get(group), contents)
        self._ledger.check_found(node, found)

    # The end

    def ended(
        self, node: NodeId, files: SimFiles, store: ClassicStore, living: Collection[tuple[QueueRecord, int]]
    ) -> None:
        """All is quiet, and a node has these classic queues, each with the number of its copy: check its files
        (X11)."""
        kinds = {True: "durable", False: "transient"}
        for is_durable, name in kinds.items():
            groups = {f"{store_of(each.group, since):016x}" for each, since in living if each.durable is is_durable}
            others = set(files.names(f"{CLASSIC}/{name}")) - groups
            check(not others, "X11", f"node {node} keeps files of queues that are gone: {name} {sorted(others)}")
        names = [name for kind in kinds.values() for group in files.names(f"{CLASSIC}/{kind}")
                 for name in files.names(f"{CLASSIC}/{kind}/{group}")]  # fmt: skip
        shared = _count(files.names(f"{CLASSIC}/shared"), ".rdq")
        counted = store.counters.classic_segments, store.counters.classic_segments, store.counters.classic_shared_files
        there = _count(names, ".qi"), _count(names, ".qs"), shared
        check(there == counted, "X11", f"node {node} has {there} index, message and shared files, and counts {counted}")
        check(shared <= max(1, len(living)), "X11", f"node {node} has {shared} shared files for empty queues")
        check(store.memory_bytes == 0, "X11", f"node {node} counts {store.memory_bytes} octets of no messages")


def contents_of(store: ClassicStore, found: Mapping[GroupId, FoundQueue]) -> dict[GroupId, list[bytes]]:
    """The contents of the messages that a store has found, by queue, in order."""
    contents: dict[GroupId, list[bytes]] = {}
    for group, queue in found.items():
        contents[group] = []
        for each in queue.parts:
            run = store.read(queue.files, each.part, group)
            contents[group] += [run.content(position) for position in each.positions.tolist()]
    return contents


def _queue_of(octets: bytes) -> int:
    """The queue of the first part in octets of a shared file."""
    return int.from_bytes(octets[4:_HEAD], "big")


def _records_missing(file: UnsyncedFile) -> list[int]:
    """The slots of an index segment in which a persistent message of the shared store is stored, but not on the
    platter. Other messages are found without their records."""
    missing = []
    for offset, octets in file.writes:
        for at in range(0, len(octets) - RECORD_SIZE + 1, RECORD_SIZE):
            record = octets[at : at + RECORD_SIZE]
            there = bytes(file.platter[offset + at : offset + at + RECORD_SIZE])
            is_stored = record[0] == STORED and record[1] & PERSISTENT and record[_SHARED_FILE] != _NO_FILE
            if is_stored and there[1:] != record[1:]:
                missing.append((offset + at) // RECORD_SIZE)
    return missing


def _count(names: Sequence[str], suffix: str) -> int:
    return sum(name.endswith(suffix) for name in names)
