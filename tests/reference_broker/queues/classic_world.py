"""A classic queue over a store on files in memory, beside a slow model of its messages: random commands, kills, losses
of power, restarts.

Each message has a body of its own, so the model and the queue speak of bodies. The model is the oracle of the FIFO
machine, which gets each message as a command of its own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from reference_broker.amqp.properties import Fields, long, text, write_table
from reference_broker.classic.part_codec import cut
from reference_broker.classic.parts import NEVER, Part, QueueName
from reference_broker.classic.store import ClassicStore, StoreConfig, StoredQueue
from reference_broker.classic.writer import Notice, Stored, StoreFailed
from reference_broker.machines.cluster.metadata import ArgumentValue, QueueRecord
from reference_broker.machines.commands import ChannelDown, Command, Enqueue, Label, UpdateConfig
from reference_broker.machines.config import FifoConfig
from reference_broker.machines.effects import DeadLetter
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.queues.classic_member import ClassicMember
from reference_broker.queues.keyed_labels import labels_of
from reference_broker.queues.message_properties import sort_of
from reference_broker.queues.port import DeadMessage
from reference_broker.queues.settings import classic_config_of
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import UNCOUNTED, ChannelId, ConsumerId, GroupId, NodeId
from tests.reference_broker.machines.keyed_oracle import KeyedMessage, KeyedOracle
from tests.reference_broker.machines.logs import TAGS, RandomLog, consumer
from tests.reference_broker.machines.oracle import Message, Oracle, Place
from tests.reference_broker.machines.oracle import Told as OracleTold

GROUP = GroupId(7)
ROUTE = b"\x00\x01q"
HERE = NodeId(1)
START_MS = 1000
NUMBER_DIGITS = 8


def content(
    body: bytes, *, persistent: bool = False, priority: int | None = None, headers: Fields | None = None
) -> bytes:
    """The frames of a message with these properties."""
    properties = bytes((2 if persistent else 1,)) + (b"" if priority is None else bytes((priority,)))
    flags = 0x1000 | (0x0800 if priority is not None else 0)
    if headers is not None:
        flags, properties = flags | 0x2000, write_table(headers) + properties
    payload = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + flags.to_bytes(2, "big") + properties
    header = b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    return header + (b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce" if body else b"")


def run_of(*contents: bytes) -> MessageRun:
    """A uniform run if it can be one, else a ragged one."""
    heads = {(len(each), each[: each.index(b"\xce")]) for each in contents}
    if len(heads) == 1:
        return MessageRun(len(contents), ROUTE, b"".join(contents), len(contents[0]))
    return MessageRun.of(ROUTE, list(contents))


def body_of(each: bytes) -> bytes:
    """The body of a message with one body frame."""
    size = 8 + int.from_bytes(each[3:7], "big")
    return each[size + 7 : -1]


class Told:
    """The channels of one start of one node, and what they and the node were told, in order."""

    def __init__(self, node: NodeId = HERE, boot_id: int = 1) -> None:
        self.node, self.boot_id = node, boot_id
        self.counts_deliveries = False
        """Whether the queue has keys."""
        self.calls: list[tuple[object, ...]] = []

    def take(self) -> list[tuple[object, ...]]:
        calls, self.calls = self.calls, []
        return calls

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        contents = [run.content(start + step * each) for run, start, count, step in slices for each in range(count)]
        assert self.counts_deliveries or delivery_count in (0, UNCOUNTED), "a classic queue counts no deliveries"
        self.calls.append(("deliver", consumer, first_message_id, [*map(body_of, contents)], bool(delivery_count)))

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        return True

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        self.calls.append(("confirm", channel, last))

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        self.calls.append(("rejected", channel, first, last))

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        self.calls.append(("reply", channel, correlation, value))

    def flush(self) -> None: ...

    def watch_node(self, group: GroupId, node: NodeId) -> None: ...

    def dead_letter(self, group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        self.calls.append(
            ("dead letter", letters.first_id, letters.reason.name.lower(), [body_of(each) for _, each in contents])
        )

    def set_timer(self, group: GroupId, at_ms: int) -> None:
        self.calls.append(("timer", at_ms))

    def queue_expired(self, group: GroupId, unused_ms: int) -> None:
        self.calls.append(("expired", unused_ms))

    def when_current(self, group: GroupId, call: Callable[[], None]) -> None:
        raise AssertionError("a classic queue is always current")

    def settings_changed(self, group: GroupId) -> None:
        self.calls.append(("settings",))


class RecordedQueue:
    """The messages of a queue in the store; notes how runs are cut into parts."""

    def __init__(self, kept: StoredQueue, part_counts: deque[int]) -> None:
        self._kept, self._part_counts = kept, part_counts

    def add(self, run: MessageRun, persistent: bool | npt.NDArray[np.bool_], expires: int = NEVER) -> list[Part]:
        parts = self._kept.add(run, persistent, expires)
        self._part_counts += [part.count for part in parts]
        return parts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)


class Classic:
    """A classic queue on its owner, with its store. The store's thread is :meth:`write`."""

    def __init__(
        self,
        files: MemoryFiles | None = None,
        *,
        durable: bool = True,
        lazy: bool = False,
        memory_bytes: int = 1 << 30,
        others: tuple[Told, ...] = (),
        **arguments: ArgumentValue,
    ) -> None:
        self.files = files or MemoryFiles()
        self.now_ms = START_MS
        self.told, self.others = Told(), others
        named = tuple((f"x-{key.replace('_', '-')}", value) for key, value in arguments.items())
        self.record = QueueRecord(name="q", group=GROUP, members=(HERE,), arguments=named)
        self.name = QueueName(GROUP, durable, lazy)
        self.memory_bytes = memory_bytes
        self.stored: list[int] = []
        self.may_fail = False
        self.part_counts: deque[int] = deque()
        """The messages in each part that was added."""
        self.open()

    def open(self) -> None:
        """Start on the files."""
        config = StoreConfig(directory="/classic", memory_bytes=self.memory_bytes, shared_file_bytes=20_000)
        self.store = ClassicStore.open(config, self.files, self.notify, OwnersThread)
        self.kept = RecordedQueue(self.store.queue(self.name), self.part_counts)
        self.member = ClassicMember(self.record, self.kept, self.told, self.told, lambda: self.now_ms)
        self.member.started()

    def notify(self, notices: list[Notice]) -> None:
        for notice in notices:
            assert not isinstance(notice, StoreFailed) or self.may_fail, notice
            if isinstance(notice, Stored):
                self.stored.append(notice.seq_end)

    def write(self) -> None:
        """The store does what waits, and the node hears of it."""
        self.store.run_pending()
        stored, self.stored = self.stored, []
        for seq_end in stored:
            self.member.stored(seq_end)

    def turns(self) -> int:
        """Execute all effects. Returns the number of turns that this took."""
        turns = 1
        while self.member.run_effects(self.others):
            turns += 1
        return turns

    def apply(self, *commands: Command) -> list[tuple[object, ...]]:
        """Apply commands; what the owner's channels were told."""
        self.member.apply(commands)
        self.turns()
        return self.told.take()

    def written(self) -> list[tuple[object, ...]]:
        """What is told when the store has done what waits."""
        self.write()
        self.turns()
        return self.told.take()

    def restart(self, *, power: Random | None = None, lost_power: bool = False, clean: bool = False) -> None:
        """Stop in one of three ways, and start again."""
        if clean:
            self.store.close()
        elif lost_power:
            self.files.crash(power)
        self.files.heal()
        self.told.take()
        self.stored.clear()
        self.may_fail = False
        self.open()


