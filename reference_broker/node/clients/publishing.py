"""The publishes of a channel: which queues they go to, and what becomes of them for the client.

A run of messages for the default exchange goes straight to its queue. For all others, to an exchange with a name or
with CC and BCC headers, the routing table is asked once per run. Only where headers may decide (a headers exchange can
be reached, or CC and BCC are there) a run is taken apart into stretches of equal properties, and the table is asked
once per stretch. The stretches of a run that go to several queues share their octets: a queue gets the run, not a copy
of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from reference_broker.amqp import addressing
from reference_broker.amqp.addressing import Address
from reference_broker.amqp.confirms import SeqRange
from reference_broker.amqp.errors import ReplyCode, SoftError
from reference_broker.amqp.events import Publish
from reference_broker.amqp.fan_out import FanOut
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.message_run import MessageRun
from reference_broker.node.clients.answers import Answers, EventHandler
from reference_broker.node.clients.channel_context import ChannelContext
from reference_broker.node.clients.reply_to import Replies
from reference_broker.queues.port import Queue
from reference_broker.queues.session import PublishSession
from reference_broker.routing.records import DEFAULT, Arguments
from reference_broker.types import COPIES, GroupId, IdRange

_EVERYTHING: Final = 2**63


class EndableChannel(EventHandler, Protocol):
    """The channel, which a publish can close."""

    @property
    def is_open(self) -> bool:
        """Whether the channel has not ended."""


class Publishing:
    """The publishes of one channel that queues have not answered."""

    __slots__ = (
        "_channel", "_core", "_fan_out", "_number", "_ports", "answers", "context", "replies", "sessions",
        "vhost",
    )  # fmt: skip

    def __init__(self, context: ChannelContext, answers: Answers, replies: Replies, channel: EndableChannel) -> None:
        self.context = context
        self.vhost = context.vhost
        self.answers = answers
        self.replies = replies
        self._channel = channel
        self._core, self._number, self._ports = context.core, context.number, context.ports
        self.sessions: dict[GroupId, PublishSession] = {}
        """By the group of the queue."""
        self._fan_out = FanOut()

    # Results of queues

    def committed(self, group: GroupId, last: int) -> bool:
        """Confirm committed enqueues. Returns whether the client gets a confirm."""
        session = self.sessions.get(group)
        if session is None:
            return False
        confirmed = self._resolved(session, last)
        if self._fan_out.open:
            confirmed = self._fan_out.confirmed(confirmed)
        for first_seq, last_seq in confirmed:
            self._core.confirm(self._number, first_seq, last_seq)
        return bool(confirmed)

    def rejected(self, group: GroupId, first: int, last: int) -> None:
        """Reject refused enqueues, and confirm the enqueues before them."""
        self.committed(group, first - 1)
        session = self.sessions.get(group)
        if session is None:
            return
        self._reject(self._resolved(session, last))

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone: answer the open publishes."""
        session = self.sessions.pop(record.group, None)
        if session is not None and (unanswered := self._resolved(session, _EVERYTHING)):
            self._answer_for(record.short_name, unanswered)

    def queue_lost(self, group: GroupId) -> None:
        """The node that had the queue is out of reach, or another node has the queue now: refuse the open publishes,
        because their outcome is unknown here."""
        session = self.sessions.pop(group, None)
        if session is not None:
            self._reject(self._resolved(session, _EVERYTHING))

    def end(self) -> None:
        """The channel has ended: its open publishes no longer count against the limits of its connection."""
        for session in self.sessions.values():
            self._resolved(session, _EVERYTHING)

    def uses(self, group: GroupId) -> bool:
        """Whether the channel has published to a queue."""
        return group in self.sessions

    def waits_on(self, group: GroupId) -> bool:
        """Whether a queue has not answered all publishes."""
        session = self.sessions.get(group)
        return session is not None and len(session.waiting) > 0

    def _resolved(self, session: PublishSession, last: int) -> list[IdRange]:
        """The confirm ranges of enqueues answered up to ``last``, which no longer count against the limits."""
        octets, waiting = session.unconfirmed_bytes, len(session.waiting)
        resolved = session.committed(last)
        flow = self._ports.flow
        flow.unconfirmed_bytes += session.unconfirmed_bytes - octets
        flow.unconfirmed_commands += len(session.waiting) - waiting
        return resolved

    def _answer_for(self, name: str, unanswered: list[IdRange]) -> None:
        """Answer the open publishes to a queue that is gone. They are confirmed, as in RabbitMQ: the messages went with
        the queue. If there is a new queue of that name, they may have come after its creation, and are refused."""

        def current(found: bool) -> None:
            if self._channel.is_open:
                if not (found and name not in self.vhost.queues):
                    self._reject(unanswered)
                else:
                    for first_seq, last_seq in self._fan_out.confirmed(unanswered):
                        self._core.confirm(self._number, first_seq, last_seq)
            self._ports.touch()

        self.context.node.when_queues_current(current)

    def _reject(self, ranges: list[SeqRange]) -> None:
        """Refuse publishes, whatever other queues will say of them."""
        self._fan_out.rejected(ranges)
        for first_seq, last_seq in ranges:
            self._core.reject(self._number, first_seq, last_seq)

    # To queues

    def publish_to(self, queues: list[Queue], event: Publish) -> None:
        """Publish a run to queues that can be reached. The client gets its confirm when all have the run."""
        if event.first_seq and len(queues) > 1:
            self._fan_out.expect(event.first_seq, event.first_seq + event.run.count - 1, len(queues))
        read_ns, flow, run = self._ports.read_ns, self._ports.flow, event.run
        for queue in queues:
            session = self.sessions[queue.record.group]
            flow.unconfirmed_commands += queue.publish(session, run, event.first_seq, event.ttl_ms, read_ns)
            flow.unconfirmed_bytes += len(run.data)
        flow.published()

    def can_publish_to(self, queue: Queue) -> bool:
        """Whether the queue can be reached."""
        return self.session_with(queue) is not None

    def session_with(self, queue: Queue) -> PublishSession | None:
        """The session of publishes to the queue; None if the only node that has the queue is out of reach."""
        group = queue.record.group
        if (session := self.sessions.get(group)) is not None:
            return session
        if self.context.node.home_node_down(queue.record) is not None:
            return None
        self.context.used[group] = queue
        session = self.sessions[group] = PublishSession(self.context.id)
        return session

    # To nowhere

    def refuse(self, code: int, text: str) -> None:
        """Close the channel for a publish that is not allowed. As in RabbitMQ, later publishes are dropped."""
        self.answers.waiting.clear()
        if self.answers.is_gone:
            self._channel.end()
        else:
            self.answers.refuse(code, text, "basic.publish")

    def unroutable(self, event: Publish, *, is_sure: bool) -> None:
        """Answer publishes to a queue that does not exist. If that is not sure, refuse them: they may not be safe."""
        last_seq = event.first_seq + event.run.count - 1
        if self.answers.is_gone:
            return
        if not is_sure:
            self._core.reject(event.channel, event.first_seq, last_seq)
            return
        if event.mandatory:
            code = ReplyCode.NO_ROUTE
            self._core.returned(event.channel, code, code.name, event.exchange, event.routing_key, event.run)
        if event.first_seq:
            self._core.confirm(event.channel, event.first_seq, last_seq)


