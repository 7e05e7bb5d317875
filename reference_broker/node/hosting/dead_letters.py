"""The routing of dead letters: a node's worker for the queues that it leads.

A dead letter is published again like any message: to the exchange of ``x-dead-letter-exchange``, under
``x-dead-letter-routing-key`` or its own routing keys, with its history in the headers (:mod:`~reference_broker.amqp.
death`). Letters without a route, such as those for an exchange that does not exist, are counted, and logged once per
queue.

*At most once*: the leader of the term in which the messages died publishes them, and waits for nothing (see
:meth:`reference_broker.queues.quorum_member.QuorumMember.apply`). If the leader dies in between, the letters are lost.

*At least once*: each queue has a *mailer*, which publishes under a channel identity of its own. When a letter is
committed in all queues that it goes to, the mailer tells the letter's queue, which forgets it. A letter without a
route, or refused by a full queue, stays in its queue and is tried again every ``dead_letter_retry_ms``, for the queues
that do not have it yet. A mailer ends with the leadership. The machine tells a new leader all open letters again, so a
letter may arrive twice, and is never lost. These *repeats* are counted, and each carries a header that says so. A
change of leader repeats no more letters than the window of the machine holds.

A letter that comes back to a queue where it was before is dropped, unless a consumer has rejected it in between. This
is RabbitMQ's rule: otherwise the letter would circle for ever.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from reference_broker.access.names import shown
from reference_broker.amqp.addressing import address_of, without_copies
from reference_broker.amqp.death import Death, dead_letter, is_cycle
from reference_broker.amqp.frames import short_string
from reference_broker.machines.cluster.metadata import QueueRecord, with_policy
from reference_broker.machines.cluster.policies import Policy
from reference_broker.machines.effects import DeadLetter
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.node.config import Limits
from reference_broker.node.hosting.local_clients import LocalClients, NodeConnection
from reference_broker.node.hosting.virtual_hosts import VirtualHost
from reference_broker.queues.port import DeadMessage, Queue
from reference_broker.queues.session import PublishSession
from reference_broker.types import ConsumerId, GroupId, IdRange

log = logging.getLogger(__name__)

OUTCOMES: Final = ("routed", "no_route", "cycle")
"""The counted outcomes. An at-least-once letter is counted at each try."""
_EVERYTHING: Final = 2**63


class DeadLetterPorts(Protocol):
    """The ports of the node for dead letters."""

    limits: Limits
    clients: LocalClients

    def virtual_host(self, name: str) -> VirtualHost:
        """The queues and exchanges of a virtual host, as this node knows them."""

    def policies(self) -> Collection[Policy]:
        """The policies of the cluster, as this node knows them."""

    def now_ms(self) -> int:
        """The wall clock."""

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a while."""


