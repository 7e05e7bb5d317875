"""What the work of RabbitMQ's processes costs in CPU time. The figures come from a calibration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitCosts:
    """CPU times in nanoseconds.

    A *turn* is one stay of an Erlang process on a core. ``wake_ns`` is no CPU time: it passes between a message to a
    process that slept and the first instruction of the process. ``wake_cpu_ns`` is the CPU time of such a wake-up.
    """

    wake_ns: int
    wake_cpu_ns: int
    turn_ns: int
    reader_publish_ns: int
    reader_ack_ns: int
    channel_publish_ns: int
    channel_confirm_ns: int
    channel_deliver_ns: int
    channel_ack_ns: int
    writer_deliver_ns: int
    leader_enqueue_ns: int
    """A message in the process of a quorum queue's leader, from the command to its effects."""
    leader_settle_ns: int
    leader_event_ns: int
    """A notice of the log or of a follower."""
    follower_entry_ns: int
    wal_batch_ns: int
    wal_entry_ns: int
    classic_publish_ns: int
    classic_ack_ns: int
    file_call_ns: int
    """A call to a file by a dirty I/O scheduler, besides the time of the drive."""
    file_kib_ns: int

    @property
    def wake(self) -> tuple[int, int]:
        """The time of a wake-up, and its CPU time."""
        return self.wake_ns, self.wake_cpu_ns
