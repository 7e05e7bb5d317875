"""A queue of the FIFO machine as channels and nodes use it: it makes commands of
:mod:`reference_broker.machines.commands`.

Requests of channels and settles have normal priority. Publishes have low priority, and so do the end of a channel and a
purge, which must stay behind the channel's publishes.

Settles are *lazy*: they may wait and share an entry with an enqueue. A settle is not lazy if the queue needs it now:
the consumer is short of credit, or is cancelled and the next consumer waits for its last message. In a keyed queue the
next message of the key waits for each settle.
"""

from __future__ import annotations

from typing import ClassVar, Final

from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
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
)
from reference_broker.machines.fifo import PACED_MESSAGES_MIN
from reference_broker.message_run import MessageRun, stamped
from reference_broker.queues.fifo_commands import SMALL_COMMAND_BYTES
from reference_broker.queues.port import Queue
from reference_broker.queues.session import ConsumeSession, PublishSession
from reference_broker.types import NO_TTL, ChannelId, IdRange, NodeId, Outcome, Priority

_RANGE_BYTES: Final = 16
_UNTRACKED: Final = 0
_OUTCOMES: Final[dict[Outcome, type[Settle | Return | Discard]]] = {
    Outcome.SETTLE: Settle,
    Outcome.RETURN: Return,
    Outcome.DISCARD: Discard,
}


class FifoQueue(Queue):
    """A quorum queue or a classic queue as one node has it."""

    __slots__ = ()

    settles_wait: ClassVar = True
    """Whether settles may be lazy."""

    def publish(self, session: PublishSession, run: MessageRun, confirm_seq: int, ttl_ms: int, read_ns: int) -> int:
        """Enqueue a run, in parts if a consumer with a backlog must not wait behind the whole run."""
        proposer, ports = self.proposer, self.ports
        pace = proposer.pace() if run.count > PACED_MESSAGES_MIN else None
        commands = 0
        for part in run.parts(pace) if pace else (run,):
            part = stamped(part, ports.anatomy.clock, read_ns, ports.now_ns())
            octets = len(part.data)
            first = session.sent(part.count, octets, confirm_seq)
            proposer.propose(self.enqueue(session.channel, first, part, ttl_ms), octets + SMALL_COMMAND_BYTES)
            commands += 1
            confirm_seq += part.count if confirm_seq else 0
        return commands

    def enqueue(self, channel: ChannelId, first_seq: int, run: MessageRun, ttl_ms: int = NO_TTL) -> Enqueue:
        """The command that enqueues a run."""
        return Enqueue(channel, first_seq, run, ttl_ms)

    def forward(self, run: MessageRun, session: PublishSession | None = None, confirm_seq: int = 0) -> None:
        """Enqueue a run in one command. Without a session it has no number, so it is not answered."""
        octets = len(run.data)
        if session is not None:
            command = self.enqueue(session.channel, session.sent(run.count, octets, confirm_seq), run)
        else:
            command = self.enqueue(self.ports.nobody, _UNTRACKED, run)
        self.proposer.propose(command, octets + SMALL_COMMAND_BYTES)

    def subscribe(self, consumer: ConsumeSession, priority: int, correlation: int) -> None:
        """Check out."""
        command = Checkout(consumer.id, consumer.credit, False, priority, correlation, consumer.is_exclusive)
        self.proposer.propose(command, SMALL_COMMAND_BYTES, Priority.NORMAL)

    def unsubscribe(self, consumer: ConsumeSession, correlation: int) -> None:
        """Cancel."""
        self.proposer.propose(Cancel(consumer.id, correlation), SMALL_COMMAND_BYTES, Priority.NORMAL)

    def get_checked_out(self, consumer: ConsumeSession, correlation: int) -> None:
        """Get the consumer's messages that were not delivered."""
        command = GetCheckedOut(consumer.id, consumer.next_message_id, correlation)
        self.proposer.propose(command, SMALL_COMMAND_BYTES, Priority.NORMAL)

    def settle(self, consumer: ConsumeSession, outcome: Outcome, ranges: tuple[IdRange, ...], read_ns: int = 0) -> None:
        """Settle, return or discard. The latency anatomy is told if the queue's member is here."""
        proposer = self.proposer
        lazy = (
            self.settles_wait
            and outcome is Outcome.SETTLE
            and not consumer.is_cancelled
            and not consumer.is_short_of_credit(proposer.unapplied[Priority.NORMAL].applied_up_to)
        )
        octets = SMALL_COMMAND_BYTES + _RANGE_BYTES * len(ranges)
        number = proposer.propose(_OUTCOMES[outcome](consumer.id, ranges), octets, Priority.NORMAL, lazy=lazy)
        count = 0
        for first, last in ranges:
            count += last - first + 1
        consumer.release(count, number)
        if read_ns and number and self.member is not None and self.member.track is not None:
            self.member.track.settling(number, count, read_ns)

    def get(self, consumer: ConsumeSession, no_ack: bool, correlation: int) -> None:
        """Check out one message."""
        self.proposer.propose(Get(consumer.id, no_ack, correlation), SMALL_COMMAND_BYTES, Priority.NORMAL)

    def purge(self, channel: ChannelId, correlation: int) -> None:
        """Drop the ready messages, behind the channel's publishes."""
        self.proposer.propose(Purge(channel, correlation), SMALL_COMMAND_BYTES)

    def channel_closed(self, channel: ChannelId) -> None:
        """End the channel, behind its publishes."""
        self.proposer.propose(ChannelDown(channel), SMALL_COMMAND_BYTES)

    def dead_letters_settled(self, ranges: tuple[IdRange, ...]) -> None:
        """Have the machine forget dead letters."""
        self.proposer.propose(DeadLetterSettled(ranges), SMALL_COMMAND_BYTES, Priority.NORMAL)

    def node_up(self, node: NodeId, boot_id: int) -> None:
        """Tell the machine that the node is back."""
        self.proposer.propose(NodeUp(node, boot_id), SMALL_COMMAND_BYTES, Priority.NORMAL)

    def node_down(self, node: NodeId) -> None:
        """Tell the machine that the node is out of reach."""
        self.proposer.propose(NodeDown(node), SMALL_COMMAND_BYTES, Priority.NORMAL)

    def timer_due(self) -> None:
        """Make the machine expire due messages."""
        self.proposer.propose(Tick(), SMALL_COMMAND_BYTES, Priority.NORMAL)
