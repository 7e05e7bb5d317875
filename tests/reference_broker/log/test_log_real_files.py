"""The log on the real file system with its real threads. Nothing sleeps: every wait is for a notice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reference_broker.log.config import LogConfig
from reference_broker.log.errors import EntryGoneError
from reference_broker.log.notices import Failed, Notice, RolledOver, SnapshotInstalled, SnapshotTaken, Written
from reference_broker.log.system import LogSystem
from reference_broker.storage.files import BUFFERS_PER_WRITE, RealFiles
from reference_broker.types import Entry, GroupId, LogIndex, NodeId, Term

PATIENCE_S = 60
GROUPS = [GroupId(number) for number in (1, 2, 3)]


class Inbox:
    """Collects notices from the log's threads and waits for one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.notices: list[Notice] = []

    def put(self, notices: list[Notice]) -> None:
        with self._condition:
            self.notices += notices
            self._condition.notify_all()

    def wait(self, wanted: Callable[[Notice], bool]) -> None:
        with self._condition:
            found = self._condition.wait_for(lambda: any(map(wanted, self.notices)), PATIENCE_S)
            failures = [notice for notice in self.notices if isinstance(notice, Failed)]
        assert found and not failures, failures

    def arrived(self, wanted: Notice) -> None:
        self.wait(lambda notice: notice == wanted)

    def written(self, group: GroupId, index: int) -> None:
        self.wait(lambda notice: isinstance(notice, Written) and (notice.group, notice.index) == (group, index))


def start(path: Path, inbox: Inbox, **settings: Any) -> tuple[LogSystem, Any]:
    config = LogConfig(wal_dir=path / "wal", data_dir=path / "data", wal_file_bytes=1 << 18, **settings)
    return LogSystem.open(config, RealFiles(), inbox.put)


def test_write_roll_snapshot_restart(tmp_path: Path, entry: Callable[..., Entry]) -> None:
    """The whole life of a log, as a node lives it."""
    inbox = Inbox()
    log, recovered = start(tmp_path, inbox, memtable_bytes=50_000)
    assert recovered == {}
    for group in GROUPS:
        log.create_group(group, b"queue")
        log.store_hard_state(group, Term(2), NodeId(3))
    for index in range(1, 301):
        for group in GROUPS:
            log.append(group, [entry(index, term=2, size=1500)])
        if index % 20 == 0:
            inbox.written(GROUPS[-1], index)
    inbox.wait(lambda notice: isinstance(notice, RolledOver))
    for group in GROUPS:
        assert [found.index for found in log.entries(group, LogIndex(1), LogIndex(300), 1 << 30)] == [*range(1, 301)]
    for group in GROUPS:
        log.take_snapshot(group, LogIndex(250), Term(2), b"state", [(7, 9)])
        inbox.arrived(SnapshotTaken(group, LogIndex(250), Term(2)))
    log.close()
    log, recovered = start(tmp_path, Inbox())
    for group in GROUPS:
        found = recovered[group]
        assert (found.meta, found.term, found.voted_for, found.state) == (b"queue", 2, 3, b"state")
        assert (found.first_index, found.last_index, found.terms) == (251, 300, [(251, 2)])
        for index in (7, 9, 251, 300):
            assert log.payload(group, LogIndex(index)) == entry(index, term=2, size=1500).payload
    log.close()


def test_a_snapshot_travels_between_real_logs(tmp_path: Path, entry: Callable[..., Entry]) -> None:
    """Pinned files are real descriptors here, and the streams real files."""
    boxes = Inbox(), Inbox()
    sender, _ = start(tmp_path / "a", boxes[0])
    receiver, _ = start(tmp_path / "b", boxes[1])
    group = GROUPS[0]
    for log in (sender, receiver):
        log.create_group(group, b"")
    sender.append(group, [entry(index, size=200_000) for index in range(1, 11)])
    sender.take_snapshot(group, LogIndex(10), Term(1), b"s" * 100, [(1, 8)])
    boxes[0].wait(lambda notice: isinstance(notice, SnapshotTaken))
    number, last = 0, False
    while not last:
        number += 1
        index, term, data, last = sender.snapshot_chunk(group, number)
        assert receiver.receive_chunk(group, index, term, number, last, data)
    boxes[1].wait(lambda notice: isinstance(notice, SnapshotInstalled))
    receiver.reset(group, LogIndex(10), Term(1))
    receiver.append(group, [entry(11)])
    boxes[1].written(group, 11)
    assert receiver.payload(group, LogIndex(8)) == sender.payload(group, LogIndex(8))
    sender.release_snapshot(group)
    sender.close()
    receiver.close()


def test_closing_makes_durable_what_was_asked(tmp_path: Path, entry: Callable[..., Entry]) -> None:
    """A node that is stopped in good order loses nothing, notice or not."""
    log, _ = start(tmp_path, Inbox())
    log.create_group(GROUPS[0], b"")
    log.append(GROUPS[0], [entry(index) for index in range(1, 3000)])
    log.close()
    log.close()
    log, recovered = start(tmp_path, Inbox())
    assert recovered[GROUPS[0]].last_index == 2999
    log.close()


