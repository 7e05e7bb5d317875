"""The high-water mark: the last synced batches of the WAL and the meta log, for the next start to compare with.

Theory of operation
-------------------
When a start reads the log, it cannot tell a torn last batch from a damaged one, and cannot see that the end is missing.
So the writer thread notes the number of each batch after the sync of the batch. The note is not synced: it costs no
system call, it outlives a process that is killed, and after a loss of power it is a few seconds old. The note is true
at any age, because batches only become more. A start that finds fewer batches has lost synced entries
(``docs/decisions``, 22).

The note is written alternately in two places, each with a check of its own, so a crash in the middle of one leaves the
other. A start that finds neither sound has to suspect the worst.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from reference_broker.checksum import crc32
from reference_broker.log.wal_codec import SECTOR
from reference_broker.storage.files import Files, Note, write_whole

NAME: Final = "high-water"
_BYTES: Final = 2 * SECTOR
_BODY: Final = Struct(">4sHH16sQQQQ")  # magic, version, 0, store id, WAL batch and file, meta file and batch
_CRC_SIZE: Final = 4
_pack, _pack_crc = _BODY.pack, Struct(">I").pack
_MAGIC: Final = b"QHWM"
_VERSION: Final = 1


class Mark(NamedTuple):
    """The last synced batch of the WAL and its file, the meta file in use, and the last synced batch in that file."""

    batch: int = 0
    file: int = 0
    meta_file: int = 0
    meta_batch: int = 0


class HighWater:
    """Keeps the note. Used by the writer thread; :meth:`close` by the owner."""

    def __init__(self, note: Note, store: bytes, mark: Mark) -> None:
        self._note = note
        self._store = store
        self._wal: tuple[int, int] = mark[:2]
        self._meta: tuple[int, int] = mark[2:]
        self._turn = 0

    def begin(self) -> None:
        """Make the mark durable in both places, so that nothing older is left."""
        self.batch_synced(*self._wal)
        self.batch_synced(*self._wal)
        self._note.datasync()

    def batch_synced(self, batch: int, file: int) -> None:
        """A batch of the WAL is on disk."""
        self._wal = batch, file
        body = _pack(_MAGIC, _VERSION, 0, self._store, batch, file, *self._meta)
        self._note.store(body + _pack_crc(crc32(body)), self._turn)
        self._turn ^= SECTOR

    def meta_synced(self, file: int, batch: int) -> None:
        """A batch of the meta log is on disk."""
        self._meta = file, batch
        self.batch_synced(*self._wal)

    def close(self) -> None:
        """After an orderly stop the mark is durable, too. Raises OSError."""
        try:
            self._note.datasync()
        finally:
            self._note.close()


def read_mark(files: Files, directory: str, store: bytes) -> Mark | None:
    """The mark that the last process left; None if there is none, or none that is sound."""
    if NAME not in files.names(directory):
        return None
    note = files.open(f"{directory}/{NAME}")
    try:
        octets = note.read(0, _BYTES)
    finally:
        note.close()
    return max((mark for at in (0, SECTOR) if (mark := _decode(octets[at : at + SECTOR], store))), default=None)


def _decode(place: bytes, store: bytes) -> Mark | None:
    body, crc = place[: _BODY.size], place[_BODY.size : _BODY.size + _CRC_SIZE]
    if len(crc) < _CRC_SIZE or crc32(body) != int.from_bytes(crc):
        return None
    magic, version, _zero, found_store, *mark = _BODY.unpack(body)
    return Mark(*mark) if (magic, version, found_store) == (_MAGIC, _VERSION, store) else None


def open_mark(files: Files, directory: str, store: bytes, mark: Mark) -> HighWater:
    """Begin to note, at ``mark``."""
    path = f"{directory}/{NAME}"
    if NAME not in files.names(directory) or _size(files, path) != _BYTES:
        write_whole(files, path, bytes(_BYTES))
    high_water = HighWater(files.note(path), store, mark)
    high_water.begin()
    return high_water


def _size(files: Files, path: str) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()
