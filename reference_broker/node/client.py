"""A client's connection: the protocol core on one side, the queues on the other.

Publishes and acknowledgements go straight to the queue's group. What needs an answer from the log first (declare,
delete, purge, consume, cancel) makes its channel *busy*: the core keeps what comes on the channel behind that unread,
so that a client which does not wait for its answers still gets them in order. Nothing here is per message: events carry
runs and ranges.

Two valves bound memory: while publishes of more than ``publish_bytes_max`` octets or in more than
``publish_commands_max`` commands await their commit, while too much waits behind busy channels, or after a publish
during an alarm of any node, the socket is not read; and consumers without acknowledgement get their credit back only
when the socket takes what it was given.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.events import (
    ChannelClosed,
    ConnectionClosed,
    ConnectionOpened,
    Event,
    Outcome,
    Publish,
    Settled,
)
from reference_broker.amqp.state import Phase
from reference_broker.machines.commands import ChannelDown, Discard, IdRange, Return, Settle
from reference_broker.machines.metadata import QueueRecord
from reference_broker.message_run import stamped
from reference_broker.node.client_requests import GETTER, SMALL, Channel, ClientRequests, Consumer
from reference_broker.node.proposals import Priority, UnappliedCommands
from reference_broker.queues.quorum import Piece, command_size
from reference_broker.queues.session import PublishSession
from reference_broker.types import ConsumerId, GroupId

if TYPE_CHECKING:
    from reference_broker.node.shard import Shard

log = logging.getLogger(__name__)

_EVERYTHING: Final = 2**63
_HELD_OCTETS_MAX: Final = 1 << 20
"""Behind the busy channels of one connection."""
_OUTCOMES: Final[dict[Outcome, type[Settle | Return | Discard]]] = {
    Outcome.SETTLE: Settle,
    Outcome.RETURN: Return,
    Outcome.DISCARD: Discard,
}
_NO_ROUTE: Final = 312
_CONNECTION_FORCED: Final = 320
_INTERNAL_ERROR: Final = 541


class ClientConnection(ClientRequests):
    """One AMQP connection, from accept to close."""

    def __init__(self, shard: Shard, config: ConnectionConfig) -> None:
        super().__init__(shard, config)
        self._transport: asyncio.Transport | None = None
        self._unconfirmed_bytes = 0
        self._unconfirmed_commands = 0
        self._blocked = False
        """It published while an alarm of a node was on: it is not read until the alarm is over."""
        self._read_ns = 0
        self._reading = True
        self._is_taking = False
        """Events are being handled, and the core reads on when that is done."""
        self._writing = True
        self._credit_owed: list[tuple[Consumer, IdRange]] = []
        self._handlers |= {Publish: self._publish, Settled: self._settled}

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client dialled."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not its subclasses
        self._shard.clients[self] = None

    def data_received(self, data: bytes) -> None:
        """Octets in, whatever they are. A defect of ours costs this connection, not the node."""
        self._read_ns = self._shard.now_ns()
        try:
            self._take_all(self.core.receive(data, self._loop.time()))
        except Exception:
            log.exception("defect while serving a client")
            self._take(self.core.connection_error(_INTERNAL_ERROR, "defect in the broker, see its log"))
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, politely or not: so are its channels."""
        self._shard.clients.pop(self, None)
        self._take(self.core.connection_lost("the client is gone" if exc is None else str(exc)))
        for channel in list(self._channels.values()):
            self._forget(channel)

    def pause_writing(self) -> None:
        """The client does not read fast enough."""
        self._writing = False

    def resume_writing(self) -> None:
        """It reads again: consumers without acknowledgement get their credit back."""
        self._writing = True
        owed, self._credit_owed = self._credit_owed, []
        for consumer, ids in owed:
            self._give_back(consumer, ids)

    def stood_still(self) -> None:
        """This process did, in the middle of a turn: what the core was told to deliver before that goes as redelivered,
        for others may have it since."""
        self.core.mark_redelivered()

    def tick(self) -> None:
        """Called now and then: heartbeats and time-outs. A client that is not read is not silent."""
        if not self._reading:
            self.core.not_reading(self._loop.time())
        self._take(self.core.tick(self._loop.time()))
        self.flush()

    def close(self, text: str) -> None:
        """The node stops: tell the client."""
        self._take(self.core.connection_error(_CONNECTION_FORCED, text))
        self.flush()

    # local_clients.Connection

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int
    ) -> None:
        """Messages of a queue for a consumer; those that it had before are dropped, and those of a queue that its tag
        does not subscribe to any more: their holder has them."""
        channel = self._channels.get(consumer.channel.channel)
        if channel is None:
            return
        if consumer.tag == GETTER:
            self._dealt_to_get(channel, group, first_message_id, pieces, delivery_count)
            return
        known = channel.consumers.get(consumer.tag)
        if known is None or known.group != group:
            return
        count = sum(piece[2] for piece in pieces)
        first, last = first_message_id, first_message_id + count - 1
        if last < known.next_message_id:
            return
        if first < known.next_message_id:
            pieces = _skip(pieces, known.next_message_id - first)
            first = known.next_message_id
        known.next_message_id = last + 1
        known.held += last - first + 1
        if not self.core.deliver(channel.id.channel, consumer.tag, first, pieces, delivery_count):
            known.held -= last - first + 1
            self._propose(known.group, Return(consumer, ((first, last),)), SMALL, Priority.NORMAL)
        elif known.no_ack:
            if self._writing:
                self._give_back(known, (first, last))
            else:
                self._credit_owed.append((known, (first, last)))

    def committed(self, channel: int, group: GroupId, last: int) -> bool:
        """Enqueues of a channel are committed: confirm them, and read on."""
        known = self._channels.get(channel)
        session = known.sessions.get(group) if known is not None else None
        if session is None:
            return False
        confirmed = self._resolved(session, last)
        for first_seq, last_seq in confirmed:
            self.core.confirm(channel, first_seq, last_seq)
        return bool(confirmed)

    def rejected(self, channel: int, group: GroupId, first: int, last: int) -> None:
        """Enqueues of a channel were refused: say so, and read on. Those before them are committed."""
        self.committed(channel, group, first - 1)
        known = self._channels.get(channel)
        session = known.sessions.get(group) if known is not None else None
        if session is None:
            return
        for first_seq, last_seq in self._resolved(session, last):
            self.core.reject(channel, first_seq, last_seq)

    def _resolved(self, session: PublishSession, last: int) -> list[IdRange]:
        """What the queue has answered up to ``last`` no longer counts against the limits."""
        octets, waiting = session.unconfirmed_bytes, session.unconfirmed_commands
        resolved = session.committed(last)
        self._unconfirmed_bytes += session.unconfirmed_bytes - octets
        self._unconfirmed_commands += session.unconfirmed_commands - waiting
        return resolved

    def replied(self, correlation: int, value: int) -> None:
        """A command was applied."""
        if (reply := self._replies.pop(correlation, None)) is not None:
            reply(value)

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone: its consumers are told, and who waits for its answer gets one."""
        for channel in list(self._channels.values()):
            self._leave_queue(channel, record)
            self._resume(channel)

    def _leave_queue(self, channel: Channel, record: QueueRecord) -> None:
        number, group = channel.id.channel, record.group
        session = channel.sessions.pop(group, None)
        if session is not None and (unanswered := self._resolved(session, _EVERYTHING)):
            self._answer_for(record.name, channel, unanswered)
        self._await_no_longer(channel, group)
        for tag, consumer in list(channel.consumers.items()):
            if consumer.group == group:
                del channel.consumers[tag]
                self.core.set_apart(number, tag)  # under a name that nobody has: with the queue its messages are gone
                if not consumer.is_cancelled:  # else the client has heard of its end, and may use the tag again
                    self.core.cancelled_by_broker(number, tag)
        channel.groups.discard(group)

    def _answer_for(self, name: str, channel: Channel, unanswered: list[IdRange]) -> None:
        """What was published to a queue that is gone is confirmed, as RabbitMQ does: it went with the queue. But if a
        queue of that name is there again, it may have come after the new one, and is refused."""

        def looked(found: bool) -> None:
            is_gone = found and name not in self._shard.queues
            for first_seq, last_seq in unanswered if self._channels.get(channel.id.channel) is channel else ():
                (self.core.confirm if is_gone else self.core.reject)(channel.id.channel, first_seq, last_seq)
            self._touch()

        self._shard.reads.look_again(looked)

    def flush(self) -> None:
        """Write what the core has to say; close when it has said its last; open or shut the valve."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.core.flush_confirms()
        if self._blocked and not self._shard.alarms.reason:
            self._blocked = False
            self.core.unblocked()
        if output := self.core.take_output():
            transport.writelines(output)
        if self.core.phase is Phase.CLOSED:
            transport.close()
            return
        self._regulate(transport)

    # Events

    def _touch(self) -> None:
        self._shard.touch(self)

    def _take_all(self, events: list[Event]) -> None:
        """Do what the core tells, and have it read on."""
        self._is_taking = True
        try:
            self._take(events)
            while self.core.has_more:
                self._take(self.core.go_on())
        finally:
            self._is_taking = False

    def _read_on(self) -> None:
        if self.core.has_more and not self._is_taking:
            self._take_all(self.core.go_on())

    def _take(self, events: list[Event]) -> None:
        for event in events:
            self._take_one(event)

    def _take_one(self, event: Event) -> None:
        if isinstance(event, ConnectionOpened):
            return
        if isinstance(event, ConnectionClosed):
            for channel in list(self._channels.values()):
                self._forget(channel)
            return
        if isinstance(event, ChannelClosed):
            if (gone := self._channels.get(event.channel)) is not None:
                self._forget(gone)
            return
        channel = self._channel(event.channel)
        if channel.awaited is not None:
            channel.waiting.append(event)
        else:
            self._handlers[type(event)](channel, event)

    def _channel(self, number: int) -> Channel:
        if (channel := self._channels.get(number)) is None:
            channel = self._channels[number] = Channel(self._shard.new_channel(self, number))
        return channel

    def _publish(self, channel: Channel, event: Publish) -> None:
        queue = self._shard.queues.get(event.routing_key)
        if queue is None:
            if channel.looked is None:
                self._look_for_its_queue(channel, event)
            else:
                self._unroutable(channel, event, is_sure=channel.looked)
            return
        group = queue.record.group
        session = channel.sessions.get(group)
        if session is None:
            session = channel.sessions[group] = PublishSession(channel.id)
            channel.groups.add(group)
        pace, seq = queue.runner.pace(), event.first_seq
        for part in event.run.parts(pace) if pace else (event.run,):
            run = stamped(part, self._shard.anatomy.clock, self._read_ns, self._shard.now_ns())
            command = session.enqueue(run, seq, event.ttl_ms)
            queue.runner.propose(command, command_size(command))
            self._unconfirmed_commands += 1
            seq += run.count if seq else 0
        self._unconfirmed_bytes += len(event.run.data)
        if self._shard.alarms.reason and not self._blocked:
            self._blocked = True
            self.core.blocked(self._shard.alarms.reason)

    def _unroutable(self, channel: Channel, event: Publish, *, is_sure: bool) -> None:
        """No queue has this name; or nobody could tell, and the publisher must not take its messages for safe."""
        last_seq = event.first_seq + event.run.count - 1
        if channel.is_gone:
            return
        if not is_sure:
            self.core.reject(event.channel, event.first_seq, last_seq)
            return
        if event.mandatory:
            self.core.returned(event.channel, _NO_ROUTE, "NO_ROUTE", event.exchange, event.routing_key, event.run)
        if event.first_seq:
            self.core.confirm(event.channel, event.first_seq, last_seq)

    def _settled(self, channel: Channel, event: Settled) -> None:
        if (consumer := channel.consumers.get(event.consumer_tag)) is not None:
            number, count = self._release(consumer, event.outcome, event.ranges)
            if number and (runner := self._shard.runners.get(consumer.group)) is not None:
                runner.track.settling(number, count, self._read_ns)

    # Helpers

    def _give_back(self, consumer: Consumer, ids: IdRange) -> None:
        self._release(consumer, Outcome.SETTLE, (ids,))

    def _release(self, consumer: Consumer, outcome: Outcome, ranges: tuple[IdRange, ...]) -> tuple[int, int]:
        """Propose what the consumer did with messages. Returns the number of the proposal (0: the queue is gone), and
        how many messages it is about."""
        count = sum(last - first + 1 for first, last in ranges)
        proposer = self._shard.proposer(consumer.group)
        if proposer is None:
            consumer.held -= count
            return 0, count
        command = _OUTCOMES[outcome](consumer.id, ranges)
        lazy = outcome is Outcome.SETTLE and not self._is_awaited(consumer, proposer.unapplied[Priority.NORMAL])
        number = proposer.propose(command, SMALL + 16 * len(ranges), Priority.NORMAL, lazy=lazy)
        consumer.release(count, number)
        if consumer.is_cancelled and (channel := self._channels.get(consumer.id.channel.channel)) is not None:
            self._forget_if_done(channel, consumer)
        return number, count

    @staticmethod
    def _is_awaited(consumer: Consumer, unapplied: UnappliedCommands) -> bool:
        """Whether a settle matters to the queue now: it may have no credit to deal on, or a next consumer waits for the
        last message of one that is cancelled."""
        return consumer.is_cancelled or consumer.is_short_of_credit(unapplied.applied_up_to)

    def _forget(self, channel: Channel) -> None:
        """The channel is gone: every queue it dealt with must know."""
        if self._channels.get(channel.id.channel) is channel:
            del self._channels[channel.id.channel]
        if channel.waiting:  # what it has published goes to its queues first
            channel.is_gone = True
            return
        self._stop_waiting(channel)
        for session in channel.sessions.values():
            self._resolved(session, _EVERYTHING)
        for group in channel.groups:
            self._propose(group, ChannelDown(channel.id), SMALL)
        self._shard.forget_channel(channel.id)

    def _regulate(self, transport: asyncio.Transport) -> None:
        """Open or shut the valve. It opens again at half of what shut it, or it would flutter."""
        wanted = not (self._is_full() or self._blocked or self.core.held_octets > _HELD_OCTETS_MAX)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _is_full(self) -> bool:
        limits, share = self._shard.limits, 1 if self._reading else 2
        return (
            self._unconfirmed_bytes > limits.publish_bytes_max // share
            or self._unconfirmed_commands > limits.publish_commands_max // share
        )


def _skip(pieces: list[Piece], count: int) -> list[Piece]:
    """The pieces without their first ``count`` messages."""
    rest: list[Piece] = []
    for run, start, length, step in pieces:
        if count >= length:
            count -= length
            continue
        rest.append((run, start + count * step, length - count, step))
        count = 0
    return rest
