"""The operations that the owner asks of the log's threads, as values."""

from __future__ import annotations

from collections.abc import Sequence

from reference_broker.log.extents import Ranges
from reference_broker.log.snapshots import SnapshotKey
from reference_broker.log.state import Group
from reference_broker.records import record
from reference_broker.types import Entry, GroupId, LogIndex, NodeId, Term


@record
class Append:
    """Append consecutive entries; earlier entries at and above the first index are gone. ``octets`` is the size of the
    payloads, which count as backlog until the writer is done with the operation."""

    group: Group
    entries: Sequence[Entry]
    octets: int


@record
class Truncate:
    """Drop ``index`` and everything above."""

    group: Group
    index: LogIndex


@record
class Reset:
    """The log starts anew behind an installed snapshot."""

    group: Group
    index: LogIndex
    term: Term


@record
class StoreHardState:
    """Store term and vote, and whether the member is forgetful."""

    group: Group
    term: Term
    voted_for: NodeId
    forgetful: bool = False


@record
class CreateGroup:
    """A new group."""

    group: Group
    meta: bytes


@record
class DeleteGroup:
    """A group goes for good."""

    group: Group


@record
class TakeSnapshot:
    """Passes through the writer, so that all entries appended before it are on disk when it is written."""

    group: Group
    key: SnapshotKey
    state: bytes
    live: Ranges


@record
class StoreChunk:
    """The next chunk of a snapshot that another member sends. Passes through the writer, so that the group is on disk
    before its snapshot is."""

    group: Group
    key: SnapshotKey
    number: int
    last: bool
    data: bytes


@record
class PrepareFile:
    """Make the WAL's next file ready."""


@record
class RemoveGroup:
    """Remove a deleted group's directory."""

    group: GroupId


@record
class Sweep:
    """Look for dead WAL files, and for unneeded snapshot files of ``group``."""

    group: Group | None = None


WriterOp = Append | Truncate | Reset | StoreHardState | CreateGroup | DeleteGroup | TakeSnapshot | StoreChunk
HousekeeperOp = TakeSnapshot | StoreChunk | PrepareFile | RemoveGroup | Sweep
