"""What a deep queue costs: state beside the bodies, which stay in the log."""

from __future__ import annotations

import tracemalloc

import pytest

from reference_broker.machines.commands import Enqueue
from reference_broker.machines.config import FifoConfig, Overflow
from reference_broker.machines.fifo import FifoMachine

from .logs import apply, channel, run_with

MESSAGES = 1_000_000
STATE_BYTES_MAX = 40_000_000
SAMPLE = 64_000


@pytest.mark.parametrize(("run_size", "messages"), [(100, MESSAGES), (1, SAMPLE)], ids=["in runs of 100", "one by one"])
def test_a_million_ready_messages_fit_into_40_mb(run_size: int, messages: int) -> None:
    """A consumer that is away for an hour must not take the broker's memory. One by one is the worst shape there is;
    it is measured on a sample, for every further message costs the same."""
    queue = FifoMachine(
        FifoConfig(name="q", max_length=MESSAGES, overflow=Overflow.REJECT_PUBLISH, message_ttl_ms=1000)
    )
    run = run_with(*[16] * run_size)
    tracemalloc.start()
    for turn in range(messages // run_size):
        apply(queue, Enqueue(channel(1), 1 + turn * run_size, run))
    octets, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert queue.counts().ready == messages
    assert octets * MESSAGES / messages < STATE_BYTES_MAX