@dataclass(frozen=True, slots=True)
class LetterTarget:
    """The target of a queue's dead letters, in its virtual host. ``exchange`` is None if a policy set the exchange and
    was cleared after the messages died: such letters have no route, because the default exchange would return them to
    their queue."""

    exchange: str | None
    routing_key: str | None
    vhost: str

    @classmethod
    def of(cls, record: QueueRecord, policies: Iterable[Policy]) -> LetterTarget:
        """The target by the queue's declaration and the present policy."""
        arguments = dict(with_policy(record, policies).arguments)
        key = arguments.get("x-dead-letter-routing-key")
        exchange = arguments.get("x-dead-letter-exchange")
        return cls(None if exchange is None else str(exchange), None if key is None else str(key), record.vhost)


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter on its way: its route, its content as it is published, and the queues that it goes to. ``circles``: it
    would have gone to a queue where it has been before."""

    route: bytes
    key: str
    content: bytes
    queues: tuple[str, ...]
    circles: bool


class DeadLetterRouter:
    """Routes the dead letters of all queues that this node leads. ``counts`` counts letters by ``OUTCOMES``."""

    def __init__(self, node: DeadLetterPorts) -> None:
        self._node = node
        self._mailers: dict[GroupId, Mailer] = {}
        self._warned: set[GroupId] = set()
        self.counts: Counter[str] = Counter()
        self.repeated = 0
        """Letters that an earlier leader had, too: the most that can have been sent twice."""

    @property
    def mailing(self) -> Collection[GroupId]:
        """The queues whose at-least-once letters this node sends."""
        return self._mailers.keys()

    def route(self, queue: Queue, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """Send dead letters of a queue on their way."""
        record = queue.record
        reason, time_s = letters.reason.name.lower(), self._node.now_ms() // 1000
        dead = [_dead(record.short_name, reason, time_s, letter, letters.is_repeat) for letter in contents]
        self.repeated += len(dead) if letters.is_repeat else 0
        if not letters.first_id:
            self._send_untracked(record, self.address(record), dead)
            return
        mailer = self._mailers.get(record.group)
        if mailer is None:
            mailer = self._mailers[record.group] = Mailer(self._node, queue, self)
        mailer.take(letters.first_id, dead)

    def address(self, record: QueueRecord) -> LetterTarget:
        """The present target of the queue's letters: a policy may change the target at any time."""
        return LetterTarget.of(record, self._node.policies())

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
            text = "queue %s: dead letters for exchange %r, key %r have no route and are %s"
            log.warning(text, shown(record.name), exchange, key, outcome)

    def letter(self, address: LetterTarget, published_key: str, content: bytes) -> Letter:
        """The address of a letter. Without a routing key of the dead letters it goes by the keys of the message, CC
        ones included, as in RabbitMQ."""
        key = published_key if address.routing_key is None else address.routing_key
        own = address_of(content)
        copies = own.copies if address.routing_key is None else ()
        if own.copies and not copies:
            content = without_copies(content)
        vhost, exchange = self._node.virtual_host(address.vhost), address.exchange
        table = vhost.exchanges.table
        names: tuple[str, ...] = ()
        if exchange is not None and table.exchange(exchange) is not None:
            headers = own.headers if table.heeds_headers(exchange) else ()
            names = table.route(exchange, (key, *copies), headers)
        known = [name for name in names if name in vhost.queues]
        queues = tuple(name for name in known if not is_cycle(content, name))
        route = short_string(exchange or "") + short_string(key)
        return Letter(route, key, content, queues, circles=len(queues) < len(known))

    def _send_untracked(self, record: QueueRecord, address: LetterTarget, dead: list[tuple[str, bytes]]) -> None:
        ways: dict[tuple[bytes, tuple[str, ...]], list[Letter]] = {}
        for letter in (self.letter(address, key, content) for key, content in dead):
            if letter.queues:
                ways.setdefault((letter.route, letter.queues), []).append(letter)
            elif letter.circles:
                self.counts["cycle"] += 1
            else:
                self.no_route(record, letter.key, 1, "dropped")
        queues = self._node.virtual_host(record.vhost).queues
        for (route, names), letters in ways.items():
            for batch in _batches([each.content for each in letters], self._node.limits.batch_bytes_max):
                run = MessageRun.of(route, batch)
                for name in names:
                    queues[name].forward(run)
            self.counts["routed"] += len(letters)


