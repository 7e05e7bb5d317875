"""The queue port: what a node asks of any kind of queue, and how a queue is heard.

Theory of operation
-------------------
A channel finds a :class:`Queue` by its name and asks: publish this run, subscribe, settle, get, purge. The queue makes
commands of its own kind out of that and proposes them to its ``proposer``: the member of its group on this node, or a
proxy that sends them to the leader. What comes of the commands reaches the channel through :class:`Channels`: as
deliveries, confirms, refusals and replies. So client code builds no command and knows no kind.

A :class:`QueueKind` is what a kind registers (:mod:`reference_broker.queues.kinds`): its :class:`Queue`, the machine
that its members run (:class:`QueueMember`), the codec of its commands, and what a declaration may say. The frames
between nodes are the same for all kinds: commands travel as batches of the kind's codec, and what a queue tells the
channels of a node without a member travels as the calls of :class:`Channels`
(:mod:`reference_broker.node.non_members`).

A command that publishes messages has them as ``run``. Nothing else of a command is known outside its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.anatomy.track import Track
from reference_broker.machines.effects import DeadLetter
from reference_broker.machines.inspection import QueueCounts
from reference_broker.machines.metadata import QueueRecord
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.queues.arguments import ArgumentRule
from reference_broker.queues.session import ConsumeSession, PublishSession
from reference_broker.types import (
    NOBODY,
    ChannelId,
    ConsumerId,
    Entry,
    GroupId,
    IdRange,
    LogIndex,
    NodeId,
    Outcome,
    Priority,
    Term,
)

DeadMessage = tuple[bytes, bytes]
"""Where a message was published to (exchange and routing key, two short strings), and its raw content frames."""

Buffers = list[bytes | memoryview]


# How a queue is heard


class Channels(Protocol):
    """The channels of one node since one of its starts, as queues tell them. Calls for channels that are gone do
    nothing."""

    node: NodeId
    boot_id: int

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Send messages of the group's queue to a consumer; those whose ids it had before are dropped. They were
        delivered and came back ``delivery_count`` times."""

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        """The channel's enqueues to the group's queue are committed up to ``last``."""

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        """The channel's enqueues ``first..last`` to the group's queue were refused; those below are answered already,
        unless they are known from before."""

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        """The command with this correlation was applied."""

    def flush(self) -> None:
        """That was all for now."""


# What a queue needs of its node


