"""The figures that the store of classic queues keeps about itself: bytes and syncs by purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Annotated, Final

from reference_broker.storage.counter_spec import counter, gauge, specs_of


@dataclass(slots=True, eq=False)
class StoreCounters:
    """Current values. Each counter has one writing thread, so adding needs no lock. ``clock`` gives the nanoseconds by
    which syncs are timed."""

    clock: Callable[[], int] = monotonic_ns
    classic_batches: Annotated[
        int, counter("batches", "batches of operations that the store of classic queues took")
    ] = 0
    classic_handed_bytes: Annotated[int, counter("bytes", "octets of messages handed to the writers")] = 0
    classic_done_bytes: Annotated[
        int, counter("bytes", "octets of these that are written, or need not be any more")
    ] = 0
    classic_messages_written: Annotated[int, counter("messages", "messages written to message files")] = 0
    classic_messages_skipped: Annotated[int, counter("messages", "messages gone before their turn to be written")] = 0
    classic_queue_bytes: Annotated[int, counter("bytes", "octets written to the queues' own message files")] = 0
    classic_shared_bytes: Annotated[int, counter("bytes", "octets of large messages written to the shared store")] = 0
    classic_index_bytes: Annotated[int, counter("bytes", "octets of index records written, states included")] = 0
    classic_index_writes: Annotated[int, counter("writes", "writes to index segments")] = 0
    classic_queue_syncs: Annotated[int, counter("syncs", "syncs of the queues' own message files")] = 0
    classic_shared_syncs: Annotated[int, counter("syncs", "syncs of shared files")] = 0
    classic_index_syncs: Annotated[int, counter("syncs", "syncs of index segments")] = 0
    classic_sync_ns_total: Annotated[int, counter("ns", "time in syncs of all files of classic queues")] = 0
    classic_reads: Annotated[int, counter("reads", "parts read back from message files")] = 0
    classic_read_bytes: Annotated[int, counter("bytes", "octets read back from message files")] = 0
    classic_segments: Annotated[int, gauge("segments", "index segments on disk")] = 0
    classic_shared_files: Annotated[int, gauge("files", "shared files on disk")] = 0
    classic_recovery_messages: Annotated[int, gauge("messages", "messages that the last start found")] = 0
    classic_recovery_dropped: Annotated[int, gauge("messages", "index records without message at the last start")] = 0

    def add(self, other: StoreCounters) -> None:
        """Add the values of others."""
        for spec in COUNTERS:
            setattr(self, spec.name, getattr(self, spec.name) + getattr(other, spec.name))

    def as_dict(self) -> dict[str, int]:
        """Name to value, in the order of the table."""
        return {spec.name: getattr(self, spec.name) for spec in COUNTERS}


COUNTERS: Final = specs_of(StoreCounters)
