"""The notices that the log gives its owner, from the log's threads, in the order in which they became true.

Each notice comes when its event would survive a loss of power. After :class:`Failed` no notice comes.

A notice about a group names the group's ``log_uid``, the number that :meth:`LogSystem.create_group` returned. A group
that is deleted and made again has another log uid, so a late notice about the former group is never taken for news of
the new group.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from reference_broker.records import record
from reference_broker.types import GroupId, LogIndex, NodeId, Term

StorageRole = Literal["meta", "snapshot", "segment"]
"""Use of a drive, beside the WAL."""
IndexRange = tuple[int, int]
"""First and last index, both included."""


@record
class Written:
    """All entries of ``group`` handed over up to ``index``, whose term is ``term``, are on disk.

    An entry may have been overwritten in memory since, so a reader that counts entries must compare the term.
    ``begun_ns``, ``written_ns`` and ``synced_ns`` say when the write of the batch began and ended and when its sync
    ended, on the host's monotonic clock. Two notices are equal even if these times or the ``log_uid`` differ.
    """

    group: GroupId
    index: LogIndex
    term: Term
    begun_ns: int = field(default=0, compare=False)
    written_ns: int = field(default=0, compare=False)
    synced_ns: int = field(default=0, compare=False)
    log_uid: int = field(default=0, compare=False)


@record
class HardStateSynced:
    """Term and vote are on disk: messages that depend on them may leave the node."""

    group: GroupId
    term: Term
    voted_for: NodeId
    log_uid: int = field(default=0, compare=False)


@record
class GroupCreated:
    """The group is on disk. Its first :class:`Written` or :class:`HardStateSynced` implies the same."""

    group: GroupId


@record
class GroupDeleted:
    """The group will not come back after a restart."""

    group: GroupId


@record
class SnapshotTaken:
    """The snapshot is on disk; entries up to ``index`` outside its live ranges can no longer be read."""

    group: GroupId
    index: LogIndex
    term: Term
    log_uid: int = field(default=0, compare=False)


@record
class SnapshotInstalled:
    """A received snapshot and its live entries are valid and on disk. ``reset`` makes the log start behind it."""

    group: GroupId
    index: LogIndex
    term: Term
    state: bytes
    live: tuple[IndexRange, ...]
    log_uid: int = field(default=0, compare=False)


@record
class SnapshotRejected:
    """The received snapshot is not valid, or older than this member's own snapshot. It was dropped."""

    group: GroupId
    index: LogIndex
    term: Term
    error: str
    log_uid: int = field(default=0, compare=False)


@record
class RolledOver:
    """The WAL went on to file number ``file``: a good moment to ask which groups should take a snapshot."""

    file: int


@record
class Synced:
    """A sync of the meta log, of a snapshot file or of a segment (``role``) took ``ns``."""

    role: StorageRole
    ns: int


@record
class Failed:
    """A write or sync failed: the node must stop. Nothing later was, or will be, written or confirmed."""

    error: str


Notice = (
    Written
    | HardStateSynced
    | GroupCreated
    | GroupDeleted
    | SnapshotTaken
    | SnapshotInstalled
    | SnapshotRejected
    | RolledOver
    | Synced
    | Failed
)
