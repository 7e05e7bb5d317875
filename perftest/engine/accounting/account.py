"""The account of one publisher: which of its messages were published, confirmed, delivered, lost, doubled, reordered.

Theory of operation. Each publisher numbers its messages 0, 1, 2 ... and keeps one octet of flags per message in an
array that covers the numbers from the oldest unsettled to the newest. Runs of messages are slices of the array, so
accounting costs a few numpy calls a run. A settled prefix (confirmed and delivered, or nacked, or returned) is rolled
up into counters. Stragglers, which stay open while thousands of later messages are settled, move out of the array one
by one, so the array stays short. Memory is one octet for each message that is under way or waits in a queue, and a
dictionary entry for each straggler.

The messages of a publisher may go to several queues (:class:`FanoutLedger`). Then each queue has an account of its own
for the publisher. A delivery is doubled if its queue has delivered the message before, and a message is lost if one of
its queues never delivers it. The publisher's side goes to the account of each queue, so its cost grows with the
deliveries.

At the end of a run millions of messages may lie in their queues. The end of a run goes over the array in parts, and a
part in which all messages have the same flags is judged as one (:func:`_count`): work and memory grow with the
differing ranges, not with the messages.

Invariants: each delivery counts once; ``unique`` + repeats = ``delivered``; a rolled-up message is never lost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from perftest.engine.accounting.key_order import KeyOrder
from perftest.engine.accounting.promise import OF_CHANNELS, Order, Promise

CONFIRMED: Final = 1
NACKED: Final = 2
RETURNED: Final = 4
DELIVERED: Final = 8
UNAWAITED: Final = 16
"""State of a message that was published without confirms: nothing was promised, so nothing can be lost."""

ANSWERS: Final = {CONFIRMED: "confirmed", NACKED: "nacked", RETURNED: "returned"}
DELIVERY_COUNTS: Final = (
    *("delivered", "redelivered", "unique", "duplicated", "reordered", "lost", "undelivered", "abandoned"),
)
"""Counts of each queue; all other counts are the publisher's."""

EXAMPLES_MAX: Final = 20
ARRAY_MIN: Final = 4096
STRAGGLER_SPAN: Final = 1 << 16
"""Length of an array from which on its stragglers are moved out."""
REPEATED_FIRST_MAX: Final = 1 << 16
"""Number of redeliveries that are remembered until the delivery that they repeat arrives."""
PART: Final = 1 << 16
"""Number of messages that are looked at together when an account is counted or closed."""
HIGHEST_MIN: Final = 16
"""Number of channels above which channels that cannot matter any more are forgotten from time to time."""

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def _is_settled(flags: int) -> bool:
    answered = flags & (CONFIRMED | NACKED | UNAWAITED)
    return bool(answered and (flags & (DELIVERED | RETURNED) or flags & NACKED))


_SETTLED: Final = np.array([_is_settled(flags) for flags in range(256)])
_OUTSTANDING: Final = np.array(
    [bool(flags & (CONFIRMED | UNAWAITED)) and not _is_settled(flags) for flags in range(256)]
)
_PROMISED: Final = np.array([bool(flags & CONFIRMED) and bool(_OUTSTANDING[flags]) for flags in range(256)])
"""States of a message that is lost if the queues were drained: outstanding and confirmed."""


