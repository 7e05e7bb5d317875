"""The queue port: the requests to any kind of queue, and the calls by which a queue answers.

Theory of operation
-------------------
A channel finds a :class:`Queue` by its name and asks: publish this run, subscribe, settle, get, purge. The queue turns
the request into commands of its kind and proposes them to its ``proposer``: the member of its group on this node, or a
proxy that sends them to the leader. The results reach the channel through :class:`Channels`, as deliveries, confirms,
refusals and replies. So client code builds no command and knows no kind.

Each kind registers a :class:`QueueKind` (:mod:`reference_broker.queues.kinds`): its :class:`Queue`, the machine that
its members run (:class:`QueueMember`), the codec of its commands, and the arguments of its declaration. All kinds share
the frames between nodes: commands travel as batches of the kind's codec, and results for the channels of a node without
a member travel as calls of :class:`Channels` (:mod:`reference_broker.node.replication.non_members`).

A command that publishes messages has them as ``run``. Code outside the kind reads nothing else of a command.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, Final, Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.anatomy.track import Track
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.effects import DeadLetter
from reference_broker.machines.inspection import QueueCounts
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.mirroring.master import RecordingStore
from reference_broker.queues.arguments import ArgumentRule
from reference_broker.queues.session import ConsumeSession, PublishSession
from reference_broker.records import record
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
"""The route that a message was published to (exchange and routing key, two short strings), and its raw content."""

Buffers = list[bytes | memoryview]


# Results of a queue


class Channels(Protocol):
    """The channels of one start of one node, as queues see them. Calls for channels that are gone do nothing."""

    node: NodeId
    boot_id: int

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Send messages of the group's queue to a consumer. Messages whose ids the consumer had before are dropped.
        ``delivery_count`` is the number of returns of these messages."""

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        """Whether the consumer's client reads, to be asked before each delivery. If not, the messages up to id ``last``
        are not to be delivered: the consumer's channel asks for them once the client reads again
        (:meth:`Queue.get_checked_out`)."""

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        """The channel's enqueues to the group's queue are committed up to ``last``."""

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        """The channel's enqueues ``first..last`` to the group's queue were refused; all enqueues below are answered."""

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        """The command with this correlation was applied."""

    def flush(self) -> None:
        """No more calls come for now: send the gathered results."""


# Ports of the node for a queue


