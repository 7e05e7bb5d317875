"""Where dead letters go: the worker of a node, for the queues it leads.

A dead letter is published again like any message: to the exchange of ``x-dead-letter-exchange``, under
``x-dead-letter-routing-key`` or its own routing key, with its history in the headers (:mod:`~reference_broker.amqp.
death`). Only the default exchange exists here, which routes to the queue named by the key; letters for another one are
dropped, counted, and logged once a queue.

*At most once*: published without waiting for anything, by the leader of the term in which they died (see
:meth:`reference_broker.queues.quorum.QuorumQueue.apply`). What is lost when the leader dies in between is lost.

*At least once*: each queue has a *mailer*, which publishes under an identity of its own and so hears when its letters
are committed; then it tells the queue, which forgets them. What has nowhere to go, or is refused by a full queue, is
tried again every ``dead_letter_retry_ms``, and stays in its queue meanwhile. A mailer ends with the leadership. A new
leader is told all open letters again by its machine, so a letter that was under way may arrive twice, and none is lost.

A letter that comes round to a queue it was in before without a consumer having rejected it is dropped, as RabbitMQ does
it: nobody would ever stop it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reference_broker.amqp.death import Death, dead_letter, is_cycle
from reference_broker.amqp.frames import short_string
from reference_broker.machines.commands import ChannelDown, DeadLetterSettled, Enqueue, IdRange
from reference_broker.machines.effects import DeadLetter
from reference_broker.machines.metadata import Policy, QueueRecord, with_policy
from reference_broker.message_run import MessageRun
from reference_broker.node.proposals import Priority
from reference_broker.queues.quorum import Letter, Piece, command_size
from reference_broker.queues.session import PublishSession
from reference_broker.types import ChannelId, ConsumerId, GroupId

if TYPE_CHECKING:
    from reference_broker.node.shard import Shard

log = logging.getLogger(__name__)

OUTCOMES: Final = ("routed", "no_route", "cycle")
"""What may become of a letter; at least once, the same one may be counted again for each try."""
_SMALL: Final = 64
_UNTRACKED: Final = 0
_EVERYTHING: Final = 2**63


@dataclass(frozen=True, slots=True)
class Address:
    """Where the dead letters of a queue go. ``exchange`` is None if the policy that gave one was taken back after they
    died: then nowhere, for the default exchange would bring them back to where they were published."""

    exchange: str | None
    routing_key: str | None

    @classmethod
    def of(cls, record: QueueRecord, policies: Iterable[Policy]) -> Address:
        """As the queue was declared, or as a policy says now."""
        arguments = dict(with_policy(record, policies).arguments)
        key = arguments.get("x-dead-letter-routing-key")
        exchange = arguments.get("x-dead-letter-exchange")
        return cls(None if exchange is None else str(exchange), None if key is None else str(key))

    def key_for(self, published_key: str) -> str:
        """The routing key of a letter that was published under ``published_key``."""
        return published_key if self.routing_key is None else self.routing_key

    @property
    def is_default(self) -> bool:
        """Whether it is the default exchange, which knows queues by their names: no other is there."""
        return self.exchange == ""


class DeadLetters:
    """Routes the dead letters of all queues that this node leads. ``counts`` has those of each of ``OUTCOMES``."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._mailers: dict[GroupId, Mailer] = {}
        self._complained: set[GroupId] = set()
        self.counts: Counter[str] = Counter()

    @property
    def at_work(self) -> Collection[GroupId]:
        """The queues with letters that are sent at least once by this node."""
        return self._mailers.keys()

    def route(self, record: QueueRecord, letters: DeadLetter, contents: list[Letter]) -> None:
        """Send dead letters of a queue on their way."""
        reason, time_s = letters.reason.name.lower(), self._shard.now_ms() // 1000
        dead = [_dead(record.name, reason, time_s, letter) for letter in contents]
        if not letters.first_id:
            self._send_untracked(record, self.address(record), dead)
            return
        mailer = self._mailers.get(record.group)
        if mailer is None:
            mailer = self._mailers[record.group] = Mailer(self._shard, record, self)
        mailer.take(letters.first_id, dead)

    def address(self, record: QueueRecord) -> Address:
        """Where the queue's letters go at this moment: a policy may change it at any time."""
        return Address.of(record, self._shard.metadata.machine.policies.values())

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone: its letters with it."""
        self._complained.discard(record.group)
        for mailer in self._mailers.values():
            mailer.queue_removed(record)
        self.lead_lost(record.group)

    def lead_lost(self, group: GroupId) -> None:
        """This node does not lead the queue any more: whoever does is told of all its letters."""
        if (mailer := self._mailers.pop(group, None)) is not None:
            mailer.close()

    def no_route(self, record: QueueRecord, key: str, count: int, what_then: str) -> None:
        """Count letters that have nowhere to go; the first time, say so."""
        self.counts["no_route"] += count
        if record.group not in self._complained:
            self._complained.add(record.group)
            exchange = self.address(record).exchange
            text = "queue %r: dead letters for exchange %r, key %r have no route and are %s"
            log.warning(text, record.name, exchange, key, what_then)

    def _send_untracked(self, record: QueueRecord, address: Address, dead: list[tuple[str, bytes]]) -> None:
        for key, contents in _by_key(address, dead):
            target = self._shard.queues.get(key) if address.is_default else None
            if target is None:
                self.no_route(record, key, len(contents), "dropped")
                continue
            wanted = [content for content in contents if not is_cycle_of(content, key, address, self)]
            for batch in _batches(wanted, self._shard.limits.batch_bytes_max):
                run = MessageRun.of(_route(address, key), batch)
                command = Enqueue(ChannelId(self._shard.node, self._shard.boot_id, 0, 0), _UNTRACKED, run)
                target.runner.propose(command, command_size(command))
            self.counts["routed"] += len(wanted)


class Mailer:
    """Sends the dead letters of one queue, at least once (:class:`reference_broker.node.local_clients.Connection`)."""

    def __init__(self, shard: Shard, record: QueueRecord, owner: DeadLetters) -> None:
        self._shard = shard
        self._record = record
        self._owner = owner
        self._channel = shard.new_channel(self, 1)
        self._sessions: dict[GroupId, PublishSession] = {}
        self._open: dict[int, tuple[str, bytes]] = {}
        """Letters by their id, until they are confirmed: the routing key they were published with, and the content."""
        self._unsent: list[int] = []
        self._timer_runs = False
        self._closed = False

    def take(self, first_id: int, dead: list[tuple[str, bytes]]) -> None:
        """Letters with the ids ``first_id``, +1, ...; those that are under way already are left alone."""
        new = {first_id + at: letter for at, letter in enumerate(dead) if first_id + at not in self._open}
        self._open.update(new)
        self._send(list(new))

    def close(self, text: str = "") -> None:
        """The queue is gone or led elsewhere, or the node stops. What was published may still arrive; its channel ends
        behind it, so that no target keeps a place for it."""
        self._closed = True
        for group in self._sessions:
            self._propose(group, ChannelDown(self._channel), Priority.LOW)
        self._shard.forget_channel(self._channel)
        self._sessions.clear()
        self._open.clear()
        self._unsent.clear()

    def committed(self, channel: int, group: GroupId, last: int) -> bool:
        """Letters have arrived: their queue may forget them."""
        if (session := self._sessions.get(group)) is not None:
            self._settle(session.committed(last))
        return False

    def rejected(self, channel: int, group: GroupId, first: int, last: int) -> None:
        """Letters were refused by a full queue: try again later."""
        self.committed(channel, group, first - 1)
        if (session := self._sessions.get(group)) is not None:
            for first_id, last_id in session.committed(last):
                self._later(list(range(first_id, last_id + 1)))

    def queue_removed(self, record: QueueRecord) -> None:
        """A target is gone, with what was on its way there: that has to go elsewhere."""
        if (session := self._sessions.pop(record.group, None)) is not None:
            for first_id, last_id in session.committed(_EVERYTHING):
                self._later(list(range(first_id, last_id + 1)))

    def _send(self, ids: list[int]) -> None:
        """Publish letters; neighbours for one queue as one run, of no more octets than a batch of commands."""
        address = self._owner.address(self._record)
        run: list[int] = []
        run_key, octets = "", 0
        for number in ids:
            published_key, content = self._open[number]
            key = address.key_for(published_key)
            if is_cycle_of(content, key, address, self._owner):
                self._settle([(number, number)])
                continue
            is_full = octets + len(content) > self._shard.limits.batch_bytes_max
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
        target = self._shard.queues.get(key) if address.is_default else None
        if target is None:
            self._owner.no_route(self._record, key, len(ids), "kept until there is one")
            self._later(ids)
            return
        session = self._sessions.get(target.record.group)
        if session is None:
            session = self._sessions[target.record.group] = PublishSession(self._channel)
        run = MessageRun.of(_route(address, key), [self._open[number][1] for number in ids])
        command = session.enqueue(run, ids[0])  # what the session confirms are the letters' ids
        target.runner.propose(command, command_size(command))
        self._owner.counts["routed"] += len(ids)

    def _settle(self, ranges: list[IdRange]) -> None:
        settled = [(first, last) for first, last in ranges if last in self._open]
        for first, last in settled:
            for number in range(first, last + 1):
                self._open.pop(number, None)
        if settled:
            self._propose(self._record.group, DeadLetterSettled(tuple(settled)), Priority.NORMAL)

    def _later(self, ids: list[int]) -> None:
        self._unsent += ids
        if not self._timer_runs:
            self._timer_runs = True
            self._shard.later(self._shard.limits.dead_letter_retry_ms / 1000, self._again)

    def _again(self) -> None:
        self._timer_runs = False
        unsent, self._unsent = self._unsent, []
        if not self._closed:
            self._send(sorted(number for number in unsent if number in self._open))

    def _propose(self, group: GroupId, command: ChannelDown | DeadLetterSettled, priority: Priority) -> None:
        if (runner := self._shard.proposer(group)) is not None:
            runner.propose(command, _SMALL, priority)

    # What else a connection is asked for: nothing is delivered to a mailer, and it has no socket.

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int
    ) -> None:
        """Mailers do not consume."""

    def replied(self, correlation: int, value: int) -> None:
        """Nor do they ask."""

    def flush(self) -> None:
        """Nothing to write."""

    def stood_still(self) -> None:
        """Letters are published as often as it takes."""

    def tick(self) -> None:
        """No heartbeats."""


def is_cycle_of(content: bytes, key: str, address: Address, owner: DeadLetters) -> bool:
    """Whether the letter goes round for ever; then it is counted."""
    cycle = address.is_default and is_cycle(content, key)
    owner.counts["cycle"] += cycle
    return cycle


def _dead(source: str, reason: str, time_s: int, letter: Letter) -> tuple[str, bytes]:
    """The routing key a letter was published with, and its content with the story of its death."""
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
    """The contents in lists of at most so many octets, or of one."""
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
