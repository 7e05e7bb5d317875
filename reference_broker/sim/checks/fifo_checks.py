"""The promises of a queue, checked on the machines of all members and on the deliveries that they execute.

Every few entries, at the same entries on all members, the state of a member is compared with the states of the other
members at the same index, and is checked in itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from operator import itemgetter, lt
from typing import Any, Final

from reference_broker.checksum import crc32
from reference_broker.machines.config import Overflow
from reference_broker.machines.consumers import IN_SERVICE, UNLIMITED, Status
from reference_broker.machines.effects import DeadLetter
from reference_broker.machines.fifo import FifoMachine
from reference_broker.machines.keyed import KeyedReady
from reference_broker.machines.messages.priorities import PriorityReady
from reference_broker.machines.messages.ready import Ready
from reference_broker.sim.checks.invariants import ViolationError, check
from reference_broker.sim.checks.raft_checks import GroupTruth
from reference_broker.types import ChannelId, ConsumerId, GroupId, LogIndex, NodeId

COMPARE_EVERY: Final = 4
LOOK_EVERY: Final = 16
_NUMBERS_MAX: Final = 5000
_WAYS_OUT: Final = ("settled", "discarded", "delivery_limited", "expired", "dropped", "purged")


def compare(truth: GroupTruth, node: NodeId, index: int, machine: Any) -> None:
    """Check that a member, having applied an entry, has the same state as the others at that entry."""
    found = crc32(machine.snapshot())
    known = truth.state_hashes.setdefault(index, found)
    check(known == found, "I13", f"node {node} has another state at entry {index}")


def look_through(node: NodeId, machine: FifoMachine) -> None:
    """Check that the state of one member is sound in itself."""
    where = f"node {node}, queue {machine.config.name} at entry {machine.applied}"
    counts = machine.counts()
    here = counts.ready + counts.unacked
    gone = sum(getattr(counts, way) for way in _WAYS_OUT)
    check(counts.enqueued == here + gone, "I14", f"{where}: {counts.enqueued} came, {here} are here, {gone} left")
    ready = machine.state.ready
    match ready:
        case Ready():
            _look_at_ready(where, ready)
        case KeyedReady():
            _look_at_keys(where, machine, ready)
        case PriorityReady():
            for level in ready._levels.values():
                _look_at_ready(where, level)
    dead, letters = counts.dead_lettered, counts.dead_letters
    check(letters <= dead <= gone, "I14", f"{where}: {letters} letters of {dead}, and {gone} left")
    _look_at_consumers(where, machine)
    _look_at_limits(where, machine)
    if here <= _NUMBERS_MAX and not isinstance(ready, PriorityReady):
        _look_at_numbers(where, machine, ready, here)


def _look_at_ready(where: str, ready: Ready) -> None:
    """Check counts and order of the ready messages of one priority. Places are those of the first message of each
    stretch: log index or sequence number, offset, position."""
    returned = sum(stretch[1] for stretch in ready.returned)
    records = [*ready.backlog]
    count = sum([record[3] for record in records])
    check(ready.returned_count == returned and ready.backlog.count == count, "I14", f"{where}: counts are off")
    back = [(*each[4][:2], each[2]) for each in sorted(ready.returned, key=itemgetter(0))]
    places = [*back, *[record[:3] for record in records]]
    check(all(map(lt, places, places[1:])), "X12", f"{where}: {places[:9]} are ready in this order")


def _look_at_keys(where: str, machine: FifoMachine, ready: KeyedReady) -> None:
    """Check the keys (I29): one message of each is out at most, its consumer holds it, and the other keys show their
    heads."""
    keys = ready.by_age()
    names = [key.name for key in keys if key.name is not None]
    check(len(names) == len(set(names)) == len(ready._keys), "I29", f"{where}: a key is there twice, or has no message")
    check(len(keys) == ready.key_count, "I29", f"{where}: {ready.key_count} of {len(keys)} keys are counted")
    waiting = [message for key in keys for message in key.waiting]
    here = len(waiting), sum(message.origin.size for message in waiting)
    check((ready.count, ready.octets) == here, "I14", f"{where}: {ready.count} of {here} messages are counted")
    for key in keys:
        numbers = [message.number for message in key.waiting]
        check(
            numbers == sorted(numbers), "I29", f"{where}: key {key.name!r} has its messages in the order {numbers[:9]}"
        )
    free = {(key.waiting[0].at_ms, key.waiting[0].number) for key in keys if key.reserved is None}
    shown = {(at_ms, number) for at_ms, number, _key in ready._heads}
    check(free <= shown, "I29", f"{where}: heads {sorted(free - shown)[:9]} will never be dealt")
    _look_at_reserved(where, machine, ready)


def _look_at_reserved(where: str, machine: FifoMachine, ready: KeyedReady) -> None:
    out = {each.number: (each.consumer, each.message_id) for each in ready._reserved.values()}
    held = {
        stretch.number + turn * stretch.step: (consumer.id, stretch.first_id + turn)
        for consumer in machine.state.consumers()
        for stretch in consumer.held
        for turn in range(stretch.count)
    }
    check(out == held, "I29", f"{where}: {len(out)} messages are out, and consumers hold {len(held)}")
    reserved = [each.key for each in ready._reserved.values()]
    check(len(set(reserved)) == len(reserved), "I29", f"{where}: two messages of a key are out")
    check(all(key.reserved is not None for key in reserved), "I29", f"{where}: a key with a message out is free")


def _look_at_consumers(where: str, machine: FifoMachine) -> None:
    service = machine.service_order()
    check(len(service) == len(set(service)), "I18", f"{where}: somebody stands twice in the service queue")
    state = machine.state
    ready = state.ready
    check(not (ready and service), "I18", f"{where}: {ready.count} messages wait although {len(service)} have credit")
    standing = set(service)
    active = [one.id for one in state.all_consumers() if one.status in (Status.UP, Status.QUIESCING)]
    check(not machine.config.single_active or len(active) <= 1, "I19", f"{where}: {active} are all active")
    in_service = [one.id for one in state.all_consumers() if one.status in IN_SERVICE]
    check(bool(active) or not in_service, "I19", f"{where}: {in_service} wait for nobody")
    for consumer in state.consumers():
        if consumer.status is Status.GETTING:
            continue
        held = sum(stretch.count for stretch in consumer.held)
        credit = UNLIMITED if consumer.auto_settle else max(0, consumer.prefetch - held)
        sound = consumer.unacked == held and consumer.credit == credit
        check(sound, "I17", f"{where}: {consumer.id} has credit {consumer.credit}, holds {held}")
        stands = consumer.status is Status.UP and credit > 0
        check(stands == (consumer.id in standing), "I18", f"{where}: {consumer.id} stands {not stands} in service")


def _look_at_numbers(where: str, machine: FifoMachine, ready: Ready | KeyedReady, here: int) -> None:
    state, numbers = machine.state, set[int]()
    if isinstance(ready, Ready):
        first = ready.backlog.first_number
        numbers.update(range(first, first + ready.backlog.count))
    for number, count, _start, step, _origin in ready.returned:
        numbers.update(range(number, number + count * step, step))
    for consumer in state.consumers():
        for held in consumer.held:
            numbers.update(range(held.number, held.number + held.count * held.step, held.step))
    check(len(numbers) == here, "I16", f"{where}: {here} messages, but {len(numbers)} different ones")


def _look_at_limits(where: str, machine: FifoMachine) -> None:
    state, config = machine.state, machine.config
    count, octets = state.ready.count, state.ready.octets
    if config.overflow is Overflow.REJECT_PUBLISH:
        count, octets = count + state.dead_letters.count, octets + state.dead_letters.octets
    limits = [(count, config.max_length), (octets, config.max_length_bytes)]
    over = [here for here in limits if 0 <= here[1] < here[0]]
    above = [here for here in limits if 0 <= here[1] * 4 // 5 < here[0] and here[1] >= 0]
    # A classic queue refuses message by message, so it may be above a limit that was lowered.
    must_refuse = state.refuses_until_well_below and config.overflow is not Overflow.DROP_HEAD
    check(not over or state.refusing or not must_refuse, "I28", f"{where}: takes publishes, {over}")
    check(not state.refusing or bool(above), "I28", f"{where}: refuses publishes with {limits} within its limits")
    check(not over or config.overflow is not Overflow.DROP_HEAD, "I28", f"{where}: {over} over its limits")


class DeadLetterChecks:
    """Dead letters that are sent at most once: one leader sends each of them, whoever leads later (X7)."""

    def __init__(self) -> None:
        self._sent: set[tuple[GroupId, int, int, int, int]] = set()

    def sent(self, node: NodeId, group: GroupId, letters: DeadLetter, life: int = 0) -> None:
        """A node routes dead letters of a queue. ``life``: the boot id of the owner of a classic queue, whose messages
        may come back, and die again, after a restart."""
        if letters.first_id:
            return
        for span in letters.spans:
            for number in range(span.start, span.start + span.count * span.step, span.step):
                place = group, span.index, span.offset, number, life
                check(place not in self._sent, "X7", f"node {node} sends {place} of group {group:x} once more")
                self._sent.add(place)


class AbsenceChecks:
    """A node that was away must apply everything that it missed before it delivers (X8)."""

    def __init__(self) -> None:
        self._applied: dict[GroupId, LogIndex] = {}
        """The highest entry of each group that any member has applied."""
        self._due: dict[tuple[NodeId, GroupId], LogIndex] = {}

    def applied(self, group: GroupId, index: LogIndex) -> None:
        """A member has applied an entry."""
        if index > self._applied.get(group, 0):
            self._applied[group] = index

    def ended(self, node: NodeId, groups: Iterable[GroupId]) -> None:
        """The node was away. From now on it must know of these groups what any node knows now."""
        for group in groups:
            self._due[node, group] = self._applied.get(group, LogIndex(0))

    def delivers(self, node: NodeId, group: GroupId, applied: LogIndex, what: str) -> None:
        """The node's member delivers messages for the first time. The member has ``applied`` entries up to this
        index."""
        due = self._due.get((node, group), LogIndex(0))
        check(applied >= due, "X8", f"node {node} has applied {applied} and not {due} yet, and delivers {what}")


class DeliveryChecks:
    """Which node executes which delivery (I25, I26), and that message ids have no gaps (I20)."""

    def __init__(self) -> None:
        self._next: dict[ConsumerId, int] = {}
        self._breaks: dict[ConsumerId, int] = {}
        self._missed: dict[ConsumerId, int] = {}

    def missed(self, consumer: ConsumerId, last: int) -> None:
        """A node left out message ids up to ``last``, and is to ask for them."""
        self._missed[consumer] = max(self._missed.get(consumer, last), last)

    def executed(
        self,
        node: NodeId,
        boot_id: int,
        consumer: ConsumerId,
        first: int,
        count: int,
        gap: bool,
        breaks: int,
        *,
        is_told: bool = True,
    ) -> None:
        """A node hands message ids ``first``, +1, ... to its connection.

        ``gap``: the node has jumped over entries since its start. ``breaks``: how often the links of the node broke if
        another node told it to deliver, else how often the node was in doubt. After a break, messages that were taken
        back may be missing: at once, or when the node asks for what it left out.
        """
        channel = consumer.channel
        if (channel.node, channel.boot_id) != (node, boot_id):
            raise ViolationError("I25", f"node {node} with boot id {boot_id} delivers to {consumer}")
        expected = self._next.get(consumer, first)
        again = first < expected and not (is_told and breaks)
        check(not again or gap, "I26", f"node {node}: ids {first}.. for {consumer} once more, next is {expected}")
        gap |= self._breaks.get(consumer, breaks) != breaks
        gap |= breaks > 0 and first <= self._missed.get(consumer, -1) + 1
        self._breaks[consumer] = breaks
        check(first <= expected or gap, "I20", f"node {node}: ids {first}.. for {consumer} after {expected - 1}")
        self._next[consumer] = max(expected, first + count)

    def queue_gone(self, channels: Container[ChannelId], elsewhere: Container[ConsumerId] = ()) -> None:
        """A queue was deleted. In the next queue of that name, message ids begin anew for consumers on open
        ``channels``, except for consumers of queues ``elsewhere``. A leader may still tell of a consumer whose channel
        is closed; for that consumer nothing begins anew."""
        for consumer in [each for each in self._next if each.channel in channels and each not in elsewhere]:
            del self._next[consumer]
            self._missed.pop(consumer, None)
