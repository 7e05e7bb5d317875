"""A second kind of queue, as small as one can be: it keeps the last message only, and gives it to whoever asks.

It shares nothing with the quorum queue but the port: other commands, another codec, another snapshot.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reference_broker.anatomy.track import Track
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.inspection import QueueCounts
from reference_broker.message_run import MessageRun
from reference_broker.queues import arguments
from reference_broker.queues.port import Buffers, Channels, MemberPorts, Queue, QueueKind
from reference_broker.queues.session import ConsumeSession, PublishSession
from reference_broker.types import ChannelId, ConsumerId, Entry, IdRange, LogIndex, NodeId, Outcome, Priority, Term

NOBODY = ChannelId(NodeId(0), 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Keep:
    """The last message of a run. ``last`` is the enqueue number of the run's last message, 0 if nobody hears."""

    channel: ChannelId
    last: int
    route: str
    content: str


@dataclass(frozen=True, slots=True)
class Ask:
    """``what``: fetch, subscribe, unsubscribe, purge, or end (of the channel)."""

    what: str
    channel: ChannelId
    tag: str = ""
    correlation: int = 0


def encode(_time_ms: int, commands: Sequence[Any]) -> Buffers:
    return [json.dumps([{"kind": type(each).__name__, **asdict(each)} for each in commands]).encode()]


def decode(batch: bytes) -> list[Any]:
    rows = json.loads(batch)
    kinds = {"Keep": Keep, "Ask": Ask}
    return [kinds[row.pop("kind")](**{**row, "channel": ChannelId(*row["channel"])}) for row in rows]


class LastValueQueue(Queue):
    """What channels ask, as commands of this kind."""

    __slots__ = ()

    def publish(self, session: PublishSession, run: MessageRun, confirm_seq: int, ttl_ms: int, read_ns: int) -> int:
        self.forward(run, session, confirm_seq)
        return 1

    def forward(self, run: MessageRun, session: PublishSession | None = None, confirm_seq: int = 0) -> None:
        last = 0
        if session is not None:
            last = session.sent(run.count, len(run.data), confirm_seq) + run.count - 1
        content = base64.b64encode(run.content(run.count - 1)).decode()
        channel = session.channel if session is not None else NOBODY
        self.proposer.propose(Keep(channel, last, base64.b64encode(run.route).decode(), content), len(content))

    def subscribe(self, consumer: ConsumeSession, priority: int, correlation: int) -> None:
        self._ask("subscribe", consumer.id, correlation)

    def unsubscribe(self, consumer: ConsumeSession, correlation: int) -> None:
        self._ask("unsubscribe", consumer.id, correlation)

    def get(self, consumer: ConsumeSession, no_ack: bool, correlation: int) -> None:
        self._ask("fetch", consumer.id, correlation)

    def get_checked_out(self, consumer: ConsumeSession, correlation: int) -> None:
        self._ask("deliver again", consumer.id, correlation)  # nobody holds a value, so there is nothing to deliver

    def purge(self, channel: ChannelId, correlation: int) -> None:
        self._ask("purge", ConsumerId(channel, ""), correlation)

    def channel_closed(self, channel: ChannelId) -> None:
        self._ask("end", ConsumerId(channel, ""), 0)

    def settle(self, consumer: ConsumeSession, outcome: Outcome, ranges: tuple[IdRange, ...], read_ns: int = 0) -> None:
        consumer.release(sum(last - first + 1 for first, last in ranges), 0)  # the value stays, whatever is said of it

    def dead_letters_settled(self, ranges: tuple[IdRange, ...]) -> None: ...

    def node_up(self, node: NodeId, boot_id: int) -> None: ...

    def node_down(self, node: NodeId) -> None: ...

    def timer_due(self) -> None: ...

    def _ask(self, what: str, consumer: ConsumerId, correlation: int) -> None:
        self.proposer.propose(Ask(what, consumer.channel, consumer.tag, correlation), 64, Priority.LOW)


