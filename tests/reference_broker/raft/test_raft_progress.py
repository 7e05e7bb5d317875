"""What a leader may say to a follower, where worlds seldom get to."""

from __future__ import annotations

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import AppendReply
from reference_broker.raft.progress import Flow, Progress
from reference_broker.raft.ready import Outgoing, SendSnapshot
from reference_broker.types import LogIndex, NodeId, Term

TERM = Term(1)


def told_of_three(log: LogView) -> Progress:
    """A follower that has three entries, and was sent no more."""
    follower = Progress(NodeId(2), LogIndex(4), True)
    reply = AppendReply(term=TERM, success=True, next_index=LogIndex(4), synced_index=LogIndex(3), synced_term=TERM)
    follower.accepted(reply, log)
    assert follower.flow is Flow.PIPELINE
    return follower


def test_no_notice_goes_to_a_follower_whose_next_entry_is_gone() -> None:
    """The leader compacted its log before the follower was sent an entry: the follower gets a snapshot instead."""
    log = LogView(runs=[(LogIndex(1), TERM)], last_index=LogIndex(9))
    log.commit_index = LogIndex(9)
    assert told_of_three(log).notice(log, TERM) is not None
    follower = told_of_three(log)
    log.compact(LogIndex(7), TERM)
    assert follower.notice(log, TERM) is None
    out: list[Outgoing] = []
    follower.collect(log, TERM, log.commit_index, RaftConfig(), out)
    assert [type(each) for each in out] == [SendSnapshot]
