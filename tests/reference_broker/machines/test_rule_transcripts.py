"""The rules of a queue, one page each: what is told to whom when it is full, late, or has one active consumer.

A step is a line, then what the queue did; each is one entry of the log, applied by three members, who must agree. The
files are in data/rules/:

    settings KEY=VALUE ...              declares the queue; later on, the same line is a policy
    at MS                               what follows is stamped with this time
    publish COUNT [ttl=MS] [size=N]     by one publisher with confirms; the messages are m1, m2, ... in order
    push KEY,KEY,... [delay=MS] [retry=MS] [ttl=MS]      to a keyed queue, one message for each key; key - is none
    again FIRST COUNT                   the publisher sends these sequence numbers once more
    subscribe NAME [credit=N] [priority=N]
    settle / return / reject NAME ID [ID ...]      by message id
    cancel / down NAME, get NAME, purge, tick
    missed NAME ID                      its node has left out what it holds from this id on
    confirmed ID [ID ...]               dead letters with these ids have arrived
    lead                                a new leader takes over
    show                                draws the queue
    keys                                draws the keys of a keyed queue: the message that is out, the others, and from
                                        when on the next may go

``REWRITE=1 pytest ...`` writes the files anew; review the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    GetCheckedOut,
    Label,
    Purge,
    Return,
    Settle,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import DeadLetterStrategy, FifoConfig, KeyedConfig, Overflow
from reference_broker.machines.effects import (
    Confirm,
    DeadLetter,
    Deliver,
    Effect,
    QueueExpired,
    Reject,
    Reply,
    SetTimer,
)
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.machines.messages.origins import NEVER
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId

from .logs import TERM, batch, channel, decoded, drained, held, run_with, unroll, unroll_letters
from .transcript import transcript

DATA = Path(__file__).parent / "data" / "rules"
PUBLISHER = channel(1)
WORDS: dict[str, Callable[[str], Any]] = {
    "overflow": lambda word: Overflow[word.upper().replace("-", "_")],
    "dead_letter": lambda word: DeadLetterStrategy[word.upper().replace("-", "_")],
    "single_active": lambda word: word == "yes",
    "keyed": lambda word: word == "yes",
}


def keyed_options(words: Sequence[str]) -> dict[str, Any]:
    """The settings, with those of a keyed queue (``keyed=yes``, ``retry_delay_ms``, ``reserve_ms``) as a part."""
    given = options(words)
    if not given.pop("keyed", False):
        return given
    own = {key: given.pop(key) for key in ("retry_delay_ms", "reserve_ms") if key in given}
    return given | {"keyed": KeyedConfig(**own), "overflow": Overflow.REJECT_PUBLISH}


def options(words: Sequence[str]) -> dict[str, Any]:
    pairs = [word.split("=") for word in words]
    return {key: WORDS.get(key, int)(value) for key, value in pairs}


class Queue:
    """Runs the steps of one file on three members."""

    def __init__(self) -> None:
        self.members: list[FifoMachine] = []
        self.now_ms = 0
        self.seq = 1
        self.names: dict[tuple[int, int, int], str] = {}
        self.channels: dict[str, ChannelId] = {}
        self.led_since_ms = 0

    def step(self, line: str) -> list[str]:
        word, *rest = line.split()
        if word in ("at", "show", "keys", "lead"):
            return list(getattr(self, "do_" + word)(*rest))
        if word == "settings" and not self.members:
            config = FifoConfig(name="q", **keyed_options(rest))
            self.members = [FifoMachine(config) for _ in range(3)]
            return []
        return self.apply(getattr(self, "command_" + word)(*rest))

    def apply(self, command: Command) -> list[str]:
        index = LogIndex(self.members[0].applied + 1)
        payload = batch(command, time_ms=self.now_ms)
        if isinstance(command, Enqueue):
            [(offset, _)] = decoded(payload)
            for position in range(command.run.count):
                self.names[index, offset, position] = f"m{command.first_seq + position}"
        effects = [member.apply(Meta(index, TERM), payload) for member in self.members]
        assert effects[0] == effects[1] == effects[2]
        assert len({member.snapshot() for member in self.members}) == 1
        self.members[2] = FifoMachine.restore(self.members[2].snapshot())
        self.members[2].become_leader(self.led_since_ms)
        return [line for effect in effects[0] for line in self.draw(effect)]

    def do_at(self, ms: str) -> list[str]:
        self.now_ms = int(ms)
        return []

    def do_lead(self) -> list[str]:
        """All members do what only one does, because their effects are compared."""
        self.led_since_ms = self.now_ms
        effects, *_ = [member.become_leader(self.now_ms) for member in self.members]
        return [line for effect in effects for line in self.draw(effect)]

    def do_show(self) -> Iterator[str]:
        queue = self.members[0]
        yield "ready " + (" ".join(self.names[place] for place, _count in drained(queue)) or "-")
        for key, deliveries in held(queue).items():
            yield f"{key.tag} holds " + " ".join(f"{self.names[place]}({number})" for number, place, _ in deliveries)
        yield "service queue " + (" ".join(key.tag for key in queue.service_order()) or "-")

    def do_keys(self) -> Iterator[str]:
        keyed = self.members[0].state.keyed
        assert keyed is not None
        places = {}
        for each in self.members[0].redeliver_local(NodeId(2), 1):
            places |= {(each.consumer, number): place for number, place, _count in unroll(each)}
        for key in keyed.by_age() or [None]:
            if key is None:
                yield "no keys"
                continue
            out, name = key.reserved, key.name.decode() if key.name is not None else "-"
            waiting = [self.names[each.origin.entry, each.origin.offset, each.position] for each in key.waiting]
            if out is not None:
                held = self.names[places[out.consumer, out.message_id]]
                until = f" until {out.until_ms}" if out.until_ms != NEVER else ""
                yield f"{name}: {held} is out{until}; " + (" ".join(waiting) or "-")
            else:
                yield f"{name}: from {key.waiting[0].at_ms} on; " + " ".join(waiting)

    def consumer(self, name: str) -> ConsumerId:
        one = self.channels.setdefault(name, channel(2, number=len(self.channels) + 1))
        return ConsumerId(one, name)

    def command_settings(self, *words: str) -> Command:
        return UpdateConfig(FifoConfig(name="q", **keyed_options(words)))

    def command_publish(self, count: str, *words: str) -> Command:
        given = options(words)
        first, self.seq = self.seq, self.seq + int(count)
        return Enqueue(PUBLISHER, first, run_with(*[given.get("size", 1)] * int(count)), given.get("ttl", -1))

    def command_push(self, keys: str, *words: str) -> Command:
        given, names = options(words), keys.split(",")
        first, self.seq = self.seq, self.seq + len(names)
        times = given.get("delay", 0), given.get("retry", -1)
        labels = tuple((1, Label(None if name == "-" else name.encode(), *times)) for name in names)
        return Enqueue(PUBLISHER, first, run_with(*[1] * len(names)), given.get("ttl", -1), labels)

    def command_again(self, first: str, count: str) -> Command:
        return Enqueue(PUBLISHER, int(first), run_with(*[1] * int(count)))

    def command_subscribe(self, name: str, *words: str) -> Command:
        given = options(words)
        return Checkout(self.consumer(name), given.get("credit", 10), False, given.get("priority", 0), 1)

    def command_settle(self, name: str, *ids: str) -> Command:
        return Settle(self.consumer(name), ranges(ids))

    def command_return(self, name: str, *ids: str) -> Command:
        return Return(self.consumer(name), ranges(ids))

    def command_reject(self, name: str, *ids: str) -> Command:
        return Discard(self.consumer(name), ranges(ids))

    def command_cancel(self, name: str) -> Command:
        return Cancel(self.consumer(name), 2)

    def command_down(self, name: str) -> Command:
        return ChannelDown(self.consumer(name).channel)

    def command_get(self, name: str) -> Command:
        return Get(self.consumer(name), False, 3)

    def command_missed(self, name: str, message_id: str) -> Command:
        return GetCheckedOut(self.consumer(name), int(message_id), 4)

    def command_purge(self) -> Command:
        return Purge(PUBLISHER, 4)

    def command_tick(self) -> Command:
        return Tick()

    def command_confirmed(self, *ids: str) -> Command:
        return DeadLetterSettled(ranges(ids))

    def draw(self, effect: Effect) -> Iterator[str]:
        match effect:
            case Confirm(_channel, first, last):
                yield f"confirms m{first}-m{last}"
            case Reject(_channel, first, last):
                yield f"rejects m{first}-m{last}"
            case Deliver(consumer):
                again = f", delivery count {effect.delivery_count}" if effect.delivery_count else ""
                dealt = " ".join(f"{self.names[place]}({number})" for number, place, _count in unroll(effect))
                yield f"deals {dealt} to {consumer.tag}{again}"
            case Reply(_channel, correlation, value) if correlation in (3, 4):
                yield f"answers {value}"
            case DeadLetter():
                for number, place, reason, _count in unroll_letters(effect):
                    yield f"dead-letters {self.names[place]}, {reason}" + (f", as letter {number}" if number else "")
            case SetTimer(at_ms):
                yield f"sets the timer to {at_ms}"
            case QueueExpired():
                yield "wants to be deleted"


def ranges(ids: Sequence[str]) -> tuple[tuple[int, int], ...]:
    return tuple((int(one), int(one)) for one in ids)


NAMES = sorted(path.stem for path in DATA.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_the_transcript(name: str) -> None:
    """Who is refused, who loses what and when, is written down: a change must be seen and wanted."""
    path = DATA / f"{name}.txt"
    text = transcript(path, Queue().step)
    if os.environ.get("REWRITE"):
        path.write_text(text)
    assert text == path.read_text()
