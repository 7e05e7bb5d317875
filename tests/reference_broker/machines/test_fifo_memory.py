"""What a deep queue costs: state beside the bodies, which stay in the log."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from reference_broker.machines.commands import Enqueue
from reference_broker.machines.config import FifoConfig, Overflow
from reference_broker.machines.fifo import FifoMachine
from reference_broker.machines.messages.records import Records

from .logs import apply, channel, run_with

MESSAGES = 1_000_000
STATE_BYTES_MAX = 40_000_000
ENQUEUES = 128
CONFIG = FifoConfig(name="q", max_length=2 * MESSAGES, overflow=Overflow.REJECT_PUBLISH, message_ttl_ms=1000)


@pytest.mark.parametrize("run_size", [100, 1])
def test_a_million_ready_messages_fit_into_40_mb(run_size: int) -> None:
    """A consumer that is away for an hour must not take the broker's memory. Messages one by one are the worst shape
    there is. What the first few thousand runs cost is measured, and what each further one adds."""
    queue, run = FifoMachine(CONFIG), run_with(*[16] * run_size)

    def publish(runs: int) -> int:
        """Returns the octets of memory in use."""
        for _ in range(runs // ENQUEUES):
            first = 1 + queue.counts().ready
            apply(queue, *[Enqueue(channel(1), first + turn * run_size, run) for turn in range(ENQUEUES)])
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/reference_broker/machines/*.py")])
        return sum(statistic.size for statistic in ours.statistics("filename"))

    tracemalloc.start()
    few, more = publish(4 * Records.block_records), publish(8 * Records.block_records)
    tracemalloc.stop()
    assert queue.counts().ready == 12 * Records.block_records * run_size
    octets_per_run = (more - few) / (8 * Records.block_records)
    assert 0 < few + octets_per_run * MESSAGES / run_size < STATE_BYTES_MAX