class PublishingChannel(Protocol):
    """A channel as a publish uses it."""

    publishing: Publishing


def publish(channel: PublishingChannel, event: Publish) -> None:
    """Publish a run: to the queue of its key, or by the routing table."""
    publishing = channel.publishing
    if event.exchange or event.ttl_ms == COPIES:
        _publish_routed(publishing, event)
        return
    queue = publishing.vhost.queues.get(event.routing_key)
    if queue is None:
        if publishing.answers.knows_queues is None:
            publishing.answers.publish_when_current(event)
        else:
            publishing.unroutable(event, is_sure=publishing.answers.knows_queues)
        return
    session = publishing.sessions.get(queue.record.group) or publishing.session_with(queue)
    if session is None:
        # As in RabbitMQ, but publishes without an answer are not confirmed if the queue comes back.
        publishing.unroutable(event, is_sure=event.mandatory or queue.record.ends_with_its_node)
        return
    ports = publishing.context.ports
    flow = ports.flow
    flow.unconfirmed_commands += queue.publish(session, event.run, event.first_seq, event.ttl_ms, ports.read_ns)
    flow.unconfirmed_bytes += len(event.run.data)
    if publishing.context.node.alarms.reason:
        flow.published()


def _publish_routed(publishing: Publishing, event: Publish) -> None:
    if not may_publish(publishing, event):
        return
    if event.ttl_ms == COPIES or publishing.vhost.exchanges.table.heeds_headers(event.exchange):
        _publish_stretches(publishing, event)
    else:
        _publish_by(publishing, event, (event.routing_key,), ())


