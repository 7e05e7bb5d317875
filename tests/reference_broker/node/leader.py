"""A leader of three with its core and its sender, and everything around these made up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

from reference_broker.node.config import Limits
from reference_broker.node.replication.sender import AnswerTimes, Sender
from reference_broker.raft import steady, wire
from reference_broker.raft.config import RaftConfig
from reference_broker.raft.core import RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import AppendEntries, AppendReply, Message, PreVoteReply, VoteReply
from reference_broker.raft.ready import HardState
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
TERM, GROUP = Term(1), GroupId(7)
QUICK_NS = 300_000


class Leader:
    """Node 1, which leads 2 and 3 in a group: its core and its sender, the rest made up."""

    node = ONE

    def __init__(self, clients: set[NodeId] | None = None, **limits: int) -> None:
        self.limits = Limits(**limits)
        self.congested: set[NodeId] = set()
        self.waits_for_links: list[NodeId] = []
        self.octets: list[int] = []
        self.clients = clients or set()
        self.now = 1
        self.frames: list[str] = []
        self.timers: list[Callable[[], None]] = []
        self.answers = AnswerTimes()
        self._entries: dict[int, Entry] = {}
        self.log: Any = SimpleNamespace(entries=self._read)
        hard_state = HardState(term=Term(0), voted_for=NOBODY)
        self.core = RaftCore(ONE, (ONE, TWO, THREE), LogView(), hard_state, RaftConfig(), min)
        host = SimpleNamespace(client_nodes=self.clients)
        self.sender = Sender(GROUP, self.core, self.log, cast(Any, self), cast(Any, host),
                             self.waits_for_links.append, lambda: None)  # fmt: skip
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
            self.core.step(node, has(0, 0))
            self.turn()
        self.answer(ONE, TWO, THREE)
        self.turn()
        for timer in self.due():
            timer()
        self.frames.clear()

    def _read(self, _group: GroupId, first: int, last: int, octets: int) -> list[Entry]:
        found: list[Entry] = []
        for index in range(first, last + 1):
            octets -= len(self._entries[index].payload)
            if octets < 0 and found:
                break
            found.append(self._entries[index])
        return found

    # Of the node

    def now_ns(self) -> int:
        return self.now

    def later(self, _delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append(call)

    in_step = later

    def send(self, node: NodeId, _kind: int, buffers: list[bytes | memoryview]) -> int:
        self.octets.append(1 + sum(map(len, buffers)))
        message: Message = wire.decode(b"".join(buffers))[1]
        if isinstance(message, AppendEntries):
            indexes = [entry.index for entry in message.entries]
            what = f"{indexes[0]}-{indexes[-1]}" if indexes else "nothing"
            self.frames.append(f"{node} gets {what}, commit {message.commit}")
        else:
            self.frames.append(f"{node} gets {type(message).__name__}")
        return self.octets[-1]

    # What happens

    def turn(self) -> None:
        while self.core.has_ready:
            ready = self.core.ready()
            self._entries |= {entry.index: entry for entry in ready.append}
            self.sender.send_all(ready)
        self.sender.go_on()

    def due(self) -> list[Callable[[], None]]:
        due, self.timers = self.timers, []
        return due

    def propose(self, *sizes: int) -> list[str]:
        """Entries of so many octets in one turn; what is sent at once."""
        for size in sizes or (100,):
            self.core.propose(EntryKind.COMMAND, bytes(size), crc32(bytes(size)))
        self.turn()
        return self.said()

    def propose_steadily(self) -> list[str]:
        """An entry the short way; what is sent at once."""
        leadership = self.core.leadership
        assert leadership is not None
        made = steady.propose(leadership, bytes(100), crc32(bytes(100)))
        assert made is not None
        self._entries[made[0].index] = made[0]
        self.sender.send_entry(*made)
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
                self.core.step(node, has(last, TERM))
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


def has(index: int, term: int, *, wants: int = 0, fits: bool = True) -> AppendReply:
    """The answer of a follower that has entries up to ``index`` on disk, and wants the next one or another."""
    synced = LogIndex(index)
    next_index = LogIndex(wants or index + 1)
    return AppendReply(term=TERM, success=fits, next_index=next_index, synced_index=synced, synced_term=Term(term))
