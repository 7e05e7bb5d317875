"""The figures that the log layer keeps about itself. Documentation, metrics and tests read the same table."""

from __future__ import annotations

from typing import Final

from reference_broker.storage.counter_spec import CounterSpec

COUNTERS: Final = (
    CounterSpec("wal_writes", "counter", "batches", "batches written to the WAL"),
    CounterSpec("wal_syncs", "counter", "syncs", "fdatasync calls on the WAL (0 when sync is off)"),
    CounterSpec("wal_bytes", "counter", "bytes", "octets written to the WAL, heads included"),
    CounterSpec("wal_entries", "counter", "entries", "log entries written to the WAL"),
    CounterSpec("wal_batch_entries_max", "gauge", "entries", "entries in the largest batch so far"),
    CounterSpec("wal_rolls", "counter", "files", "times the WAL went on to the next file"),
    CounterSpec("wal_files_recycled", "counter", "files", "WAL files that were put to use again"),
    CounterSpec("wal_files", "gauge", "files", "WAL files that hold entries or are being written"),
    CounterSpec("write_ns_total", "counter", "ns", "time in WAL writes"),
    CounterSpec("sync_ns_total", "counter", "ns", "time in WAL syncs"),
    CounterSpec("meta_writes", "counter", "batches", "batches written to the meta log (elections, groups)"),
    CounterSpec("meta_syncs", "counter", "syncs", "syncs of the meta log"),
    CounterSpec("meta_sync_ns_total", "counter", "ns", "time in syncs of the meta log"),
    CounterSpec("meta_compactions", "counter", "files", "times the meta log was rewritten"),
    CounterSpec("memtable_bytes", "gauge", "bytes", "entries held in memory"),
    CounterSpec("backlog_bytes", "gauge", "bytes", "payload handed over and not yet on disk"),
    CounterSpec("disk_reads", "counter", "entries", "entries read back from disk"),
    CounterSpec("groups", "gauge", "groups", "groups of this node"),
    CounterSpec("snapshots", "counter", "snapshots", "snapshots taken"),
    CounterSpec("snapshot_bytes", "counter", "bytes", "octets of state written in snapshots"),
    CounterSpec("snapshot_syncs", "counter", "syncs", "syncs of snapshot files"),
    CounterSpec("snapshot_sync_ns_total", "counter", "ns", "time in syncs of snapshot files"),
    CounterSpec("snapshots_installed", "counter", "snapshots", "snapshots received and stored"),
    CounterSpec("segment_files", "gauge", "files", "segment files on disk"),
    CounterSpec("segments_written", "counter", "files", "segment files written"),
    CounterSpec("segment_bytes", "counter", "bytes", "payload copied from WAL files into segments"),
    CounterSpec("segment_entries", "counter", "entries", "entries copied from WAL files into segments"),
    CounterSpec("segment_entries_skipped", "counter", "entries", "entries of WAL files that went, which nobody needed"),
    CounterSpec("segment_compactions", "counter", "files", "times segments were rewritten without what is dead"),
    CounterSpec("segment_compacted_bytes", "counter", "bytes", "payload copied from segments into segments"),
    CounterSpec("segment_syncs", "counter", "syncs", "syncs of segment files"),
    CounterSpec("segment_sync_ns_total", "counter", "ns", "time in syncs of segment files"),
    CounterSpec("segment_reads", "counter", "reads", "reads of entries from segments"),
    CounterSpec("recovery_ns", "gauge", "ns", "time the last start took to read the log"),
    CounterSpec("recovery_bytes", "gauge", "bytes", "octets of WAL the last start read"),
    CounterSpec("recovery_meta_single", "gauge", "records", "what the last start found one copy of in the meta log"),
    CounterSpec("recovery_torn_tails", "gauge", "files", "unfinished batches the last start dropped"),
)


class Counters:
    """Current values. Each counter has one writing thread, so adding needs no lock."""

    __slots__ = tuple(spec.name for spec in COUNTERS)

    wal_writes: int
    wal_syncs: int
    wal_bytes: int
    wal_entries: int
    wal_batch_entries_max: int
    wal_rolls: int
    wal_files_recycled: int
    wal_files: int
    write_ns_total: int
    sync_ns_total: int
    meta_writes: int
    meta_syncs: int
    meta_sync_ns_total: int
    meta_compactions: int
    memtable_bytes: int
    backlog_bytes: int
    disk_reads: int
    groups: int
    snapshots: int
    snapshot_bytes: int
    snapshot_syncs: int
    snapshot_sync_ns_total: int
    snapshots_installed: int
    segment_files: int
    segments_written: int
    segment_bytes: int
    segment_entries: int
    segment_entries_skipped: int
    segment_compactions: int
    segment_compacted_bytes: int
    segment_syncs: int
    segment_sync_ns_total: int
    segment_reads: int
    recovery_ns: int
    recovery_bytes: int
    recovery_meta_single: int
    recovery_torn_tails: int

    def __init__(self) -> None:
        for spec in COUNTERS:
            setattr(self, spec.name, 0)

    def as_dict(self) -> dict[str, int]:
        """Name to value, in the order of the table."""
        return {spec.name: getattr(self, spec.name) for spec in COUNTERS}
