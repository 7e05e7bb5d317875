"""The messages of a keyed queue: a map from key to a queue of its own, with at most one message out.

Theory of operation
-------------------
Messages with the same key are worked on in the order in which they came, one at a time, over all consumers. Messages
with different keys do not wait for each other. A *key* is in one of three states:

    waiting(at)        its head may be dealt from the time ``at`` on: at once, after a delay, or after a retry's delay
    reserved           its head is out: a consumer holds the message until it commits or rolls back
    (gone)             no message is left; the map forgets the key in the same step

::

                  push                        reserve
    (gone) ────────────────► waiting(at) ─────────────────► reserved
       ▲                        ▲  ▲                          │   │
       │                        │  └── roll back: at later ───┘   │
       │                        └───── commit: the next head ─────┤
       └────────────────────────────── commit: none is left ──────┘

A head that waits for its time blocks its key, and no other. A push to a key that has messages goes behind them and
changes nothing else: neither the head's time, nor its number of tries, nor its being out.

The due head with the earliest time is dealt first; of equals, the head that was pushed first. So no key starves: the
next message of a busy key has the time of its own push, and stands behind the heads of keys that wait longer.

A message without a key is a key of its own.

Back of the envelope: a waiting message takes some 150 octets; a push, a reserve and a commit take O(log keys).

Invariants (I29): every message of the queue is in exactly one place; at most one message of a key is out; the heap has
each key with messages that is not reserved, at the time of its head.

Source: the *map of queues* of Keuss' ``intraorder`` backend, without five defects of the original
(docs/internals/keyed-queues.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from typing import Final, NamedTuple, Self

from reference_broker.machines.messages.backlog import Record
from reference_broker.machines.messages.held_ranges import HeldRange
from reference_broker.machines.messages.origins import NEVER, Origin
from reference_broker.machines.messages.ready import FoundStretch, Returned, Stretch
from reference_broker.machines.messages.records import Columns
from reference_broker.types import ConsumerId


class Waiting(NamedTuple):
    """A message that no consumer holds: the message at ``position`` of the run of ``origin``.

    ``at_ms`` is the time from which it may be dealt, once it is the head of its key. ``retry_ms`` is the delay after
    each roll back (:data:`~reference_broker.machines.config.NO_LIMIT`: that of the queue).
    """

    position: int
    origin: Origin
    at_ms: int
    retry_ms: int

    @property
    def number(self) -> int:
        """The message number: above the numbers of all earlier messages."""
        return self.origin.base + self.position


class Key:
    """The messages of one key. ``name`` None: a message without a key."""

    __slots__ = ("name", "reserved", "waiting")

    def __init__(self, name: bytes | None) -> None:
        self.name = name
        self.waiting: deque[Waiting] = deque()
        self.reserved: Reservation | None = None

    @property
    def first_number(self) -> int:
        """The number of its oldest message."""
        return self.reserved.number if self.reserved is not None else self.waiting[0].number


@dataclass(slots=True)
class Reservation:
    """A head that is out. ``consumer`` and ``message_id`` are its *fencing token*: the identity of a consumer is never
    used again, nor is an id of that consumer. So a commit or roll back that comes too late names no message.

    ``at_ms`` is the time from which the message could be dealt; ``until_ms`` the time at which the queue takes it back.
    """

    key: Key
    number: int
    at_ms: int
    retry_ms: int
    until_ms: int
    consumer: ConsumerId
    message_id: int


class KeyedReady:
    """The messages of a keyed queue, and which of them can be dealt at the time :attr:`now_ms`.

    To the rest of the machine this class is both the ready messages and their backlog.
    """

    __slots__ = (
        "_heads",
        "_keys",
        "_overdue",
        "_pushed",
        "_reserved",
        "count",
        "key_count",
        "next_number",
        "now_ms",
        "octets",
        "retry_delay_ms",
    )

    first_number: Final = 0
    """Below the numbers of all messages: a keyed queue never forgets that it has times to live."""
    is_before_a_block: Final = False
    """Messages leave one by one."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.retry_delay_ms = 0
        """The delay after a roll back of a message that has none of its own."""
        self.next_number = 0
        """The number of the next message. No number is used twice."""
        self.count = 0
        """Number of messages that no consumer holds, due or not."""
        self.octets = 0
        """Octets of their bodies."""
        self.key_count = 0
        """Keys with messages. A message without a key counts as one."""
        self._keys: dict[bytes, Key] = {}
        self._heads: list[tuple[int, int, Key]] = []
        """A heap of the heads that no consumer holds: time, number, key. Heads that have left stay until they are on
        top."""
        self._reserved: dict[int, Reservation] = {}
        """By message number."""
        self._overdue: list[tuple[int, int]] = []
        """A heap of the ends of reservations: time, number. Reservations that have ended stay until they are on top."""
        self._pushed: list[tuple[int, Key]] = []
        """Number and key of each message of the newest run."""

    # Messages come

    def begin_run(self) -> None:
        """The messages that are added from now on are the newest (:attr:`tail_count`)."""
        self._pushed = []

    def add(self, name: bytes | None, message: Waiting) -> None:
        """Append a message to those of its key. Its number is :attr:`next_number`."""
        key = self._keys.get(name) if name is not None else None
        if key is None:
            key = Key(name)
            self.key_count += 1
            if name is not None:
                self._keys[name] = key
        key.waiting.append(message)
        self._pushed.append((message.number, key))
        self.next_number = message.number + 1
        self.count += 1
        self.octets += message.origin.size
        if len(key.waiting) == 1 and key.reserved is None:
            self._show_head(key)

    @property
    def tail_count(self) -> int:
        """Number of newest messages that :meth:`take_tail` may remove: 1, or 0 if the newest of all was dealt."""
        if not self._pushed:
            return 0
        number, key = self._pushed[-1]
        return int(bool(key.waiting) and key.waiting[-1].number == number)

    def peek_tail(self) -> Record:
        """The newest message, as a record. There must be one of :attr:`tail_count`."""
        message = self._pushed[-1][1].waiting[-1]
        origin = message.origin
        return origin.entry, origin.offset, message.position, 1, origin.expires, origin.size

    def take_tail(self, _count: int = 1) -> None:
        """Remove the newest message, as if it had never been pushed."""
        key = self._pushed.pop()[1]
        self._gone(key.waiting.pop())
        if not key.waiting and key.reserved is None:
            self._forget(key)

    # The next message

    def _top(self) -> Key | None:
        """The key whose head is dealt next, whether its time has come or not."""
        heads = self._heads
        while heads:
            _at_ms, number, key = heads[0]
            if key.reserved is None and key.waiting and key.waiting[0].number == number:
                return key
            heappop(heads)
        return None

    def __bool__(self) -> bool:
        """Whether a message can be dealt now."""
        return self._top() is not None and self._heads[0][0] <= self.now_ms

    def head(self) -> Stretch:
        """The next message. There must be a message that can be dealt."""
        message = self._heads[0][2].waiting[0]
        return 1, message.position, 1, message.origin

    def take(self, _count: int = 1) -> None:
        """Remove the message of :meth:`head` for good; the next message of its key is a head now."""
        key = heappop(self._heads)[2]
        self._gone(key.waiting.popleft())
        self._next_head(key)

    def reserve(self, consumer: ConsumerId, message_id: int, until_ms: int) -> None:
        """Give the message of :meth:`head` to a consumer, until a time (:data:`~.origins.NEVER`: without end)."""
        key = heappop(self._heads)[2]
        message = key.waiting.popleft()
        self._gone(message)
        held = Reservation(key, message.number, message.at_ms, message.retry_ms, until_ms, consumer, message_id)
        self._hold(held)

    def _hold(self, reservation: Reservation) -> None:
        reservation.key.reserved = self._reserved[reservation.number] = reservation
        if reservation.until_ms != NEVER:
            heappush(self._overdue, (reservation.until_ms, reservation.number))

    # Messages that are out

    def commit(self, released: Iterable[HeldRange]) -> None:
        """Messages that were out leave for good, in whatever way: their keys go on."""
        for number in chain.from_iterable(map(_numbers, released)):
            reservation = self._reserved.pop(number, None)
            if reservation is not None:
                reservation.key.reserved = None
                self._next_head(reservation.key)

    def put_back(self, held: HeldRange, origin: Origin) -> None:
        """Roll back: messages that were out are the heads of their keys again, after the delay of each message."""
        for step, number in enumerate(_numbers(held)):
            reservation = self._reserved.pop(number)
            key = reservation.key
            key.reserved = None
            delay_ms = reservation.retry_ms if reservation.retry_ms >= 0 else self.retry_delay_ms
            at_ms = self.now_ms + delay_ms if delay_ms else reservation.at_ms
            message = Waiting(held.start + step * held.step, origin, at_ms, reservation.retry_ms)
            key.waiting.appendleft(message)
            self.count += 1
            self.octets += origin.size
            self._show_head(key)

    def overdue(self) -> Reservation | None:
        """A reservation whose time is over, the one that ended first."""
        reservation = self._next_to_end()
        return reservation if reservation is not None and reservation.until_ms <= self.now_ms else None

    def _next_to_end(self) -> Reservation | None:
        """The reservation that ends next by itself."""
        while self._overdue:
            until_ms, number = self._overdue[0]
            reservation = self._reserved.get(number)
            if reservation is not None and reservation.until_ms == until_ms:
                return reservation
            heappop(self._overdue)
        return None

    def due_ms(self, *, is_wanted: bool) -> int:
        """The next time at which something happens by itself: the end of a reservation, the end of the life of the next
        head and, if a message ``is_wanted``, the time of that head. :data:`~.origins.NEVER` if nothing does, which
        spares wake-ups."""
        due = NEVER
        if (reservation := self._next_to_end()) is not None:
            due = reservation.until_ms
        if (key := self._top()) is None:
            return due
        head = key.waiting[0]
        if is_wanted and head.at_ms > self.now_ms:
            due = min(due, head.at_ms)
        if head.origin.expires != NEVER:
            due = min(due, max(head.origin.expires, head.at_ms))  # nothing expires while it waits for a retry
        return due

    def _next_head(self, key: Key) -> None:
        """The head of a key has left: the next message is its head, or the key is gone."""
        if key.waiting:
            self._show_head(key)
        else:
            self._forget(key)

    def _show_head(self, key: Key) -> None:
        head = key.waiting[0]
        heappush(self._heads, (head.at_ms, head.number, key))

    def _forget(self, key: Key) -> None:
        self.key_count -= 1
        if key.name is not None:
            del self._keys[key.name]

    def _gone(self, message: Waiting) -> None:
        self.count -= 1
        self.octets -= message.origin.size

    # As the rest of the machine sees ready messages

    @property
    def backlog(self) -> Self:
        """The entrance of messages: this object."""
        return self

    def push(self, record: Record) -> None:
        """No message enters without its label: see :meth:`add`."""
        raise AssertionError(f"{record} has no key")

    @property
    def reserved_count(self) -> int:
        """Number of keys with a message out."""
        return len(self._reserved)

    def by_age(self) -> list[Key]:
        """All keys, by their oldest message."""
        return sorted(self._all_keys(), key=lambda key: key.first_number)

    def _all_keys(self) -> set[Key]:
        """Those without a name are heads, or out."""
        found = set(self._keys.values())
        found.update([key for _at_ms, _number, key in self._heads if key.waiting])
        found.update([each.key for each in self._reserved.values()])
        return found

    @property
    def returned(self) -> list[Returned]:
        """All messages that no consumer holds, by number."""
        messages = sorted((message for key in self.by_age() for message in key.waiting), key=lambda each: each.number)
        return [(each.number, 1, each.position, 1, each.origin) for each in messages]

    @property
    def returned_count(self) -> int:
        """Messages outside of :attr:`backlog`."""
        return self.count

    def pieces(self) -> Iterator[Columns]:
        """The packed records of the backlog: a keyed queue has none."""
        return iter(())

    def take_records(self, _chosen: Callable[[Columns], int]) -> list[tuple[int, Columns]]:
        """Remove packed records: there are none."""
        return []

    def lowest_entry(self) -> int:
        """The lowest log entry with a message that no consumer holds. There must be one. O(keys)."""
        return min(key.waiting[0].origin.entry for key in self._all_keys() if key.waiting)

    def clear(self) -> int:
        """Remove all messages that no consumer holds. Returns their number."""
        gone = self.count
        for key in self._all_keys():
            key.waiting.clear()
            if key.reserved is None:
                self._forget(key)
        self._heads, self._pushed = [], []
        self.count = self.octets = 0
        return gone

    def expires_ever(self) -> bool:
        """Whether any message that no consumer holds has a time to live."""
        return any(message.origin.expires != NEVER for key in self._all_keys() for message in key.waiting)

    def load_found(self, found: Iterable[FoundStretch], next_number: int) -> None:
        """Take over messages that a store has found. Their delays begin anew: no store knows when they began."""
        for each in found:
            place, was_delivered = (each.entry, each.offset, each.entry), int(each.was_delivered)
            labels = chain.from_iterable(repeat(label, count) for count, label in each.labels)
            for position, label in zip(range(each.start, each.start + each.count), labels, strict=True):
                late = each.expires if each.expires == NEVER else each.expires + label.delay_ms
                origin = Origin(*place, was_delivered, late, each.size)
                self.add(label.key, Waiting(position, origin, self.now_ms + label.delay_ms, label.retry_ms))
        self._pushed = []
        self.next_number = next_number

    def load(self, keys: list[Key], next_number: int) -> None:
        """Take over the keys of a snapshot, ascending by their oldest message."""
        self.next_number, self.key_count = next_number, len(keys)
        for key in keys:
            if key.name is not None:
                self._keys[key.name] = key
            if key.reserved is not None:
                self._hold(key.reserved)
            else:
                self._heads.append((key.waiting[0].at_ms, key.waiting[0].number, key))
            self.count += len(key.waiting)
            self.octets += sum(message.origin.size for message in key.waiting)
        heapify(self._heads)


def _numbers(held: HeldRange) -> range:
    return range(held.number, held.number + held.count * held.step, held.step)