class Mailer:
    """Sends the dead letters of one queue at least once. For the target queues, the mailer is a channel
    (:class:`~reference_broker.node.hosting.local_clients.LocalChannel`)."""

    connection: NodeConnection | None = None

    def __init__(self, node: DeadLetterPorts, queue: Queue, owner: DeadLetterRouter) -> None:
        self._node = node
        self._queue = queue
        self._owner = owner
        self.deliveries = self.publishing = self.answers = self
        self._channel = node.clients.new_channel(self, 1)
        self._targets: dict[GroupId, tuple[Queue, PublishSession]] = {}
        """The target queues of letters, each with a session."""
        self._open: dict[int, tuple[str, bytes]] = {}
        """Unconfirmed letters by id: the routing key of their publish, and the content."""
        self._owed: dict[int, set[GroupId]] = {}
        """The queues that got a letter and have not answered."""
        self._arrived: dict[int, set[GroupId]] = {}
        """The queues that have a letter which other queues do not have yet."""
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
        self._owed.clear()
        self._arrived.clear()
        self._unsent.clear()

    def committed(self, group: GroupId, last: int) -> bool:
        """Letters have arrived: when they have arrived everywhere, their queue may forget them."""
        if (target := self._targets.get(group)) is not None:
            self._settle(self._answered(group, target[1].committed(last), has_arrived=True))
        return False

    def missed(self, group: GroupId, consumer: ConsumerId, last: int) -> None:
        """Never called: a mailer does not consume."""

    def rejected(self, group: GroupId, first: int, last: int) -> None:
        """Letters were refused by a full queue: try again later."""
        self.committed(group, first - 1)
        if (target := self._targets.get(group)) is not None:
            self._retry_later(self._answered(group, target[1].committed(last), has_arrived=False))

    def queue_removed(self, record: QueueRecord) -> None:
        """A target is gone. Letters on their way there are tried again later."""
        if (target := self._targets.pop(record.group, None)) is not None:
            lost = target[1].committed(_EVERYTHING)
            self._retry_later(self._answered(record.group, lost, has_arrived=False))

    def _answered(self, group: GroupId, ranges: list[IdRange], *, has_arrived: bool) -> list[int]:
        """A queue has answered for letters. Returns their ids."""
        ids = [number for first, last in ranges for number in range(first, last + 1) if number in self._open]
        for number in ids:
            self._owed[number].discard(group)
            if has_arrived:
                self._arrived.setdefault(number, set()).add(group)
        return ids

    def _send(self, ids: list[int]) -> None:
        """Publish letters to the queues that do not have them yet. Neighbours on one way go as one run, of at most the
        octets of a batch of commands."""
        address = self._owner.address(self._queue.record)
        run: list[int] = []
        letters: list[Letter] = []
        groups: tuple[GroupId, ...] = ()
        octets = 0
        for number in ids:
            letter = self._owner.letter(address, *self._open[number])
            lacking = self._lacking(number, letter)
            if not lacking:
                continue
            is_full = octets + len(letter.content) > self._node.limits.batch_bytes_max
            if run and (number != run[-1] + 1 or letter.route != letters[0].route or lacking != groups or is_full):
                self._publish(run, letters, groups)
                run, letters, octets = [], [], 0
            groups = lacking
            octets += len(letter.content)
            run.append(number)
            letters.append(letter)
        if run:
            self._publish(run, letters, groups)

    def _lacking(self, number: int, letter: Letter) -> tuple[GroupId, ...]:
        """The queues that a letter is to be sent to now. A letter that goes nowhere is done, or is tried later."""
        if not letter.queues and not letter.circles:
            self._owner.no_route(self._queue.record, letter.key, 1, "kept until there is one")
            self._retry_later([number])
            return ()
        has = self._owed.setdefault(number, set()) | self._arrived.get(number, set())
        queues = self._node.virtual_host(self._queue.record.vhost).queues
        targets = {queue.record.group: queue for queue in map(queues.__getitem__, letter.queues)}
        for group in targets.keys() - has:
            self._targets.setdefault(group, (targets[group], PublishSession(self._channel)))
        if not targets:
            self._owner.counts["cycle"] += 1
        if targets.keys() <= has:
            self._settle([number])
        return tuple(group for group in targets if group not in has)

    def _publish(self, ids: list[int], letters: list[Letter], groups: tuple[GroupId, ...]) -> None:
        run = MessageRun.of(letters[0].route, [letter.content for letter in letters])
        for number in ids:
            self._owed[number].update(groups)
        for group in groups:
            target, session = self._targets[group]
            target.forward(run, session, ids[0])  # the session confirms the letters' ids
        self._owner.counts["routed"] += len(ids)

    def _settle(self, ids: list[int]) -> None:
        """Tell the queue of letters that have arrived everywhere."""
        unsent = set(self._unsent)
        done = [
            number for number in ids if number in self._open and not self._owed.get(number) and number not in unsent
        ]
        for number in done:
            for kept in (self._open, self._owed, self._arrived):
                kept.pop(number, None)
        if done:
            self._queue.dead_letters_settled(_ranges(done))

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

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        """Never called: a mailer does not consume."""
        return False

    def replied(self, correlation: int, value: int) -> None:
        """Never called: a mailer makes no requests."""


def _ranges(ids: list[int]) -> tuple[IdRange, ...]:
    """Ascending ids as ranges."""
    found: list[IdRange] = []
    for number in ids:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def _dead(source: str, reason: str, time_s: int, letter: DeadMessage, is_repeat: bool) -> tuple[str, bytes]:
    """The routing key of the letter's publish, and its content with the death in the headers."""
    route, content = letter
    exchange_octets = route[0]
    exchange = route[1 : 1 + exchange_octets].decode("utf-8", "replace")
    published_key = route[2 + exchange_octets :].decode("utf-8", "replace")
    return published_key, dead_letter(content, Death(source, reason, exchange, published_key, time_s, is_repeat))


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
