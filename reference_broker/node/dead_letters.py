"""The routing of dead letters: a node's worker for the queues that it leads.

A dead letter is published again like any message: to the exchange of ``x-dead-letter-exchange``, under
``x-dead-letter-routing-key`` or its own routing key, with its history in the headers (:mod:`~reference_broker.amqp.
death`). The broker has only the default exchange, which routes to the queue named by the key. Letters for another
exchange are dropped, counted, and logged once per queue.

*At most once*: the leader of the term in which the messages died publishes them, and waits for nothing (see
:meth:`reference_broker.queues.quorum_member.QuorumMember.apply`). If the leader dies in between, the letters are lost.

*At least once*: each queue has a *mailer*, which publishes under a channel identity of its own. When its letters are
committed, the mailer tells the queue, which forgets them. A letter without a route, or refused by a full queue, stays
in its queue and is tried again every ``dead_letter_retry_ms``. A mailer ends with the leadership. The machine tells a
new leader all open letters again, so a letter may arrive twice, and is never lost.

A letter that comes back to a queue where it was before is dropped, unless a consumer has rejected it in between. This
is RabbitMQ's rule: otherwise the letter would circle for ever.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from reference_broker.amqp.death import Death, dead_letter, is_cycle
from reference_broker.amqp.frames import short_string
from reference_broker.machines.effects import DeadLetter
from reference_broker.machines.metadata import Policy, QueueRecord, with_policy
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.node.config import Limits
from reference_broker.node.local_clients import Connection, LocalClients
from reference_broker.queues.port import DeadMessage, Queue
from reference_broker.queues.session import PublishSession
from reference_broker.types import ConsumerId, GroupId, IdRange

log = logging.getLogger(__name__)

OUTCOMES: Final = ("routed", "no_route", "cycle")
"""The outcomes that are counted. An at-least-once letter is counted at each try."""
_EVERYTHING: Final = 2**63


class DeadLetterPorts(Protocol):
    """The ports of the node for dead letters."""

    limits: Limits
    clients: LocalClients

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The queues that this node knows, by name."""

    def policies(self) -> Collection[Policy]:
        """The policies of the cluster, as this node knows them."""

    def now_ms(self) -> int:
        """The wall clock."""

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a while."""


@dataclass(frozen=True, slots=True)
class Address:
    """The target of a queue's dead letters. ``exchange`` is None if a policy set the exchange and was cleared after the
    messages died: such letters have no route, because the default exchange would return them to their queue."""

    exchange: str | None
    routing_key: str | None

    @classmethod
    def of(cls, record: QueueRecord, policies: Iterable[Policy]) -> Address:
        """The target by the queue's declaration and the present policy."""
        arguments = dict(with_policy(record, policies).arguments)
        key = arguments.get("x-dead-letter-routing-key")
        exchange = arguments.get("x-dead-letter-exchange")
        return cls(None if exchange is None else str(exchange), None if key is None else str(key))

    def key_for(self, published_key: str) -> str:
        """The routing key of a letter that was published under ``published_key``."""
        return published_key if self.routing_key is None else self.routing_key

    @property
    def is_default(self) -> bool:
        """Whether the target is the default exchange, the only exchange of this broker."""
        return self.exchange == ""


