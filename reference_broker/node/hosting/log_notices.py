"""The log's notices to a node, brought from the log's threads into the event loop, and to the member concerned."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.log.notices import (
    Failed,
    GroupCreated,
    GroupDeleted,
    HardStateSynced,
    Notice,
    RolledOver,
    SnapshotInstalled,
    SnapshotRejected,
    SnapshotTaken,
    Synced,
    Written,
)
from reference_broker.log.system import LogSystem
from reference_broker.node.replication.known_groups import Groups
from reference_broker.types import GroupId

log = logging.getLogger(__name__)


class LogNotices:
    """Has the log write, and hands its notices on. All methods but :meth:`notify` are called in the loop's thread."""

    log: LogSystem
    """Set as soon as the log is open."""

    def __init__(
        self,
        groups: Groups,
        anatomy: Anatomy,
        loop: asyncio.AbstractEventLoop,
        guarded: Callable[..., None],
        together: Callable[[Callable[[], None]], None],
        failed: Callable[[str], None],
    ) -> None:
        """Made in the loop's thread, before the log is open. ``guarded`` calls, and stops the node on a defect;
        ``together`` does, too, and gathers the frames of the call; ``failed`` stops it because the log did."""
        self._groups = groups
        self._anatomy = anatomy
        self._loop = loop
        self._guarded = guarded
        self._together = together
        self._failed = failed
        self._thread = get_ident()
        self._writing_here = False
        self._last_sync_ns = 0
        self._notices: deque[list[Notice]] = deque()

    def write(self) -> None:
        """Have the log write what waits. Notices of what this thread writes itself are handed on during the call."""
        self._writing_here = True
        self.log.write()
        self._writing_here = False

    def notify(self, notices: list[Notice]) -> None:
        """Called in one of the log's threads, or in this one within :meth:`write`."""
        self._notices.append(notices)
        if self._writing_here and get_ident() == self._thread:
            self._guarded(self._take_notices)  # a defect behind the news is none of the log, which is not done yet
        else:
            self._loop.call_soon_threadsafe(self._together, self._take_notices)

    def _take_notices(self) -> None:
        """Take all notices in their order: notices of a thread may still wait for their turn when newer ones come."""
        while self._notices:
            for notice in self._notices.popleft():
                if not isinstance(notice, Written):
                    self._take_special(notice)
                    continue
                if notice.synced_ns != self._last_sync_ns:  # one for several groups counts once
                    self._last_sync_ns = notice.synced_ns
                    self._anatomy.gauge("fsync.wal", notice.synced_ns - notice.written_ns)
                runner = self._groups.runners.get(notice.group)
                if runner is not None and notice.log_uid == self._groups.log_uids[notice.group]:
                    runner.synced(notice.index, notice.term, (notice.begun_ns, notice.written_ns, notice.synced_ns))

    def _take_special(self, notice: Notice) -> None:
        match notice:
            case RolledOver():
                for group in self.log.snapshot_due(self._needed_entries):
                    if (runner := self._groups.runners.get(group)) is not None:
                        runner.take_snapshot()
            case Synced(role, ns):
                self._anatomy.gauge(f"fsync.{role}", ns)
            case Failed(error):
                self._failed(error)
            case GroupCreated() | GroupDeleted() | Written():
                pass  # nothing waits for these: a group's first write implies its creation
            case _:
                self._take_group_notice(notice)

    def _needed_entries(self, group: GroupId) -> Sequence[tuple[int, int]] | None:
        runner = self._groups.runners.get(group)
        return runner.needed_entries() if runner is not None else None

    def _take_group_notice(
        self, notice: HardStateSynced | SnapshotTaken | SnapshotInstalled | SnapshotRejected
    ) -> None:
        runner = self._groups.runners.get(notice.group)
        if runner is None or notice.log_uid != self._groups.log_uids[notice.group]:
            return  # about a replica that is gone: its entries on disk must not count for the replica that is here now
        match notice:
            case HardStateSynced():
                runner.hard_state_synced()
            case SnapshotTaken(_, index, term):
                runner.snapshot_taken(index, term)
            case SnapshotInstalled(_, index, term, state):
                runner.snapshot_installed(index, term, state)
            case SnapshotRejected(_, index, _, error):
                log.warning("group %x: snapshot up to %d refused: %s", notice.group, index, error)
                runner.snapshot_rejected(index)