@dataclass
class ClassicLog(RandomLog):
    """Random commands whose messages have bodies of their own, small and large, persistent and not, of any priority.

    A channel that has ended never comes again, as no channel of a broker does.
    """

    number: int = 0
    channels: int = 1
    priorities: tuple[int | None, ...] = (None,)
    with_keys: bool = False

    def run(self) -> MessageRun:
        count = self.random.choice((1, 1, 2, 3, 7, 12))
        size, persistent = self.random.choice((0, 0, 3, 45, 4100)), self.random.random() < 0.6
        priority = self.random.choice(self.priorities)
        varied = self.random.random() < 0.3
        headers, contents = self.headers(), []
        for _ in range(count):
            self.number += 1
            body = (b"%0*d" % (NUMBER_DIGITS, self.number)).ljust(NUMBER_DIGITS + size, b".")
            contents.append(content(body, persistent=persistent, priority=priority, headers=headers))
            if varied:
                size, persistent = self.random.choice((0, 3, 4100)), self.random.random() < 0.6
                priority, headers = self.random.choice(self.priorities), self.headers()
        return run_of(*contents)

    def headers(self) -> Fields | None:
        """A key and delays, if the queue has keys."""
        if not self.with_keys or self.random.random() < 0.1:
            return None
        fields = [(b"x-group-key", text(self.random.choice("aabc")))]
        for name in (b"x-delay", b"x-retry-delay"):
            if self.random.random() < 0.2:
                fields.append((name, long(self.random.choice((0, 5, 60)))))
        return fields

    def commands(self, count: int) -> list[Command]:
        return [command for command in super().commands(count) if not isinstance(command, UpdateConfig)]

    def any_consumer(self) -> ConsumerId:
        node, number = self.random.randint(1, 4), self.random.choice((self.channels, self.channels + 1))
        return consumer(node, self.random.choice(TAGS), number, self.random.choice((1, 1, 1, 2)))

    def channel_down(self) -> Command:
        gone = self.channel()
        self.channels += 2
        self.favourites = [self.any_consumer() if each.channel == gone else each for each in self.favourites]
        return ChannelDown(gone)

    def begin_anew(self) -> None:
        """The owner has started again: all channels are new."""
        self.channels += 2
        self.favourites = [self.any_consumer() for _ in self.favourites]


