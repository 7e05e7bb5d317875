"""The inventory: which files of the log must be there at the next start.

A file that is missing leaves no trace in the files that are there, unless entries on both sides of it remain. So the
housekeeper writes down what must be there: after a WAL file got its name and before the file is used, and before any
WAL file or segment is removed. A snapshot or segment that is younger than the inventory may be missing without harm:
the WAL files from which it was made are still there.

All integers are big endian.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from reference_broker.checksum import crc32
from reference_broker.log.errors import DamagedLogError
from reference_broker.log.state import Group, LogState
from reference_broker.storage.files import Files, read_whole, write_whole
from reference_broker.types import GroupId

NAME: Final = "inventory"
_HEAD: Final = Struct(">4sHH16sQQI")  # magic, version, 0, store id, oldest and newest WAL file, number of groups
_GROUP: Final = Struct(">QQQI")  # group, log uid, index of the snapshot, number of segments; behind it their numbers
_SEGMENT: Final = Struct(">Q")
_MAGIC: Final = b"QINV"
_VERSION: Final = 1
_CRC_SIZE: Final = 4


class Holding(NamedTuple):
    """The files that a group must have: a snapshot at or above an index (0: none), and segments by number."""

    log_uid: int
    snapshot: int
    segments: tuple[int, ...]


_NOTHING: Final = Holding(0, 0, ())


@dataclass(frozen=True, slots=True)
class Inventory:
    """The WAL files that must be there, from the oldest to the newest, and what must be there of each group that has a
    snapshot or segments. ``newest`` is 0 before the first WAL file is named."""

    oldest: int = 0
    newest: int = 0
    groups: dict[GroupId, Holding] = field(default_factory=dict)

    def of(self, group: Group) -> Holding:
        """The files that the group must have."""
        holding = self.groups.get(group.id, _NOTHING)
        return holding if holding.log_uid == group.log_uid else _NOTHING

    def encode(self, store: bytes) -> bytes:
        """The file: head, groups, and a CRC of everything."""
        parts = [_HEAD.pack(_MAGIC, _VERSION, 0, store, self.oldest, self.newest, len(self.groups))]
        for group, holding in self.groups.items():
            parts.append(_GROUP.pack(group, holding.log_uid, holding.snapshot, len(holding.segments)))
            parts += map(_SEGMENT.pack, holding.segments)
        octets = b"".join(parts)
        return octets + crc32(octets).to_bytes(_CRC_SIZE)


class InventoryFile:
    """Writes the inventory of a log. Used by the housekeeping thread, and while a log is opened."""

    def __init__(self, files: Files, directory: str, store: bytes, state: LogState) -> None:
        self._files = files
        self._path = f"{directory}/{NAME}"
        self._store = store
        self._state = state

    def write(self) -> None:
        """Make the inventory of now durable. Raises OSError."""
        state = self._state
        with state.lock:
            numbers = state.wal_files
            groups = [group for group in state.groups.values() if group.snapshot is not None or group.segments]
            holdings = {group.id: _holding(group) for group in groups}
            now = Inventory(min(numbers, default=0), max(numbers, default=0), holdings)
        write_whole(self._files, self._path, now.encode(self._store))


def _holding(group: Group) -> Holding:
    snapshot = group.snapshot.key.last_index if group.snapshot is not None else 0
    return Holding(group.log_uid, snapshot, tuple(segment.number for segment in group.segments))


def decode(octets: bytes, store: bytes) -> Inventory | None:
    """The inventory in a file; None if it is not sound, or another store's."""
    body, crc = octets[:-_CRC_SIZE], octets[-_CRC_SIZE:]
    if len(body) < _HEAD.size or crc32(body) != int.from_bytes(crc):
        return None
    magic, version, _zero, found_store, oldest, newest, count = _HEAD.unpack_from(body)
    if (magic, version, found_store) != (_MAGIC, _VERSION, store):
        return None
    groups: dict[GroupId, Holding] = {}
    at = _HEAD.size
    for _ in range(count):
        group, log_uid, snapshot, segments = _GROUP.unpack_from(body, at)
        at += _GROUP.size
        end = at + segments * _SEGMENT.size
        groups[GroupId(group)] = Holding(log_uid, snapshot, tuple(n for (n,) in _SEGMENT.iter_unpack(body[at:end])))
        at = end
    return Inventory(oldest, newest, groups)


def read_inventory(files: Files, directory: str, store: bytes) -> Inventory | None:
    """The inventory that the last process left; None if there is none, or none that is sound."""
    return decode(read_whole(files, f"{directory}/{NAME}"), store) if NAME in files.names(directory) else None


def check_segments(directory: str, group: Group, holding: Holding) -> None:
    """Raises :class:`DamagedLogError` if a segment of the group, of those in ``directory``, is missing."""
    missing = set(holding.segments) - {segment.number for segment in group.segments}
    if missing:
        raise DamagedLogError(directory, 0, f"the segment {min(missing)} is missing")
