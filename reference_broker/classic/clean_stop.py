"""The file of a clean stop: how far each durable queue had delivered, and the number of messages in each segment.

The next start takes the file before anything else: it keeps the file under another name, and whatever happens then, the
file never counts again. Stops have numbers, so a file that is an old copy does not count either. The counts tell a
deleted file from a removal: after a clean stop nothing is under way, and every message that was there must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from reference_broker.checksum import crc32
from reference_broker.classic.damage import set_aside
from reference_broker.records import record
from reference_broker.storage.files import Files, read_whole, write_whole
from reference_broker.storage.findings import StartFinding
from reference_broker.types import GroupId

CLEAN: Final = "clean"
TAKEN: Final = "clean.taken"
_MAGIC: Final = b"QCC1"
_CHECK: Final = Struct(">I")
"""The CRC-32 of all octets behind it."""
_HEAD: Final = Struct(">4sQI")
"""Magic with the version, number of the stop, number of queues."""
_QUEUE: Final = Struct(">QQI")
"""Queue, sequence number below which messages may have been delivered, number of segments."""
_SEGMENT: Final = Struct(">II")
"""Number of the segment, number of its messages that a start must find."""
_FORMER_CHECK: Final = slice(-4, None)
"""Place of the CRC-32 in a file without counts. Such a file, of an earlier version, is not used and not damaged."""


@record
class StoppedQueue:
    """A queue at a clean stop. ``segments`` has the number of messages in each segment."""

    delivered_end: int
    segments: Mapping[int, int]


Stopped = Mapping[GroupId, StoppedQueue]


class CleanStops:
    """Writes the file of a clean stop, and takes it at the next start."""

    def __init__(self, files: Files, root: str) -> None:
        self._files, self._root = files, root
        self._number = 0
        """The number of the last clean stop."""

    def write(self, queues: Stopped) -> None:
        """After the last operation. Raises OSError."""
        parts = [_HEAD.pack(_MAGIC, self._number + 1, len(queues))]
        for group, queue in sorted(queues.items()):
            parts.append(_QUEUE.pack(group, queue.delivered_end, len(queue.segments)))
            parts += [_SEGMENT.pack(number, messages) for number, messages in sorted(queue.segments.items())]
        octets = b"".join(parts)
        write_whole(self._files, f"{self._root}/{CLEAN}", _CHECK.pack(crc32(octets)) + octets)

    def take(self, findings: list[StartFinding]) -> Stopped | None:
        """The queues at the last clean stop, if nothing happened since; from now on the file does not count any
        more. None after a crash, or if the file cannot be trusted."""
        names = self._files.names(self._root)
        before = self._read(TAKEN) if TAKEN in names else None
        self._number = before[0] if before else 0
        if CLEAN not in names:
            return None
        if (stop := self._read(CLEAN)) is None and not self._is_former():
            kept = set_aside(self._files, self._root, CLEAN)
            self._files.sync_dir(self._root)
            findings.append(_untrusted("the file of the last clean stop is damaged and set aside", kept))
            return None
        self._files.rename(f"{self._root}/{CLEAN}", f"{self._root}/{TAKEN}")
        self._files.sync_dir(self._root)
        if stop is None:
            return None
        expected, (self._number, queues) = self._number + 1, stop
        if self._number != expected:
            what = f"the file of the last clean stop has number {self._number}, not {expected}: it is an old copy"
            findings.append(_untrusted(what, f"{self._root}/{TAKEN}"))
            return None
        return queues

    def _read(self, name: str) -> tuple[int, dict[GroupId, StoppedQueue]] | None:
        """Number and queues of a stop; None if the file is damaged or of an earlier version."""
        octets = read_whole(self._files, f"{self._root}/{name}")
        check, body = octets[: _CHECK.size], octets[_CHECK.size :]
        if _CHECK.pack(crc32(body)) != check or not body.startswith(_MAGIC):
            return None
        _, number, count = _HEAD.unpack_from(body)
        at, queues = _HEAD.size, {}
        for _ in range(count):
            group, delivered_end, segments = _QUEUE.unpack_from(body, at)
            at += _QUEUE.size
            end = at + segments * _SEGMENT.size
            queues[GroupId(group)] = StoppedQueue(delivered_end, dict(_SEGMENT.iter_unpack(body[at:end])))
            at = end
        return number, queues

    def _is_former(self) -> bool:
        octets = read_whole(self._files, f"{self._root}/{CLEAN}")
        return _CHECK.pack(crc32(octets[: _FORMER_CHECK.start])) == octets[_FORMER_CHECK]


def _untrusted(what: str, where: str) -> StartFinding:
    fix = (
        "check the drive; all messages of classic queues come as redelivered, and whether a whole segment is missing "
        "cannot be told"
    )
    return StartFinding(what=what, where=where, fix=fix)