def may_publish(publishing: Publishing, event: Publish) -> bool:
    """Whether clients may publish to the exchange. If not, the publish is answered, or waits for news."""
    exchange = publishing.vhost.exchanges.table.exchange(event.exchange)
    if exchange is None:
        if publishing.answers.knows_queues is None:
            publishing.answers.publish_when_current(event)
        elif publishing.answers.knows_queues:
            text = f"no {publishing.vhost.exchange_called(event.exchange)}"
            publishing.refuse(ReplyCode.NOT_FOUND, text)
        else:
            publishing.unroutable(event, is_sure=False)
    elif exchange.internal:
        text = f"cannot publish to internal {publishing.vhost.exchange_called(event.exchange)}"
        publishing.refuse(ReplyCode.ACCESS_REFUSED, text)
    else:
        return True
    return False


def _publish_stretches(publishing: Publishing, event: Publish) -> None:
    heeds_headers = publishing.vhost.exchanges.table.heeds_headers(event.exchange)
    if _names_unknown_queues(publishing, event):
        publishing.answers.publish_when_current(event)
        return
    for start, run, address in addressing.stretches(event.run):
        try:
            address.check()
            run = publishing.replies.addressed(run, address)
        except SoftError as refused:
            publishing.refuse(refused.code, refused.text)
            return
        seq = event.first_seq and event.first_seq + start
        part = replace(event, run=_delivered(run, address), first_seq=seq, ttl_ms=address.ttl_ms)
        keys = (event.routing_key, *address.copies)
        _publish_by(publishing, part, keys, address.headers if heeds_headers else ())


def _names_unknown_queues(publishing: Publishing, event: Publish) -> bool:
    """Whether a key names a queue that may have been declared elsewhere a moment ago. Only the keys of the default
    exchange can: this node has applied all bindings."""
    if event.exchange != DEFAULT or publishing.answers.knows_queues is not None:
        return False
    copies = (key for _start, _run, address in addressing.stretches(event.run) for key in address.copies)
    return any(name not in publishing.vhost.queues for name in (event.routing_key, *copies))


def _delivered(run: MessageRun, address: Address) -> MessageRun:
    return addressing.without_blind_copies(run) if address.has_blind_copies else run


def _publish_by(publishing: Publishing, event: Publish, keys: tuple[str, ...], headers: Arguments) -> None:
    reached: list[Queue] = []
    is_sure = event.exchange != DEFAULT or publishing.answers.knows_queues is not False
    is_short = False
    for name in publishing.vhost.exchanges.table.route(event.exchange, keys, headers):
        queue = publishing.vhost.queues.get(name)
        if queue is not None and publishing.can_publish_to(queue):
            reached.append(queue)
        elif queue is not None and not queue.record.ends_with_its_node:
            is_short = True  # the queue comes back without the run
    if reached:
        publishing.publish_to(reached, event)
    if is_short or not reached:
        publishing.unroutable(event, is_sure=not reached and (event.mandatory or (is_sure and not is_short)))
