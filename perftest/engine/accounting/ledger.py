"""The ledger of one worker: the accounts of its publishers, and the deliveries that its consumers got.

The words:

- *lost*: confirmed, not returned, and never delivered although the queues were drained;
- *duplicated*: a delivery beyond the first that is not flagged redelivered, of a message that was published once;
- *reordered*: a delivery that breaks the order that its queue promises (:mod:`perftest.engine.accounting.promise`),
  unless its message was published twice;
- *unexpected*: a delivery with this run's mark, but with a publisher or number that was never used;
- *damaged*: a body of a size that no publisher sent, or with another filler;
- *foreign*: a message of another run or program; counted, and otherwise ignored.

A message that goes to several queues is delivered once by each: then *delivered* and *unique* count copies, *lost* and
*duplicated* are judged for each queue (:mod:`perftest.engine.accounting.account`). The account of a publisher is kept
by the worker that publishes; deliveries of another worker's messages are handed on
(:mod:`perftest.engine.accounting.forwarding`).

Deliveries come with a *scope*, in which their order counts: a channel of a consumer, or a queue if its deliveries on
different channels are in order.

Invariant: each delivery counts once, in ``delivered`` or ``foreign`` or ``unexpected``, of one worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perftest.engine.accounting import forwarding
from perftest.engine.accounting.account import EXAMPLES_MAX, Examples, FanoutLedger, PublisherLedger
from perftest.engine.accounting.promise import OF_CHANNELS, Order, Promise

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

NO_QUEUE = -1
"""The queue of a delivery where one account serves all queues."""


SEVERAL: Final = "several"
"""The order of a record of several loads that were checked for different orders."""

HARM: Final = ("lost", "duplicated", "reordered", "unexpected", "damaged")
"""Faults that no broker may have."""

COUNTS: Final = (
    *("published", "unconfirmed", "confirmed", "nacked", "returned", "republished"),
    *("delivered", "redelivered", "unique", *HARM, "undelivered", "abandoned", "foreign"),
)


class Ledger:
    """The messages of a run as one worker knows them. ``run`` is the run's mark in the stamp.

    ``queues`` are the queues that each message is copied to; None if a message goes to one queue. ``of_other_workers``
    tells which publishers (numbers) belong to another worker. ``promise`` is the order that the queues promise.
    """

    def __init__(
        self,
        run: int,
        *,
        queues: tuple[int, ...] | None = None,
        of_other_workers: Callable[[Integers], Booleans] | None = None,
        promise: Promise = OF_CHANNELS,
    ) -> None:
        self._run = run
        self._promise = promise
        self._queues = None if queues is None else list(queues)
        self._of_other_workers = of_other_workers
        self._publishers: dict[int, PublisherLedger | FanoutLedger] = {}
        self._queue_of: dict[int, int] = {}
        self._examples = Examples()
        self._counts: Counter[str] = Counter()
        self._drained = True
        self._steps_closed = 0
        self.forwarding_buffer = forwarding.ForwardingBuffer()

    # Publishers and their queues

    def publisher(self, publisher: int) -> PublisherLedger | FanoutLedger:
        """The account of a publisher; the same object each time."""
        if publisher not in self._publishers:
            shared, promise = self._of_other_workers is not None, self._promise
            self._publishers[publisher] = (
                PublisherLedger(publisher, self._examples, shared=shared, promise=promise)
                if self._queues is None
                else FanoutLedger(publisher, self._examples, self._queues, shared=shared, promise=promise)
            )
        return self._publishers[publisher]

    def consume(self, scope: int, queue: int) -> None:
        """Deliveries of ``scope`` are messages of ``queue``."""
        if self._queues is not None:
            self._queue_of[scope] = queue

    def bind(self, queue: int) -> None:
        """From now on every published message goes to ``queue``, too."""
        if self._queues is not None and queue not in self._queues:
            self._queues.append(queue)
            for account in self._publishers.values():
                account.copy(queue)

    def unbind(self, queue: int) -> None:
        """``queue`` is gone, with all its messages."""
        if self._queues is not None and queue in self._queues:
            self._queues.remove(queue)
            for account in self._publishers.values():
                account.unbind(queue)

    # What consumers got

    def delivered(self, scope: int, sources: Integers, numbers: Integers, redelivered: Booleans) -> Booleans | None:
        """A run of deliveries of one scope, stamped with ``sources`` and ``numbers``.

        Returns which of the deliveries are of this run (None: all). The others are left out of every latency.
        """
        return self.delivered_to(np.full(len(sources), scope), sources, numbers, redelivered)

    def delivered_to(
        self, scopes: Integers, sources: Integers, numbers: Integers, redelivered: Booleans
    ) -> Booleans | None:
        """The same for deliveries of several scopes, of each in the order they came.

        With a scope for each channel redeliveries are accounted for last: a message that one channel gave back may come
        on another channel in the same batch, and its first delivery has to count first.
        """
        scope, source = int(scopes[0]), int(sources[0])
        if self._of_other_workers is None and bool((sources == source).all()) and bool((scopes == scope).all()):
            return self._delivered_from(scope, source, numbers, redelivered)
        order = self._in_order(scopes, sources, redelivered)
        rows = scopes[order], sources[order], numbers[order], redelivered[order]
        known = self._account_for(*rows, here=self._set_aside(*rows))
        if known.all():
            return None
        ours = np.empty(len(sources), np.bool_)
        ours[order] = known
        return ours

    def forwarded(self, rows: forwarding.Rows) -> None:
        """Messages of this worker's publishers that consumers of another worker got."""
        if not len(rows):
            return
        if self._queues is not None:
            self._queue_of.update(zip(rows["scope"].tolist(), rows["queue"].tolist(), strict=True))
        scopes, sources, numbers, redelivered = forwarding.expand(rows)
        order = self._in_order(scopes, sources, redelivered)
        self._account_for(scopes[order], sources[order], numbers[order], redelivered[order], here=None)

    def _account_for(
        self, scopes: Integers, sources: Integers, numbers: Integers, redelivered: Booleans, *, here: Booleans | None
    ) -> Booleans:
        """Account for deliveries in the order of :meth:`_in_order`, only for those ``here``. Returns which of all
        deliveries are of this run."""
        ours = np.ones(len(sources), np.bool_)
        keys = self._parts(scopes, sources, redelivered)
        starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
        ends = np.append(starts[1:], len(sources))
        if here is not None:
            starts, ends = starts[here[starts]], ends[here[starts]]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            part = slice(start, end)
            known = self._delivered_from(int(scopes[start]), int(sources[start]), numbers[part], redelivered[part])
            if known is not None:
                ours[part] = known
        return ours

    def _set_aside(
        self, scopes: Integers, sources: Integers, numbers: Integers, redelivered: Booleans
    ) -> Booleans | None:
        """Keep the deliveries for other workers in the buffer; returns which are for this worker (None: all)."""
        if self._of_other_workers is None:
            return None
        away = (sources >> 16 == self._run) & self._of_other_workers(sources & 0xFFFF)
        if not away.any():
            return None
        queues = np.full(int(away.sum()), NO_QUEUE)
        if self._queues is not None:
            queues[:] = [self._queue_of.get(scope, NO_QUEUE) for scope in scopes[away].tolist()]
        self.forwarding_buffer.add(scopes[away], queues, sources[away], numbers[away], redelivered[away])
        here: Booleans = ~away
        return here

    def _delivered_from(self, scope: int, source: int, numbers: Integers, again: Booleans) -> Booleans | None:
        if source >> 16 != self._run:
            self._counts["foreign"] += len(numbers)
            return np.zeros(len(numbers), np.bool_)
        publisher = self._publishers.get(source & 0xFFFF)
        if publisher is None:
            self._counts["unexpected"] += len(numbers)
            self._examples.add(source & 0xFFFF, "unexpected", numbers)
            return np.zeros(len(numbers), np.bool_)
        account = publisher.copy(self._queue_of.get(scope, NO_QUEUE))
        unknown = account.delivered(scope, numbers, again)
        self._counts["unexpected"] += unknown
        return numbers.view(np.uint64) < account.next if unknown else None

    def _parts(self, scopes: Integers, sources: Integers, redelivered: Booleans) -> Integers:
        """Deliveries that are accounted for together have the same number."""
        parts = scopes << 32 | sources
        return parts if self._promise.spans_channels else redelivered.astype(np.int64) << 62 | parts

    def _in_order(self, scopes: Integers, sources: Integers, redelivered: Booleans) -> Integers:
        """Indexes that put the deliveries of one scope and source together, in their order."""
        return np.argsort(self._parts(scopes, sources, redelivered), kind="stable")

    def damaged(self, source: int, numbers: Integers) -> None:
        """These bodies differ from the bodies that were sent. Bodies of another run are not judged."""
        if source >> 16 != self._run:
            return
        self._counts["damaged"] += len(numbers)
        self._examples.add(source & 0xFFFF, "damaged", numbers)

    def illegible(self, count: int) -> None:
        """Bodies too short for a stamp: no publisher of this run sent them."""
        self._counts["foreign"] += count

    # The account

    def outstanding(self) -> int:
        """The number of messages of this worker's publishers that should still be delivered."""
        return sum(account.outstanding() for account in self._publishers.values())

    def harm_since_cut(self) -> dict[str, int]:
        """Faults since the last call, by the names of :class:`~perftest.metrics.interval.Interval`."""
        seen, self._examples.counts = self._examples.counts, Counter()
        return {name: seen[name] for name in ("reordered", "duplicated", "unexpected", "damaged")}

    def close(self, *, drained: bool, abandoned: bool) -> None:
        """Close the account of a step (or of all steps, if they shared their queues)."""
        for _ in self.closing(drained=drained, abandoned=abandoned):
            pass

    def closing(self, *, drained: bool, abandoned: bool) -> Iterator[None]:
        """The same one publisher after the other, so that a worker can answer in between."""
        self._drained &= drained
        self._steps_closed += 1
        for account in list(self._publishers.values()):
            account.close(drained=drained, abandoned=abandoned)
            yield

    def record(self, *, complete: bool) -> dict[str, Any]:
        """The content of ``ledger.json``; ``complete`` when the run came to its planned end."""
        totals = sum((account.totals() for account in self._publishers.values()), self._counts.copy())
        totals["published"] = sum(account.next for account in self._publishers.values())
        totals["unconfirmed"] = totals["awaited"] - totals["confirmed"] - totals["nacked"]
        drained = self._drained and self._steps_closed > 0
        order = self._promise.order
        return make_record(totals, self._examples.records, complete=complete, drained=drained, order=order)


