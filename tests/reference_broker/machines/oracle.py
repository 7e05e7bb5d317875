"""A quorum queue that handles one message at a time, in lists: slow, obvious, and written from the rules alone.

It knows nothing of stretches, heaps, blocks or credit counters. Whatever the real machine does with ranges must look,
message by message, as it does here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    GetCheckedOut,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import DeadLetterStrategy, FifoConfig, Overflow
from reference_broker.message_run import MessageRun
from reference_broker.types import IN_EXCLUSIVE_USE, ChannelId, ConsumerId, NodeId

Place = tuple[int, int, int]
"""Log index, offset of the run, position in the run: names one message."""

Delivery = tuple[int, Place, int]
"""Message id, the message, delivery count."""

Letter = tuple[int, Place, str, int]
"""Id of a dead letter (0: at most once), the message, reason, delivery count."""

LETTERS_ON_THEIR_WAY = 1024
OCTETS_ON_THEIR_WAY = 16 << 20
RETRY_MS = 1000


@dataclass(eq=False)
class Message:
    number: int
    place: Place
    expires: float
    size: int
    delivery_count: int = 0
    priority: int = 0


@dataclass(eq=False)
class Subscriber:
    id: ConsumerId
    prefetch: int = 0
    auto_settle: bool = False
    priority: int = 0
    status: str = "getting"  # or up, suspected, cancelled
    arrival: int = 0
    lost_messages: bool = False
    exclusive: bool = False
    next_id: int = 0
    held: dict[int, Message] = field(default_factory=dict)

    def wants_more(self) -> bool:
        return self.auto_settle or len(self.held) < self.prefetch


@dataclass
class Told:
    """What one entry made the queue tell its channels and its leader."""

    confirmed: set[tuple[ChannelId, int]] = field(default_factory=set)
    rejected: set[tuple[ChannelId, int]] = field(default_factory=set)
    delivered: dict[ConsumerId, list[Delivery]] = field(default_factory=dict)
    replies: list[tuple[ChannelId, int, int]] = field(default_factory=list)
    monitored: set[NodeId] = field(default_factory=set)
    letters: list[Letter] = field(default_factory=list)
    timer: int | None = None
    expired: bool = False
    settings_changed: bool = False


class Oracle:
    def __init__(self, config: FifoConfig, *, is_classic: bool = False, has_priorities: bool = False) -> None:
        """A queue beside a store ``is_classic``. With priorities, the offset of a run is the priority."""
        self.config = config
        self.is_classic, self.has_priorities = is_classic, has_priorities
        self.fresh: list[Message] = []
        self.returned: list[Message] = []
        self.subscribers: dict[ConsumerId, Subscriber] = {}
        self.first_ids: dict[
            ChannelId, int
        ] = {}  # of channels' next new subscribers: those of the gone are not used again
        self.turns: list[Subscriber] = []
        self.active: Subscriber | None = None
        self.hands_over = False
        self.next_seqs: dict[ChannelId, int] = {}
        self.refused_seqs: set[tuple[ChannelId, int]] = set()
        self.boot_ids: dict[NodeId, int] = {}
        self.now = 0
        self.used = 0
        self.arrivals = 0
        self.numbers = 0
        self.refusing = False
        self.parting: list[tuple[Letter, int]] = []
        self.parted: list[int] = []
        self.letters: dict[int, Letter] = {}
        self.letter_sizes: dict[int, int] = {}
        self.letter_ids = 1
        self.announced = 1
        self.enqueued = self.settled = self.discarded = self.delivery_limited = self.expired = 0
        self.dropped = self.purged = self.refused = self.dead_lettered = 0

    def apply(self, index: int, time_ms: int, commands: list[tuple[int, Command]]) -> Told:
        return self.apply_placed(time_ms, [(index, *command) for command in commands])

    def apply_placed(self, time_ms: int, commands: list[tuple[int, int, Command]]) -> Told:
        """Commands whose runs have places of their own."""
        self.told = Told()
        due = self.due()
        self.now = max(self.now, time_ms)
        if self.config.expires_ms >= 0 and not self.used:
            self.used = self.now
        self.parted = []
        self.part()
        self.take_back_overdue()
        self.expire()
        for index, offset, command in commands:
            getattr(self, "on_" + type(command).__name__.lower())(command, index, offset)
            self.choose_active()
            self.queue_up()
            self.deal()
            self.keep_limits()
            at_once = self.is_classic and self.config.keyed is None and isinstance(command, Enqueue)
            if at_once and 0 in (command.ttl_ms, self.config.message_ttl_ms):
                self.expire(1)
        if self.due() is not None and self.due() != due:
            self.told.timer = self.due()
        return self.told

    def can_deal(self) -> bool:
        return bool(self.returned or self.fresh)

    def first(self) -> Message:
        return self.ready()[0]

    def take_first(self) -> Message:
        message = self.first()
        (self.returned if message in self.returned else self.fresh).remove(message)
        return message

    # Time ------------------------------------------------------------------------------------------------------------

    def take_back_overdue(self) -> None:
        """A queue without keys lets consumers hold messages for ever."""

    def expire(self, within_ms: int = 0) -> None:
        while self.can_deal() and self.first().expires <= self.now + within_ms:
            self.expired += 1
            self.bury(self.take_first(), "expired")

    def unused(self) -> bool:
        return self.config.expires_ms >= 0 and not any(one.status == "up" for one in self.subscribers.values())

    def due(self) -> int | None:
        times = self.due_messages()
        if self.unused():
            times.append(self.used + self.config.expires_ms)
        if self.parting:
            times.append(self.now)
        due = min(times, default=float("inf"))
        return None if due == float("inf") else int(due)

    def due_messages(self) -> list[float]:
        return [self.first().expires] if self.can_deal() else []

    def on_tick(self, _command: Tick, _index: int, _offset: int) -> None:
        due = self.due()
        if self.unused() and self.now >= self.used + self.config.expires_ms:
            self.told.expired = True
            due = min(due if due is not None and due > self.now else self.now + RETRY_MS, self.now + RETRY_MS)
        self.told.timer = due if due is not None else self.told.timer

    # Dealing ---------------------------------------------------------------------------------------------------------

    def choose_active(self) -> None:
        """4.0: priority, then arrival; who is active stays so against equals, and hands over when it holds nothing."""
        if not self.config.single_active:
            self.active = None
            return
        in_service = [one for one in self.subscribers.values() if one.status == "up"]
        in_service.sort(key=lambda one: (-one.priority, one.arrival))
        if self.active not in in_service:
            self.active = None
        best = in_service[0] if in_service else None
        self.hands_over = False
        if self.active is None:
            self.active = best
        elif best is not None and best.priority > self.active.priority:
            if self.active.held:
                self.hands_over = True
            else:
                self.active = best

    def served(self, one: Subscriber) -> bool:
        mine = not self.config.single_active or (one is self.active and not self.hands_over)
        return one.status == "up" and one.wants_more() and mine

    def deal(self) -> None:
        self.expire()
        while self.turns and self.can_deal():
            subscriber = max(self.turns, key=lambda candidate: candidate.priority)  # the first of the highest
            self.turns.remove(subscriber)
            self.hand(subscriber, self.take_first(), subscriber.auto_settle)
            if subscriber.wants_more():
                self.turns.append(subscriber)
            self.expire()

    def hand(self, subscriber: Subscriber, message: Message, settled: bool) -> None:
        delivery = subscriber.next_id, message.place, message.delivery_count
        self.told.delivered.setdefault(subscriber.id, []).append(delivery)
        if settled:
            self.settled += 1
        else:
            subscriber.held[subscriber.next_id] = message
        subscriber.next_id += 1

    def queue_up(self) -> None:
        """Leave the turns if out of service; whoever may be served and does not stand in line goes to its end."""
        self.turns = [one for one in self.turns if self.served(one)]
        for key in sorted(self.subscribers):
            one = self.subscribers[key]
            if self.served(one) and one not in self.turns:
                self.turns.append(one)

    # Limits ----------------------------------------------------------------------------------------------------------

    def limited(self) -> bool:
        return self.config.max_length >= 0 or self.config.max_length_bytes >= 0

    def measure(self) -> tuple[int, int]:
        count = len(self.fresh) + len(self.returned)
        octets = sum(message.size for message in [*self.fresh, *self.returned])
        if self.config.overflow is not Overflow.DROP_HEAD:
            return count + len(self.letters), octets + sum(self.letter_sizes[number] for number in self.letters)
        return count, octets

    def above(self, numerator: int, denominator: int) -> bool:
        count, octets = self.measure()
        length, length_bytes = self.config.max_length, self.config.max_length_bytes
        return (length >= 0 and count > length * numerator // denominator) or (
            length_bytes >= 0 and octets > length_bytes * numerator // denominator
        )

    def keep_limits(self) -> None:
        if self.config.overflow is not Overflow.DROP_HEAD and self.limited():
            self.refusing = not self.is_classic and (self.refusing or self.above(1, 1)) and self.above(4, 5)
            return
        self.refusing = False
        while (self.returned or self.fresh) and self.above(1, 1):
            self.dropped += 1
            self.bury(self.take_first(), "maxlen")

    # Dead letters ----------------------------------------------------------------------------------------------------

    def bury(self, message: Message, reason: str) -> None:
        strategy = self.config.dead_letter
        if strategy is None:
            return
        self.dead_lettered += 1
        at_least_once = strategy is DeadLetterStrategy.AT_LEAST_ONCE
        if not at_least_once or self.config.overflow is not Overflow.REJECT_PUBLISH or reason == "maxlen":
            self.parting.append(((0, message.place, reason, message.delivery_count), message.size))
            self.part()
            return
        self.letters[self.letter_ids] = (self.letter_ids, message.place, reason, message.delivery_count)
        self.letter_sizes[self.letter_ids] = message.size
        self.letter_ids += 1
        self.announce()

    def part(self) -> None:
        while self.parting and may_go(self.parted, self.parting[0][1]):
            letter, size = self.parting.pop(0)
            self.told.letters.append(letter)
            self.parted.append(size)

    def announce(self) -> None:
        under_way: list[int] = []
        for number in sorted(self.letters):
            size = self.letter_sizes[number]
            if number >= self.announced:
                if not may_go(under_way, size):
                    break
                self.told.letters.append(self.letters[number])
                self.announced = number + 1
            under_way.append(size)

    def on_deadlettersettled(self, command: DeadLetterSettled, _index: int, _offset: int) -> None:
        for first, last in command.ranges:
            for number in [number for number in self.letters if first <= number <= last and number < self.announced]:
                del self.letters[number]
        self.announce()

    # Commands --------------------------------------------------------------------------------------------------------

    def on_enqueue(self, command: Enqueue, index: int, offset: int) -> None:
        """What is new of a run is let in as a whole; then the end of it that is too much is refused."""
        fresh: list[tuple[int, int]] = []
        channel = command.channel
        for position in range(command.run.count):
            seq = command.first_seq and command.first_seq + position
            if seq:
                expected = self.next_seqs.get(channel, 1)
                if seq > expected or self.is_dead(channel):
                    return
                if seq < expected:
                    answered = self.told.rejected if (channel, seq) in self.refused_seqs else self.told.confirmed
                    answered.add((channel, seq))
                    continue
                self.meet(channel)
                self.next_seqs[channel] = seq + 1
            fresh.append((position, seq))
        accepted = [] if self.refusing else [self.let_in(command, index, offset, position) for position, _ in fresh]
        self.queue_up()
        self.deal()
        kept = len(accepted)
        while self.may_refuse() and kept and accepted[kept - 1] in self.fresh and self.above(1, 1):
            kept -= 1
            self.fresh.remove(accepted[kept])
            self.refusing = not self.is_classic
        if self.config.overflow is Overflow.REJECT_PUBLISH_DLX:
            for message in accepted[kept:]:
                self.bury(message, "maxlen")
        self.enqueued += kept
        self.refused += len(fresh) - kept
        for turn, (_position, seq) in enumerate(fresh):
            if seq:
                (self.told.confirmed if turn < kept else self.told.rejected).add((channel, seq))
                if turn >= kept:
                    self.refused_seqs.add((channel, seq))

    def may_refuse(self) -> bool:
        return self.limited() and self.config.overflow is not Overflow.DROP_HEAD

    def let_in(self, command: Enqueue, index: int, offset: int, position: int) -> Message:
        lives = [ttl for ttl in (command.ttl_ms, self.config.message_ttl_ms) if ttl >= 0]
        expires = self.now + max(min(lives), 1) if lives else float("inf")
        size = body_size(command.run, position, exact=self.config.max_length_bytes >= 0)
        message = Message(self.numbers, (index, offset, position), expires, size)
        message.priority = offset if self.has_priorities else 0
        self.numbers += 1
        self.fresh.append(message)
        return message

    def meet(self, channel: ChannelId) -> None:
        if channel not in self.known():
            self.told.monitored.add(channel.node)

    def known(self) -> set[ChannelId]:
        return {*self.next_seqs, *self.first_ids, *(key.channel for key in self.subscribers)}

    def met(self, consumer: ConsumerId) -> Subscriber:
        if consumer not in self.subscribers:
            self.subscribers[consumer] = Subscriber(consumer, next_id=self.first_ids.get(consumer.channel, 0))
        return self.subscribers[consumer]

    def is_dead(self, channel: ChannelId) -> bool:
        return channel not in self.known() and channel.boot_id < self.boot_ids.get(channel.node, 0)

    def on_checkout(self, command: Checkout, _index: int, _offset: int) -> None:
        if channel_is_dead(self.boot_ids, command.consumer.channel):
            return
        if self.in_exclusive_use(command):
            self.told.replies.append((command.consumer.channel, command.correlation, IN_EXCLUSIVE_USE))
            return
        one = self.met(command.consumer)
        one.exclusive = command.exclusive
        if one.priority != command.priority and one in self.turns:
            self.turns.remove(one)
        if one.status in ("getting", "cancelled"):
            self.arrivals += 1
            one.arrival = self.arrivals
        one.prefetch, one.auto_settle, one.priority = command.credit, command.auto_settle, command.priority
        one.status = "up"
        self.used = self.now
        self.told.monitored.add(command.consumer.channel.node)
        self.told.replies.append((command.consumer.channel, command.correlation, one.next_id))

    def in_exclusive_use(self, command: Checkout) -> bool:
        """Somebody is alone, or this one wants to be and is not."""
        others = [one for one in self.subscribers.values() if one.status not in ("getting", "cancelled")]
        if any(one.exclusive and one.id == command.consumer for one in others):
            return False  # it is alone, and asks for another prefetch
        wants_alone = command.exclusive and (bool(others) or self.config.single_active)
        return wants_alone or any(one.exclusive for one in others)

    def on_getcheckedout(self, command: GetCheckedOut, _index: int, _offset: int) -> None:
        subscriber = self.subscribers.get(command.consumer)
        if subscriber is None:
            return
        self.told.replies.append((command.consumer.channel, command.correlation, 0))
        for message_id, message in sorted(subscriber.held.items()):
            if message_id >= command.first_id:
                delivery = message_id, message.place, message.delivery_count
                self.told.delivered.setdefault(subscriber.id, []).append(delivery)

    def on_get(self, command: Get, _index: int, _offset: int) -> None:
        if channel_is_dead(self.boot_ids, command.consumer.channel):
            return
        one = self.met(command.consumer)
        self.used = self.now
        self.told.monitored.add(command.consumer.channel.node)
        value = 0
        if self.can_deal() and (self.is_classic or not self.config.single_active):
            self.hand(one, self.take_first(), command.auto_settle)
            self.expire()
            value = 1 + len(self.returned) + len(self.fresh)
        self.told.replies.append((command.consumer.channel, command.correlation, value))

    def on_updateconfig(self, command: UpdateConfig, _index: int, _offset: int) -> None:
        self.config = command.config
        self.used = self.now
        self.told.settings_changed = True

    def held_by(self, command: Settle | Return | Discard) -> list[Message]:
        """Take the named messages from the consumer; ids it does not hold are ignored."""
        one = self.subscribers.get(command.consumer)
        if one is None:
            return []
        named = [
            message_id
            for first, last in command.ranges
            for message_id in sorted(one.held)
            if first <= message_id <= last
        ]
        return [one.held.pop(message_id) for message_id in dict.fromkeys(named)]

    def forget_if_done(self, consumer: ConsumerId) -> None:
        one = self.subscribers.get(consumer)
        if one and one.status == "cancelled" and not one.held and not one.lost_messages:
            del self.subscribers[consumer]
            if one.next_id:
                self.first_ids[consumer.channel] = max(one.next_id, self.first_ids.get(consumer.channel, 0))

    def on_settle(self, command: Settle, _index: int, _offset: int) -> None:
        self.settled += len(self.held_by(command))
        self.forget_if_done(command.consumer)

    def on_discard(self, command: Discard, _index: int, _offset: int) -> None:
        for message in self.held_by(command):
            self.discarded += 1
            self.bury(message, "rejected")
        self.forget_if_done(command.consumer)

    def on_return(self, command: Return, _index: int, _offset: int) -> None:
        self.give_back(self.held_by(command))
        self.forget_if_done(command.consumer)

    def give_back(self, messages: list[Message]) -> None:
        for message in messages:
            message.delivery_count += 1
            if self.config.delivery_limit >= 0 and message.delivery_count > self.config.delivery_limit:
                self.delivery_limited += 1
                self.bury(message, "delivery_limit")
            else:
                self.returned.append(message)

    def on_cancel(self, command: Cancel, _index: int, _offset: int) -> None:
        if command.consumer in self.subscribers:
            self.subscribers[command.consumer].status = "cancelled"
            self.forget_if_done(command.consumer)
            self.used = self.now
        self.told.replies.append((command.consumer.channel, command.correlation, 0))

    def on_channeldown(self, command: ChannelDown, _index: int, _offset: int) -> None:
        self.end(command.channel)

    def end(self, channel: ChannelId) -> None:
        self.next_seqs.pop(channel, None)
        self.first_ids.pop(channel, None)
        self.refused_seqs = {(owner, seq) for owner, seq in self.refused_seqs if owner != channel}
        for key in [key for key in sorted(self.subscribers) if key.channel == channel]:
            one = self.subscribers.pop(key)
            one.status = "gone"
            self.give_back(list(one.held.values()))
            self.used = self.now

    def on_nodedown(self, command: NodeDown, _index: int, _offset: int) -> None:
        for key, one in sorted(self.subscribers.items()):
            if key.channel.node == command.node:
                one.lost_messages = one.lost_messages or bool(one.held)
                self.give_back(list(one.held.values()))
                one.held.clear()
                if one.status == "up":
                    one.status = "suspected"
                    self.told.monitored.add(command.node)
                    self.used = self.now

    def on_nodeup(self, command: NodeUp, _index: int, _offset: int) -> None:
        self.boot_ids[command.node] = max(self.boot_ids.get(command.node, 0), command.boot_id)
        for channel in sorted(self.known()):
            if channel.node == command.node and channel.boot_id < command.boot_id:
                self.end(channel)
        for key, one in self.subscribers.items():
            here = (key.channel.node, key.channel.boot_id) == (command.node, command.boot_id)
            if here and one.status == "suspected":
                one.status = "up"
                self.told.monitored.add(command.node)
                self.used = self.now

    def on_purge(self, command: Purge, _index: int, _offset: int) -> None:
        purged = len(self.fresh) + len(self.returned)
        self.purged += purged
        self.fresh.clear()
        self.returned.clear()
        self.told.replies.append((command.channel, command.correlation, purged))

    # What to compare with --------------------------------------------------------------------------------------------

    def service_order(self) -> list[ConsumerId]:
        return [one.id for one in sorted(self.turns, key=lambda one: -one.priority)]  # sorted() keeps turns

    def held(self) -> dict[ConsumerId, list[Delivery]]:
        return {
            key: [(number, message.place, message.delivery_count) for number, message in sorted(one.held.items())]
            for key, one in self.subscribers.items()
            if one.held
        }

    def ready(self) -> list[Message]:
        messages = sorted(self.returned, key=lambda message: message.number) + self.fresh
        return sorted(messages, key=lambda message: -message.priority)  # sorted() keeps the order of equals

    def totals(self) -> dict[str, int]:
        names = [
            "enqueued",
            "settled",
            "discarded",
            "delivery_limited",
            "expired",
            "dropped",
            "purged",
            "refused",
            "dead_lettered",
        ]
        return {name: getattr(self, name) for name in names}

    def live_places(self) -> list[Place]:
        """Entry, offset and position of each message that has not left the queue."""
        held = [message for one in self.subscribers.values() for message in one.held.values()]
        letters = [*self.letters.values(), *(letter for letter, _size in self.parting)]
        dead = [place for _number, place, _reason, _count in letters]
        return dead + [message.place for message in [*self.fresh, *self.returned, *held]]

    def live_entries(self) -> set[int]:
        return {place[0] for place in self.live_places()}


def may_go(under_way: list[int], size: int) -> bool:
    """Whether one more letter may go its way beside these."""
    return not under_way or (len(under_way) < LETTERS_ON_THEIR_WAY and sum(under_way) + size <= OCTETS_ON_THEIR_WAY)


def channel_is_dead(boot_ids: dict[NodeId, int], channel: ChannelId) -> bool:
    return channel.boot_id < boot_ids.get(channel.node, 0)


def body_size(run: MessageRun, position: int, exact: bool) -> int:
    """As the content header says; of a ragged run that nobody weighed, about."""
    if run.count > 1 and not run.stride and not exact:
        return len(run.data) // run.count
    content = run.content(position)
    return int.from_bytes(content[11:19], "big") if len(content) >= 19 else 0
