"""A publishing channel's side of one quorum queue: sequence numbers in, confirms out.

A queue deduplicates by (channel, enqueue sequence number), so each channel counts its publishes to each queue by
itself; the publisher counts its confirms over all queues of the channel. The session keeps the translation, as ranges:
a run of publishes is one range, and the commit of a batch of runs is one lookup. Pure.

Invariant: the ranges held are exactly the publishes that were sent to the queue and not yet seen committed, in order.
"""

from __future__ import annotations

from collections import deque

from reference_broker.machines.commands import NO_TTL, Enqueue
from reference_broker.message_run import MessageRun
from reference_broker.types import ChannelId


class PublishSession:
    """One channel's publishes to one queue."""

    __slots__ = ("_next", "_waiting", "channel", "unconfirmed_bytes")

    def __init__(self, channel: ChannelId) -> None:
        self.channel = channel
        self._next = 1
        self._waiting: deque[tuple[int, int, int, int]] = deque()  # first, last, first confirm seq (0: none), octets
        self.unconfirmed_bytes = 0

    @property
    def unconfirmed_commands(self) -> int:
        """Commands that were sent to the queue and not yet seen committed."""
        return len(self._waiting)

    def enqueue(self, run: MessageRun, confirm_seq: int, ttl_ms: int = NO_TTL) -> Enqueue:
        """The command for a run whose first message has the channel's confirm number ``confirm_seq`` (0: no
        confirms)."""
        first, last = self._next, self._next + run.count - 1
        self._next = last + 1
        size = len(run.data)
        self.unconfirmed_bytes += size
        self._waiting.append((first, last, confirm_seq, size))
        return Enqueue(self.channel, first, run, ttl_ms)

    def committed(self, last: int) -> list[tuple[int, int]]:
        """Everything up to enqueue number ``last`` is committed: the ranges of confirm numbers to confirm, in order.

        Idempotent: what was reported before, after an election for example, gives nothing again.
        """
        confirmed: list[tuple[int, int]] = []
        while self._waiting and self._waiting[0][0] <= last:
            first, run_last, confirm_seq, size = self._waiting[0]
            done = min(run_last, last)
            if confirm_seq:
                confirmed.append((confirm_seq, confirm_seq + done - first))
            if done < run_last:
                self._waiting[0] = (done + 1, run_last, confirm_seq and confirm_seq + done - first + 1, size)
                break
            self._waiting.popleft()
            self.unconfirmed_bytes -= size
        return confirmed
