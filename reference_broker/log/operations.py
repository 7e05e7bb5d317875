"""The operations that the owner asks of the log's threads, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference_broker.log.extents import Ranges
from reference_broker.log.snapshots import SnapshotKey
from reference_broker.log.state import Group
from reference_broker.types import Entry, GroupId, LogIndex, NodeId, Term


@dataclass(frozen=True, slots=True)
class Append:
    """Append consecutive entries; earlier entries at and above the first index are gone. ``octets`` is the size of the
    payloads, which count as backlog until the writer is done with the operation."""

    group: Group
    entries: Sequence[Entry]
    octets: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop ``index`` and everything above."""

    group: Group
    index: LogIndex


@dataclass(frozen=True, slots=True)
class Reset:
    """The log starts anew behind an installed snapshot."""

    group: Group
    index: LogIndex
    term: Term


@dataclass(frozen=True, slots=True)
class StoreHardState:
    """Store term and vote."""

    group: Group
    term: Term
    voted_for: NodeId


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """A new group."""

    group: Group
    meta: bytes


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A group goes for good."""

    group: Group


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Passes through the writer, so that all entries appended before it are on disk when it is written."""

    group: Group
    key: SnapshotKey
    state: bytes
    live: Ranges


@dataclass(frozen=True, slots=True)
class StoreChunk:
    """The next chunk of a snapshot that another member sends. Passes through the writer, so that the group is on disk
    before its snapshot is."""

    group: Group
    key: SnapshotKey
    number: int
    last: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class PrepareFile:
    """Make the WAL's next file ready."""


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a deleted group's directory."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class Sweep:
    """Look for WAL files that are dead, and for snapshot files of ``group`` that nobody needs."""

    group: Group | None = None


WriterOp = Append | Truncate | Reset | StoreHardState | CreateGroup | DeleteGroup | TakeSnapshot | StoreChunk
HousekeeperOp = TakeSnapshot | StoreChunk | PrepareFile | RemoveGroup | Sweep