class Model(Oracle):
    """The oracle, which also knows under which number each message entered."""

    def __init__(self, config: FifoConfig, has_priorities: bool) -> None:
        super().__init__(config, is_classic=True, has_priorities=has_priorities)
        self.numbered: dict[tuple[ChannelId, int], Place] = {}
        self.expires: dict[Place, float] = {}

    def let_in(self, command: Enqueue, index: int, offset: int, position: int) -> Message:
        if command.first_seq:
            self.numbered[command.channel, command.first_seq + position] = (index, offset, position)
        message = super().let_in(command, index, offset, position)
        self.expires[message.place] = message.expires
        return message


class KeyedModel(Model, KeyedOracle):
    """The same for a queue with keys. The store notes when a message would expire that had no delay."""

    def let_in(self, command: Enqueue, index: int, offset: int, position: int) -> Message:
        message = super().let_in(command, index, offset, position)
        assert isinstance(message, KeyedMessage)
        self.expires[message.place] -= message.label.delay_ms
        return message

    def take_over(self, message: Message, label: Label) -> Message:
        """A message that a restart has found: its delay begins anew."""
        found = KeyedMessage(message.number, message.place, message.expires + label.delay_ms, message.size)
        found.delivery_count, found.label, found.at = message.delivery_count, label, self.now + label.delay_ms
        return found


