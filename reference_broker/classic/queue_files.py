"""The files of one queue, as the writer's thread handles them: pairs of an index segment and a message file.

Invariants
    a record of a message that must survive is written after the part that it points to is synced; so whatever a crash
    leaves, such a record without its part is damage
    the record of a message in the shared store is synced before the message is told to be stored
    a segment's files go when all its messages are gone and no later message can get a record in it
    octets of a message file are never overwritten; of an index segment, only states change
    the message file of a segment gets its name before the index, and to remove a segment begins with another name for
    its index; so whatever a crash leaves, an index alone is damage

A loss of power may undo the removal of files and the states of a segment, but never a message that was told to be
stored. So messages may come back after a loss of power, in their old order and never behind newer messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.classic import index_codec
from reference_broker.classic.counters import StoreCounters
from reference_broker.classic.index_codec import GONE, PERSISTENT, RECORD, RECORD_SIZE, SEGMENT_MESSAGES, Records
from reference_broker.classic.part_codec import encode_part
from reference_broker.classic.parts import Part, PartPlace, QueueName
from reference_broker.classic.shared import SharedAppender
from reference_broker.storage.files import Buffer, File, Files, sync_ns

INDEX: Final = ".qi"
MESSAGES: Final = ".qs"
LEFT: Final = ".gone"
"""The index of a segment that is being removed."""
_SLOTS_AT_FIRST: Final = 64


class QueueSegment:
    """One index segment and its message file. ``live`` counts the records of messages that are in the queue.

    ``records`` has the octets of the index segment up to its last record. What changed lies in ``dirty``.
    """

    __slots__ = (
        "_pending", "_pending_at", "dirty", "end", "index", "live", "messages", "must_sync", "must_sync_index",
        "records",
    )  # fmt: skip

    def __init__(self, index: File, messages: File, records: Records | None = None) -> None:
        self.index, self.messages = index, messages
        self.records = np.zeros(_SLOTS_AT_FIRST, RECORD) if records is None else records
        self.live = 0
        self.end = messages.size()
        self.must_sync = False
        """Whether the message file has a part that must survive and is not synced."""
        self.must_sync_index = False
        """The same of a record whose part is in the shared store. Other parts are found without their records."""
        self.dirty: tuple[int, int] | None = None
        """First slot and slot behind the last slot to be written."""
        self._pending: list[Buffer] = []
        self._pending_at = self.end

    def stage(self, buffers: list[bytes | memoryview], size: int) -> int:
        """Take a part, which :meth:`write` will write. Returns its offset."""
        offset = self.end
        self._pending += buffers
        self.end += size
        return offset

    def put(self, slot: int, records: Records) -> None:
        """Enter records from a slot on."""
        end = slot + len(records)
        if end > len(self.records):
            grown = np.zeros(min(max(2 * len(self.records), end), SEGMENT_MESSAGES), RECORD)
            grown[: len(self.records)] = self.records
            self.records = grown
        self.records[slot:end] = records
        self.live += len(records)
        self._touch(slot, end)

    def take(self, slot: int, count: int, step: int) -> Records:
        """Note that messages are gone. Returns those of their records that were live."""
        chosen = self.records[slot : slot + (count - 1) * step + 1 : step]
        stored = chosen["state"] == index_codec.STORED
        gone: Records = chosen[stored]
        if len(gone):
            chosen["state"][stored] = GONE
            self.live -= len(gone)
            self._touch(slot, slot + (count - 1) * step + 1)
        return gone

    def add_missing(self, slots: npt.NDArray[np.int64], records: Records) -> None:
        """Enter records that a start has made again. ``live`` does not count them yet."""
        self.records[slots] = records
        self._touch(int(slots.min()), int(slots.max()) + 1)

    def settle(self, is_there: npt.NDArray[np.bool_]) -> None:
        """Exactly these messages are there, as a start has found. The states of all others say so from now on."""
        state = self.records["state"]
        was_written = (state != 0) | (self.records["check"] != 0)
        settled = np.where(is_there, index_codec.STORED, np.where(was_written, GONE, 0))
        if len(changed := np.flatnonzero(state != settled)):
            self._touch(int(changed[0]), int(changed[-1]) + 1)
        self.records["state"] = settled
        self.live = int(is_there.sum())

    def _touch(self, begin: int, end: int) -> None:
        first, last = self.dirty or (begin, end)
        self.dirty = min(first, begin), max(last, end)

    def write_messages(self, counters: StoreCounters) -> None:
        """Write the parts that were staged, in one write."""
        if self._pending:
            self.messages.write(self._pending, self._pending_at)
            counters.classic_queue_bytes += self.end - self._pending_at
            self._pending = []
            self._pending_at = self.end

    def write_index(self, counters: StoreCounters) -> None:
        """Write the records that changed, in one write."""
        if self.dirty is not None:
            first, end = self.dirty
            self.index.write([self.records[first:end].tobytes()], first * RECORD_SIZE)
            counters.classic_index_bytes += (end - first) * RECORD_SIZE
            counters.classic_index_writes += 1
            self.dirty = None

    def sync_messages(self, counters: StoreCounters) -> None:
        """Sync the parts, if some must survive: before their records are written."""
        if self.must_sync:
            counters.classic_sync_ns_total += sync_ns(self.messages, counters.clock)
            counters.classic_queue_syncs += 1
            self.must_sync = False

    def sync_index(self, counters: StoreCounters) -> None:
        """Sync the records, if there are some that must survive and could not be made again."""
        if self.must_sync_index:
            counters.classic_sync_ns_total += sync_ns(self.index, counters.clock)
            counters.classic_index_syncs += 1
            self.must_sync_index = False

    def kept(self) -> int:
        """The number of persistent messages, which survive a stop."""
        records = self.records
        return int(((records["state"] == index_codec.STORED) & (records["flags"] & PERSISTENT != 0)).sum())

    def close(self) -> None:
        """Close both files."""
        self.index.close()
        self.messages.close()


class QueueFiles:
    """The segments of one queue. The owner's thread reads :meth:`QueueSegment.messages` of parts that it holds."""

    def __init__(
        self, name: QueueName, files: Files, root: str, shared: SharedAppender, counters: StoreCounters, *,
        has_directory: bool = False,
    ) -> None:  # fmt: skip
        """``has_directory``: a start has found the directory of the queue, with or without messages."""
        self.name = name
        self.directory = name.directory(root)
        self.segments: dict[int, QueueSegment] = {}
        self._files, self._shared, self._counters = files, shared, counters
        self._has_directory = has_directory
        self._is_new = False
        self._placed: list[tuple[Part, PartPlace]] = []
        self._released: Counter[int] = Counter()
        """References to shared files that messages had which are gone, until the index says so."""
        self._changed: set[int] = set()
        self._idle: set[int] = set()
        """Segments in which no message is left, while later messages can still come into them."""

    def add_segment(self, number: int, segment: QueueSegment) -> None:
        """Take over a segment that recovery found."""
        self.segments[number] = segment

    def stage(self, part: Part) -> int:
        """Take a part to be written. Returns its octets."""
        run = part.run
        assert run is not None, "a part that was not written is in memory"
        is_kept = part.is_persistent and self.name.is_durable
        flags = PERSISTENT if is_kept else 0
        buffers, size, check = encode_part(self.name.group, part.seq, run, part.expires, flags)
        number = index_codec.segment_of(part.seq)
        segment = self.segments.get(number) or self._create(number)
        if part.is_large:
            file, offset = self._shared.stage(buffers, size, part.count)
        else:
            file, offset = 0, segment.stage(buffers, size)
        records = index_codec.records_of(part.seq, part.count, (file, offset), check, part.expires, flags)
        segment.put(part.seq % SEGMENT_MESSAGES, records)
        segment.must_sync |= is_kept and not part.is_large
        segment.must_sync_index |= is_kept and part.is_large
        self._placed.append((part, PartPlace(file, offset, size, check)))
        self._changed.add(number)
        self._counters.classic_messages_written += part.count
        return size

    def take(self, seq: int, count: int, step: int) -> None:
        """Messages of one part are gone from the queue. Messages that were never written are passed over."""
        number = index_codec.segment_of(seq)
        if (segment := self.segments.get(number)) is None:
            return
        gone = segment.take(seq % SEGMENT_MESSAGES, count, step)
        self._changed.add(number)
        if len(gone) and (file := int(gone[0]["file"])):  # one part lies in one file
            self._released[file] += len(gone)

    def write_messages(self) -> None:
        """Write the parts."""
        for number in self._changed:
            self.segments[number].write_messages(self._counters)

    def sync_messages(self) -> None:
        """Sync the parts that must survive."""
        for number in self._changed:
            self.segments[number].sync_messages(self._counters)

    def write_index(self) -> None:
        """Write the records, and say where the parts are."""
        for number in self._changed:
            self.segments[number].write_index(self._counters)
        for part, place in self._placed:
            part.place = place
        self._placed.clear()

    def sync_index(self) -> None:
        """Sync the records and the names that must survive a loss of power."""
        for number in self._changed:
            self.segments[number].sync_index(self._counters)
        if self._is_new and self.name.is_durable:
            self._files.sync_dir(self.directory)
            self._is_new = False

    def sweep(self, next_seq: int) -> None:
        """Remove the segments in which no message is left and that no message after ``next_seq`` can be in, and the
        shared files that nothing refers to."""
        idle = {number for number in self._idle | self._changed if not self.segments[number].live}
        self._changed.clear()
        self._idle = {number for number in idle if (number + 1) * SEGMENT_MESSAGES > next_seq}
        for number in sorted(idle - self._idle):
            self._remove(number)
        self._shared.release(self._released)
        self._released.clear()

    def delete(self) -> None:
        """Remove everything that the queue wrote."""
        for segment in self.segments.values():
            live = segment.records[segment.records["state"] == index_codec.STORED]
            for file in np.unique(live["file"]).tolist():
                if file:
                    self._released[file] += int((live["file"] == file).sum())
        for number in list(self.segments):
            self._remove(number)
        self._changed.clear()
        self._idle.clear()
        self._placed.clear()
        if self._has_directory:
            remove_directory(self._files, self.directory)
            self._files.sync_dir(self.directory.rpartition("/")[0])
            self._has_directory = False

    def messages(self) -> dict[int, int]:
        """The number of messages in each segment that the next start finds."""
        return {number: segment.kept() for number, segment in self.segments.items()}

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments.values():
            segment.close()

    def _create(self, number: int) -> QueueSegment:
        if not self._has_directory:
            self._files.make_dir(self.directory)
            self._has_directory = True
        path = f"{self.directory}/{number:08x}"
        messages = self._files.create(path + MESSAGES)
        segment = self.segments[number] = QueueSegment(self._files.create(path + INDEX), messages)
        self._is_new = True
        self._counters.classic_segments += 1
        return segment

    def _remove(self, number: int) -> None:
        self.segments.pop(number).close()
        remove_segment(self._files, self.directory, number)
        self._counters.classic_segments -= 1


def remove_segment(files: Files, directory: str, number: int) -> None:
    """Remove the files of a segment, so that a crash in between leaves no index that looks as if it were in use."""
    path = f"{directory}/{number:08x}"
    with suppress(FileNotFoundError):
        files.rename(path + INDEX, path + LEFT)
    remove_files(files, directory, [f"{number:08x}{MESSAGES}", f"{number:08x}{LEFT}"])


def remove_files(files: Files, directory: str, names: Sequence[str]) -> None:
    """Remove files of a directory; names that are gone are passed over."""
    for name in names:
        with suppress(FileNotFoundError):
            files.remove(f"{directory}/{name}")


def remove_directory(files: Files, directory: str) -> None:
    """Remove a queue's directory with all files."""
    remove_files(files, directory, files.names(directory))
    with suppress(FileNotFoundError):
        files.remove_dir(directory)
