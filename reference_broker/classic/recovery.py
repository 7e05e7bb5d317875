"""What a start finds of the classic queues, and what it cleans up.

A message is there if its record says so and the record's part passes its check. A record without its part is dropped. A
small part without its records gets them again from its header, because a batch syncs message files and not their index;
a large part without a record is never looked at. A damaged record of a message that is gone brings nothing back.
Transient messages go, and so does everything of queues that were not durable.

What was found is synced, because after a kill it may live in the kernel's memory only. Removals of files are made
durable before the numbers of these files are used again. So a later loss of power never mixes messages of before the
start with messages of after the start.

A *clean stop* leaves a file that says of each queue up to which message it had delivered. The file goes before anything
else happens. Without this file each message counts as delivered: nobody knows better.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np

from reference_broker.checksum import crc32
from reference_broker.classic import index_codec
from reference_broker.classic.counters import Counters
from reference_broker.classic.index_codec import GONE, RECORD, SEGMENT_MESSAGES, STORED, Records
from reference_broker.classic.part_codec import HEADER_SIZE, DamagedPartError, PartHeader, decode_part, read_header
from reference_broker.classic.parts import FoundPart, Part, Place, QueueName
from reference_broker.classic.queue_files import (
    INDEX,
    MESSAGES,
    QueueFiles,
    SegmentFiles,
    remove_directory,
    remove_files,
)
from reference_broker.classic.shared import SharedAppender, SharedStore
from reference_broker.message_run import MessageRun
from reference_broker.storage.files import File, Files, read_whole, write_whole
from reference_broker.types import GroupId

FIRST_SEQ: Final = SEGMENT_MESSAGES
"""The sequence number of the first message of a queue: 0 stands for no message."""
_CLEAN: Final = "clean"
_DELIVERED: Final = Struct(">QQ")
_CHECK: Final = Struct(">I")


@dataclass(slots=True)
class FoundQueue:
    """The messages of a durable queue, in order. Messages below ``delivered_end`` may have been delivered."""

    files: QueueFiles
    parts: list[FoundPart]
    next_seq: int
    delivered_end: int


def recover(
    files: Files,
    root: str,
    shared: SharedStore,
    later: Callable[[GroupId], tuple[SharedAppender, Counters]],
) -> dict[GroupId, FoundQueue]:
    """Read the store and clean it up. ``later`` gives for each queue the appender and the figures of the writer that
    the queue will have. Raises OSError if the drive cannot be read or written."""
    delivered = _take_clean(files, root)
    for name in files.names(f"{root}/transient"):
        remove_directory(files, f"{root}/transient/{name}")
    queues = {}
    for name in files.names(f"{root}/durable"):
        group = GroupId(int(name, 16))
        found = _Queue(QueueName(group, is_durable=True), files, root, *later(group)).read()
        found.delivered_end = min(delivered.get(group, 0), found.next_seq) if delivered is not None else found.next_seq
        queues[group] = found
    shared.recovered()
    return queues


class _Queue:
    """Reads the files of one queue."""

    def __init__(self, name: QueueName, files: Files, root: str, shared: SharedAppender, counters: Counters) -> None:
        self._name, self._files, self._shared, self._counters = name, files, shared.store, counters
        self._queue = QueueFiles(name, files, root, shared, counters, has_directory=True)
        self._parts: list[FoundPart] = []

    def read(self) -> FoundQueue:
        directory = self._queue.directory
        numbers = sorted({int(name.partition(".")[0], 16) for name in self._files.names(directory)})
        for number in numbers:
            self._read_segment(number)
        self._files.sync_dir(directory)
        next_seq = (numbers[-1] + 1) * SEGMENT_MESSAGES if numbers else FIRST_SEQ
        return FoundQueue(self._queue, self._parts, next_seq, next_seq)

    def _read_segment(self, number: int) -> None:
        segment = self._open(number)
        if segment is None:
            return
        self._complete(segment, number)
        seqs, live = index_codec.live_records(segment.records.tobytes(), number)
        is_there = np.zeros(len(segment.records), bool)
        for begin, end in _stretches_of_one_part(live):
            checked = self._check(segment, int(seqs[begin]), live[begin])
            if checked is None:
                self._counters.classic_recovery_dropped += end - begin
                continue
            part, run = checked
            positions = live["position"][begin:end].astype(np.int64)
            assert positions.max() < run.count, "record and part passed their checks"
            part.count, part.left = int(positions[-1]) + 1, end - begin
            self._parts.append(FoundPart(part, positions, run.body_sizes()[positions]))
            is_there[seqs[begin:end] % SEGMENT_MESSAGES] = True
            if part.is_large:
                self._shared.refer(int(live[begin]["file"]), end - begin)
        segment.records["state"] = np.where(is_there, STORED, GONE)
        segment.live = int(is_there.sum())
        if segment.live:
            segment.must_sync = segment.must_sync_index = True
            segment.write_index(self._counters)
            segment.sync(self._counters)
            self._queue.add_segment(number, segment)
            self._counters.classic_recovery_messages += segment.live
            self._counters.classic_segments += 1
        else:
            segment.close()
            self._remove(number)

    def _open(self, number: int) -> SegmentFiles | None:
        path = f"{self._queue.directory}/{number:08x}"
        try:
            messages = self._files.open(path + MESSAGES)
        except FileNotFoundError:
            self._remove(number)
            return None
        try:
            index = self._files.open(path + INDEX)
        except FileNotFoundError:  # both names are durable before a message is told to be stored: a removal was undone
            messages.close()
            self._remove(number)
            return None
        octets = index.read(0, SEGMENT_MESSAGES * RECORD.itemsize)
        records = np.zeros(SEGMENT_MESSAGES, RECORD)
        records[: len(octets) // RECORD.itemsize] = np.frombuffer(octets, RECORD, len(octets) // RECORD.itemsize)
        return SegmentFiles(index, messages, records)

    def _complete(self, segment: SegmentFiles, number: int) -> None:
        """Add the records of parts in the message file that have none: the index is not synced with them."""
        records, first = segment.records, number * SEGMENT_MESSAGES
        may_be_made = index_codec.may_be_made_again(records, first)
        is_whole = (records["state"] != 0) & (records["check"] == index_codec.checks(records, first))
        here = np.unique(records["offset"][is_whole & (records["file"] == 0)]).tolist()
        for offset, header in self._headers(segment.messages, here):
            slot = header.seq - first
            is_ours = header.group == self._name.group and 0 <= slot <= SEGMENT_MESSAGES - header.messages
            if is_ours and header.flags & index_codec.PERSISTENT:
                missing = may_be_made[slot : slot + header.messages]
                if missing.any():
                    segment.add_missing(slot, _records_of(offset, header), missing)  # their parts are checked later
        used = np.flatnonzero(records["state"])
        segment.records = records[: used[-1] + 1 if len(used) else 0].copy()

    @staticmethod
    def _headers(messages: File, known: Sequence[int]) -> Iterator[tuple[int, PartHeader]]:
        """The headers of a message file with their offsets, one after the other. Behind octets that are no header, the
        next part that a record knows of goes on."""
        offset, size = 0, messages.size()
        while offset < size:
            try:
                header = read_header(messages.read(offset, HEADER_SIZE))
                yield offset, header
                offset += header.size
            except DamagedPartError:
                offset = next((each for each in known if each > offset), size)

    def _remove(self, number: int) -> None:
        remove_files(self._files, self._queue.directory, [f"{number:08x}{INDEX}", f"{number:08x}{MESSAGES}"])

    def _check(self, segment: SegmentFiles, seq: int, record: Any) -> tuple[Part, MessageRun] | None:
        """The part of a record and its messages, if the part is whole."""
        file, offset, first = int(record["file"]), int(record["offset"]), seq - int(record["position"])
        check = int(record["part_check"])
        try:
            source = self._shared.file(file) if file else segment.messages
            octets = source.read(offset, read_header(source.read(offset, HEADER_SIZE)).size)
            run = decode_part(octets, self._name.group, first, check)
        except (DamagedPartError, KeyError):
            return None
        place = Place(file, offset, len(octets), check)
        return Part(first, run.count, None, 0, int(record["expires"]), bool(file), True, place), run


def _records_of(offset: int, header: PartHeader) -> Records:
    """The records of a part in the queue's own message file."""
    place = (0, offset)
    return index_codec.records_of(header.seq, header.messages, place, header.check, header.expires, header.flags)


