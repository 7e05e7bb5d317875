"""A queue that has no message with a time to live any more is one that never had: it pays for none."""

from __future__ import annotations

import pytest

from reference_broker.machines.commands import Checkout, Command, Enqueue, Get, Purge, Return, Settle
from reference_broker.machines.config import NO_LIMIT, FifoConfig
from reference_broker.machines.fifo import FifoMachine

from .logs import apply, channel, consumer, run_with

ONE = consumer(1)
ENTRIES = 64


def enqueue(seq: int, ttl_ms: int = NO_LIMIT) -> Enqueue:
    return Enqueue(channel(1), seq, run_with(10), ttl_ms=ttl_ms)


def subscribe(prefetch: int) -> Checkout:
    return Checkout(ONE, prefetch, auto_settle=False, priority=0, correlation=1)


def queue_after(*commands: Command, config: FifoConfig | None = None) -> FifoMachine:
    """A queue to which these happened, and then so many entries that it has looked."""
    queue = FifoMachine(config or FifoConfig(name="q"))
    for command in commands:
        apply(queue, command)
    for _ in range(ENTRIES):
        apply(queue, Purge(channel(9), 0) if not queue.counts().ready else Settle(ONE, ((10_000, 10_000),)))
    return queue


def is_plain(queue: FifoMachine) -> bool:
    return queue.state.is_plain and not queue.state.is_expiring


@pytest.mark.parametrize(
    "commands",
    [
        [enqueue(1, 60_000), subscribe(10), Settle(ONE, ((0, 0),))],
        [enqueue(1, 60_000), Purge(channel(1), 1)],
        [subscribe(1), enqueue(1, 60_000), enqueue(2), Settle(ONE, ((0, 0),)), enqueue(3)],
        [enqueue(1, 60_000), Get(ONE, True, 1)],
    ],
    ids=["settled", "purged", "others-behind", "fetched"],
)
def test_a_queue_without_such_a_message_pays_for_no_expiry(commands: list[Command]) -> None:
    """One message with a time to live made every later one dearer, until the node was started again."""
    assert is_plain(queue_after(*commands))


@pytest.mark.parametrize(
    "commands",
    [
        [enqueue(1, 60_000)],
        [enqueue(1), enqueue(2, 60_000), enqueue(3)],
        [subscribe(1), enqueue(1, 60_000), enqueue(2)],
        [subscribe(2), enqueue(1, 60_000), enqueue(2), Return(ONE, ((0, 0),))],
    ],
    ids=["ready", "between-others", "held", "returned"],
)
def test_a_message_that_is_still_here_expires(commands: list[Command]) -> None:
    """Wherever it is: also one that a consumer holds may come back."""
    queue = queue_after(*commands)
    assert queue.state.is_expiring and not queue.state.is_plain
    restored = FifoMachine.restore(queue.snapshot())
    assert restored.state.is_expiring and restored.snapshot() == queue.snapshot()


def test_a_queue_whose_settings_give_each_message_its_time_goes_on_expecting_it() -> None:
    """The next publish would only set the flag again."""
    queue = queue_after(config=FifoConfig(name="q", message_ttl_ms=1000))
    assert not queue.state.is_plain


def test_members_agree_whether_or_not_they_have_noticed() -> None:
    """One was restored from a snapshot and knows at once; the other looks after some entries."""
    commands = [enqueue(1, 60_000), subscribe(10), Settle(ONE, ((0, 0),))]
    noticed, late = queue_after(), FifoMachine(FifoConfig(name="q"))
    for command in commands:
        apply(late, command)
    restored = FifoMachine.restore(late.snapshot())
    assert late.state.is_expiring and not restored.state.is_expiring and is_plain(noticed)
    for command in [enqueue(2), enqueue(3, 5), Settle(ONE, ((1, 1),)), enqueue(4)]:
        assert apply(late, command) == apply(restored, command)
        assert late.snapshot() == restored.snapshot()


def test_a_message_that_comes_back_too_late_expires() -> None:
    """A consumer held it while a thousand others came and went."""
    queue = queue_after(subscribe(1), enqueue(1, 60_000))
    apply(queue, Return(ONE, ((0, 0),)), time_ms=120_000)
    assert queue.counts().expired == 1
