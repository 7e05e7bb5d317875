"""What a follower may commit by itself, because its leader has told it what the leader has on disk.

The storms look for what goes wrong with it; here is each reason not to, alone.
"""

from __future__ import annotations

from zlib import crc32

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.configuration import Configuration, noop_payload
from reference_broker.raft.core import RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import AppendEntries, LeaderSynced
from reference_broker.raft.ready import HardState
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term

LEADER, ME = NodeId(1), NodeId(2)
THREE = (LEADER, ME, NodeId(3))
OLD, NOW = Term(1), Term(2)


def entry(index: int, term: Term, kind: EntryKind = EntryKind.COMMAND, payload: bytes = b"x") -> Entry:
    return Entry(LogIndex(index), term, kind, crc32(payload), payload)


def noop(index: int, term: Term = NOW) -> Entry:
    return entry(index, term, EntryKind.NOOP, noop_payload(1))


def change(index: int, *voters: NodeId) -> Entry:
    return entry(index, NOW, EntryKind.CONFIG, Configuration(voters).encode())


def follower(*entries: Entry, members: tuple[NodeId, ...] = THREE) -> RaftCore:
    """Node 2, which got these entries from node 1, the leader of term 2."""
    hard_state = HardState(term=Term(0), voted_for=NOBODY)
    core = RaftCore(ME, members, LogView(), hard_state, RaftConfig(), lambda low, _high: low)
    message = AppendEntries(
        term=NOW, leader=LEADER, prev_index=LogIndex(0), prev_term=Term(0), commit=LogIndex(0), entries=entries
    )
    core.step(LEADER, message)
    core.ready()
    return core


def hears(core: RaftCore, index: int, *, leader: NodeId = LEADER, term: Term = NOW) -> int:
    """The leader has so much on disk. Returns the commit index."""
    core.step(leader, LeaderSynced(term=term, leader=leader, index=LogIndex(index)))
    return core.commit_index


def syncs(core: RaftCore, index: int, term: Term = NOW) -> int:
    core.synced(LogIndex(index), term)
    return core.commit_index


def test_what_both_have_on_disk_is_committed_whoever_was_first() -> None:
    core = follower(noop(1), entry(2, NOW), entry(3, NOW))
    assert (syncs(core, 2), hears(core, 1), hears(core, 3), syncs(core, 3)) == (0, 1, 2, 3)
    core = follower(noop(1), entry(2, NOW))
    assert (hears(core, 2), syncs(core, 1), syncs(core, 2)) == (0, 1, 2)
    core = follower(noop(1), members=THREE[:2])
    assert (syncs(core, 1), hears(core, 1)) == (0, 1)


def test_entries_of_an_older_term_wait_for_one_of_this_term() -> None:
    """Figure 8: an entry that a majority has may be overwritten, if no entry of the leader's term is above it."""
    core = follower(entry(1, OLD), entry(2, OLD), noop(3))
    assert (hears(core, 3), syncs(core, 2, OLD), syncs(core, 3)) == (0, 0, 3)


def test_two_are_no_majority_of_more_than_three() -> None:
    core = follower(noop(1), members=(*THREE, NodeId(4)))
    assert (hears(core, 1), syncs(core, 1)) == (0, 0)


def test_a_change_of_members_is_for_the_leader_to_count() -> None:
    core = follower(noop(1), change(2, *THREE, NodeId(4)), entry(3, NOW))
    assert (hears(core, 3), syncs(core, 3)) == (0, 0)
    core = follower(noop(1), change(2, LEADER, ME), entry(3, NOW))
    assert (hears(core, 3), syncs(core, 3)) == (0, 0)


def test_who_is_no_voter_counts_nothing() -> None:
    snapshot = LogView(snapshot_index=LogIndex(5), snapshot_term=NOW)
    hard_state = HardState(term=NOW, voted_for=NOBODY)
    core = RaftCore(ME, (), snapshot, hard_state, RaftConfig(), lambda low, _high: low)
    core.restored(Configuration((LEADER, NodeId(3))))
    message = AppendEntries(
        term=NOW, leader=LEADER, prev_index=LogIndex(5), prev_term=NOW, commit=LogIndex(5), entries=(entry(6, NOW),)
    )
    core.step(LEADER, message)
    assert (hears(core, 6), syncs(core, 6)) == (5, 5)


def test_only_the_leader_of_the_term_is_believed() -> None:
    core = follower(noop(1))
    syncs(core, 1)
    assert (hears(core, 1, leader=NodeId(3)), hears(core, 1, term=OLD), hears(core, 1, term=Term(3))) == (0, 0, 0)
    assert hears(core, 1) == 1


def test_another_leader_begins_anew() -> None:
    """What the former leader had on disk says nothing of the next."""
    core = follower(noop(1), entry(2, NOW))
    hears(core, 2)
    message = AppendEntries(
        term=Term(3), leader=NodeId(3), prev_index=LogIndex(2), prev_term=NOW, commit=LogIndex(0), entries=()
    )
    core.step(NodeId(3), message)
    assert syncs(core, 2) == 0


def test_a_link_that_broke_ends_it() -> None:
    """The leader may have gone on without this node, and given the messages of its consumers to others. A drive that is
    slow to sync must not make them first deliveries here, long after."""
    core = follower(noop(1), entry(2, NOW))
    hears(core, 2)
    core.node_down(LEADER)
    assert syncs(core, 2) == 0
    core = follower(noop(1), entry(2, NOW))
    hears(core, 2)
    core.node_up(LEADER)
    assert (syncs(core, 2), hears(core, 2)) == (0, 2)