def _stretches_of_one_part(live: Records) -> Iterator[tuple[int, int]]:
    if not len(live):
        return
    is_new = (live["file"][1:] != live["file"][:-1]) | (live["offset"][1:] != live["offset"][:-1])
    bounds = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(live)]
    yield from itertools.pairwise(bounds)


def write_clean(files: Files, root: str, delivered: Mapping[GroupId, int]) -> None:
    """After the last operation: say of each queue up to which message it has delivered."""
    octets = b"".join(_DELIVERED.pack(group, end) for group, end in sorted(delivered.items()))
    write_whole(files, f"{root}/{_CLEAN}", octets + _CHECK.pack(crc32(octets)))


def _take_clean(files: Files, root: str) -> dict[GroupId, int] | None:
    """Read the file of a clean stop, and remove it durably. None if there is none."""
    delivered: dict[GroupId, int] | None = None
    with suppress(FileNotFoundError):
        octets = read_whole(files, f"{root}/{_CLEAN}")
        body, check = octets[: -_CHECK.size], octets[-_CHECK.size :]
        if _CHECK.pack(crc32(body)) == check:
            delivered = {GroupId(group): end for group, end in _DELIVERED.iter_unpack(body)}
        files.remove(f"{root}/{_CLEAN}")
        files.sync_dir(root)
    return delivered
