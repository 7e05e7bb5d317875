"""Copies that no majority needs wait, and never longer than they may (docs/decisions/0010)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import pytest

from reference_broker.node.answer_times import AnswerTimes
from reference_broker.node.config import Limits
from reference_broker.node.sending import Sender
from reference_broker.raft import wire
from reference_broker.raft.config import RaftConfig
from reference_broker.raft.core import RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import AppendEntries, AppendReply, Message, PreVoteReply, VoteReply
from reference_broker.raft.ready import HardState
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
TERM, GROUP = Term(1), GroupId(7)
QUICK_NS, SLOW_NS = 300_000, 8_000_000


class Leader:
    """Node 1, which leads 2 and 3 in a group: its core and its sender, the rest made up."""

    node = ONE
    limits = Limits()

    def __init__(self, clients: set[NodeId] | None = None) -> None:
        self.clients = clients or set()
        self.now = 1
        self.frames: list[str] = []
        self.timers: list[Callable[[], None]] = []
        self.answers = AnswerTimes()
        self._entries: dict[int, Entry] = {}
        log: Any = SimpleNamespace(entries=self._read)
        hard_state = HardState(term=Term(0), voted_for=NOBODY)
        self.core = RaftCore(ONE, (ONE, TWO, THREE), LogView(), hard_state, RaftConfig(), min)
        self.sender = Sender(GROUP, self.core, log, cast(Any, self), self.clients.__contains__)
        self._win()

    def _win(self) -> None:
        self.core.campaign()
        asked = next(iter(self.core.ready().messages))
        token = cast(Any, asked).message.token
        self.core.step(TWO, PreVoteReply(term=Term(0), token=token, granted=True))
        self.core.ready()
        self.core.step(TWO, VoteReply(term=TERM, granted=True))
        self.turn()
        for node in (TWO, THREE):  # to the probe, then for the no-op
            self.core.step(node, _has(0, 0))
            self.turn()
        self.answer(ONE, TWO, THREE)
        self.turn()
        for timer in self.due():
            timer()
        self.frames.clear()

    def _read(self, _group: GroupId, first: int, last: int, _octets: int) -> list[Entry]:
        return [self._entries[index] for index in range(first, last + 1)]

    # Of the node

    def now_ns(self) -> int:
        return self.now

    def later(self, _delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append(call)

    def send(self, node: NodeId, _kind: int, buffers: list[bytes | memoryview]) -> bool:
        message: Message = wire.decode(b"".join(buffers))[1]
        if isinstance(message, AppendEntries):
            indexes = [entry.index for entry in message.entries]
            what = f"{indexes[0]}-{indexes[-1]}" if indexes else "nothing"
            self.frames.append(f"{node} gets {what}, commit {message.commit}")
        else:
            self.frames.append(f"{node} gets {type(message).__name__}")
        return True

    # What happens

    def turn(self) -> None:
        while self.core.has_ready:
            ready = self.core.ready()
            self._entries |= {entry.index: entry for entry in ready.append}
            self.sender.send_all(ready)

    def due(self) -> list[Callable[[], None]]:
        due, self.timers = self.timers, []
        return due

    def propose(self, *sizes: int) -> list[str]:
        """Entries of so many octets in one turn; what is sent at once."""
        for size in sizes or (100,):
            self.core.propose(EntryKind.COMMAND, bytes(size), crc32(bytes(size)))
        self.turn()
        return self.said()

    def answer(self, *nodes: NodeId) -> list[str]:
        """They have everything on disk now; what is sent for that."""
        self.now += QUICK_NS
        last = self.core.log.last_index
        for node in nodes:
            self.sender.answered(node, last)
            if node == ONE:
                self.core.synced(last, TERM)
            else:
                self.core.step(node, _has(last, TERM))
        self.turn()
        return self.said()

    def later_on(self) -> list[str]:
        """The delay is over; what is sent for that."""
        for timer in self.due():
            timer()
        return self.said()

    def said(self) -> list[str]:
        frames, self.frames = self.frames, []
        return frames

    def warm_up(self) -> None:
        """One entry that both get, so that it is known how quick each is."""
        assert len(self.propose()) == 2
        self.answer(ONE, TWO, THREE)
        self.later_on()


def _has(index: int, term: int) -> AppendReply:
    synced = LogIndex(index)
    return AppendReply(
        term=TERM, success=True, next_index=LogIndex(index + 1), synced_index=synced, synced_term=Term(term)
    )


def test_who_never_answered_is_not_relied_on() -> None:
    assert Leader().propose() == ["2 gets 2-2, commit 1", "3 gets 2-2, commit 1"]


def test_one_follower_makes_the_majority_and_the_other_gets_many_at_once() -> None:
    leader = Leader()
    leader.warm_up()
    for index in (3, 4, 5):
        assert leader.propose() == [f"3 gets {index}-{index}, commit {index - 1}"]
        assert leader.answer(ONE, THREE) == []
        assert leader.core.commit_index == index
    assert "2 gets 3-5, commit 5" in leader.later_on()


def test_without_clients_is_who_waits() -> None:
    leader = Leader(clients={TWO})
    leader.warm_up()
    assert leader.propose() == ["2 gets 3-3, commit 2"]
    assert leader.answer(ONE, TWO) == ["2 gets nothing, commit 3"]
    assert leader.later_on() == ["3 gets 3-3, commit 3"]


def test_where_clients_wait_no_copy_does() -> None:
    leader = Leader(clients={TWO, THREE})
    leader.warm_up()
    assert leader.propose() == ["2 gets 3-3, commit 2", "3 gets 3-3, commit 2"]


def test_who_has_not_answered_what_came_before_is_not_relied_on() -> None:
    leader = Leader()
    leader.warm_up()
    assert leader.propose() == ["3 gets 3-3, commit 2"]
    leader.answer(ONE)
    assert leader.propose() == ["2 gets 3-4, commit 2", "3 gets 4-4, commit 2"]


@pytest.mark.parametrize("slow", [1, 3])
def test_nobody_waits_for_the_sake_of_who_is_slower(slow: int) -> None:
    leader = Leader()
    leader.warm_up()
    for _ in range(20):
        leader.answers.took(NodeId(slow), SLOW_NS)
    if slow == 3:
        assert leader.propose() == ["2 gets 3-3, commit 2"]  # it is the slow one that waits
    else:
        assert len(leader.propose()) == 2  # the leader's own drive is, and the two others are the majority


def test_a_broken_link_sets_free_what_waits() -> None:
    leader = Leader()
    leader.warm_up()
    assert leader.propose() == ["3 gets 3-3, commit 2"]
    leader.sender.peer_down(THREE)
    leader.core.node_down(THREE)
    assert leader.said() == ["2 gets 3-3, commit 2"]
    assert leader.propose() == ["2 gets 4-4, commit 2"]
    assert leader.later_on() == []


@pytest.mark.parametrize("sizes", [(70_000,), (40_000, 40_000)])
def test_many_octets_wait_for_nothing(sizes: tuple[int, ...]) -> None:
    leader = Leader()
    leader.warm_up()
    assert len(leader.propose(*sizes)) == 2


def test_a_change_of_members_waits_for_nothing_and_takes_along_what_waits() -> None:
    leader = Leader()
    leader.warm_up()
    leader.propose()
    leader.answer(ONE, THREE)
    leader.core.remove(THREE)
    leader.turn()
    assert leader.said() == ["2 gets 3-4, commit 3"]


def test_nothing_overtakes_what_waits() -> None:
    leader = Leader()
    leader.warm_up()
    assert leader.propose() == ["3 gets 3-3, commit 2"]
    leader.core.read(1)
    leader.turn()
    assert leader.said() == ["2 gets 3-3, commit 2", "2 gets Heartbeat", "3 gets Heartbeat"]


def test_what_was_held_back_until_the_lead_was_lost_waits_for_nothing() -> None:
    """Messages wait for a term and a vote to be on disk; by then there may be another leader, and nobody to count."""
    leader = Leader()
    leader.warm_up()
    leader.core.propose(EntryKind.COMMAND, b"", crc32(b""))
    held = leader.core.ready()
    leader._entries |= {entry.index: entry for entry in held.append}
    leader.core.step(TWO, VoteReply(term=Term(9), granted=False))
    leader.sender.send_all(held)
    assert leader.said() == ["2 gets 3-3, commit 2", "3 gets 3-3, commit 2"]
