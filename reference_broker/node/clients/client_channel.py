"""A channel of a client's connection: the client's requests to queues, and the results of queues for the client.

Publishes and acknowledgements go straight to the queue (:class:`~reference_broker.queues.port.Queue`). A request that
needs an answer from the log or from another node (declare, delete, purge, consume, cancel, get) makes the channel
*busy*: the core leaves later frames of the channel unread. So a client that does not wait for its answers still gets
them in order. A deleted queue no longer answers, so the channel answers open requests itself when the queue goes.

Invariant: a busy channel waits for one :class:`Awaited`, and ignores answers to any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from reference_broker.amqp.confirms import SeqRange
from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import (
    BindingChange,
    Cancel,
    Consume,
    Event,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeEvent,
    Get,
    GlobalQos,
    Publish,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    Recovered,
    Settled,
    TxSelect,
)
from reference_broker.amqp.fan_out import FanOut
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.message_run import RunSlice, without_first
from reference_broker.node.clients import (
    behind,
    channel_limit,
    exchange_requests,
    queue_requests,
    reply_to,
    routed_publishes,
    transactions,
)
from reference_broker.node.clients import moved_owner as failover
from reference_broker.node.clients.authorization import Handler
from reference_broker.node.clients.channel_state import Awaited, Patience
from reference_broker.node.clients.client_ports import ClientPorts, ConnectionPorts
from reference_broker.node.clients.gets import Gets
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.declaration import DeclarationError
from reference_broker.node.hosting.local_clients import NodeConnection
from reference_broker.queues.port import Queue
from reference_broker.queues.session import NOTHING_MISSED, NOTHING_YET, ConsumeSession, PublishSession
from reference_broker.types import COPIES, GET_TAG, IN_EXCLUSIVE_USE, NOBODY, ConsumerId, GroupId, IdRange, Outcome

_EVERYTHING: Final = 2**63
T = TypeVar("T")


class ClientChannel:
    """One channel, from its first request to its end
    (:class:`~reference_broker.node.hosting.local_clients.LocalChannel`)."""

    __slots__ = (
        "_credit_owed", "_fan_out", "_gets", "_handlers", "_last_correlation", "_number", "_queues", "_queues_known",
        "_repeated", "_sessions", "awaited", "connection", "consumers", "core", "handlers", "id", "is_gone",
        "limit", "node", "patience", "ports", "replies", "transaction", "unawaited", "vhost", "waiting",
    )  # fmt: skip

    def __init__(self, connection: ConnectionPorts, node: ClientPorts, number: int) -> None:
        self.connection: NodeConnection | None = connection
        self.ports = connection
        self.vhost = connection.virtual_host
        self.core = connection.core
        self.node = node
        self._number = number
        self.id = node.clients.new_channel(self, number)
        self.consumers: dict[str, ConsumeSession] = {}
        self.unawaited: dict[int, Callable[[int], None]] = {}
        """The questions to queues that no client waits for, and who gets the answer."""
        self.limit: channel_limit.ChannelLimit | None = None
        self.replies = reply_to.Replies(self.consumers)
        self.transaction: transactions.Transaction | None = None
        """Not None while the channel is in tx mode."""
        self._handlers: Mapping[type, Handler] = HANDLERS
        self.handlers: Mapping[type, Handler] = connection.guarded(HANDLERS)
        self.awaited: Awaited | None = None
        """Not None while the channel is busy."""
        self.patience = Patience()
        self.waiting: deque[Event | transactions.HandOut] = deque()
        """Publishes and settles that wait behind a publish to an unknown queue."""
        self.is_gone = False
        """The channel has ended, and stays until the waiting events are handled."""
        self._queues: dict[GroupId, Queue] = {}
        """The queues that the channel has used, which must hear of its end."""
        self._sessions: dict[GroupId, PublishSession] = {}
        self._fan_out = FanOut()
        self._gets = Gets()
        self._credit_owed: list[tuple[ConsumeSession, IdRange]] = []
        self._repeated: Event | None = None
        """The last request that was repeated because its queue was unknown."""
        self._queues_known: bool | None = None
        """While waiting events are handled: whether this node knows every queue that existed when they came."""
        self._last_correlation = 0

    # Results of queues

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Deliver messages of a queue to a consumer. Drops messages that the consumer had before, and messages of a
        queue that its tag no longer subscribes to: the tag's former consumer holds these."""
        if consumer.tag == GET_TAG:
            self._gets.deliver(self, group, first_message_id, slices, delivery_count)
            return
        known = self.consumers.get(consumer.tag)
        if known is None or known.group != group:
            return
        count = sum(each[2] for each in slices)
        first, last = first_message_id, first_message_id + count - 1
        if last < known.next_message_id:
            return
        if first < known.next_message_id:
            slices = without_first(slices, known.next_message_id - first)
            first = known.next_message_id
        known.next_message_id = last + 1
        known.held += last - first + 1
        if not self.core.deliver(self._number, consumer.tag, first, slices, delivery_count):
            self.settle(known, Outcome.RETURN, ((first, last),))
        elif known.no_ack:
            if self.ports.is_writable:
                self.settle(known, Outcome.SETTLE, ((first, last),))
            else:
                self._credit_owed.append((known, (first, last)))

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        """Whether the client reads. If not, the consumer misses the messages up to id ``last`` for now
        (:mod:`~reference_broker.node.clients.behind`)."""
        known = self.consumers.get(consumer.tag)
        if known is None or known.group != group:
            return True
        if known.missed_up_to == NOTHING_MISSED and not self.ports.is_unread_full:
            return True
        self.missed(group, consumer, last)
        return False

    def missed(self, group: GroupId, consumer: ConsumerId, last: int) -> None:
        """The consumer gets no messages up to id ``last`` for now, nor those behind them."""
        known = self.consumers.get(consumer.tag)
        if known is not None and known.group == group:
            known.missed_up_to = max(known.missed_up_to, last)
            self.ports.fell_behind(self._number)

    def committed(self, group: GroupId, last: int) -> bool:
        """Confirm committed enqueues."""
        session = self._sessions.get(group)
        if session is None:
            return False
        confirmed = self._resolved(session, last)
        if self._fan_out.open:
            confirmed = self._fan_out.confirmed(confirmed)
        for first_seq, last_seq in confirmed:
            self.core.confirm(self._number, first_seq, last_seq)
        return bool(confirmed)

    def rejected(self, group: GroupId, first: int, last: int) -> None:
        """Reject refused enqueues, and confirm the enqueues before them."""
        self.committed(group, first - 1)
        session = self._sessions.get(group)
        if session is None:
            return
        self._reject(self._resolved(session, last))

    def replied(self, correlation: int, value: int) -> None:
        """A command was applied."""
        awaited = self.awaited
        if (answered := self.unawaited.pop(correlation, None)) is not None:
            answered(value)
        elif awaited is not None and awaited.answered is not None and awaited.correlation == correlation:
            self.awaited = None
            awaited.answered(value)
            self._resume()

    def uses(self, group: GroupId) -> bool:
        """Whether the channel publishes to a queue, consumes from it, or waits for an answer about it."""
        return (
            group in self._sessions
            or group in self._queues
            or (self.awaited is not None and self.awaited.group == group)
            or any(consumer.group == group for consumer in self.consumers.values())
        )

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone: cancel its consumers, and answer open publishes and requests."""
        group = record.group
        session = self._sessions.pop(group, None)
        if session is not None and (unanswered := self._resolved(session, _EVERYTHING)):
            self._answer_for(record.short_name, unanswered)
        self._stop_awaiting(group)
        self._cancel_consumers(group)
        self._queues.pop(group, None)
        self._resume()

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the node that has the queue broke, and that node has ended the channel there; or another node has
        the queue now. Open publishes are refused, because nobody here can know what became of them. Consumers are
        cancelled, or go on at the queue's next owner."""
        group = record.group
        session = self._sessions.pop(group, None)
        if session is not None:
            self._reject(self._resolved(session, _EVERYTHING))
        queue = self._queues.pop(group, None)
        awaited = self.awaited
        if not record.mirrors:
            self._cancel_consumers(group)
        elif queue is not None and failover.go_on(self, self.core, self._number, queue):
            self._queues[group] = queue
        if awaited is not None and awaited.group == group and awaited.again is not None and record.mirrors:
            self.awaited = None
            awaited.again()
        elif awaited is not None and awaited.group == group and awaited.queue_gone is not None:
            self.awaited = None
            self.refuse(ReplyCode.NOT_FOUND, declaration.home_down(record, self.node.home_node_down(record) or "?"), "")
        self._resume()

    def _cancel_consumers(self, group: GroupId) -> None:
        for tag, consumer in list(self.consumers.items()):
            if consumer.group == group:
                del self.consumers[tag]
                self.core.set_apart(self._number, tag)  # its messages are not this channel's any more
                if not consumer.is_cancelled:  # else the client knows its end, and may reuse the tag
                    self.core.cancelled_by_broker(self._number, tag)

    def _resolved(self, session: PublishSession, last: int) -> list[IdRange]:
        """The confirm ranges of enqueues answered up to ``last``, which no longer count against the limits."""
        octets, waiting = session.unconfirmed_bytes, len(session.waiting)
        resolved = session.committed(last)
        self.ports.unconfirmed_bytes += session.unconfirmed_bytes - octets
        self.ports.unconfirmed_commands += len(session.waiting) - waiting
        return resolved

    def _answer_for(self, name: str, unanswered: list[IdRange]) -> None:
        """Answer the open publishes to a queue that is gone. They are confirmed, as in RabbitMQ: the messages went with
        the queue. If there is a new queue of that name, they may have come after its creation, and are refused."""

        def current(found: bool) -> None:
            if self.is_open:
                if not (found and name not in self.vhost.queues):
                    self._reject(unanswered)
                else:
                    for first_seq, last_seq in self._fan_out.confirmed(unanswered):
                        self.core.confirm(self._number, first_seq, last_seq)
            self.ports.touch()

        self.node.when_queues_current(current)

    def _reject(self, ranges: list[SeqRange]) -> None:
        """Refuse publishes, whatever other queues will say of them."""
        self._fan_out.rejected(ranges)
        for first_seq, last_seq in ranges:
            self.core.reject(self._number, first_seq, last_seq)

    # Publishing and settling

    def _publish(self, event: Publish) -> None:
        if event.exchange or event.ttl_ms == COPIES:
            routed_publishes.publish(self, event)
            return
        queue = self.vhost.queues.get(event.routing_key)
        if queue is None:
            if self._queues_known is None:
                self.publish_when_current(event)
            else:
                self.unroutable(event, is_sure=self._queues_known)
            return
        group = queue.record.group
        session = self._sessions.get(group)
        if session is None:
            session = self._new_session(queue)
            if session is None:
                # As in RabbitMQ, but what nobody hears of is not confirmed if the queue comes back.
                self.unroutable(event, is_sure=event.mandatory or queue.record.ends_with_its_node)
                return
        ports = self.ports
        ports.unconfirmed_commands += queue.publish(session, event.run, event.first_seq, event.ttl_ms, ports.read_ns)
        ports.unconfirmed_bytes += len(event.run.data)
        if self.node.alarms.reason:
            ports.published()

    def _new_session(self, queue: Queue) -> PublishSession | None:
        """A session for publishes to the queue; None if the only node that has the queue is out of reach."""
        if self.node.home_node_down(queue.record) is not None:
            return None
        group = queue.record.group
        self._queues[group] = queue
        session = self._sessions[group] = PublishSession(self.id)
        return session

    @property
    def is_open(self) -> bool:
        """Whether the channel has not ended."""
        return self.ports.channels.get(self._number) is self

    def handle(self, event: Event | transactions.HandOut) -> None:
        """Handle an event now, or behind those that wait."""
        if self.awaited is None:
            self.handlers[type(event)](self, event)
        else:
            self.waiting.append(event)

    def keep_back(self, keeps: bool) -> None:
        """Give publishes and acknowledgements to the transaction from now on, or to their queues."""
        self._handlers = TX_HANDLERS if keeps else HANDLERS
        self.guard()

    def guard(self) -> None:
        """Have the guard of the connection look at events before their handlers."""
        handlers = self._handlers if self.limit is None else self.limit.around(self._handlers)
        self.handlers = self.ports.guarded(handlers)

    @property
    def knows_queues(self) -> bool | None:
        """Whether this node knows every queue and exchange that existed when the event came; None: nobody has asked."""
        return self._queues_known

    def can_publish_to(self, queue: Queue) -> bool:
        """Whether the queue can be reached."""
        return queue.record.group in self._sessions or self._new_session(queue) is not None

    def publish_to(self, queues: list[Queue], event: Publish) -> None:
        """Publish a run to queues that can be reached. The client gets its confirm when all have the run."""
        if event.first_seq and len(queues) > 1:
            self._fan_out.expect(event.first_seq, event.first_seq + event.run.count - 1, len(queues))
        ports, run = self.ports, event.run
        for queue in queues:
            session = self._sessions[queue.record.group]
            ports.unconfirmed_commands += queue.publish(session, run, event.first_seq, event.ttl_ms, ports.read_ns)
            ports.unconfirmed_bytes += len(run.data)
        ports.published()

    def refuse_publish(self, event: Publish, code: int, text: str) -> None:
        """Close the channel for a publish that is not allowed. As in RabbitMQ, what came behind it is dropped."""
        self.waiting.clear()
        if self.is_gone:
            self.end()
        else:
            self.refuse(code, text, "basic.publish")

    def unroutable(self, event: Publish, *, is_sure: bool) -> None:
        """Answer publishes to a queue that does not exist. If that is not sure, refuse them: they may not be safe."""
        last_seq = event.first_seq + event.run.count - 1
        if self.is_gone:
            return
        if not is_sure:
            self.core.reject(event.channel, event.first_seq, last_seq)
            return
        if event.mandatory:
            code = ReplyCode.NO_ROUTE
            self.core.returned(event.channel, code, code.name, event.exchange, event.routing_key, event.run)
        if event.first_seq:
            self.core.confirm(event.channel, event.first_seq, last_seq)

    def _settled(self, event: Settled) -> None:
        if (consumer := self.consumers.get(event.consumer_tag)) is not None:
            self.settle(consumer, event.outcome, event.ranges, self.ports.read_ns)

    def settle(self, consumer: ConsumeSession, outcome: Outcome, ranges: tuple[IdRange, ...], read_ns: int = 0) -> None:
        """Tell the queue the outcome of messages that the consumer held."""
        self._queues[consumer.group].settle(consumer, outcome, ranges, read_ns)
        if consumer.is_cancelled:
            self._forget_if_done(consumer)

    def tick(self) -> int:
        """How many ticks the channel has waited for the same queue's leader, or for the same answer."""
        return self.patience.tick(self._leaderless() or self.awaited)

    def _leaderless(self) -> Queue | None:
        """A queue whose leader is out of reach, although the channel has consumers or open publishes there."""
        lost = (queue for queue in self._queues.values() if queue.proposer.leader == NOBODY)
        return next((queue for queue in lost if self._waits_on(queue.record.group)), None)

    def _waits_on(self, group: GroupId) -> bool:
        session = self._sessions.get(group)
        is_open = session is not None and len(session.waiting) > 0
        return is_open or any(consumer.group == group for consumer in self.consumers.values())

    def catch_up(self) -> None:
        """The client reads again: get what consumers have missed."""
        behind.catch_up(self)

    def pay_credit(self) -> None:
        """The client reads again: give consumers without acknowledgement their credit back."""
        owed, self._credit_owed = self._credit_owed, []
        for consumer, ids in owed:
            if consumer.group in self._queues:
                self.settle(consumer, Outcome.SETTLE, (ids,))

    def end(self) -> list[Queue]:
        """End the channel: tell every queue that it has used. Returns the auto-delete queues that lose consumers."""
        if self.is_open:
            del self.ports.channels[self._number]
        if self.waiting:  # its publishes go to their queues first
            self.is_gone = True
            return []
        self.awaited = None  # later answers are ignored
        for session in self._sessions.values():
            self._resolved(session, _EVERYTHING)
        for queue in self._queues.values():
            queue.channel_closed(self.id)
        self.node.clients.forget_channel(self.id)
        consumed = {consumer.group for consumer in self.consumers.values()}
        return [queue for group, queue in self._queues.items() if group in consumed and queue.record.auto_delete]

    # Queues

    def declare(self, event: QueueDeclare) -> None:
        """queue.declare."""
        queue_requests.declare(self, event)

    def again(self, event: Event) -> None:
        """Handle a request once more."""
        HANDLERS[type(event)](self, event)

    # Consuming

    def consume(self, event: Consume) -> None:
        """basic.consume."""
        queue = self.queue_or_error(event, "basic.consume")
        if queue is None:
            return
        try:
            priority = declaration.consumer_priority(event, queue)
        except DeclarationError as refused:
            self.refuse(refused.code, refused.text, "basic.consume")
            return
        known = self.consumers.get(event.consumer_tag)
        if known is not None and known.group != queue.record.group:
            self.set_apart(event.consumer_tag)
            known = None
        if known is None:
            identity = ConsumerId(self.id, event.consumer_tag)
            known = self.consumers[event.consumer_tag] = ConsumeSession(identity, queue.record.group, event.no_ack)
            known.next_message_id = NOTHING_YET
        known.no_ack, known.is_cancelled, known.is_exclusive = event.no_ack, False, event.exclusive
        known.credit, known.priority = event.prefetch or self.node.limits.credit_default, priority
        known.cancels_on_failover = bool(event.arguments.get("x-cancel-on-ha-failover"))

        def consuming(next_message_id: int) -> None:
            if next_message_id == IN_EXCLUSIVE_USE:
                text = f"{self.vhost.queue_called(event.queue)} in exclusive use"
                self.refuse(ReplyCode.ACCESS_REFUSED, text, "basic.consume")
                return
            if known.next_message_id == NOTHING_YET or next_message_id > known.next_message_id:
                known.next_message_id = next_message_id  # else a late reply, which names a message that is held already
            if queue.record.auto_delete:
                self.core.close_late(self._number)
            if not event.nowait:
                self.core.consume_ok(self._number, event.consumer_tag)

        queue.subscribe(known, priority, self.request(queue, consuming, event, "basic.consume"))

    def _cancel(self, event: Cancel) -> None:
        consumer = self.consumers.get(event.consumer_tag)
        if consumer is None:
            self.core.cancel_ok(self._number, event.consumer_tag)
            return
        queue = self._queues[consumer.group]

        def gone() -> None:
            behind.give_back(self, consumer)
            consumer.is_cancelled = True
            self._forget_if_done(consumer)
            if not event.nowait:
                self.core.cancel_ok(self._number, event.consumer_tag)

        def cancelled(_value: int) -> None:
            if queue.record.auto_delete:  # and maybe deleted: whoever hears of the end may use the name at once
                queue_requests.count(self, queue, lambda _counts: gone())
            else:
                gone()

        queue.unsubscribe(consumer, self._ask(queue, cancelled, gone, gone))

    def _forget_if_done(self, consumer: ConsumeSession) -> None:
        """Forget a cancelled consumer when it holds no messages."""
        if not consumer.held:
            for tag in [tag for tag, each in self.consumers.items() if each is consumer]:
                del self.consumers[tag]

    def set_apart(self, tag: str) -> None:
        """Free a tag for another queue. The tag's former consumer gets no more messages, and settles those it holds."""
        former = self.consumers.pop(tag)
        former.is_cancelled = True
        name = self.core.set_apart(self._number, tag)
        if former.held:
            self.consumers[name] = former

    def _get(self, event: Get) -> None:
        queue = self.queue_or_error(event, "basic.get")
        if queue is None:
            return
        try:
            declaration.check_get(queue)
        except DeclarationError as refused:
            self.refuse(refused.code, refused.text, "basic.get")
            return
        self._gets.ask(self, self.core, queue, event)

    def queue_in_use(self, group: GroupId) -> Queue:
        """A queue that the channel has used."""
        return self._queues[group]

    # Exchanges

    def exchange_done(self, event: ExchangeEvent) -> None:
        """Answer a request about exchanges, unless the client wants no answer."""
        if not event.nowait:
            self.core.exchange_ok(self._number, event.method)

    def refuses_binding_to(self, name: str, method: str) -> bool:
        """Refuse a queue that another connection owns, or whose only node is out of reach."""
        queue = self.vhost.queues.get(name)
        return queue is not None and self.refuses_access(queue, method)

    def until(self, answered: Callable[[T], None]) -> Callable[[T], None]:
        """Make the channel busy until the returned function is called, which calls ``answered`` if the channel is still
        there."""
        awaited = self._await()

        def come(value: T) -> None:
            if self._has_come(awaited):
                answered(value)
                self._resume()

        return come

    # Queues that are not known here

    def queue_or_error(self, event: QueuePurge | Consume | Get, method: str) -> Queue | None:
        """The queue that a request names, if the client may use it now. If not, the request is refused or waits."""
        queue = self.vhost.queues.get(event.queue)
        if queue is None and not self.repeats_when_current(event):
            self._refuse_missing(event, method)
        if queue is not None and self.refuses_access(queue, method):
            return None
        return queue

    def refuses_access(self, queue: Queue, method: str) -> bool:
        """Refuse a request to a queue whose only node is out of reach, or that is another connection's."""
        if self.refuses_down(queue, method):
            return True
        try:
            declaration.check_access(queue.record, self.asker)
        except DeclarationError as refused:
            self.refuse(refused.code, refused.text, method)
            return True
        return False

    def refuses_down(self, queue: Queue, method: str) -> bool:
        """Refuse a queue whose only node is out of reach."""
        if (home := self.node.home_node_down(queue.record)) is None:
            return False
        self.refuse(ReplyCode.NOT_FOUND, declaration.home_down(queue.record, home), method)
        return True

    @property
    def asker(self) -> declaration.Asker:
        """Whose exclusive queues the channel may use."""
        return self.id.node, self.id.boot_id, self.ports.number

    def _refuse_missing(self, event: QueuePurge | Consume | Get, method: str) -> None:
        self.refuse(ReplyCode.NOT_FOUND, f"no {self.vhost.queue_called(event.queue)}", method)

    def repeats_when_current(self, event: Event) -> bool:
        """Repeat a request for an unknown queue once this node knows all earlier declares: another node may have
        declared the queue a moment ago. False if the request was already repeated."""
        if self._repeated is event:
            return False
        self._repeated = event
        awaited = self._await()

        def current(_found: bool) -> None:
            if self._has_come(awaited):
                self.handlers[type(event)](self, event)
                self._resume()

        self.node.when_queues_current(current)
        return True

    def publish_when_current(self, event: Publish) -> None:
        """Repeat a publish in the same way. One question serves all events that wait behind the publish."""
        awaited = self._await()
        self.waiting.append(event)

        def current(found: bool) -> None:
            if self._has_come(awaited):
                self._queues_known = found
                while self.waiting:
                    waiting = self.waiting.popleft()
                    self.handlers[type(waiting)](self, waiting)
                self._queues_known = None
                if self.is_gone:
                    self.end()
                self._resume()

        self.node.when_queues_current(current)

    # Waiting for answers

    def next_correlation(self) -> int:
        """A number for one question to a queue."""
        self._last_correlation += 1
        return self._last_correlation

    def _ask(
        self, queue: Queue, answered: Callable[[int], None], queue_gone: Callable[[], None], again: Callable[[], None]
    ) -> int:
        """Make the channel busy until the queue has applied the command with the returned correlation, or is gone. The
        queue will hear of the channel's end."""
        self._queues[queue.record.group] = queue
        correlation = self.next_correlation()
        self._await(Awaited(queue.record.group, correlation, answered, queue_gone, again))
        return correlation

    def request(self, queue: Queue, answered: Callable[[int], None], event: Consume | Get | QueuePurge, by: str) -> int:
        """The same for a client's request, ``by`` this method. The request is repeated if the queue gets another
        owner."""
        again = partial(HANDLERS[type(event)], self, event)
        return self._ask(queue, answered, partial(self._refuse_missing, event, by), again)

    def _await(self, awaited: Awaited | None = None) -> Awaited:
        """Leave the channel's later frames unread until the answer comes."""
        self.awaited = awaited or Awaited()
        self.core.hold(self._number)
        return self.awaited

    def _has_come(self, awaited: Awaited) -> bool:
        """Whether the channel still waits for this answer. If so, it stops waiting."""
        if self.awaited is not awaited:
            return False
        self.awaited = None
        return True

    def _stop_awaiting(self, group: GroupId) -> None:
        """The queue of the group is gone: answer the client if the channel waits for this queue."""
        awaited = self.awaited
        if awaited is not None and awaited.group == group and awaited.queue_gone is not None:
            self.awaited = None
            awaited.queue_gone()

    def _resume(self) -> None:
        """Read the waiting frames, unless the channel waits for another answer."""
        if self.awaited is None and not self.is_gone:
            self.core.release(self._number)
        self.ports.read_on()
        self.ports.touch()

    def refuse(self, code: int, text: str, method: str) -> None:
        """Close the channel with an exception."""
        self.ports.handle(self.core.channel_error(self._number, code, text, method))
        self.ports.read_on()
        self.ports.touch()


HANDLERS: Final[dict[type, Handler]] = {
    Publish: ClientChannel._publish,
    Settled: ClientChannel._settled,
    QueueDeclare: reply_to.declare,
    QueueDelete: queue_requests.delete,
    QueuePurge: queue_requests.purge,
    Consume: channel_limit.consume,
    GlobalQos: channel_limit.set_limit,
    Get: ClientChannel._get,
    Cancel: ClientChannel._cancel,
    ExchangeDeclare: exchange_requests.declare,
    ExchangeDelete: exchange_requests.delete,
    BindingChange: exchange_requests.change_binding,
    Recovered: ClientChannel._settled,
    TxSelect: transactions.select,
    transactions.HandOut: transactions.hand_out_settles,
}
"""The handler of each event of the core."""
TX_HANDLERS: Final = {**HANDLERS, **transactions.HANDLERS}
"""The same for a channel in tx mode."""
