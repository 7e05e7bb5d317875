"""Plays a conversation to a connection of the broker, with a broker behind it that agrees to everything.

Nothing may come of any octets but what the protocol knows: answers, and at most one close with a code of the
specification. What was accepted must bear all that a broker does with it later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reference_broker.amqp import addressing, events
from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.death import Death, dead_letter, is_cycle
from reference_broker.amqp.deliveries import contents
from reference_broker.amqp.errors import SoftError
from reference_broker.amqp.state import Phase
from reference_broker.amqp.transactions import CommitTracker
from reference_broker.message_run import MessageRun
from tests.fuzz.conversations import ALL_PROPERTIES
from tests.reference_broker.amqp.testing import content

CONFIG: Final = ConnectionConfig()
HEARD_MAX: Final = 1000
"""More events than this no conversation of a few kilobytes causes."""
CODES: Final = frozenset(
    {200, 311, 312, 313, 320, 402, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 530, 540, 541}
)
_ROUTE: Final = b"\x00\x01q"
_RUN: Final = MessageRun.of(_ROUTE, [content(1, b"m%d" % number, ALL_PROPERTIES) for number in range(3)])
_DEATH: Final = Death("q", "expired", "", "q", 1_700_000_000)


_WORD: Final = re.compile(rb"[A-Za-z_]{3,}")


class DefectError(AssertionError):
    """Octets that the broker does not bear."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``said``: the octets of the server. ``reached``: what the conversation came to, for telling new behaviour from
    known."""

    said: bytes
    reached: frozenset[Any]


class Broker:
    """Agrees to everything at once, delivers three messages to each consumer, and confirms at the end."""

    def __init__(self) -> None:
        self.core = ServerConnection(CONFIG)
        self.reached: set[Any] = set()
        self._confirms: list[tuple[int, int, int]] = []
        self._heard = 0
        self._answers: dict[type, Callable[[Any], None]] = {
            events.QueueDeclare: lambda e: e.nowait or self.core.queue_declare_ok(e.channel, e.queue or "made", 0, 0),
            events.QueueDelete: lambda e: e.nowait or self.core.queue_delete_ok(e.channel, 0),
            events.QueuePurge: lambda e: e.nowait or self.core.queue_purge_ok(e.channel, 0),
            events.ExchangeDeclare: lambda e: e.nowait or self.core.exchange_ok(e.channel, e.method),
            events.ExchangeDelete: lambda e: e.nowait or self.core.exchange_ok(e.channel, e.method),
            events.BindingChange: lambda e: e.nowait or self.core.exchange_ok(e.channel, e.method),
            events.Publish: self._published,
            events.Consume: self._consume,
            events.Get: lambda e: self.core.get_ok(e.channel, e.consumer_tag, 1, (_RUN, 0, 1, 1), 1, 2, e.no_ack),
            events.Cancel: lambda e: e.nowait or self.core.cancel_ok(e.channel, e.consumer_tag),
            events.TxSelect: lambda e: self.core.tx_selected(e.channel, CommitTracker(lambda: None)),
            events.TxCommit: lambda e: self.core.tx_ended(e.channel, committed=True),
            events.TxRollback: lambda e: self.core.tx_ended(e.channel, committed=False),
        }

    def hear(self, octets: bytes) -> None:
        """Take octets, and answer."""
        found = self.core.receive(octets, 1.0)
        while found:
            for event in found:
                self._handle(event)
            found = self.core.go_on()

    def end(self) -> bytes:
        """Everything that the server said."""
        for channel, first, last in self._confirms:
            self.core.confirm(channel, first, last)
        self.core.flush_confirms()
        return b"".join(self.core.take_output())

    def _handle(self, event: events.Event) -> None:
        self._heard += 1
        if self._heard > HEARD_MAX:
            raise DefectError(f"more than {HEARD_MAX} events")
        self.reached.add(type(event))
        answer = self._answers.get(type(event))
        if answer is not None:
            answer(event)

    def _consume(self, event: events.Consume) -> None:
        if not event.nowait:
            self.core.consume_ok(event.channel, event.consumer_tag)
        self.core.deliver(event.channel, event.consumer_tag, 1, [(_RUN, 0, 2, 1), (_RUN, 2, 1, 1)], 0)

    def _published(self, event: events.Publish) -> None:
        run = event.run
        if event.first_seq:
            self._confirms.append((event.channel, event.first_seq, event.first_seq + run.count - 1))
        if event.mandatory:
            self.core.returned(event.channel, 312, "NO_ROUTE", event.exchange, event.routing_key, run)
        self.reached.add((min(event.ttl_ms, 1), bool(run.stride)))
        for _start, part, address in addressing.stretches(run):
            try:
                address.check()
                if address.has_blind_copies:
                    addressing.without_blind_copies(part)
            except SoftError as refused:
                self.reached.add(refused.text[:20])
        for each in contents(run, 1, 0, 0, run.count, 1):
            letter = dead_letter(bytes(each), _DEATH)
            is_cycle(dead_letter(letter, _DEATH), "q")


def play(octets: bytes, cuts: Sequence[int] = ()) -> Outcome:
    """Play a conversation, received in pieces that end at ``cuts`` (positions, ascending). Raises
    :class:`DefectError`, or whatever the broker raised."""
    broker = Broker()
    for begin, end in zip((0, *cuts), (*cuts, len(octets)), strict=True):
        broker.hear(octets[begin:end])
    said = broker.end()
    methods = [*_methods(said)]
    closes = [payload for payload in methods if payload[:4] == b"\x00\x0a\x00\x32"]
    wanted = {Phase.CLOSING: (1,), Phase.CLOSED: (0, 1)}.get(broker.core.phase, (0,))
    if len(closes) not in wanted:
        raise DefectError(f"{len(closes)} connection.close, and the connection is {broker.core.phase}")
    for payload in methods:
        if payload[:4] in (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28"):
            code = int.from_bytes(payload[4:6], "big")
            if code not in CODES or code == 541:
                raise DefectError(f"closed with {code}: {payload[7:]!r}")
            broker.reached.add((payload[:6], _words(payload[7:])))
        else:
            broker.reached.add(payload[:4])
    broker.reached.add(broker.core.phase)
    return Outcome(said, frozenset(broker.reached))


def _words(text: bytes) -> tuple[bytes, ...]:
    """The first words of a reply text, up to a quotation mark: what follows may be the client's own words."""
    return tuple(_WORD.findall(text.partition(b"'")[0])[:4])


def _methods(said: bytes) -> Iterable[bytes]:
    """The payloads of all method frames. Raises :class:`DefectError` if the octets are no frames."""
    at = 0
    while at < len(said):
        if said[at : at + 4] == b"AMQP":
            at += 8
            continue
        size = int.from_bytes(said[at + 3 : at + 7], "big")
        end = at + 7 + size
        if end >= len(said) or said[end] != 0xCE:
            raise DefectError(f"the server wrote a broken frame at {at}")
        if said[at] == 1:
            yield said[at + 7 : end]
        at = end + 1