@dataclass(slots=True)
class Examples:
    """The first few violations, as ranges of numbers."""

    records: list[dict[str, object]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Number of all violations by name, with and without examples; a reader may take the counts away."""

    def add(self, publisher: int, what: str, numbers: Integers) -> None:
        """Note ``numbers`` (any order), neighbours as one range."""
        ranges = _ranges(np.unique(numbers)) if len(self.records) < EXAMPLES_MAX else ()
        self.add_ranges(publisher, what, len(numbers), ranges)

    def add_ranges(self, publisher: int, what: str, count: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Note ``count`` messages in ``ranges`` (first and last, ascending); no more ranges are asked for than kept."""
        self.counts[what] += count
        for first, last in itertools.islice(_joined(ranges), EXAMPLES_MAX - len(self.records)):
            self.records.append({"publisher": publisher, "first": first, "last": last, "what": what})


class PublisherLedger:
    """The messages of one publisher, or its copies for one queue.

    Messages below ``start`` may be delivered and need not be: the queue was bound while they were on their way.
    ``shared``: consumers of several workers get the messages, and the deliveries of each worker come here with a delay
    of their own. So a redelivery may be heard of before the delivery that it repeats, which is then no second delivery.
    ``promise`` is the order in which each scope delivers.
    """

    def __init__(
        self,
        publisher: int,
        examples: Examples,
        start: int = 0,
        *,
        shared: bool = False,
        promise: Promise = OF_CHANNELS,
    ) -> None:
        self.publisher = publisher
        self.next = start
        self.counts: Counter[str] = Counter()
        self._examples = examples
        self._start = start
        self._early: set[int] = set()
        self._base = start
        self._flags = np.zeros(ARRAY_MIN, np.uint8)
        self._stragglers: dict[int, int] = {}
        self._republished: set[int] = set()
        self._highest: dict[int, int] = {}
        self._highest_max = HIGHEST_MIN
        self._repeated_first: set[int] | None = set() if shared else None
        self._order = promise.order
        self._keys = promise.keys
        self._keys_of: dict[int, KeyOrder] = {}

    # The publisher's side

    def published(self, count: int, *, confirms: bool) -> int:
        """``count`` new messages leave; returns the number of the first."""
        first, self.next = self.next, self.next + count
        while self.next - self._base > len(self._flags):
            self._make_room()
        if not confirms:
            self._flags[first - self._base : self.next - self._base] = UNAWAITED
        else:
            self.counts["awaited"] += count
        return first

    def republished(self, numbers: Integers) -> None:
        """Messages that were unconfirmed when their connection was lost leave a second time."""
        self._republished.update(numbers.tolist())
        self.counts["republished"] += len(numbers)

    def answered(self, numbers: Integers, flag: int) -> None:
        """A confirm (CONFIRMED or NACKED), the first for each of ``numbers``, which ascend; or a return (RETURNED)."""
        count = len(numbers)
        if not count:
            return
        first, last = int(numbers[0]), int(numbers[-1])
        if first < self._base:
            ahead = numbers[numbers >= self._base]
            for number in numbers[numbers < self._base].tolist():
                self._flag_straggler(number, flag)
            self._flags[ahead - self._base] |= flag
        elif last - first + 1 == count:
            self._flags[first - self._base : last + 1 - self._base] |= flag
        else:
            self._flags[numbers - self._base] |= flag
        self.counts[ANSWERS[flag]] += count

    # The consumer's side

    def delivered(self, scope: int, numbers: Integers, redelivered: Booleans) -> int:
        """A run of deliveries in ``scope``, in their order. Returns the number that was never published."""
        if len(numbers) == 1 and self._delivered_next(scope, int(numbers[0]), bool(redelivered[0])):
            return 0
        if (numbers.view(np.uint64) >= self.next).any():  # a damaged number may be negative, too
            return self._delivered_some(scope, numbers, redelivered)
        count = len(numbers)
        first = int(numbers[0])
        in_step = first >= self._base and count == int(numbers[-1]) - first + 1 and bool((np.diff(numbers) == 1).all())
        self.counts["delivered"] += count
        again = int(np.count_nonzero(redelivered))
        self.counts["redelivered"] += again
        if in_step and not again and not self._keys and first > self._highest.get(scope, -1):
            part = self._flags[first - self._base : first - self._base + count]
            if not (part & DELIVERED).any():
                part |= DELIVERED
                self.counts["unique"] += count
                self._rise(scope, first + count - 1)
                return 0
        self._delivered_out_of_step(scope, numbers, redelivered)
        return 0

    def _delivered_next(self, scope: int, number: int, redelivered: bool) -> bool:
        """The usual single delivery, without an array: with thousands of publishers nearly all deliveries are
        single."""
        at = number - self._base
        if redelivered or at < 0 or number >= self.next or number <= self._highest.get(scope, -1):
            return False
        flags = int(self._flags[at])
        if flags & DELIVERED or (self._keys and not self._key_order(scope).rises(number)):
            return False
        self._flags[at] = flags | DELIVERED
        self.counts["delivered"] += 1
        self.counts["unique"] += 1
        if not self._keys:
            self._rise(scope, number)
        return True

    def _delivered_some(self, scope: int, numbers: Integers, redelivered: Booleans) -> int:
        """Some messages were never published: judge the others."""
        known = numbers.view(np.uint64) < self.next
        self._examples.add(self.publisher, "unexpected", numbers[~known])
        if known.any():
            self.delivered(scope, numbers[known], redelivered[known])
        return int(np.count_nonzero(~known))

    def _delivered_out_of_step(self, scope: int, numbers: Integers, redelivered: Booleans) -> None:
        repeats = self._mark_delivered(numbers)
        self.counts["unique"] += int(np.count_nonzero(~repeats))
        sent_twice = np.zeros(len(numbers), np.bool_)
        if self._republished:
            sent_twice |= np.fromiter((n in self._republished for n in numbers.tolist()), np.bool_, len(numbers))
        excused = redelivered | sent_twice
        if self._repeated_first is not None:
            excused |= self._heard_late(self._repeated_first, numbers, repeats, redelivered)
        doubled = repeats & ~excused
        if doubled.any():
            self.counts["duplicated"] += int(np.count_nonzero(doubled))
            self._examples.add(self.publisher, "duplicated", numbers[doubled])
        self._check_order(scope, numbers, firsts=~repeats, redelivered=redelivered, sent_twice=sent_twice)

    def _heard_late(self, known: set[int], numbers: Integers, repeats: Booleans, redelivered: Booleans) -> Booleans:
        """Deliveries whose redelivery was heard of before them; each excuses one."""
        known.update(numbers[redelivered & ~repeats].tolist()[: REPEATED_FIRST_MAX - len(known)])
        late = np.zeros(len(numbers), np.bool_)
        for index in np.flatnonzero(repeats & ~redelivered).tolist() if known else ():
            number = int(numbers[index])
            late[index] = number in known
            known.discard(number)
        return late

    def _check_order(
        self, scope: int, numbers: Integers, *, firsts: Booleans, redelivered: Booleans, sent_twice: Booleans
    ) -> None:
        """Find the messages that were overtaken, by the rule of the promise
        (:mod:`~perftest.engine.accounting.promise`). A message that was published twice may come late, because the
        broker may have its second copy only."""
        if self._order is Order.NONE:
            return
        if self._order is Order.KEY:
            judged = np.ones(len(numbers), np.bool_)
        else:
            judged = firsts if self._order is Order.QUEUE else firsts & ~redelivered
        if not judged.any():
            return
        chosen = numbers[judged]
        late = self._key_order(scope).late(chosen) if self._keys else self._overtaken(scope, chosen)
        late &= ~sent_twice[judged]
        if late.any():
            self.counts["reordered"] += int(np.count_nonzero(late))
            self._examples.add(self.publisher, "reordered", chosen[late])

    def _overtaken(self, scope: int, numbers: Integers) -> Booleans:
        """Which messages come after a higher number."""
        highest = np.maximum.accumulate(numbers)
        before = np.concatenate([[self._highest.get(scope, -1)], highest[:-1]])
        self._rise(scope, max(int(highest[-1]), self._highest.get(scope, -1)))
        return np.asarray(numbers < np.maximum.accumulate(before))

    def _key_order(self, scope: int) -> KeyOrder:
        if scope not in self._keys_of:
            self._keys_of[scope] = KeyOrder(self._keys)
        return self._keys_of[scope]

    def _mark_delivered(self, numbers: Integers) -> Booleans:
        """Flag the messages; True for each that had been delivered before, also earlier in this run."""
        repeats = np.ones(len(numbers), np.bool_)
        firsts = np.unique(numbers, return_index=True)[1]
        ahead = firsts[numbers[firsts] >= self._base]
        at = numbers[ahead] - self._base
        repeats[ahead] = (self._flags[at] & DELIVERED) != 0
        self._flags[at] |= DELIVERED
        for index in firsts[numbers[firsts] < self._base].tolist():
            number = int(numbers[index])
            if number in self._stragglers:
                repeats[index] = bool(self._stragglers[number] & DELIVERED)
                self._flag_straggler(number, DELIVERED)
            elif number < self._start:
                repeats[index] = number in self._early
                self._early.add(number)
        return repeats

    def _rise(self, scope: int, number: int) -> None:
        self._highest[scope] = number
        if len(self._highest) > self._highest_max:
            self._forget_low()

    def _forget_low(self) -> None:
        """Forget channels whose highest number is below every message that may still be delivered for the first time.
        So memory depends on the messages under way, not on publishers times consumers."""
        used = self._flags[: self._used()] & DELIVERED
        floor = self._base + (len(used) if used.all() else int(np.argmin(used)))
        floor = min(self._stragglers, default=floor)
        self._highest = {scope: number for scope, number in self._highest.items() if number >= floor}
        self._highest_max = max(HIGHEST_MIN, 2 * len(self._highest))

    # Memory

    def _flag_straggler(self, number: int, flag: int) -> None:
        flags = self._stragglers.get(number, 0) | flag
        if _SETTLED[flags]:
            self._stragglers.pop(number, None)
        elif number in self._stragglers:
            self._stragglers[number] = flags

    def _make_room(self) -> None:
        """Roll up the settled prefix; if that frees less than half, move stragglers out; if they are too many, grow."""
        used = self._flags[: self._used()]
        unsettled = ~_SETTLED[used]
        done = int(np.argmax(unsettled)) if unsettled.any() else len(used)
        if done < len(used) // 2 and len(used) > STRAGGLER_SPAN:
            done = self._move_stragglers(used, unsettled) or done
        if done >= max(len(used) // 2, 1):
            rest = used[done:].copy()
            self._flags[: len(rest)] = rest
            self._flags[len(rest) :] = 0
            self._base += done
        else:
            self._flags = np.concatenate([self._flags, np.zeros(len(self._flags), np.uint8)])

    def _used(self) -> int:
        return min(self.next - self._base, len(self._flags))

    def _move_stragglers(self, used: npt.NDArray[np.uint8], unsettled: Booleans) -> int:
        """Move the few open messages of the older half out of the array; returns the length that can then be rolled
        up."""
        half = len(used) // 2
        stay = np.flatnonzero(unsettled[:half])
        if len(stay) > half // 64:
            return 0
        for at in stay.tolist():
            self._stragglers[self._base + at] = int(used[at])
        return half

    # The account

    def outstanding(self) -> int:
        """How many messages should still be delivered."""
        return self._count(_OUTSTANDING)

    def close(self, *, drained: bool, abandoned: bool) -> None:
        """No more deliveries can come: settle the account of all messages so far.

        Outstanding messages are lost if the queues were ``drained``. Otherwise they are undelivered, and ``abandoned``
        if they were deleted with their queues.
        """
        promised = self._count(_PROMISED)
        if drained and promised:
            self.counts["lost"] += promised
            self._examples.add_ranges(self.publisher, "lost", promised, self._ranges(_PROMISED))
        elif not drained:
            self.counts["undelivered"] += promised
            self.counts["abandoned"] += promised if abandoned else 0
        if not drained:  # messages may still lie in their queues, and be delivered after all
            self._start = self.next
            self._early.clear()
        self._base = self.next
        self._flags = np.zeros(ARRAY_MIN, np.uint8)
        self._stragglers.clear()
        self._highest.clear()
        self._keys_of.clear()

    def _parts(self) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """The flags in the array, a part at a time, each with the number of its first message."""
        used = self._used()
        for at in range(0, used, PART):
            yield self._base + at, self._flags[at : min(at + PART, used)]

    def _count(self, wanted: Booleans) -> int:
        """Number of messages with ``wanted`` flags."""
        stragglers = sum(1 for flags in self._stragglers.values() if wanted[flags])
        return stragglers + sum(_count(wanted, part) for _, part in self._parts())

    def _ranges(self, wanted: Booleans) -> Iterator[tuple[int, int]]:
        """The messages with flags that are ``wanted``, as ranges in ascending order."""
        yield from ((number, number) for number, flags in sorted(self._stragglers.items()) if wanted[flags])
        for first, part in self._parts():
            yield from _ranges(np.flatnonzero(wanted[part]) + first)

    # The same calls as with one account for each queue

    def copy(self, _queue: int) -> PublisherLedger:
        """The account of this publisher for a queue: one account serves all queues."""
        return self

    def totals(self) -> Counter[str]:
        """Everything counted."""
        return self.counts

    def unbind(self, _queue: int) -> None:
        """A queue is gone. It has no account of its own here."""


class FanoutLedger:
    """A publisher whose messages go to several queues; each queue has to deliver its copy.

    A queue that is bound while messages flow has to deliver the messages that were published later. It may deliver any
    of the messages that were on their way.
    """

    def __init__(
        self,
        publisher: int,
        examples: Examples,
        queues: Iterable[int],
        *,
        shared: bool = False,
        promise: Promise = OF_CHANNELS,
    ) -> None:
        self.publisher = publisher
        self.next = 0
        self.counts: Counter[str] = Counter()
        self._examples = examples
        self._shared = shared
        self._promise = promise
        self._queues = {queue: self._account(0) for queue in queues}

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
        """The account for a queue; a new account begins now."""
        if queue not in self._queues:
            self._queues[queue] = self._account(self.next)
        return self._queues[queue]

    def _account(self, start: int) -> PublisherLedger:
        return PublisherLedger(self.publisher, self._examples, start, shared=self._shared, promise=self._promise)

    def unbind(self, queue: int) -> None:
        """A queue is gone on purpose, so its messages are abandoned and not lost."""
        account = self._queues.pop(queue, None)
        if account is not None:
            account.close(drained=False, abandoned=True)
            self.counts.update(_deliveries(account))

    def outstanding(self) -> int:
        """Number of messages still to be delivered; a message counts for each queue that should deliver it."""
        return sum(account.outstanding() for account in self._queues.values())

    def close(self, *, drained: bool, abandoned: bool) -> None:
        """As :meth:`PublisherLedger.close`."""
        for account in self._queues.values():
            account.close(drained=drained, abandoned=abandoned)

    def totals(self) -> Counter[str]:
        """All counts: the publisher's side once, and the deliveries of all queues."""
        return sum((_deliveries(account) for account in self._queues.values()), self.counts.copy())


def _deliveries(account: PublisherLedger) -> Counter[str]:
    return Counter({name: account.counts[name] for name in DELIVERY_COUNTS})


def _count(wanted: Booleans, flags: npt.NDArray[np.uint8]) -> int:
    """Number of ``wanted`` among ``flags``. Neighbours mostly have the same flags, and are then judged as one."""
    lowest = int(flags.min())
    if lowest == int(flags.max()):
        return len(flags) if wanted[lowest] else 0
    return int(np.count_nonzero(wanted[flags]))


def _ranges(ordered: Integers) -> Iterator[tuple[int, int]]:
    """Numbers that ascend, as ranges."""
    if not len(ordered):
        return
    ends = np.flatnonzero(np.diff(ordered) != 1)
    firsts = itertools.chain([int(ordered[0])], (int(ordered[at + 1]) for at in ends))
    lasts = itertools.chain((int(ordered[at]) for at in ends), [int(ordered[-1])])
    yield from zip(firsts, lasts, strict=True)


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same ranges; neighbours are one range."""
    held: tuple[int, int] | None = None
    for first, last in ranges:
        if held is not None and first == held[1] + 1:
            held = held[0], last
            continue
        if held is not None:
            yield held
        held = first, last
    if held is not None:
        yield held