class MemberPorts(Protocol):
    """What a node does for the members of queues that it has."""

    def watch_node(self, group: GroupId, node: NodeId) -> None:
        """The leader of the group wants to hear when ``node`` goes down or comes up."""

    def dead_letter(self, group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """Route dead messages of the group's queue, which this node leads. ``contents`` are those of ``letters``, in
        order."""

    def set_timer(self, group: GroupId, at_ms: int) -> None:
        """Call :meth:`Queue.timer_due` when the clock shows ``at_ms``, in place of any time set before, if this node
        still leads the queue then."""

    def queue_expired(self, group: GroupId) -> None:
        """The group's queue was unused for too long: delete it. Said again until it is gone."""

    def when_current(self, group: GroupId, call: Callable[[], None]) -> None:
        """Call once this node has applied everything that was committed to the group before now. Never, if it has no
        member of the group any more."""

    def settings_changed(self, group: GroupId) -> None:
        """The group's queue, which this node leads, has other settings now, perhaps those of a former leader's wish."""


class QueuePorts(Protocol):
    """What a node does for every queue that its clients use."""

    anatomy: Anatomy
    nobody: ChannelId
    """Stands for the node itself as a publisher: it hears nothing."""

    def now_ns(self) -> int:
        """The host's monotonic clock."""

    def counts(self, group: GroupId, answered: Callable[[dict[str, Any]], None]) -> None:
        """Call with what the queue's leader counts (``ready``, ``consumers``, ``dead_letters``), or with an
        ``error``."""

    def delete(self, record: QueueRecord, answered: Callable[[], None]) -> None:
        """Delete the queue, unless another one has its name by now, and call."""


class Applied(Protocol):
    """The commands of this node in one priority."""

    @property
    def applied_up_to(self) -> int:
        """The number of the last command that is seen applied."""


class Proposer(Protocol):
    """What takes a queue's commands on this node: its member, or its proxy."""

    @property
    def leader(self) -> NodeId:
        """Who leads the queue, as far as this node knows."""

    @property
    def unapplied(self) -> Mapping[Priority, Applied]:
        """The commands that this node has proposed and not seen applied."""

    def propose(self, command: object, size: int, priority: Priority = ..., *, lazy: bool = ...) -> int:
        """Have the command applied by every member, once; a lazy one a little later. Returns its number, 0 if the queue
        is gone."""

    def pace(self) -> int | None:
        """How many messages a run should hold at most now; None: any number."""


# A queue


class Queue(ABC):
    """A queue as one node has it. The object lives as long as the queue is known here: members and proxies come and go
    within it.

    ``member`` is the queue's machine, if this node has one, and ``membership_epoch`` tells which of the members that
    this node had one after the other.
    """

    __slots__ = ("kind", "member", "membership_epoch", "ports", "proposer", "record")

    def __init__(self, kind: QueueKind, record: QueueRecord, ports: QueuePorts) -> None:
        self.kind = kind
        self.record = record
        self.ports = ports
        self.proposer: Proposer = GONE
        self.member: QueueMember | None = None
        self.membership_epoch = 0

    # For channels

    @abstractmethod
    def publish(self, session: PublishSession, run: MessageRun, confirm_seq: int, ttl_ms: int, read_ns: int) -> int:
        """Enqueue what a channel has published; ``confirm_seq`` is its confirm number of the first message (0: no
        confirms), ``read_ns`` when the run was read from its socket. Returns how many commands that took."""

    @abstractmethod
    def subscribe(self, consumer: ConsumeSession, priority: int, correlation: int) -> None:
        """Deliver to the consumer, as far as its credit goes. The reply is the message id that comes next."""

    @abstractmethod
    def unsubscribe(self, consumer: ConsumeSession, correlation: int) -> None:
        """Deliver no more. The reply comes behind the last delivery; what the consumer holds stays with it."""

    @abstractmethod
    def settle(self, consumer: ConsumeSession, outcome: Outcome, ranges: tuple[IdRange, ...], read_ns: int = 0) -> None:
        """Settle, return or discard messages that the consumer has; ``read_ns``: when the client's word was read."""

    @abstractmethod
    def get(self, consumer: ConsumeSession, no_ack: bool, correlation: int) -> None:
        """Deliver one message. The reply is 0 if there was none, else 1 + the messages left ready."""

    @abstractmethod
    def purge(self, channel: ChannelId, correlation: int) -> None:
        """Drop every ready message. The reply is how many there were."""

    @abstractmethod
    def channel_closed(self, channel: ChannelId) -> None:
        """The channel is gone: its consumers' messages return. Comes behind everything that it has published."""

    def counts(self, answered: Callable[[dict[str, Any]], None]) -> None:
        """Call with what the leader counts, no older than the question, or with an ``error``."""
        self.ports.counts(self.record.group, answered)

    def delete(self, answered: Callable[[], None]) -> None:
        """Delete the queue with everything in it, and call."""
        self.ports.delete(self.record, answered)

    # For the node

    @abstractmethod
    def forward(self, run: MessageRun, session: PublishSession | None = None, confirm_seq: int = 0) -> None:
        """Enqueue messages that the node itself publishes, such as dead letters. Without a session nobody hears of
        them."""

    @abstractmethod
    def dead_letters_settled(self, ranges: tuple[IdRange, ...]) -> None:
        """Dead letters of this queue, by id, are where they belong."""

    @abstractmethod
    def node_up(self, node: NodeId, boot_id: int) -> None:
        """This node leads the queue, and a node that the queue watches is there, with that boot id."""

    @abstractmethod
    def node_down(self, node: NodeId) -> None:
        """This node leads the queue, and a node that the queue watches cannot be reached."""

    @abstractmethod
    def timer_due(self) -> None:
        """This node leads the queue, and the time has come that it asked for."""


class _Gone:
    """The proposer of a queue that is gone: what is proposed there is lost with the queue."""

    leader: Final = NOBODY
    applied_up_to: Final = 0

    @property
    def unapplied(self) -> Mapping[Priority, Applied]:
        return dict.fromkeys(Priority, self)

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        return 0

    def pace(self) -> int | None:
        return None


GONE: Final = _Gone()


# A kind of queue


class HostedMachine(Protocol):
    """What a Raft group replicates: a machine, and the execution of its effects on this node."""

    version: int
    """Of the machine: entries that a newer one made are not for this one to apply."""

    def encode(self, commands: Sequence[Any]) -> Buffers:
        """The commands as one batch, stamped with the leader's time."""

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a batch forwarded at ``sent_ns``, which ends at octet ``end``, each with its size in
        octets."""

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry, whose batch ends at octet ``end``, but for the commands at the positions ``skip``; effects
        gather until :meth:`run_effects`."""

    def run_effects(self, non_members: Collection[Channels] = ()) -> None:
        """Carry out the effects of all entries applied since the last call, also those for the clients of
        ``non_members``, nodes without a member."""

    def catch_up(self, channels: Channels, asked: Sequence[Any]) -> None:
        """Tell a node's clients what they may have missed: what is committed, the answers to their applied commands
        ``asked``, and what their consumers hold."""

    def pace(self) -> int | None:
        """How many messages an entry should hold at most, lest the settles of a consumer with a backlog wait
        behind publishes; None if there is no such consumer."""

    def has_clients_on(self, node: NodeId) -> bool:
        """Whether somebody on that node waits for what is committed."""

    def became_leader(self, term: Term) -> None:
        """This member leads now, in that term. What was committed in earlier terms may still be to apply."""

    def lost_leadership(self) -> None:
        """This member no longer leads."""

    def reproposed(self, command: Any) -> Any:
        """What is to be proposed under another leader in the place of a command that this node has proposed."""

    def doubt(self) -> None:
        """This node may have been given up by the others for a while: what was dealt to its clients may be somebody
        else's, and the entries that say so may be still to come."""

    def when_sure(self, call: Callable[[], None]) -> None:
        """Call once what was dealt to clients can be told again."""

    def stop(self) -> None:
        """The member is gone from this node."""

    def snapshot(self) -> bytes:
        """The machine's state."""

    def restore(self, state: bytes) -> None:
        """At the start: take over this member's own snapshot, which may be older than what else is on its disk."""

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        """Replace the state by a newer one of another member's, jumping over entries that were never applied here.

        What their effects would have told this node's clients must be told now; ``skipped`` are this node's own
        commands among them.
        """

    def live_entries(self) -> Sequence[tuple[int, int]]:
        """Ranges of entries whose payload the state still refers to."""

    def lowest_live_entry(self) -> int | None:
        """The lowest of them, cheaply; None if there are none."""


class QueueMember(HostedMachine, Protocol):
    """The machine of a queue, as a node hosts it."""

    record: QueueRecord
    payload: Callable[[LogIndex], bytes]
    """Reads the payload of an entry that the state refers to. Set before the first call."""
    track: Track | None
    """Where the latency anatomy of the queue is kept, if it is."""

    def counts(self) -> QueueCounts:
        """How many messages are where."""

    def settings_change(self, record: QueueRecord) -> Any | None:
        """The command that gives the queue the settings of this record; None if it has them. Equal settings give equal
        commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueKind:
    """What a kind of queue registers."""

    name: str
    """The value of ``x-queue-type``."""
    queue: Callable[[QueueKind, QueueRecord, QueuePorts], Queue]
    member: Callable[[QueueRecord, Channels, MemberPorts, Callable[[], int]], QueueMember]
    """The machine on a node; the last argument is the wall clock in milliseconds."""
    encode: Callable[[int, Sequence[Any]], Buffers]
    """Commands as a batch stamped with a time in ms. Members read batches with :meth:`HostedMachine.decode`."""
    expects_reply: Callable[[object], bool]
    """Whether somebody waits for the reply to a command."""
    arguments: Mapping[str, ArgumentRule]
    """What each argument of a declaration must be. Other arguments are ignored, as in RabbitMQ."""
    foreign_arguments: frozenset[str] = frozenset()
    """Arguments of other kinds of queues: a declaration with any of them is refused."""
    refused_properties: frozenset[str] = frozenset()
    """What the queue cannot be, of ``auto-delete``, ``exclusive-owner`` and ``non-durable``."""
    takes_exclusive_consumers: bool = False
    gets_beside_single_active: bool = False
    """Whether basic.get works on a queue with a single active consumer."""
