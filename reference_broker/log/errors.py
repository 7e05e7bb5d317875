"""The errors of a log, in words for the person who runs the node.

Each message has three parts: what happened, where (file, offset, group), and what to do about it.
"""

from __future__ import annotations

from reference_broker.storage.errors import START_BLANK, StorageError
from reference_broker.types import GroupId


class LogError(StorageError):
    """Base of everything that the log raises on purpose."""


class ForeignDirectoryError(LogError):
    """A directory belongs to another node, cluster or pair of directories."""

    def __init__(self, path: str, found: str, wanted: str, advice: str) -> None:
        super().__init__(
            f"the directory is not this node's\n  {path}: holds {found}; this node needs {wanted}\n  {advice}"
        )
        self.path = path


class DamagedLogError(LogError):
    """Synced octets have changed since they were written. A start with them could break promises."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(
            f"damaged log: {reason}\n  {path}, offset {offset}\n"
            f"  let the node learn everything anew from the others: {START_BLANK}"
        )
        self.path = path
        self.offset = offset


class OtherFormatError(LogError):
    """The log is sound, but another version of the broker wrote it."""

    def __init__(self, path: str, found: int, wanted: int) -> None:
        super().__init__(
            f"the log has format {found}, and this version of the broker reads format {wanted} only\n  {path}\n"
            "  empty the queues with the version that wrote it, then start this one in a new directory"
        )
        self.path = path


class MissingEntriesError(LogError):
    """Each file is sound, but together the files lack entries that the log needs."""

    def __init__(self, group: GroupId, first: int, last: int, reason: str) -> None:
        super().__init__(
            f"the log of a group has a hole: {reason}\n  group {group:016x}, entries {first} to {last}\n"
            f"  put back the file that was removed, or let the node learn everything from the others: {START_BLANK}"
        )
        self.group = group
        self.first = first
        self.last = last


class EntryGoneError(LogError):
    """The entry is covered by a snapshot (or was never appended): send the snapshot instead."""

    def __init__(self, group: GroupId, index: int) -> None:
        super().__init__(f"entry {index} of group {group:016x} is not in the log: it is covered by a snapshot")
        self.group = group
        self.index = index


class SnapshotGoneError(LogError):
    """There is no such snapshot, or the chunk asked for lies behind its end."""

    def __init__(self, group: GroupId, number: int) -> None:
        super().__init__(f"group {group:016x} has no snapshot with a chunk {number}: start again from chunk 1")
        self.group = group
        self.number = number


class DamagedSnapshotError(LogError):
    """A snapshot has changed since it was written or sent."""


class UnknownGroupError(LogError):
    """There is no such group: it was deleted, or never created."""

    def __init__(self, group: GroupId) -> None:
        super().__init__(f"group {group:016x} does not exist: it was deleted, or never created")
        self.group = group


class AppendGapError(LogError):
    """The caller tried to append behind a gap, or below a snapshot: a bug of the caller (invariant I9)."""

    def __init__(self, group: GroupId, first: int, floor: int, last: int) -> None:
        super().__init__(
            f"group {group:016x}: append at {first}, but the log holds {floor + 1} to {last}: entries must be "
            "consecutive and start above the snapshot and at most one behind the last"
        )


class InvalidLogConfigError(LogError):
    """The configuration breaks one rule or several; the message holds all of them."""