@dataclass
class Seen:
    """What the clients of one start of the owner were told, or should be: message by message."""

    delivered: dict[ConsumerId, list[tuple[int, bytes, bool]]] = field(default_factory=lambda: defaultdict(list))
    replies: dict[ChannelId, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    letters: list[tuple[bytes, str]] = field(default_factory=list)
    answers: dict[tuple[ChannelId, int], bool] = field(default_factory=dict)
    """Whether each publish was confirmed."""


class ClassicWorld:
    """A queue and its model, driven by the same random commands."""

    def __init__(self, random: Random) -> None:
        self.random = random
        arguments = _any_arguments(random)
        self.max_priority = int(arguments.get("max_priority", 0))
        self.key_source = str(arguments.get("key", ""))
        boots = [(node, boot) for node in range(1, 5) for boot in (1, 2)]
        self.queue = Classic(
            durable=random.random() < 0.8,
            lazy=random.random() < 0.4,
            memory_bytes=random.choice((0, 5000, 1 << 30)),
            others=tuple(Told(NodeId(node), boot) for node, boot in boots[1:]),
            **arguments,
        )
        for one in (self.queue.told, *self.queue.others):
            one.counts_deliveries = bool(self.key_source)
        self.log = ClassicLog(
            random, features=True, is_classic=True, priorities=(None, 0, 3, 200) if self.max_priority else (None,),
            with_keys=bool(self.key_source),
        )  # fmt: skip
        self.index = 0
        self.body_at: dict[Place, bytes] = {}
        self.expiry_of: dict[bytes, float] = {}
        self.persistent: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        """Messages of publishes that were confirmed and must survive."""
        self.delivered: set[bytes] = set()
        self._begin()

    def _begin(self) -> None:
        config = classic_config_of(self.queue.record)
        kind = KeyedModel if self.key_source else Model
        self.model, self.told, self.due = kind(config, self.max_priority > 0), Seen(), Seen()

    # One step

    def step(self) -> None:
        """Commands, and by chance a turn of the node and of the store."""
        self.log.now_ms += self.random.choice((0, 0, 1, 5, 20, 50))
        self.queue.now_ms = self.log.now_ms
        commands = self.log.commands(self.random.randint(1, 4))
        self.queue.member.apply(commands)
        self._expect(self.model.apply_placed(self.log.now_ms, self._in_parts(commands)))
        if self.random.random() < 0.7:
            self.queue.member.run_effects(self.queue.others)
        if self.random.random() < 0.5:
            self.queue.write()
        self.hear()

    def finish(self) -> None:
        """Let everything come to its end, and compare all."""
        self.queue.write()
        self.queue.turns()
        self.hear()
        assert self.told == self.due
        counts = self.queue.member.counts()
        assert counts.ready == len(self.model.ready())
        assert {name: getattr(counts, name) for name in self.model.totals()} == self.model.totals()

    def _in_parts(self, commands: list[Command]) -> list[tuple[int, int, Command]]:
        """The commands, with a run cut as the store has cut it: each part is a command of its own."""
        placed: list[tuple[int, int, Command]] = []
        for command in commands:
            if not isinstance(command, Enqueue):
                placed.append((0, 0, command))
                continue
            start = 0
            while start < command.run.count:
                count = self.queue.part_counts.popleft()
                run = cut(command.run, start, count)
                seq = command.first_seq and command.first_seq + start
                contents = [run.content(position) for position in range(count)]
                labels = labels_of(run, self.key_source) if self.key_source else ()
                placed.append((*self._place(contents), Enqueue(command.channel, seq, run, command.ttl_ms, labels)))
                start += count
        return placed

    def _place(self, contents: list[bytes]) -> tuple[int, int]:
        """A new place for messages in the model."""
        self.index += 1
        (priority,) = {min(sort_of(each, 0).priority, self.max_priority) for each in contents}
        for position, each in enumerate(contents):
            self.body_at[self.index, priority, position] = body_of(each)
            if sort_of(each, 0).is_persistent:
                self.persistent.add(body_of(each))
        return self.index, priority

    def _expect(self, told: OracleTold) -> None:
        due = self.due
        for consumer_id, deliveries in told.delivered.items():
            due.delivered[consumer_id] += [
                (number, self.body_at[place], count > 0) for number, place, count in deliveries
            ]
        for channel, correlation, value in told.replies:
            due.replies[channel].append((correlation, value))
        due.letters += [(self.body_at[place], reason) for _number, place, reason, _count in told.letters]
        due.answers |= dict.fromkeys(told.confirmed, True) | dict.fromkeys(told.rejected, False)

    def hear(self) -> None:
        """Note what was told. Nothing may be told that the model does not tell."""
        for one in (self.queue.told, *self.queue.others):
            for call in one.take():
                self._hear(*call)
        for consumer_id, deliveries in self.told.delivered.items():
            assert deliveries == self.due.delivered[consumer_id][: len(deliveries)]
        for channel, replies in self.told.replies.items():
            assert replies == self.due.replies[channel][: len(replies)]
        assert self.told.letters == self.due.letters[: len(self.told.letters)]

    def _hear(self, kind: object, *details: Any) -> None:
        if kind == "deliver":
            consumer_id, first, bodies, redelivered = details
            self.delivered.update(bodies)
            numbered = enumerate(bodies, first)
            self.told.delivered[consumer_id] += [(number, body, redelivered) for number, body in numbered]
        elif kind == "reply":
            self.told.replies[details[0]].append(details[1:])
        elif kind == "dead letter":
            self.told.letters += [(body, details[1]) for body in details[2]]
        elif kind == "confirm":
            self._answered(details[0], range(details[1], 0, -1), is_confirmed=True)
        elif kind == "rejected":
            self._answered(details[0], range(details[2], details[1] - 1, -1), is_confirmed=False)

    def _answered(self, channel: ChannelId, seqs: range, *, is_confirmed: bool) -> None:
        """A confirm is for all publishes up to a number that have no answer yet."""
        assert (channel, seqs[0]) in self.due.answers, "answered before it was asked"
        for seq in seqs:
            key = channel, seq
            if key not in self.told.answers:
                assert self.due.answers[key] == is_confirmed
                self.told.answers[key] = is_confirmed
                body = self.body_at[self.model.numbered[key]] if is_confirmed else b""
                if body in self.persistent and self.queue.name.is_durable:
                    self.confirmed.add(body)

    # Restarts

    def restart(self, kind: str) -> None:
        """Stop ``clean``, by ``kill``, or by losing ``power``, maybe ``while writing``, and start again."""
        if kind == "clean":
            self.finish()
        if kind == "power while writing":
            self.queue.may_fail = True
            self.queue.files.fail_at(self.random.randint(1, 12), sticky=True)
            self.queue.write()
            self.queue.turns()
        self.hear()
        alive = {self.body_at[place] for place in self.model.live_places()}
        self.expiry_of |= {self.body_at[place]: expires for place, expires in self.model.expires.items()}
        chance = self.random if self.random.random() < 0.7 else None
        self.queue.restart(power=chance, lost_power=kind.startswith("power"), clean=kind == "clean")
        found = self._found()
        bodies = [body for body, _flagged, _one in found]
        assert bodies == sorted(set(bodies)), "out of order, or twice"
        assert set(bodies) <= (self.persistent if self.queue.name.is_durable else set()), "a transient message is back"
        assert self.confirmed & alive <= set(bodies), "confirmed and lost"
        if kind == "clean":
            assert set(bodies) == (alive & self.persistent if self.queue.name.is_durable else set())
            flagged = {body for body, flagged, _one in found if flagged}
            assert all(body <= max(self.delivered, default=b"") for body in flagged)
            assert self.max_priority or self.key_source or flagged <= self.delivered
            assert self.delivered & set(bodies) <= flagged, "delivered, and nobody knows"
        else:
            assert all(flagged for _body, flagged, _one in found)
        self._go_on(found)

    def _found(self) -> list[tuple[bytes, bool, bytes]]:
        """What the store has found, in order: body, whether it may have been delivered, content."""
        kept, found = self.queue.kept, []
        for each in kept.found:
            run = kept.run(each.part.seq)
            for position in each.positions.tolist():
                one = run.content(position)
                found.append((body_of(one), each.part.seq + position < kept.delivered_end, one))
                expires = each.part.expires if each.part.expires != NEVER else float("inf")
                # A message that was refused, or came twice, may be back like one that was settled just before.
                assert self.expiry_of.setdefault(body_of(one), expires) == expires
        return found

    def _go_on(self, found: list[tuple[bytes, bool, bytes]]) -> None:
        """The model takes over what was found."""
        self._begin()
        self.log.begin_anew()
        self.log.next_seqs.clear()
        if isinstance(self.model, KeyedModel):
            self.model.now = self.queue.now_ms
        for body, flagged, one in found:
            index, priority = self._place([one])
            size = int.from_bytes(one[11:19], "big")
            message = Message(
                self.model.numbers, (index, priority, 0), self.expiry_of[body], size, int(flagged), priority
            )
            if isinstance(self.model, KeyedModel):
                ((_one, label),) = labels_of(run_of(one), self.key_source)
                message = self.model.take_over(message, label)
            self.model.numbers += 1
            (self.model.returned if flagged else self.model.fresh).append(message)
        self.model.enqueued = len(found)
        self.delivered |= {body for body, flagged, _one in found if flagged}
        self.confirmed &= {body for body, _flagged, _one in found}


def _any_arguments(random: Random) -> dict[str, ArgumentValue]:
    """Arguments of a declaration; each is left out most of the time."""
    choices: dict[str, tuple[ArgumentValue, ...]] = {
        "max_length": (0, 5, 20),
        "max_length_bytes": (30, 400, 9000),
        "overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
        "message_ttl": (0, 10, 60),
        "expires": (30, 100),
        "single_active_consumer": (True,),
        "dead_letter_exchange": ("",),
        "max_priority": (1, 5),
    }
    chosen = {key: random.choice(values) for key, values in choices.items() if random.random() < 0.3}
    if random.random() < 0.3:
        chosen |= {"key": "header:x-group-key", "max_tries": random.choice((1, 3, 99))}
        chosen |= {"retry_delay": random.choice((0, 5, 60)), "overflow": "reject-publish"}
        chosen.pop("max_priority", None)
        if random.random() < 0.5:
            chosen["reserve_timeout"] = random.choice((20, 70))
    return chosen