def make_record(
    counts: Mapping[str, int],
    examples: list[dict[str, object]],
    *,
    complete: bool,
    drained: bool,
    order: str = Order.CHANNEL,
) -> dict[str, Any]:
    """The content of ``ledger.json`` with these counts; a missing count is 0. ``order`` is the order that was
    checked."""
    harmed = any(counts.get(name) for name in HARM)
    return {
        "schema": 1,
        "complete": complete,
        "drained": drained,
        "order": str(order),
        **{name: counts.get(name, 0) for name in COUNTS},
        "examples": examples[:EXAMPLES_MAX],
        "verdict": "violated" if harmed else "ok" if drained else "unknown",
    }


def merge_records(records: Iterable[Mapping[str, Any]], *, complete: bool) -> dict[str, Any]:
    """The record of all workers. Each message is in the account of one worker, so counts add up."""
    parts = list(records)
    counts = {name: sum(part[name] for part in parts) for name in COUNTS}
    examples = [example for part in parts for example in part["examples"]]
    drained = bool(parts) and all(part["drained"] for part in parts)
    orders = {str(part["order"]) for part in parts} or {str(Order.CHANNEL)}
    order = orders.pop() if len(orders) == 1 else SEVERAL
    record = make_record(counts, examples, complete=complete, drained=drained, order=order)
    missing = [each for part in parts for each in part.get("missing", ())]
    return record | ({"missing": missing} if missing else {})