def test_without_sync_nothing_is_synced_and_status_says_so(tmp_path: Path, entry: Callable[..., Entry]) -> None:
    """A measurement without syncs must not pass for a durable one."""
    inbox = Inbox()
    log, _ = start(tmp_path, inbox, sync=False)
    log.create_group(GROUPS[0], b"")
    log.append(GROUPS[0], [entry(1)])
    inbox.written(GROUPS[0], 1)
    log.close()
    assert log.counters()["wal_syncs"] == 0
    assert "NOT SYNCED" in log.durability


def test_reads_race_with_the_housekeeper(tmp_path: Path, entry: Callable[..., Entry]) -> None:
    """Reading while snapshots recycle the files underneath: the right octets, or a typed error, whoever is faster."""
    inbox = Inbox()
    log, _ = start(tmp_path, inbox, memtable_bytes=0)
    group = GROUPS[0]
    log.create_group(group, b"")
    for turn in range(40):
        first = turn * 20 + 1
        log.append(group, [entry(index, size=3000) for index in range(first, first + 20)])
        if turn % 5 == 4:
            inbox.written(group, first + 19)
            log.take_snapshot(group, LogIndex(first + 10), Term(1), b"", [])
        for index in range(max(1, first - 150), first + 20):
            with suppress(EntryGoneError):
                assert log.payload(group, LogIndex(index)) == entry(index, size=3000).payload
    inbox.arrived(SnapshotTaken(group, LogIndex(791), Term(1)))
    for index in range(792, 801):
        assert log.payload(group, LogIndex(index)) == entry(index, size=3000).payload
    for index in range(1, 792):
        with pytest.raises(EntryGoneError):
            log.payload(group, LogIndex(index))
    log.close()


# The port itself


def test_long_writes_are_cut_at_the_kernels_limit(tmp_path: Path) -> None:
    """A batch of thousands of small entries has more buffers than one pwritev takes."""
    file = RealFiles().create(str(tmp_path / "f"), 100)
    buffers = [str(number).encode() for number in range(3 * BUFFERS_PER_WRITE + 5)]
    file.write(buffers, 50)
    joined = b"".join(buffers)
    assert file.read(50, len(joined)) == joined
    assert file.read(0, 50) == bytes(50)
    assert file.read(50 + len(joined) - 3, 10) == joined[-3:]
    file.close()
    file.close()


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take less than it was given, for instance on a signal."""
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: real(fd, [b"".join(buffers)[:5]], offset))
    file = RealFiles().create(str(tmp_path / "f"))
    file.write([b"0123", b"4567", b"89"], 0)
    assert file.read(0, 100) == b"0123456789"
    file.close()


def test_directories_of_the_real_port(tmp_path: Path) -> None:
    """Names, renames and removals, as the memory implementation has them."""
    files = RealFiles()
    directory = str(tmp_path / "a" / "b")
    assert files.names(directory) == []
    files.make_dir(directory)
    files.make_dir(directory)
    files.create(f"{directory}/x", (1 << 20) + 7).close()
    files.rename(f"{directory}/x", f"{directory}/y")
    files.sync_dir(directory)
    file = files.open(f"{directory}/y")
    assert (files.names(directory), file.size()) == (["y"], (1 << 20) + 7)
    file.close()
    files.remove(f"{directory}/y")
    files.remove_dir(directory)
    assert files.names(str(tmp_path / "a")) == []


def test_the_disk_holds_the_backlog_and_a_constant(tmp_path: Path, entry: Callable[..., Entry]) -> None:
    """A queue with a backlog of 100 messages that everything goes through: after ten times the WAL's size the drive
    holds the backlog, the WAL's files and no more than a few segments beside."""
    inbox = Inbox()
    log, _ = start(tmp_path, inbox, memtable_bytes=0, segment_bytes=1 << 17)
    group, rolled = GROUPS[0], 0
    log.create_group(group, b"")
    for last in range(20, 4001, 20):
        log.append(group, [entry(index, size=3000) for index in range(last - 19, last + 1)])
        inbox.written(group, last)
        live = [(max(1, last - 100), last)]
        rolls = sum(isinstance(notice, RolledOver) for notice in inbox.notices)
        if rolls > rolled:
            rolled = rolls
            if group in log.snapshot_due(lambda _group, live=live: live):
                log.take_snapshot(group, LogIndex(last), Term(1), b"", live)
                inbox.arrived(SnapshotTaken(group, LogIndex(last), Term(1)))
    log.close()
    assert rolled >= 10
    wal = sum(path.stat().st_size for path in (tmp_path / "wal").iterdir())
    segments = sum(path.stat().st_size for path in (tmp_path / "data" / "segments").rglob("*.segment"))
    assert wal <= 8 * (1 << 18) + (1 << 17)
    assert segments <= 2 * 100 * 3000 + 8 * (1 << 17)
    log, recovered = start(tmp_path, Inbox())
    assert recovered[group].last_index == 4000
    assert log.payload(group, LogIndex(3950)) == entry(3950, size=3000).payload
    log.close()
