"""How a start finds the classic queues, and cleans up.

A message exists if its record says so and the record's part passes its check. A part without records gets them again
from its header: a batch syncs message files and not their index. A damaged record of a message that is gone brings
nothing back. Transient messages go, and so does everything of queues that were not durable.

All found octets are synced, because after a kill they may be in the kernel's memory only: first the parts, then their
records. Removals of files are made durable before the numbers of these files are used again. So a later loss of power
never mixes messages of before the start with messages of after the start.

*Damage.* No crash leaves a record of a persistent message without its part, an index without its message file, or a
record of a shared file that is missing and was not removed. After a clean stop, each segment has as many messages as
the file of the clean stop says. A contradiction is a *finding*: readable messages are delivered, and damaged files are
kept under another name (:mod:`~reference_broker.classic.damage`).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reference_broker.classic import index_codec
from reference_broker.classic.clean_stop import Stopped
from reference_broker.classic.counters import StoreCounters
from reference_broker.classic.damage import keep_copy, own_names, set_aside
from reference_broker.classic.index_codec import PERSISTENT, RECORD, SEGMENT_MESSAGES, Records
from reference_broker.classic.part_codec import (
    HEADER_SIZE,
    PLACED,
    DamagedPartError,
    PlacedHeaders,
    decode_part,
    headers,
    read_header,
)
from reference_broker.classic.parts import FoundPart, Part, PartPlace, QueueName
from reference_broker.classic.queue_files import (
    INDEX,
    LEFT,
    MESSAGES,
    QueueFiles,
    QueueSegment,
    remove_directory,
    remove_files,
)
from reference_broker.classic.shared import SharedAppender, SharedStore
from reference_broker.message_run import MessageRun
from reference_broker.storage.files import Files
from reference_broker.storage.findings import StartFinding
from reference_broker.types import GroupId

FIRST_SEQ: Final = SEGMENT_MESSAGES
"""The sequence number of the first message of a queue: 0 stands for no message."""
_QUEUE_NAME: Final = re.compile(r"[0-9a-f]{16}")
_FILE_NAME: Final = re.compile(rf"[0-9a-f]{{8}}({INDEX}|{MESSAGES}|{LEFT})".replace(".", r"\."))
_NUMBERED: Final = re.compile(r"[0-9a-f]{8}\..*")
_LOST_FIX: Final = (
    "check the drive, and publish these messages again if their source has them; what is left of a damaged file is "
    "kept beside it, with .damaged in the name"
)


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
    later: Callable[[GroupId], tuple[SharedAppender, StoreCounters]],
    stopped: Stopped | None,
    findings: list[StartFinding],
) -> dict[GroupId, FoundQueue]:
    """Read the store and clean it up. ``later`` gives for each queue the appender and the figures of the writer that
    the queue will have; ``stopped`` is the record of a clean stop, None after a crash. Damage is added to ``findings``.
    Raises OSError if the drive cannot be read or written."""
    for name in files.names(f"{root}/transient"):
        remove_directory(files, f"{root}/transient/{name}")
    large: dict[int, dict[int, PlacedHeaders]] = {}
    for (queue, segment), placed in shared.recover().items():
        large.setdefault(queue, {})[segment] = placed
    queues = {}
    groups = {GroupId(int(name, 16)) for name in own_names(files, f"{root}/durable", _QUEUE_NAME, findings)}
    groups |= {group for group, queue in (stopped or {}).items() if any(queue.segments.values())}
    for group in sorted(groups):
        before = stopped.get(group) if stopped is not None else None
        source = _Source(files, root, large.get(group, {}), before.segments if before else None, findings)
        found = _Queue(QueueName(group, is_durable=True), source, *later(group)).read()
        if stopped is not None:
            found.delivered_end = min(before.delivered_end if before else 0, found.next_seq)
        queues[group] = found
    shared.recovered()
    return queues


@dataclass(slots=True)
class _Source:
    """The places of a queue's files, and facts about the files beside their content."""

    files: Files
    root: str
    large: Mapping[int, PlacedHeaders]
    """The headers of the queue's parts in the shared store, by segment."""
    expected: Mapping[int, int] | None
    """The number of messages in each segment at a clean stop; None after a crash."""
    findings: list[StartFinding]


