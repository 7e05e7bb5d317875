"""The clients' ledger: which messages were published, confirmed, refused, delivered and settled.

The ledger sees only octets of clients, with one exception: it also learns which messages stand in committed entries, or
were applied by the owner of a classic queue, so that it can check each confirm.

What a confirm promises depends on the message and on its queue. A persistent message of a durable queue survives all
but the loss of the drive; in a mirrored queue, for as long as a copy goes on that had it. Any other message of a
classic queue ends with the process of the owner.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

from reference_broker.sim.checks.invariants import ViolationError, check
from reference_broker.sim.queues import GRAVEYARD, FanPlan, QueuePlan
from reference_broker.types import NodeId

NUMBER: Final = re.compile(rb"<(\d+) (\d+)>")
_PLACE_BITS: Final = 40
_ORDER: Final = (1 << _PLACE_BITS) - 1
"""The part of a number that says when the message was published."""


class ConsumerRecord:
    """The first deliveries of one subscription: the newest message number of each publisher and
    priority or key."""

    __slots__ = ("name", "newest", "queue")

    def __init__(self, name: str, queue: QueuePlan) -> None:
        self.name = name
        self.queue = queue
        self.newest: dict[tuple[int, int | str], int] = {}


class MessageSort(NamedTuple):
    """What a publisher says of a message."""

    is_persistent: bool
    priority: int
    key: str = ""
    """Empty: none."""


PLAIN: Final = MessageSort(is_persistent=True, priority=0)


class Taken(NamedTuple):
    """Where the owner of a classic queue took a message: its node, and how many processes and drives of the node had
    ended before."""

    node: NodeId
    processes: int
    drives: int


class MessageLedger:
    """All messages by number, over all queues."""

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.redelivered = 0
        self.refused = 0
        self.buried = 0
        """Messages that were published to another queue and delivered out of the graveyard."""
        self.is_unsure = False
        """A node could not find out in time whether a queue exists. Then the node refuses publishes to that queue."""
        self.has_lost_classic_queues = False
        """A node lost its drive, so classic queues may have to be declared again."""
        self._publishers = 0
        self._home: dict[int, QueuePlan] = {}
        self._deliveries: dict[tuple[str, int], int] = {}
        self._confirmed: dict[int, QueuePlan] = {}
        self.confirmed = 0
        self._first: set[int] = set()
        self._settled: set[int] = set()
        self._committed: set[int] = set()
        self._returned: set[int] = set()
        """The messages that came back, because their queue was not there."""
        self._sorts: dict[int, MessageSort] = {}
        """The messages that are not plain."""
        self._taken: dict[int, Taken] = {}
        """The messages of classic queues that their owners have applied."""
        self._stored: set[int] = set()
        """The messages of which their owners have heard that they survive."""
        self._passing: dict[int, QueuePlan] = {}
        """The confirmed messages that end with the process of their owner."""
        self._copied: dict[int, QueuePlan] = {}
        """The confirmed messages that every copy of a mirrored queue has, and that survive."""
        self._bound: dict[str, tuple[int, QueuePlan]] = {}
        """The queues that somebody has bound to the fan, each with its place among them."""
        self._fanned: set[int] = set()
        """The messages that were published to the fan."""
        self._told: set[int] = set()
        """The messages to the fan that are confirmed."""
        self._processes_ended: Counter[NodeId] = Counter()
        self._drives_lost: Counter[NodeId] = Counter()
        self._at_work: dict[tuple[str, str], set[int]] = {}
        """The messages of a key in a strict queue that clients have got, and that none has settled."""

    def new_publisher(self) -> int:
        """A number for the next channel that publishes."""
        self._publishers += 1
        return self._publishers

    def body(self, publisher: int, padding: int, queue: QueuePlan, sort: MessageSort = PLAIN) -> tuple[int, bytes]:
        """The next message: its number and its body."""
        self.published += 1
        self._home[self.published] = queue
        if sort is not PLAIN:
            self._sorts[self.published] = sort
        return self.published, b"<%d %d>" % (self.published, publisher) + b"." * padding

    def binds(self, queue: QueuePlan) -> None:
        """A client binds a queue to the fan."""
        self._bound.setdefault(queue.name, (len(self._bound) + 1, queue))

    def body_for_fan(self, publisher: int, padding: int) -> tuple[int, bytes]:
        """The next message to the fan: its number and its body."""
        self.published += 1
        self._fanned.add(self.published)
        return self.published, b"<%d %d>" % (self.published, publisher) + b"." * padding

    def number_in(self, queue: str, number: int) -> int:
        """The number under which the ledger knows a message in a queue. Each copy of a message to the fan has a number
        of its own."""
        if number not in self._fanned:
            return number
        check(queue in self._bound, "I16", f"message {number} went to the fan and is in {queue}, which nobody bound")
        place, plan = self._bound[queue]
        copy = number | place << _PLACE_BITS
        self._home.setdefault(copy, plan)
        return copy

    def committed(self, queue: str, payload: bytes) -> None:
        """An entry of a queue is committed, and so are the messages in it."""
        for text, _ in NUMBER.findall(payload):
            number = self.number_in(queue, int(text))
            if int(text) in self._told and number not in self._committed:
                check(not self._home[number].is_kept, "I22", f"message {text} was confirmed before {queue} had it")
            self._committed.add(number)

    # The owners of classic queues

    def taken(self, node: NodeId, queue: str, payload: bytes) -> None:
        """The owner of a classic queue has applied an enqueue."""
        for text, _ in NUMBER.findall(payload):
            number = self.number_in(queue, int(text))
            self._committed.add(number)
            if self._home[number].name != queue or self._home[number].is_mirrored:
                continue  # a dead letter, or a message that a new master takes once more
            check(number not in self._taken, "I23", f"message {number} is enqueued twice in {queue}")
            self._taken[number] = Taken(node, self._processes_ended[node], self._drives_lost[node])

    def stored(self, number: int) -> None:
        """The owner of a classic queue has heard that a message survives."""
        self._stored.add(number)

    def process_ended(self, node: NodeId) -> None:
        """A node has stopped."""
        self._processes_ended[node] += 1

    def drive_lost(self, node: NodeId) -> None:
        """A node has lost its drive, with its classic queues."""
        self._drives_lost[node] += 1
        for number in [number for number in self._confirmed if self._was_on(node, number)]:
            del self._confirmed[number]
        self.copies_lost()

    def copies_lost(self) -> None:
        """The copy that goes on may lack confirmed messages."""
        self._copied.clear()

    def _was_on(self, node: NodeId, number: int) -> bool:
        return number in self._taken and self._taken[number].node == node

    def must_survive(self, number: int) -> bool:
        """Whether a message is persistent and in a durable queue."""
        is_durable = number in self._fanned or self._home[number].is_durable
        return is_durable and self._sorts.get(number, PLAIN).is_persistent

    def found(self, node: NodeId, name: str | None, queue: list[bytes]) -> set[int]:
        """A start of a node has found these messages of a classic queue, in order, where a queue with that ``name`` is
        still known. Returns their numbers, and checks that they may be there."""
        newest: dict[tuple[bytes, int], int] = {}
        numbers = set()
        for content in queue:
            match = NUMBER.search(content)
            check(match is not None, "X10", f"node {node} finds octets that nobody published: {content[:60]!r}")
            assert match is not None
            number = self.number_in(name, int(match[1])) if name is not None else int(match[1])
            numbers.add(number)
            if number in self._fanned:
                continue  # in a queue that is gone
            home = self._home[number]
            if name is not None and home.name != name:
                continue  # a dead letter
            check(self.must_survive(number), "X10", f"node {node} finds transient message {number} of {home.name}")
            key = match[2], self._sorts.get(number, PLAIN).priority
            order = number & _ORDER
            check(newest.get(key, 0) < order, "X10", f"node {node} finds message {order} behind {newest.get(key)}")
            newest[key] = order
        return numbers

    def check_found(self, node: NodeId, found: set[int]) -> None:
        """Check that a start of a node has found every message that was confirmed and is not settled."""
        lost = sorted(
            number for number in self._confirmed.keys() - self._settled - found if self._was_on(node, number)
        )  # fmt: skip
        check(not lost, "X10", f"node {node} starts without {len(lost)} confirmed messages: {lost[:10]}")

    # What clients hear

    def returns(self, body: bytes) -> None:
        """A publisher got a message back, for which there is no queue. The confirm that follows promises nothing."""
        found = NUMBER.match(body)
        check(found is not None, "I16", f"a publisher got back what it did not publish: {body[:40]!r}")
        assert found is not None
        number = int(found[1])
        check(number not in self._fanned, "I16", f"message {number} came back, though queues are bound to the fan")
        check(number not in self._committed, "I22", f"message {number} came back and is in its queue")
        self._returned.add(number)

    def confirms(self, queue: QueuePlan | FanPlan, number: int) -> None:
        """A publisher got a confirm for a message."""
        if isinstance(queue, FanPlan):
            self._confirms_copies(queue, number)
            return
        if number in self._returned:
            self.confirmed += 1
            return
        if queue.is_kept:
            check(number in self._committed, "I22", f"message {number} in {queue.name} is confirmed and not committed")
        self.confirmed += 1
        if queue.is_kept and not queue.has_limits:
            self._promise(queue, number)

    def _confirms_copies(self, fan: FanPlan, number: int) -> None:
        """Every queue that the fan leads to has the message, and no queue gets it later."""
        self._told.add(number)
        self.confirmed += 1
        for queue in fan.must:
            has = self.number_in(queue.name, number) in self._committed
            check(has, "I22", f"message {number} to the fan is confirmed and not committed in {queue.name}")
        for _place, queue in self._bound.values():
            copy = self.number_in(queue.name, number)
            if queue.is_kept and copy in self._committed:
                self._promise(queue, copy)

    def _promise(self, queue: QueuePlan, number: int) -> None:
        if queue.is_mirrored:
            if self.must_survive(number):
                self._copied[number] = queue
        elif not queue.is_classic:
            self._confirmed[number] = queue
        elif not self.must_survive(number):
            self._passing[number] = queue
        else:
            is_safe = number in self._stored or number in self._settled
            check(is_safe, "I22", f"message {number} in {queue.name} is confirmed and not stored")
            if self._taken[number].drives == self._drives_lost[self._taken[number].node]:
                self._confirmed[number] = queue

    def refuses(self, queue: QueuePlan | FanPlan, number: int) -> None:
        """A publisher heard that a queue refused a message. The fan refuses as soon as one of its queues does."""
        queues = [plan for _place, plan in self._bound.values()] if isinstance(queue, FanPlan) else [queue]
        may_go = isinstance(queue, FanPlan) and any(not each.is_kept for each in queues)
        is_refused = any(each.may_refuse or each.is_classic for each in queues)  # the owner may be out of reach
        may = may_go or is_refused or self.is_unsure
        check(may, "I28", f"message {number} is refused by {queue.name}, which cannot be full")
        self.refused += 1

    def delivers(self, consumer: ConsumerRecord, body: bytes, redelivered: bool) -> int:
        """A consumer got a message. Returns the number of the message."""
        found = NUMBER.match(body)
        if found is None:
            raise ViolationError("I16", f"{consumer.name} got octets that nobody published: {body[:40]!r}")
        number, publisher = self.number_in(consumer.queue.name, int(found[1])), int(found[2])
        check(number in self._committed, "I4", f"{consumer.name} got message {number}, which is not committed")
        self.delivered += 1
        self._count(consumer, number)
        home = self._home[number]
        if home is not consumer.queue:
            here = consumer.queue.name == GRAVEYARD and home.may_bury
            check(here, "I16", f"{consumer.name} got message {number} of {home.name} from {consumer.queue.name}")
            self.buried += 1
            return number
        self._works_on(consumer, home, number)
        if redelivered:
            self.redelivered += 1
            return number
        check(number not in self._first, "I23", f"{consumer.name} got message {number} as if for the first time")
        self._first.add(number)
        sort = self._sorts.get(number, PLAIN)
        if home.has_keys and not sort.key:
            return number  # a message without a key waits for no other message
        key = publisher, sort.key or sort.priority if home.max_priority or home.has_keys else 0
        newest, order = consumer.newest.get(key, 0), number & _ORDER
        check(order > newest, "I21", f"{consumer.name} got message {order} of channel {publisher} after {newest}")
        consumer.newest[key] = order
        return number

    def _works_on(self, consumer: ConsumerRecord, home: QueuePlan, number: int) -> None:
        """A client has got a message of a strict queue: those of its key before are settled."""
        key = self._sorts.get(number, PLAIN).key
        if not key or not home.is_strict:
            return
        at_work = self._at_work.setdefault((home.name, key), set())
        others = at_work - {number}
        check(not others, "I29", f"{consumer.name} got message {number} of key {key} while {others} are not settled")
        at_work.add(number)

    def _count(self, consumer: ConsumerRecord, number: int) -> None:
        """Count a delivery. A message may be delivered once more than it may return."""
        limit = consumer.queue.delivery_limit
        if limit is not None:
            key = consumer.queue.name, number
            count = self._deliveries[key] = self._deliveries.get(key, 0) + 1
            check(count <= limit + 1, "I24", f"{consumer.name} got message {number} as the {count}th, limit {limit}")

    def settles(self, number: int) -> None:
        """A client has settled a message."""
        self._settled.add(number)
        key = self._home[number].name, self._sorts.get(number, PLAIN).key
        self._at_work.get(key, set()).discard(number)

    def check_nothing_lost(self) -> None:
        """Check, at the end, when all queues are empty, that no confirmed message was lost."""
        promised = self._confirmed | self._copied
        promised |= {number: queue for number, queue in self._passing.items() if self._is_there(number)}
        lost = sorted(promised.keys() - self._settled)
        where = {promised[number].name for number in lost}
        check(not lost, "I22", f"{len(lost)} confirmed messages lost in {sorted(where)}: {lost[:10]}")

    def _is_there(self, number: int) -> bool:
        """Whether the process still runs that took a message."""
        taken = self._taken[number]
        return taken.processes == self._processes_ended[taken.node]
