"""The figures that the log layer keeps about itself. Documentation, metrics and tests read the same table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from reference_broker.storage.counter_spec import counter, gauge, specs_of


@dataclass(slots=True, eq=False)
class Counters:
    """Current values. Each counter has one writing thread, so adding needs no lock."""

    wal_writes: Annotated[int, counter("batches", "batches written to the WAL")] = 0
    wal_syncs: Annotated[int, counter("syncs", "fdatasync calls on the WAL (0 when sync is off)")] = 0
    wal_bytes: Annotated[int, counter("bytes", "octets written to the WAL, heads included")] = 0
    wal_entries: Annotated[int, counter("entries", "log entries written to the WAL")] = 0
    wal_batch_entries_max: Annotated[int, gauge("entries", "entries in the largest batch so far")] = 0
    wal_rolls: Annotated[int, counter("files", "times the WAL went on to the next file")] = 0
    wal_files_recycled: Annotated[int, counter("files", "WAL files that were put to use again")] = 0
    wal_files: Annotated[int, gauge("files", "WAL files that hold entries or are being written")] = 0
    write_ns_total: Annotated[int, counter("ns", "time in WAL writes")] = 0
    sync_ns_total: Annotated[int, counter("ns", "time in WAL syncs")] = 0
    meta_writes: Annotated[int, counter("batches", "batches written to the meta log (elections, groups)")] = 0
    meta_syncs: Annotated[int, counter("syncs", "syncs of the meta log")] = 0
    meta_sync_ns_total: Annotated[int, counter("ns", "time in syncs of the meta log")] = 0
    meta_compactions: Annotated[int, counter("files", "times the meta log was rewritten")] = 0
    memtable_bytes: Annotated[int, gauge("bytes", "entries held in memory")] = 0
    backlog_bytes: Annotated[int, gauge("bytes", "payload handed over and not yet on disk")] = 0
    disk_reads: Annotated[int, counter("entries", "entries read back from disk")] = 0
    groups: Annotated[int, gauge("groups", "groups of this node")] = 0
    snapshots: Annotated[int, counter("snapshots", "snapshots taken")] = 0
    snapshot_bytes: Annotated[int, counter("bytes", "octets of state written in snapshots")] = 0
    snapshot_syncs: Annotated[int, counter("syncs", "syncs of snapshot files")] = 0
    snapshot_sync_ns_total: Annotated[int, counter("ns", "time in syncs of snapshot files")] = 0
    snapshots_installed: Annotated[int, counter("snapshots", "snapshots received and stored")] = 0
    segment_files: Annotated[int, gauge("files", "segment files on disk")] = 0
    segments_written: Annotated[int, counter("files", "segment files written")] = 0
    segment_bytes: Annotated[int, counter("bytes", "payload copied from WAL files into segments")] = 0
    segment_entries: Annotated[int, counter("entries", "entries copied from WAL files into segments")] = 0
    segment_entries_skipped: Annotated[
        int, counter("entries", "entries of WAL files that went, which nobody needed")
    ] = 0
    segment_compactions: Annotated[int, counter("files", "times segments were rewritten without what is dead")] = 0
    segment_compacted_bytes: Annotated[int, counter("bytes", "payload copied from segments into segments")] = 0
    segment_syncs: Annotated[int, counter("syncs", "syncs of segment files")] = 0
    segment_sync_ns_total: Annotated[int, counter("ns", "time in syncs of segment files")] = 0
    segment_reads: Annotated[int, counter("reads", "reads of entries from segments")] = 0
    recovery_ns: Annotated[int, gauge("ns", "time the last start took to read the log")] = 0
    recovery_bytes: Annotated[int, gauge("bytes", "octets of WAL the last start read")] = 0
    recovery_meta_single: Annotated[int, gauge("records", "what the last start found one copy of in the meta log")] = 0
    recovery_torn_tails: Annotated[int, gauge("files", "unfinished batches the last start dropped")] = 0

    def as_dict(self) -> dict[str, int]:
        """Name to value, in the order of the table."""
        return {spec.name: getattr(self, spec.name) for spec in COUNTERS}


COUNTERS: Final = specs_of(Counters)