class MemberPorts(Protocol):
    """A node's services for its members of queues."""

    def watch_node(self, group: GroupId, node: NodeId) -> None:
        """Tell the group's leader when ``node`` goes down or comes up."""

    def dead_letter(self, group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """Route dead messages of the group's queue, which this node leads. ``contents`` are those of ``letters``, in
        order."""

    def set_timer(self, group: GroupId, at_ms: int) -> None:
        """Call :meth:`Queue.timer_due` when the clock shows ``at_ms``, in place of any time set before, if this node
        still leads the queue then."""

    def queue_expired(self, group: GroupId, unused_ms: int) -> None:
        """Delete the group's queue, unused for ``unused_ms``. Repeated until the queue is gone."""

    def when_current(self, group: GroupId, call: Callable[[], None]) -> None:
        """Call once this node has applied everything that was committed to the group before now. Never, if it has no
        member of the group any more."""

    def settings_changed(self, group: GroupId) -> None:
        """The settings of the group's queue, which this node leads, have changed, maybe by a former leader."""


class QueuePorts(Protocol):
    """A node's services for every queue that its clients use."""

    anatomy: Anatomy
    nobody: ChannelId
    """The node itself as a publisher. It gets no answers."""

    def now_ns(self) -> int:
        """The host's monotonic clock."""

    def counts(self, group: GroupId, answered: Callable[[dict[str, Any]], None]) -> None:
        """Call with the counts of the queue's leader (``ready``, ``consumers``, ``dead_letters``), or with an
        ``error``."""

    def delete(self, record: QueueRecord, answered: Callable[[], None]) -> None:
        """Delete the queue, unless another queue has its name by now, and call."""


class Applied(Protocol):
    """The commands of this node in one priority."""

    @property
    def last(self) -> int:
        """The number of the last command."""

    @property
    def applied_up_to(self) -> int:
        """The number of the last command that this node knows as applied."""

    def forget(self) -> None:
        """Forget the commands: the queue was deleted."""


class Proposer(Protocol):
    """The member or proxy that takes a queue's commands on this node."""

    @property
    def leader(self) -> NodeId:
        """The node that leads the queue, as far as this node knows."""

    @property
    def unapplied(self) -> Sequence[Applied]:
        """The commands that this node has proposed and does not know as applied, by priority."""

    def propose(self, command: object, size: int, priority: Priority = ..., *, lazy: bool = ...) -> int:
        """Have every member apply the command once; a lazy command may wait. Returns the command's number, 0 if the
        queue is gone."""

    def pace(self) -> int | None:
        """The most messages that a run should hold now, :data:`~reference_broker.machines.fifo.PACED_MESSAGES_MIN` or
        more; None: any number."""


# A queue


class Queue(ABC):
    """A queue as one node knows it. The object stays while members and proxies of the queue come and go on the node.

    ``member`` is the queue's machine, if this node has a member; ``membership_epoch`` is the epoch of that member.
    """

    __slots__ = ("kind", "member", "membership_epoch", "ports", "proposer", "record")

    def __init__(self, kind: QueueKind, record: QueueRecord, ports: QueuePorts) -> None:
        self.kind = kind
        self.record = record
        self.ports = ports
        self.proposer: Proposer = GONE
        self.member: QueueMember | QueueOwner | None = None
        self.membership_epoch = 0

    # For channels

    @abstractmethod
    def publish(self, session: PublishSession, run: MessageRun, confirm_seq: int, ttl_ms: int, read_ns: int) -> int:
        """Enqueue a channel's publishes. ``confirm_seq`` is the confirm number of the first message (0: no confirms),
        ``read_ns`` the time at which the run was read from its socket. Returns the number of commands."""

    @abstractmethod
    def subscribe(self, consumer: ConsumeSession, priority: int, correlation: int) -> None:
        """Deliver to the consumer, as far as its credit goes. The reply is the consumer's next message id, or
        :data:`~reference_broker.types.IN_EXCLUSIVE_USE` if it or another consumer wants to be alone and is not."""

    @abstractmethod
    def unsubscribe(self, consumer: ConsumeSession, correlation: int) -> None:
        """Stop deliveries. The reply comes behind the last delivery. The consumer keeps the messages that it holds."""

    @abstractmethod
    def get_checked_out(self, consumer: ConsumeSession, correlation: int) -> None:
        """Deliver the consumer's messages once more, from its next message id on. The reply comes before these
        deliveries."""

    @abstractmethod
    def settle(self, consumer: ConsumeSession, outcome: Outcome, ranges: tuple[IdRange, ...], read_ns: int = 0) -> None:
        """Settle, return or discard messages of the consumer; ``read_ns`` is when the client's frame was read."""

    @abstractmethod
    def get(self, consumer: ConsumeSession, no_ack: bool, correlation: int) -> None:
        """Deliver one message. The reply is 0 if there was none, else 1 + the messages left ready."""

    @abstractmethod
    def purge(self, channel: ChannelId, correlation: int) -> None:
        """Drop every ready message. The reply is the number of these messages."""

    @abstractmethod
    def channel_closed(self, channel: ChannelId) -> None:
        """The channel is gone: return its consumers' messages. Takes effect behind the channel's publishes."""

    def counts(self, answered: Callable[[dict[str, Any]], None]) -> None:
        """Call with the leader's counts, no older than the question, or with an ``error``."""
        self.ports.counts(self.record.group, answered)

    def delete(self, answered: Callable[[], None]) -> None:
        """Delete the queue with everything in it, and call."""
        self.ports.delete(self.record, answered)

    # For the node

    @abstractmethod
    def forward(self, run: MessageRun, session: PublishSession | None = None, confirm_seq: int = 0) -> None:
        """Enqueue messages that the node itself publishes, such as dead letters. Without a session they get no
        answer."""

    @abstractmethod
    def dead_letters_settled(self, ranges: tuple[IdRange, ...]) -> None:
        """Forget dead letters of this queue, by id: their target has confirmed them."""

    @abstractmethod
    def node_up(self, node: NodeId, boot_id: int) -> None:
        """This node leads the queue, and a watched node is in reach, with that boot id."""

    @abstractmethod
    def node_down(self, node: NodeId) -> None:
        """This node leads the queue, and a watched node is out of reach."""

    @abstractmethod
    def timer_due(self) -> None:
        """This node leads the queue, and the queue's timer is due."""


class _Gone:
    """The proposer of a queue that is gone. Its commands are lost with the queue."""

    leader: Final = NOBODY
    last: Final = 0
    applied_up_to: Final = 0

    @property
    def unapplied(self) -> Sequence[Applied]:
        return (self,) * len(Priority)

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        return 0

    def forget(self) -> None:
        pass

    def pace(self) -> int | None:
        return None


GONE: Final = _Gone()


# A kind of queue


class HostedMachine(Protocol):
    """The machine that a Raft group replicates, and the execution of its effects on this node."""

    version: int
    """Version of the machine. It does not apply entries of a newer version."""

    @property
    def client_nodes(self) -> Container[int]:
        """The nodes whose clients wait for results of the queue."""

    def encode(self, commands: Sequence[Any]) -> Buffers:
        """The commands as one batch, stamped with the leader's time."""

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a batch forwarded at ``sent_ns``, which ends at octet ``end``, each with its size in
        octets."""

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry, whose batch ends at octet ``end``, without the commands at the positions ``skip``. Effects
        gather until :meth:`run_effects`."""

    def run_effects(self, non_members: Collection[Channels] = ()) -> None:
        """Execute the effects of all entries applied since the last call, also for the clients of ``non_members``
        (nodes without a member)."""

    def catch_up(self, channels: Channels, asked: Sequence[Any]) -> None:
        """Tell a node's clients what they may have missed: confirms, the replies to their applied commands ``asked``,
        and deliveries of the messages that their consumers hold."""

    def pace(self) -> int | None:
        """The most messages that an entry should hold, so that settles of a consumer with a backlog do not wait behind
        publishes. None if there is no such consumer."""

    def became_leader(self, term: Term) -> None:
        """This member leads now, in that term, and has applied everything of earlier terms."""

    def lost_leadership(self) -> None:
        """This member no longer leads."""

    def reproposed(self, command: Any) -> Any:
        """The command to propose under a new leader in the place of a command that this node proposed before."""

    def doubt(self) -> None:
        """The other nodes may have given this node up for a while. Messages dealt to its clients may be other
        consumers' now, by entries that this node has not applied yet."""

    def after_doubt(self, call: Callable[[], None]) -> None:
        """Call once deliveries are certain again."""

    def stop(self) -> None:
        """The member is gone from this node."""

    def snapshot(self) -> bytes:
        """The machine's state."""

    def restore(self, state: bytes) -> None:
        """At the start: take over this member's own snapshot, which may be older than the entries on its disk."""

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        """Replace the state by another member's newer state. The entries in between are never applied here.

        The clients of this node must get now the news that the effects of the skipped entries would have brought.
        ``skipped`` are this node's own commands in those entries.
        """

    def live_entries(self) -> Sequence[tuple[int, int]]:
        """Ranges of entries whose payload the state still refers to."""

    def lowest_live_entry(self) -> int | None:
        """The lowest live entry, cheaply; None if there is none."""


class QueueMember(HostedMachine, Protocol):
    """The machine of a queue, as a node hosts it."""

    record: QueueRecord
    payload: Callable[[LogIndex], bytes]
    """Reads the payload of an entry that the state refers to. Set before the first call."""
    track: Track | None
    """Where the latency anatomy of the queue is kept, if it is."""

    def counts(self) -> QueueCounts:
        """The counts of the queue."""

    def settings_change(self, record: QueueRecord) -> Any | None:
        """The command that gives the queue the settings of this record; None if it has them. Equal settings give equal
        commands."""


class QueueOwner(Protocol):
    """The machine of a queue that lives on one node, and is in no log."""

    record: QueueRecord
    track: Track | None
    """Where the latency anatomy of the queue is kept, if it is."""

    def encode(self, commands: Sequence[Any]) -> Buffers:
        """The commands as one batch, for another node."""

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a batch forwarded at ``sent_ns``, which ends at octet ``end``, each with its size in
        octets."""

    def started(self) -> None:
        """The node serves the queue from now on."""

    def apply(self, commands: Sequence[Any]) -> None:
        """Apply commands, in order. Effects gather until :meth:`run_effects`."""

    def stored(self, seq_end: int) -> None:
        """The store has told that the queue's messages below ``seq_end`` survive a loss of power."""

    def run_effects(self, non_members: Collection[Channels] = (), *, only_answers: bool = False) -> bool:
        """Execute the gathered effects, for the clients of this node and of ``non_members``; only the answers to their
        publishes, while another node may own the queue. Returns whether effects remain for the next turn. Raises
        OSError or a damaged part's error if the drive does not give a message back."""

    def catch_up(self, channels: Channels, asked: Sequence[Any]) -> None:
        """A node's clients may have missed something: have :meth:`run_effects` tell them."""

    def ends_of(self, node: NodeId) -> Sequence[Any]:
        """The link to a node is lost. Returns the commands that end all its channels. Answers that they wait for are
        forgotten: its channels begin to count anew, and would take an answer of before for one of theirs."""

    def counts(self) -> QueueCounts:
        """The counts of the queue."""

    def settings_change(self, record: QueueRecord) -> Any | None:
        """The command that gives the queue the settings of this record; None if it has them."""

    def taken_over(self, commands: Sequence[Any]) -> Sequence[Any]:
        """The publishes among commands that a former owner may have applied, as commands that no client waits for. They
        are applied first."""

    def record_changes(self) -> RecordingStore:
        """Mirrors follow the queue from now on: its store records all changes to the messages."""

    def delete(self) -> None:
        """The queue is deleted: give up everything that it has on the drive."""


@record(kw_only=True)
class QueueKind:
    """A kind of queue, as it registers itself."""

    name: str
    """The value of ``x-queue-type``."""
    queue: Callable[[QueueKind, QueueRecord, QueuePorts], Queue]
    member: Callable[[QueueRecord, Channels, MemberPorts, Callable[[], int]], QueueMember] | None = None
    """The machine on a node, for a kind that is replicated; the last argument is the wall clock in milliseconds."""
    owner: Callable[[QueueRecord, Any, Channels, MemberPorts, Callable[[], int]], QueueOwner] | None = None
    """The machine on the only node that has the queue, for a kind that is not replicated; the second argument is the
    queue's store. A kind has either ``member`` or ``owner``."""
    encode: Callable[[int, Sequence[Any]], Buffers]
    """Commands as a batch stamped with a time in ms. Members read batches with :meth:`HostedMachine.decode`."""
    decode: Callable[[bytes, int, int], list[tuple[Any, int]]] | None = None
    """The commands of a batch, as :meth:`HostedMachine.decode`, for a kind whose queues have an owner."""
    question: Callable[[object], tuple[ChannelId, int] | None]
    """The channel that waits for the reply to a command, and the reply's correlation; None if none does."""
    arguments: Mapping[str, ArgumentRule]
    """A rule for each argument of a declaration. Other arguments are ignored, as in RabbitMQ."""
    foreign_arguments: frozenset[str] = frozenset()
    """Arguments of other kinds of queues: a declaration with any of them is refused."""
    refused_properties: frozenset[str] = frozenset()
    """Properties that the queue cannot have: of ``auto-delete``, ``exclusive-owner`` and ``non-durable``."""
    takes_server_names: bool = True
    """Whether the server may name the queue."""
    counts_first_get: bool = False
    """Whether a message that basic.get fetches states its number of returns also if it is 0."""
    takes_exclusive_consumers: bool = False
    takes_channel_limits: bool = False
    """Whether consumers may belong to a channel with a limit of its own (``basic.qos`` with ``global``)."""
    gets_beside_single_active: bool = False
    """Whether basic.get works on a queue with a single active consumer."""
