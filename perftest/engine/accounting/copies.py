"""What became of the messages of a publisher that go to several queues.

Each queue has an account of its own for the publisher: a delivery is doubled if *its queue* delivered the message
before, a message is lost if one of its queues never did. The publisher's side is told to the account of each queue,
so the cost is that of as many deliveries as there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from perftest.engine.accounting.account import ANSWERS, DELIVERY_COUNTS, Examples, Integers, PublisherLedger


class Copies:
    """A publisher whose messages go to several queues, each of which has to deliver its copy.

    A queue that comes while messages flow has to deliver
    those published after it was made known; of those on their way at that moment it may deliver any.
    """

    def __init__(self, publisher: int, examples: Examples, queues: Iterable[int], *, shared: bool = False) -> None:
        self.publisher = publisher
        self.next = 0
        self.counts: Counter[str] = Counter()
        self._examples = examples
        self._shared = shared
        self._queues = {queue: PublisherLedger(publisher, examples, shared=shared) for queue in queues}

    def published(self, count: int, *, confirms: bool) -> int:
        """As :meth:`PublisherLedger.published`."""
        first, self.next = self.next, self.next + count
        self.counts["awaited"] += count if confirms else 0
        for account in self._queues.values():
            account.published(count, confirms=confirms)
        return first

    def republished(self, numbers: Integers) -> None:
        """As :meth:`PublisherLedger.republished`."""
        self.counts["republished"] += len(numbers)
        for account in self._queues.values():
            account.republished(numbers)

    def answered(self, numbers: Integers, flag: int) -> None:
        """As :meth:`PublisherLedger.answered`."""
        if len(numbers):
            self.counts[ANSWERS[flag]] += len(numbers)
        for account in self._queues.values():
            account.answered(numbers, flag)

    def copy(self, queue: int) -> PublisherLedger:
        """The account for a queue; it begins now if there was none."""
        if queue not in self._queues:
            self._queues[queue] = PublisherLedger(self.publisher, self._examples, self.next, shared=self._shared)
        return self._queues[queue]

    def unbind(self, queue: int) -> None:
        """A queue is gone, and what it held with it: that was wanted, so it is abandoned and not lost."""
        account = self._queues.pop(queue, None)
        if account is not None:
            account.close(drained=False, abandoned=True)
            self.counts.update(_deliveries(account))

    def outstanding(self) -> Integers:
        """Numbers of the messages that should still be delivered, one for each queue that should."""
        return np.concatenate([np.empty(0, np.int64), *(account.outstanding() for account in self._queues.values())])

    def close(self, *, drained: bool, abandoned: bool) -> None:
        """As :meth:`PublisherLedger.close`."""
        for account in self._queues.values():
            account.close(drained=drained, abandoned=abandoned)

    def totals(self) -> Counter[str]:
        """Everything counted: the publisher's side once, the deliveries of all queues."""
        return sum((_deliveries(account) for account in self._queues.values()), self.counts.copy())


def _deliveries(account: PublisherLedger) -> Counter[str]:
    return Counter({name: account.counts[name] for name in DELIVERY_COUNTS})
