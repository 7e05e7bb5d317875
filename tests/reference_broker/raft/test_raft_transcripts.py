"""Clusters driven by hand, step by step, against what data/*.txt recorded. REWRITE=1 records anew; review the diff.

Commands (node numbers are 1, 2, ...)::

    disk N terms=1,1,2 [term=2] [vote=1]   what node N has on disk before the start: one term an entry
    start COUNT [window=N] [batch=N] [voters=1,2]   start that many nodes; timers take 4 ticks, resends 20; not all vote
    campaign N | tick N COUNT | propose N TEXT | snapshot N
    hard N                                 sync the oldest hard state of N: its messages leave
    sync N [quietly]                       sync what N wrote and, unless quietly, tell its core
    notice N                               tell N's core of one sync that was kept quiet
    deliver A B [COUNT] | lose A B         frames from A to B
    settle [quietly]                       everything, until nothing is left to do
    down N A,B | up N A,B                  N is suspected by A and B, or trusted again
    cut A B | mend                         frames from A to B vanish | no more
    crash N [SURVIVING] | restart N | wipe N   the replica of N is deleted, and may join again
    forget N COUNT                         N crashes, and its last COUNT entries are gone from its disk
    add N NODE | remove N NODE | transfer N NODE | read N TOKEN   asked of the leader N
    show [N]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.errors import ChangeUnderWayError, NotLeaderError, TransferUnderWayError
from reference_broker.raft.ready import HardState
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term
from tests.reference_broker.raft.testing import Cluster, Disk, Member, replay

DATA = Path(__file__).parent / "data"
TRANSCRIPTS = sorted(path.name for path in DATA.glob("*.txt") if path.name != "quorum.txt")


class Director:
    """Carries out the commands of one transcript."""

    def __init__(self) -> None:
        self._disks: dict[NodeId, Disk] = {}
        self._said: list[str] = []
        self._cluster: Cluster

    def obey(self, line: str) -> str:
        """What a command made the cluster do, one line an event."""
        name, *words = line.split()
        self._said = []
        command: Callable[..., None] = getattr(self, f"do_{name}")
        command(*words)
        if name not in ("disk", "show"):
            self._cluster.check()
        return "\n".join(self._said)

    def _member(self, node: str) -> Member:
        return self._cluster.members[NodeId(int(node))]

    def do_disk(self, node: str, *settings: str) -> None:
        given = dict(setting.split("=") for setting in settings)
        terms = [Term(int(term)) for term in given["terms"].split(",")] if given.get("terms") else []
        disk = self._disks[NodeId(int(node))] = Disk()
        disk.hard_state = HardState(
            term=Term(int(given.get("term", max(terms, default=0)))), voted_for=NodeId(int(given.get("vote", NOBODY)))
        )
        for index, term in enumerate(terms, 1):
            payload = b"%d@%d" % (index, term)
            disk.entries[LogIndex(index)] = Entry(LogIndex(index), term, EntryKind.COMMAND, crc32(payload), payload)

    def do_start(self, count: str, *settings: str) -> None:
        given = dict(setting.split("=") for setting in settings)
        config = RaftConfig(
            max_pipeline_entries=int(given.get("window", 64)), max_entries_per_append=int(given.get("batch", 16))
        )
        disks = {NodeId(node): self._disks.get(NodeId(node), Disk()) for node in range(1, int(count) + 1)}
        voters = tuple(NodeId(int(node)) for node in given["voters"].split(",")) if "voters" in given else None
        self._cluster = Cluster(disks, config, lambda low, high: low, voters)
        self._cluster.trace = self._said_line
        for member in self._cluster.members.values():
            member.pump()

    def _said_line(self, line: str) -> None:
        self._said.append(line)

    def do_campaign(self, node: str) -> None:
        self._member(node).core.campaign()
        self._member(node).pump()

    def do_tick(self, node: str, count: str) -> None:
        for _ in range(int(count)):
            self._member(node).core.tick()
            self._member(node).pump()

    def do_propose(self, node: str, text: str) -> None:
        try:
            self._member(node).propose(text.encode())
        except (NotLeaderError, TransferUnderWayError) as error:
            self._said.append(str(error))

    def do_add(self, leader: str, node: str) -> None:
        member, joining = self._member(leader), self._member(node)
        self._try(leader, lambda: member.core.add(joining.node, joining.replica_id))

    def do_remove(self, leader: str, node: str) -> None:
        self._try(leader, lambda: self._member(leader).core.remove(NodeId(int(node))))

    def do_transfer(self, leader: str, node: str) -> None:
        self._try(leader, lambda: self._member(leader).core.transfer(NodeId(int(node))))

    def do_read(self, node: str, token: str) -> None:
        self._try(node, lambda: self._member(node).read(int(token)))

    def do_wipe(self, node: str) -> None:
        self._member(node).wipe()

    def _try(self, node: str, ask: Callable[[], object]) -> None:
        try:
            ask()
        except (NotLeaderError, ChangeUnderWayError, TransferUnderWayError, ValueError) as error:
            self._said.append(str(error))
        self._member(node).pump()

    def do_snapshot(self, node: str) -> None:
        assert self._member(node).take_snapshot()

    def do_hard(self, node: str) -> None:
        assert self._member(node).sync_hard_state(), "no hard state waits to be synced"

    def do_sync(self, node: str, quietly: str = "") -> None:
        assert self._member(node).sync(), "nothing waits to be synced"
        if not quietly:
            while self._member(node).notice():
                pass

    def do_notice(self, node: str) -> None:
        assert self._member(node).notice(), "nobody was kept quiet"

    def do_deliver(self, sender: str, to: str, count: str = "1") -> None:
        for _ in range(int(count)):
            assert self._cluster.deliver(NodeId(int(sender)), NodeId(int(to))), "nothing is under way"

    def do_lose(self, sender: str, to: str) -> None:
        self._cluster.lose(NodeId(int(sender)), NodeId(int(to)))

    def do_settle(self, quietly: str = "") -> None:
        self._cluster.settle()
        if quietly:
            self._said.clear()

    def do_down(self, node: str, observers: str) -> None:
        for observer in observers.split(","):
            self._member(observer).core.node_down(NodeId(int(node)))
            self._member(observer).pump()

    def do_up(self, node: str, observers: str) -> None:
        for observer in observers.split(","):
            self._member(observer).core.node_up(NodeId(int(node)))
            self._member(observer).pump()

    def do_cut(self, sender: str, to: str) -> None:
        self._cluster.cut.add((NodeId(int(sender)), NodeId(int(to))))

    def do_mend(self) -> None:
        self._cluster.cut.clear()

    def do_crash(self, node: str, surviving: str = "0") -> None:
        self._member(node).crash(int(surviving))

    def do_forget(self, node: str, count: str) -> None:
        self._member(node).lose(int(count))

    def do_restart(self, node: str) -> None:
        self._member(node).restart()
        self._member(node).pump()

    def do_show(self, node: str = "") -> None:
        shown = [self._member(node)] if node else list(self._cluster.members.values())
        self._said += [member.describe() for member in shown]


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_cluster_does_what_was_recorded(name: str) -> None:
    """Each file says in its first lines what would be lost."""
    path = DATA / name
    recorded = path.read_text()
    drawn = replay(recorded, Director().obey)
    if os.environ.get("REWRITE"):
        path.write_text(drawn)
    else:
        assert drawn == recorded


def test_there_are_transcripts() -> None:
    """A wrong path would make the test above pass without testing."""
    assert len(TRANSCRIPTS) >= 20
