"""What became of every message: published, confirmed, delivered; and so what was lost, doubled, reordered, damaged.

Theory of operation. Each publisher numbers its messages 0, 1, 2 ... and keeps one octet of flags per message in an
array that covers the numbers from the oldest unsettled to the newest. Runs of messages are slices of it, so accounting
costs a few numpy calls a run. A prefix that is settled (confirmed and delivered, or nacked, or returned) is rolled up
into counters. Messages that stay open while thousands after them are settled are moved out of the array one by one, so
the array stays short: memory is one octet for each message that is under way or waits in a queue, a dictionary entry
for each straggler.

What counts as what:

- *lost*: confirmed, not returned, and never delivered although the queues were drained;
- *duplicated*: a delivery beyond the first that is not flagged redelivered, of a message that was published once;
- *reordered*: a first delivery, neither redelivered nor of a message published twice, whose number is below one that
  the same consumer's channel already had from this publisher;
- *unexpected*: a delivery under this run's mark with a publisher or number that was never used;
- *damaged*: body of a size that nobody sent, or filler that differs;
- *foreign*: a message of another run or program; counted, and otherwise ignored.

Invariants: each delivery counts once in ``delivered`` or ``foreign`` or ``unexpected``; ``unique`` + repeats =
``delivered``; a rolled-up message is never lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

CONFIRMED: Final = 1
NACKED: Final = 2
RETURNED: Final = 4
DELIVERED: Final = 8
UNAWAITED: Final = 16
"""Published without confirms: nothing was promised, so nothing can be lost."""

EXAMPLES_MAX: Final = 20
ARRAY_MIN: Final = 4096
STRAGGLER_SPAN: Final = 1 << 16
"""Only arrays longer than this are relieved of stragglers."""

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def _is_settled(flags: int) -> bool:
    answered = flags & (CONFIRMED | NACKED | UNAWAITED)
    return bool(answered and (flags & (DELIVERED | RETURNED) or flags & NACKED))


_SETTLED: Final = np.array([_is_settled(flags) for flags in range(256)])
_OUTSTANDING: Final = np.array(
    [bool(flags & (CONFIRMED | UNAWAITED)) and not _is_settled(flags) for flags in range(256)]
)


@dataclass(slots=True)
class Examples:
    """The first few violations, as ranges of numbers."""

    records: list[dict[str, object]] = field(default_factory=list)

    def add(self, publisher: int, what: str, numbers: Integers) -> None:
        """Note ``numbers`` (any order), neighbours as one range."""
        ordered = np.unique(numbers)
        for part in np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1):
            if len(self.records) >= EXAMPLES_MAX:
                return
            first, last = int(part[0]), int(part[-1])
            self.records.append({"publisher": publisher, "first": first, "last": last, "what": what})


class PublisherLedger:
    """The messages of one publisher."""

    def __init__(self, publisher: int, examples: Examples) -> None:
        self.publisher = publisher
        self.next = 0
        self.counts: Counter[str] = Counter()
        self._examples = examples
        self._base = 0
        self._flags = np.zeros(ARRAY_MIN, np.uint8)
        self._stragglers: dict[int, int] = {}
        self._republished: set[int] = set()
        self._highest: dict[int, int] = {}

    # The publisher's side

    def published(self, count: int, *, confirms: bool) -> int:
        """``count`` new messages leave; the number of the first."""
        first, self.next = self.next, self.next + count
        while self.next - self._base > len(self._flags):
            self._make_room()
        if not confirms:
            self._flags[first - self._base : self.next - self._base] = UNAWAITED
        else:
            self.counts["awaited"] += count
        return first

    def republished(self, numbers: Integers) -> None:
        """These were unconfirmed when their connection was lost and leave a second time."""
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
        self.counts[{CONFIRMED: "confirmed", NACKED: "nacked", RETURNED: "returned"}[flag]] += count

    # The consumer's side

    def delivered(self, scope: int, numbers: Integers, redelivered: Booleans) -> int:
        """A run of deliveries on the channel ``scope``, in the order they came. Returns how many of them were never
        published."""
        if (numbers.view(np.uint64) >= self.next).any():  # a damaged number may be negative, too
            return self._delivered_some(scope, numbers, redelivered)
        count = len(numbers)
        first = int(numbers[0])
        in_step = first >= self._base and count == int(numbers[-1]) - first + 1 and bool((np.diff(numbers) == 1).all())
        self.counts["delivered"] += count
        again = int(np.count_nonzero(redelivered))
        self.counts["redelivered"] += again
        if in_step and not again and first > self._highest.get(scope, -1):
            part = self._flags[first - self._base : first - self._base + count]
            if not (part & DELIVERED).any():
                part |= DELIVERED
                self.counts["unique"] += count
                self._highest[scope] = first + count - 1
                return 0
        self._delivered_out_of_step(scope, numbers, redelivered)
        return 0

    def _delivered_some(self, scope: int, numbers: Integers, redelivered: Booleans) -> int:
        """Some were never published: judge the others."""
        known = numbers.view(np.uint64) < self.next
        self._examples.add(self.publisher, "unexpected", numbers[~known])
        if known.any():
            self.delivered(scope, numbers[known], redelivered[known])
        return int(np.count_nonzero(~known))

    def _delivered_out_of_step(self, scope: int, numbers: Integers, redelivered: Booleans) -> None:
        repeats = self._mark_delivered(numbers)
        self.counts["unique"] += int(np.count_nonzero(~repeats))
        excused = redelivered.copy()
        if self._republished:
            excused |= np.fromiter((n in self._republished for n in numbers.tolist()), np.bool_, len(numbers))
        doubled = repeats & ~excused
        if doubled.any():
            self.counts["duplicated"] += int(np.count_nonzero(doubled))
            self._examples.add(self.publisher, "duplicated", numbers[doubled])
        self._check_order(scope, numbers[~repeats & ~excused])

    def _check_order(self, scope: int, numbers: Integers) -> None:
        if not len(numbers):
            return
        highest = np.maximum.accumulate(numbers)
        before = np.concatenate([[self._highest.get(scope, -1)], highest[:-1]])
        before = np.maximum.accumulate(before)
        late = numbers < before
        if late.any():
            self.counts["reordered"] += int(np.count_nonzero(late))
            self._examples.add(self.publisher, "reordered", numbers[late])
        self._highest[scope] = max(int(highest[-1]), self._highest.get(scope, -1))

    def _mark_delivered(self, numbers: Integers) -> Booleans:
        """Flag them; True for each that had been delivered before, also earlier in this very run."""
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
        return repeats

    def forget_scope(self, scope: int) -> None:
        """The channel is closed: order starts anew on the next one."""
        self._highest.pop(scope, None)

    # Memory

    def _flag_straggler(self, number: int, flag: int) -> None:
        flags = self._stragglers.get(number, 0) | flag
        if _SETTLED[flags]:
            self._stragglers.pop(number, None)
        elif number in self._stragglers:
            self._stragglers[number] = flags

    def _make_room(self) -> None:
        """Roll up what is settled; if that frees less than half, move stragglers out; if they are too many, grow."""
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
        """Take the few open messages of the older half out of the array; how far it can then be rolled up."""
        half = len(used) // 2
        stay = np.flatnonzero(unsettled[:half])
        if len(stay) > half // 64:
            return 0
        for at in stay.tolist():
            self._stragglers[self._base + at] = int(used[at])
        return half

    # The account

    def outstanding(self) -> Integers:
        """Numbers of the messages that should still be delivered."""
        used = self._flags[: self._used()]
        open_here = np.flatnonzero(_OUTSTANDING[used]) + self._base
        old = sorted(number for number, flags in self._stragglers.items() if _OUTSTANDING[flags])
        return np.concatenate([np.array(old, np.int64), open_here])

    def close(self, *, drained: bool, abandoned: bool) -> None:
        """No more deliveries can come: settle the account of everything so far.

        What is outstanding is lost if the queues were ``drained``; else it is undelivered, and ``abandoned`` too if it
        was deleted with its queue.
        """
        missing = self.outstanding()
        promised = missing[self._flags_of(missing) & CONFIRMED != 0]
        if drained and len(promised):
            self.counts["lost"] += len(promised)
            self._examples.add(self.publisher, "lost", promised)
        elif not drained:
            self.counts["undelivered"] += len(promised)
            self.counts["abandoned"] += len(promised) if abandoned else 0
        self._base = self.next
        self._flags[:] = 0
        self._stragglers.clear()
        self._highest.clear()

    def _flags_of(self, numbers: Integers) -> npt.NDArray[np.uint8]:
        flags = [self._stragglers[n] if n < self._base else int(self._flags[n - self._base]) for n in numbers.tolist()]
        return np.array(flags, np.uint8)


class Ledger:
    """All messages of a run. ``run`` is the mark its publishers put into the stamp."""

    def __init__(self, run: int) -> None:
        self._run = run
        self._publishers: dict[int, PublisherLedger] = {}
        self._examples = Examples()
        self._counts: Counter[str] = Counter()
        self._drained = True
        self._steps_closed = 0

    def publisher(self, publisher: int) -> PublisherLedger:
        """The account of a publisher; the same object each time."""
        if publisher not in self._publishers:
            self._publishers[publisher] = PublisherLedger(publisher, self._examples)
        return self._publishers[publisher]

    def delivered(self, scope: int, sources: Integers, numbers: Integers, redelivered: Booleans) -> Booleans | None:
        """A run of deliveries of one channel, stamped with ``sources`` and ``numbers``.

        Returns which of them are of this run (None: all), the others being left out of every latency.
        """
        if int(sources[0]) == int(sources[-1]) and bool((sources == sources[0]).all()):
            return self._delivered_from(scope, int(sources[0]), numbers, redelivered)
        ours = np.ones(len(sources), np.bool_)
        for source in np.unique(sources).tolist():
            mine = sources == source
            known = self._delivered_from(scope, source, numbers[mine], redelivered[mine])
            if known is not None:
                ours[mine] = known
        return None if ours.all() else ours

    def _delivered_from(self, scope: int, source: int, numbers: Integers, again: Booleans) -> Booleans | None:
        if source >> 16 != self._run:
            self._counts["foreign"] += len(numbers)
            return np.zeros(len(numbers), np.bool_)
        account = self._publishers.get(source & 0xFFFF)
        if account is None:
            self._counts["unexpected"] += len(numbers)
            self._examples.add(source & 0xFFFF, "unexpected", numbers)
            return np.zeros(len(numbers), np.bool_)
        unknown = account.delivered(scope, numbers, again)
        self._counts["unexpected"] += unknown
        return numbers.view(np.uint64) < account.next if unknown else None

    def damaged(self, source: int, numbers: Integers) -> None:
        """These bodies differ from what was sent; those of another run are not ours to judge."""
        if source >> 16 != self._run:
            return
        self._counts["damaged"] += len(numbers)
        self._examples.add(source & 0xFFFF, "damaged", numbers)

    def illegible(self, count: int) -> None:
        """Bodies too short for a stamp: nobody of this run sent them."""
        self._counts["foreign"] += count

    def forget_scope(self, scope: int) -> None:
        """A consumer's channel is closed."""
        for account in self._publishers.values():
            account.forget_scope(scope)

    def outstanding(self) -> int:
        """How many messages should still be delivered."""
        return sum(len(account.outstanding()) for account in self._publishers.values())

    def close(self, *, drained: bool, abandoned: bool) -> None:
        """Close the account of a step (or of all steps, if they shared their queues)."""
        self._drained &= drained
        self._steps_closed += 1
        for account in self._publishers.values():
            account.close(drained=drained, abandoned=abandoned)

    def record(self, *, complete: bool) -> dict[str, object]:
        """The content of ``ledger.json``; ``complete`` when the run came to its planned end."""
        totals = sum((account.counts for account in self._publishers.values()), self._counts.copy())
        published = sum(account.next for account in self._publishers.values())
        names = ("confirmed", "nacked", "returned", "republished", "delivered", "redelivered", "unique")
        harm = {name: totals[name] for name in ("lost", "duplicated", "reordered", "unexpected", "damaged")}
        drained = self._drained and self._steps_closed > 0
        verdict = "violated" if any(harm.values()) else "ok" if drained else "unknown"
        return {
            "schema": 1,
            "complete": complete,
            "drained": drained,
            "published": published,
            "unconfirmed": totals["awaited"] - totals["confirmed"] - totals["nacked"],
            **{name: totals[name] for name in names},
            **harm,
            "undelivered": totals["undelivered"],
            "abandoned": totals["abandoned"],
            "foreign": totals["foreign"],
            "examples": self._examples.records,
            "verdict": verdict,
        }