class LastValueMember:
    """The machine: one value, and who wants to hear of the next."""

    version = 1
    client_nodes = range(1 << 32)

    def __init__(self, record: QueueRecord, channels: Channels, node: MemberPorts, now_ms: Callable[[], int]) -> None:
        self.record = record
        self.payload: Callable[[LogIndex], bytes] = lambda index: b""
        self.track: Track | None = None
        self.state: dict[str, Any] = {"value": None, "confirmed": {}, "ids": {}, "tags": []}
        self._channels = channels
        self._leads = False
        self._effects: list[tuple[ChannelId, Callable[[Channels], None]]] = []

    def encode(self, commands: Sequence[Any]) -> Buffers:
        return encode(0, commands)

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        return [(command, 64) for command in decode(sealed[:end])]

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        for position, command in enumerate(decode(entry.payload[:end])):
            if position not in skip:
                self._keep(command) if isinstance(command, Keep) else self._answer(command)

    def _keep(self, command: Keep) -> None:
        self.state["value"] = [command.route, command.content]
        group = self.record.group
        if command.last:
            self.state["confirmed"][str(list(command.channel))] = command.last
            self._effects.append((command.channel, lambda to: to.confirm(command.channel, group, command.last)))
        for channel, tag in self.state["tags"]:
            self._deliver(ConsumerId(ChannelId(*channel), tag))

    def _answer(self, command: Ask) -> None:
        value, tag = 0, [list(command.channel), command.tag]
        match command.what:
            case "fetch" if self.state["value"] is not None:
                self._deliver(ConsumerId(command.channel, command.tag))
                value = 1
            case "subscribe":
                self.state["tags"].append(tag)
                value = self.state["ids"].get(str(tag), 0)
            case "unsubscribe":
                self.state["tags"].remove(tag)
            case "purge":
                value, self.state["value"] = int(self.state["value"] is not None), None
            case "end":
                self.state["tags"] = [each for each in self.state["tags"] if each[0] != tag[0]]
                return
        self._effects.append((command.channel, lambda to: to.reply(command.channel, command.correlation, value)))

    def _deliver(self, consumer: ConsumerId) -> None:
        key = str([list(consumer.channel), consumer.tag])
        number = self.state["ids"][key] = self.state["ids"].get(key, -1) + 1
        route, content = (base64.b64decode(part) for part in self.state["value"])
        slices = [(MessageRun.of(route, [content]), 0, 1, 1)]
        group = self.record.group
        self._effects.append((consumer.channel, lambda to: to.deliver(group, consumer, number, slices, 0)))

    def run_effects(self, non_members: Collection[Channels] = ()) -> None:
        effects, self._effects = self._effects, []
        for to in (self._channels, *non_members):
            for channel, tell in effects:
                if (channel.node, channel.boot_id) == (to.node, to.boot_id):
                    tell(to)
            to.flush()

    def catch_up(self, channels: Channels, asked: Sequence[Any]) -> None:
        for key, last in self.state["confirmed"].items():
            channels.confirm(ChannelId(*json.loads(key)), self.record.group, last)
        for command in asked:
            channels.reply(command.channel, command.correlation, 0)
        channels.flush()

    def counts(self) -> QueueCounts:
        ready, consumers = int(self.state["value"] is not None), len(self.state["tags"])
        others = ("ready_bytes", "unacked", "enqueuers", "enqueued", "settled", "discarded", "delivery_limited",
                  "expired", "dropped", "purged", "refused", "dead_lettered", "dead_letters")  # fmt: skip
        return QueueCounts(ready=ready, consumers=consumers, **dict.fromkeys(others, 0))

    def snapshot(self) -> bytes:
        return json.dumps(self.state).encode()

    def restore(self, state: bytes) -> None:
        self.state = json.loads(state)

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        self.restore(state)
        self.catch_up(self._channels, [each for each in skipped if question(each)])

    def settings_change(self, record: QueueRecord) -> None:
        return None

    def pace(self) -> None:
        return None

    def reproposed(self, command: Any) -> Any:
        return command

    def after_doubt(self, call: Callable[[], None]) -> None:
        call()

    def became_leader(self, term: Term) -> None: ...

    def lost_leadership(self) -> None: ...

    def doubt(self) -> None: ...

    def stop(self) -> None: ...

    def live_entries(self) -> list[tuple[int, int]]:
        return []

    def lowest_live_entry(self) -> None:
        return None


def question(command: object) -> tuple[ChannelId, int] | None:
    return (command.channel, command.correlation) if isinstance(command, Ask) and command.what != "end" else None


LAST_VALUE = QueueKind(
    name="last-value",
    queue=LastValueQueue,
    member=LastValueMember,
    encode=encode,
    question=question,
    arguments={"x-quorum-initial-group-size": arguments.positive, "x-expires": arguments.lifetime},
    foreign_arguments=frozenset({"x-delivery-limit"}),
    refused_properties=frozenset({"auto-delete", "exclusive-owner", "non-durable"}),
)