class _Queue:
    """Reads the files of one queue."""

    def __init__(self, name: QueueName, source: _Source, shared: SharedAppender, counters: StoreCounters) -> None:
        self._name, self._source, self._files = name, source, source.files
        self._shared, self._counters = shared.store, counters
        self._directory = name.directory(source.root)
        self._files.make_dir(self._directory)
        self._queue = QueueFiles(name, self._files, source.root, shared, counters, has_directory=True)
        self._parts: list[FoundPart] = []

    def read(self) -> FoundQueue:
        suffixes: dict[int, set[str]] = {}
        for name in own_names(self._files, self._directory, _FILE_NAME, self._source.findings):
            suffixes.setdefault(int(name[:8], 16), set()).add(name[8:])
        suffixes |= {number: set() for number in self._source.expected or {} if number not in suffixes}
        for number in sorted(suffixes):
            self._read_segment(number, suffixes[number])
        self._files.sync_dir(self._directory)
        next_seq = (self._highest(suffixes) + 1) * SEGMENT_MESSAGES
        return FoundQueue(self._queue, self._parts, next_seq, next_seq)

    def _highest(self, numbers: Collection[int]) -> int:
        """The highest segment with a file, also a set-aside one, or with a whole part in the shared store, so that no
        sequence number is used again."""
        named = [int(name[:8], 16) for name in self._files.names(self._directory) if _NUMBERED.match(name)]
        highest = max((*numbers, *named), default=0)
        for number, parts in sorted(self._source.large.items(), reverse=True):
            if number > highest and any(self._is_whole(None, part) for part in parts):
                return number
        return highest

    def _read_segment(self, number: int, suffixes: set[str]) -> None:
        if LEFT in suffixes and INDEX not in suffixes:  # the removal of the segment was undone by halves
            self._remove(number)
            return
        segment = self._open(number, suffixes)
        has_strangers = self._complete(segment, number)
        seqs, live = index_codec.live_records(segment.records, number)
        is_there = np.zeros(len(segment.records), bool)
        lost: Counter[int] = Counter()
        for begin, end in _stretches_of_one_part(live):
            file = int(live[begin]["file"])
            checked = self._check(segment, int(seqs[begin]), live[begin])
            if checked is None:
                if not self._was_removed(file):
                    lost[file] += end - begin
                continue
            part, run = checked
            positions = live["position"][begin:end].astype(np.int64)
            assert positions.max() < run.count, "record and part passed their checks"
            part.count, part.left = int(positions[-1]) + 1, end - begin
            self._parts.append(FoundPart(part, positions, run.body_sizes()[positions]))
            is_there[seqs[begin:end] % SEGMENT_MESSAGES] = True
            if part.is_large:
                self._shared.refer(file, end - begin)
        segment.settle(is_there)
        is_damaged = self._tell_lost(number, suffixes, lost, segment.live)
        if is_damaged or (has_strangers and not segment.live):
            self._set_aside(number, suffixes, stays=segment.live > 0, is_told=is_damaged)
        if segment.live:
            self._keep(segment, number)
        else:
            segment.close()
            self._remove(number)

    def _keep(self, segment: QueueSegment, number: int) -> None:
        """Make sure that the segment survives, and use it: first its parts, then the records that say so."""
        segment.must_sync = segment.must_sync_index = True
        segment.sync_messages(self._counters)
        segment.write_index(self._counters)
        segment.sync_index(self._counters)
        self._queue.add_segment(number, segment)
        self._counters.classic_recovery_messages += segment.live
        self._counters.classic_segments += 1

    def _open(self, number: int, suffixes: set[str]) -> QueueSegment:
        """The files of a segment. A file that is missing is made, empty."""
        path = f"{self._directory}/{number:08x}"
        messages, index = (
            self._files.open(path + suffix) if suffix in suffixes else self._files.create(path + suffix)
            for suffix in (MESSAGES, INDEX)
        )
        octets = index.read(0, SEGMENT_MESSAGES * RECORD.itemsize)
        records = np.zeros(SEGMENT_MESSAGES, RECORD)
        records[: len(octets) // RECORD.itemsize] = np.frombuffer(octets, RECORD, len(octets) // RECORD.itemsize)
        return QueueSegment(index, messages, records)

    def _complete(self, segment: QueueSegment, number: int) -> bool:
        """Add the records of whole parts that have none, or others: the index is not synced with small messages, and
        may be damaged or missing. Returns whether the message file has parts that are not of this segment."""
        records, first = segment.records, number * SEGMENT_MESSAGES
        own = np.frombuffer(b"".join(headers(segment.messages, 0)), PLACED)
        is_here = (own["group"] == self._name.group) & (own["seq"] // SEGMENT_MESSAGES == number)
        parts = np.concatenate([own[is_here], self._source.large.get(number, own[:0])])
        parts = parts[(parts["flags"] & PERSISTENT != 0) & (parts["seq"] - first + parts["messages"] <= len(records))]
        for at, slots in index_codec.unrecorded(records, first, parts):
            if self._is_whole(segment, parts[at]):
                segment.add_missing(slots, _records_of(parts[at])[slots + first - int(parts[at]["seq"])])
        used = np.flatnonzero(records["state"].astype(bool) | records["check"].astype(bool))
        segment.records = records[: used[-1] + 1 if len(used) else 0].copy()
        return any(self._is_whole(segment, stranger) for stranger in own[~is_here])

    def _was_removed(self, file: int) -> bool:
        """Whether a shared file was removed because its messages were gone, and a loss of power then undid the states
        of their records."""
        return file != 0 and file not in self._shared and self._shared.was_removed(file)

    def _is_whole(self, segment: QueueSegment | None, placed: Any) -> bool:
        """Whether a header has its part behind it."""
        file, offset, group, seq, check = (int(placed[name]) for name in ("file", "offset", "group", "seq", "check"))
        return self._read_part(segment, file, offset, GroupId(group), seq, check) is not None

    def _check(self, segment: QueueSegment, seq: int, record: Any) -> tuple[Part, MessageRun] | None:
        """The part of a record and its messages, if the part is whole."""
        file, offset, first = int(record["file"]), int(record["offset"]), seq - int(record["position"])
        check = int(record["part_check"])
        if (read := self._read_part(segment, file, offset, self._name.group, first, check)) is None:
            return None
        run, octets = read
        place = PartPlace(file, offset, octets, check)
        return Part(first, run.count, None, 0, int(record["expires"]), bool(file), True, place), run

    def _read_part(
        self, segment: QueueSegment | None, file: int, offset: int, group: GroupId, seq: int, check: int
    ) -> tuple[MessageRun, int] | None:
        """The messages of a part and its octets, if it is there and whole. Parts in shared files need no segment."""
        try:
            source = segment.messages if segment is not None and not file else self._shared.file(file)
            octets = source.read(offset, read_header(source.read(offset, HEADER_SIZE)).size)
            return decode_part(octets, group, seq, check), len(octets)
        except (DamagedPartError, KeyError):
            return None

    def _remove(self, number: int) -> None:
        """Remove the remaining files of a segment."""
        remove_files(self._files, self._directory, [f"{number:08x}{suffix}" for suffix in (INDEX, MESSAGES, LEFT)])

    # What is damaged

    def _tell_lost(self, number: int, suffixes: set[str], lost: Counter[int], live: int) -> bool:
        """Tell of messages that are lost: ``lost`` has those with a record, by shared file (0: the message file).
        Returns whether the files of the segment are damaged."""
        path = f"{self._directory}/{number:08x}"
        for file, count in sorted(lost.items()):
            self._counters.classic_recovery_dropped += count
            where = self._shared.path(file) if file else path + MESSAGES
            is_there = file in self._shared if file else MESSAGES in suffixes
            what = f"{_messages(count)} lost: the file is {'damaged' if is_there else 'missing'}"
            self._tell(what, where, count)
            if file in self._shared:
                self._shared.keep_copy(file)
        if self._source.expected is None or number not in self._source.expected:
            return lost[0] > 0
        missing = self._source.expected[number] - live - lost.total()
        if missing > 0:
            what = f"{_messages(missing)} missing that the queue had at the last clean stop"
            self._tell(what, path + MESSAGES, missing)
        elif INDEX not in suffixes and not lost:
            what = "the index is missing and was made again from the messages: acknowledged messages may come again"
            self._tell(what, path + INDEX, 0, "check the drive; the consumers see such messages as redelivered")
        return lost[0] > 0 or missing > 0

    def _tell(self, what: str, where: str, messages: int, fix: str = _LOST_FIX) -> None:
        self._source.findings.append(
            StartFinding(what=what, where=where, fix=fix, group=self._name.group, messages=messages)
        )

    def _set_aside(self, number: int, suffixes: set[str], *, stays: bool, is_told: bool) -> None:
        """Keep the damaged files of a segment under another name, beside the segment if it ``stays`` in use."""
        for suffix in sorted(suffixes):
            name = f"{number:08x}{suffix}"
            kept = (keep_copy if stays else set_aside)(self._files, self._directory, name)
            if not is_told and suffix == MESSAGES:
                what = "the file has messages of another queue or another place only, and is set aside"
                self._tell(what, kept, 0, "move the file to where it belongs, or remove it")


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{count} messages are"


def _records_of(placed: Any) -> Records:
    """The records of a part."""
    place = int(placed["file"]), int(placed["offset"])
    of = (int(placed[name]) for name in ("check", "expires", "flags"))
    return index_codec.records_of(int(placed["seq"]), int(placed["messages"]), place, *of)


def _stretches_of_one_part(live: Records) -> Iterator[tuple[int, int]]:
    if not len(live):
        return
    is_new = (live["file"][1:] != live["file"][:-1]) | (live["offset"][1:] != live["offset"][:-1])
    bounds = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(live)]
    yield from itertools.pairwise(bounds)
