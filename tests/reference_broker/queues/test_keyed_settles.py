"""A keyed queue holds the next message of a key back, so its settles must not wait for an enqueue to go with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.queues.fifo_queue import FifoQueue
from reference_broker.queues.keyed import KeyedQueue
from reference_broker.types import Outcome, Priority


class Proposer:
    """Keeps whether each proposal may wait."""

    def __init__(self) -> None:
        self.lazy: list[bool] = []
        self.unapplied = {Priority.NORMAL: SimpleNamespace(applied_up_to=0)}

    def propose(self, _command: object, _size: int, _priority: Priority, *, lazy: bool = False) -> int:
        self.lazy.append(lazy)
        return len(self.lazy)


@pytest.mark.parametrize(("kind", "waits"), [(FifoQueue, True), (KeyedQueue, False)])
def test_only_settles_that_nobody_waits_for_are_lazy(kind: Any, waits: bool) -> None:
    queue = kind.__new__(kind)
    queue.proposer, queue.member = Proposer(), None
    with_credit = SimpleNamespace(
        id="c", is_cancelled=False, is_short_of_credit=lambda _applied: False, release=lambda *_counts: None
    )
    queue.settle(with_credit, Outcome.SETTLE, ((1, 1),))
    queue.settle(with_credit, Outcome.RETURN, ((2, 2),))
    assert queue.proposer.lazy == [waits, False]
