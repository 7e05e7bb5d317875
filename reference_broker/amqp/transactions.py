"""A channel in tx mode: the publishes that no commit has resolved, and the deliveries that a rollback gives back.

Theory of operation
-------------------
tx.select puts a :class:`CommitTracker` in the place of the channel's confirm tracker, and a
:class:`TransactionalUnacked` in the place of its unacknowledged deliveries. So the readers of publishes and of
acknowledgements work as on any other channel, and a channel without tx pays nothing. Publishes get numbers that the
client never sees. The broker keeps publishes and settles back until tx.commit, and resolves the numbers as its queues
confirm; when all are resolved the tracker calls, and the broker answers tx.commit.

Invariant: a delivery of the channel is unacknowledged, or acknowledged since the last commit (in ``_taken``), or
forgotten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from reference_broker.amqp.confirms import ConfirmTracker
from reference_broker.amqp.unacked import DeliveryRange, Taken, Unacked


class CommitTracker(ConfirmTracker):
    """The publishes of one channel in tx mode. Nothing is sent for them, because the client gets the answer of a
    commit, not of its messages."""

    __slots__ = ("_resolved", "refused")

    def __init__(self, resolved: Callable[[], None]) -> None:
        super().__init__()
        self._resolved = resolved
        self.refused = False
        """A queue has refused a publish since the last :meth:`forget`."""

    def confirm(self, first: int, last: int) -> None:
        """The publishes ``first..last`` are safe. Calls back if they were the last ones."""
        super().confirm(first, last)
        self._look()

    def reject(self, first: int, last: int) -> None:
        """A queue has refused the publishes ``first..last``. Calls back if they were the last ones."""
        super().reject(first, last)
        self.refused |= bool(self._rejected)
        self._look()

    def _look(self) -> None:
        self._confirmed.clear()
        self._rejected.clear()
        if not self._open:
            self._resolved()

    @property
    def is_resolved(self) -> bool:
        """Whether every publish has its answer."""
        return not self._open

    def forget(self) -> None:
        """The transaction is over: nobody waits for its publishes."""
        self._open.clear()
        self.refused = False


class TransactionalUnacked(Unacked):
    """The unacknowledged deliveries of a channel in tx mode, and the deliveries that it acknowledged since the last
    commit."""

    __slots__ = ("_taken",)

    def __init__(self, before: Unacked) -> None:
        super().__init__()
        self._firsts, self._ranges, self.count = before._firsts, before._ranges, before.count
        self._taken: list[DeliveryRange] = []

    def rename(self, consumer_tag: str, name: str) -> None:
        """Give the messages of a consumer to another name."""
        super().rename(consumer_tag, name)
        for taken in self._taken:
            if taken.consumer_tag == consumer_tag:
                taken.consumer_tag = name

    def take_up_to(self, last: int) -> list[Taken]:
        """Remove every tag up to ``last``, until a rollback."""
        stop = bisect_right(self._firsts, last)
        self._taken += [each for each in self._ranges[:stop] if each.last <= last]
        return super().take_up_to(last)

    def recover(self) -> list[Taken]:
        """Remove everything for good: basic.recover is not part of the transaction."""
        return super().take_up_to(self._ranges[-1].last) if self._ranges else []

    def _cut(self, at: int, first: int, last: int) -> Taken:
        whole = self._ranges[at]
        self._taken.append(DeliveryRange(first, last, whole.consumer_tag, whole.distance))
        return super()._cut(at, first, last)

    def commit(self) -> None:
        """Forget the acknowledged messages."""
        self._taken.clear()

    def rollback(self) -> None:
        """Messages acknowledged since the last commit are unacknowledged again, under their old tags."""
        ranges = sorted(self._ranges + self._taken, key=lambda each: each.first)
        self._firsts, self._ranges, self.count = [], [], 0
        self._taken = []
        for each in ranges:
            self.add(each.first, each.last - each.first + 1, each.consumer_tag, each.first + each.distance)