class DeadLetters:
    """Routes the dead letters of all queues that this node leads. ``counts`` counts letters by ``OUTCOMES``."""

    def __init__(self, node: DeadLetterPorts) -> None:
        self._node = node
        self._mailers: dict[GroupId, Mailer] = {}
        self._warned: set[GroupId] = set()
        self.counts: Counter[str] = Counter()

    @property
    def mailing(self) -> Collection[GroupId]:
        """The queues whose at-least-once letters this node sends."""
        return self._mailers.keys()

    def route(self, queue: Queue, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """Send dead letters of a queue on their way."""
        record = queue.record
        reason, time_s = letters.reason.name.lower(), self._node.now_ms() // 1000
        dead = [_dead(record.name, reason, time_s, letter) for letter in contents]
        if not letters.first_id:
            self._send_untracked(record, self.address(record), dead)
            return
        mailer = self._mailers.get(record.group)
        if mailer is None:
            mailer = self._mailers[record.group] = Mailer(self._node, queue, self)
        mailer.take(letters.first_id, dead)

    def address(self, record: QueueRecord) -> Address:
        """The present target of the queue's letters: a policy may change the target at any time."""
        return Address.of(record, self._node.policies())

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone, as a source of letters and as a target."""
        self._warned.discard(record.group)
        for mailer in self._mailers.values():
            mailer.queue_removed(record)
        self.lead_lost(record.group)

    def lead_lost(self, group: GroupId) -> None:
        """This node no longer leads the queue. The machine tells the new leader all letters."""
        if (mailer := self._mailers.pop(group, None)) is not None:
            mailer.close()

    def no_route(self, record: QueueRecord, key: str, count: int, outcome: str) -> None:
        """Count letters without a route; log the first of each queue."""
        self.counts["no_route"] += count
        if record.group not in self._warned:
            self._warned.add(record.group)
            exchange = self.address(record).exchange
            text = "queue %r: dead letters for exchange %r, key %r have no route and are %s"
            log.warning(text, record.name, exchange, key, outcome)

    def _send_untracked(self, record: QueueRecord, address: Address, dead: list[tuple[str, bytes]]) -> None:
        for key, contents in _by_key(address, dead):
            target = self._node.queues.get(key) if address.is_default else None
            if target is None:
                self.no_route(record, key, len(contents), "dropped")
                continue
            wanted = [content for content in contents if not _is_counted_cycle(content, key, address, self)]
            for batch in _batches(wanted, self._node.limits.batch_bytes_max):
                run = MessageRun.of(_route(address, key), batch)
                target.forward(run)
            self.counts["routed"] += len(wanted)


class Mailer:
    """Sends the dead letters of one queue at least once. For the target queues, the mailer is a channel
    (:class:`~reference_broker.node.local_clients.LocalChannel`)."""

    connection: Connection | None = None

    def __init__(self, node: DeadLetterPorts, queue: Queue, owner: DeadLetters) -> None:
        self._node = node
        self._queue = queue
        self._owner = owner
        self._channel = node.clients.new_channel(self, 1)
        self._targets: dict[GroupId, tuple[Queue, PublishSession]] = {}
        """The target queues of letters, each with a session."""
        self._open: dict[int, tuple[str, bytes]] = {}
        """Unconfirmed letters by id: the routing key of their publish, and the content."""
        self._unsent: list[int] = []
        self._timer_runs = False
        self._closed = False

    def take(self, first_id: int, dead: list[tuple[str, bytes]]) -> None:
        """Send letters with the ids ``first_id``, +1, ... Letters that are already open are skipped."""
        new = {first_id + at: letter for at, letter in enumerate(dead) if first_id + at not in self._open}
        self._open.update(new)
        self._send(list(new))

    def close(self, text: str = "") -> None:
        """End the mailer: the queue is gone or led elsewhere, or the node stops. Published letters may arrive. The
        mailer's channel ends behind them, so that no target remembers the channel."""
        self._closed = True
        for queue, _session in self._targets.values():
            queue.channel_closed(self._channel)
        self._node.clients.forget_channel(self._channel)
        self._targets.clear()
        self._open.clear()
        self._unsent.clear()

    def committed(self, group: GroupId, last: int) -> bool:
        """Letters have arrived: their queue may forget them."""
        if (target := self._targets.get(group)) is not None:
            self._settle(target[1].committed(last))
        return False

    def rejected(self, group: GroupId, first: int, last: int) -> None:
        """Letters were refused by a full queue: try again later."""
        self.committed(group, first - 1)
        if (target := self._targets.get(group)) is not None:
            for first_id, last_id in target[1].committed(last):
                self._retry_later(list(range(first_id, last_id + 1)))

    def queue_removed(self, record: QueueRecord) -> None:
        """A target is gone. Letters on their way there are tried again later."""
        if (target := self._targets.pop(record.group, None)) is not None:
            for first_id, last_id in target[1].committed(_EVERYTHING):
                self._retry_later(list(range(first_id, last_id + 1)))

    def _send(self, ids: list[int]) -> None:
        """Publish letters. Neighbours for one queue go as one run, of at most the octets of a batch of commands."""
        address = self._owner.address(self._queue.record)
        run: list[int] = []
        run_key, octets = "", 0
        for number in ids:
            published_key, content = self._open[number]
            key = address.key_for(published_key)
            if _is_counted_cycle(content, key, address, self._owner):
                self._settle([(number, number)])
                continue
            is_full = octets + len(content) > self._node.limits.batch_bytes_max
            if run and (number != run[-1] + 1 or key != run_key or is_full):
                self._publish(run, address, run_key)
                run, octets = [], 0
            run_key = key
            octets += len(content)
            run.append(number)
        self._publish(run, address, run_key)

    def _publish(self, ids: list[int], address: Address, key: str) -> None:
        if not ids:
            return
        target = self._node.queues.get(key) if address.is_default else None
        if target is None:
            self._owner.no_route(self._queue.record, key, len(ids), "kept until there is one")
            self._retry_later(ids)
            return
        _, session = self._targets.setdefault(target.record.group, (target, PublishSession(self._channel)))
        run = MessageRun.of(_route(address, key), [self._open[number][1] for number in ids])
        target.forward(run, session, ids[0])  # what the session confirms are the letters' ids
        self._owner.counts["routed"] += len(ids)

    def _settle(self, ranges: list[IdRange]) -> None:
        settled = [(first, last) for first, last in ranges if last in self._open]
        for first, last in settled:
            for number in range(first, last + 1):
                self._open.pop(number, None)
        if settled:
            self._queue.dead_letters_settled(tuple(settled))

    def _retry_later(self, ids: list[int]) -> None:
        self._unsent += ids
        if not self._timer_runs:
            self._timer_runs = True
            self._node.later(self._node.limits.dead_letter_retry_ms / 1000, self._retry)

    def _retry(self) -> None:
        self._timer_runs = False
        unsent, self._unsent = self._unsent, []
        if not self._closed:
            self._send(sorted(number for number in unsent if number in self._open))

    # A mailer does not consume and makes no requests.

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Never called: a mailer does not consume."""

    def replied(self, correlation: int, value: int) -> None:
        """Never called: a mailer makes no requests."""


def _is_counted_cycle(content: bytes, key: str, address: Address, owner: DeadLetters) -> bool:
    """Whether the letter circles for ever. Counts such letters."""
    cycle = address.is_default and is_cycle(content, key)
    owner.counts["cycle"] += cycle
    return cycle


def _dead(source: str, reason: str, time_s: int, letter: DeadMessage) -> tuple[str, bytes]:
    """The routing key of the letter's publish, and its content with the death in the headers."""
    route, content = letter
    exchange_octets = route[0]
    exchange = route[1 : 1 + exchange_octets].decode("utf-8", "replace")
    published_key = route[2 + exchange_octets :].decode("utf-8", "replace")
    return published_key, dead_letter(content, Death(source, reason, exchange, published_key, time_s))


def _by_key(address: Address, dead: list[tuple[str, bytes]]) -> list[tuple[str, list[bytes]]]:
    """The contents for each routing key, in order."""
    found: dict[str, list[bytes]] = {}
    for published_key, content in dead:
        found.setdefault(address.key_for(published_key), []).append(content)
    return list(found.items())


def _batches(contents: list[bytes], octets_max: int) -> Iterator[list[bytes]]:
    """The contents in lists of at most ``octets_max`` octets, or of one content."""
    batch: list[bytes] = []
    octets = 0
    for content in contents:
        if batch and octets + len(content) > octets_max:
            yield batch
            batch, octets = [], 0
        batch.append(content)
        octets += len(content)
    if batch:
        yield batch


def _route(address: Address, key: str) -> bytes:
    return short_string(address.exchange or "") + short_string(key)
