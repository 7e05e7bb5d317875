"""The figures that the store of classic queues keeps about itself: bytes and syncs by purpose."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from reference_broker.storage.counter_spec import CounterSpec

COUNTERS: Final = (
    CounterSpec("classic_batches", "counter", "batches", "batches of operations that the store of classic queues took"),
    CounterSpec("classic_handed_bytes", "counter", "bytes", "octets of messages handed to the writers"),
    CounterSpec("classic_done_bytes", "counter", "bytes", "octets of these that are written, or need not be any more"),
    CounterSpec("classic_messages_written", "counter", "messages", "messages written to message files"),
    CounterSpec("classic_messages_skipped", "counter", "messages", "messages gone before their turn to be written"),
    CounterSpec("classic_queue_bytes", "counter", "bytes", "octets written to the queues' own message files"),
    CounterSpec("classic_shared_bytes", "counter", "bytes", "octets of large messages written to the shared store"),
    CounterSpec("classic_index_bytes", "counter", "bytes", "octets of index records written, states included"),
    CounterSpec("classic_index_writes", "counter", "writes", "writes to index segments"),
    CounterSpec("classic_queue_syncs", "counter", "syncs", "syncs of the queues' own message files"),
    CounterSpec("classic_shared_syncs", "counter", "syncs", "syncs of shared files"),
    CounterSpec("classic_index_syncs", "counter", "syncs", "syncs of index segments"),
    CounterSpec("classic_sync_ns_total", "counter", "ns", "time in syncs of all files of classic queues"),
    CounterSpec("classic_reads", "counter", "reads", "parts read back from message files"),
    CounterSpec("classic_read_bytes", "counter", "bytes", "octets read back from message files"),
    CounterSpec("classic_segments", "gauge", "segments", "index segments on disk"),
    CounterSpec("classic_shared_files", "gauge", "files", "shared files on disk"),
    CounterSpec("classic_recovery_messages", "gauge", "messages", "messages that the last start found"),
    CounterSpec("classic_recovery_dropped", "gauge", "messages", "index records without message at the last start"),
)


class StoreCounters:
    """Current values. Each counter has one writing thread, so adding needs no lock. ``clock`` gives the nanoseconds by
    which syncs are timed."""

    __slots__ = (*(spec.name for spec in COUNTERS), "clock")

    classic_batches: int
    classic_handed_bytes: int
    classic_done_bytes: int
    classic_messages_written: int
    classic_messages_skipped: int
    classic_queue_bytes: int
    classic_shared_bytes: int
    classic_index_bytes: int
    classic_index_writes: int
    classic_queue_syncs: int
    classic_shared_syncs: int
    classic_index_syncs: int
    classic_sync_ns_total: int
    classic_reads: int
    classic_read_bytes: int
    classic_segments: int
    classic_shared_files: int
    classic_recovery_messages: int
    classic_recovery_dropped: int

    def __init__(self, clock: Callable[[], int] = monotonic_ns) -> None:
        self.clock = clock
        for spec in COUNTERS:
            setattr(self, spec.name, 0)

    def add(self, other: StoreCounters) -> None:
        """Add the values of others."""
        for spec in COUNTERS:
            setattr(self, spec.name, getattr(self, spec.name) + getattr(other, spec.name))

    def as_dict(self) -> dict[str, int]:
        """Name to value, in the order of the table."""
        return {spec.name: getattr(self, spec.name) for spec in COUNTERS}
