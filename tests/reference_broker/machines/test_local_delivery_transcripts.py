"""Local delivery, event by event: three members, each at its own place in one log.

The files in data/ follow the published walk through local delivery ("How quorum queues deliver locally while still
offering ordering guarantees"): its groups of events are the headings. A step is a line, then what happened:

    channel NAME on MEMBER    one on that member's node; p... publishes, c... consumes (D: a node without a member)
    append COMMAND            a channel asks, the leader appends it to its log
    replicate MEMBER          the member gets the leader's next entry
    apply MEMBER              the member applies its next entry, which must be committed
    leave CHANNEL             the channel's connection breaks
    stop MEMBER / elect MEMBER
    members                   draws everybody

``REWRITE=1 pytest ...`` writes the files anew; review the difference.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reference_broker.machines.commands import ChannelDown, Checkout, Command, Enqueue, Settle
from reference_broker.machines.effects import Confirm, Deliver, Effect, local_effects
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId, Term

from .logs import batch, channel, decoded, drained, held, machine, run_of, unroll
from .transcript import transcript

DATA = Path(__file__).parent / "data"
NODES = {"A": NodeId(1), "B": NodeId(2), "C": NodeId(3)}
NODE_WITHOUT_MEMBER = {"D": NodeId(4)}
QUORUM = 2
CREDIT = 10


@dataclass
class Entry:
    term: int
    text: str
    payload: bytes


@dataclass
class Member:
    name: str
    log: list[Entry] = field(default_factory=list)
    queue: FifoMachine = field(default_factory=machine)
    alive: bool = True


class Cluster:
    """Runs the steps of one file. What it draws comes from the machines alone."""

    def __init__(self) -> None:
        self.members = {name: Member(name) for name in NODES}
        self.leader = "B"
        self.term = 1
        self.commit = 0
        self.channels: dict[str, ChannelId] = {}
        self.gone: set[str] = set()
        self.seqs: dict[str, int] = {}
        self.messages: dict[tuple[int, int], str] = {}
        self.message_ids: dict[tuple[str, str], int] = {}
        self.executors: dict[tuple[ConsumerId, int], list[str]] = {}
        self.states: dict[int, set[tuple[bytes, tuple[ConsumerId, ...]]]] = {}
        self.received: dict[str, list[str]] = {}

    def step(self, line: str) -> list[str]:
        word, *rest = line.split()
        return list(getattr(self, "do_" + word)(*rest))

    def do_channel(self, name: str, _on: str, member: str) -> list[str]:
        self.channels[name] = channel((NODES | NODE_WITHOUT_MEMBER)[member], number=len(self.channels) + 1)
        return []

    def do_append(self, kind: str, *words: str) -> list[str]:
        command = getattr(self, "command_" + kind)(*words)
        letter = {"enqueue": "E", "subscribe": "S", "acknowledge": "A", "down": "D"}[kind]
        entry = Entry(self.term, f"{letter} {self.term}:{self.last + 1} {words[0]}", batch(command))
        self.members[self.leader].log.append(entry)
        if kind == "enqueue":
            [(offset, _)] = decoded(entry.payload)
            self.messages[self.last, offset] = words[0]
        return [f"{self.leader} appends {entry.text}"]

    @property
    def last(self) -> int:
        return len(self.members[self.leader].log)

    def command_enqueue(self, _message: str, _by: str, publisher: str) -> Command:
        self.seqs[publisher] = self.seqs.get(publisher, 0) + 1
        return Enqueue(self.channels[publisher], self.seqs[publisher], run_of(1))

    def command_subscribe(self, name: str) -> Command:
        return Checkout(self.consumer(name), CREDIT, False, 0, 1)

    def command_acknowledge(self, message: str, _by: str, name: str) -> Command:
        message_id = self.message_ids[name, message]
        return Settle(self.consumer(name), ((message_id, message_id),))

    def command_down(self, name: str) -> Command:
        return ChannelDown(self.channels[name])

    def consumer(self, name: str) -> ConsumerId:
        return ConsumerId(self.channels[name], name)

    def do_replicate(self, name: str) -> list[str]:
        member, leader = self.members[name], self.members[self.leader]
        assert member.alive and leader.alive
        entry = leader.log[len(member.log)]
        member.log.append(entry)
        return [f"{name} has {entry.text}"]

    def do_apply(self, name: str) -> Iterator[str]:
        member = self.members[name]
        index = member.queue.applied + 1
        entry = member.log[index - 1]
        assert member.alive
        self.advance_commit()
        assert index <= self.commit, f"{entry.text} is not committed"
        effects = member.queue.apply(Meta(LogIndex(index), Term(entry.term)), entry.payload)
        self.states.setdefault(index, set()).add((member.queue.snapshot(), tuple(member.queue.service_order())))
        yield f"{name} applies {entry.text}"
        mine = local_effects(effects, NODES[name], name == self.leader, NODES.values())
        for effect in effects:
            yield from self.draw_effect(name, effect, effect in mine)

    def advance_commit(self) -> None:
        """Raft 5.4.2: an entry of this term on a majority commits all before it; one of an older term does not."""
        for index, entry in enumerate(self.members[self.leader].log, 1):
            copies = sum(len(member.log) >= index for member in self.members.values())
            if copies >= QUORUM and entry.term == self.term:
                self.commit = max(self.commit, index)

    def draw_effect(self, member: str, effect: Effect, is_mine: bool) -> Iterator[str]:
        if isinstance(effect, Confirm) and is_mine:
            yield f"  confirms to {self.name_of(effect.channel)}"
        if isinstance(effect, Deliver):
            name = effect.consumer.tag
            for message_id, (index, offset, _position), delivery_count in unroll(effect):
                message = self.messages[index, offset]
                self.message_ids[name, message] = message_id
                again = " again" if delivery_count else ""
                executors = self.executors.setdefault((effect.consumer, message_id), [])
                if not is_mine:
                    yield f"  deals {message}{again} to {name}, not local"
                    continue
                executors.append(member)
                if name in self.gone:
                    yield f"  deals {message}{again} to {name}, local but gone"
                    continue
                self.received.setdefault(name, []).append(message)
                how = "local" if effect.consumer.channel.node == NODES[member] else "whose node has no member"
                yield f"  deals {message}{again} to {name}, {how}: sends it"

    def name_of(self, channel_id: ChannelId) -> str:
        return next(name for name, known in self.channels.items() if known == channel_id)

    def do_leave(self, name: str) -> list[str]:
        self.gone.add(name)
        return []

    def do_stop(self, name: str) -> list[str]:
        self.members[name].alive = False
        return []

    def do_elect(self, name: str) -> list[str]:
        """Raft 5.4.1: only who has all that a majority may have committed."""
        alive = [member for member in self.members.values() if member.alive]
        assert len(alive) >= QUORUM and len(self.members[name].log) == max(len(member.log) for member in alive)
        self.leader = name
        self.term += 1
        return [f"{name} leads in term {self.term}"]

    def do_members(self) -> Iterator[str]:
        for member in self.members.values():
            if not member.alive:
                yield f"{member.name} stopped"
                continue
            role = "leader" if member.name == self.leader else "follower"
            order = " ".join(key.tag for key in member.queue.service_order()) or "-"
            log = ", ".join(entry.text for entry in member.log) or "-"
            place = f"{member.name} {role:8} applied {member.queue.applied}"
            yield f"{place} | SQ {order} | {self.draw_queue(member.queue)} | log {log}"

    def draw_queue(self, queue: FifoMachine) -> str:
        ready = [f"{self.messages[place[0], place[1]]} ready" for place, _count in drained(queue)]
        dealt = [
            f"{self.messages[place[0], place[1]]} with {key.tag}"
            for key, deliveries in held(queue).items()
            for _id, place, _count in deliveries
        ]
        return ", ".join(sorted(ready + dealt)) or "empty"


def play(path: Path) -> tuple[Cluster, str]:
    """Run the steps of a file; gives the file as it should be."""
    cluster = Cluster()
    return cluster, transcript(path, cluster.step)


FILES = sorted(DATA.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_transcript(path: Path) -> None:
    """What each member does at each step is written down: a change of who delivers must be seen and wanted."""
    _cluster, text = play(path)
    if os.environ.get("REWRITE"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_message_is_delivered_by_two_members_or_by_none(path: Path) -> None:
    """The point of it all: no coordination, and yet each delivery has one sender, the member local to the consumer."""
    cluster, _ = play(path)
    hosts = {node: name for name, node in NODES.items()}
    assert cluster.executors
    for (consumer, message_id), executors in cluster.executors.items():
        assert executors == [hosts.get(consumer.channel.node, "B")], f"{consumer.tag} id {message_id}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_members_at_the_same_index_have_the_same_state(path: Path) -> None:
    """Service queues differ only between members that are at different places in the log."""
    cluster, _ = play(path)
    assert {len(states) for states in cluster.states.values()} == {1}


@pytest.mark.parametrize(
    ("name", "received"),
    [
        ("local_delivery", {"c1": ["m1", "m2"], "c2": ["m3"]}),
        ("consumer_failure", {"c1": ["m1"], "c2": ["m1", "m2"]}),
        ("proxied", {"c1": ["m1"], "c4": ["m2"]}),
    ],
)
def test_consumers_receive_what_the_walk_says(name: str, received: dict[str, list[str]]) -> None:
    """The outcome in one line, independent of how the transcript is drawn."""
    assert play(DATA / f"{name}.txt")[0].received == received
