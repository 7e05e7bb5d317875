"""The settings of a node's log. A built :class:`LogConfig` may be wrong; :meth:`LogConfig.validate` says how."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Final, NamedTuple

KIB: Final = 1024
MIB: Final = 1024 * KIB
WAL_FILE_BYTES_MIN: Final = 16 * KIB


class Problem(NamedTuple):
    """One broken rule: the key, its value, the rule, and how to mend it."""

    key: str
    value: object
    rule: str
    fix: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value!r}: {self.rule}; {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The directories of the log, and its limits.

    wal_dir, data_dir, segment_dir
        Each may stand on a drive of its own. The WAL is written sequentially and synced per batch; the data directory
        sees elections, new queues and snapshots; the segment directory holds the bodies of backlogs. An empty
        ``segment_dir`` stands for ``segments`` below ``data_dir``.
    cluster, node
        Written into the directories on first use and compared at every later start.
    wal_file_bytes
        64 MiB: a file lasts a second at the highest rates and a few minutes at low rates, so that a snapshot per group
        and file stays cheap. The number of files does not depend on the backlog.
    wal_files_waiting
        How many closed WAL files wait before the oldest is copied into segments. At least two: then every group is
        asked for a snapshot twice in between, when the file was closed, and when the messages of that moment are
        settled. More files take drive space and make a start longer, but a backlog of their size is never copied.
    segment_bytes
        64 MiB: the largest segment, and so the most that a compaction reads and writes in one go.
    memtable_bytes
        128 MiB: two WAL files' worth of entries are served from memory; older ones are read back from their file.
    recycle_files
        Dead WAL files kept for re-use. Writing into a file that is already allocated costs no metadata write.
    inline_us_max, inline_bytes_max
        A batch of up to 64 KiB is written and synced by the owner's own thread while batches lately took a millisecond
        or less: on a busy machine it takes about that long to wake a thread and to be woken by it. 0 leaves all writing
        to the log's thread.
    sync
        False skips the sync after each batch of WAL and meta log. For measurements only: a loss of power then loses
        confirmed messages.
    """

    wal_dir: str | PathLike[str]
    data_dir: str | PathLike[str]
    segment_dir: str | PathLike[str] = ""
    cluster: str = "default"
    node: int = 1
    wal_file_bytes: int = 64 * MIB
    wal_files_waiting: int = 2
    segment_bytes: int = 64 * MIB
    memtable_bytes: int = 128 * MIB
    recycle_files: int = 2
    inline_us_max: int = 1000
    inline_bytes_max: int = 64 * KIB
    sync: bool = True

    @property
    def segment_path(self) -> str:
        """The directory of the segments."""
        return fspath(self.segment_dir) or f"{fspath(self.data_dir)}/segments"

    def validate(self) -> list[Problem]:
        """All broken rules; empty if there is none."""
        checks = (
            (bool(str(self.wal_dir)), "wal_dir", "needs a directory", "name one"),
            (bool(str(self.data_dir)), "data_dir", "needs a directory", "name one"),
            (str(self.data_dir) != str(self.wal_dir), "data_dir", "must differ from wal_dir", "use a subdirectory"),
            (
                self.segment_path not in (fspath(self.wal_dir), fspath(self.data_dir)),
                "segment_dir",
                "must differ from wal_dir and data_dir",
                "use a subdirectory",
            ),
            (bool(self.cluster) and self.cluster.isprintable(), "cluster", "must be printable", "choose a name"),
            (self.node > 0, "node", "node ids count from 1", "use 1, 2, 3"),
            (self.wal_files_waiting >= 2, "wal_files_waiting", "at least 2", "the default"),
            (self.wal_file_bytes >= WAL_FILE_BYTES_MIN, "wal_file_bytes", "at least 16 KiB", "the default is 64 MiB"),
            (self.segment_bytes >= WAL_FILE_BYTES_MIN, "segment_bytes", "at least 16 KiB", "the default is 64 MiB"),
            (self.memtable_bytes >= 0, "memtable_bytes", "may not be negative", "the default is 128 MiB"),
            (self.recycle_files >= 0, "recycle_files", "may not be negative", "the default is 2"),
            (self.inline_us_max >= 0, "inline_us_max", "may not be negative", "0 is never, the default 1000"),
            (self.inline_bytes_max >= 0, "inline_bytes_max", "may not be negative", "the default is 64 KiB"),
        )
        return [Problem(key, getattr(self, key), rule, fix) for sound, key, rule, fix in checks if not sound]
