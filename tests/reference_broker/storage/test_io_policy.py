"""The seam between stores and threads: another policy takes the place of the dedicated threads, and no store notices.

The double is what a pool of one thread would be: all executors of a node in one line, served in the order in which
they asked. The test pushes the line on, step by step.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

from reference_broker.log.config import LogConfig
from reference_broker.log.notices import Notice, SnapshotTaken, Written
from reference_broker.log.system import LogSystem
from reference_broker.storage.executor import Executor, IoPolicy
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, Term

GROUP = GroupId(7)


class Fifo:
    """A line of executors that have something to do. :meth:`executor` is the policy."""

    def __init__(self) -> None:
        self.line: deque[FifoExecutor] = deque()
        self.served: list[str] = []

    def executor(
        self, name: str, handle: Callable[[list[Any]], None], gather: Callable[[], None] | None = None, /
    ) -> Executor[Any]:
        assert gather is None, "the double has no owner that writes by itself"
        return FifoExecutor(name, handle, self)

    def serve(self) -> bool:
        """The first in the line has its turn. False if nobody waits."""
        if not self.line:
            return False
        first = self.line.popleft()
        self.served.append(first.name)
        return first.run_pending()


class FifoExecutor:
    """One store's place in the line."""

    def __init__(self, name: str, handle: Callable[[list[Any]], None], policy: Fifo) -> None:
        self.name = name
        self._handle, self._policy = handle, policy
        self._pending: list[Any] = []

    def start(self) -> None:
        pass

    def submit(self, operation: Any, /) -> None:
        if not self._pending:
            self._policy.line.append(self)
        self._pending.append(operation)

    def go(self, *, here: bool) -> None:
        if here:
            self.run_pending()

    @property
    def waits(self) -> bool:
        return bool(self._pending)

    def run_pending(self) -> bool:
        operations, self._pending = self._pending, []
        if operations:
            self._handle(operations)
        return bool(operations)

    def close(self) -> None:
        self.run_pending()


def entry(index: int) -> Entry:
    payload = b"entry %d" % index
    return Entry(LogIndex(index), Term(1), EntryKind.COMMAND, zlib.crc32(payload), payload)


def opened(policy: IoPolicy, notices: list[Notice], files: MemoryFiles) -> LogSystem:
    config = LogConfig(wal_dir="/wal", data_dir="/data", wal_file_bytes=16384)
    return LogSystem.open(config, files, notices.extend, policy=policy, new_store=lambda: b"the store's mark")[0]


def test_the_log_and_another_store_share_one_line() -> None:
    """With a pool, a slow store of a classic queue stands before the WAL: the result must show that, so it must be."""
    policy, notices, done = Fifo(), [], []
    log = opened(policy.executor, notices, MemoryFiles())
    store = policy.executor("message-store", done.extend)
    store.start()
    while policy.serve():
        pass
    policy.served.clear()
    store.submit("message")
    log.create_group(GROUP, b"")
    log.append(GROUP, [entry(1)])
    log.append(GROUP, [entry(2)])
    policy.serve()
    assert done == ["message"] and not any(isinstance(notice, Written) for notice in notices)
    policy.serve()
    (written,) = [notice for notice in notices if isinstance(notice, Written)]
    assert written.index == 2, "both entries waited together, so one batch holds them"
    assert policy.served == ["message-store", "log-writer"]
    log.close()


def test_what_the_log_promised_under_another_policy_survives() -> None:
    """The order of writing and of notices is the log's own, whoever lends it a thread."""
    policy, notices, files = Fifo(), [], MemoryFiles()
    log = opened(policy.executor, notices, files)
    log.create_group(GROUP, b"meta")
    log.append(GROUP, [entry(index) for index in range(1, 6)])
    while policy.serve():
        pass
    log.take_snapshot(GROUP, LogIndex(3), Term(1), b"state", ())
    while policy.serve():
        pass
    assert [notice.index for notice in notices if isinstance(notice, SnapshotTaken)] == [3]
    files.crash()
    _log, recovered = LogSystem.open(
        LogConfig(wal_dir="/wal", data_dir="/data", wal_file_bytes=16384), files, lambda _: None, policy=Fifo().executor
    )
    group = recovered[GROUP]
    assert (group.meta, group.state, group.first_index, group.last_index) == (b"meta", b"state", 4, 5)
