"""What the log says of a replica that is gone must not count for the one that came in its place."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, cast

import pytest

from reference_broker.log.config import LogConfig
from reference_broker.log.notices import Written
from reference_broker.log.system import LogSystem
from reference_broker.node.hosting.log_notices import LogNotices
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term

GROUP = GroupId(7)


class Told:
    """A runner that notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.heard.append(name)


class Node:
    """A log, its notices, and one group whose replica goes and comes: as a shard, its hosting and its loop."""

    def __init__(self) -> None:
        self.runners: dict[GroupId, Told] = {}
        self.log_uids: dict[GroupId, int] = {}
        self.waiting: list[tuple[Any, ...]] = []
        self.defects: list[str] = []
        self.gauged: list[tuple[str, int]] = []
        self.has_to_write = False
        notices = LogNotices(cast(Any, self), cast(Any, self), cast(Any, self), self.guarded, self.guarded, pytest.fail)
        config = LogConfig(wal_dir="/wal", data_dir="/data", wal_file_bytes=16384, inline_us_max=10**9)
        self.log, _ = LogSystem.open(
            config, MemoryFiles(), notices.notify, policy=OwnersThread, gather=self.write_soon,
            new_store=lambda: b"the-same-store!!",
        )  # fmt: skip
        notices.log = self.log
        self.notices = notices

    def guarded(self, call: Callable[..., None]) -> None:
        """As the shard's: a defect is the node's end."""
        try:
            call()
        except ZeroDivisionError as error:
            self.defects.append(str(error))

    def write_soon(self) -> None:
        self.has_to_write = True

    def call_soon_threadsafe(self, *call: Any) -> None:
        self.waiting.append(call)

    def write(self) -> None:
        """The event loop comes to the log, and writes itself."""
        if self.has_to_write:
            self.has_to_write = False
            self.notices.write()

    def gauge(self, name: str, value: int) -> None:
        self.gauged.append((name, value))

    def take_notices(self) -> None:
        """The event loop comes to them."""
        waiting, self.waiting = self.waiting, []
        for call, *arguments in waiting:
            call(*arguments)

    def join(self) -> Told:
        self.log_uids[GROUP] = self.log.create_group(GROUP, b"")
        self.runners[GROUP] = Told()
        return self.runners[GROUP]

    def leave(self) -> None:
        del self.runners[GROUP]
        self.log.delete_group(GROUP)

    def vote(self) -> None:
        self.log.store_hard_state(GROUP, Term(3), NodeId(1))

    def append(self) -> None:
        self.log.append(GROUP, [Entry(LogIndex(1), Term(3), EntryKind.COMMAND, zlib.crc32(b"x"), b"x")])

    def snapshot(self) -> None:
        self.append()
        self.log.take_snapshot(GROUP, LogIndex(1), Term(3), b"state", [])

    def install(self) -> None:
        self.log.receive_chunk(GROUP, LogIndex(9), Term(3), 1, True, b"no snapshot at all")


def test_one_sync_counts_once_however_many_groups_it_served() -> None:
    """The fsync histogram is the drive's, not the queues'."""
    node = Node()
    for times in ((1, 10, 30), (1, 10, 30), (31, 40, 50)):
        node.notices.notify([Written(GROUP, LogIndex(1), Term(3), *times, 1)])
    node.take_notices()
    assert node.gauged == [("fsync.wal", 20), ("fsync.wal", 10)]


@pytest.mark.parametrize("what", ["vote", "append", "snapshot", "install"])
def test_late_news_of_a_replica_that_is_gone_is_not_for_the_next_one(what: str) -> None:
    """The disk is slow, the member leaves and joins again in one turn: that the old vote is on disk would let the new
    member send one that is not, and hold back all later ones for ever."""
    node = Node()
    node.join()
    node.log.run_pending()
    node.take_notices()
    getattr(node, what)()
    node.log.run_pending()  # done, and the loop has not come to it yet
    node.leave()
    joined = node.join()
    getattr(node, what)()
    node.take_notices()
    assert joined.heard == []
    node.log.run_pending()
    node.take_notices()
    told = {"vote": ["hard_state_synced"], "append": ["synced"], "snapshot": ["synced", "snapshot_taken"],
            "install": ["snapshot_rejected"]}  # fmt: skip
    assert joined.heard == told[what]


def test_a_batch_that_began_before_the_replica_went_speaks_of_the_old_one() -> None:
    """As above, but the writer comes to the old vote only when the new member is there: both are in one batch."""
    node = Node()
    node.join()
    node.vote()
    node.leave()
    joined = node.join()
    node.vote()
    node.log.run_pending()
    node.take_notices()
    assert joined.heard == ["hard_state_synced"]


def test_what_the_loop_writes_itself_is_told_at_once_and_in_order() -> None:
    """A thread of the log has told of a snapshot, and the loop has not come to that; then the loop writes itself. Who
    hears the later news first takes the earlier for late."""
    node = Node()
    joined = node.join()
    node.write()
    node.snapshot()
    node.log.run_pending()
    assert joined.heard == [] and node.waiting
    node.vote()
    node.write()
    assert joined.heard == ["synced", "snapshot_taken", "hard_state_synced"]
    node.take_notices()
    assert joined.heard == ["synced", "snapshot_taken", "hard_state_synced"]


def test_a_defect_behind_news_is_the_nodes_and_not_the_logs() -> None:
    """The loop writes, the news meets a defect of Raft: who reads that the drive failed looks in the wrong place, and
    what was asked of the log in the same turn stays unwritten."""
    node = Node()
    joined = node.join()
    node.write()

    def defect() -> None:
        raise ZeroDivisionError("a defect")

    joined.hard_state_synced = defect  # type: ignore[attr-defined]
    node.vote()
    node.append()
    node.write()
    assert node.defects == ["a defect"]
    assert joined.heard == ["synced"]
