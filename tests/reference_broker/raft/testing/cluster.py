"""Members and the messages between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.ready import Ready
from reference_broker.raft.roles import Role
from reference_broker.types import NOBODY, EntryKind, LogIndex, NodeId
from tests.reference_broker.raft.testing.checker import Checker, Violation
from tests.reference_broker.raft.testing.disk import Disk
from tests.reference_broker.raft.testing.member import Member

CONFIG: Final = EntryKind.CONFIG


class Cluster:
    """Members and the messages between them. ``links[a, b]`` is what ``a`` sent to ``b``, oldest first."""

    def __init__(
        self,
        disks: dict[NodeId, Disk],
        config: RaftConfig,
        jitter: Jitter,
        voters: tuple[NodeId, ...] | None = None,
        machine_versions: dict[NodeId, int] | None = None,
    ) -> None:
        """``voters`` were there when the group was created, by default all; the other nodes may join."""
        self.config = config
        self.voters = tuple(sorted(disks)) if voters is None else voters
        self.machine_versions = machine_versions or {}
        self.jitter = jitter
        self.nodes = sorted(disks)
        self.checker = Checker(disks, self.voters)
        self.trace: Callable[[str], None] | None = None
        self._said: dict[NodeId, tuple[Role, NodeId, LogIndex]] = {}
        self.links: dict[tuple[NodeId, NodeId], deque[bytes]] = {
            (a, b): deque() for a in self.nodes for b in self.nodes if a != b
        }
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.members = {node: Member(self, node, disks[node]) for node in self.nodes}

    def say(self, line: str) -> None:
        """Tell the listener, if there is one."""
        if self.trace is not None:
            self.trace(line)

    def say_ready(self, member: Member, ready: Ready) -> None:
        """Tell what a Ready asks for, except for its messages, which are told when they leave."""
        if self.trace is None:
            return
        parts = []
        if ready.hard_state is not None:
            parts.append(f"write term {ready.hard_state.term} vote {ready.hard_state.voted_for}")
        if ready.reset_to is not None:
            parts.append(f"reset log to {ready.reset_to}")
        if ready.truncate_from is not None:
            parts.append(f"drop {ready.truncate_from}..")
        if ready.append:
            parts.append(f"append {' '.join(f'{entry.index}@{entry.term}' for entry in ready.append)}")
        parts += [f"members {Configuration.decode(entry.payload)}" for entry in ready.append if entry.kind is CONFIG]
        before = self._said.get(member.node, (Role.FOLLOWER, NOBODY, member.core.log.snapshot_index))
        if before[:2] != (ready.role, ready.leader):
            parts.append(f"{ready.role} of {ready.leader or 'nobody'}")
        if before[2] != ready.commit:
            parts.append(f"commit {ready.commit}")
        parts += [f"read {token} at {index}" for token, index in ready.reads]
        parts += [f"read {token} refused" for token in ready.reads_refused]
        self._said[member.node] = (ready.role, ready.leader, ready.commit)
        if parts:
            self.say(f"{member.node}: {', '.join(parts)}")

    def forget(self, node: NodeId) -> None:
        """``node`` starts again: forget what was said about it."""
        self._said.pop(node, None)

    def send(self, sender: NodeId, to: NodeId, body: bytes) -> None:
        """Put a frame on its link, unless the link is cut."""
        if (sender, to) not in self.cut:
            self.links[sender, to].append(body)

    def deliver(self, sender: NodeId, to: NodeId, position: int = 0, *, keep: bool = False) -> bool:
        """Deliver one frame of a link, by default the oldest; ``keep`` leaves a duplicate behind. False if there is
        none or nobody to take it."""
        link = self.links[sender, to]
        if position >= len(link):
            return False
        body = link[position]
        if not keep:
            del link[position]
        if self.members[to].up:
            self.members[to].receive(sender, body)
        return True

    def cut_off(self, node: NodeId) -> None:
        """Everything under way from or to ``node`` is lost, and the other ends know that the link is a new one."""
        for link in self.links:
            if node in link:
                self.links[link].clear()
        for member in self.members.values():
            if member.node != node and member.up:
                member.core.node_up(node)
                member.pump()

    def lose(self, sender: NodeId, to: NodeId) -> None:
        """Lose everything under way on a link."""
        self.links[sender, to].clear()

    def settle(self, rounds: int = 1000) -> None:
        """Sync, deliver and notice everything, in a fixed order, until nothing is left to do."""
        for _ in range(rounds):
            if not self.settle_once():
                return
        raise Violation(f"the cluster is still busy after {rounds} rounds of delivering everything")

    def settle_once(self) -> bool:
        """One round of :meth:`settle`. False when there was nothing to do."""
        busy = False
        for member in (self.members[node] for node in self.nodes):
            if member.up:
                member.pump()
                busy = member.sync_hard_state() or busy
                busy = bool(member.sync()) or busy
                busy = member.notice() or busy
        for (sender, to), link in self.links.items():
            for _ in range(len(link)):
                busy = self.deliver(sender, to) or busy
        self.check()
        return busy

    def check(self) -> None:
        """The invariants that are about all members at once."""
        self.checker.durable()

    def leader(self) -> Member | None:
        """The member that leads in the highest term, if any does."""
        leading = [member for member in self.members.values() if member.up and member.core.role is Role.LEADER]
        return max(leading, key=lambda member: member.core.term, default=None)
