"""When publishes are held back for the settles of a consumer that works through a backlog."""

from __future__ import annotations

from reference_broker.machines.commands import Checkout, Command, Enqueue, Settle
from reference_broker.machines.fifo import PACED_MESSAGES_MIN, FifoMachine

from .logs import apply, channel, consumer, machine, run_of

PREFETCH = 64
P = channel(1, number=9)
A = consumer(1)


class Log:
    """A queue with a consumer and a thousand messages."""

    def __init__(self, prefetch: int) -> None:
        self.machine: FifoMachine = machine()
        self.add(Checkout(A, prefetch, False, 0, 1))
        self.add(Enqueue(P, 1, run_of(1000)))

    def add(self, *commands: Command) -> int | None:
        apply(self.machine, *commands)
        return self.machine.pace()


def settle(message: int) -> Settle:
    return Settle(A, ((message, message),))


def test_nobody_is_paced_before_a_settle() -> None:
    assert Log(1).machine.pace() is None


def test_a_settle_with_a_small_prefetch_paces_for_a_while() -> None:
    log = Log(1)
    assert log.add(settle(0)) == PACED_MESSAGES_MIN
    paces = [log.add(Enqueue(P, 1001 + number, run_of(1))) for number in range(8)]
    assert paces == [PACED_MESSAGES_MIN] * 7 + [None]


def test_a_greater_prefetch_lets_more_pass() -> None:
    assert Log(100).add(settle(0)) == 400


def test_a_queue_that_is_drained_is_not_paced() -> None:
    log = Log(PREFETCH)
    held = 0
    while log.machine.counts().ready:
        last = held + PREFETCH - 1
        pace = log.add(Settle(A, ((held, last),)))
        held = last + 1
    assert pace is None
